/* SPDX-License-Identifier: MIT
 * t_ops.c: every command gives the same bits for all instruction sets, 1, 2, 3 and 8 threads, rows
 * together or apart, subnormals kept or flushed; writes nowhere else; and gives the bits of the
 * committed digests, which x86-64 and arm64 builds share. */
#include "kernels/kt.h"

#define PRINT_DIGESTS "SHOAL_PRINT_DIGESTS" /* set it to see the values after a change of rules */

static struct kt_config configs[KT_CONFIGS];
static size_t n_configs;

static const uint32_t lengths[] = {1, 2, 7, 8, 9, 31, 32, 33, 40, 63, 65, 100, 257, 700};
#define LENGTHS (sizeof lengths / sizeof *lengths)

typedef void build(struct kt *k, uint32_t variant);

static void run(const char *what, build *b, uint32_t variants, uint64_t want)
{
    uint64_t digest = 14695981039346656037u;
    for (uint32_t v = 0; v < variants; v++) {
        for (int mood = KT_TAME; mood <= KT_HOSTILE; mood++) {
            struct kt k;
            kt_begin(&k, what, (enum kt_mood)mood, v * 3u + (unsigned)mood);
            b(&k, v);
            kt_run_all(&k, configs, n_configs, &digest);
            kt_end(&k);
        }
    }
    if (getenv(PRINT_DIGESTS)) {
        printf("    run(\"%s\", ..., UINT64_C(0x%016llx))\n", what, (unsigned long long)digest);
        return;
    }
    if (digest != want) {
        fail_msg("%s: digest %016llx, committed %016llx", what, (unsigned long long)digest,
                 (unsigned long long)want);
    }
}

static enum kern_type vec_type(uint32_t i)
{
    return i % 2 ? KERN_BF16 : KERN_F32;
}

static void build_matmul(struct kt *k, uint32_t v)
{
    uint32_t rows = 1 + kt_below(k, 70), cols = lengths[v / 4 % LENGTHS], T = 1 + kt_below(k, 9);
    struct kern_cmd *c = &k->cmd;
    c->op = KERN_MATMUL;
    c->u.matmul.w = kt_mat(k, (enum kern_type)(v % 4), rows, cols);
    uint32_t xs = cols + kt_below(k, 5), ys = rows + kt_below(k, 5);
    c->u.matmul.xstride = xs;
    c->u.matmul.ystride = ys;
    c->u.matmul.T = k->T = T;
    if (v % 3) { /* rows picked and scattered by maps */
        c->u.matmul.xmap = kt_raw(k, T * 4, 4);
        c->u.matmul.ymap = kt_raw(k, T * 4, 4);
        uint32_t *xm = (uint32_t *)kt_f(k, c->u.matmul.xmap);
        uint32_t *ym = (uint32_t *)kt_f(k, c->u.matmul.ymap);
        for (uint32_t t = 0; t < T; t++) {
            xm[t] = kt_below(k, T + 2);
            ym[t] = (t * 5 + 3) % 11; /* T <= 9 < 11: no duplicates */
        }
        c->u.matmul.x = kt_floats(k, (size_t)(T + 2) * xs);
        c->u.matmul.y = kt_room(k, 11, rows, ys);
    } else {
        c->u.matmul.x = kt_floats(k, (size_t)T * xs);
        c->u.matmul.y = kt_room(k, T, rows, ys);
    }
}

static void build_widen(struct kt *k, uint32_t v)
{
    uint32_t n = lengths[v / 2];
    k->cmd.op = KERN_WIDEN;
    k->cmd.u.widen.src = kt_vec(k, vec_type(v), n);
    k->cmd.u.widen.n = n;
    k->cmd.u.widen.y = kt_room(k, 1, n, n);
}

