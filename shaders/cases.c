/* SPDX-License-Identifier: MIT
 * cases.c: see cases.h. A case is built twice by the same code: first without memory, to know its
 * size. */
#include "shaders/cases.h"

#include <string.h>

struct maker {
    uint8_t *p; /* NULL: only count */
    struct kern_buf *arena;
    size_t used;
    uint64_t rng;
    enum case_mood mood;
    struct case_built *b;
};

static uint32_t rnd(struct maker *m)
{
    m->rng = m->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((m->rng ^ m->rng >> 31) >> 16);
}

static uint32_t value_bits(struct maker *m)
{
    static const uint32_t special[] = {
        0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0x00000001,
        0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x20800000, 0x207fffff, 0x3f800000,
        0x42ac0000, 0xc2ac0000, 0xc2ac0001, 0x42b17217, 0x42b17218, 0x3f0ccccd,
    };
    uint32_t r = rnd(m), sign = r & 0x80000000u, fraction = r & 0x7fffffu;
    switch (m->mood) {
    case CASE_TAME:
        return sign | (123 + rnd(m) % 5) << 23 | fraction;
    case CASE_WIDE:
        r = rnd(m);
        if (r % 8 == 0) {
            return 0;
        }
        return sign | (r & 8 ? 65 + (r >> 8) % 83 : 120 + (r >> 8) % 10) << 23 | fraction;
    default:
        r = rnd(m);
        if (r % 512) { /* few, so that NaN does not drown long sums */
            return sign | (120 + (r >> 10) % 10) << 23 | fraction;
        }
        r = rnd(m);
        if (r % 4) {
            return sign | (r & 4 ? 0 : (r >> 8) % 255) << 23 | fraction;
        }
        return special[(r >> 8) % (sizeof special / sizeof *special)];
    }
}

static struct kern_ref room(struct maker *m, size_t bytes)
{
    struct kern_ref r = kern_at(m->arena, m->used);
    m->used += (bytes + 63) / 64 * 64;
    return r;
}

/* n words by value_bits, or their upper halves. */
static struct kern_ref values(struct maker *m, size_t n, size_t size)
{
    struct kern_ref r = room(m, n * size);
    m->b->bytes += n * size;
    for (size_t i = 0; m->p && i < n; i++) {
        uint32_t v = value_bits(m);
        uint16_t half = (uint16_t)(v >> 16);
        memcpy(m->p + r.off + i * size, size == 4 ? (void *)&v : (void *)&half, size);
    }
    return r;
}

static struct kern_ref floats(struct maker *m, size_t n)
{
    return values(m, n, 4);
}

static struct kern_ref bytes(struct maker *m, size_t n, uint32_t lo, uint32_t count)
{
    struct kern_ref r = room(m, n);
    m->b->bytes += n;
    for (size_t i = 0; m->p && i < n; i++) {
        m->p[r.off + i] = (uint8_t)(lo + rnd(m) % count);
    }
    return r;
}

static struct kern_ref output(struct maker *m, size_t n)
{
    struct kern_ref r = room(m, n * 4);
    m->b->bytes += n * 4;
    m->b->out[m->b->outs++] = (struct case_out){r.off, n * 4};
    return r;
}

/* Operands that are also written. */
static struct kern_ref state(struct maker *m, size_t n)
{
    struct kern_ref r = floats(m, n);
    m->b->bytes += n * 4;
    m->b->out[m->b->outs++] = (struct case_out){r.off, n * 4};
    return r;
}

static struct kern_mat matrix(struct maker *m, enum kern_type type, uint32_t rows, uint32_t cols)
{
    struct kern_mat w = {.type = type, .rows = rows, .cols = cols};
    size_t n = (size_t)rows * cols, before = m->used;
    switch (type) {
    case KERN_F32:
        w.data = floats(m, n);
        break;
    case KERN_BF16:
        w.data = values(m, n, 2);
        break;
    case KERN_I8:
        w.data = bytes(m, n, 0, 256);
        w.scale = floats(m, rows);
        break;
    case KERN_MXFP4:
        w.data = bytes(m, n / 2, 0, 256);
        w.scale = m->mood == CASE_TAME   ? bytes(m, n / 32, 118, 9)
                  : m->mood == CASE_WIDE ? bytes(m, n / 32, 67, 100)
                                         : bytes(m, n / 32, 0, 256);
        break;
    }
    m->b->weights = m->used - before;
    return w;
}

