/* SPDX-License-Identifier: MIT
 * mesh_fetch.c: the fetch engine on the LAN thread: what it needs, what other threads ask of it,
 * and telling peers what is held here. See mesh_int.h. */
#include "peer/mesh_int.h"

#include "peer/crypto.h"

#include "proto/base/clock.h"

#include <stdlib.h>

#define HAVE_MS 20 /* changes are gathered for so long */

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
    x.relay = g->relay;
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
    mesh_log(m, "peer %s: nothing is fetched from it for %llu s: %s", l ? l->who : "?",
             (unsigned long long)(ns / 1000 / MS_NS), why);
}

static void op_lied(void *ctx, const uint8_t id[SHA256_SIZE], struct object_key k, const char *why)
{
    struct mesh *m = ctx;
    if (m->has_words) {
        m->words.lied(m->words.ctx, id, k, why);
    }
}

static bool op_want_small(void *ctx, struct object_key like)
{
    struct mesh *m = ctx;
    return m->want_small(m->name_ctx, like);
}

static int op_origin_get(void *ctx, uint64_t id, struct object_key k, uint32_t first, uint32_t n,
                         enum fetch_prio prio, bool sure)
{
    struct mesh *m = ctx;
    return m->origin.get(m->origin.ctx, id, k, first, n, prio, sure);
}

static void op_origin_cancel(void *ctx, uint64_t id)
{
    struct mesh *m = ctx;
    m->origin.cancel(m->origin.ctx, id);
}

static void op_origin_raise(void *ctx, uint64_t id, enum fetch_prio prio)
{
    struct mesh *m = ctx;
    m->origin.raise(m->origin.ctx, id, prio);
}

static int op_origin_spot(void *ctx, uint64_t id, struct object_key k, uint64_t off, uint32_t n,
                          enum fetch_prio prio)
{
    struct mesh *m = ctx;
    return m->origin.spot(m->origin.ctx, id, k, off, n, prio);
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

int mesh_fetch_open(struct mesh *m, struct err *e)
{
    struct fetch_opts f = {0};
    f.ops.ctx = m;
    f.ops.now = op_now;
    f.ops.send_get = op_get;
    f.ops.send_cancel = op_cancel;
    f.ops.send_bad = op_bad;
    f.ops.banned = op_banned;
    f.ops.lied = op_lied;
    if (m->o.origin) {
        f.ops.origin_get = op_origin_get;
        f.ops.origin_cancel = op_origin_cancel;
        f.ops.origin_raise = m->o.origin->raise ? op_origin_raise : NULL;
        f.ops.origin_spot = m->o.origin->spot ? op_origin_spot : NULL;
    }
    f.ops.wake = op_wake;
    f.ops.log = op_log;
    f.storage = m->o.storage;
    f.storage_ctx = m->o.storage_ctx;
    f.max_bytes = m->o.max_fetch_bytes;
    f.no_source_ms = m->o.no_source_ms;
    f.give_up_ms = m->o.give_up_ms;
    f.name_of = m->o.name_of;
    f.samples = m->o.samples;
    f.ops.want_small = m->want_small ? op_want_small : NULL;
    f.sample_bytes = m->o.sample_bytes;
    if (crypto_random(&f.seed, sizeof f.seed, e)) {
        return e->code;
    }
    f.name_ctx = m->name_ctx;
    mesh_lease_ops(m, &f);
    return fetch_open(&f, &m->fetch, e);
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
    o.others = m->serve && serve_lease_waits(m->serve, w->key);
    o.own = w->o.own;
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
    if (!atomic_load(&m->may_fetch) || !o->done) {
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

/* ---- what is held here ---- */

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

struct have_note {
    struct note n;
    size_t n_added, n_removed;
    struct object_key k[];
};

static void note_have(struct mesh *m, struct note *n)
{
    struct have_note *x = (struct have_note *)n;
    int r = 0;
    if (!m->o.has_model) {
        free(x);
        return;
    }
    for (size_t i = 0; i < x->n_added + x->n_removed; i++) {
        r |= i < x->n_added ? held_add(m->held, x->k[i]) : held_remove(m->held, x->k[i]);
        if (i < x->n_added && m->serve) {
            serve_lease_held(m->serve, x->k[i]);
        }
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

static void note_origin_spot(struct mesh *m, struct note *n)
{
    struct origin_note *x = (struct origin_note *)n;
    if (m->fetch) {
        fetch_on_spot(m->fetch, x->id, (enum fetch_spot)x->chunk, x->retry_ms);
    }
    free(x);
}

void mesh_origin_spot(struct mesh *m, uint64_t id, int code, uint64_t retry_ms)
{
    struct origin_note *n = calloc(1, sizeof *n);
    if (n) {
        n->n.run = note_origin_spot;
        n->id = id;
        n->chunk = !code                ? FETCH_SPOT_SAME
                   : code == ERR_DIGEST ? FETCH_SPOT_DIFFERS
                                        : FETCH_SPOT_FAILED;
        n->retry_ms = retry_ms;
        mesh_post(m, &n->n);
    }
}

void mesh_fetch_origin(struct mesh *m)
{
    if (!m->fetch) {
        return;
    }
    fetch_origin_up(m->fetch, m->origin_up);
    if (m->origin_rate > 0 || m->origin_latency > 0) {
        fetch_origin_estimate(m->fetch, m->origin_rate, (uint64_t)(m->origin_latency * 1e9));
    }
}

static void note_origin_trouble(struct mesh *m, struct note *n)
{
    if (m->fetch) {
        fetch_origin_trouble(m->fetch);
    }
    free(n);
}

void mesh_origin_trouble(struct mesh *m)
{
    struct origin_note *n = calloc(1, sizeof *n);
    if (n) {
        n->n.run = note_origin_trouble;
        mesh_post(m, &n->n);
    }
}

static void note_origin_state(struct mesh *m, struct note *n)
{
    struct origin_note *x = (struct origin_note *)n;
    m->origin_up = x->up;
    if (x->rate > 0 || x->latency > 0) {
        m->origin_rate = x->rate;
        m->origin_latency = x->latency;
    }
    mesh_fetch_origin(m);
    mesh_lease_tick(m);
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
