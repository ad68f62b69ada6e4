/* SPDX-License-Identifier: MIT
 * attention.c: the attention half of a layer, recorded as commands: KDA or gated latent MLA.
 * Formulas: the architecture note, sections 2.4 and 2.5; exact order: kernels/NUMERICS.md. */
#include "node/infer/internal.h"

static struct kern_ref rows(struct kern_buf *b, uint32_t first, size_t width)
{
    return kern_at(b, (size_t)first * width * sizeof(float));
}

struct fold_weights fold_weights(const struct infer *f, uint32_t l)
{
    struct fold_weights w = {.conv = {weight_vec(f, l, MODEL_KDA_QCONV).data,
                                      weight_vec(f, l, MODEL_KDA_KCONV).data,
                                      weight_vec(f, l, MODEL_KDA_VCONV).data},
                             .a_log = weight_vec(f, l, MODEL_KDA_ALOG).data,
                             .dt_bias = weight_vec(f, l, MODEL_KDA_DTBIAS).data};
    return w;
}

void fold_conv(struct infer *f, uint32_t l, const struct infer_state *st, uint32_t stream,
               struct kern_ref w, struct kern_ref x, struct kern_ref y, uint32_t n)
{
    const struct model_config *c = f->c;
    uint32_t P = c->kda_heads * c->kda_dim;
    struct kern_cmd *k = cmd_add(&f->cmds, KERN_CONV);
    k->u.conv.x = x;
    k->u.conv.y = y;
    k->u.conv.w = w;
    if (st->conv) {
        size_t at = state_slot(f, l) * state_conv_floats(f) + (size_t)stream * (c->conv - 1) * P;
        k->u.conv.hist = kern_at(st->conv, at * sizeof(float));
    }
    k->u.conv.xstride = k->u.conv.ystride = k->u.conv.C = P;
    k->u.conv.K = c->conv;
    k->u.conv.T = n;
}

void fold_kda(struct infer *f, uint32_t l, const struct infer_state *st,
              const struct fold_weights *w, const struct fold_rows *r, uint32_t n)
{
    const struct model_config *c = f->c;
    struct kern_cmd *k = cmd_add(&f->cmds, KERN_KDA);
    k->u.kda.q = r->q;
    k->u.kda.k = r->k;
    k->u.kda.v = r->v;
    k->u.kda.f = r->f;
    k->u.kda.b = r->b;
    k->u.kda.o = r->o;
    k->u.kda.a_log = w->a_log;
    k->u.kda.dt_bias = w->dt_bias;
    k->u.kda.S = kern_at(st->kda, state_slot(f, l) * state_kda_floats(f) * sizeof(float));
    k->u.kda.H = c->kda_heads;
    k->u.kda.D = c->kda_dim;
    k->u.kda.T = n;
    k->u.kda.lower = c->gate_lower_bound;
    k->u.kda.eps = 1e-6f;
}

/* One of the three streams: projection, short convolution and SiLU, per sequence. */
static void kda_stream(struct infer *f, uint32_t l, const struct step *s, enum model_role proj,
                       uint32_t stream, struct kern_ref w, struct kern_buf *out)
{
    uint32_t P = f->c->kda_heads * f->c->kda_dim;
    cmd_matmul(f, weight_mat(f, l, proj), kern_at(f->s.xn, 0), kern_at(f->s.raw, 0), s->T);
    for (uint32_t i = 0; i < s->n_runs; i++) {
        const struct run *r = &s->runs[i];
        mark_raw(f, l, r, stream);
        fold_conv(f, l, r->st, stream, w, rows(f->s.raw, r->first, P), rows(out, r->first, P),
                  r->n);
    }
}