static void build_mulvec(struct kt *k, uint32_t v)
{
    uint32_t n = lengths[v / 4];
    k->cmd.op = KERN_MULVEC;
    k->cmd.u.mulvec.a = kt_vec(k, vec_type(v), n);
    k->cmd.u.mulvec.b = kt_vec(k, vec_type(v / 2), n);
    k->cmd.u.mulvec.n = n;
    k->cmd.u.mulvec.y = kt_room(k, 1, n, n);
}

/* y apart, or on a, or on b */
static struct kern_ref in_place(struct kt *k, uint32_t v, struct kern_ref a, struct kern_ref b,
                                size_t n)
{
    if (v % 3 == 0) {
        return kt_room(k, 1, n, n);
    }
    struct kern_ref y = v % 3 == 1 ? a : b;
    kt_writes(k, y, 1, n, n);
    return y;
}

static void build_add(struct kt *k, uint32_t v)
{
    uint32_t n = lengths[v / 3];
    k->cmd.op = KERN_ADD;
    k->cmd.u.add.a = kt_floats(k, n);
    k->cmd.u.add.b = kt_floats(k, n);
    k->cmd.u.add.n = n;
    k->cmd.u.add.y = in_place(k, v, k->cmd.u.add.a, k->cmd.u.add.b, n);
}

static void build_situ(struct kt *k, uint32_t v)
{
    uint32_t n = lengths[v / 3];
    k->cmd.op = KERN_SITU;
    k->cmd.u.situ.g = kt_floats(k, n);
    k->cmd.u.situ.u = kt_floats(k, n);
    k->cmd.u.situ.n = n;
    k->cmd.u.situ.beta = 4.0f;
    k->cmd.u.situ.lbeta = 25.0f;
    k->cmd.u.situ.y = in_place(k, v, k->cmd.u.situ.g, k->cmd.u.situ.u, n);
}

static void build_gate(struct kt *k, uint32_t v)
{
    uint32_t n = lengths[v / 3];
    k->cmd.op = KERN_GATE;
    k->cmd.u.gate.x = kt_floats(k, n);
    k->cmd.u.gate.g = kt_floats(k, n);
    k->cmd.u.gate.n = n;
    k->cmd.u.gate.y = in_place(k, v, k->cmd.u.gate.x, k->cmd.u.gate.g, n);
}

static void build_rmsnorm(struct kt *k, uint32_t v)
{
    uint32_t n = lengths[v / 2], T = 1 + kt_below(k, 8), xs = n + kt_below(k, 9);
    struct kern_cmd *c = &k->cmd;
    c->op = KERN_RMSNORM;
    c->u.rmsnorm.x = kt_floats(k, (size_t)T * xs);
    c->u.rmsnorm.w = kt_vec(k, vec_type(v), n);
    c->u.rmsnorm.xstride = xs;
    c->u.rmsnorm.n = n;
    c->u.rmsnorm.T = k->T = T;
    c->u.rmsnorm.eps = v % 2 ? 1e-5f : 1e-6f;
    if (kt_below(k, 2)) {
        c->u.rmsnorm.y = c->u.rmsnorm.x;
        c->u.rmsnorm.ystride = xs;
        kt_writes(k, c->u.rmsnorm.y, T, n, xs);
    } else {
        c->u.rmsnorm.ystride = n + kt_below(k, 9);
        c->u.rmsnorm.y = kt_room(k, T, n, c->u.rmsnorm.ystride);
    }
}

static void build_mix(struct kt *k, uint32_t v)
{
    uint32_t n = lengths[v], T = 1 + kt_below(k, 5), nb = 1 + kt_below(k, 12);
    struct kern_cmd *c = &k->cmd;
    c->op = KERN_MIX;
    c->u.mix.bank_stride = (size_t)T * n + kt_below(k, 20);
    c->u.mix.bank = kt_floats(k, nb * c->u.mix.bank_stride);
    c->u.mix.p = kt_floats(k, (size_t)T * n);
    c->u.mix.s = kt_floats(k, n);
    c->u.mix.nb = nb;
    c->u.mix.n = n;
    c->u.mix.T = k->T = T;
    c->u.mix.eps = 1e-5f;
    c->u.mix.y = kt_room(k, T, n, n);
}

