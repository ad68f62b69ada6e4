/* SPDX-License-Identifier: MIT
 * mesh.c: life and threads of a mesh, notes from other threads, fetching. See mesh.h for the
 * contract and mesh_int.h for the other files.
 *
 * Other threads leave notes in a list and wake the loop; a note that is waited for lies on the
 * waiter's stack. Closing: goodbyes, then everything that knows of connections, then the pool, then
 * the handles; m->open counts what is still to be closed. */
#include "peer/home.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CLOSE_MS 1500 /* for the goodbyes */
#define HAVE_MS 20    /* changes are gathered for so long */
#define LOG_GAP_NS (60000 * MS_NS)

/* ---- log ---- */

static void vlog(struct mesh *m, bool once, const char *fmt, va_list ap)
{
    char line[1024];
    if (!m->o.log) {
        return;
    }
    vsnprintf(line, sizeof line, fmt, ap);
    if (once) {
        uint64_t h = 0xcbf29ce484222325u, now = clock_ns();
        for (const char *c = line; *c; c++) {
            h = (h ^ (uint8_t)*c) * 0x100000001b3u;
        }
        for (size_t i = 0; i < LOG_MEMORY; i++) {
            if (m->logged[i].hash == h && now - m->logged[i].at < LOG_GAP_NS) {
                return;
            }
        }
        m->logged[m->log_next].hash = h;
        m->logged[m->log_next].at = now;
        m->log_next = (m->log_next + 1) % LOG_MEMORY;
    }
    m->o.log(m->o.ctx, line);
}

void mesh_log(struct mesh *m, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vlog(m, false, fmt, ap);
    va_end(ap);
}

void mesh_log_once(struct mesh *m, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vlog(m, true, fmt, ap);
    va_end(ap);
}

/* ---- notes ---- */

bool mesh_on_loop(struct mesh *m)
{
    uv_thread_t self = uv_thread_self();
    return atomic_load(&m->loop_set) && uv_thread_equal(&self, &m->loop_thread);
}

void mesh_post(struct mesh *m, struct note *n)
{
    if (n->sync && mesh_on_loop(m)) {
        n->run(m, n);
        return;
    }
    n->next = NULL;
    n->done = false;
    pthread_mutex_lock(&m->mu);
    *m->notes_tail = n;
    m->notes_tail = &n->next;
    if (!m->async_closed) {
        uv_async_send(&m->async);
    }
    while (n->sync && !n->done) {
        pthread_cond_wait(&m->cond, &m->mu);
    }
    pthread_mutex_unlock(&m->mu);
}

static void run_notes(struct mesh *m)
{
    for (;;) {
        pthread_mutex_lock(&m->mu);
        struct note *n = m->notes;
        if (n) {
            m->notes = n->next;
            if (!m->notes) {
                m->notes_tail = &m->notes;
            }
        }
        pthread_mutex_unlock(&m->mu);
        if (!n) {
            return;
        }
        bool sync = n->sync;
        n->run(m, n);
        if (sync) {
            pthread_mutex_lock(&m->mu);
            n->done = true;
            pthread_cond_broadcast(&m->cond);
            pthread_mutex_unlock(&m->mu);
        }
    }
}

static void on_async(uv_async_t *a)
{
    run_notes(a->data);
}

/* ---- what the fetch engine needs ---- */

static uint64_t op_now(void *ctx)
{
    (void)ctx;
    return clock_ns();
}

static struct plink *slot_link(struct mesh *m, uint32_t slot)
{
    for (struct plink *l = m->links; l; l = l->next) {
        if (l->slot == slot && l->state == LINK_UP) {
            return l;
        }
    }
    return NULL;
}

static int op_get(void *ctx, uint32_t peer, const struct fetch_get *g)
{
    struct plink *l = slot_link(ctx, peer);
    Shoal__ObjectId o = SHOAL__OBJECT_ID__INIT;
    Shoal__Get x = SHOAL__GET__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    if (!l) {
        return ERR_CANCELLED;
    }
    o.kind = g->key.kind;
    o.layer = g->key.layer;
    o.index = g->key.index;
    x.id = g->id;
    x.object = &o;
    x.first_chunk = g->first;
    x.chunk_count = g->n;
    x.priority = (Shoal__Priority)g->prio;
    x.deadline_ms = g->deadline_ms;
    x.want_digests = g->want_digests;
    f.kind_case = SHOAL__FRAME__KIND_GET;
    f.get = &x;
    return link_send(l, &f, TLS_CONTROL);
}

