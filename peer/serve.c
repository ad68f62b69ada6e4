/* SPDX-License-Identifier: MIT
 * serve.c: see serve.h. A request is a `job` until its last chunk is under way; a chunk that is
 * being read or sent is a `piece`, which outlives its job and, while its read is out, its peer. */
#include "peer/serve.h"

#include "proto/base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MS_NS 1000000ull

struct bucket { /* what may be sent; below zero: what is owed */
    double rate, have;
    uint64_t at;
};

struct job {
    struct job *next;
    uint64_t id, size, deadline;
    struct object_key key;
    uint32_t at, end; /* next chunk; one past the last */
    unsigned prio;
    uint32_t source;
    bool begun;
};

struct piece {
    struct storage_read rd;
    struct piece *next, *prev; /* of the peer */
    struct piece *ready;       /* list of finished reads */
    struct serve *s;
    struct serve_peer *p; /* NULL: gone */
    uint64_t id;
    uint32_t source;
    unsigned prio;
    bool sent, cancelled;
    int code;
    size_t n;
};

struct serve_peer {
    struct serve_peer *next, *prev; /* ring of all peers */
    struct serve *s;
    struct tls_conn *c;
    struct job *jobs[SERVE_PRIOS], **tail[SERVE_PRIOS];
    uint32_t n_jobs, in_pipe[SERVE_PRIOS];
    struct piece *pieces;
    struct bucket limit;
    struct serve_peer_stats st;
};

struct serve {
    struct serve_opts o;
    uv_loop_t *loop;
    uv_async_t async;
    uv_timer_t timer;
    int handles;
    pthread_mutex_t mu; /* of ready */
    struct piece *ready, **ready_tail;
    struct serve_peer *peers; /* one of the ring: whose turn it is */
    uint32_t n_pieces;
    uint64_t yield_until[SERVE_PRIOS];
    struct bucket limit;
    struct serve_stats st;
    bool pumping, again, closing;
    void (*closed)(void *ctx);
    void *closed_ctx;
};

static void pump(struct serve *s);

/* ---- limits ---- */

static void bucket_set(struct bucket *b, uint64_t rate, uint64_t now)
{
    b->rate = (double)rate;
    b->have = 0;
    b->at = now;
}

/* Nanoseconds until something may be sent, 0: now. */
static uint64_t bucket_wait(struct bucket *b, uint64_t now)
{
    if (b->rate <= 0) {
        return 0;
    }
    b->have += b->rate * (double)(now - b->at) / 1e9;
    b->at = now;
    if (b->have > 0) {
        b->have = 0; /* an idle time saves nothing up */
    }
    return b->have >= 0 ? 0 : (uint64_t)(-b->have / b->rate * 1e9) + 1;
}

static void bucket_take(struct bucket *b, size_t n)
{
    if (b->rate > 0) {
        b->have -= (double)n;
    }
}

/* ---- messages ---- */

static enum tls_priority tls_prio(unsigned prio)
{
    return prio == 2 ? TLS_DEMAND : prio == 1 ? TLS_PREFETCH : TLS_BACKGROUND;
}

static int put(struct tls_conn *c, const Shoal__Frame *f, const struct tls_raw *raw,
               enum tls_priority pr)
{
    struct buf b;
    buf_init(&b, WIRE_BODY_MAX);
    int r = codec_encode(f, raw ? (uint32_t)raw->n : 0, &b, NULL);
    r = r ? r : tls_conn_send(c, b.p, b.n, raw, pr);
    buf_free(&b);
    return r;
}

int serve_refuse(struct tls_conn *c, uint64_t id, int reason, uint32_t retry_ms,
                 enum tls_priority pr)
{
    Shoal__Refuse x = SHOAL__REFUSE__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    x.id = id;
    x.reason = (Shoal__RefuseReason)reason;
    x.text = (char *)(uintptr_t)codec_refuse_text(reason);
    x.retry_ms = retry_ms;
    f.kind_case = SHOAL__FRAME__KIND_REFUSE;
    f.refuse = &x;
    return put(c, &f, NULL, pr);
}

