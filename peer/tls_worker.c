/* SPDX-License-Identifier: MIT
 * tls_worker.c: see tls_worker.h; the split of work is told in tls_internal.h. */
#include "peer/tls_internal.h"
#include "proto/base/qos.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#if MBEDTLS_VERSION_MAJOR >= 3
#include <psa/crypto.h>
#endif

/* ---- blocks ---- */

struct tls_block *tls_block_new(size_t cap)
{
    struct tls_block *b = malloc(sizeof *b + cap);
    if (b) {
        b->next = NULL;
        b->off = b->n = 0;
        b->cap = cap;
    }
    return b;
}

void tls_blocks_free(struct tls_blocks *l)
{
    while (l->head) {
        struct tls_block *b = l->head;
        l->head = b->next;
        free(b);
    }
    l->tail = NULL;
}

void tls_frames_free(struct tls_frames *l)
{
    while (l->head) {
        struct frame *f = l->head;
        l->head = f->next;
        frame_free(f);
    }
    l->tail = NULL;
}

/* ---- the worker thread ---- */

void tls_worker_ready(struct tls_conn *c)
{
    struct tls_worker *w = c->worker;
    if (c->sh.in_ready || c->sh.detached) {
        return;
    }
    c->sh.in_ready = true;
    c->ready_next = NULL;
    if (w->ready_tail) {
        w->ready_tail->ready_next = c;
    } else {
        w->ready_head = c;
    }
    w->ready_tail = c;
    uv_cond_signal(&w->wake);
}

/* With the lock: what the loop left becomes the engine's. */
static void take(struct tls_conn *c)
{
    TLS_SPLICE(&c->en.in, &c->sh.in);
    c->en.eof = c->sh.eof;
    c->en.closing = c->sh.close;
    if (c->sh.promoted && c->en.open) {
        c->en.reader.body_max = WIRE_BODY_MAX;
        c->en.reader.raw_max = WIRE_RAW_MAX;
    }
}

/* With the lock: what the engine made becomes the loop's. Returns true when the loop should look.
 */
static bool give(struct tls_conn *c)
{
    struct tls_shared *sh = &c->sh;
    struct tls_engine *en = &c->en;
    bool news = en->out.head || en->frames.head || en->done.head || en->open != sh->open ||
                en->ended != sh->ended;
    TLS_SPLICE(&sh->out, &en->out);
    TLS_SPLICE(&sh->frames, &en->frames);
    TLS_SPLICE(&sh->done, &en->done);
    sh->out_bytes += en->out_new;
    sh->rx_bytes += en->frames_bytes;
    sh->rx_frames += en->frames_n;
    sh->tx_bytes -= en->done_bytes;
    sh->in_bytes -= en->in_used;
    sh->rx_stalled = en->rx_stalled;
    sh->tx_stalled = en->tx_stalled;
    sh->plain_in = en->plain_in;
    sh->plain_out = en->plain_out;
    en->out_new = en->frames_bytes = en->frames_n = en->done_bytes = en->in_used = 0;
    if (en->open && !sh->open) {
        sh->open = true;
        sh->peer = en->peer;
    }
    if (en->ended && !sh->ended) {
        sh->ended = true;
        sh->why = en->why;
    }
    if (sh->in_stalled && sh->in_bytes < TLS_WIRE_MAX / 2) {
        sh->in_stalled = false;
        news = true;
    }
    return news;
}