static void op_cancel(void *ctx, uint32_t peer, uint64_t id)
{
    struct plink *l = slot_link(ctx, peer);
    Shoal__Cancel x = SHOAL__CANCEL__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    x.id = id;
    f.kind_case = SHOAL__FRAME__KIND_CANCEL;
    f.cancel = &x;
    if (l) {
        link_send(l, &f, TLS_CONTROL);
    }
}

static void op_bad(void *ctx, uint32_t peer, struct object_key k, uint32_t chunk,
                   const uint8_t got[SHA256_SIZE], const uint8_t want[SHA256_SIZE], enum basis b)
{
    struct plink *l = slot_link(ctx, peer);
    Shoal__ObjectId o = SHOAL__OBJECT_ID__INIT;
    Shoal__BadChunk x = SHOAL__BAD_CHUNK__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    o.kind = k.kind;
    o.layer = k.layer;
    o.index = k.index;
    x.object = &o;
    x.chunk = chunk;
    x.got.data = (uint8_t *)(uintptr_t)got;
    x.want.data = (uint8_t *)(uintptr_t)want;
    x.got.len = x.want.len = SHA256_SIZE;
    x.source = (Shoal__Source)b;
    f.kind_case = SHOAL__FRAME__KIND_BAD_CHUNK;
    f.bad_chunk = &x;
    if (l) {
        link_send(l, &f, TLS_CONTROL);
    }
}

/* The connection stays: membership and serving it go on; the engine asks it for nothing. */
static void op_banned(void *ctx, uint32_t peer, uint64_t ns, const char *why)
{
    struct mesh *m = ctx;
    struct plink *l = slot_link(m, peer);
    mesh_log(m, "peer %s: nothing is fetched from it for %llu s: %s", l ? l->node : "?",
             (unsigned long long)(ns / 1000 / MS_NS), why);
}

static int op_origin_get(void *ctx, uint64_t id, struct object_key k, uint32_t first, uint32_t n,
                         enum fetch_prio prio)
{
    struct mesh *m = ctx;
    return m->origin.get(m->origin.ctx, id, k, first, n, prio);
}

static void op_origin_cancel(void *ctx, uint64_t id)
{
    struct mesh *m = ctx;
    m->origin.cancel(m->origin.ctx, id);
}

static void arm_fetch(struct mesh *m);

static void on_fetch_timer(uv_timer_t *t)
{
    struct mesh *m = t->data;
    if (m->fetch && fetch_deadline(m->fetch) <= clock_ns()) {
        fetch_tick(m->fetch);
    }
    arm_fetch(m);
}

static void arm_fetch(struct mesh *m)
{
    if (!m->fetch || m->closing) {
        return;
    }
    uint64_t at = fetch_deadline(m->fetch), now = clock_ns();
    if (at != UINT64_MAX) {
        uint64_t ms = at > now ? (at - now + MS_NS - 1) / MS_NS : 0;
        uv_timer_start(&m->fetch_timer, on_fetch_timer, ms ? ms : 1, 0);
    }
}

static void op_wake(void *ctx)
{
    struct mesh *m = ctx;
    if (!m->closing) {
        uv_timer_start(&m->fetch_timer, on_fetch_timer, 0, 0); /* looks when it is really due */
    }
}

static void op_log(void *ctx, const char *line)
{
    mesh_log_once(ctx, "%s", line);
}

static int open_fetch(struct mesh *m, struct err *e)
{
    struct fetch_opts f = {0};
    f.ops.ctx = m;
    f.ops.now = op_now;
    f.ops.send_get = op_get;
    f.ops.send_cancel = op_cancel;
    f.ops.send_bad = op_bad;
    f.ops.banned = op_banned;
    if (m->o.origin) {
        f.ops.origin_get = op_origin_get;
        f.ops.origin_cancel = op_origin_cancel;
    }
    f.ops.wake = op_wake;
    f.ops.log = op_log;
    f.storage = m->o.storage;
    f.storage_ctx = m->o.storage_ctx;
    f.max_bytes = m->o.max_fetch_bytes;
    f.no_source_ms = m->o.no_source_ms;
    f.give_up_ms = m->o.give_up_ms;
    f.name_of = m->o.name_of;
    f.name_ctx = m->o.ctx;
    return fetch_open(&f, &m->fetch, e);
}

