/* SPDX-License-Identifier: MIT
 * kt.c: see kt.h. */
#include "kernels/kt.h"

#define GUARD 64

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* ---- configurations ---- */

size_t kt_open(struct kt_config c[KT_CONFIGS])
{
    static const enum kern_isa isas[] = {KERN_ISA_SCALAR, KERN_ISA_AVX2, KERN_ISA_NEON};
    static const unsigned threads[] = {1, 2, 3, 8};
    size_t n = 0;
    for (size_t i = 0; i < 3; i++) {
        if (!kern_isa_available(isas[i])) {
            continue;
        }
        for (size_t t = 0; t < 4; t++) {
            for (int flush = 0; flush < 2; flush++) {
                c[n] = (struct kt_config){isas[i], threads[t], flush, threads[t] > 1, NULL, NULL};
                struct kern_cpu_opts o = {isas[i], threads[t], flush, c[n].small};
                assert_int_equal(kern_cpu_open(&o, &c[n].b), 0);
                assert_int_equal(c[n].b->threads, threads[t]);
                c[n].arena = c[n].b->alloc(c[n].b, KT_ARENA);
                assert_non_null(c[n].arena);
                n++;
            }
        }
    }
    return n;
}

void kt_close(struct kt_config *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        c[i].b->free(c[i].b, c[i].arena);
        c[i].b->close(c[i].b);
    }
}

/* ---- operands ---- */

void kt_begin(struct kt *k, const char *what, enum kt_mood mood, uint64_t seed)
{
    *k = (struct kt){.rng = seed * 0x9e3779b97f4a7c15u + 1, .mood = mood, .what = what};
    k->master = malloc(KT_ARENA);
    k->expect = malloc(KT_ARENA);
    assert_non_null(k->master);
    assert_non_null(k->expect);
    memset(k->master, 0xa5, KT_ARENA);
    k->buf = (struct kern_buf){k->master, KT_ARENA, NULL};
    k->used = GUARD;
}

void kt_end(struct kt *k)
{
    free(k->master);
    free(k->expect);
}

uint32_t kt_rnd(struct kt *k)
{
    k->rng = k->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((k->rng ^ k->rng >> 31) >> 16);
}

uint32_t kt_below(struct kt *k, uint32_t n)
{
    return (uint32_t)((uint64_t)kt_rnd(k) * n >> 32);
}

float kt_value(struct kt *k)
{
    static const uint32_t special[] = {
        0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0x00000001,
        0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x20800000, 0x207fffff, 0x3f800000,
        0x42ac0000, 0xc2ac0000, 0xc2ac0001, 0x42b17217, 0x42b17218, 0x3f0ccccd,
    };
    uint32_t sign = kt_rnd(k) & 0x80000000u, fraction = kt_rnd(k) & 0x7fffffu;
    switch (k->mood) {
    case KT_TAME:
        return from_bits(sign | (123 + kt_below(k, 5)) << 23 | fraction);
    case KT_WIDE:
        if (!kt_below(k, 8)) {
            return 0.0f;
        }
        return from_bits(sign |
                         (kt_below(k, 2) ? 65 + kt_below(k, 83) : 120 + kt_below(k, 10)) << 23 |
                         fraction);
    default:
        if (kt_below(k, 3)) { /* mostly plain, so that NaN does not drown everything */
            return from_bits(sign | (120 + kt_below(k, 10)) << 23 | fraction);
        }
        if (kt_below(k, 4)) {
            return from_bits(sign | (kt_below(k, 2) ? 0 : kt_below(k, 255)) << 23 | fraction);
        }
        return from_bits(special[kt_below(k, sizeof special / sizeof *special)]);
    }
}

static struct kern_ref room(struct kt *k, size_t bytes, size_t align)
{
    k->used = (k->used + GUARD + align - 1) / align * align;
    if (align == 4) {
        k->used += 4 * kt_below(k, 8); /* vectors must not count on alignment */
    }
    assert_true(k->used + bytes + GUARD <= KT_ARENA);
    struct kern_ref r = kern_at(&k->buf, k->used);
    k->used += bytes;
    return r;
}

float *kt_f(const struct kt *k, struct kern_ref r)
{
    return (float *)(void *)((char *)k->buf.host + r.off);
}

struct kern_ref kt_floats(struct kt *k, size_t n)
{
    struct kern_ref r = room(k, n * 4, 4);
    for (size_t i = 0; i < n; i++) {
        kt_f(k, r)[i] = kt_value(k);
    }
    return r;
}

struct kern_ref kt_bf16(struct kt *k, size_t n)
{
    struct kern_ref r = room(k, n * 2, 2);
    for (size_t i = 0; i < n; i++) {
        uint16_t v = (uint16_t)(bits(kt_value(k)) >> 16);
        memcpy((char *)k->buf.host + r.off + 2 * i, &v, 2);
    }
    return r;
}

