/* SPDX-License-Identifier: MIT
 * lan.c: store and mesh together. See node_int.h, node/store/share.h and peer/mesh.h.
 *
 * Locks: a callback of the upstream comes with the store's lock held and takes l->mu, then the
 * mesh's lock of notes, each for a moment; nobody who holds l->mu calls the store or waits. After
 * lan_stop nothing new goes to the mesh: requests are kept in `late` until lan_close ends them.
 *
 * What is held: changes may come from two threads in either order, so a change only says "look at
 * this object"; what is told to peers is what the store says at that moment, under l->have_mu. A
 * change during the first listing is looked at once more after it. */
#include "node/daemon/node_int.h"

#include "kernels/backend.h"
#include "node/daemon/wanted.h"

#include <stdlib.h>
#include <string.h>

#define HAVE_BATCH 4096

struct slot { /* the request for an object; the store has one at a time */
    struct lan *l;
    struct slot *late; /* the next in the list of those that could not be begun */
    uint64_t want;     /* of the mesh */
    int code;          /* in that list: how it ends */
    bool pending;
    uint64_t peer_bytes, origin_bytes; /* of the last request */
};

struct lan {
    struct node *n;
    struct store *st;
    struct mesh *mesh;
    pthread_mutex_t mu;
    struct slot *slots;
    uint32_t n_objects;
    struct slot *late;
    bool live;
    struct wanted *wanted; /* for other members, NULL: there is no disk */

    pthread_mutex_t have_mu;
    bool listed;
    uint32_t *touched; /* while not listed */
    size_t n_touched, touched_cap;
    bool touched_lost;
};

static enum fetch_prio fetch_of(enum store_prio p)
{
    return p == STORE_DEMAND     ? FETCH_DEMAND
           : p == STORE_PREFETCH ? FETCH_PREFETCH
                                 : FETCH_BACKGROUND;
}

static enum store_prio store_of(enum fetch_prio p)
{
    return p == FETCH_DEMAND     ? STORE_DEMAND
           : p == FETCH_PREFETCH ? STORE_PREFETCH
                                 : STORE_BACKGROUND;
}

/* ---- requests ---- */

static void end(struct slot *s, const struct store_upstream_result *r)
{
    struct lan *l = s->l;
    pthread_mutex_lock(&l->mu);
    s->pending = false;
    s->peer_bytes = r->peer_bytes;
    s->origin_bytes = r->origin_bytes;
    pthread_mutex_unlock(&l->mu);
    store_upstream_done(l->st, (uint32_t)(s - l->slots), r);
}

/* On the LAN thread. */
static void on_done(void *ctx, uint64_t want, const struct fetch_result *r)
{
    struct slot *s = ctx;
    struct store_upstream_result x = {
        .code = r->code, .err = r->code ? &r->err : NULL, .origin_bytes = r->origin_bytes};
    (void)want;
    for (uint32_t i = 0; i < r->n_from && i < FETCH_MEMBERS_MAX; i++) {
        x.peer_bytes += r->from[i].bytes;
    }
    gave_add(&s->l->n->gave, r);
    end(s, &x);
}

/* Ends what could not be begun. */
static void run_late(struct lan *l)
{
    for (;;) {
        pthread_mutex_lock(&l->mu);
        struct slot *s = l->late;
        if (s) {
            l->late = s->late;
        }
        pthread_mutex_unlock(&l->mu);
        if (!s) {
            return;
        }
        struct err e = {0};
        struct store_upstream_result r = {.code = s->code, .err = &e};
        err_set(&e, s->code, "%s",
                s->code == ERR_CANCELLED ? "the node is stopping" : err_text(s->code));
        end(s, &r);
    }
}

struct late_job {
    struct pool_job j;
    struct lan *l;
};

static void late_run(struct pool_job *j)
{
    struct late_job *x = (struct late_job *)j;
    run_late(x->l);
    free(x);
}