/* ---- clockwork ---- */

static void on_tick(uv_timer_t *t)
{
    struct mesh *m = t->data;
    uint64_t now = clock_ns();
    for (struct plink *l = m->links, *next; l; l = next) {
        next = l->next;
        link_tick(l, now);
    }
    if (!m->closing && now >= m->look_at) {
        mesh_look_now(m);
    }
}

static void on_have_timer(uv_timer_t *t)
{
    struct mesh *m = t->data;
    bool more = held_dirty(m->held), snapshot = false;
    while (more) {
        struct buf b;
        struct err e = {0};
        buf_init(&b, WIRE_BODY_MAX);
        if (held_delta(m->held, &b, &more, &snapshot, &e)) {
            mesh_log_once(m, "peers are not told of what changed here: %s", e.msg);
            more = false;
            snapshot = true;
        }
        for (struct plink *l = m->links, *next; l; l = next) {
            next = l->next;
            if (l->state != LINK_UP || !l->model_same || l->need_snapshot) {
                continue;
            }
            if (snapshot) {
                link_send_snapshot(l);
            } else if (b.n && link_send_body(l, b.p, b.n) == ERR_BUSY) {
                l->need_snapshot = true; /* makes up for it when the queue is empty */
            }
        }
        buf_free(&b);
    }
}

/* ---- life ---- */

void mesh_ref(struct mesh *m)
{
    m->open++;
}

void mesh_unref(void *mesh)
{
    struct mesh *m = mesh;
    if (--m->open == 0) {
        m->closed = true;
    }
}

static void handle_closed(uv_handle_t *h)
{
    mesh_unref(h->data);
}

static char *copy(const char *s)
{
    return s ? strdup(s) : NULL;
}

static int copy_opts(struct mesh *m, const struct mesh_opts *o, struct err *e)
{
    m->o = *o;
    if (!o->home || (o->has_model && !o->storage) ||
        (o->origin && (!o->origin->get || !o->origin->cancel)) || o->n_static > DISCO_STATIC_MAX) {
        return err_set(e, ERR_ARG, "the options of the mesh are not complete");
    }
    m->home = copy(o->home);
    m->machine_id = copy(o->machine_id);
    m->software = copy(o->software ? o->software : "shoal");
    m->listen_host = copy(o->listen_host ? o->listen_host : "::");
    m->bus_host = copy(o->bus_host);
    m->statics = calloc(o->n_static + 1, sizeof *m->statics);
    m->extents = calloc(o->n_extents + 1, sizeof *m->extents);
    bool full = m->home && m->software && m->listen_host && m->statics && m->extents &&
                !m->bus_host == !o->bus_host && !m->machine_id == !o->machine_id;
    for (size_t i = 0; full && i < o->n_static; i++) {
        m->statics[i] = copy(o->static_peers[i]);
        full = m->statics[i] != NULL;
        m->n_statics++;
    }
    if (!full) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (strlen(m->software) > WIRE_NAME_MAX) {
        m->software[WIRE_NAME_MAX] = 0;
    }
    if (o->n_extents) {
        memcpy(m->extents, o->extents, o->n_extents * sizeof *m->extents);
    }
    if (o->origin) {
        m->origin = *o->origin;
    }
    m->o.heartbeat_ms = o->heartbeat_ms ? o->heartbeat_ms : MESH_HEARTBEAT_MS;
    m->o.stagger_ms = o->stagger_ms ? o->stagger_ms : MESH_STAGGER_MS;
    m->o.look_ms = o->look_ms ? o->look_ms : MESH_LOOK_MS;
    m->o.hello_ms = o->hello_ms ? o->hello_ms : MESH_HELLO_MS;
    m->origin_up = true;
    return 0;
}

