/* SPDX-License-Identifier: MIT
 * plan_mla.c: latent attention as launches. Rows and heads are taken in groups whose scores fit
 * max_scores, as the CPU backend does (kernels/exec_mla.c). */
#include "shaders/plan_impl.h"

#include <math.h>

struct mla_plan {
    size_t w, L, Tg, Hg;  /* rank + rope; the largest group: positions, rows, heads */
    size_t a, ctx, bytes; /* offsets in the scratch behind the scores; all */
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool mla_plan(const struct kern_cmd *c, const struct sh_plan_opts *o, struct mla_plan *m)
{
    size_t T = c->u.mla.T, H = c->u.mla.H, rank = c->u.mla.rank;
    size_t max = o->max_scores ? o->max_scores : (size_t)16 << 20;
    m->w = rank + c->u.mla.rope;
    m->L = ((size_t)c->u.mla.pos0 + T + 31) / 32 * 32;
    size_t lines = max / m->L;
    m->Hg = least(H, lines ? lines : 1);
    m->Tg = 1;
    if (m->Hg == H) {
        m->Tg = least(T, lines / H ? lines / H : 1);
    }
    size_t n = m->Tg * m->Hg;
    if (__builtin_mul_overflow(n, m->L * 4, &m->a) ||
        __builtin_mul_overflow(n, m->w * 4, &m->ctx) ||
        __builtin_add_overflow(m->ctx, m->a + 63, &m->ctx)) {
        return false;
    }
    m->ctx = m->ctx / 64 * 64;
    return !__builtin_mul_overflow(n, rank * 4, &m->bytes) &&
           !__builtin_add_overflow(m->bytes, m->ctx, &m->bytes);
}

bool sh_mla_scratch(const struct kern_cmd *c, const struct sh_plan_opts *o, size_t *bytes)
{
    struct mla_plan m;
    if (!mla_plan(c, o, &m)) {
        return false;
    }
    *bytes = m.bytes;
    return true;
}

static struct sh_launch step(enum sh_kernel k, const struct sh_mla *args, uint32_t threads,
                             uint32_t x, uint32_t y)
{
    struct sh_launch l = sh_launch(k, sizeof *args, threads, x, y, args->T);
    l.args.mla = *args;
    return l;
}

static enum sh_kernel out_kernel(const struct sh_planner *p)
{
    const struct kern_mat *w = &p->c->u.mla.kvb;
    if (p->o->plain || w->cols % 128 || w->data.off % 16) {
        return SH_mla_out_any;
    }
    return w->type == KERN_F32    ? SH_mla_out_f32
           : w->type == KERN_BF16 ? SH_mla_out_bf16
                                  : SH_mla_out_i8;
}

static int group(const struct sh_planner *p, const struct mla_plan *m, const struct sh_mla *args,
                 size_t t0)
{
    const struct kern_cmd *c = p->c;
    const struct kern_mat *kvb = &c->u.mla.kvb;
    struct kern_ref scale = kvb->type == KERN_I8 ? kvb->scale : kvb->data;
    struct kern_ref s = kern_at(p->scratch, 0), a = kern_at(p->scratch, m->a);
    struct kern_ref ctx = kern_at(p->scratch, m->ctx), q = c->u.mla.q, o = c->u.mla.o;
    q.off += t0 * args->H * (args->nope + args->rope) * 4;
    o.off += t0 * args->H * args->vdim * 4;
    uint32_t last = args->seen + args->T - 1, nh = args->nh;

    struct sh_launch l =
        step(SH_mla_absorb, args, SH_MLA_THREADS, sh_groups((uint32_t)m->w, SH_MLA_THREADS), nh);
    sh_bind(&l, q);
    sh_bind(&l, kvb->data);
    sh_bind(&l, scale);
    sh_bind(&l, a);
    int rc = p->emit(p->ctx, &l);
    if (rc) {
        return rc;
    }
    l = step(SH_mla_scores, args, 32 * SH_SCORE_GROUPS, sh_groups(last, SH_SCORE_ROWS),
             sh_groups(nh, SH_SCORE_GROUPS * SH_SCORE_HEADS));
    sh_bind(&l, a);
    sh_bind(&l, c->u.mla.cache);
    sh_bind(&l, s);
    rc = p->emit(p->ctx, &l);
    if (rc) {
        return rc;
    }
    l = sh_launch(SH_softmax, sizeof l.args.softmax, SH_SOFTMAX_THREADS, nh * args->T, 1, 1);
    l.args.softmax = (struct sh_softmax){.stride = args->L, .n = args->seen, .per = nh};
    sh_bind(&l, s);
    rc = p->emit(p->ctx, &l);
    if (rc) {
        return rc;
    }
    l = step(SH_mla_context, args, 64, sh_groups(args->rank, 32), sh_groups(nh, 2 * SH_CTX_HEADS));
    sh_bind(&l, s);
    sh_bind(&l, c->u.mla.cache);
    sh_bind(&l, ctx);
    rc = p->emit(p->ctx, &l);
    if (rc) {
        return rc;
    }
    enum sh_kernel k = out_kernel(p);
    uint32_t rows = k == SH_mla_out_any ? SH_PRODUCT_GROUPS : 8 * SH_PRODUCT_GROUPS;
    l = step(k, args, 32 * SH_PRODUCT_GROUPS, sh_groups(args->vdim, rows), nh);
    sh_bind(&l, kvb->data);
    sh_bind(&l, scale);
    sh_bind(&l, ctx);
    sh_bind(&l, o);
    return p->emit(p->ctx, &l);
}

int sh_plan_mla(const struct sh_planner *p)
{
    const struct kern_cmd *c = p->c;
    struct mla_plan m;
    if (!mla_plan(c, p->o, &m) || m.L > UINT32_MAX || m.w * m.Hg > UINT32_MAX ||
        (uint64_t)c->u.mla.H * (c->u.mla.nope + c->u.mla.vdim) > UINT32_MAX) {
        return KERN_ENOTSUP;
    }
    uint32_t T = c->u.mla.T, H = c->u.mla.H;
    for (uint32_t t0 = 0; t0 < T; t0 += (uint32_t)m.Tg) {
        for (uint32_t h0 = 0; h0 < H; h0 += (uint32_t)m.Hg) {
            struct sh_mla args = {
                .H = H,
                .h0 = h0,
                .nh = (uint32_t)least(m.Hg, H - h0),
                .T = (uint32_t)least(m.Tg, T - t0),
                .nope = c->u.mla.nope,
                .rope = c->u.mla.rope,
                .vdim = c->u.mla.vdim,
                .rank = c->u.mla.rank,
                .L = (uint32_t)m.L,
                .seen = c->u.mla.pos0 + t0 + 1,
                .type = c->u.mla.kvb.type,
                .scale = 1.0f / sqrtf((float)((size_t)c->u.mla.nope + c->u.mla.rope)),
            };
            int rc = group(p, &m, &args, t0);
            if (rc) {
                return rc;
            }
        }
    }
    return 0;
}
