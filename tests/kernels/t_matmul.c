/* SPDX-License-Identifier: MIT
 * t_matmul.c: the matrix products: every instruction set against an independent dot32, bit for bit,
 * over random shapes and hostile data; the worked examples of the format; a digest that x86-64 and
 * arm64 builds must both print. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/fpenv.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"

static const enum kern_isa all_isas[] = {KERN_ISA_SCALAR, KERN_ISA_AVX2, KERN_ISA_NEON};
#define N_ISAS (sizeof all_isas / sizeof *all_isas)
#define DIGEST UINT64_C(0xa066b676d27a0a53) /* of test_digest */

/* ---- random bits ---- */

static uint64_t rng_state;

static uint32_t rnd(void)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = rng_state;
    return (uint32_t)((x ^ x >> 31) >> 16);
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)((uint64_t)rnd() * n >> 32);
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return isnan(f) ? 0x7fc00000u : u;
}

enum mood { TAME, WIDE, HOSTILE };

/* TAME: about 2^-3 .. 2^1. WIDE: zero or 2^-62 .. 2^60, as activations are. HOSTILE: anything. */
static float value(enum mood mood)
{
    uint32_t sign = rnd() & 0x80000000u, fraction = rnd() & 0x7fffffu;
    if (mood == TAME)
        return from_bits(sign | (124 + below(4)) << 23 | fraction);
    if (mood == WIDE)
        return below(16) ? from_bits(sign | (127 - 62 + below(122)) << 23 | fraction) : 0.0f;
    switch (below(24)) {
    case 0:
        return from_bits(sign);
    case 1:
        return from_bits(sign | fraction); /* subnormal */
    case 2:
        return from_bits(sign | 1);
    case 3:
        return below(20) ? 1.0f : from_bits(sign | 0x7f800000u);
    case 4:
        return below(20) ? -1.0f : from_bits(sign | 0x7fc00001u);
    case 5:
        return from_bits(sign | 0x7f7fffffu);
    case 6:
    case 7:
    case 8:
        return from_bits(sign | below(255) << 23 | fraction);
    default:
        return value(TAME);
    }
}

/* ---- a product with its operands, each in its own allocation of exact size ---- */

struct product {
    struct kern_matmul m;
    uint8_t *data, *scale;
    float *x, *y;
    uint32_t *xmap, *ymap;
    size_t y_len; /* floats of y */
};

static const uint32_t GUARD = 0xdeadbeefu;

static void *exact(size_t n)
{
    void *p = malloc(n ? n : 1);
    assert_non_null(p);
    return p;
}

static size_t value_size(enum kern_type type)
{
    return type == KERN_F32 ? 4 : type == KERN_BF16 ? 2 : 1;
}

static void make_weights(struct product *p, enum kern_type type, enum mood mood)
{
    size_t rows = p->m.rows, cols = p->m.cols;
    size_t n = rows * cols, scales = 0;
    if (type == KERN_MXFP4) {
        n = rows * ((cols + 1) / 2);
        scales = rows * ((cols + 31) / 32);
    } else if (type == KERN_I8) {
        scales = rows * sizeof(float);
    }
    p->data = exact(n * value_size(type));
    p->scale = exact(scales);
    for (size_t i = 0; i < n; i++) {
        float f = value(mood == HOSTILE ? HOSTILE : TAME);
        uint32_t u = bits(f);
        if (type == KERN_F32)
            memcpy(p->data + i * 4, &u, 4);
        else if (type == KERN_BF16)
            memcpy(p->data + i * 2, &(uint16_t){(uint16_t)(u >> 16)}, 2);
        else
            p->data[i] = (uint8_t)rnd();
    }
    if (type == KERN_MXFP4) {
        for (size_t i = 0; i < scales; i++) {
            p->scale[i] = (uint8_t)(mood == TAME ? 112 + below(16) : 65 + below(125));
            if (mood == HOSTILE && !below(8))
                p->scale[i] = (uint8_t)below(below(16) ? 255 : 256);
        }
    } else {
        for (size_t i = 0; i * sizeof(float) < scales; i++) {
            float f = value(mood);
            memcpy(p->scale + i * sizeof f, &f, sizeof f);
        }
    }
}

static void shuffle(uint32_t *map, uint32_t n, uint32_t from)
{
    uint32_t *all = exact(from * sizeof *all);
    for (uint32_t i = 0; i < from; i++)
        all[i] = i;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = i + below(from - i);
        map[i] = all[j];
        all[j] = all[i];
    }
    free(all);
}