static void kda(struct infer *f, uint32_t l, const struct step *s)
{
    const struct model_config *c = f->c;
    uint32_t H = c->kda_heads, D = c->kda_dim, P = H * D;
    struct kern_ref xn = kern_at(f->s.xn, 0);
    struct fold_weights w = fold_weights(f, l);
    kda_stream(f, l, s, MODEL_KDA_Q, 0, w.conv[0], f->s.q);
    kda_stream(f, l, s, MODEL_KDA_K, 1, w.conv[1], f->s.k);
    kda_stream(f, l, s, MODEL_KDA_V, 2, w.conv[2], f->s.v);
    cmd_matmul(f, weight_mat(f, l, MODEL_KDA_FA), xn, kern_at(f->s.fa, 0), s->T);
    cmd_matmul(f, weight_mat(f, l, MODEL_KDA_FB), kern_at(f->s.fa, 0), kern_at(f->s.f, 0), s->T);
    cmd_matmul(f, weight_mat(f, l, MODEL_KDA_B), xn, kern_at(f->s.b, 0), s->T);
    cmd_matmul(f, weight_mat(f, l, MODEL_ATTN_G), xn, kern_at(f->s.gate, 0), s->T);
    for (uint32_t i = 0; i < s->n_runs; i++) {
        const struct run *r = &s->runs[i];
        struct fold_rows x = {
            .q = rows(f->s.q, r->first, P),
            .k = rows(f->s.k, r->first, P),
            .v = rows(f->s.v, r->first, P),
            .f = rows(f->s.f, r->first, P),
            .b = rows(f->s.b, r->first, H),
            .o = rows(f->s.o, r->first, P),
        };
        mark_gates(f, l, r);
        fold_kda(f, l, r->st, &w, &x, r->n);
    }
    mark_weights(f, l, s);
    struct kern_cmd *g = cmd_add(&f->cmds, KERN_GATED_NORM);
    g->u.gated_norm.o = g->u.gated_norm.y = kern_at(f->s.o, 0);
    g->u.gated_norm.z = kern_at(f->s.gate, 0);
    g->u.gated_norm.w = weight_vec(f, l, MODEL_KDA_ONORM).data;
    g->u.gated_norm.H = H;
    g->u.gated_norm.D = D;
    g->u.gated_norm.T = s->T;
    g->u.gated_norm.eps = c->rms_eps;
    cmd_matmul(f, weight_mat(f, l, MODEL_ATTN_O), kern_at(f->s.o, 0), kern_at(f->s.a, 0), s->T);
}

static void mla(struct infer *f, uint32_t l, const struct step *s)
{
    const struct model_config *c = f->c;
    uint32_t Q = c->heads * (c->nope + c->rope), V = c->heads * c->vdim;
    uint32_t W = state_latent_width(f);
    struct kern_ref xn = kern_at(f->s.xn, 0), qa = kern_at(f->s.qa, 0);
    cmd_matmul(f, weight_mat(f, l, MODEL_MLA_QA), xn, qa, s->T);
    cmd_rmsnorm(f, qa, c->q_rank, weight_vec(f, l, MODEL_MLA_QA_NORM), qa, c->q_rank, s->T,
                c->lora_eps);
    cmd_matmul(f, weight_mat(f, l, MODEL_MLA_QB), qa, kern_at(f->s.q, 0), s->T);
    cmd_matmul(f, weight_mat(f, l, MODEL_MLA_KVA), xn, kern_at(f->s.ckv, 0), s->T);
    cmd_matmul(f, weight_mat(f, l, MODEL_ATTN_G), xn, kern_at(f->s.gate, 0), s->T);
    for (uint32_t i = 0; i < s->n_runs; i++) {
        const struct run *r = &s->runs[i];
        struct kern_ref cache = kern_at(r->st->latent[state_slot(f, l)], 0);
        struct kern_cmd *k = cmd_add(&f->cmds, KERN_MLA_STORE);
        k->u.mla_store.c = rows(f->s.ckv, r->first, W);
        k->u.mla_store.cache = cache;
        k->u.mla_store.w = weight_vec(f, l, MODEL_MLA_KVA_NORM);
        k->u.mla_store.cstride = W;
        k->u.mla_store.rank = c->kv_rank;
        k->u.mla_store.rope = c->rope;
        k->u.mla_store.T = r->n;
        k->u.mla_store.pos0 = r->st->pos;
        k->u.mla_store.eps = c->lora_eps;
        k = cmd_add(&f->cmds, KERN_MLA);
        k->u.mla.q = rows(f->s.q, r->first, Q);
        k->u.mla.cache = cache;
        k->u.mla.o = rows(f->s.o, r->first, V);
        k->u.mla.kvb = weight_mat(f, l, MODEL_MLA_KVB);
        k->u.mla.H = c->heads;
        k->u.mla.nope = c->nope;
        k->u.mla.rope = c->rope;
        k->u.mla.vdim = c->vdim;
        k->u.mla.rank = c->kv_rank;
        k->u.mla.T = r->n;
        k->u.mla.pos0 = r->st->pos;
    }
    cmd_gate(f, kern_at(f->s.o, 0), kern_at(f->s.gate, 0), kern_at(f->s.o, 0), s->T * V);
    cmd_matmul(f, weight_mat(f, l, MODEL_ATTN_O), kern_at(f->s.o, 0), kern_at(f->s.a, 0), s->T);
}

void attention(struct infer *f, uint32_t l, const struct step *s)
{
    if (f->c->attn[l] == MODEL_MLA) {
        mla(f, l, s);
    } else {
        kda(f, l, s);
    }
}