static void up_fetch(void *ctx, uint32_t id, enum store_prio prio)
{
    struct lan *l = ctx;
    struct slot *s = &l->slots[id];
    struct mesh_want w = {.prio = fetch_of(prio), .done = on_done, .ctx = s};
    w.own = homes_own(l->n->homes, id);
    struct late_job *j = NULL;
    pthread_mutex_lock(&l->mu);
    s->l = l;
    s->pending = true;
    s->code =
        l->live ? mesh_fetch(l->mesh, store_key(l->st, id), &w, &s->want, NULL) : ERR_CANCELLED;
    if (s->code) {
        s->late = l->late;
        l->late = s;
        j = calloc(1, sizeof *j);
    }
    pthread_mutex_unlock(&l->mu);
    if (j) {
        *j = (struct late_job){.j.run = late_run, .l = l};
        if (!pool_add(l->n->pool, &j->j)) {
            free(j); /* lan_tick or lan_close does it */
        }
    }
}

static void up_raise(void *ctx, uint32_t id, enum store_prio prio)
{
    struct lan *l = ctx;
    pthread_mutex_lock(&l->mu);
    const struct slot *s = &l->slots[id];
    if (s->pending && !s->code && l->live) {
        mesh_raise(l->mesh, s->want, fetch_of(prio));
    }
    pthread_mutex_unlock(&l->mu);
}

static void up_cancel(void *ctx, uint32_t id)
{
    struct lan *l = ctx;
    pthread_mutex_lock(&l->mu);
    const struct slot *s = &l->slots[id];
    if (s->pending && !s->code && l->live) {
        mesh_cancel(l->mesh, s->want);
    }
    pthread_mutex_unlock(&l->mu);
}

void lan_forget(struct lan *l, uint32_t id)
{
    pthread_mutex_lock(&l->mu);
    if (id < l->n_objects && !l->slots[id].pending) {
        l->slots[id].peer_bytes = l->slots[id].origin_bytes = 0;
    }
    pthread_mutex_unlock(&l->mu);
}

void lan_brought(struct lan *l, uint32_t id, uint64_t *peer_bytes, uint64_t *origin_bytes)
{
    pthread_mutex_lock(&l->mu);
    bool known = id < l->n_objects;
    *peer_bytes = known ? l->slots[id].peer_bytes : 0;
    *origin_bytes = known ? l->slots[id].origin_bytes : 0;
    pthread_mutex_unlock(&l->mu);
}

/* ---- what is held here ---- */

/* With have_mu: tell peers how it stands with these objects now. */
static void tell(struct lan *l, const uint32_t *ids, size_t n)
{
    struct object_key *k = malloc((n ? n : 1) * sizeof *k);
    size_t add = 0, remove = n;
    if (!k) {
        l->touched_lost = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct object_key key = store_key(l->st, ids[i]);
        if (store_storage_ops.have(l->st, key)) {
            k[add++] = key;
        } else {
            k[--remove] = key;
        }
    }
    if (mesh_have_changed(l->mesh, k, add, k + remove, n - remove)) {
        l->touched_lost = true;
    }
    free(k);
}

static void touch(struct lan *l, const uint32_t *ids, size_t n)
{
    if (l->n_touched + n > l->touched_cap) {
        size_t cap = (l->n_touched + n) * 2 + 256;
        uint32_t *p = realloc(l->touched, cap * sizeof *p);
        if (!p) {
            l->touched_lost = true;
            return;
        }
        l->touched = p;
        l->touched_cap = cap;
    }
    if (n) {
        memcpy(l->touched + l->n_touched, ids, n * sizeof *ids);
    }
    l->n_touched += n;
}

static void up_changed(void *ctx, const uint32_t *added, size_t n_added, const uint32_t *removed,
                       size_t n_removed)
{
    struct lan *l = ctx;
    pthread_mutex_lock(&l->have_mu);
    if (!l->listed) {
        touch(l, added, n_added);
        touch(l, removed, n_removed);
    } else if (l->live) {
        tell(l, added, n_added);
        tell(l, removed, n_removed);
    }
    pthread_mutex_unlock(&l->have_mu);
}