static void make(struct product *p, enum kern_type type, uint32_t rows, uint32_t cols, uint32_t T,
                 enum mood mood, bool maps)
{
    memset(p, 0, sizeof *p);
    p->m.type = type;
    p->m.rows = rows;
    p->m.cols = cols;
    p->m.T = T;
    make_weights(p, type, mood);
    uint32_t xrows = T, yrows = T;
    p->m.xstride = cols;
    p->m.ystride = rows;
    if (maps) {
        xrows = 1 + below(T + 3);
        yrows = T + below(4);
        p->m.xstride = cols + below(9);
        p->m.ystride = rows + below(9);
        p->xmap = exact(T * sizeof *p->xmap);
        p->ymap = exact(T * sizeof *p->ymap);
        for (uint32_t t = 0; t < T; t++)
            p->xmap[t] = below(xrows);
        shuffle(p->ymap, T, yrows);
    }
    size_t xn = (xrows - 1) * p->m.xstride + cols;
    p->x = exact(xn * sizeof *p->x);
    for (size_t i = 0; i < xn; i++)
        p->x[i] = value(mood);
    p->y_len = (yrows - 1) * p->m.ystride + rows;
    p->y = exact(p->y_len * sizeof *p->y);
    p->m.data = p->data;
    p->m.scale = p->scale;
    p->m.x = p->x;
    p->m.y = p->y;
    p->m.xmap = p->xmap;
    p->m.ymap = p->ymap;
}

static void discard(struct product *p)
{
    free(p->data);
    free(p->scale);
    free(p->x);
    free(p->y);
    free(p->xmap);
    free(p->ymap);
}

/* Runs the product in random pieces of tokens and rows, in random order of rows. */
static void run(struct product *p, enum kern_isa isa, bool pieces)
{
    for (size_t i = 0; i < p->y_len; i++)
        memcpy(p->y + i, &GUARD, sizeof GUARD);
    size_t n = kern_matmul_scratch(&p->m, isa);
    uint8_t *scratch = NULL;
    assert_int_equal(posix_memalign((void **)&scratch, 64, n + 64), 0);
    memset(scratch, 0xff, n + 64);
    uint32_t tcut = pieces ? below(p->m.T + 1) : 0;
    kern_matmul_prepare(&p->m, isa, scratch, tcut, p->m.T);
    kern_matmul_prepare(&p->m, isa, scratch, 0, tcut);
    uint32_t a = pieces ? below(p->m.rows + 1) : 0, b = a + (pieces ? below(p->m.rows - a + 1) : 0);
    kern_matmul_rows(&p->m, isa, scratch, b, p->m.rows);
    kern_matmul_rows(&p->m, isa, scratch, 0, a);
    kern_matmul_rows(&p->m, isa, scratch, a, b);
    for (size_t i = n; i < n + 64; i++)
        assert_int_equal(scratch[i], 0xff);
    free(scratch);
}

/* ---- the independent reference ---- */

static float weight(const struct product *p, size_t r, size_t c)
{
    static const float magnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    size_t cols = p->m.cols;
    switch (p->m.type) {
    case KERN_F32: {
        float f;
        memcpy(&f, p->data + (r * cols + c) * 4, 4);
        return f;
    }
    case KERN_BF16: {
        uint8_t *b = p->data + (r * cols + c) * 2;
        return from_bits((uint32_t)b[0] << 16 | (uint32_t)b[1] << 24);
    }
    case KERN_I8:
        return (float)(int8_t)p->data[r * cols + c];
    case KERN_MXFP4:
        break;
    }
    uint8_t byte = p->data[r * ((cols + 1) / 2) + c / 2];
    uint8_t s = p->scale[r * ((cols + 31) / 32) + c / 32];
    unsigned nibble = c % 2 ? byte >> 4 : byte & 15;
    if (s == 255)
        return NAN;
    float w = ldexpf(magnitude[nibble & 7], s - 127);
    return nibble & 8 ? -w : w;
}

/* NUMERICS.md section 2, written down once more; *exact and *sum: the product and the sum of its
 * magnitudes in long double. */
static float dot32(const struct product *p, size_t t, size_t r, long double *exactly,
                   long double *sum)
{
    const float *x = p->x + (p->xmap ? p->xmap[t] : t) * p->m.xstride;
    float acc[32] = {0};
    *exactly = *sum = 0;
    for (size_t i = 0; i < p->m.cols; i++) {
        float w = weight(p, r, i);
        acc[i % 32] = fmaf(w, x[i], acc[i % 32]);
        *exactly += (long double)w * x[i];
        *sum += fabsl((long double)w * x[i]);
    }
    for (int h = 16; h; h /= 2)
        for (int j = 0; j < h; j++)
            acc[j] = acc[j] + acc[j + h];
    float v = acc[0];
    if (p->m.type == KERN_I8) {
        float s;
        memcpy(&s, p->scale + r * sizeof s, sizeof s);
        v = s * v;
        *exactly *= s;
        *sum *= fabsf(s);
    }
    return fabsf(v) < 0x1p-62f ? 0.0f : v;
}