/* ---- the cases ---- */

enum kind {
    PRODUCT,
    NORM,
    GNORM,
    MIX,
    SITU,
    GATE,
    CONV,
    KDA,
    STORE,
    MLA,
    ROUTER,
    COMBINE,
    CHECK,
    ADD,
    WIDEN,
    MULVEC
};

struct spec {
    const char *name;
    enum kind kind;
    enum kern_type type;
    uint32_t rows, cols, T; /* products; others: T; MLA: rows = positions before */
};

static const struct spec specs[] = {
    {"mxfp4 expert w1, 1 row", PRODUCT, KERN_MXFP4, 3072, 3584, 1},
    {"mxfp4 expert w2, 1 row", PRODUCT, KERN_MXFP4, 3584, 3072, 1},
    {"mxfp4 expert w1, 2 rows", PRODUCT, KERN_MXFP4, 3072, 3584, 2},
    {"mxfp4 expert w1, 4 rows", PRODUCT, KERN_MXFP4, 3072, 3584, 4},
    {"mxfp4 expert w1, 7 rows", PRODUCT, KERN_MXFP4, 3072, 3584, 7},
    {"mxfp4 expert w1, 16 rows", PRODUCT, KERN_MXFP4, 3072, 3584, 16},
    {"bf16 kda q, 1 row", PRODUCT, KERN_BF16, 12288, 7168, 1},
    {"bf16 kda q, 2 rows", PRODUCT, KERN_BF16, 12288, 7168, 2},
    {"bf16 kda q, 3 rows", PRODUCT, KERN_BF16, 12288, 7168, 3},
    {"bf16 kda q, 8 rows", PRODUCT, KERN_BF16, 12288, 7168, 8},
    {"bf16 kda q, 16 rows", PRODUCT, KERN_BF16, 12288, 7168, 16},
    {"bf16 kda out, 1 row", PRODUCT, KERN_BF16, 7168, 12288, 1},
    {"bf16 mla kv_a, 1 row", PRODUCT, KERN_BF16, 576, 7168, 1},
    {"bf16 mla q_b, 1 row", PRODUCT, KERN_BF16, 18432, 1536, 1},
    {"bf16 lm_head, 1 row", PRODUCT, KERN_BF16, 163840, 7168, 1},
    {"int8 kda q, 1 row", PRODUCT, KERN_I8, 12288, 7168, 1},
    {"int8 kda q, 4 rows", PRODUCT, KERN_I8, 12288, 7168, 4},
    {"int8 kda q, 16 rows", PRODUCT, KERN_I8, 12288, 7168, 16},
    {"f32 router, 1 row", PRODUCT, KERN_F32, 896, 7168, 1},
    {"f32 router, 16 rows", PRODUCT, KERN_F32, 896, 7168, 16},
    {"f32 router, 2 rows", PRODUCT, KERN_F32, 896, 7168, 2},
    {"int8 kda q, 2 rows", PRODUCT, KERN_I8, 12288, 7168, 2},
    {"f32 router, 4 rows", PRODUCT, KERN_F32, 896, 7168, 4},
    {"rmsnorm 7168, 1 row", NORM, KERN_BF16, 0, 7168, 1},
    {"rmsnorm 1536, 16 rows", NORM, KERN_F32, 0, 1536, 16},
    {"gated norm, 1 row", GNORM, KERN_F32, 0, 0, 1},
    {"gated norm, 16 rows", GNORM, KERN_F32, 0, 0, 16},
    {"AttnRes over 9, 1 row", MIX, KERN_F32, 8, 7168, 1},
    {"AttnRes over 5, 16 rows", MIX, KERN_F32, 4, 7168, 16},
    {"SiTU 33792", SITU, KERN_F32, 0, 33792, 1},
    {"gate 12288", GATE, KERN_F32, 0, 12288, 1},
    {"conv, 1 row", CONV, KERN_F32, 0, 0, 1},
    {"conv, 16 rows", CONV, KERN_F32, 0, 0, 16},
    {"kda, 1 row", KDA, KERN_F32, 0, 0, 1},
    {"kda, 16 rows", KDA, KERN_F32, 0, 0, 16},
    {"mla store, 16 rows", STORE, KERN_BF16, 0, 0, 16},
    {"mla bf16, 1 row over 4096", MLA, KERN_BF16, 4095, 0, 1},
    {"mla int8, 1 row over 4096", MLA, KERN_I8, 4095, 0, 1},
    {"mla bf16, 1 row over 65536", MLA, KERN_BF16, 65535, 0, 1},
    {"mla f32, 16 rows over 2000", MLA, KERN_F32, 1984, 0, 16},
    {"router 896, 1 row", ROUTER, KERN_F32, 0, 0, 1},
    {"router 896, 16 rows", ROUTER, KERN_F32, 0, 0, 16},
    {"combine, 1 row", COMBINE, KERN_F32, 0, 0, 1},
    {"combine, 16 rows", COMBINE, KERN_F32, 0, 0, 16},
    {"check 163840", CHECK, KERN_F32, 0, 163840, 1},
    {"add 7168", ADD, KERN_F32, 0, 7168, 1},
    {"widen 7168", WIDEN, KERN_BF16, 0, 7168, 1},
    {"mulvec 7168", MULVEC, KERN_BF16, 0, 7168, 1},
};