/* With `late` chunks of it may be queued, which the refusal must not overtake. */
static void refuse(struct serve_peer *p, uint64_t id, int reason, uint32_t retry_ms, unsigned prio,
                   bool late)
{
    p->s->st.refused[(unsigned)reason < 10 ? reason : 0]++;
    serve_refuse(p->c, id, reason, retry_ms, late ? tls_prio(prio) : TLS_CONTROL);
}

static int send_digests(struct serve_peer *p, struct job *j)
{
    Shoal__Digests d = SHOAL__DIGESTS__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    const struct serve_opts *o = &p->s->o;
    uint32_t n = j->end - j->at;
    enum basis b = BASIS_NONE;
    uint8_t object[SHA256_SIZE];
    uint8_t(*sha)[SHA256_SIZE] = malloc((size_t)n * SHA256_SIZE);
    if (!sha) {
        return ERR_NOMEM;
    }
    if (!o->storage->digests(o->storage_ctx, j->key, j->at, n, sha, &b, object)) {
        free(sha);
        return ERR_NOTFOUND;
    }
    d.id = j->id;
    d.object_size = j->size;
    d.first_chunk = j->at;
    d.sha256.data = sha[0];
    d.sha256.len = (size_t)n * SHA256_SIZE;
    d.source = (Shoal__Source)b;
    d.object_digest.data = object;
    d.object_digest.len = sizeof object;
    f.kind_case = SHOAL__FRAME__KIND_DIGESTS;
    f.digests = &d;
    j->source = (uint32_t)b;
    int r = put(p->c, &f, NULL, tls_prio(j->prio));
    free(sha);
    return r;
}

/* ---- pieces ---- */

static void piece_free(struct piece *x)
{
    if (x->p) {
        if (x->prev) {
            x->prev->next = x->next;
        } else {
            x->p->pieces = x->next;
        }
        if (x->next) {
            x->next->prev = x->prev;
        }
        x->p->in_pipe[x->prio]--;
        x->p->st.reading--;
        if (!x->sent) { /* it cost nothing */
            x->p->st.credit += x->n;
            x->p->limit.have += (double)x->n;
        }
    }
    if (!x->sent) {
        x->s->limit.have += (double)x->n;
    }
    x->s->n_pieces--;
    free(x);
}

static void close_if_idle(struct serve *s);

static void piece_sent(void *ctx, const uint8_t *bytes)
{
    struct piece *x = ctx;
    struct serve *s = x->s;
    (void)bytes;
    s->o.storage->release(s->o.storage_ctx, &x->rd);
    piece_free(x);
    if (s->closing) {
        close_if_idle(s);
    } else {
        pump(s);
    }
}

static bool id_open(const struct serve_peer *p, uint64_t id)
{
    for (unsigned q = 0; q < SERVE_PRIOS; q++) {
        for (const struct job *j = p->jobs[q]; j; j = j->next) {
            if (j->id == id) {
                return true;
            }
        }
    }
    return false;
}

static void drop_job(struct serve_peer *p, uint64_t id)
{
    for (unsigned q = 0; q < SERVE_PRIOS; q++) {
        for (struct job **l = &p->jobs[q]; *l; l = &(*l)->next) {
            if ((*l)->id == id) {
                struct job *j = *l;
                *l = j->next;
                if (!*l) {
                    p->tail[q] = l;
                }
                p->n_jobs--;
                free(j);
                return;
            }
        }
    }
}

/* Nothing more is sent for this request. */
static void cancel_pieces(struct serve_peer *p, uint64_t id)
{
    for (struct piece *x = p->pieces; x; x = x->next) {
        if (x->id == id) {
            x->cancelled = true;
        }
    }
}