static void check(struct product *p, enum mood mood)
{
    float *want = exact(p->y_len * sizeof *want);
    for (size_t i = 0; i < p->y_len; i++)
        memcpy(want + i, &GUARD, sizeof GUARD);
    for (uint32_t t = 0; t < p->m.T; t++) {
        for (uint32_t r = 0; r < p->m.rows; r++) {
            long double exactly, sum;
            float v = dot32(p, t, r, &exactly, &sum);
            want[(p->ymap ? p->ymap[t] : t) * p->m.ystride + r] = v;
            if (mood == TAME) {
                long double bound = (p->m.cols / 32 + 8) * 0x1p-24L * sum + 0x1p-62L;
                assert_true(fabsl((long double)v - exactly) <= bound);
            }
        }
    }
    for (size_t k = 0; k < N_ISAS; k++) {
        if (!kern_isa_available(all_isas[k]))
            continue;
        run(p, all_isas[k], true);
        for (size_t i = 0; i < p->y_len; i++) {
            if (bits(p->y[i]) != bits(want[i]))
                fail_msg("%s: type %d, %u x %u, T %u, value %zu: %a, not %a",
                         kern_isa_name(all_isas[k]), (int)p->m.type, p->m.rows, p->m.cols, p->m.T,
                         i, (double)p->y[i], (double)want[i]);
        }
    }
    free(want);
}

/* ---- tests ---- */

static const enum kern_type types[] = {KERN_MXFP4, KERN_BF16, KERN_I8, KERN_F32};

static void test_every_width(void **state)
{
    rng_state = 1;
    for (size_t k = 0; k < 4; k++) {
        for (uint32_t cols = 0; cols <= 200; cols++) {
            struct product p;
            enum mood mood = (enum mood)(cols % 3);
            make(&p, types[k], 1 + below(11), cols, 1 + below(9), mood, cols % 2);
            check(&p, mood);
            discard(&p);
        }
    }
}

static void test_every_token_count(void **state)
{
    rng_state = 2;
    static const uint32_t Ts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                  12, 13, 15, 16, 17, 18, 19, 31, 32, 33, 50};
    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < sizeof Ts / sizeof *Ts; i++) {
            struct product p;
            enum mood mood = (enum mood)(i % 3);
            make(&p, types[k], 1 + below(21), 1 + below(700), Ts[i], mood, i % 2);
            check(&p, mood);
            discard(&p);
        }
    }
}

static void test_random_shapes(void **state)
{
    rng_state = 3;
    for (size_t i = 0; i < 400; i++) {
        struct product p;
        enum mood mood = (enum mood)below(3);
        uint32_t cols = below(4) ? below(300) : below(2) ? 32 * below(40) : 3000 + below(1200);
        uint32_t rows = below(8) ? below(20) : 20 + below(60);
        make(&p, types[below(4)], rows, cols, 1 + below(9), mood, below(2));
        check(&p, mood);
        discard(&p);
    }
}

/* One infinity, NaN or extreme weight or activation at each place of a vector, alone. */
static void test_lone_extremes(void **state)
{
    static const uint32_t extremes[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f7fffffu,
                                        0x00000001u, 0x80000000u, 0x807fffffu, 0x20ffffffu};
    rng_state = 4;
    for (size_t k = 0; k < 4; k++) {
        for (uint32_t place = 0; place < 70; place++) {
            for (size_t e = 0; e < sizeof extremes / sizeof *extremes; e++) {
                struct product p;
                make(&p, types[k], 3, 70, 1 + place % 4, place % 2 ? TAME : WIDE, false);
                p.x[place] = from_bits(extremes[e]);
                if (types[k] == KERN_MXFP4)
                    p.scale[place / 32] = (uint8_t)(e % 2 ? 255 - e : e - e % 3);
                if (types[k] == KERN_BF16)
                    memcpy(p.data + place * 2, &(uint16_t){(uint16_t)(extremes[e] >> 16)}, 2);
                check(&p, HOSTILE);
                discard(&p);
            }
        }
    }
}

/* Each scale byte with each nibble in each of the 32 columns of a block, seen through activations
 * that bring even the smallest and largest weights into the range that is stored. */