/* All of it, in pieces. */
static int list(struct lan *l, struct err *e)
{
    uint32_t *ids = NULL;
    size_t n = 0;
    int r = store_share_list(l->st, &ids, &n, e);
    struct object_key *k = r ? NULL : malloc(HAVE_BATCH * sizeof *k);
    if (!r && !k) {
        r = err_set(e, ERR_NOMEM, "no memory to list what is held");
    }
    pthread_mutex_lock(&l->have_mu);
    for (size_t i = 0; !r && (i < n || i == 0);) {
        size_t m = 0;
        while (m < HAVE_BATCH && i + m < n) {
            k[m] = store_key(l->st, ids[i + m]);
            m++;
        }
        r = mesh_have_changed(l->mesh, k, m, NULL, 0);
        i += m ? m : 1;
    }
    if (!r) {
        tell(l, l->touched, l->n_touched);
        l->listed = true;
        free(l->touched);
        l->touched = NULL;
        l->n_touched = l->touched_cap = 0;
    }
    pthread_mutex_unlock(&l->have_mu);
    free(k);
    free(ids);
    return r;
}

/* ---- storage: the store's own, with what is served counted ---- */

static bool sto_size(void *ctx, struct object_key k, uint64_t *size)
{
    return store_storage_ops.size(((struct lan *)ctx)->st, k, size);
}

static bool sto_have(void *ctx, struct object_key k)
{
    return store_storage_ops.have(((struct lan *)ctx)->st, k);
}

static bool sto_digests(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                        uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t object[SHA256_SIZE])
{
    return store_storage_ops.digests(((struct lan *)ctx)->st, k, first, n, sha, b, object);
}

static void sto_read(void *ctx, struct storage_read *r)
{
    struct lan *l = ctx;
    uint64_t size;
    if (store_storage_ops.size(l->st, r->key, &size) && r->chunk < storage_chunks(size)) {
        yield_served(&l->n->yield, storage_chunk_len(size, r->chunk));
    }
    store_storage_ops.read(l->st, r);
}

static void sto_release(void *ctx, struct storage_read *r)
{
    store_storage_ops.release(((struct lan *)ctx)->st, r);
}

static int sto_put_begin(void *ctx, struct object_key k, uint64_t size, struct storage_put **put,
                         struct err *e)
{
    return store_storage_ops.put_begin(((struct lan *)ctx)->st, k, size, put, e);
}

static void sto_put_second(void *ctx, struct object_key k)
{
    store_storage_ops.put_second(((struct lan *)ctx)->st, k);
}

static int sto_put_chunk(void *ctx, struct storage_put *put, uint32_t chunk, const uint8_t *p,
                         size_t n, const uint8_t sha[SHA256_SIZE], struct err *e)
{
    return store_storage_ops.put_chunk(((struct lan *)ctx)->st, put, chunk, p, n, sha, e);
}

static int sto_put_end(void *ctx, struct storage_put *put, int code, enum basis b,
                       const uint8_t object[SHA256_SIZE], struct err *e)
{
    return store_storage_ops.put_end(((struct lan *)ctx)->st, put, code, b, object, e);
}

static bool sto_expect(void *ctx, struct object_key k, uint8_t object[SHA256_SIZE], enum basis *b)
{
    return store_storage_ops.expect(((struct lan *)ctx)->st, k, object, b);
}

static void sto_put_words(void *ctx, struct storage_put *put, const uint8_t (*ids)[SHA256_SIZE],
                          size_t n)
{
    store_storage_ops.put_words(((struct lan *)ctx)->st, put, ids, n);
}

static const struct storage_ops lan_storage = {
    .expect = sto_expect,
    .put_words = sto_put_words,
    .put_second = sto_put_second,
    .size = sto_size,
    .have = sto_have,
    .digests = sto_digests,
    .read = sto_read,
    .release = sto_release,
    .put_begin = sto_put_begin,
    .put_chunk = sto_put_chunk,
    .put_end = sto_put_end,
};

static const char *name_of(void *ctx, struct object_key k, char *buf, size_t n)
{
    struct lan *l = ctx;
    uint32_t id = store_key_id(l->st, k);
    return id == MODEL_NONE ? "an unknown object"
                            : model_object_name(store_model(l->st), id, buf, n);
}

