/* SPDX-License-Identifier: MIT
 * mark.c: rows that may be taken back (infer.h). A KDA state is a fold over positions that cannot
 * be undone, and one of K3's takes 434 MB, too much for a copy per row. So one copy is made at the
 * mark, and each row's contribution is recorded as it is computed (14 MB a row in K3: the three
 * streams before their convolution, and the gates). To go back, the copy takes the state's place
 * and the rows that stay are folded into it by the very commands that folded them before. */
#include "node/infer/internal.h"

#include <stdlib.h>
#include <string.h>

static uint32_t width(const struct infer *f)
{
    return f->c->kda_heads * f->c->kda_dim;
}

/* Floats that a row gives in one KDA layer. */
static size_t row_floats(const struct infer *f)
{
    return (size_t)4 * width(f) + f->c->kda_heads;
}

uint64_t infer_mark_bytes(const struct infer *f, uint32_t rows)
{
    uint64_t layer = state_kda_floats(f) + state_conv_floats(f) + rows * (uint64_t)row_floats(f);
    return state_count(f, MODEL_KDA) * layer * sizeof(float);
}

/* ---- room ---- */

void infer_state_unmark(struct infer_state *s)
{
    struct kern_backend *be = s->f->be;
    struct mark *k = &s->mark;
    be->free(be, k->kda);
    be->free(be, k->conv);
    be->free(be, k->raw);
    be->free(be, k->f);
    be->free(be, k->b);
    memset(k, 0, sizeof *k);
}

static bool alloc(struct infer *f, struct kern_buf **b, size_t floats)
{
    *b = floats ? infer_buf(f, floats * sizeof(float)) : NULL;
    return *b || !floats;
}

static int reserve(struct infer_state *s, uint32_t rows, struct err *e)
{
    struct infer *f = s->f;
    struct mark *k = &s->mark;
    if (rows <= k->cap) {
        return 0;
    }
    size_t layers = state_count(f, MODEL_KDA), P = width(f);
    infer_state_unmark(s);
    if (!alloc(f, &k->kda, layers * state_kda_floats(f)) ||
        !alloc(f, &k->conv, layers * state_conv_floats(f)) ||
        !alloc(f, &k->raw, layers * 3 * rows * P) || !alloc(f, &k->f, layers * rows * P) ||
        !alloc(f, &k->b, layers * rows * f->c->kda_heads)) {
        infer_state_unmark(s);
        return err_set(e, ERR_NOMEM, "no memory for a draft of %u rows (%llu MB)", rows,
                       (unsigned long long)(infer_mark_bytes(f, rows) >> 20));
    }
    k->cap = rows;
    return 0;
}

int infer_state_mark(struct infer_state *s, uint32_t rows, struct err *e)
{
    struct mark *k = &s->mark;
    if (s->broken) {
        return err_set(e, ERR_ARG, "this state was left half done by an earlier error");
    }
    if (!rows) {
        return err_set(e, ERR_ARG, "a mark for no rows");
    }
    int r = reserve(s, rows, e);
    if (r) {
        return r;
    }
    if (s->kda) {
        memcpy(k->kda->host, s->kda->host, s->kda->size);
    }
    if (s->conv) {
        memcpy(k->conv->host, s->conv->host, s->conv->size);
    }
    k->on = true;
    k->pos = s->pos;
    k->rows = rows;
    return 0;
}

/* ---- recording ---- */

/* Where row `row` of KDA layer `slot` lies in one of the records, of `of` parts a layer. */
static struct kern_ref place(const struct mark *k, struct kern_buf *b, size_t slot, size_t of,
                             size_t part, size_t row, size_t n)
{
    return kern_at(b, ((slot * of + part) * k->cap + row) * n * sizeof(float));
}

/* A widening copy of floats that z() leaves alone, since each was stored through it. */
static void copy(struct infer *f, struct kern_ref from, struct kern_ref to, size_t n)
{
    struct kern_cmd *k = cmd_add(&f->cmds, KERN_WIDEN);
    k->u.widen.src.type = KERN_F32;
    k->u.widen.src.data = from;
    k->u.widen.y = to;
    k->u.widen.n = (uint32_t)n;
}

void mark_raw(struct infer *f, uint32_t l, const struct run *r, uint32_t stream)
{
    const struct mark *k = &r->st->mark;
    size_t P = width(f);
    if (k->on) {
        copy(f, kern_at(f->s.raw, r->first * P * sizeof(float)),
             place(k, k->raw, state_slot(f, l), 3, stream, r->st->pos - k->pos, P), r->n * P);
    }
}

void mark_gates(struct infer *f, uint32_t l, const struct run *r)
{
    const struct mark *k = &r->st->mark;
    size_t P = width(f), H = f->c->kda_heads, slot = state_slot(f, l);
    if (k->on) {
        uint32_t at = r->st->pos - k->pos;
        copy(f, kern_at(f->s.f, r->first * P * sizeof(float)), place(k, k->f, slot, 1, 0, at, P),
             r->n * P);
        copy(f, kern_at(f->s.b, r->first * H * sizeof(float)), place(k, k->b, slot, 1, 0, at, H),
             r->n * H);
    }
}

