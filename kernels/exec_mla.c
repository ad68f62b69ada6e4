/* SPDX-License-Identifier: MIT
 * exec_mla.c: latent attention as parallel stages. See exec.h.
 *
 * Rows and heads are taken in groups whose scores fit the scratch, so that a context of a million
 * positions needs no more memory than one of some thousands. Within a group each stage goes over
 * blocks of the cache in an order that keeps a block in the core's cache for all heads. */
#include "kernels/exec.h"

#include <math.h>
#include <string.h>

#define POSITIONS 64 /* cache rows of a unit of the scores */
#define HEADS 16     /* heads and */
#define CHANNELS 64  /* channels of a unit of the context */

struct mla {
    const struct kern_exec *x;
    const struct kern_cmd *c;
    struct kern_mla_mat m;
    size_t H, nope, rope, vdim, rank, w, pos0; /* w = rank + rope */
    size_t Tg, Hg, L;                          /* the largest group: rows, heads, positions */
    float scale;
    /* the present group: rows t0 .. t0+T-1, heads h0 .. h0+nh-1 */
    size_t t0, T, h0, nh;
    float *a, *s, *ctx; /* [T][nh][w], [T][nh][L], [T][nh][rank] */
};

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void plan(const struct kern_exec *x, const struct kern_cmd *c, struct mla *p)
{
    *p = (struct mla){
        .x = x,
        .c = c,
        .H = c->u.mla.H,
        .nope = c->u.mla.nope,
        .rope = c->u.mla.rope,
        .vdim = c->u.mla.vdim,
        .rank = c->u.mla.rank,
        .w = (size_t)c->u.mla.rank + c->u.mla.rope,
        .pos0 = c->u.mla.pos0,
    };
    size_t T = c->u.mla.T;
    p->L = (p->pos0 + T + 15) / 16 * 16;
    size_t lines = x->max_scores / p->L;
    p->Hg = min(p->H, lines ? lines : 1);
    p->Tg = 1;
    if (p->Hg == p->H) {
        size_t rows = lines / p->H;
        p->Tg = min(T, rows ? rows : 1);
    }
}

bool kern_exec_mla_need(const struct kern_exec *x, const struct kern_cmd *c, size_t *shared)
{
    struct mla p;
    plan(x, c, &p);
    size_t n;
    return !__builtin_mul_overflow(p.Tg * p.Hg, p.L + p.w + p.rank, &n) &&
           !__builtin_mul_overflow(n, (size_t)4, shared);
}

static size_t seen(const struct mla *p, size_t t) /* positions that row t0 + t sees */
{
    return p->pos0 + p->t0 + t + 1;
}

static const float *cache(const struct mla *p)
{
    return kern_ptr(p->c->u.mla.cache);
}

/* Units: (head, row), so that a head's weights serve all rows. */
static void absorb(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct mla *p = ctx;
    for (size_t i = begin; i < end; i++) {
        size_t h = i / p->T, t = i % p->T;
        const float *q = (const float *)kern_ptr(p->c->u.mla.q) +
                         ((p->t0 + t) * p->H + p->h0 + h) * (p->nope + p->rope);
        float *a = p->a + (t * p->nh + h) * p->w;
        p->x->ops->mla_absorb(a, &p->m, (p->h0 + h) * (p->nope + p->vdim), q, p->nope);
        memcpy(a + p->rank, q + p->nope, p->rope * sizeof *a);
    }
}

/* Units: (block of positions, row). */
static void scores(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct mla *p = ctx;
    for (size_t i = begin; i < end; i++) {
        size_t t = i % p->T, i0 = i / p->T * POSITIONS;
        size_t i1 = min(i0 + POSITIONS, seen(p, t));
        if (i0 < i1) {
            p->x->ops->mla_scores(p->s + t * p->nh * p->L, p->L, p->a + t * p->nh * p->w, p->nh,
                                  cache(p), p->w, i0, i1, p->scale);
        }
    }
}

/* Units: (row, head). */
static void softmax(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct mla *p = ctx;
    for (size_t i = begin; i < end; i++) {
        float *s = p->s + i * p->L;
        p->x->ops->softmax(s, s, seen(p, i / p->nh));
    }
}

/* Units: (row, group of heads, group of channels). */
static void context(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct mla *p = ctx;
    size_t cgs = (p->rank + CHANNELS - 1) / CHANNELS, hgs = (p->nh + HEADS - 1) / HEADS;
    for (size_t i = begin; i < end; i++) {
        size_t c0 = i % cgs * CHANNELS, h0 = i / cgs % hgs * HEADS, t = i / cgs / hgs;
        size_t at = t * p->nh + h0;
        p->x->ops->mla_context(p->ctx + at * p->rank, p->rank, p->s + at * p->L, p->L,
                               min(HEADS, p->nh - h0), cache(p), p->w, seen(p, t), c0,
                               min(c0 + CHANNELS, p->rank));
    }
}

/* Units: (head, row). */
static void out(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct mla *p = ctx;
    for (size_t i = begin; i < end; i++) {
        size_t h = i / p->T, t = i % p->T;
        float *o = (float *)kern_ptr(p->c->u.mla.o) + ((p->t0 + t) * p->H + p->h0 + h) * p->vdim;
        p->x->ops->mla_out(o, &p->m, (p->h0 + h) * (p->nope + p->vdim) + p->nope,
                           p->ctx + (t * p->nh + h) * p->rank, p->vdim);
    }
}

static void group(struct mla *p)
{
    size_t last = seen(p, p->T - 1), units = (last + POSITIONS - 1) / POSITIONS;
    struct kern_pool *pool = p->x->pool;
    kern_pool_run(pool, p->nh * p->T, kern_grain(p->x, p->nope * p->rank), absorb, p);
    kern_pool_run(pool, units * p->T, kern_grain(p->x, min(POSITIONS, last) * p->nh * p->w), scores,
                  p);
    kern_pool_run(pool, p->T * p->nh, kern_grain(p->x, last * 16), softmax, p);
    kern_pool_run(pool,
                  p->T * ((p->nh + HEADS - 1) / HEADS) * ((p->rank + CHANNELS - 1) / CHANNELS),
                  kern_grain(p->x, last * min(HEADS, p->nh) * min(CHANNELS, p->rank)), context, p);
    kern_pool_run(pool, p->nh * p->T, kern_grain(p->x, p->vdim * p->rank), out, p);
}

void kern_exec_mla(const struct kern_exec *x, const struct kern_cmd *c)
{
    struct mla p;
    plan(x, c, &p);
    p.scale = 1.0f / sqrtf((float)(p.nope + p.rope));
    p.m = (struct kern_mla_mat){
        .type = c->u.mla.kvb.type,
        .data = kern_ptr(c->u.mla.kvb.data),
        .scale = c->u.mla.kvb.type == KERN_I8 ? kern_ptr(c->u.mla.kvb.scale) : NULL,
        .rank = p.rank,
    };
    p.s = (float *)x->shared;
    p.a = p.s + p.Tg * p.Hg * p.L;
    p.ctx = p.a + p.Tg * p.Hg * p.w;
    for (p.t0 = 0; p.t0 < c->u.mla.T; p.t0 += p.T) {
        p.T = min(p.Tg, c->u.mla.T - p.t0);
        for (p.h0 = 0; p.h0 < p.H; p.h0 += p.nh) {
            p.nh = min(p.Hg, p.H - p.h0);
            group(&p);
        }
    }
}
