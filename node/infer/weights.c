/* SPDX-License-Identifier: MIT
 * weights.c: which spine tensors are in RAM when. Layers that fit the budget stay; the others are
 * brought in for their turn and dropped after it, the next one being hinted to the store while this
 * one computes. The embedding is never brought in whole: its rows are read one by one. */
#include "node/infer/internal.h"

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
        /* The first layer has an attention mix on disk that nothing uses: its bank is empty. */
        bool unused = l == 0 && (r == MODEL_ATTN_RES_NORM || r == MODEL_ATTN_RES_PROJ);
        if (id != MODEL_NONE && !unused) {
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

static uint64_t bytes_of(const struct infer *f, const uint32_t *ids, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += model_object(f->m, ids[i])->size;
    }
    return sum;
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

int weights_open(struct infer *f, uint64_t budget, struct err *e)
{
    uint32_t ids[MODEL_ROLE_COUNT], slot[MODEL_ROLE_COUNT];
    f->layers = calloc(f->c->n_layers, sizeof *f->layers);
    if (!f->layers) {
        return err_set(e, ERR_NOMEM, "out of memory for %u layers", f->c->n_layers);
    }
    /* The head first: it is the largest single tensor, then the layers in the order of their turn.
     */
    uint64_t size = bytes_of(f, ids, global_ids(f, ids, slot));
    if (size <= budget) {
        f->globals_resident = true;
        budget -= size;
        int r = globals_hold(f, e);
        if (r) {
            return r;
        }
    }
    for (uint32_t l = 0; l < f->c->n_layers; l++) {
        size = bytes_of(f, ids, layer_ids(f, l, ids, slot));
        if (size > budget) {
            break;
        }
        budget -= size;
        f->layers[l].resident = true;
        layer_hint(f, l + 1); /* so that the origin sees more than one layer at a time */
        int r = layer_hold(f, l, e);
        if (r) {
            return r;
        }
        struct infer_progress p = {l, f->c->n_layers, 0, 0};
        if (f->progress && f->progress(f->progress_ctx, &p)) {
            return err_set(e, ERR_CANCELLED, "cancelled while the spine was loaded");
        }
    }
    return 0;
}

void weights_close(struct infer *f)
{
    for (uint32_t l = 0; f->layers && l < f->c->n_layers; l++) {
        f->layers[l].resident = false;
        layer_drop(f, l);
    }
    f->globals_resident = false;
    globals_drop(f);
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
