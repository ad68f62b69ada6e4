/* SPDX-License-Identifier: MIT
 * forward.c: the layer loop (architecture note, section 2.1) over steps of at most max_rows rows.
 */
#include "node/infer/internal.h"

#include <stdlib.h>
#include <string.h>

/* h = mix of the bank and the running sum (or the running sum itself while the bank is empty). */
static void mix(struct infer *f, struct kern_vec norm, struct kern_vec proj, uint32_t nb,
                const struct step *s)
{
    uint32_t H = f->c->hidden;
    struct kern_cmd *k = cmd_add(&f->cmds, KERN_MULVEC);
    k->u.mulvec.a = norm;
    k->u.mulvec.b = proj;
    k->u.mulvec.y = kern_at(f->s.site, 0);
    k->u.mulvec.n = H;
    k = cmd_add(&f->cmds, KERN_MIX);
    k->u.mix.bank = kern_at(f->s.bank, 0);
    k->u.mix.bank_stride = (size_t)f->max_rows * H;
    k->u.mix.p = kern_at(f->s.p, 0);
    k->u.mix.s = kern_at(f->s.site, 0);
    k->u.mix.y = kern_at(f->s.h, 0);
    k->u.mix.nb = nb;
    k->u.mix.n = H;
    k->u.mix.T = s->T;
    k->u.mix.eps = f->c->rms_eps;
}

/* Put p into bank row nb: a widening copy of floats that z() leaves alone. */
static void bank(struct infer *f, uint32_t nb, const struct step *s)
{
    struct kern_cmd *k = cmd_add(&f->cmds, KERN_WIDEN);
    k->u.widen.src.type = KERN_F32;
    k->u.widen.src.data = kern_at(f->s.p, 0);
    k->u.widen.y = kern_at(f->s.bank, (size_t)nb * f->max_rows * f->c->hidden * sizeof(float));
    k->u.widen.n = s->T * f->c->hidden;
}

static void check(struct infer *f, struct kern_ref x, size_t n, uint32_t tag)
{
    struct kern_cmd *k = cmd_add(&f->cmds, KERN_CHECK);
    k->u.check.x = x;
    k->u.check.n = n;
    k->u.check.flag = kern_at(f->s.flag, 0);
    k->u.check.tag = tag;
}

/* The flag holds 1 + the layer whose sum was not finite, or 1 + n_layers for the head. */
static int verdict(struct infer *f, struct err *e)
{
    uint32_t tag = *(const uint32_t *)f->s.flag->host;
    if (!tag) {
        return 0;
    }
    if (tag > f->c->n_layers) {
        return err_set(e, ERR_NUMERIC,
                       "the output head produced a NaN or an infinity; no token was chosen. The "
                       "weights are not a usable model, or this machine's memory is faulty");
    }
    return err_set(
        e, ERR_NUMERIC,
        "layer %u produced a NaN or an infinity; no token was chosen. The weights are not "
        "a usable model, or this machine's memory is faulty",
        tag - 1);
}

static int embed(struct infer *f, const struct step *s, struct err *e)
{
    const struct model_config *c = f->c;
    uint32_t id = model_spine_id(f->m, MODEL_NONE, MODEL_EMBED);
    enum kern_type type = model_object(f->m, id)->dtype == MODEL_F32 ? KERN_F32 : KERN_BF16;
    size_t row = (size_t)c->hidden * (type == KERN_F32 ? 4 : 2);
    for (uint32_t t = 0; t < s->T; t++) {
        int r = store_read(f->st, id, s->rows[t].token * (uint64_t)row,
                           (char *)f->s.emb->host + t * row, row, e);
        if (r) {
            return r;
        }
    }
    struct kern_cmd *k = cmd_add(&f->cmds, KERN_WIDEN);
    k->u.widen.src.type = type;
    k->u.widen.src.data = kern_at(f->s.emb, 0);
    k->u.widen.y = kern_at(f->s.p, 0);
    k->u.widen.n = s->T * c->hidden;
    return 0;
}

static int layer(struct infer *f, uint32_t l, uint32_t *nb, const struct step *s, struct err *e)
{
    const struct model_config *c = f->c;
    struct kern_ref p = kern_at(f->s.p, 0), h = kern_at(f->s.h, 0), a = kern_at(f->s.a, 0);
    struct kern_ref xn = kern_at(f->s.xn, 0);
    uint32_t H = c->hidden, n = s->T * H;
    struct infer_progress pr = {l, c->n_layers, 0, 0};
    if (f->progress && f->progress(f->progress_ctx, &pr)) {
        return err_set(e, ERR_CANCELLED, "cancelled before layer %u", l);
    }
    int r = layer_hold(f, l, e);
    if (r) {
        return r;
    }
    layer_hint(f, l + 1);
    if (*nb) {
        mix(f, weight_vec(f, l, MODEL_ATTN_RES_NORM), weight_vec(f, l, MODEL_ATTN_RES_PROJ), *nb,
            s);
    }
    cmd_rmsnorm(f, *nb ? h : p, H, weight_vec(f, l, MODEL_IN_NORM), xn, H, s->T, c->rms_eps);
    bool banked = l % c->attn_res_block == 0;
    if (banked) {
        bank(f, (*nb)++, s);
    }
    attention(f, l, s);
    if (banked) { /* the running sum starts anew from the attention output alone */
        struct kern_buf *t = f->s.p;
        f->s.p = f->s.a;
        f->s.a = t;
        p = kern_at(f->s.p, 0);
        a = kern_at(f->s.a, 0);
    } else {
        cmd_add_rows(f, p, a, p, n);
    }
    mix(f, weight_vec(f, l, MODEL_MLP_RES_NORM), weight_vec(f, l, MODEL_MLP_RES_PROJ), *nb, s);
    cmd_rmsnorm(f, h, H, weight_vec(f, l, MODEL_POST_NORM), xn, H, s->T, c->rms_eps);
    r = ffn(f, l, s, e);
    if (!r) {
        cmd_add_rows(f, p, a, p, n);
        check(f, p, n, l + 1);
        r = cmds_run(f, e); /* before the layer's weights go */
    }
    f->cmds.n = 0;
    layer_drop(f, l);
    return r ? r : verdict(f, e);
}

