/* SPDX-License-Identifier: MIT
 * exec.c: commands as parallel stages over ranges of rows, heads or elements. See exec.h. */
#include "kernels/exec.h"

#include "kernels/matmul.h"

#include <stdatomic.h>
#include <string.h>

/* Elements of a unit of the elementwise commands. */
#define BLOCK 256
/* What a transcendental function costs, in multiply-adds. */
#define COST_FN 12

/* Weights of a matrix that are worth another thread: 20 microseconds and more. Waking one takes
 * five, and it must find more than that to do. */
#define MATMUL_WORK ((size_t)1 << 18)

struct task {
    const struct kern_exec *x;
    const struct kern_cmd *c;
    union {
        struct kern_matmul mm;
        struct kern_conv_args conv;
        struct kern_kda_args kda;
    } u;
    atomic_bool found;
};

size_t kern_grain(const struct kern_exec *x, size_t cost)
{
    return cost >= x->min_work ? 1 : x->min_work / (cost ? cost : 1);
}

static void par(struct task *t, size_t n, size_t cost, kern_range_fn *fn)
{
    kern_pool_run(t->x->pool, n, kern_grain(t->x, cost), fn, t);
}

static size_t blocks(size_t n)
{
    return n / BLOCK + (n % BLOCK != 0);
}

/* Elements of the units [begin, end). */
static size_t elements(size_t begin, size_t end, size_t n, size_t *first)
{
    *first = begin * BLOCK;
    return (end * BLOCK < n ? end * BLOCK : n) - *first;
}

static float *f32(struct kern_ref r)
{
    return kern_ptr(r);
}

static void *scratch(const struct kern_exec *x, unsigned worker)
{
    return x->worker + worker * x->worker_size;
}

static const void *vec_at(const struct kern_vec *v, size_t i)
{
    return (const char *)kern_ptr(v->data) + i * (v->type == KERN_F32 ? 4 : 2);
}

/* ---- matrix products ---- */

static void matmul_args(const struct kern_cmd *c, struct kern_matmul *m)
{
    const struct kern_mat *w = &c->u.matmul.w;
    *m = (struct kern_matmul){
        .type = w->type,
        .rows = w->rows,
        .cols = w->cols,
        .T = c->u.matmul.T,
        .data = kern_ptr(w->data),
        .scale = w->type == KERN_I8 || w->type == KERN_MXFP4 ? kern_ptr(w->scale) : NULL,
        .x = f32(c->u.matmul.x),
        .xstride = c->u.matmul.xstride,
        .xmap = c->u.matmul.xmap.buf ? kern_ptr(c->u.matmul.xmap) : NULL,
        .y = f32(c->u.matmul.y),
        .ystride = c->u.matmul.ystride,
        .ymap = c->u.matmul.ymap.buf ? kern_ptr(c->u.matmul.ymap) : NULL,
    };
}

static void matmul_prepare(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    kern_matmul_prepare(&t->u.mm, t->x->isa, t->x->shared, (uint32_t)begin, (uint32_t)end);
}

static void matmul_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    kern_matmul_rows(&t->u.mm, t->x->isa, t->x->shared, (uint32_t)begin, (uint32_t)end);
}

/* Rows of a matrix that are worth another thread: the more rows of x, the less each of them costs.
 * Long runs of weights keep the memory streams going. */
static size_t matmul_grain(uint32_t cols, uint32_t T)
{
    size_t cost = (size_t)cols * (1 + T / 4), rows = MATMUL_WORK / (cost ? cost : 1);
    return rows < 32 ? 32 : rows;
}

static void run_matmul(struct task *t)
{
    matmul_args(t->c, &t->u.mm);
    const struct kern_matmul *m = &t->u.mm;
    par(t, m->T, m->cols, matmul_prepare);
    size_t grain = kern_grain(t->x, (size_t)m->cols * m->T);
    if (t->x->min_work > 1) {
        grain = matmul_grain(m->cols, m->T);
    }
    kern_pool_run(t->x->pool, m->rows, grain, matmul_rows, t);
}