static void build_conv(struct kt *k, uint32_t v)
{
    uint32_t C = lengths[v / 4], K = 1 + v % 4, T = 1 + kt_below(k, 9);
    struct kern_cmd *c = &k->cmd;
    if (v % 5 == 4) {
        K = 9;
    }
    c->op = KERN_CONV;
    c->u.conv.xstride = C + kt_below(k, 9);
    c->u.conv.ystride = C + kt_below(k, 9);
    c->u.conv.C = C;
    c->u.conv.K = K;
    c->u.conv.T = k->T = T;
    c->u.conv.x = kt_floats(k, (size_t)T * c->u.conv.xstride);
    c->u.conv.w = kt_floats(k, (size_t)C * K);
    c->u.conv.y = kt_room(k, T, C, c->u.conv.ystride);
    if (K > 1) {
        c->u.conv.hist = kt_floats(k, (size_t)(K - 1) * C);
        kt_writes(k, c->u.conv.hist, 1, (size_t)(K - 1) * C, (size_t)(K - 1) * C);
    }
}

static void build_kda(struct kt *k, uint32_t v)
{
    static const uint32_t dims[] = {1, 4, 7, 8, 16, 24, 32, 33, 44, 64};
    uint32_t D = dims[v], H = 1 + kt_below(k, 5), T = 1 + kt_below(k, 6), HD = H * D;
    struct kern_cmd *c = &k->cmd;
    c->op = KERN_KDA;
    c->u.kda.q = kt_floats(k, T * HD);
    c->u.kda.k = kt_floats(k, T * HD);
    c->u.kda.v = kt_floats(k, T * HD);
    c->u.kda.f = kt_floats(k, T * HD);
    c->u.kda.b = kt_floats(k, T * H);
    c->u.kda.a_log = kt_floats(k, H);
    c->u.kda.dt_bias = kt_floats(k, HD);
    c->u.kda.S = kt_floats(k, HD * D);
    c->u.kda.H = H;
    c->u.kda.D = D;
    c->u.kda.T = k->T = T;
    c->u.kda.lower = -5.0f;
    c->u.kda.eps = 1e-6f;
    kt_writes(k, c->u.kda.S, 1, HD * D, HD * D);
    c->u.kda.o = kt_room(k, T, HD, HD);
}

static void build_gated_norm(struct kt *k, uint32_t v)
{
    uint32_t D = lengths[v / 3], H = 1 + kt_below(k, 4), T = 1 + kt_below(k, 5);
    struct kern_cmd *c = &k->cmd;
    c->op = KERN_GATED_NORM;
    c->u.gated_norm.o = kt_floats(k, T * H * D);
    c->u.gated_norm.z = kt_floats(k, T * H * D);
    c->u.gated_norm.w = kt_floats(k, D);
    c->u.gated_norm.H = H;
    c->u.gated_norm.D = D;
    c->u.gated_norm.T = k->T = T;
    c->u.gated_norm.eps = 1e-5f;
    c->u.gated_norm.y = in_place(k, v, c->u.gated_norm.o, c->u.gated_norm.z, T * H * D);
}

static void build_mla_store(struct kt *k, uint32_t v)
{
    uint32_t rank = lengths[v / 2], rope = v % 3 ? 1 + kt_below(k, 20) : 0, w = rank + rope;
    uint32_t T = 1 + kt_below(k, 6), pos0 = kt_below(k, 10);
    struct kern_cmd *c = &k->cmd;
    c->op = KERN_MLA_STORE;
    c->u.mla_store.cstride = w + kt_below(k, 5);
    c->u.mla_store.c = kt_floats(k, (size_t)T * c->u.mla_store.cstride);
    c->u.mla_store.w = kt_vec(k, vec_type(v), rank);
    c->u.mla_store.cache = kt_floats(k, (size_t)(pos0 + T) * w);
    c->u.mla_store.rank = rank;
    c->u.mla_store.rope = rope;
    c->u.mla_store.T = k->T = T;
    c->u.mla_store.pos0 = pos0;
    c->u.mla_store.eps = 1e-6f;
    struct kern_ref rows = kern_at(&k->buf, c->u.mla_store.cache.off + (size_t)pos0 * w * 4);
    kt_writes(k, rows, T, w, w);
}