static int open_pool(struct mesh *m, struct err *e)
{
    struct tls_opts t = {0};
    char pem[CRYPTO_PEM_MAX];
    uint8_t cert[CRYPTO_CERT_MAX];
    size_t pem_n;
    int r = crypto_key_pem(m->me.key, pem, &pem_n, e);
    r = r ? r : crypto_certificate(m->me.key, cert, &t.cert_n, e);
    if (!r) {
        t.key = pem;
        t.key_n = pem_n + 1;
        t.cert = cert;
        t.trusted = mesh_trusted_in;
        t.trusted_ctx = m;
        t.workers = m->o.tls_workers;
        t.send_max = 16u << 20; /* SERVE_PIPE chunks at each priority */
        t.replace_bytes = m->o.replace_bytes;
        r = tls_pool_open(m->loop, &t, &m->pool, e);
    }
    crypto_wipe(pem, sizeof pem);
    if (!r) {
        mesh_ref(m);
        r = tls_listen_open(m->pool, m->loop, m->listen_host, m->o.listen_port, &link_accept_cb, m,
                            &m->listen, e);
    }
    if (!r) {
        mesh_ref(m);
        m->port = tls_listen_port(m->listen);
    }
    return r;
}

static int open_parts(struct mesh *m, struct err *e)
{
    int r = home_folder(m->home, "", e);
    r = r ? r : identity_open(m->home, m->machine_id, &m->me, e);
    r = r ? r : member_open(m->home, &m->me, &m->member, e);
    if (r) {
        return r;
    }
    instance_of(&m->me, &m->self);
    mesh_short(&m->me.id, m->node);
    m->held = held_new();
    if (!m->held) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (m->o.has_model) {
        struct serve_opts s = {m->o.storage,          m->o.storage_ctx, m->o.out_bytes_s,
                               m->o.out_peer_bytes_s, m->o.yield_ms,    m->o.ctx};
        r = open_fetch(m, e);
        r = r ? r : serve_open(m->loop, &s, &m->serve, e);
        if (r) {
            return r;
        }
        mesh_ref(m);
    }
    r = open_pool(m, e);
    if (!r) {
        mesh_membership(m, NULL);
        mesh_look_now(m);
    }
    return r;
}

static void wipe(struct mesh *m)
{
    for (size_t i = 0; m->statics && i < m->n_statics; i++) {
        free(m->statics[i]);
    }
    free(m->statics);
    free(m->extents);
    free(m->home);
    free(m->machine_id);
    free(m->software);
    free(m->listen_host);
    free(m->bus_host);
    held_free(m->held);
    member_close(&m->member);
    identity_close(&m->me);
    mesh_trust_free(m);
    pthread_mutex_destroy(&m->mu);
    pthread_cond_destroy(&m->cond);
    free(m);
}

static void start_closing(struct mesh *m);

static void thread_main(void *arg)
{
    struct mesh *m = arg;
    m->loop_thread = uv_thread_self();
    atomic_store(&m->loop_set, true);
    uv_run(m->loop, UV_RUN_DEFAULT);
}

static void run_until_closed(struct mesh *m)
{
    while (!m->closed) {
        uv_run(m->loop, UV_RUN_ONCE);
    }
    if (m->has_loop) {
        uv_run(m->loop, UV_RUN_DEFAULT);
    }
}

static void finish(struct mesh *m)
{
    if (m->has_loop) {
        uv_loop_close(&m->own_loop);
    }
    wipe(m);
}

static void start_handles(struct mesh *m)
{
    uv_timer_t *const timers[] = {&m->tick, &m->fetch_timer, &m->dial_timer, &m->have_timer,
                                  &m->close_timer};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++) {
        uv_timer_init(m->loop, timers[i]);
        timers[i]->data = m;
        mesh_ref(m);
    }
    m->async.data = m;
    mesh_ref(m);
    unsigned ms = m->o.heartbeat_ms / 4;
    ms = ms < 20 ? 20 : ms > 1000 ? 1000 : ms;
    uv_timer_start(&m->tick, on_tick, ms, ms);
}

