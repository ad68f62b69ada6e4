/* SPDX-License-Identifier: MIT
 * plan.c: commands as launches. See plan.h. */
#include "shaders/plan.h"

#include "kernels/exec.h"
#include "shaders/plan_impl.h"

#include <math.h>

const char *sh_kernel_name(enum sh_kernel k)
{
    static const char *const names[] = {
#define SH_KERNEL(name, args, buffers) #name,
#include "shaders/kernels.h"
#undef SH_KERNEL
    };
    return (unsigned)k < SH_KERNELS ? names[k] : "?";
}

static int send(const struct sh_planner *p, const struct sh_launch *l)
{
    return p->emit(p->ctx, l);
}

/* ---- products ---- */

/* The kernel for a tile of 1, 2, 4 or 8 rows of x; tile 0: any shape. */
static enum sh_kernel product_kernel(enum kern_type type, uint32_t tile)
{
    static const enum sh_kernel k[4][5] = {
        [KERN_F32] = {SH_product_f32_any, SH_product_f32_1, SH_product_f32_2, SH_product_f32_4,
                      SH_product_f32_8},
        [KERN_BF16] = {SH_product_bf16_any, SH_product_bf16_1, SH_product_bf16_2, SH_product_bf16_4,
                       SH_product_bf16_8},
        [KERN_MXFP4] = {SH_product_mxfp4_any, SH_product_mxfp4_1, SH_product_mxfp4_2,
                        SH_product_mxfp4_4, SH_product_mxfp4_8},
        [KERN_I8] = {SH_product_i8_any, SH_product_i8_1, SH_product_i8_2, SH_product_i8_4,
                     SH_product_i8_8},
    };
    return k[type][tile == 8 ? 4 : tile == 4 ? 3 : tile];
}

/* Rows of weights of a SIMD group of the tiled kernel (product.metal). */
static uint32_t simd_rows(enum kern_type type, uint32_t tile)
{
    return type == KERN_MXFP4 && tile != 8 ? 16 : 8;
}

static int plan_product(const struct sh_planner *p)
{
    const struct kern_cmd *c = p->c;
    const struct kern_mat *w = &c->u.matmul.w;
    uint32_t T = c->u.matmul.T, threads = 32 * SH_PRODUCT_GROUPS;
    bool scaled = w->type == KERN_I8 || w->type == KERN_MXFP4;
    bool fast = !p->o->plain && w->cols % 128 == 0 && w->data.off % 16 == 0 &&
                (!scaled || w->scale.off % 4 == 0) && c->u.matmul.x.off % 16 == 0 &&
                c->u.matmul.xstride % 4 == 0;
    struct sh_launch l;
    if (fast) {
        uint32_t tile = T > 4 ? 8 : T > 2 ? 4 : T;
        uint32_t rows = SH_PRODUCT_GROUPS * simd_rows(w->type, tile);
        l = sh_launch(product_kernel(w->type, tile), sizeof l.args.product, threads,
                      sh_groups(w->rows, rows), sh_groups(T, tile), 1);
    } else {
        l = sh_launch(product_kernel(w->type, 0), sizeof l.args.product, threads,
                      sh_groups(w->rows, SH_PRODUCT_GROUPS), 1, 1);
    }
    l.args.product = (struct sh_product){
        .rows = w->rows,
        .cols = w->cols,
        .T = T,
        .xstride = c->u.matmul.xstride,
        .ystride = c->u.matmul.ystride,
        .xmapped = c->u.matmul.xmap.buf != NULL,
        .ymapped = c->u.matmul.ymap.buf != NULL,
    };
    sh_bind(&l, w->data);
    sh_bind(&l, scaled ? w->scale : w->data);
    sh_bind(&l, c->u.matmul.x);
    sh_bind(&l, c->u.matmul.y);
    sh_bind(&l, c->u.matmul.xmap.buf ? c->u.matmul.xmap : w->data);
    sh_bind(&l, c->u.matmul.ymap.buf ? c->u.matmul.ymap : w->data);
    return send(p, &l);
}

/* ---- elementwise ---- */

static struct sh_launch map_launch(enum sh_kernel k, uint32_t n)
{
    struct sh_launch l =
        sh_launch(k, sizeof l.args.map, SH_MAP_THREADS, sh_groups(n, SH_MAP_THREADS), 1, 1);
    l.args.map = (struct sh_map){.n = n};
    return l;
}