struct kern_ref kt_raw(struct kt *k, size_t n, size_t align)
{
    struct kern_ref r = room(k, n, align);
    for (size_t i = 0; i < n; i++) {
        k->master[r.off + i] = (uint8_t)kt_rnd(k);
    }
    return r;
}

struct kern_ref kt_scales(struct kt *k, size_t n)
{
    struct kern_ref r = room(k, n, 1);
    for (size_t i = 0; i < n; i++) {
        k->master[r.off + i] = k->mood == KT_TAME   ? 124 + kt_below(k, 5)
                               : k->mood == KT_WIDE ? 67 + kt_below(k, 100)
                                                    : kt_below(k, 256);
    }
    return r;
}

struct kern_vec kt_vec(struct kt *k, enum kern_type type, size_t n)
{
    struct kern_vec v = {type, type == KERN_BF16 ? kt_bf16(k, n) : kt_floats(k, n)};
    return v;
}

struct kern_mat kt_mat(struct kt *k, enum kern_type type, uint32_t rows, uint32_t cols)
{
    struct kern_mat m = {.type = type, .rows = rows, .cols = cols};
    size_t n = (size_t)rows * cols;
    switch (type) {
    case KERN_F32:
        m.data = kt_floats(k, n);
        break;
    case KERN_BF16:
        m.data = kt_bf16(k, n);
        break;
    case KERN_I8:
        m.data = kt_raw(k, n, 1);
        m.scale = kt_floats(k, rows);
        break;
    case KERN_MXFP4:
        m.data = kt_raw(k, (size_t)rows * ((cols + 1) / 2), 1);
        m.scale = kt_scales(k, (size_t)rows * ((cols + 31) / 32));
        break;
    }
    return m;
}

struct kern_ref kt_room(struct kt *k, size_t rows, size_t row, size_t stride)
{
    size_t n = (rows - 1) * stride + row;
    struct kern_ref r = room(k, n * 4, 4);
    kt_writes(k, r, rows, row, stride);
    return r;
}

void kt_writes(struct kt *k, struct kern_ref r, size_t rows, size_t row, size_t stride)
{
    assert_true(k->outs < KT_OUTS);
    k->out[k->outs++] = (struct kt_out){r.off, row * 4, stride * 4, rows};
}

/* ---- rows of a command ---- */

static void ahead(struct kern_ref *r, size_t values)
{
    if (r->buf) {
        r->off += values * 4;
    }
}

struct kern_cmd kt_slice(const struct kern_cmd *c, uint32_t t0, uint32_t n)
{
    struct kern_cmd s = *c;
    size_t t = t0;
    switch (s.op) {
    case KERN_MATMUL:
        if (s.u.matmul.xmap.buf) {
            ahead(&s.u.matmul.xmap, t);
        } else {
            ahead(&s.u.matmul.x, t * s.u.matmul.xstride);
        }
        if (s.u.matmul.ymap.buf) {
            ahead(&s.u.matmul.ymap, t);
        } else {
            ahead(&s.u.matmul.y, t * s.u.matmul.ystride);
        }
        s.u.matmul.T = n;
        break;
    case KERN_RMSNORM:
        ahead(&s.u.rmsnorm.x, t * s.u.rmsnorm.xstride);
        ahead(&s.u.rmsnorm.y, t * s.u.rmsnorm.ystride);
        s.u.rmsnorm.T = n;
        break;
    case KERN_MIX:
        ahead(&s.u.mix.bank, t * s.u.mix.n);
        ahead(&s.u.mix.p, t * s.u.mix.n);
        ahead(&s.u.mix.y, t * s.u.mix.n);
        s.u.mix.T = n;
        break;
    case KERN_CONV:
        ahead(&s.u.conv.x, t * s.u.conv.xstride);
        ahead(&s.u.conv.y, t * s.u.conv.ystride);
        s.u.conv.T = n;
        break;
    case KERN_KDA: {
        size_t row = t * s.u.kda.H * s.u.kda.D;
        ahead(&s.u.kda.q, row);
        ahead(&s.u.kda.k, row);
        ahead(&s.u.kda.v, row);
        ahead(&s.u.kda.f, row);
        ahead(&s.u.kda.o, row);
        ahead(&s.u.kda.b, t * s.u.kda.H);
        s.u.kda.T = n;
        break;
    }
    case KERN_GATED_NORM: {
        size_t row = t * s.u.gated_norm.H * s.u.gated_norm.D;
        ahead(&s.u.gated_norm.o, row);
        ahead(&s.u.gated_norm.z, row);
        ahead(&s.u.gated_norm.y, row);
        s.u.gated_norm.T = n;
        break;
    }
    case KERN_MLA_STORE:
        ahead(&s.u.mla_store.c, t * s.u.mla_store.cstride);
        s.u.mla_store.pos0 += t0;
        s.u.mla_store.T = n;
        break;
    case KERN_MLA:
        ahead(&s.u.mla.q, t * s.u.mla.H * (s.u.mla.nope + s.u.mla.rope));
        ahead(&s.u.mla.o, t * s.u.mla.H * s.u.mla.vdim);
        s.u.mla.pos0 += t0;
        s.u.mla.T = n;
        break;
    case KERN_ROUTER:
        ahead(&s.u.router.logits, t * s.u.router.E);
        ahead(&s.u.router.ids, t * s.u.router.k);
        ahead(&s.u.router.w, t * s.u.router.k);
        s.u.router.T = n;
        break;
    case KERN_COMBINE:
        ahead(&s.u.combine.y, t * s.u.combine.k * s.u.combine.n);
        ahead(&s.u.combine.w, t * s.u.combine.k);
        ahead(&s.u.combine.u, t * s.u.combine.n);
        s.u.combine.T = n;
        break;
    default:
        fail_msg("command %d has no rows", (int)s.op);
    }
    return s;
}