int mesh_open(const struct mesh_opts *o, struct mesh **out, struct err *e)
{
    struct mesh *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    m->notes_tail = &m->notes;
    m->opened_at = clock_ns();
    pthread_mutex_init(&m->mu, NULL);
    pthread_cond_init(&m->cond, NULL);
    int r = mesh_trust_init(m) ? err_set(e, ERR_NOMEM, "out of memory") : copy_opts(m, o, e);
    m->loop = o->loop ? o->loop : &m->own_loop;
    if (!r && !o->loop && uv_loop_init(&m->own_loop)) {
        r = err_set(e, ERR_IO, "cannot make an event loop");
    }
    m->has_loop = !r && !o->loop;
    if (!r && uv_async_init(m->loop, &m->async, on_async)) {
        r = err_set(e, ERR_IO, "the event loop takes no more handles");
    }
    if (r) {
        finish(m);
        return r;
    }
    m->loop_thread = uv_thread_self(); /* until the thread runs */
    atomic_store(&m->loop_set, o->loop != NULL);
    start_handles(m);
    r = open_parts(m, e);
    if (!r && !o->loop) {
        if (uv_thread_create(&m->thread, thread_main, m)) {
            r = err_set(e, ERR_IO, "cannot start the thread of the LAN");
        } else {
            m->threaded = true;
        }
    }
    if (r) {
        start_closing(m);
        run_until_closed(m);
        finish(m);
        return r;
    }
    *out = m;
    return 0;
}

/* ---- the end ---- */

static void close_handles(struct mesh *m)
{
    uv_handle_t *const h[] = {(uv_handle_t *)&m->tick,        (uv_handle_t *)&m->fetch_timer,
                              (uv_handle_t *)&m->dial_timer,  (uv_handle_t *)&m->have_timer,
                              (uv_handle_t *)&m->close_timer, (uv_handle_t *)&m->async};
    pthread_mutex_lock(&m->mu);
    m->async_closed = true; /* notes that still come are run by mesh_close */
    pthread_mutex_unlock(&m->mu);
    for (size_t i = 0; i < sizeof h / sizeof *h; i++) {
        uv_close(h[i], handle_closed);
    }
}

static void pool_closed(void *ctx)
{
    struct mesh *m = ctx;
    if (m->serve) {
        serve_close(m->serve, mesh_unref, m);
        m->serve = NULL;
    }
    run_notes(m); /* whoever still waits for an answer */
    close_handles(m);
    mesh_unref(m);
}

static void close_pool(struct mesh *m)
{
    if (m->pool_closing) {
        return;
    }
    m->pool_closing = true;
    if (m->pool) {
        tls_pool_close(m->pool, pool_closed, m);
    } else {
        mesh_ref(m);
        pool_closed(m);
    }
}

void mesh_link_gone(struct mesh *m)
{
    if (m->closing && !m->n_links) {
        close_pool(m);
    }
}

static void on_close_timer(uv_timer_t *t)
{
    close_pool(t->data);
}

static void start_closing(struct mesh *m)
{
    if (m->closing) {
        return;
    }
    m->closing = true;
    uv_timer_stop(&m->dial_timer);
    uv_timer_stop(&m->fetch_timer);
    for (struct plink *l = m->links, *next; l; l = next) {
        next = l->next;
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_SHUTDOWN, NULL, DISCO_CLOSED, "");
    }
    fetch_close(m->fetch);
    m->fetch = NULL;
    if (m->disco) {
        disco_close(m->disco, mesh_unref, m);
        m->disco = NULL;
    }
    if (m->listen) {
        tls_listen_close(m->listen, mesh_unref, m);
        m->listen = NULL;
    }
    if (m->n_links) {
        uv_timer_start(&m->close_timer, on_close_timer, CLOSE_MS, 0);
    } else {
        close_pool(m);
    }
}

static void note_close(struct mesh *m, struct note *n)
{
    (void)n;
    start_closing(m);
}

void mesh_close(struct mesh *m)
{
    struct note n = {.run = note_close};
    if (!m) {
        return;
    }
    if (m->threaded) {
        mesh_post(m, &n);
        uv_thread_join(&m->thread);
    } else {
        start_closing(m);
        run_until_closed(m);
    }
    run_notes(m); /* left after the loop ended: they only free themselves */
    finish(m);
}

int mesh_port(const struct mesh *m)
{
    return m->port;
}

const struct key_id *mesh_id(const struct mesh *m)
{
    return &m->me.id;
}

/* ---- objects ---- */