static void build_mla(struct kt *k, uint32_t v)
{
    static const enum kern_type types[] = {KERN_F32, KERN_BF16, KERN_I8};
    static const uint32_t ranks[] = {1, 8, 12, 32, 37, 64, 96, 105};
    uint32_t rank = ranks[v / 3 % 8], rope = kt_below(k, 4) ? kt_below(k, 40) : 0;
    uint32_t H = 1 + kt_below(k, 9), nope = 1 + kt_below(k, 24), vdim = 1 + kt_below(k, 24);
    uint32_t T = 1 + kt_below(k, 7), pos0 = v % 2 ? kt_below(k, 150) : kt_below(k, 4);
    struct kern_cmd *c = &k->cmd;
    c->op = KERN_MLA;
    c->u.mla.q = kt_floats(k, (size_t)T * H * (nope + rope));
    c->u.mla.cache = kt_floats(k, (size_t)(pos0 + T) * (rank + rope));
    c->u.mla.kvb = kt_mat(k, types[v % 3], H * (nope + vdim), rank);
    c->u.mla.o = kt_room(k, T, H * vdim, H * vdim);
    c->u.mla.H = H;
    c->u.mla.nope = nope;
    c->u.mla.rope = rope;
    c->u.mla.vdim = vdim;
    c->u.mla.rank = rank;
    c->u.mla.T = k->T = T;
    c->u.mla.pos0 = pos0;
}

static void build_router(struct kt *k, uint32_t v)
{
    uint32_t E = lengths[v % LENGTHS], K = 1 + kt_below(k, E < 16 ? E : 16), T = 1 + kt_below(k, 6);
    struct kern_cmd *c = &k->cmd;
    c->op = KERN_ROUTER;
    c->u.router.logits = kt_floats(k, T * E);
    c->u.router.bias = kt_floats(k, E);
    if (v >= LENGTHS) { /* many ties */
        float *l = kt_f(k, c->u.router.logits), *b = kt_f(k, c->u.router.bias);
        for (uint32_t i = 0; i < T * E; i++) {
            l[i] = (float)kt_below(k, 3);
        }
        for (uint32_t i = 0; i < E; i++) {
            b[i] = 0.0f;
        }
    }
    c->u.router.ids = kt_room(k, T, K, K);
    c->u.router.w = kt_room(k, T, K, K);
    c->u.router.E = E;
    c->u.router.k = K;
    c->u.router.T = k->T = T;
    c->u.router.renorm = v % 3 != 0;
    c->u.router.scale = v % 2 ? 1.0f : 2.5f;
}

static void build_combine(struct kt *k, uint32_t v)
{
    uint32_t n = lengths[v], K = 1 + kt_below(k, 16), T = 1 + kt_below(k, 6);
    struct kern_cmd *c = &k->cmd;
    c->op = KERN_COMBINE;
    c->u.combine.y = kt_floats(k, (size_t)T * K * n);
    c->u.combine.w = kt_floats(k, (size_t)T * K);
    c->u.combine.u = kt_room(k, T, n, n);
    c->u.combine.n = n;
    c->u.combine.k = K;
    c->u.combine.T = k->T = T;
}

static void build_check(struct kt *k, uint32_t v)
{
    static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff, 0xffc00001};
    uint32_t n = lengths[v / 2 % LENGTHS];
    struct kern_cmd *c = &k->cmd;
    c->op = KERN_CHECK;
    c->u.check.x = kt_floats(k, n);
    if (v >= 2 * LENGTHS) {
        memcpy(kt_f(k, c->u.check.x) + kt_below(k, n), &bad[v % 5], 4);
    }
    c->u.check.flag = kt_raw(k, 4, 4);
    *(uint32_t *)kt_f(k, c->u.check.flag) = v % 2 ? 7 : 0;
    kt_writes(k, c->u.check.flag, 1, 1, 1);
    c->u.check.n = n;
    c->u.check.tag = 99;
}