static int plan_widen(const struct sh_planner *p)
{
    struct sh_launch l = map_launch(SH_widen, p->c->u.widen.n);
    l.args.map.ta = p->c->u.widen.src.type == KERN_BF16;
    sh_bind(&l, p->c->u.widen.src.data);
    sh_bind(&l, p->c->u.widen.y);
    return send(p, &l);
}

static int plan_mulvec(const struct sh_planner *p)
{
    struct sh_launch l = map_launch(SH_mulvec, p->c->u.mulvec.n);
    l.args.map.ta = p->c->u.mulvec.a.type == KERN_BF16;
    l.args.map.tb = p->c->u.mulvec.b.type == KERN_BF16;
    sh_bind(&l, p->c->u.mulvec.a.data);
    sh_bind(&l, p->c->u.mulvec.b.data);
    sh_bind(&l, p->c->u.mulvec.y);
    return send(p, &l);
}

static int plan_three(const struct sh_planner *p, enum sh_kernel k, struct kern_ref a,
                      struct kern_ref b, struct kern_ref y, uint32_t n)
{
    struct sh_launch l = map_launch(k, n);
    if (k == SH_situ) {
        l.args.map.beta = p->c->u.situ.beta;
        l.args.map.lbeta = p->c->u.situ.lbeta;
    }
    sh_bind(&l, a);
    sh_bind(&l, b);
    sh_bind(&l, y);
    return send(p, &l);
}

static int plan_combine(const struct sh_planner *p)
{
    uint32_t n = p->c->u.combine.n;
    struct sh_launch l = sh_launch(SH_combine, sizeof l.args.combine, SH_MAP_THREADS,
                                   sh_groups(n, SH_MAP_THREADS), p->c->u.combine.T, 1);
    l.args.combine = (struct sh_combine){.n = n, .k = p->c->u.combine.k};
    sh_bind(&l, p->c->u.combine.y);
    sh_bind(&l, p->c->u.combine.w);
    sh_bind(&l, p->c->u.combine.u);
    return send(p, &l);
}

static int plan_check(const struct sh_planner *p)
{
    size_t n = p->c->u.check.n, groups = n / 4096 + (n % 4096 != 0);
    if (groups > UINT32_MAX) {
        return KERN_ENOTSUP;
    }
    struct sh_launch l =
        sh_launch(SH_check, sizeof l.args.check, SH_MAP_THREADS, (uint32_t)groups, 1, 1);
    l.args.check = (struct sh_check){.n = n, .tag = p->c->u.check.tag};
    sh_bind(&l, p->c->u.check.x);
    sh_bind(&l, p->c->u.check.flag);
    return send(p, &l);
}

/* ---- norms and mixes ---- */

static int plan_rmsnorm(const struct sh_planner *p)
{
    const struct kern_cmd *c = p->c;
    struct sh_launch l =
        sh_launch(SH_rmsnorm, sizeof l.args.norm, SH_NORM_THREADS, c->u.rmsnorm.T, 1, 1);
    l.args.norm = (struct sh_norm){
        .n = c->u.rmsnorm.n,
        .xstride = c->u.rmsnorm.xstride,
        .ystride = c->u.rmsnorm.ystride,
        .wtype = c->u.rmsnorm.w.type == KERN_BF16,
        .eps = c->u.rmsnorm.eps,
    };
    sh_bind(&l, c->u.rmsnorm.x);
    sh_bind(&l, c->u.rmsnorm.w.data);
    sh_bind(&l, c->u.rmsnorm.y);
    return send(p, &l);
}

static int plan_mla_store(const struct sh_planner *p)
{
    const struct kern_cmd *c = p->c;
    struct sh_launch l =
        sh_launch(SH_rmsnorm, sizeof l.args.norm, SH_NORM_THREADS, c->u.mla_store.T, 1, 1);
    uint32_t w = c->u.mla_store.rank + c->u.mla_store.rope;
    struct kern_ref rows = c->u.mla_store.cache;
    rows.off += (size_t)c->u.mla_store.pos0 * w * 4;
    l.args.norm = (struct sh_norm){
        .n = c->u.mla_store.rank,
        .copied = c->u.mla_store.rope,
        .xstride = c->u.mla_store.cstride,
        .ystride = w,
        .wtype = c->u.mla_store.w.type == KERN_BF16,
        .eps = c->u.mla_store.eps,
    };
    sh_bind(&l, c->u.mla_store.c);
    sh_bind(&l, c->u.mla_store.w.data);
    sh_bind(&l, rows);
    return send(p, &l);
}