/* ---- runs ---- */

static bool written(const struct kt *k, size_t off)
{
    for (size_t i = 0; i < k->outs; i++) {
        const struct kt_out *o = &k->out[i];
        if (off >= o->off && off < o->off + (o->rows - 1) * o->stride + o->row &&
            (off - o->off) % o->stride < o->row) {
            return true;
        }
    }
    return false;
}

void kt_run(struct kt *k, struct kt_config *c, uint32_t chunk)
{
    uint8_t *host = c->arena->host;
    memcpy(host, k->master, k->used + GUARD);
    k->buf.host = host;
    struct kern_cmd cmds[64];
    size_t n = 0;
    if (!chunk || !k->T) {
        cmds[n++] = k->cmd;
    } else {
        for (uint32_t t = 0; t < k->T; t += chunk) {
            assert_true(n < 64);
            cmds[n++] = kt_slice(&k->cmd, t, k->T - t < chunk ? k->T - t : chunk);
        }
    }
    uint64_t fence = 0;
    int r = c->b->submit(c->b, cmds, n, &fence);
    if (r) {
        fail_msg("%s: submit gave %d", k->what, r);
    }
    assert_int_equal(c->b->wait(c->b, fence), 0);
    for (size_t i = 0; i < k->used + GUARD; i++) {
        if (host[i] != k->master[i] && !written(k, i)) {
            fail_msg("%s: %s with %u threads, %u rows at a time, wrote byte %zu outside its output",
                     k->what, c->b->name, c->threads, chunk, i);
        }
    }
}

static uint32_t canonical(uint32_t u) /* any NaN is one NaN */
{
    return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : u;
}

static void compare(struct kt *k, const struct kt_config *c, uint32_t chunk)
{
    for (size_t i = 0; i < k->outs; i++) {
        const struct kt_out *o = &k->out[i];
        for (size_t r = 0; r < o->rows; r++) {
            for (size_t b = 0; b < o->row; b += 4) {
                uint32_t got, want;
                size_t at = o->off + r * o->stride + b;
                memcpy(&got, (uint8_t *)c->arena->host + at, 4);
                memcpy(&want, k->expect + at, 4);
                if (canonical(got) != canonical(want)) {
                    fail_msg("%s (mood %d): output %zu row %zu element %zu is %a (%08x) on %s, %u "
                             "threads, flush %d, chunk %u; the reference has %a (%08x)",
                             k->what, (int)k->mood, i, r, b / 4, (double)from_bits(got), got,
                             c->b->name, c->threads, (int)c->flush, chunk, (double)from_bits(want),
                             want);
                }
            }
        }
    }
}

static void digest_add(const struct kt *k, uint64_t *digest)
{
    for (size_t i = 0; i < k->outs; i++) {
        const struct kt_out *o = &k->out[i];
        for (size_t r = 0; r < o->rows; r++) {
            for (size_t b = 0; b < o->row; b += 4) {
                uint32_t u;
                memcpy(&u, k->expect + o->off + r * o->stride + b, 4);
                *digest = (*digest ^ canonical(u)) * 1099511628211u;
            }
        }
    }
}

void kt_run_all(struct kt *k, struct kt_config *c, size_t n, uint64_t *digest)
{
    static const uint32_t chunks[] = {0, 1, 3};
    for (size_t i = 0; i < n; i++) {
        if (c[i].flush && k->mood == KT_HOSTILE) {
            continue;
        }
        for (size_t j = 0; j < (k->T > 1 ? 3 : 1); j++) {
            kt_run(k, &c[i], chunks[j]);
            if (!k->expected) {
                memcpy(k->expect, c[i].arena->host, k->used + GUARD);
                k->expected = true;
                digest_add(k, digest);
            } else {
                compare(k, &c[i], chunks[j]);
            }
        }
    }
}