/* ---- elementwise ---- */

static void widen(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    size_t i, n = elements(begin, end, t->c->u.widen.n, &i);
    const struct kern_vec *v = &t->c->u.widen.src;
    t->x->ops->widen(f32(t->c->u.widen.y) + i, vec_at(v, i), v->type, n);
}

static void mulvec(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    size_t i, n = elements(begin, end, t->c->u.mulvec.n, &i);
    const struct kern_vec *a = &t->c->u.mulvec.a, *b = &t->c->u.mulvec.b;
    t->x->ops->mulvec(f32(t->c->u.mulvec.y) + i, vec_at(a, i), a->type, vec_at(b, i), b->type, n);
}

static void add(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    size_t i, n = elements(begin, end, t->c->u.add.n, &i);
    t->x->ops->add(f32(t->c->u.add.y) + i, f32(t->c->u.add.a) + i, f32(t->c->u.add.b) + i, n);
}

static void situ(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    size_t i, n = elements(begin, end, t->c->u.situ.n, &i);
    t->x->ops->situ(f32(t->c->u.situ.y) + i, f32(t->c->u.situ.g) + i, f32(t->c->u.situ.u) + i, n,
                    t->c->u.situ.beta, t->c->u.situ.lbeta);
}

static void gate(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    size_t i, n = elements(begin, end, t->c->u.gate.n, &i);
    t->x->ops->gate(f32(t->c->u.gate.y) + i, f32(t->c->u.gate.x) + i, f32(t->c->u.gate.g) + i, n);
}

static void check(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    size_t i, n = elements(begin, end, t->c->u.check.n, &i);
    if (!t->x->ops->finite(f32(t->c->u.check.x) + i, n)) {
        atomic_store_explicit(&t->found, true, memory_order_relaxed);
    }
}

static void run_check(struct task *t)
{
    uint32_t *flag = kern_ptr(t->c->u.check.flag);
    par(t, blocks(t->c->u.check.n), BLOCK / 4, check);
    if (atomic_load_explicit(&t->found, memory_order_relaxed) && !*flag) {
        *flag = t->c->u.check.tag;
    }
}

/* ---- norms and mixes ---- */

static void rmsnorm(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    const struct kern_vec *w = &t->c->u.rmsnorm.w;
    for (size_t i = begin; i < end; i++) {
        t->x->ops->rmsnorm(f32(t->c->u.rmsnorm.y) + i * t->c->u.rmsnorm.ystride,
                           f32(t->c->u.rmsnorm.x) + i * t->c->u.rmsnorm.xstride, vec_at(w, 0),
                           w->type, t->c->u.rmsnorm.n, t->c->u.rmsnorm.eps);
    }
}

/* Units: (row, source). The scores lie in the shared scratch, [T][nb + 1]. */
static void mix_scores(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    size_t nb = t->c->u.mix.nb, n = t->c->u.mix.n;
    float *score = (float *)t->x->shared;
    for (size_t i = begin; i < end; i++) {
        size_t row = i / (nb + 1), source = i % (nb + 1);
        const float *v = source < nb ? f32(t->c->u.mix.bank) + source * t->c->u.mix.bank_stride
                                     : f32(t->c->u.mix.p);
        score[i] = t->x->ops->mix_score(v + row * n, f32(t->c->u.mix.s), n, t->c->u.mix.eps);
    }
}

/* Units: (row, block of elements). Each takes the softmax of its row anew: it is short. */
static void mix_sums(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    size_t nb = t->c->u.mix.nb, n = t->c->u.mix.n, per_row = blocks(n);
    float *p = scratch(t->x, worker);
    for (size_t i = begin; i < end; i++) {
        size_t row = i / per_row, d, len = elements(i % per_row, i % per_row + 1, n, &d);
        if (i == begin || i % per_row == 0) {
            t->x->ops->softmax(p, (float *)t->x->shared + row * (nb + 1), nb + 1);
        }
        d += row * n;
        t->x->ops->mix_sum(f32(t->c->u.mix.y) + d, f32(t->c->u.mix.bank) + d,
                           t->c->u.mix.bank_stride, nb, f32(t->c->u.mix.p) + d, p, len);
    }
}