/* ---- the origin ---- */

static int origin_get(void *ctx, uint64_t id, struct object_key k, uint32_t first, uint32_t n,
                      enum fetch_prio prio, bool sure)
{
    return store_origin_get(((struct lan *)ctx)->st, id, k, first, n, store_of(prio), sure);
}

/* Another member waits for it. On the LAN thread. */
static int wanted(void *ctx, struct object_key k, enum fetch_prio prio)
{
    return wanted_ask(((struct lan *)ctx)->wanted, k, store_of(prio));
}

static void origin_cancel(void *ctx, uint64_t id)
{
    store_origin_cancel(((struct lan *)ctx)->st, id);
}

static void origin_raise(void *ctx, uint64_t id, enum fetch_prio prio)
{
    store_origin_raise(((struct lan *)ctx)->st, id, store_of(prio));
}

static void origin_busy(void *ctx, uint64_t ms)
{
    store_origin_pause(((struct lan *)ctx)->st, ms);
}

static int origin_data(void *ctx, uint64_t id, uint32_t chunk, void *p, size_t n,
                       const uint8_t *sha256)
{
    struct lan *l = ctx;
    int r = ERR_CANCELLED;
    pthread_mutex_lock(&l->mu);
    if (l->live) {
        r = mesh_origin_data(l->mesh, id, chunk, p, n, sha256);
    } else {
        free(p);
    }
    pthread_mutex_unlock(&l->mu);
    return r;
}

static int origin_spot(void *ctx, uint64_t id, struct object_key k, uint64_t off, uint32_t n,
                       enum fetch_prio prio)
{
    return store_origin_spot(((struct lan *)ctx)->st, id, k, off, n, store_of(prio));
}

static void origin_spotted(void *ctx, uint64_t id, int code, uint64_t retry_ms)
{
    struct lan *l = ctx;
    pthread_mutex_lock(&l->mu);
    if (l->live) {
        mesh_origin_spot(l->mesh, id, code, retry_ms);
    }
    pthread_mutex_unlock(&l->mu);
}

static void origin_fail(void *ctx, uint64_t id, uint64_t retry_ms, const struct err *e)
{
    struct lan *l = ctx;
    pthread_mutex_lock(&l->mu);
    if (l->live) {
        mesh_origin_fail(l->mesh, id, retry_ms, e);
    }
    pthread_mutex_unlock(&l->mu);
}

static void origin_asks(void *ctx, uint64_t ms)
{
    struct lan *l = ctx;
    pthread_mutex_lock(&l->mu);
    if (l->live) {
        mesh_origin_busy(l->mesh, ms);
    }
    pthread_mutex_unlock(&l->mu);
}

static void origin_trouble(void *ctx)
{
    struct lan *l = ctx;
    pthread_mutex_lock(&l->mu);
    if (l->live) {
        mesh_origin_trouble(l->mesh);
    }
    pthread_mutex_unlock(&l->mu);
}

void lan_tick(struct lan *l)
{
    bool up = false;
    double rate = 0, latency = 0;
    run_late(l);
    wanted_tick(l->wanted);
    if (store_has_origin(l->st)) {
        store_origin_measured(l->st, &up, &rate, &latency);
        mesh_origin_state(l->mesh, up || store_mirrors_up(l->st), rate, latency);
    }
    pthread_mutex_lock(&l->have_mu);
    bool lost = l->touched_lost;
    l->touched_lost = false;
    l->listed = l->listed && !lost;
    pthread_mutex_unlock(&l->have_mu);
    if (lost) { /* memory was short: what was missed is in the whole list */
        struct err e = {0};
        if (list(l, &e)) {
            node_log(l->n, "peers are not told of all that is held here: %s", e.msg);
        }
    }
}

/* ---- bad copies ---- */

void lan_bad_copy(void *node, struct object_key k, uint32_t chunk)
{
    struct store *st = node_store_now(node);
    uint32_t id = st ? store_key_id(st, k) : MODEL_NONE;
    if (id != MODEL_NONE) {
        store_share_check(st, id, chunk);
    }
}

