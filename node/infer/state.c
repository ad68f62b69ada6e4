/* SPDX-License-Identifier: MIT
 * state.c: what a sequence keeps between tokens (architecture note, 2.11): per KDA layer the matrix
 * S and the last conv-1 raw inputs of three streams, per MLA layer one latent row per position. */
#include "node/infer/internal.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROWS 64

uint32_t state_slot(const struct infer *f, uint32_t l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l; i++) {
        n += f->c->attn[i] == f->c->attn[l];
    }
    return n;
}

static uint32_t count(const struct model_config *c, enum model_attn kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        n += c->attn[i] == kind;
    }
    return n;
}

static size_t kda_floats(const struct model_config *c)
{
    return (size_t)c->kda_heads * c->kda_dim * c->kda_dim;
}

static size_t conv_floats(const struct model_config *c)
{
    return (size_t)3 * (c->conv - 1) * c->kda_heads * c->kda_dim;
}

uint64_t infer_shape_bytes(const struct model_config *c, uint32_t pos)
{
    uint64_t kda = (uint64_t)count(c, MODEL_KDA) * (kda_floats(c) + conv_floats(c));
    uint64_t mla = (uint64_t)count(c, MODEL_MLA) * (c->kv_rank + c->rope) * pos;
    return (kda + mla) * sizeof(float);
}

uint64_t infer_state_bytes(const struct infer *f, uint32_t pos)
{
    return infer_shape_bytes(f->c, pos);
}

uint32_t state_count(const struct infer *f, enum model_attn kind)
{
    return count(f->c, kind);
}

size_t state_kda_floats(const struct infer *f)
{
    return kda_floats(f->c);
}

size_t state_conv_floats(const struct infer *f)
{
    return conv_floats(f->c);
}

uint32_t state_latent_width(const struct infer *f)
{
    return f->c->kv_rank + f->c->rope;
}

int infer_state_new(struct infer *f, struct infer_state **out, struct err *e)
{
    size_t kda = state_count(f, MODEL_KDA), mla = state_count(f, MODEL_MLA);
    struct infer_state *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) {
        return err_set(e, ERR_NOMEM, "out of memory for a sequence");
    }
    s->f = f;
    f->n_states++;
    store_since(f->st, &s->since);
    size_t nk = kda * state_kda_floats(f) * sizeof(float);
    size_t nc = kda * state_conv_floats(f) * sizeof(float);
    bool ok = true;
    if (nk) {
        ok = (s->kda = infer_buf(f, nk)) != NULL;
    }
    if (ok && nc) {
        ok = (s->conv = infer_buf(f, nc)) != NULL;
    }
    if (ok && mla) {
        ok = (s->latent = calloc(mla, sizeof *s->latent)) != NULL;
    }
    if (!ok) {
        infer_state_free(s);
        return err_set(e, ERR_NOMEM, "no memory for a sequence's state of %zu MB", (nk + nc) >> 20);
    }
    *out = s;
    return 0;
}

void infer_state_free(struct infer_state *s)
{
    if (!s) {
        return;
    }
    struct infer *f = s->f;
    infer_state_unmark(s);
    f->be->free(f->be, s->kda);
    f->be->free(f->be, s->conv);
    for (uint32_t i = 0; s->latent && i < state_count(f, MODEL_MLA); i++) {
        f->be->free(f->be, s->latent[i]);
    }
    free(s->latent);
    f->n_states--;
    free(s);
}

uint32_t infer_state_pos(const struct infer_state *s)
{
    return s->pos;
}

int state_reserve(struct infer_state *s, uint32_t rows, struct err *e)
{
    struct infer *f = s->f;
    uint32_t n = state_count(f, MODEL_MLA);
    if (rows <= s->cap || !n) {
        return 0;
    }
    /* Half as much again: a long sequence copies its latents a few times in its life, and holds at
     * most half of them as reserve. */
    uint64_t cap = (uint64_t)s->cap + s->cap / 2;
    cap = cap < FIRST_ROWS ? FIRST_ROWS : cap;
    cap = cap < rows ? rows : cap;
    cap = cap > f->c->max_positions && rows <= f->c->max_positions ? f->c->max_positions : cap;
    size_t row = (size_t)state_latent_width(f) * sizeof(float);
    for (uint32_t i = 0; i < n; i++) {
        if (s->latent[i] && s->latent[i]->size >= cap * row) {
            continue; /* grown by an earlier call that ran out of memory half way */
        }
        struct kern_buf *b = infer_buf(f, cap * row);
        if (!b) {
            return err_set(e, ERR_NOMEM, "no memory for the latent cache of %u positions", rows);
        }
        if (s->latent[i]) {
            memcpy(b->host, s->latent[i]->host, s->pos * row);
            f->be->free(f->be, s->latent[i]);
        }
        s->latent[i] = b;
    }
    s->cap = (uint32_t)cap;
    return 0;
}

int infer_state_copy(const struct infer_state *s, struct infer_state **out, struct err *e)
{
    struct infer *f = s->f;
    *out = NULL;
    if (s->broken) {
        return err_set(e, ERR_ARG, "this state was left half done by an earlier error");
    }
    struct infer_state *d;
    int r = infer_state_new(f, &d, e);
    if (r) {
        return r;
    }
    r = state_reserve(d, s->pos, e);
    if (r) {
        infer_state_free(d);
        return r;
    }
    if (s->kda) {
        memcpy(d->kda->host, s->kda->host, s->kda->size);
    }
    if (s->conv) {
        memcpy(d->conv->host, s->conv->host, s->conv->size);
    }
    size_t n = (size_t)s->pos * state_latent_width(f) * sizeof(float);
    for (uint32_t i = 0; n && i < state_count(f, MODEL_MLA); i++) {
        memcpy(d->latent[i]->host, s->latent[i]->host, n);
    }
    d->pos = s->pos;
    d->since = s->since;
    *out = d;
    return 0;
}

struct store_since infer_state_since(const struct infer_state *s)
{
    return s->since;
}

void infer_state_set_since(struct infer_state *s, struct store_since since)
{
    s->since = since;
}

int infer_state_spoilt(const struct infer_state *s, struct err *e)
{
    return store_spoilt(s->f->st, &s->since, e);
}
