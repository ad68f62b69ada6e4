/* SPDX-License-Identifier: MIT
 * forward.c: the layer loop (architecture note, section 2.1) over steps of at most max_rows rows.
 */
#include "node/infer/internal.h"

#include <stdlib.h>
#include <string.h>

void mix_rows(struct infer *f, struct kern_vec norm, struct kern_vec proj, uint32_t nb, uint32_t T,
              struct kern_buf *site, struct kern_buf *h)
{
    uint32_t H = f->c->hidden;
    struct kern_cmd *k = cmd_add(&f->cmds, KERN_MULVEC);
    k->u.mulvec.a = norm;
    k->u.mulvec.b = proj;
    k->u.mulvec.y = kern_at(site, 0);
    k->u.mulvec.n = H;
    k = cmd_add(&f->cmds, KERN_MIX);
    k->u.mix.bank = kern_at(f->s.bank, 0);
    k->u.mix.bank_stride = (size_t)f->max_rows * H;
    k->u.mix.p = kern_at(f->s.p, 0);
    k->u.mix.s = kern_at(site, 0);
    k->u.mix.y = kern_at(h, 0);
    k->u.mix.nb = nb;
    k->u.mix.n = H;
    k->u.mix.T = T;
    k->u.mix.eps = f->c->rms_eps;
}