static void test_every_mxfp4_weight(void **state)
{
    static const int reach[] = {0, 100, -60, 127};
    struct product p;
    rng_state = 5;
    make(&p, KERN_MXFP4, 4096, 32, 32, TAME, false);
    for (size_t e = 0; e < sizeof reach / sizeof *reach; e++) {
        for (size_t r = 0; r < 4096; r++) {
            p.scale[r] = (uint8_t)(r / 16);
            memset(p.data + r * 16, (int)(r % 16 * 17), 16);
        }
        memset(p.x, 0, 32 * 32 * sizeof *p.x);
        for (size_t t = 0; t < 32; t++)
            p.x[t * 32 + t] = ldexpf(1.0f, reach[e]);
        for (size_t k = 0; k < N_ISAS; k++) {
            if (!kern_isa_available(all_isas[k]))
                continue;
            run(&p, all_isas[k], true);
            for (size_t r = 0; r < 4096; r++) {
                float w = weight(&p, r, 0);
                /* Infinite and NaN weights meet the zeros of x too. */
                float want = isfinite(w) ? ldexpf(w, reach[e]) : NAN;
                if (fabsf(want) < 0x1p-62f)
                    want = 0.0f;
                for (size_t t = 0; t < 32; t++)
                    assert_int_equal(bits(p.y[t * 4096 + r]), bits(want));
            }
        }
    }
    discard(&p);
}

/* The two examples of the format's description. */
static void test_examples(void **state)
{
    struct product p;
    rng_state = 6;
    make(&p, KERN_MXFP4, 2, 2, 2, TAME, false);
    p.data[0] = 0x2b;
    p.scale[0] = 0x7a;
    p.data[1] = 0xf1;
    p.scale[1] = 0x7f;
    static const float unit[4] = {1, 0, 0, 1}, want[4] = {-0.046875f, 0.5f, 0.03125f, -6.0f};
    memcpy(p.x, unit, sizeof unit);
    for (size_t k = 0; k < N_ISAS; k++) {
        if (!kern_isa_available(all_isas[k]))
            continue;
        run(&p, all_isas[k], false);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(bits(p.y[i]), bits(want[i]));
    }
    discard(&p);
}

/* The high nibble after an odd last column is no weight, whatever it holds. */
static void test_odd_last_nibble(void **state)
{
    struct product p;
    rng_state = 7;
    for (uint32_t cols = 1; cols < 64; cols += 2) {
        for (uint32_t T = 1; T < 4; T++) {
            make(&p, KERN_MXFP4, 3, cols, T, TAME, false);
            for (size_t r = 0; r < 3; r++) {
                p.data[(r + 1) * ((cols + 1) / 2) - 1] |= 0xf0;
                p.scale[(r + 1) * ((cols + 31) / 32) - 1] = 254; /* an infinity, were it read */
            }
            check(&p, HOSTILE);
            discard(&p);
        }
    }
}

/* Flushing subnormals changes nothing on what a node admits: activations zero or at least 2^-62. */
static void test_flushing(void **state)
{
    rng_state = 8;
    for (size_t i = 0; i < 60; i++) {
        struct product p;
        make(&p, types[i % 4], 9, 1 + below(300), 1 + below(5), i % 8 < 4 ? TAME : WIDE, false);
        for (size_t k = 0; k < N_ISAS; k++) {
            if (!kern_isa_available(all_isas[k]))
                continue;
            run(&p, all_isas[k], false);
            float *plain = exact(p.y_len * sizeof *plain);
            memcpy(plain, p.y, p.y_len * sizeof *plain);
            uint64_t former = kern_fpenv_enter(true);
            run(&p, all_isas[k], false);
            kern_fpenv_leave(former);
            for (size_t j = 0; j < p.y_len; j++)
                assert_int_equal(bits(p.y[j]), bits(plain[j]));
            free(plain);
        }
        discard(&p);
    }
}

/* FNV-1a over the results of fixed products. The value is the same on every architecture; when a
 * result changes on purpose, SHOAL_NUMERICS_VERSION is raised with it. */
static void test_digest(void **state)
{
    for (size_t k = 0; k < N_ISAS; k++) {
        if (!kern_isa_available(all_isas[k]))
            continue;
        uint64_t h = 14695981039346656037u;
        rng_state = 9;
        for (size_t i = 0; i < 240; i++) {
            struct product p;
            /* Named: the order in which arguments are evaluated is the compiler's. */
            uint32_t rows = 1 + below(40), cols = 1 + below(500), T = 1 + below(9);
            make(&p, types[i % 4], rows, cols, T, (enum mood)(i / 4 % 3), false);
            run(&p, all_isas[k], false);
            for (size_t j = 0; j < p.y_len; j++)
                h = (h ^ bits(p.y[j])) * 1099511628211u;
            discard(&p);
        }
        if (h != DIGEST)
            fail_msg("%s: digest %016llx, not %016llx", kern_isa_name(all_isas[k]),
                     (unsigned long long)h, (unsigned long long)DIGEST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_every_mxfp4_weight),
        cmocka_unit_test(test_odd_last_nibble),
        cmocka_unit_test(test_every_width),
        cmocka_unit_test(test_every_token_count),
        cmocka_unit_test(test_random_shapes),
        cmocka_unit_test(test_lone_extremes),
        cmocka_unit_test(test_flushing),
        cmocka_unit_test(test_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