static void piece_failed(struct piece *x, int code)
{
    struct serve_peer *p = x->p;
    int why = code == ERR_NOTFOUND ? SHOAL__REFUSE_REASON__REFUSE_NOT_HELD
              : code == ERR_DIGEST ? SHOAL__REFUSE_REASON__REFUSE_DAMAGED
                                   : SHOAL__REFUSE_REASON__REFUSE_BUSY;
    cancel_pieces(p, x->id);
    drop_job(p, x->id);
    refuse(p, x->id, why, why == SHOAL__REFUSE_REASON__REFUSE_BUSY ? 200 : 0, x->prio, true);
}

/* A read is back, on the loop thread. */
static void piece_read(struct piece *x)
{
    struct serve *s = x->s;
    if (x->code) {
        if (x->p && !x->cancelled) {
            piece_failed(x, x->code);
        }
        piece_free(x);
        return;
    }
    if (!x->p || x->cancelled) {
        s->o.storage->release(s->o.storage_ctx, &x->rd);
        piece_free(x);
        return;
    }
    Shoal__Data d = SHOAL__DATA__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    struct tls_raw raw = {x->rd.p, x->rd.n, piece_sent, x};
    d.id = x->id;
    d.chunk = x->rd.chunk;
    d.last = !id_open(x->p, x->id);
    for (const struct piece *o = x->p->pieces; o && d.last; o = o->next) {
        d.last = o == x || o->sent || o->id != x->id; /* reads come back in any order */
    }
    d.source = (Shoal__Source)x->source;
    f.kind_case = SHOAL__FRAME__KIND_DATA;
    f.data = &d;
    int r = x->rd.n == x->n ? put(x->p->c, &f, &raw, tls_prio(x->prio)) : ERR_DIGEST;
    if (r) {
        if (r != ERR_CANCELLED) {
            piece_failed(x, r);
        }
        s->o.storage->release(s->o.storage_ctx, &x->rd);
        piece_free(x);
        return;
    }
    x->sent = true;
    s->st.bytes += x->n;
    s->st.chunks++;
    x->p->st.bytes += x->n;
    x->p->st.chunks++;
}

static void take_ready(struct serve *s)
{
    pthread_mutex_lock(&s->mu);
    struct piece *x = s->ready;
    s->ready = NULL;
    s->ready_tail = &s->ready;
    pthread_mutex_unlock(&s->mu);
    while (x) {
        struct piece *next = x->ready;
        piece_read(x);
        x = next;
    }
}

static void on_read(struct storage_read *r, int code)
{
    struct piece *x = r->user;
    struct serve *s = x->s;
    x->code = code;
    x->ready = NULL;
    pthread_mutex_lock(&s->mu);
    bool first = !s->ready;
    *s->ready_tail = x;
    s->ready_tail = &x->ready;
    if (first) {
        uv_async_send(&s->async); /* with the lock: the handle lives while a read is out */
    }
    pthread_mutex_unlock(&s->mu);
}

static void on_async(uv_async_t *a)
{
    struct serve *s = a->data;
    pump(s);
    close_if_idle(s);
}

/* ---- what next ---- */

static bool pipe_full(const struct serve_peer *p, unsigned prio)
{
    uint32_t n = 0;
    for (unsigned q = prio; q < SERVE_PRIOS; q++) {
        n += p->in_pipe[q];
    }
    return n >= SERVE_PIPE;
}

/* The request at the head of the queue is over before it is served. */
static bool head_ends(struct serve_peer *p, unsigned prio, uint64_t now)
{
    struct job *j = p->jobs[prio];
    if (j->deadline && now > j->deadline) {
        refuse(p, j->id, SHOAL__REFUSE_REASON__REFUSE_DEADLINE, 0, prio, j->begun);
        cancel_pieces(p, j->id);
        drop_job(p, j->id);
        return true;
    }
    return false;
}

/* Start the next chunk of the peer at this priority. False: none can start now; *wait becomes the
 * time after which one may, if that is a matter of time. */
