/* SPDX-License-Identifier: MIT
 * weights.c: which spine tensors are in RAM when. Layers that fit the budget stay, as they are or
 * packed; the others are brought in for their turn and dropped after it, the next one being hinted
 * to the store while this one computes. The embedding is never brought in whole: its rows are read
 * one by one. */
#include "node/infer/internal.h"

#include "node/store/forms.h"

#include <stdlib.h>
#include <string.h>

/* Pin the objects ids[0..n) into views[slot[i]]. All or nothing. */
static int hold(struct infer *f, const uint32_t *ids, const uint32_t *slot, size_t n,
                struct store_view *views, struct err *e)
{
    struct store_batch *b;
    int r = timed_begin(f, ids, n, STORE_DEMAND, &b, e);
    if (r) {
        return r;
    }
    for (size_t i = 0; i < n && !r; i++) {
        size_t which;
        struct store_view v;
        r = timed_next(f, b, &which, &v, e);
        if (!r) {
            views[slot[which]] = v;
        }
    }
    timed_end(f, b);
    if (r) {
        for (size_t i = 0; i < n; i++) {
            if (views[slot[i]].p) {
                timed_release(f, &views[slot[i]], true);
                memset(&views[slot[i]], 0, sizeof views[0]);
            }
        }
    }
    return r;
}

static size_t layer_ids(const struct infer *f, uint32_t l, uint32_t *ids, uint32_t *slot)
{
    size_t n = 0;
    for (uint32_t r = 0; r < MODEL_LAYER_ROLE_COUNT; r++) {
        uint32_t id = model_spine_id(f->m, l, (enum model_role)r);
        if (id != MODEL_NONE && !model_unread(model_object(f->m, id))) {
            ids[n] = id;
            slot[n++] = r;
        }
    }
    return n;
}

static size_t global_ids(const struct infer *f, uint32_t *ids, uint32_t *slot)
{
    size_t n = 0;
    for (uint32_t r = MODEL_GLOBAL_FIRST; r < MODEL_ROLE_COUNT; r++) {
        uint32_t id = model_spine_id(f->m, MODEL_NONE, (enum model_role)r);
        if (id != MODEL_NONE && r != MODEL_EMBED) {
            ids[n] = id;
            slot[n++] = r - MODEL_GLOBAL_FIRST;
        }
    }
    return n;
}

int layer_hold(struct infer *f, uint32_t l, struct err *e)
{
    struct layer *w = &f->layers[l];
    if (w->held) {
        return 0;
    }
    uint32_t ids[MODEL_LAYER_ROLE_COUNT], slot[MODEL_LAYER_ROLE_COUNT];
    size_t n = layer_ids(f, l, ids, slot);
    int r = hold(f, ids, slot, n, w->v, e);
    w->held = !r;
    return r;
}

void layer_drop(struct infer *f, uint32_t l)
{
    struct layer *w = &f->layers[l];
    if (!w->held || w->resident) {
        return;
    }
    for (uint32_t r = 0; r < MODEL_LAYER_ROLE_COUNT; r++) {
        if (w->v[r].p) {
            timed_release(f, &w->v[r], true);
            memset(&w->v[r], 0, sizeof w->v[r]);
        }
    }
    w->held = false;
}

int globals_hold(struct infer *f, struct err *e)
{
    if (f->globals_held) {
        return 0;
    }
    uint32_t ids[MODEL_ROLE_COUNT], slot[MODEL_ROLE_COUNT];
    size_t n = global_ids(f, ids, slot);
    int r = hold(f, ids, slot, n, f->global, e);
    f->globals_held = !r;
    return r;
}

void globals_drop(struct infer *f)
{
    if (!f->globals_held || f->globals_resident) {
        return;
    }
    for (size_t r = 0; r < sizeof f->global / sizeof f->global[0]; r++) {
        if (f->global[r].p) {
            timed_release(f, &f->global[r], true);
            memset(&f->global[r], 0, sizeof f->global[r]);
        }
    }
    f->globals_held = false;
}

void layer_hint(struct infer *f, uint32_t l)
{
    uint32_t ids[MODEL_ROLE_COUNT], slot[MODEL_ROLE_COUNT];
    if (l < f->c->n_layers && !f->layers[l].held) {
        store_hint(f->st, ids, layer_ids(f, l, ids, slot));
    } else if (l == f->c->n_layers && !f->globals_held) {
        store_hint(f->st, ids, global_ids(f, ids, slot));
    }
}