static uint32_t less(uint32_t n, uint32_t by)
{
    return n / by ? n / by : 1;
}

static void make_product(struct maker *m, const struct spec *s, uint32_t rows)
{
    struct kern_cmd *c = &m->b->cmd;
    c->op = KERN_MATMUL;
    c->u.matmul.w = matrix(m, s->type, rows, s->cols);
    c->u.matmul.x = floats(m, (size_t)s->T * s->cols);
    c->u.matmul.y = output(m, (size_t)s->T * rows);
    c->u.matmul.xstride = s->cols;
    c->u.matmul.ystride = rows;
    c->u.matmul.T = s->T;
    m->b->flop = 2.0 * rows * s->cols * s->T;
}

static void make_kda(struct maker *m, const struct spec *s, uint32_t H)
{
    struct kern_cmd *c = &m->b->cmd;
    uint32_t D = 128, HD = H * D;
    c->op = KERN_KDA;
    c->u.kda.q = floats(m, (size_t)s->T * HD);
    c->u.kda.k = floats(m, (size_t)s->T * HD);
    c->u.kda.v = floats(m, (size_t)s->T * HD);
    c->u.kda.f = floats(m, (size_t)s->T * HD);
    c->u.kda.b = floats(m, (size_t)s->T * H);
    c->u.kda.a_log = floats(m, H);
    c->u.kda.dt_bias = floats(m, HD);
    c->u.kda.S = state(m, (size_t)HD * D);
    c->u.kda.o = output(m, (size_t)s->T * HD);
    c->u.kda.H = H;
    c->u.kda.D = D;
    c->u.kda.T = s->T;
    c->u.kda.lower = -5.0f;
    c->u.kda.eps = 1e-6f;
    m->b->flop = 9.0 * HD * D * s->T;
}

static void make_mla(struct maker *m, const struct spec *s, uint32_t H, uint32_t pos0)
{
    struct kern_cmd *c = &m->b->cmd;
    uint32_t rank = 512, rope = 64, nope = 128, vdim = 128;
    c->op = KERN_MLA;
    c->u.mla.q = floats(m, (size_t)s->T * H * (nope + rope));
    c->u.mla.cache = floats(m, (size_t)(pos0 + s->T) * (rank + rope));
    c->u.mla.kvb = matrix(m, s->type, H * (nope + vdim), rank);
    c->u.mla.o = output(m, (size_t)s->T * H * vdim);
    c->u.mla.H = H;
    c->u.mla.nope = nope;
    c->u.mla.rope = rope;
    c->u.mla.vdim = vdim;
    c->u.mla.rank = rank;
    c->u.mla.T = s->T;
    c->u.mla.pos0 = pos0;
    m->b->weights = 0; /* one part of several */
    m->b->flop =
        2.0 * H * s->T * ((double)(pos0 + s->T) * (2 * rank + rope) + (double)(nope + vdim) * rank);
}