/* h = mix of the bank and the running sum (or the running sum itself while the bank is empty). */
static void mix(struct infer *f, struct kern_vec norm, struct kern_vec proj, uint32_t nb,
                const struct step *s)
{
    mix_rows(f, norm, proj, nb, s->T, f->s.site, f->s.h);
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
int verdict(const struct infer *f, struct err *e)
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
        int r = timed_read(f, id, s->rows[t].token * (uint64_t)row,
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

/* ---- rows that leave ---- */

void infer_drop(struct infer_state *s)
{
    s->dropped = true;
    s->f->dropping = true;
}

bool infer_dropped(const struct infer_state *s)
{
    return s->dropped;
}

/* Take the rows of dropped states out of what a step carries from layer to layer: the running sums
 * and the bank. Every row is computed by itself, so the others do not notice. */
static int leave(struct infer *f, uint32_t nb, struct step *s, struct err *e)
{
    size_t H = f->c->hidden, plane = (size_t)f->max_rows * H;
    float *p = f->s.p->host, *bank_rows = f->s.bank->host;
    uint32_t kept = 0, runs = 0;
    int rc = cmds_run(f, e); /* the embedding, or the last layer */
    if (rc) {
        return rc;
    }
    f->dropping = false;
    for (uint32_t i = 0; i < s->n_runs; i++) {
        struct run r = s->runs[i];
        if (r.st->dropped) {
            r.st->broken = true;
            continue;
        }
        if (r.first != kept) {
            memmove(p + kept * H, p + r.first * H, r.n * H * sizeof *p);
            for (uint32_t b = 0; b < nb; b++) {
                memmove(bank_rows + b * plane + kept * H, bank_rows + b * plane + r.first * H,
                        r.n * H * sizeof *p);
            }
            memmove(s->rows + kept, s->rows + r.first, r.n * sizeof *s->rows);
            memmove(s->slot + kept, s->slot + r.first, r.n * sizeof *s->slot);
        }
        r.first = kept;
        kept += r.n;
        s->runs[runs++] = r;
    }
    s->n_runs = runs;
    s->T = kept;
    return kept ? 0 : err_set(e, ERR_CANCELLED, "cancelled");
}

static int layer(struct infer *f, uint32_t l, uint32_t *nb, struct step *s, struct err *e)
{
    const struct model_config *c = f->c;
    struct kern_ref p = kern_at(f->s.p, 0), h = kern_at(f->s.h, 0), a = kern_at(f->s.a, 0);
    struct kern_ref xn = kern_at(f->s.xn, 0);
    struct infer_progress pr = {l, c->n_layers, 0, 0};
    if (f->progress && f->progress(f->progress_ctx, &pr)) {
        return err_set(e, ERR_CANCELLED, "cancelled before layer %u", l);
    }
    int r = f->dropping ? leave(f, *nb, s, e) : 0;
    r = r ? r : layer_hold(f, l, e);
    if (r) {
        return r;
    }
    uint32_t H = c->hidden, n = s->T * H;
    /* behind the last layer comes the head, or, where nothing of this step is wanted, the next one
     */
    layer_hint(f, l + 1 == c->n_layers && !s->wanted ? 0 : l + 1);
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
    s->nb = *nb;
    r = ffn(f, l, s, e);
    if (!r) {
        cmd_add_rows(f, p, a, p, n);
        check(f, p, n, l + 1);
        /* The next layer is recorded while this one computes; but weights that go are waited for.
         */
        r = f->layers[l].resident ? cmds_submit(f, e) : cmds_run(f, e);
    }
    if (r) {
        cmds_settle(f);
    }
    layer_drop(f, l);
    return r || !cmds_done(f) ? r : verdict(f, e);
}

/* Logits of the wanted rows, at most logit_rows at a time. */
static int head(struct infer *f, uint32_t nb, const struct step *s, float *logits, struct err *e)
{
    const struct model_config *c = f->c;
    uint32_t *map = f->s.maps->host, wanted = 0; /* all layers are done */
    for (uint32_t t = 0; t < s->T; t++) {
        if (s->rows[t].want_logits) {
            s->slot[wanted] = s->slot[t];
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
        const float *y = f->s.logits->host;
        for (uint32_t k = 0; k < n && !r; k++) {
            memcpy(logits + (size_t)s->slot[i + k] * c->vocab, y + (size_t)k * c->vocab,
                   c->vocab * sizeof *logits);
        }
    }
    if (r) {
        cmds_settle(f);
    }
    globals_drop(f);
    return r ? r : verdict(f, e);
}

static int step(struct infer *f, struct step *s, float *logits, struct err *e)
{
    *(uint32_t *)f->s.flag->host = 0;
    int r = embed(f, s, e);
    uint32_t nb = 0;
    for (uint32_t l = 0; l < f->c->n_layers && !r; l++) {
        r = layer(f, l, &nb, s, e);
    }
    r = r ? r : cmds_run(f, e);
    r = r ? r : verdict(f, e);
    r = r ? r : head(f, nb, s, logits, e);
    if (r) {
        cmds_settle(f);
    }
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
        const struct mark *k = &rows[i].state->mark;
        if (k->on && pos - k->pos >= k->rows) {
            return err_set(e, ERR_ARG, "row %zu is one more than its state's mark was made for", i);
        }
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
    struct infer_row *own = calloc(f->max_rows, sizeof *own);
    uint32_t *slot = calloc(f->max_rows, sizeof *slot);
    if (!runs || !own || !slot) {
        r = err_set(e, ERR_NOMEM, "out of memory for %u rows", f->max_rows);
    }
    f->dropping = false;
    ahead_begin(f, n);
    r = r ? r : weights_renew(f, e);
    for (size_t i = 0; !r && i < n; i++) {
        rows[i].state->dropped = false;
    }
    for (size_t at = 0; at < n && !r;) {
        struct step s = {own, slot, 0, 0, runs, 0, 0};
        uint32_t wanted = 0, left = 0;
        while (at < n && s.T < f->max_rows) {
            struct infer_state *st = rows[at].state;
            if (!st->dropped) {
                if (!s.n_runs || runs[s.n_runs - 1].st != st) {
                    runs[s.n_runs++] = (struct run){st, s.T, 0};
                }
                runs[s.n_runs - 1].n++;
                slot[s.T] = wanted;
                own[s.T++] = rows[at];
            }
            wanted += rows[at++].want_logits;
        }
        left = s.T;
        s.wanted = wanted;
        for (uint32_t i = 0; i < s.n_runs && !r; i++) {
            r = state_reserve(runs[i].st, runs[i].st->pos + runs[i].n, e);
        }
        if (!r && left) {
            r = step(f, &s, logits, e);
            r = r && !s.n_runs ? 0 : r; /* all of them have left: the next step may have others */
        }
        for (uint32_t i = 0; i < s.n_runs; i++) { /* those that are left */
            runs[i].st->broken = r != 0;
            runs[i].st->pos += r ? 0 : runs[i].n;
        }
        if (wanted) { /* else it may be NULL */
            logits += (size_t)wanted * f->c->vocab;
        }
    }
    ahead_end(f, n);
    free(runs);
    free(own);
    free(slot);
    bool any = n == 0;
    for (size_t i = 0; i < n; i++) {
        /* on an error also the states whose turn had not come: the caller cannot tell which */
        rows[i].state->broken |= r != 0 || rows[i].state->dropped;
        any |= !rows[i].state->dropped;
    }
    return r || any ? r : err_set(e, ERR_CANCELLED, "cancelled");
}