static bool start(struct serve_peer *p, unsigned prio, uint64_t now, uint64_t *wait)
{
    struct serve *s = p->s;
    while (p->jobs[prio] && head_ends(p, prio, now)) {
    }
    struct job *j = p->jobs[prio];
    if (!j || pipe_full(p, prio)) {
        return false;
    }
    size_t n = storage_chunk_len(j->size, j->at);
    if (p->st.credit < n) {
        return false;
    }
    uint64_t w = bucket_wait(&s->limit, now), wp = bucket_wait(&p->limit, now);
    w = w > wp ? w : wp;
    if (w) {
        s->st.limited++;
        *wait = w < *wait ? w : *wait;
        return false;
    }
    if (s->o.yield_ms) {
        unsigned ms = s->o.yield_ms(s->o.ctx, prio);
        if (ms) {
            s->st.yields++;
            s->yield_until[prio] = now + ms * MS_NS;
            return false;
        }
    }
    struct piece *x = calloc(1, sizeof *x);
    if (!x) {
        *wait = 100 * MS_NS < *wait ? 100 * MS_NS : *wait;
        return false;
    }
    x->rd.key = j->key;
    x->rd.chunk = j->at;
    x->rd.prio = (uint8_t)prio;
    x->rd.done = on_read;
    x->rd.user = x;
    x->s = s;
    x->p = p;
    x->id = j->id;
    x->source = j->source;
    x->prio = prio;
    x->n = n;
    x->next = p->pieces;
    if (x->next) {
        x->next->prev = x;
    }
    p->pieces = x;
    p->in_pipe[prio]++;
    p->st.reading++;
    s->n_pieces++;
    p->st.credit -= n;
    bucket_take(&s->limit, n);
    bucket_take(&p->limit, n);
    j->begun = true;
    if (++j->at == j->end) {
        drop_job(p, j->id);
    }
    s->o.storage->read(s->o.storage_ctx, &x->rd);
    return true;
}

/* One chunk for each peer in turn until nobody can have one. */
static void pump_prio(struct serve *s, unsigned prio, uint64_t now, uint64_t *wait)
{
    bool any = true;
    while (any && s->peers && now >= s->yield_until[prio]) {
        any = false;
        struct serve_peer *p = s->peers, *from = p;
        do {
            if (now >= s->yield_until[prio] && start(p, prio, now, wait)) {
                any = true;
                s->peers = p->next;
            }
            p = p->next;
        } while (p != from);
    }
    if (now < s->yield_until[prio] && s->yield_until[prio] - now < *wait) {
        *wait = s->yield_until[prio] - now;
    }
}

static void on_timer(uv_timer_t *t)
{
    pump(t->data);
}

static void pump(struct serve *s)
{
    if (s->closing) {
        take_ready(s);
        return;
    }
    if (s->pumping) {
        s->again = true;
        return;
    }
    s->pumping = true;
    uint64_t wait;
    do {
        s->again = false;
        wait = UINT64_MAX;
        take_ready(s);
        uint64_t now = clock_ns();
        for (unsigned q = SERVE_PRIOS; q-- > 0;) {
            pump_prio(s, q, now, &wait);
        }
        pthread_mutex_lock(&s->mu);
        s->again |= s->ready != NULL; /* reads that were answered at once */
        pthread_mutex_unlock(&s->mu);
    } while (s->again);
    s->pumping = false;
    if (wait != UINT64_MAX) {
        uv_timer_start(&s->timer, on_timer, wait / MS_NS + 1, 0);
    }
}

/* ---- peers ---- */