/* Logits of the wanted rows, at most logit_rows at a time. */
static int head(struct infer *f, uint32_t nb, const struct step *s, float *logits, struct err *e)
{
    const struct model_config *c = f->c;
    uint32_t *map = f->s.maps->host, wanted = 0;
    for (uint32_t t = 0; t < s->T; t++) {
        if (s->rows[t].want_logits) {
            map[wanted++] = t;
        }
    }
    if (!wanted) {
        return 0;
    }
    int r = globals_hold(f, e);
    if (r) {
        return r;
    }
    layer_hint(f, 0);
    mix(f, weight_vec(f, 0, MODEL_OUT_RES_NORM), weight_vec(f, 0, MODEL_OUT_RES_PROJ), nb, s);
    cmd_rmsnorm(f, kern_at(f->s.h, 0), c->hidden, weight_vec(f, 0, MODEL_FINAL_NORM),
                kern_at(f->s.xn, 0), c->hidden, s->T, c->rms_eps);
    struct kern_mat w = weight_mat(f, 0, MODEL_LM_HEAD);
    for (uint32_t i = 0; i < wanted && !r; i += f->logit_rows) {
        uint32_t n = wanted - i < f->logit_rows ? wanted - i : f->logit_rows;
        cmd_matmul(f, w, kern_at(f->s.xn, 0), kern_at(f->s.logits, 0), n)->u.matmul.xmap =
            kern_at(f->s.maps, (size_t)i * 4);
        check(f, kern_at(f->s.logits, 0), (size_t)n * c->vocab, c->n_layers + 1);
        r = cmds_run(f, e);
        if (!r) {
            memcpy(logits + (size_t)i * c->vocab, f->s.logits->host,
                   (size_t)n * c->vocab * sizeof(float));
        }
    }
    globals_drop(f);
    return r ? r : verdict(f, e);
}

static int step(struct infer *f, const struct step *s, float *logits, struct err *e)
{
    *(uint32_t *)f->s.flag->host = 0;
    int r = embed(f, s, e);
    uint32_t nb = 0;
    for (uint32_t l = 0; l < f->c->n_layers && !r; l++) {
        r = layer(f, l, &nb, s, e);
    }
    if (!r) {
        r = head(f, nb, s, logits, e);
    }
    f->cmds.n = 0;
    return r;
}

static int check_rows(const struct infer *f, const struct infer_row *rows, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct infer_state *st = rows[i].state;
        if (!st || st->f != f) {
            return err_set(e, ERR_ARG, "row %zu has no state of this model", i);
        }
        if (st->broken) {
            return err_set(e, ERR_ARG,
                           "the state of row %zu was left half done by an earlier error", i);
        }
        if (rows[i].token >= f->c->vocab) {
            return err_set(e, ERR_ARG, "token id %u is outside the vocabulary of %u", rows[i].token,
                           f->c->vocab);
        }
        bool again = false; /* the state came before, with another one in between */
        for (size_t j = 0; j + 1 < i && rows[i - 1].state != st && !again; j++) {
            again = rows[j].state == st;
        }
        if (again) {
            return err_set(e, ERR_ARG, "the rows of one state are not neighbours (row %zu)", i);
        }
    }
    for (size_t i = 0, first = 0; i < n; i++) {
        first = i && rows[i].state == rows[i - 1].state ? first : i;
        uint64_t pos = (uint64_t)rows[i].state->pos + (i - first);
        if (pos >= f->c->max_positions) {
            return err_set(e, ERR_LIMIT, "position %llu is beyond the model's %u positions",
                           (unsigned long long)pos, f->c->max_positions);
        }
    }
    return 0;
}

int infer_forward(struct infer *f, const struct infer_row *rows, size_t n, float *logits,
                  struct err *e)
{
    int r = check_rows(f, rows, n, e);
    if (r) {
        return r;
    }
    struct run *runs = calloc(f->max_rows, sizeof *runs);
    if (!runs) {
        return err_set(e, ERR_NOMEM, "out of memory for %u rows", f->max_rows);
    }
    for (size_t at = 0; at < n && !r;) {
        struct step s = {rows + at, 0, runs, 0};
        while (at + s.T < n && s.T < f->max_rows) {
            struct infer_state *st = rows[at + s.T].state;
            if (!s.n_runs || runs[s.n_runs - 1].st != st) {
                runs[s.n_runs++] = (struct run){st, s.T, 0};
            }
            runs[s.n_runs - 1].n++;
            s.T++;
        }
        for (uint32_t i = 0; i < s.n_runs && !r; i++) {
            r = state_reserve(runs[i].st, runs[i].st->pos + runs[i].n, e);
        }
        if (!r) {
            r = step(f, &s, logits, e);
        }
        for (uint32_t i = 0; i < s.n_runs; i++) {
            runs[i].st->broken = r != 0;
            runs[i].st->pos += r ? 0 : runs[i].n;
        }
        for (uint32_t t = 0; t < s.T; t++) {
            logits += s.rows[t].want_logits ? f->c->vocab : 0;
        }
        at += s.T;
    }
    free(runs);
    if (r) { /* also the states whose turn had not come: the caller cannot tell which */
        for (size_t i = 0; i < n; i++) {
            rows[i].state->broken = true;
        }
    }
    return r;
}
