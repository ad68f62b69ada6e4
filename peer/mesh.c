/* SPDX-License-Identifier: MIT
 * mesh.c: life and threads of a mesh, notes from other threads. See mesh.h for the
 * contract and mesh_int.h for the other files.
 *
 * Other threads leave notes in a list and wake the loop; a note that is waited for lies on the
 * waiter's stack. Closing: goodbyes, then everything that knows of connections, then the pool, then
 * the handles; m->open counts what is still to be closed. */
#include "peer/home.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"
#include "proto/base/qos.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <limits.h>
#include <stdlib.h>

#define CLOSE_MS 1500 /* for the goodbyes */
#define LOG_GAP_NS (60000 * MS_NS)
#define WAIT_LOOK_NS (500 * MS_NS)

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
    uv_mutex_lock(&m->mu);
    bool sync = n->sync; /* not one's own any more once the lock is free, unless it is waited for */
    m->waiters += sync;
    *m->notes_tail = n;
    m->notes_tail = &n->next;
    if (m->async_closed) {
        uv_cond_broadcast(&m->cond); /* mesh_close runs it */
    } else {
        uv_async_send(&m->async);
    }
    while (sync && !n->done) {
        uv_cond_wait(&m->cond, &m->mu);
    }
    if (sync) {
        m->waiters--;
        uv_cond_broadcast(&m->cond);
    }
    uv_mutex_unlock(&m->mu);
}

void mesh_wait_begin(struct mesh *m)
{
    uv_mutex_lock(&m->mu);
    m->waiters++;
}

void mesh_wait_end(struct mesh *m)
{
    m->waiters--;
    uv_cond_broadcast(&m->cond);
    uv_mutex_unlock(&m->mu);
}

static void run_notes(struct mesh *m)
{
    for (;;) {
        uv_mutex_lock(&m->mu);
        struct note *n = m->notes;
        if (n) {
            m->notes = n->next;
            if (!m->notes) {
                m->notes_tail = &m->notes;
            }
        }
        uv_mutex_unlock(&m->mu);
        if (!n) {
            return;
        }
        bool sync = n->sync;
        n->run(m, n);
        if (sync) {
            uv_mutex_lock(&m->mu);
            n->done = true;
            uv_cond_broadcast(&m->cond);
            uv_mutex_unlock(&m->mu);
        }
    }
}

/* After the loop ended: notes that still come, and threads on their way out of a call. */
static void last_notes(struct mesh *m)
{
    uv_mutex_lock(&m->mu);
    while (m->notes || m->waiters) {
        if (!m->notes) {
            uv_cond_wait(&m->cond, &m->mu);
            continue;
        }
        uv_mutex_unlock(&m->mu);
        run_notes(m);
        uv_mutex_lock(&m->mu);
    }
    uv_mutex_unlock(&m->mu);
}

static void on_async(uv_async_t *a)
{
    run_notes(a->data);
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
    mesh_files_tick(m, now);
    mesh_key_tick(m, now);
    mesh_lease_tick(m);
    mesh_words_tick(m, now);
    if (!m->closing && now >= m->look_at) {
        mesh_look_now(m);
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
        (o->has_model && o->origin && (!o->origin->get || !o->origin->cancel)) ||
        o->n_static > DISCO_STATIC_MAX) {
        return err_set(e, ERR_ARG, "the options of the mesh are not complete");
    }
    m->home = copy(o->home);
    m->machine_id = copy(o->machine_id);
    m->software = copy(o->software ? o->software : "shoal");
    m->listen_host = copy(o->listen_host ? o->listen_host : "::");
    m->bus_host = copy(o->bus_host);
    m->statics = calloc(o->n_static + 1, sizeof *m->statics);
    if (!o->has_model) { /* what else is said of a model is not looked at */
        m->o.storage = NULL;
        m->o.origin = NULL;
        m->o.n_extents = 0;
    }
    m->extents = calloc(m->o.n_extents + 1, sizeof *m->extents);
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
    char software[WIRE_NAME_MAX + 1];
    codec_clean(m->software, software, WIRE_NAME_MAX);
    memcpy(m->software, software, strlen(software) + 1); /* never longer than it was */
    if (m->o.n_extents) {
        memcpy(m->extents, o->extents, m->o.n_extents * sizeof *m->extents);
    }
    if (m->o.origin) {
        m->origin = *o->origin;
        m->o.origin = &m->origin;
    }
    m->o.extents = m->extents;
    m->name_ctx = o->ctx;
    codec_clean(o->name, m->name, WIRE_NAME_MAX);
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
    r = m->o.has_model ? mesh_model_start(m, e) : 0;
    r = r ? r : open_pool(m, e);
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
    free(m->known);
    held_free(m->held);
    mesh_place_close(m);
    mesh_net_free(m);
    mesh_bans_free(m);
    member_close(&m->member);
    identity_close(&m->me);
    mesh_trust_free(m);
    uv_mutex_destroy(&m->mu);
    uv_cond_destroy(&m->cond);
    free(m);
}

static void start_closing(struct mesh *m);