struct fetch_note {
    struct note n;
    struct mwant *w;
    uint64_t id;
    enum fetch_prio prio;
};

static struct mwant **want_slot(struct mesh *m, uint64_t id)
{
    struct mwant **w = &m->wants[id % WANT_BUCKETS];
    while (*w && (*w)->id != id) {
        w = &(*w)->next;
    }
    return w;
}

static void want_end(struct mwant *w, const struct fetch_result *r)
{
    struct mwant **at = want_slot(w->m, w->id);
    if (*at == w) {
        *at = w->next;
    }
    w->o.done(w->o.ctx, w->id, r);
    free(w);
}

static void want_fail(struct mwant *w, const struct err *e)
{
    struct fetch_result r;
    memset(&r, 0, sizeof r);
    r.key = w->key;
    r.code = e->code;
    r.err = *e;
    want_end(w, &r);
}

static void on_done(void *ctx, struct fetch_want *fw, const struct fetch_result *r)
{
    (void)fw;
    want_end(ctx, r);
}

static void note_fetch(struct mesh *m, struct note *n)
{
    struct fetch_note *x = (struct fetch_note *)n;
    struct mwant *w = x->w;
    struct fetch_want_opts o = {0};
    struct err e = {0};
    o.prio = w->o.prio;
    o.deadline_ns = w->o.deadline_ms ? clock_ns() + w->o.deadline_ms * MS_NS : 0;
    o.peers_only = w->o.peers_only;
    o.done = on_done;
    o.ctx = w;
    free(x);
    if (!m->fetch) {
        err_set(&e, ERR_CANCELLED, "the node is stopping");
        want_fail(w, &e);
        return;
    }
    w->next = m->wants[w->id % WANT_BUCKETS];
    m->wants[w->id % WANT_BUCKETS] = w;
    if (fetch_get_object(m->fetch, w->key, &o, &w->want, &e)) {
        want_fail(w, &e);
    }
}

int mesh_fetch(struct mesh *m, struct object_key k, const struct mesh_want *o, uint64_t *id,
               struct err *e)
{
    if (!m->o.has_model || !o->done) {
        return err_set(e, ERR_ARG, "there is no model to fetch from");
    }
    struct fetch_note *n = calloc(1, sizeof *n);
    struct mwant *w = calloc(1, sizeof *w);
    if (!n || !w) {
        free(n);
        free(w);
        return err_set(e, ERR_NOMEM, "no memory to fetch an object");
    }
    w->m = m;
    w->id = atomic_fetch_add(&m->next_want, 1) + 1;
    w->key = k;
    w->o = *o;
    if (id) {
        *id = w->id;
    }
    n->n.run = note_fetch;
    n->w = w;
    mesh_post(m, &n->n);
    return 0;
}

static void note_cancel(struct mesh *m, struct note *n)
{
    struct fetch_note *x = (struct fetch_note *)n;
    struct mwant *w = *want_slot(m, x->id);
    struct err e = {0};
    if (w && m->fetch) {
        fetch_cancel(m->fetch, w->want);
        err_set(&e, ERR_CANCELLED, "the request was withdrawn");
        want_fail(w, &e);
    }
    free(x);
}

static void note_raise(struct mesh *m, struct note *n)
{
    struct fetch_note *x = (struct fetch_note *)n;
    struct mwant *w = *want_slot(m, x->id);
    if (w && m->fetch) {
        fetch_raise(m->fetch, w->want, x->prio);
    }
    free(x);
}

static void post_want(struct mesh *m, uint64_t id, enum fetch_prio prio,
                      void (*run)(struct mesh *m, struct note *n))
{
    struct fetch_note *n = calloc(1, sizeof *n);
    if (n) {
        n->n.run = run;
        n->id = id;
        n->prio = prio;
        mesh_post(m, &n->n);
    }
}

void mesh_cancel(struct mesh *m, uint64_t id)
{
    post_want(m, id, FETCH_BACKGROUND, note_cancel);
}

void mesh_raise(struct mesh *m, uint64_t id, enum fetch_prio prio)
{
    post_want(m, id, prio, note_raise);
}

struct have_note {
    struct note n;
    size_t n_added, n_removed;
    struct object_key k[];
};