static void make_conv(struct maker *m, const struct spec *s, uint32_t C)
{
    struct kern_cmd *c = &m->b->cmd;
    c->op = KERN_CONV;
    c->u.conv.x = floats(m, (size_t)s->T * C);
    c->u.conv.w = floats(m, (size_t)C * 4);
    c->u.conv.hist = state(m, (size_t)C * 3);
    c->u.conv.y = output(m, (size_t)s->T * C);
    c->u.conv.xstride = c->u.conv.ystride = c->u.conv.C = C;
    c->u.conv.K = 4;
    c->u.conv.T = s->T;
}

static void make_norms(struct maker *m, const struct spec *s, uint32_t H)
{
    struct kern_cmd *c = &m->b->cmd;
    uint32_t T = s->T, n = s->cols;
    switch (s->kind) {
    case NORM:
        c->op = KERN_RMSNORM;
        c->u.rmsnorm.x = floats(m, (size_t)T * n);
        c->u.rmsnorm.w.type = s->type;
        c->u.rmsnorm.w.data = values(m, n, s->type == KERN_F32 ? 4 : 2);
        c->u.rmsnorm.y = output(m, (size_t)T * n);
        c->u.rmsnorm.xstride = c->u.rmsnorm.ystride = c->u.rmsnorm.n = n;
        c->u.rmsnorm.T = T;
        c->u.rmsnorm.eps = 1e-5f;
        return;
    case GNORM:
        c->op = KERN_GATED_NORM;
        c->u.gated_norm.o = floats(m, (size_t)T * H * 128);
        c->u.gated_norm.w = floats(m, 128);
        c->u.gated_norm.z = floats(m, (size_t)T * H * 128);
        c->u.gated_norm.y = output(m, (size_t)T * H * 128);
        c->u.gated_norm.H = H;
        c->u.gated_norm.D = 128;
        c->u.gated_norm.T = T;
        c->u.gated_norm.eps = 1e-5f;
        return;
    case MIX:
        c->op = KERN_MIX;
        c->u.mix.bank = floats(m, (size_t)s->rows * T * n);
        c->u.mix.p = floats(m, (size_t)T * n);
        c->u.mix.s = floats(m, n);
        c->u.mix.y = output(m, (size_t)T * n);
        c->u.mix.bank_stride = (size_t)T * n;
        c->u.mix.nb = s->rows;
        c->u.mix.n = n;
        c->u.mix.T = T;
        c->u.mix.eps = 1e-5f;
        return;
    default:
        c->op = KERN_MLA_STORE;
        c->u.mla_store.c = floats(m, (size_t)T * 576);
        c->u.mla_store.w.type = s->type;
        c->u.mla_store.w.data = values(m, 512, 2);
        c->u.mla_store.cache = output(m, (size_t)(T + 5) * 576);
        c->u.mla_store.cstride = 576;
        c->u.mla_store.rank = 512;
        c->u.mla_store.rope = 64;
        c->u.mla_store.T = T;
        c->u.mla_store.pos0 = 5;
        c->u.mla_store.eps = 1e-6f;
    }
}

static void make_router(struct maker *m, const struct spec *s)
{
    struct kern_cmd *c = &m->b->cmd;
    c->op = KERN_ROUTER;
    c->u.router.logits = floats(m, (size_t)s->T * 896);
    c->u.router.bias = floats(m, 896);
    c->u.router.ids = output(m, (size_t)s->T * 16);
    c->u.router.w = output(m, (size_t)s->T * 16);
    c->u.router.E = 896;
    c->u.router.k = 16;
    c->u.router.T = s->T;
    c->u.router.renorm = true;
    c->u.router.scale = 1.0f;
    for (size_t i = 0; m->p && i < 200; i++) { /* ties at one logit and one bias */
        memcpy(m->p + c->u.router.logits.off + 4 * (i * 3), "\0\0\x20\x40", 4);
        memset(m->p + c->u.router.bias.off + 4 * (i * 3), 0, 4);
    }
}