static int plan_gated_norm(const struct sh_planner *p)
{
    const struct kern_cmd *c = p->c;
    uint64_t heads = (uint64_t)c->u.gated_norm.H * c->u.gated_norm.T;
    if (heads > UINT32_MAX) {
        return KERN_ENOTSUP;
    }
    struct sh_launch l = sh_launch(SH_gated_norm, sizeof l.args.gated_norm, 32 * SH_HEADS_GROUPS,
                                   sh_groups((uint32_t)heads, SH_HEADS_GROUPS), 1, 1);
    l.args.gated_norm = (struct sh_gated_norm){
        .D = c->u.gated_norm.D, .heads = (uint32_t)heads, .eps = c->u.gated_norm.eps};
    sh_bind(&l, c->u.gated_norm.o);
    sh_bind(&l, c->u.gated_norm.w);
    sh_bind(&l, c->u.gated_norm.z);
    sh_bind(&l, c->u.gated_norm.y);
    return send(p, &l);
}

static int plan_mix(const struct sh_planner *p)
{
    const struct kern_cmd *c = p->c;
    uint32_t nb = c->u.mix.nb, n = c->u.mix.n, T = c->u.mix.T;
    struct kern_ref scores = kern_at(p->scratch, 0);
    if (nb == UINT32_MAX) {
        return KERN_ENOTSUP;
    }
    struct sh_launch l = sh_launch(SH_mix_score, sizeof l.args.mix, SH_MIX_THREADS, nb + 1, T, 1);
    l.args.mix = (struct sh_mix){
        .bank_stride = c->u.mix.bank_stride, .n = n, .nb = nb, .T = T, .eps = c->u.mix.eps};
    sh_bind(&l, c->u.mix.bank);
    sh_bind(&l, c->u.mix.p);
    sh_bind(&l, c->u.mix.s);
    sh_bind(&l, scores);
    int rc = send(p, &l);
    if (rc) {
        return rc;
    }
    struct sh_launch soft =
        sh_launch(SH_softmax, sizeof soft.args.softmax, SH_SOFTMAX_THREADS, T, 1, 1);
    soft.args.softmax = (struct sh_softmax){.stride = nb + 1, .n = nb + 1, .per = T};
    sh_bind(&soft, scores);
    rc = send(p, &soft);
    if (rc) {
        return rc;
    }
    l.kernel = SH_mix_sum;
    l.groups[0] = sh_groups(n, SH_MIX_THREADS);
    l.buf[2] = scores;
    l.buf[3] = c->u.mix.y;
    return send(p, &l);
}

/* ---- KDA, router ---- */

static int plan_conv(const struct sh_planner *p)
{
    const struct kern_cmd *c = p->c;
    struct sh_launch l = sh_launch(SH_conv, sizeof l.args.conv, SH_MAP_THREADS,
                                   sh_groups(c->u.conv.C, SH_MAP_THREADS), 1, 1);
    l.args.conv = (struct sh_conv){.C = c->u.conv.C,
                                   .K = c->u.conv.K,
                                   .T = c->u.conv.T,
                                   .xstride = c->u.conv.xstride,
                                   .ystride = c->u.conv.ystride};
    sh_bind(&l, c->u.conv.x);
    sh_bind(&l, c->u.conv.w);
    sh_bind(&l, c->u.conv.K > 1 ? c->u.conv.hist : c->u.conv.y);
    sh_bind(&l, c->u.conv.y);
    return send(p, &l);
}

static int plan_kda(const struct sh_planner *p)
{
    const struct kern_cmd *c = p->c;
    if (c->u.kda.D > SH_KDA_MAX_D) {
        return KERN_ENOTSUP;
    }
    struct sh_launch l = sh_launch(SH_kda, sizeof l.args.kda, SH_KDA_THREADS,
                                   sh_groups(c->u.kda.D, SH_KDA_THREADS), c->u.kda.H, 1);
    l.args.kda = (struct sh_kda){.H = c->u.kda.H,
                                 .D = c->u.kda.D,
                                 .T = c->u.kda.T,
                                 .lower = c->u.kda.lower,
                                 .eps = c->u.kda.eps,
                                 .c = 1.0f / sqrtf((float)c->u.kda.D)};
    const struct kern_ref refs[] = {c->u.kda.q,       c->u.kda.k, c->u.kda.v,
                                    c->u.kda.f,       c->u.kda.b, c->u.kda.a_log,
                                    c->u.kda.dt_bias, c->u.kda.S, c->u.kda.o};
    for (size_t i = 0; i < sizeof refs / sizeof refs[0]; i++) {
        sh_bind(&l, refs[i]);
    }
    return send(p, &l);
}