/* ---- what stays in memory ----
 *
 * A unit is the head with what belongs to it (0), or a layer (1 + l). What fits stays as it is.
 * Where not all does and the spine is packed on disk (node/store/forms.h), memory holds one and a
 * half times as much of it packed: then as much as possible is kept so, since reading is what costs
 * most, and what is left over of the budget holds units as they are. A kept unit comes and goes as
 * a streamed one does, but is unpacked from memory into the store's slots, the next one while this
 * one computes. The two layers that are in movement are not in the budget, in either case. */

static size_t unit_ids(const struct infer *f, uint32_t u, uint32_t *ids, uint32_t *slot)
{
    return u ? layer_ids(f, u - 1, ids, slot) : global_ids(f, ids, slot);
}

/* As it is, and as it lies on disk. */
static void unit_bytes(const struct infer *f, uint32_t u, uint64_t *plain, uint64_t *packed)
{
    uint32_t ids[MODEL_ROLE_COUNT], slot[MODEL_ROLE_COUNT];
    size_t n = unit_ids(f, u, ids, slot);
    *plain = *packed = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t small = store_packed(f->st, ids[i]), size = model_object(f->m, ids[i])->size;
        *plain += size;
        *packed += small ? small : size;
    }
}

static int told(struct infer *f, uint32_t u, struct err *e)
{
    struct infer_progress p = {u ? u - 1 : 0, f->c->n_layers, 0, 0};
    return u && f->progress && f->progress(f->progress_ctx, &p)
               ? err_set(e, ERR_CANCELLED, "cancelled while the spine was loaded")
               : 0;
}

static int make_resident(struct infer *f, uint32_t u, struct err *e)
{
    if (!u) {
        f->globals_resident = true;
        return globals_hold(f, e);
    }
    f->layers[u - 1].resident = true;
    layer_hint(f, u); /* so that the origin sees more than one layer at a time */
    int r = layer_hold(f, u - 1, e);
    return r ? r : told(f, u, e);
}

/* The packed files into memory; what of the unit is not packed (norms, biases) is pinned. */
static int keep_unit(struct infer *f, uint32_t u, struct err *e)
{
    uint32_t ids[MODEL_ROLE_COUNT], slot[MODEL_ROLE_COUNT], packed[MODEL_ROLE_COUNT];
    size_t n = unit_ids(f, u, ids, slot), k = 0, rest = 0;
    for (size_t i = 0; i < n; i++) {
        if (store_packed(f->st, ids[i])) {
            packed[k++] = ids[i];
        } else {
            ids[rest] = ids[i];
            slot[rest] = (uint32_t)(f->n_pins + rest);
            rest++;
        }
    }
    int r = store_keep_packed(f->st, packed, k, e);
    r = r || !rest ? r : hold(f, ids, slot, rest, f->pins, e);
    f->n_pins += r ? 0 : rest;
    return r ? r : told(f, u, e);
}

/* The units that fit into `room` as they are, while the others are there packed. */
static void choose_plain(const struct infer *f, bool *as_is, uint32_t units, uint64_t room,
                         uint64_t packed)
{
    uint64_t left = room > packed ? room - packed : 0, plain, small;
    for (uint32_t u = 0; u < units && room >= packed; u++) {
        unit_bytes(f, u, &plain, &small);
        as_is[u] = plain - small <= left;
        left -= as_is[u] ? plain - small : 0;
    }
}

static int spread(struct infer *f, uint64_t budget, struct err *e)
{
    uint32_t units = f->c->n_layers + 1, u = 0;
    uint64_t plain, small, all = 0, packed = 0;
    for (uint32_t i = 0; i < units; i++) {
        unit_bytes(f, i, &plain, &small);
        all += plain;
        packed += small;
    }
    bool keeps = all > budget && packed < all;
    bool *as_is = malloc(units * sizeof *as_is);
    if (!as_is) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    memset(as_is, !keeps, units * sizeof *as_is);
    if (keeps) {
        choose_plain(f, as_is, units, budget, packed);
    }
    int r = 0;
    for (; u < units && !r; u++) {
        unit_bytes(f, u, &plain, &small);
        uint64_t takes = as_is[u] ? plain : small;
        if (takes > budget) {
            /* without the head, there may be room for layers */
            if (u == 0) {
                f->spine.streamed += plain;
                f->spine.disk += small;
                continue;
            }
            break;
        }
        r = as_is[u] ? make_resident(f, u, e) : keep_unit(f, u, e);
        if (r == ERR_NOMEM && !as_is[u]) {
            r = 0;
            break;
        }
        budget -= takes;
        f->spine.resident += as_is[u] ? plain : 0;
        f->spine.kept += as_is[u] ? 0 : small;
        f->spine.kept_from += as_is[u] ? 0 : plain;
    }
    for (; u < units; u++) {
        unit_bytes(f, u, &plain, &small);
        f->spine.streamed += plain;
        f->spine.disk += small;
    }
    free(as_is);
    return r;
}