static void note_have(struct mesh *m, struct note *n)
{
    struct have_note *x = (struct have_note *)n;
    int r = 0;
    for (size_t i = 0; i < x->n_added + x->n_removed; i++) {
        r |= i < x->n_added ? held_add(m->held, x->k[i]) : held_remove(m->held, x->k[i]);
    }
    if (r) {
        mesh_log_once(m, "no memory to tell peers of everything that is held here");
    }
    if (held_dirty(m->held) && !m->closing && !uv_is_active((uv_handle_t *)&m->have_timer)) {
        uv_timer_start(&m->have_timer, on_have_timer, HAVE_MS, 0);
    }
    free(x);
}

int mesh_have_changed(struct mesh *m, const struct object_key *added, size_t n_added,
                      const struct object_key *removed, size_t n_removed)
{
    struct have_note *n = calloc(1, sizeof *n + (n_added + n_removed) * sizeof n->k[0]);
    if (!n) {
        return ERR_NOMEM;
    }
    n->n.run = note_have;
    n->n_added = n_added;
    n->n_removed = n_removed;
    if (n_added) {
        memcpy(n->k, added, n_added * sizeof n->k[0]);
    }
    if (n_removed) {
        memcpy(n->k + n_added, removed, n_removed * sizeof n->k[0]);
    }
    mesh_post(m, &n->n);
    return 0;
}

/* ---- the origin ---- */

struct origin_note {
    struct note n;
    uint64_t id, retry_ms;
    uint32_t chunk;
    void *p;
    size_t size;
    bool has_sha, up, has_err;
    uint8_t sha[SHA256_SIZE];
    double rate, latency;
    struct err err;
};

static void note_origin_data(struct mesh *m, struct note *n)
{
    struct origin_note *x = (struct origin_note *)n;
    if (m->fetch) {
        if (!x->has_sha) {
            sha256(x->p, x->size, x->sha);
        }
        fetch_on_origin_data(m->fetch, x->id, x->chunk, x->p, x->size, x->sha);
    }
    free(x->p);
    free(x);
}

int mesh_origin_data(struct mesh *m, uint64_t id, uint32_t chunk, void *p, size_t size,
                     const uint8_t *sha)
{
    struct origin_note *n = calloc(1, sizeof *n);
    if (!n) {
        free(p);
        return ERR_NOMEM;
    }
    n->n.run = note_origin_data;
    n->id = id;
    n->chunk = chunk;
    n->p = p;
    n->size = size;
    if (sha) {
        n->has_sha = true;
        memcpy(n->sha, sha, SHA256_SIZE);
    }
    mesh_post(m, &n->n);
    return 0;
}

static void note_origin_fail(struct mesh *m, struct note *n)
{
    struct origin_note *x = (struct origin_note *)n;
    if (m->fetch) {
        fetch_on_origin_fail(m->fetch, x->id, x->retry_ms, x->has_err ? &x->err : NULL);
    }
    free(x);
}

void mesh_origin_fail(struct mesh *m, uint64_t id, uint64_t retry_ms, const struct err *e)
{
    struct origin_note *n = calloc(1, sizeof *n);
    if (n) {
        n->n.run = note_origin_fail;
        n->id = id;
        n->retry_ms = retry_ms;
        n->has_err = e != NULL;
        n->err = e ? *e : n->err;
        mesh_post(m, &n->n);
    }
}

static void note_origin_state(struct mesh *m, struct note *n)
{
    struct origin_note *x = (struct origin_note *)n;
    m->origin_up = x->up;
    if (m->fetch) {
        fetch_origin_up(m->fetch, x->up);
        if (x->rate > 0 || x->latency > 0) {
            fetch_origin_estimate(m->fetch, x->rate, (uint64_t)(x->latency * 1e9));
        }
    }
    if (m->disco) {
        disco_outside(m->disco, x->up);
    }
    free(x);
}

void mesh_origin_state(struct mesh *m, bool up, double bytes_s, double latency_s)
{
    struct origin_note *n = calloc(1, sizeof *n);
    if (n) {
        n->n.run = note_origin_state;
        n->up = up;
        n->rate = bytes_s;
        n->latency = latency_s;
        mesh_post(m, &n->n);
    }
}