#define CASE(op, variants, digest)                        \
    static void test_##op(void **state)                   \
    {                                                     \
        run(#op, build_##op, variants, UINT64_C(digest)); \
    }

CASE(matmul, 4 * LENGTHS, 0x8762cd460e5a0953)
CASE(widen, 2 * LENGTHS, 0x1d73d299a1ac4bf5)
CASE(mulvec, 4 * LENGTHS, 0x5efcc81bef7d65eb)
CASE(add, 3 * LENGTHS, 0xe9e714a77bc8d268)
CASE(situ, 3 * LENGTHS, 0xd28067206ea9fe69)
CASE(gate, 3 * LENGTHS, 0xf1a20dc0aa03f1e0)
CASE(rmsnorm, 2 * LENGTHS, 0xfb72c418e26de406)
CASE(mix, LENGTHS, 0x867e9c446ef0bc01)
CASE(conv, 4 * LENGTHS, 0x0e2f2004c01f0283)
CASE(kda, 10, 0x713b4141cbc06ad8)
CASE(gated_norm, 3 * LENGTHS, 0x235816b3b245182a)
CASE(mla_store, 2 * LENGTHS, 0x6d48b1f0365d0697)
CASE(mla, 24, 0x40cfae7a801948d4)
CASE(router, 2 * LENGTHS, 0x39107d757b287282)
CASE(combine, LENGTHS, 0x786519c0ceaf62ce)
CASE(check, 4 * LENGTHS, 0x451a5b190cd91fa0)

/* Work large enough to be spread by the ordinary grain, which the small cases are not. */
static void test_large(void **state)
{
    uint64_t digest = 14695981039346656037u;
    for (int mood = KT_TAME; mood <= KT_HOSTILE; mood++) {
        struct kt k;
        kt_begin(&k, "large situ", (enum kt_mood)mood, 77);
        uint32_t n = 60001;
        k.cmd.op = KERN_SITU;
        k.cmd.u.situ.g = kt_floats(&k, n);
        k.cmd.u.situ.u = kt_floats(&k, n);
        k.cmd.u.situ.y = kt_room(&k, 1, n, n);
        k.cmd.u.situ.n = n;
        k.cmd.u.situ.beta = 3.3f;
        k.cmd.u.situ.lbeta = 20.0f;
        struct kern_cpu_opts o = {KERN_ISA_AUTO, 3, false, false};
        struct kt_config c = {.threads = 3};
        assert_int_equal(kern_cpu_open(&o, &c.b), 0);
        c.arena = c.b->alloc(c.b, KT_ARENA);
        assert_non_null(c.arena);
        struct kt_config both[2] = {configs[0], c};
        kt_run_all(&k, both, 2, &digest);
        c.b->free(c.b, c.arena);
        c.b->close(c.b);
        kt_end(&k);
    }
}

static int setup(void **state)
{
    n_configs = kt_open(configs);
    return 0;
}

static int teardown(void **state)
{
    kt_close(configs, n_configs);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),     cmocka_unit_test(test_widen),
        cmocka_unit_test(test_mulvec),     cmocka_unit_test(test_add),
        cmocka_unit_test(test_situ),       cmocka_unit_test(test_gate),
        cmocka_unit_test(test_rmsnorm),    cmocka_unit_test(test_mix),
        cmocka_unit_test(test_conv),       cmocka_unit_test(test_kda),
        cmocka_unit_test(test_gated_norm), cmocka_unit_test(test_mla_store),
        cmocka_unit_test(test_mla),        cmocka_unit_test(test_router),
        cmocka_unit_test(test_combine),    cmocka_unit_test(test_check),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