struct serve_peer *serve_peer_add(struct serve *s, struct tls_conn *c)
{
    struct serve_peer *p = calloc(1, sizeof *p);
    if (!p) {
        return NULL;
    }
    p->s = s;
    p->c = c;
    for (unsigned q = 0; q < SERVE_PRIOS; q++) {
        p->tail[q] = &p->jobs[q];
    }
    bucket_set(&p->limit, s->o.peer_bytes_s, clock_ns());
    if (s->peers) {
        p->next = s->peers;
        p->prev = s->peers->prev;
        p->prev->next = p->next->prev = p;
    } else {
        s->peers = p->next = p->prev = p;
    }
    return p;
}

void serve_peer_remove(struct serve_peer *p)
{
    struct serve *s = p->s;
    for (unsigned q = 0; q < SERVE_PRIOS; q++) {
        while (p->jobs[q]) {
            struct job *j = p->jobs[q];
            p->jobs[q] = j->next;
            free(j);
        }
    }
    for (struct piece *x = p->pieces; x; x = x->next) {
        x->p = NULL; /* not unlinked by piece_free then; the list is gone */
    }
    if (p->next == p) {
        s->peers = NULL;
    } else {
        p->prev->next = p->next;
        p->next->prev = p->prev;
        s->peers = s->peers == p ? p->next : s->peers;
    }
    free(p);
}

/* Can the limits keep this deadline, given what waits before it? */
static bool in_time(const struct serve_peer *p, const struct job *x)
{
    double rate = p->limit.rate, total = p->s->limit.rate;
    if (total > 0 && (rate <= 0 || total < rate)) {
        rate = total;
    }
    if (rate <= 0 || !x->deadline) {
        return true;
    }
    double bytes = (double)(x->end - x->at) * STORAGE_CHUNK;
    for (unsigned q = x->prio; q < SERVE_PRIOS; q++) {
        for (const struct job *j = p->jobs[q]; j; j = j->next) {
            bytes += (double)(j->end - j->at) * STORAGE_CHUNK;
        }
    }
    return (bytes - STORAGE_CHUNK) / rate * 1e9 <= (double)(x->deadline - clock_ns());
}

int serve_on_get(struct serve_peer *p, const Shoal__Get *g, struct err *e)
{
    struct serve *s = p->s;
    const struct serve_opts *o = &s->o;
    struct job x = {.id = g->id, .at = g->first_chunk};
    x.key.kind = (uint8_t)g->object->kind;
    x.key.layer = (uint16_t)g->object->layer;
    x.key.index = g->object->index;
    x.end = g->first_chunk + g->chunk_count;
    x.prio = (unsigned)g->priority < SERVE_PRIOS ? (unsigned)g->priority : 0;
    x.deadline = g->deadline_ms ? clock_ns() + g->deadline_ms * MS_NS : 0;
    s->st.gets++;
    p->st.gets++;
    if (id_open(p, g->id)) {
        return err_set(e, ERR_FORMAT, "Get: the id is in use");
    }
    int why = 0;
    uint32_t retry = 0;
    if (p->n_jobs >= SERVE_GETS_MAX) {
        why = SHOAL__REFUSE_REASON__REFUSE_TOO_MANY;
        retry = 500;
    } else if (!o->storage->size(o->storage_ctx, x.key, &x.size) ||
               !o->storage->have(o->storage_ctx, x.key)) {
        why = SHOAL__REFUSE_REASON__REFUSE_NOT_HELD;
    } else if (x.end > storage_chunks(x.size)) {
        why = SHOAL__REFUSE_REASON__REFUSE_RANGE;
    } else if (!in_time(p, &x)) {
        why = SHOAL__REFUSE_REASON__REFUSE_RATE;
        retry = 1000;
    }
    if (!why && g->want_digests && send_digests(p, &x)) {
        why = SHOAL__REFUSE_REASON__REFUSE_BUSY;
        retry = 1000;
    }
    struct job *j = why ? NULL : malloc(sizeof *j);
    if (!why && !j) {
        why = SHOAL__REFUSE_REASON__REFUSE_BUSY;
        retry = 1000;
    }
    if (why) {
        refuse(p, g->id, why, retry, x.prio, g->want_digests);
        return 0;
    }
    *j = x;
    *p->tail[j->prio] = j;
    p->tail[j->prio] = &j->next;
    p->n_jobs++;
    pump(s);
    return 0;
}