static void run_mix(struct task *t)
{
    size_t nb = t->c->u.mix.nb, n = t->c->u.mix.n, T = t->c->u.mix.T;
    par(t, T * (nb + 1), 2 * n, mix_scores);
    par(t, T * blocks(n), BLOCK * (nb + 1), mix_sums);
}

static void gated_norm(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    size_t D = t->c->u.gated_norm.D;
    for (size_t i = begin; i < end; i++) {
        t->x->ops->gated_norm(f32(t->c->u.gated_norm.y) + i * D, f32(t->c->u.gated_norm.o) + i * D,
                              f32(t->c->u.gated_norm.w), f32(t->c->u.gated_norm.z) + i * D, D,
                              t->c->u.gated_norm.eps);
    }
}

/* ---- KDA ---- */

#define CONV_UNIT 32 /* channels */

static void conv(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    size_t C = t->u.conv.C;
    t->x->ops->conv(&t->u.conv, begin * CONV_UNIT, end * CONV_UNIT < C ? end * CONV_UNIT : C);
}

static void run_conv(struct task *t)
{
    const struct kern_cmd *c = t->c;
    t->u.conv = (struct kern_conv_args){
        .x = f32(c->u.conv.x),
        .w = f32(c->u.conv.w),
        .y = f32(c->u.conv.y),
        .hist = c->u.conv.K > 1 ? f32(c->u.conv.hist) : NULL,
        .xstride = c->u.conv.xstride,
        .ystride = c->u.conv.ystride,
        .C = c->u.conv.C,
        .K = c->u.conv.K,
        .T = c->u.conv.T,
    };
    size_t units = ((size_t)c->u.conv.C + CONV_UNIT - 1) / CONV_UNIT;
    par(t, units, CONV_UNIT * ((size_t)c->u.conv.T * (c->u.conv.K + COST_FN)), conv);
}

static void kda(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    for (size_t h = begin; h < end; h++) {
        t->x->ops->kda(&t->u.kda, h, scratch(t->x, worker));
    }
}

static void run_kda(struct task *t)
{
    const struct kern_cmd *c = t->c;
    t->u.kda = (struct kern_kda_args){
        .q = f32(c->u.kda.q),
        .k = f32(c->u.kda.k),
        .v = f32(c->u.kda.v),
        .f = f32(c->u.kda.f),
        .b = f32(c->u.kda.b),
        .a_log = f32(c->u.kda.a_log),
        .dt_bias = f32(c->u.kda.dt_bias),
        .S = f32(c->u.kda.S),
        .o = f32(c->u.kda.o),
        .H = c->u.kda.H,
        .D = c->u.kda.D,
        .T = c->u.kda.T,
        .lower = c->u.kda.lower,
        .eps = c->u.kda.eps,
    };
    par(t, c->u.kda.H, (size_t)c->u.kda.T * c->u.kda.D * c->u.kda.D * 5, kda);
}

/* ---- cache, router, experts ---- */

static void mla_store(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    const struct kern_cmd *c = t->c;
    size_t rank = c->u.mla_store.rank, rope = c->u.mla_store.rope;
    for (size_t i = begin; i < end; i++) {
        const float *in = f32(c->u.mla_store.c) + i * c->u.mla_store.cstride;
        float *out = f32(c->u.mla_store.cache) + (c->u.mla_store.pos0 + i) * (rank + rope);
        t->x->ops->rmsnorm(out, in, vec_at(&c->u.mla_store.w, 0), c->u.mla_store.w.type, rank,
                           c->u.mla_store.eps);
        t->x->ops->widen(out + rank, in + rank, KERN_F32, rope);
    }
}

static void router(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    const struct kern_cmd *c = t->c;
    size_t E = c->u.router.E, k = c->u.router.k;
    float *s = scratch(t->x, worker), *tmp = s + E;
    for (size_t i = begin; i < end; i++) {
        t->x->ops->map(KERN_FN_SIGMOID, s, f32(c->u.router.logits) + i * E, E);
        kern_router_row(s, f32(c->u.router.bias), E, k, c->u.router.renorm, c->u.router.scale,
                        (uint32_t *)kern_ptr(c->u.router.ids) + i * k, f32(c->u.router.w) + i * k,
                        tmp);
    }
}