static void make_elementwise(struct maker *m, const struct spec *s)
{
    struct kern_cmd *c = &m->b->cmd;
    uint32_t n = s->cols;
    switch (s->kind) {
    case SITU:
        c->op = KERN_SITU;
        c->u.situ.g = floats(m, n);
        c->u.situ.u = floats(m, n);
        c->u.situ.y = output(m, n);
        c->u.situ.n = n;
        c->u.situ.beta = 4.0f;
        c->u.situ.lbeta = 25.0f;
        return;
    case GATE:
        c->op = KERN_GATE;
        c->u.gate.x = floats(m, n);
        c->u.gate.g = floats(m, n);
        c->u.gate.y = output(m, n);
        c->u.gate.n = n;
        return;
    case COMBINE:
        c->op = KERN_COMBINE;
        c->u.combine.n = 3584;
        c->u.combine.k = 16;
        c->u.combine.T = s->T;
        c->u.combine.y = floats(m, (size_t)s->T * 16 * 3584);
        c->u.combine.w = floats(m, (size_t)s->T * 16);
        c->u.combine.u = output(m, (size_t)s->T * 3584);
        return;
    case CHECK:
        c->op = KERN_CHECK;
        c->u.check.x = floats(m, n);
        c->u.check.flag = output(m, 1);
        c->u.check.n = n;
        c->u.check.tag = 77;
        return;
    case ADD:
        c->op = KERN_ADD;
        c->u.add.a = floats(m, n);
        c->u.add.b = floats(m, n);
        c->u.add.y = output(m, n);
        c->u.add.n = n;
        return;
    case WIDEN:
        c->op = KERN_WIDEN;
        c->u.widen.src = (struct kern_vec){KERN_BF16, values(m, n, 2)};
        c->u.widen.y = output(m, n);
        c->u.widen.n = n;
        return;
    default:
        c->op = KERN_MULVEC;
        c->u.mulvec.a = (struct kern_vec){KERN_BF16, values(m, n, 2)};
        c->u.mulvec.b = (struct kern_vec){KERN_F32, floats(m, n)};
        c->u.mulvec.y = output(m, n);
        c->u.mulvec.n = n;
    }
}

static void make(struct maker *m, size_t i, const struct case_scale *k)
{
    const struct spec *s = &specs[i];
    uint32_t H = less(96, k->heads);
    *m->b = (struct case_built){.name = s->name};
    m->rng = (i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)m->mood;
    switch (s->kind) {
    case PRODUCT:
        make_product(m, s, less(s->rows, k->rows));
        break;
    case KDA:
        make_kda(m, s, H);
        break;
    case MLA:
        make_mla(m, s, H, s->rows / k->positions);
        break;
    case CONV:
        make_conv(m, s, H * 128);
        break;
    case ROUTER:
        make_router(m, s);
        break;
    case NORM:
    case GNORM:
    case MIX:
    case STORE:
        make_norms(m, s, H);
        break;
    default:
        make_elementwise(m, s);
    }
}

size_t case_count(void)
{
    return sizeof specs / sizeof *specs;
}

const char *case_name(size_t i)
{
    return specs[i].name;
}

size_t case_arena(size_t i, const struct case_scale *s)
{
    struct case_built b;
    struct maker m = {.b = &b};
    make(&m, i, s);
    return m.used;
}

void case_build(size_t i, const struct case_scale *s, enum case_mood mood, struct kern_buf *arena,
                struct case_built *b)
{
    struct maker m = {.p = arena->host, .arena = arena, .mood = mood, .b = b};
    make(&m, i, s);
}

size_t case_compare(const struct case_built *b, const void *want, const void *got)
{
    for (unsigned i = 0; i < b->outs; i++) {
        for (size_t at = b->out[i].off; at < b->out[i].off + b->out[i].size; at += 4) {
            uint32_t w, g;
            memcpy(&w, (const char *)want + at, 4);
            memcpy(&g, (const char *)got + at, 4);
            bool nan = (w & 0x7fffffffu) > 0x7f800000u && (g & 0x7fffffffu) > 0x7f800000u;
            if (w != g && !nan) {
                return at;
            }
        }
    }
    return SIZE_MAX;
}