/* ---- life ---- */

/* What coverage is counted over: the experts of each layer that has some, and the spine. */
static struct mesh_extent *extents(const struct model *m, size_t *n)
{
    const struct model_config *c = model_config(m);
    struct mesh_extent *x = calloc((size_t)c->n_layers + 1, sizeof *x);
    uint32_t spine = 0, objects = model_object_count(m);
    *n = 0;
    for (uint32_t l = 0; x && l < c->n_layers; l++) {
        if (model_expert_id(m, l, 0) != MODEL_NONE) {
            x[(*n)++] = (struct mesh_extent){STORE_KEY_EXPERT, (uint16_t)l, c->n_experts};
        }
    }
    while (spine < objects && model_object(m, spine)->kind == MODEL_SPINE) {
        spine++;
    }
    if (x) {
        x[(*n)++] = (struct mesh_extent){STORE_KEY_SPINE, 0, spine};
    }
    return x;
}

/* On the LAN thread. */
static bool want_small(void *ctx, struct object_key like)
{
    struct lan *l = ctx;
    return sample_small(l->st, l->wanted, like);
}

int lan_open(struct node *n, struct lan **out, struct err *e)
{
    struct lan *l = calloc(1, sizeof *l);
    const struct model *m = store_model(n->st);
    struct mesh_origin origin = {l,           origin_get, origin_cancel, origin_raise,
                                 origin_busy, origin_spot};
    struct store_origin_answers answers = {l,           origin_data,    origin_fail,
                                           origin_asks, origin_trouble, origin_spotted};
    *out = NULL;
    if (!l) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    l->n = n;
    l->st = n->st;
    l->mesh = n->mesh;
    l->live = true;
    l->n_objects = model_object_count(m);
    l->slots = calloc(l->n_objects ? l->n_objects : 1, sizeof *l->slots);
    pthread_mutex_init(&l->mu, NULL);
    pthread_mutex_init(&l->have_mu, NULL);
    struct mesh_model mm = {.numerics_version = SHOAL_NUMERICS_VERSION,
                            .storage = &lan_storage,
                            .storage_ctx = l,
                            .name_of = name_of,
                            .ctx = l,
                            .wanted = wanted,
                            .want_small = want_small,
                            .words = words_mesh(n->words)};
    wanted_open(l->st, &l->wanted, NULL);
    struct mesh_extent *x = extents(m, &mm.n_extents);
    int r = l->slots && x ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    if (!r) {
        memcpy(mm.root, model_root(m), SHA256_SIZE);
        sample_sizes(m, &mm.samples, &mm.sample_bytes);
        mm.extents = x;
        if (store_has_origin(l->st)) {
            store_origin_answer_to(l->st, &answers);
            mm.origin = &origin;
        }
        r = mesh_set_model(l->mesh, &mm, e);
    }
    free(x);
    struct store_upstream up = {l, up_fetch, up_raise, up_cancel, up_changed};
    if (!r) {
        store_set_upstream(l->st, &up);
        lan_tick(l);
        uint64_t busy_ms = store_origin_asked_ms(l->st); /* it said so about the metadata */
        if (busy_ms) {
            mesh_origin_busy(l->mesh, busy_ms);
        }
        r = list(l, e);
    }
    *out = l; /* also on failure: the mesh knows its storage */
    return r;
}

void lan_stop(struct lan *l)
{
    pthread_mutex_lock(&l->have_mu);
    pthread_mutex_lock(&l->mu);
    l->live = false;
    pthread_mutex_unlock(&l->mu);
    pthread_mutex_unlock(&l->have_mu);
}

void lan_close(struct lan *l)
{
    if (!l) {
        return;
    }
    store_set_upstream(l->st, NULL);
    store_origin_answer_to(l->st, NULL); /* nobody is in origin_data or origin_fail any more */
    run_late(l);
    wanted_close(l->wanted);
    pthread_mutex_destroy(&l->mu);
    pthread_mutex_destroy(&l->have_mu);
    free(l->slots);
    free(l->touched);
    free(l);
}