static void combine(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct task *t = ctx;
    const struct kern_cmd *c = t->c;
    size_t n = c->u.combine.n, k = c->u.combine.k, per_row = blocks(n);
    for (size_t i = begin; i < end; i++) {
        size_t row = i / per_row, d, len = elements(i % per_row, i % per_row + 1, n, &d);
        t->x->ops->combine(f32(c->u.combine.u) + row * n, f32(c->u.combine.y) + row * k * n,
                           f32(c->u.combine.w) + row * k, n, k, d, d + len);
    }
}

/* ---- */

static bool floats_of(size_t n, size_t m, size_t *bytes)
{
    return !__builtin_mul_overflow(n, m, bytes) &&
           !__builtin_mul_overflow(*bytes, (size_t)4, bytes);
}

bool kern_exec_need(const struct kern_exec *x, const struct kern_cmd *c, size_t *shared,
                    size_t *worker)
{
    *shared = *worker = 0;
    switch (c->op) {
    case KERN_MATMUL: {
        struct kern_matmul m;
        matmul_args(c, &m);
        *shared = kern_matmul_scratch(&m, x->isa);
        return true;
    }
    case KERN_MIX:
        return floats_of(c->u.mix.T, (size_t)c->u.mix.nb + 1, shared) &&
               floats_of((size_t)c->u.mix.nb + 1, 1, worker);
    case KERN_KDA:
        return floats_of(c->u.kda.D, 3, worker);
    case KERN_ROUTER:
        return floats_of((size_t)c->u.router.E + c->u.router.k, 1, worker);
    case KERN_MLA:
        return kern_exec_mla_need(x, c, shared);
    default:
        return true;
    }
}

void kern_exec_cmd(const struct kern_exec *x, const struct kern_cmd *c)
{
    struct task task = {.x = x, .c = c};
    struct task *t = &task;
    switch (c->op) {
    case KERN_MATMUL:
        run_matmul(t);
        break;
    case KERN_WIDEN:
        par(t, blocks(c->u.widen.n), BLOCK, widen);
        break;
    case KERN_MULVEC:
        par(t, blocks(c->u.mulvec.n), BLOCK, mulvec);
        break;
    case KERN_ADD:
        par(t, blocks(c->u.add.n), BLOCK, add);
        break;
    case KERN_RMSNORM:
        par(t, c->u.rmsnorm.T, (size_t)c->u.rmsnorm.n * 2, rmsnorm);
        break;
    case KERN_MIX:
        run_mix(t);
        break;
    case KERN_SITU:
        par(t, blocks(c->u.situ.n), BLOCK * 3 * COST_FN, situ);
        break;
    case KERN_GATE:
        par(t, blocks(c->u.gate.n), BLOCK * COST_FN, gate);
        break;
    case KERN_CONV:
        run_conv(t);
        break;
    case KERN_KDA:
        run_kda(t);
        break;
    case KERN_GATED_NORM:
        par(t, (size_t)c->u.gated_norm.T * c->u.gated_norm.H, (size_t)c->u.gated_norm.D * COST_FN,
            gated_norm);
        break;
    case KERN_MLA_STORE:
        par(t, c->u.mla_store.T, ((size_t)c->u.mla_store.rank + c->u.mla_store.rope) * 2,
            mla_store);
        break;
    case KERN_MLA:
        kern_exec_mla(x, c);
        break;
    case KERN_ROUTER:
        par(t, c->u.router.T, (size_t)c->u.router.E * COST_FN, router);
        break;
    case KERN_COMBINE:
        par(t, (size_t)c->u.combine.T * blocks(c->u.combine.n), BLOCK * (size_t)c->u.combine.k,
            combine);
        break;
    case KERN_CHECK:
        run_check(t);
        break;
    }
}