static int plan_router(const struct sh_planner *p)
{
    const struct kern_cmd *c = p->c;
    if (c->u.router.E > SH_ROUTER_MAX_E) {
        return KERN_ENOTSUP;
    }
    struct sh_launch l =
        sh_launch(SH_router, sizeof l.args.router, SH_ROUTER_THREADS, c->u.router.T, 1, 1);
    l.args.router = (struct sh_router){.E = c->u.router.E,
                                       .k = c->u.router.k,
                                       .renorm = c->u.router.renorm,
                                       .scale = c->u.router.scale};
    sh_bind(&l, c->u.router.logits);
    sh_bind(&l, c->u.router.bias);
    sh_bind(&l, c->u.router.ids);
    sh_bind(&l, c->u.router.w);
    return send(p, &l);
}

/* ---- */

bool sh_plan_scratch(const struct kern_cmd *c, const struct sh_plan_opts *o, size_t *bytes)
{
    *bytes = 0;
    if (c->op == KERN_MIX) {
        return !__builtin_mul_overflow((size_t)c->u.mix.T, (size_t)c->u.mix.nb + 1, bytes) &&
               !__builtin_mul_overflow(*bytes, (size_t)4, bytes);
    }
    return c->op != KERN_MLA || sh_mla_scratch(c, o, bytes);
}

int sh_plan(const struct kern_cmd *c, const struct sh_plan_opts *o, const struct kern_buf *scratch,
            sh_emit *emit, void *ctx)
{
    const struct sh_planner planner = {c, o, scratch, emit, ctx};
    const struct sh_planner *p = &planner;
    if (kern_check_cmd(c)) {
        return KERN_EINVAL;
    }
    switch (c->op) {
    case KERN_MATMUL:
        return plan_product(p);
    case KERN_WIDEN:
        return plan_widen(p);
    case KERN_MULVEC:
        return plan_mulvec(p);
    case KERN_ADD:
        return plan_three(p, SH_add, c->u.add.a, c->u.add.b, c->u.add.y, c->u.add.n);
    case KERN_RMSNORM:
        return plan_rmsnorm(p);
    case KERN_MIX:
        return plan_mix(p);
    case KERN_SITU:
        return plan_three(p, SH_situ, c->u.situ.g, c->u.situ.u, c->u.situ.y, c->u.situ.n);
    case KERN_GATE:
        return plan_three(p, SH_gate, c->u.gate.x, c->u.gate.g, c->u.gate.y, c->u.gate.n);
    case KERN_CONV:
        return plan_conv(p);
    case KERN_KDA:
        return plan_kda(p);
    case KERN_GATED_NORM:
        return plan_gated_norm(p);
    case KERN_MLA_STORE:
        return plan_mla_store(p);
    case KERN_MLA:
        return sh_plan_mla(p);
    case KERN_ROUTER:
        return plan_router(p);
    case KERN_COMBINE:
        return plan_combine(p);
    case KERN_CHECK:
        return plan_check(p);
    }
    return KERN_EINVAL;
}

/* ---- argmax ---- */

size_t sh_argmax_scratch(uint32_t n, uint32_t T)
{
    return (size_t)sh_groups(n, SH_ARGMAX_CHUNK) * T * 8;
}

int sh_plan_argmax(struct kern_ref x, uint32_t n, uint32_t T, struct kern_ref id,
                   struct kern_ref value, const struct kern_buf *scratch, sh_emit *emit, void *ctx)
{
    uint32_t chunks = sh_groups(n, SH_ARGMAX_CHUNK);
    bool once = chunks == 1;
    struct kern_ref values = once ? value : kern_at(scratch, 0);
    struct kern_ref ids = once ? id : kern_at(scratch, (size_t)chunks * T * 4);
    struct sh_launch l =
        sh_launch(SH_argmax, sizeof l.args.argmax, SH_ARGMAX_THREADS, chunks, T, 1);
    l.args.argmax = (struct sh_argmax){.n = n, .chunk = SH_ARGMAX_CHUNK};
    sh_bind(&l, x);
    sh_bind(&l, ids);
    sh_bind(&l, values);
    sh_bind(&l, ids);
    int rc = emit(ctx, &l);
    if (rc || once) {
        return rc;
    }
    l.groups[0] = 1;
    l.args.argmax = (struct sh_argmax){.n = chunks, .chunk = chunks, .with_ids = 1};
    l.buf[0] = values;
    l.buf[1] = ids;
    l.buf[2] = value;
    l.buf[3] = id;
    return emit(ctx, &l);
}