void infer_get_spine(const struct infer *f, struct infer_spine *out)
{
    *out = f->spine;
}

int weights_open(struct infer *f, uint64_t budget, struct err *e)
{
    f->layers = calloc(f->c->n_layers, sizeof *f->layers);
    f->pins = calloc((size_t)(f->c->n_layers + 1) * MODEL_ROLE_COUNT, sizeof *f->pins);
    if (!f->layers || !f->pins) {
        return err_set(e, ERR_NOMEM, "out of memory for %u layers", f->c->n_layers);
    }
    return spread(f, budget, e);
}

/* All views of a unit are given back, so that bytes that others hold too can leave. */
static void let_go(struct infer *f, struct store_view *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (v[i].p) {
            timed_release(f, &v[i], true);
            memset(&v[i], 0, sizeof v[i]);
        }
    }
}

static bool any_stale(const struct infer *f, const struct store_view *v, size_t n)
{
    bool stale = false;
    for (size_t i = 0; i < n && !stale; i++) {
        stale = v[i].p && store_stale(f->st, &v[i]);
    }
    return stale;
}

int weights_renew(struct infer *f, struct err *e)
{
    uint64_t now = store_backs(f->st);
    size_t globals = sizeof f->global / sizeof f->global[0];
    int r = 0;
    if (now == f->backs) {
        return 0;
    }
    mark_close(f); /* copies of small weights; the next pass makes them again */
    /* first all go, since two views of an object keep each other's bytes */
    for (size_t i = 0; i < f->n_pins; i++) {
        if (any_stale(f, &f->pins[i], 1)) {
            let_go(f, &f->pins[i], 1); /* that it stays in memory is not worth a failure */
        }
    }
    for (uint32_t l = 0; l < f->c->n_layers; l++) {
        if (any_stale(f, f->layers[l].v, MODEL_LAYER_ROLE_COUNT)) {
            let_go(f, f->layers[l].v, MODEL_LAYER_ROLE_COUNT);
            f->layers[l].held = false;
        }
    }
    if (any_stale(f, f->global, globals)) {
        let_go(f, f->global, globals);
        f->globals_held = false;
    }
    for (uint32_t l = 0; l < f->c->n_layers && !r; l++) {
        r = f->layers[l].resident ? layer_hold(f, l, e) : 0;
    }
    r = r || !f->globals_resident ? r : globals_hold(f, e);
    f->backs = r ? f->backs : now;
    return r;
}

void weights_close(struct infer *f)
{
    for (uint32_t l = 0; f->layers && l < f->c->n_layers; l++) {
        f->layers[l].resident = false;
        layer_drop(f, l);
    }
    f->globals_resident = false;
    globals_drop(f);
    for (size_t i = 0; i < f->n_pins; i++) {
        timed_release(f, &f->pins[i], true);
    }
    f->n_pins = 0;
    free(f->pins);
    f->pins = NULL;
    free(f->layers);
    f->layers = NULL;
}

static const struct store_view *view(const struct infer *f, uint32_t l, enum model_role r)
{
    return (uint32_t)r < MODEL_GLOBAL_FIRST ? &f->layers[l].v[r]
                                            : &f->global[(uint32_t)r - MODEL_GLOBAL_FIRST];
}

static enum kern_type type_of(const struct model_object *o)
{
    return o->dtype == MODEL_F32 ? KERN_F32 : KERN_BF16;
}

struct kern_mat weight_mat(const struct infer *f, uint32_t l, enum model_role r)
{
    const struct store_view *v = view(f, l, r);
    const struct model_object *o = model_object(f->m, v->id);
    struct kern_mat w = {.type = type_of(o), .rows = o->shape[0], .cols = o->shape[1]};
    w.data = kern_at(v->mem_handle, 0);
    return w;
}

struct kern_vec weight_vec(const struct infer *f, uint32_t l, enum model_role r)
{
    const struct store_view *v = view(f, l, r);
    struct kern_vec w = {type_of(model_object(f->m, v->id)), kern_at(v->mem_handle, 0)};
    return w;
}