void serve_on_cancel(struct serve_peer *p, uint64_t id)
{
    cancel_pieces(p, id);
    drop_job(p, id);
    pump(p->s);
}

int serve_on_credit(struct serve_peer *p, uint64_t bytes, struct err *e)
{
    if (bytes > WIRE_CREDIT_MAX || p->st.credit + bytes > WIRE_CREDIT_MAX) {
        return err_set(e, ERR_FORMAT, "Credit: more than %u bytes", WIRE_CREDIT_MAX);
    }
    p->st.credit += bytes;
    pump(p->s);
    return 0;
}

void serve_on_drain(struct serve_peer *p)
{
    pump(p->s);
}

void serve_peer_get_stats(const struct serve_peer *p, struct serve_peer_stats *out)
{
    *out = p->st;
    out->open = p->n_jobs;
}

/* ---- life ---- */

int serve_open(uv_loop_t *loop, const struct serve_opts *o, struct serve **out, struct err *e)
{
    struct serve *s = calloc(1, sizeof *s);
    if (!s || pthread_mutex_init(&s->mu, NULL)) {
        free(s);
        return err_set(e, ERR_NOMEM, "no memory to serve peers");
    }
    s->o = *o;
    s->loop = loop;
    s->ready_tail = &s->ready;
    if (uv_async_init(loop, &s->async, on_async)) {
        pthread_mutex_destroy(&s->mu);
        free(s);
        return err_set(e, ERR_IO, "the event loop takes no more handles");
    }
    uv_timer_init(loop, &s->timer);
    s->async.data = s->timer.data = s;
    s->handles = 2;
    bucket_set(&s->limit, o->bytes_s, clock_ns());
    *out = s;
    return 0;
}

void serve_limits(struct serve *s, uint64_t bytes_s, uint64_t peer_bytes_s)
{
    uint64_t now = clock_ns();
    s->o.bytes_s = bytes_s;
    s->o.peer_bytes_s = peer_bytes_s;
    bucket_set(&s->limit, bytes_s, now);
    struct serve_peer *p = s->peers;
    if (p) {
        do {
            bucket_set(&p->limit, peer_bytes_s, now);
            p = p->next;
        } while (p != s->peers);
    }
    pump(s);
}

void serve_get_stats(const struct serve *s, struct serve_stats *out)
{
    *out = s->st;
    out->bytes_s = s->o.bytes_s;
    out->peer_bytes_s = s->o.peer_bytes_s;
    out->reading = s->n_pieces;
    const struct serve_peer *p = s->peers;
    if (p) {
        do {
            out->open += p->n_jobs;
            p = p->next;
        } while (p != s->peers);
    }
}

static void on_handle_closed(uv_handle_t *h)
{
    struct serve *s = h->data;
    if (--s->handles) {
        return;
    }
    void (*closed)(void *) = s->closed;
    void *ctx = s->closed_ctx;
    pthread_mutex_destroy(&s->mu);
    free(s);
    if (closed) {
        closed(ctx);
    }
}

static void close_if_idle(struct serve *s)
{
    if (s->closing && !s->n_pieces && !uv_is_closing((uv_handle_t *)&s->async)) {
        pthread_mutex_lock(&s->mu); /* until the last on_read has let go of the handle */
        pthread_mutex_unlock(&s->mu);
        uv_close((uv_handle_t *)&s->async, on_handle_closed);
        uv_close((uv_handle_t *)&s->timer, on_handle_closed);
    }
}

void serve_close(struct serve *s, void (*closed)(void *ctx), void *ctx)
{
    s->closing = true;
    s->closed = closed;
    s->closed_ctx = ctx;
    take_ready(s);
    close_if_idle(s);
}