static void thread_main(void *arg)
{
    struct mesh *m = arg;
    qos_self(QOS_ANSWER);
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
    uv_timer_t *const timers[] = {&m->tick,       &m->fetch_timer, &m->dial_timer,
                                  &m->have_timer, &m->file_timer,  &m->close_timer};
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
    uv_mutex_init(&m->mu);
    uv_cond_init(&m->cond);
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
    uv_handle_t *const h[] = {(uv_handle_t *)&m->tick,       (uv_handle_t *)&m->fetch_timer,
                              (uv_handle_t *)&m->dial_timer, (uv_handle_t *)&m->have_timer,
                              (uv_handle_t *)&m->file_timer, (uv_handle_t *)&m->close_timer,
                              (uv_handle_t *)&m->async};
    uv_mutex_lock(&m->mu);
    m->async_closed = true; /* notes that still come are run by mesh_close */
    uv_mutex_unlock(&m->mu);
    for (size_t i = 0; i < sizeof h / sizeof *h; i++) {
        uv_close(h[i], handle_closed);
    }
}

/* With the pool gone and no read of the node's out, whose answer would wake the loop. */
void mesh_maybe_over(struct mesh *m)
{
    if (m->pool_gone && !m->n_gives && !m->over) {
        m->over = true;
        run_notes(m); /* whoever still waits for an answer */
        close_handles(m);
    }
}

static void pool_closed(void *ctx)
{
    struct mesh *m = ctx;
    m->pool = NULL;
    m->pool_gone = true;
    if (m->serve) {
        serve_close(m->serve, mesh_unref, m);
        m->serve = NULL;
    }
    mesh_maybe_over(m);
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
    uv_mutex_lock(&m->mu);
    m->stopping = true;
    uv_cond_broadcast(&m->cond);
    uv_mutex_unlock(&m->mu);
    uv_timer_stop(&m->dial_timer);
    uv_timer_stop(&m->fetch_timer);
    uv_timer_stop(&m->file_timer);
    mesh_files_close(m);
    mesh_verify_close(m);
    for (struct plink *l = m->links, *next; l; l = next) {
        next = l->next;
        link_close(l, SHOAL__GOODBYE_REASON__GOODBYE_SHUTDOWN, NULL, DISCO_CLOSED, "");
    }
    mesh_bans_look(m, true);
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
    last_notes(m);
    finish(m);
}

/* ---- who is there ---- */

void mesh_count_up(struct mesh *m, int by)
{
    uv_mutex_lock(&m->mu);
    atomic_fetch_add(&m->n_up, by);
    uv_cond_broadcast(&m->cond);
    uv_mutex_unlock(&m->mu);
}

int mesh_peers(struct mesh *m)
{
    return atomic_load(&m->n_up);
}

struct others_note {
    struct note n;
    size_t others;
};

static void note_others(struct mesh *m, struct note *n)
{
    struct others_note *x = (struct others_note *)n;
    const struct roster *r = &m->member.roster;
    bool in = m->member.in_group && roster_find(r, &m->me.id);
    x->others = m->member.in_group ? r->members_n - in : 0;
}

struct sight_note {
    struct note n;
    bool any;
};

static void note_sight(struct mesh *m, struct note *n)
{
    struct sight_note *x = (struct sight_note *)n;
    uint64_t now = clock_ns();
    x->any = now < m->polite_until;
    for (struct plink *l = m->links; l && !x->any; l = l->next) {
        uint64_t in = 0, out = 0;
        if (l->state == LINK_DIAL) {
            tls_conn_bytes(l->c, &in, &out);
            x->any = in || now - l->began < MESH_SIGHT_MS * MS_NS;
        } else {
            x->any = l->state == LINK_HELLO || l->state == LINK_PROBE;
        }
    }
}

bool mesh_in_sight(struct mesh *m)
{
    struct sight_note x = {.n = {.run = note_sight, .sync = true}};
    mesh_post(m, &x.n);
    return x.any;
}

int mesh_wait_peers(struct mesh *m, int n, unsigned timeout_ms)
{
    uint64_t now = clock_ns(), end = now + timeout_ms * MS_NS, look = 0;
    if (mesh_on_loop(m)) {
        return mesh_peers(m);
    }
    mesh_wait_begin(m);
    while (!m->stopping && atomic_load(&m->n_up) < n && (now = clock_ns()) < end) {
        if (now >= look) { /* the membership may change while this waits */
            struct others_note x = {.n = {.run = note_others, .sync = true}};
            uv_mutex_unlock(&m->mu);
            mesh_post(m, &x.n);
            uv_mutex_lock(&m->mu);
            if (!x.others || (n == INT_MAX && atomic_load(&m->n_up) >= (int)x.others)) {
                break;
            }
            look = now + WAIT_LOOK_NS;
            continue;
        }
        uv_cond_timedwait(&m->cond, &m->mu, (end < look ? end : look) - now);
    }
    mesh_wait_end(m);
    return mesh_peers(m);
}

int mesh_port(const struct mesh *m)
{
    return m->port;
}

const struct key_id *mesh_id(const struct mesh *m)
{
    return &m->me.id;
}