/* The copies' places in a layer's f->fold: three convolutions, A_log, dt_bias. */
static struct fold_weights kept_weights(const struct infer *f, struct kern_buf *b)
{
    struct fold_weights w;
    size_t at = 0, P = width(f);
    for (int i = 0; i < 3; i++) {
        w.conv[i] = kern_at(b, at);
        at += P * f->c->conv * sizeof(float);
    }
    w.dt_bias = kern_at(b, at);
    w.a_log = kern_at(b, at + P * sizeof(float));
    return w;
}

/* A layer that leaves memory after its turn leaves these behind: 640 KB each in K3, once. */
void mark_weights(struct infer *f, uint32_t l, const struct step *s)
{
    size_t P = width(f), H = f->c->kda_heads, slot = state_slot(f, l);
    bool any = false;
    for (uint32_t i = 0; i < s->n_runs; i++) {
        any = any || s->runs[i].st->mark.on;
    }
    if (!any || f->layers[l].resident) {
        return;
    }
    if (!f->fold) {
        f->fold = calloc(state_count(f, MODEL_KDA), sizeof(struct kern_buf *));
    }
    if (!f->fold || f->fold[slot] || !alloc(f, &f->fold[slot], P * (3 * f->c->conv + 1) + H)) {
        return; /* without them, going back holds the layer */
    }
    struct fold_weights from = fold_weights(f, l), to = kept_weights(f, f->fold[slot]);
    for (int i = 0; i < 3; i++) {
        copy(f, from.conv[i], to.conv[i], P * f->c->conv);
    }
    copy(f, from.dt_bias, to.dt_bias, P);
    copy(f, from.a_log, to.a_log, H);
}

void mark_close(struct infer *f)
{
    for (uint32_t i = 0; f->fold && i < state_count(f, MODEL_KDA); i++) {
        f->be->free(f->be, f->fold[i]);
    }
    free(f->fold);
    f->fold = NULL;
}

/* ---- going back ---- */

static void swap(struct kern_buf **a, struct kern_buf **b)
{
    struct kern_buf *t = *a;
    *a = *b;
    *b = t;
}

/* Fold the first n recorded rows into layer l. */
static int fold_layer(struct infer_state *s, uint32_t l, uint32_t n, struct err *e)
{
    struct infer *f = s->f;
    const struct mark *k = &s->mark;
    uint32_t slot = state_slot(f, l);
    size_t P = width(f), H = f->c->kda_heads;
    bool kept = f->fold && f->fold[slot];
    int r = kept ? 0 : layer_hold(f, l, e);
    if (r) {
        return r;
    }
    struct fold_weights w = kept ? kept_weights(f, f->fold[slot]) : fold_weights(f, l);
    struct kern_buf *out[3] = {f->s.q, f->s.k, f->s.v};
    for (uint32_t at = 0; at < n; at += f->max_rows) {
        uint32_t m = n - at < f->max_rows ? n - at : f->max_rows;
        for (uint32_t i = 0; i < 3; i++) {
            fold_conv(f, l, s, i, w.conv[i], place(k, k->raw, slot, 3, i, at, P),
                      kern_at(out[i], 0), m);
        }
        struct fold_rows x = {.q = kern_at(f->s.q, 0),
                              .k = kern_at(f->s.k, 0),
                              .v = kern_at(f->s.v, 0),
                              .f = place(k, k->f, slot, 1, 0, at, P),
                              .b = place(k, k->b, slot, 1, 0, at, H),
                              .o = kern_at(f->s.o, 0)};
        fold_kda(f, l, s, &w, &x, m);
    }
    r = cmds_run(f, e);
    if (!kept) {
        layer_drop(f, l);
    }
    return r;
}

int infer_state_rewind(struct infer_state *s, uint32_t keep, struct err *e)
{
    struct infer *f = s->f;
    struct mark *k = &s->mark;
    uint32_t came = s->pos - k->pos;
    if (!k->on) {
        return err_set(e, ERR_ARG, "this state has no mark to go back to");
    }
    if (keep > came || (s->broken && keep)) {
        return err_set(e, ERR_ARG, "%u rows cannot be kept: since the mark %s%u came", keep,
                       s->broken ? "came an error, and " : "", came);
    }
    bool all = keep == came && !s->broken;
    k->on = false;
    if (all) {
        return 0;
    }
    swap(&s->kda, &k->kda);
    swap(&s->conv, &k->conv);
    s->pos = k->pos;
    s->broken = s->dropped = false;
    int r = 0;
    for (uint32_t l = 0; l < f->c->n_layers && keep && !r; l++) {
        r = f->c->attn[l] == MODEL_KDA ? fold_layer(s, l, keep, e) : 0;
    }
    if (r) {
        cmds_settle(f);
    }
    s->pos += keep;
    s->broken = r != 0;
    return r;
}