static size_t less(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

void tls_worker_notify(struct tls_conn *c)
{
    struct tls_worker *w = c->worker;
    if (c->sh.in_notify) {
        return;
    }
    c->sh.in_notify = true;
    c->notify_next = NULL;
    if (w->notify_tail) {
        w->notify_tail->notify_next = c;
    } else {
        w->notify_head = c;
    }
    w->notify_tail = c;
    uv_async_send(&w->pool->async);
}

void tls_worker_unnotify(struct tls_conn *c)
{
    struct tls_worker *w = c->worker;
    struct tls_conn *before = NULL;
    if (!c->sh.in_notify) {
        return;
    }
    for (struct tls_conn *x = w->notify_head; x != c; x = x->notify_next) {
        before = x;
    }
    if (before) {
        before->notify_next = c->notify_next;
    } else {
        w->notify_head = c->notify_next;
    }
    if (w->notify_tail == c) {
        w->notify_tail = before;
    }
    c->sh.in_notify = false;
}

/* With the lock, which is given up meanwhile: one step of the engine, on this thread. */
static bool step(struct tls_conn *c)
{
    struct tls_worker *w = c->worker;
    take(c);
    size_t out_room = less(TLS_WIRE_MAX, c->sh.out_bytes);
    size_t rx_room = less(w->pool->o.receive_max, c->sh.rx_bytes);
    size_t rx_frames = less(TLS_FRAMES_MAX, c->sh.rx_frames);
    c->sh.running = true;
    uv_mutex_unlock(&w->mu);
    bool more = tls_engine_step(c, out_room, rx_room, rx_frames);
    uv_mutex_lock(&w->mu);
    c->sh.running = false;
    return more;
}

bool tls_worker_inline(struct tls_conn *c)
{
#if MBEDTLS_VERSION_MAJOR >= 3 && !defined(MBEDTLS_THREADING_C)
    return false; /* see defaults() */
#else
    struct tls_shared *sh = &c->sh;
    if (sh->running || sh->in_ready || !sh->open || sh->ended || sh->eof || sh->close ||
        sh->detach || sh->rx_stalled || sh->tx_stalled || sh->tx_bytes > TLS_SMALL ||
        frame_reader_in_raw(&c->en.reader)) {
        return false;
    }
    size_t in = 0;
    for (const struct tls_block *b = sh->in.head; b; b = b->next) {
        in += b->n - b->off;
    }
    if (in > TLS_SMALL) {
        return false;
    }
    /* What waits to be written: the next record may fit behind it. */
    TLS_SPLICE(&c->en.out, &sh->out);
    bool more = step(c);
    give(c);
    if (more) {
        tls_worker_ready(c);
    }
    return true;
#endif
}

static void worker_main(void *arg)
{
    struct tls_worker *w = arg;
    qos_self(QOS_ANSWER);
    uv_mutex_lock(&w->mu);
    for (;;) {
        struct tls_conn *c = w->ready_head;
        if (!c) {
            if (w->stop) {
                break;
            }
            uv_cond_wait(&w->wake, &w->mu);
            continue;
        }
        w->ready_head = c->ready_next;
        if (!w->ready_head) {
            w->ready_tail = NULL;
        }
        c->sh.in_ready = false;
        bool detach = c->sh.detach, more = false;
        if (!detach) {
            more = step(c);
        } else {
            uv_mutex_unlock(&w->mu);
            tls_engine_free(&c->en);
            uv_mutex_lock(&w->mu);
            c->sh.detached = true;
            if (c->en.cur) { /* given back with the others, sent or not */
                c->en.cur->next = c->en.done.head;
                c->en.done.head = c->en.cur;
                c->en.done.tail = c->en.done.tail ? c->en.done.tail : c->en.cur;
                c->en.cur = NULL;
            }
        }
        if (give(c) || detach) {
            tls_worker_notify(c);
        }
        if (more) {
            tls_worker_ready(c);
        }
    }
    uv_mutex_unlock(&w->mu);
}

/* ---- set-up ---- */

static int f_rng(void *ctx, unsigned char *p, size_t n)
{
    return mbedtls_ctr_drbg_random(ctx, p, n);
}

static int parse_key(struct tls_worker *w, const struct tls_opts *o)
{
#if MBEDTLS_VERSION_MAJOR >= 3
    return mbedtls_pk_parse_key(&w->key, o->key, o->key_n, NULL, 0, f_rng, &w->rng);
#else
    return mbedtls_pk_parse_key(&w->key, o->key, o->key_n, NULL, 0);
#endif
}

static int check_pair(struct tls_worker *w)
{
#if MBEDTLS_VERSION_MAJOR >= 3
    return mbedtls_pk_check_pair(&w->cert.pk, &w->key, f_rng, &w->rng);
#else
    return mbedtls_pk_check_pair(&w->cert.pk, &w->key);
#endif
}

static int configure(struct tls_worker *w, mbedtls_ssl_config *f, int endpoint,
                     const struct tls_opts *o)
{
    int r = mbedtls_ssl_config_defaults(f, endpoint, MBEDTLS_SSL_TRANSPORT_STREAM,
                                        MBEDTLS_SSL_PRESET_DEFAULT);
    if (r) {
        return r;
    }
    mbedtls_ssl_conf_rng(f, f_rng, &w->rng);
    mbedtls_ssl_conf_authmode(f, MBEDTLS_SSL_VERIFY_REQUIRED);
    /* The library wants a chain to verify against. Ours never matches: the callback decides. */
    mbedtls_ssl_conf_ca_chain(f, &w->cert, NULL);
    mbedtls_ssl_conf_ciphersuites(f, tls_suite_list(o->prefer));
#if MBEDTLS_VERSION_MAJOR >= 3
    static const uint16_t groups[] = {MBEDTLS_SSL_IANA_TLS_GROUP_SECP256R1, 0};
    mbedtls_ssl_conf_groups(f, groups);
    mbedtls_ssl_conf_min_tls_version(f, MBEDTLS_SSL_VERSION_TLS1_2);
    mbedtls_ssl_conf_max_tls_version(f, o->only_tls12 ? MBEDTLS_SSL_VERSION_TLS1_2
                                                      : MBEDTLS_SSL_VERSION_TLS1_3);
#if defined(MBEDTLS_SSL_PROTO_TLS1_3)
    mbedtls_ssl_conf_tls13_key_exchange_modes(f, MBEDTLS_SSL_TLS1_3_KEY_EXCHANGE_MODE_EPHEMERAL);
#endif
#else
    static const mbedtls_ecp_group_id curves[] = {MBEDTLS_ECP_DP_SECP256R1, MBEDTLS_ECP_DP_NONE};
    mbedtls_ssl_conf_curves(f, curves);
    mbedtls_ssl_conf_min_version(f, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
    mbedtls_ssl_conf_max_version(f, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
#endif
#if defined(MBEDTLS_SSL_RENEGOTIATION)
    mbedtls_ssl_conf_renegotiation(f, MBEDTLS_SSL_RENEGOTIATION_DISABLED);
#endif
#if defined(MBEDTLS_SSL_SESSION_TICKETS)
    if (endpoint == MBEDTLS_SSL_IS_CLIENT) {
        mbedtls_ssl_conf_session_tickets(f, MBEDTLS_SSL_SESSION_TICKETS_DISABLED);
    }
#endif
    if (endpoint == MBEDTLS_SSL_IS_SERVER) {
        mbedtls_ssl_conf_cert_req_ca_list(f, MBEDTLS_SSL_CERT_REQ_CA_LIST_DISABLED);
    }
    return mbedtls_ssl_conf_own_cert(f, &w->cert, &w->key);
}

static void worker_free(struct tls_worker *w)
{
    mbedtls_ssl_config_free(&w->client);
    mbedtls_ssl_config_free(&w->server);
    mbedtls_x509_crt_free(&w->cert);
    mbedtls_pk_free(&w->key);
    mbedtls_ctr_drbg_free(&w->rng);
    mbedtls_entropy_free(&w->entropy);
}

/* Everything but the thread. */
static int worker_init(struct tls_worker *w, const struct tls_opts *o, struct err *e)
{
    mbedtls_entropy_init(&w->entropy);
    mbedtls_ctr_drbg_init(&w->rng);
    mbedtls_pk_init(&w->key);
    mbedtls_x509_crt_init(&w->cert);
    mbedtls_ssl_config_init(&w->client);
    mbedtls_ssl_config_init(&w->server);
    int r = mbedtls_ctr_drbg_seed(&w->rng, mbedtls_entropy_func, &w->entropy, NULL, 0);
    if (r) {
        err_set(e, ERR_IO, "the random generator of the system failed (-0x%04x)", (unsigned)-r);
    } else if ((r = parse_key(w, o))) {
        err_set(e, ERR_ARG, "the node's key cannot be read (-0x%04x)", (unsigned)-r);
    } else if ((r = mbedtls_x509_crt_parse_der(&w->cert, o->cert, o->cert_n))) {
        err_set(e, ERR_ARG, "the node's certificate cannot be read (-0x%04x)", (unsigned)-r);
    } else if ((r = check_pair(w))) {
        err_set(e, ERR_ARG, "the node's certificate does not belong to its key");
    } else if ((r = configure(w, &w->client, MBEDTLS_SSL_IS_CLIENT, o)) ||
               (r = configure(w, &w->server, MBEDTLS_SSL_IS_SERVER, o))) {
        err_set(e, ERR_ARG, "TLS cannot be set up (-0x%04x)", (unsigned)-r);
    }
    if (r) {
        worker_free(w);
        return e ? e->code : ERR_ARG;
    }
    return 0;
}

static int worker_start(struct tls_worker *w, struct err *e)
{
    int r = uv_mutex_init(&w->mu);
    if (!r && (r = uv_cond_init(&w->wake))) {
        uv_mutex_destroy(&w->mu);
    }
    if (!r && (r = uv_thread_create(&w->thread, worker_main, w))) {
        uv_cond_destroy(&w->wake);
        uv_mutex_destroy(&w->mu);
    }
    return r ? err_set(e, ERR_NOMEM, "a TLS worker cannot be started: %s", uv_strerror(r)) : 0;
}

static void worker_join(struct tls_worker *w)
{
    uv_mutex_lock(&w->mu);
    w->stop = true;
    uv_cond_signal(&w->wake);
    uv_mutex_unlock(&w->mu);
    uv_thread_join(&w->thread);
    uv_cond_destroy(&w->wake);
    uv_mutex_destroy(&w->mu);
    worker_free(w);
}

/* ---- the pool ---- */

static void maybe_gone(struct tls_pool *p);

static void on_async(uv_async_t *a)
{
    struct tls_pool *p = a->data;
    p->in_async = true; /* the last connection may go below, the workers are needed until the end */
    for (unsigned i = 0; i < p->n_workers; i++) {
        struct tls_worker *w = &p->workers[i];
        /* One by one, since a callback may end others of the list; one round, since the workers may
         * be adding as fast as this takes. */
        for (unsigned k = w->load;; k--) {
            uv_mutex_lock(&w->mu);
            struct tls_conn *c = w->notify_head;
            if (c && k == 0) {
                c = NULL;
                uv_async_send(&p->async);
            }
            if (c) {
                w->notify_head = c->notify_next;
                if (!w->notify_head) {
                    w->notify_tail = NULL;
                }
                c->sh.in_notify = false;
            }
            uv_mutex_unlock(&w->mu);
            if (!c) {
                break;
            }
            tls_conn_pump(c);
        }
    }
    p->in_async = false;
    maybe_gone(p);
}

static void on_prepare(uv_prepare_t *h)
{
    struct tls_pool *p = h->data;
    for (int i = 0; p->due && i < 4; i++) {
        p->due = false;
        for (struct tls_conn *c = p->conns; c; c = c->next) {
            if (c->due) {
                tls_flush(c);
            }
        }
    }
    if (p->due) {
        uv_async_send(&p->async); /* others had their turn, too: not asleep yet */
    }
}

static void defaults(struct tls_opts *o)
{
#define TLS_DEFAULT(field, value) o->field = o->field ? o->field : (value)
    TLS_DEFAULT(workers, 2);
    TLS_DEFAULT(connect_ms, 5000);
    TLS_DEFAULT(handshake_ms, 10000);
    TLS_DEFAULT(linger_ms, 1000);
    TLS_DEFAULT(handshake_bytes, 64 * 1024);
    TLS_DEFAULT(max_conns, 256);
    TLS_DEFAULT(max_handshakes, 64);
    TLS_DEFAULT(max_handshakes_per_address, 8);
    TLS_DEFAULT(max_failures_per_address, 32);
    TLS_DEFAULT(send_max, 8u << 20);
    TLS_DEFAULT(receive_max, 4u << 20);
    TLS_DEFAULT(replace_bytes, 128ull * 1000 * 1000 * 1000);
#undef TLS_DEFAULT
    o->workers = o->workers > TLS_WORKERS_MAX ? TLS_WORKERS_MAX : o->workers;
#if MBEDTLS_VERSION_MAJOR >= 3 && !defined(MBEDTLS_THREADING_C)
    o->workers = 1; /* this build of the library keeps keys of TLS 1.3 in one unguarded store */
#endif
}

/* A write to a connection that the other side has reset must be an error, not the end of the
 * process; libuv leaves that to the program. A program that decided otherwise keeps its handler. */
static void ignore_sigpipe(void)
{
    struct sigaction now, ignore = {.sa_handler = SIG_IGN};
    if (sigaction(SIGPIPE, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
        now.sa_handler == SIG_DFL) {
        sigaction(SIGPIPE, &ignore, NULL);
    }
}

int tls_pool_open(uv_loop_t *loop, const struct tls_opts *o, struct tls_pool **out, struct err *e)
{
    if (!o->trusted || !o->key || !o->cert) {
        return err_set(e, ERR_ARG, "TLS needs a key, a certificate and somebody to ask for trust");
    }
#if MBEDTLS_VERSION_MAJOR >= 3
    if (psa_crypto_init() != PSA_SUCCESS) {
        return err_set(e, ERR_IO, "the cryptographic library cannot be started");
    }
#endif
    struct tls_pool *p = calloc(1, sizeof *p);
    if (!p) {
        return err_set(e, ERR_NOMEM, "no memory for the TLS workers");
    }
    ignore_sigpipe();
    p->loop = loop;
    p->o = *o;
    defaults(&p->o);
    p->workers = calloc(p->o.workers, sizeof *p->workers);
    int r = p->workers ? 0 : err_set(e, ERR_NOMEM, "no memory for the TLS workers");
    if (!r && uv_async_init(loop, &p->async, on_async)) {
        r = err_set(e, ERR_IO, "the event loop takes no more handles");
    }
    if (r) {
        free(p->workers);
        free(p);
        return r;
    }
    uv_prepare_init(loop, &p->prepare);
    uv_prepare_start(&p->prepare, on_prepare);
    uv_unref((uv_handle_t *)&p->prepare);
    p->async.data = p->prepare.data = p;
    p->handles = 2;
    while (!r && p->n_workers < p->o.workers) {
        struct tls_worker *w = &p->workers[p->n_workers];
        w->pool = p;
        r = worker_init(w, &p->o, e);
        if (!r && (r = worker_start(w, e))) {
            worker_free(w);
        }
        p->n_workers += !r;
    }
    p->o.key = p->o.cert = NULL; /* the caller's memory; each worker has its copy */
    p->st.workers = p->n_workers;
    if (r) {
        tls_pool_close(p, NULL, NULL);
        return r;
    }
    *out = p;
    return 0;
}

static void on_handle_closed(uv_handle_t *h)
{
    struct tls_pool *p = h->data;
    if (--p->handles) {
        return;
    }
    void (*closed)(void *) = p->closed;
    void *ctx = p->closed_ctx;
    free(p->rbuf);
    free(p->workers);
    free(p);
    if (closed) {
        closed(ctx);
    }
}

static void maybe_gone(struct tls_pool *p)
{
    if (p->closing && !p->conns && !p->in_async && !uv_is_closing((uv_handle_t *)&p->async)) {
        for (unsigned i = 0; i < p->n_workers; i++) {
            worker_join(&p->workers[i]);
        }
        uv_close((uv_handle_t *)&p->async, on_handle_closed);
        uv_close((uv_handle_t *)&p->prepare, on_handle_closed);
    }
}

void tls_pool_close(struct tls_pool *p, void (*closed)(void *ctx), void *ctx)
{
    p->closing = true;
    p->closed = closed;
    p->closed_ctx = ctx;
    for (struct tls_conn *c = p->conns; c; c = c->next) {
        tls_conn_abort(c); /* takes effect in callbacks later: the list stays as it is here */
    }
    maybe_gone(p);
}

void tls_pool_forget(struct tls_conn *c)
{
    struct tls_pool *p = c->pool;
    if (c->prev) {
        c->prev->next = c->next;
    } else {
        p->conns = c->next;
    }
    if (c->next) {
        c->next->prev = c->prev;
    }
    c->worker->load--;
    p->st.conns--;
    maybe_gone(p);
}

void tls_pool_stats(const struct tls_pool *p, struct tls_stats *out)
{
    *out = p->st;
}
