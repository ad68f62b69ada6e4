/* SPDX-License-Identifier: MIT
 * t_math.c: exp, sigmoid, tanh and silu over the binary32 numbers: the largest error against double
 * precision in units in the last place, printed and bounded; the same bits from every instruction
 * set; exact values at the edges. `t_math N` takes every Nth number (997 when not given). */
#include "kernels/kt.h"

#include "kernels/ops.h"

#include <inttypes.h>

static uint32_t step = 997;

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

/* |y - r| in units in the last place of a binary32 number of r's size. */
static double ulps(float y, double r)
{
    int e;
    if (r == 0) {
        return fabs((double)y) / 0x1p-149;
    }
    frexp(r, &e);
    return fabs((double)y - r) / ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

static const char *const names[] = {"exp", "sigmoid", "tanh", "silu"};
static const double bounds[] = {1, 4, 4, 4};
static float (*const scalar[])(float) = {kern_exp, kern_sigmoid, kern_tanh, kern_silu};

#define LO (-86.0f)
#define HI 0x1.62e42ep6f /* the largest binary32 number whose exp is below 2^128 */

struct worst {
    double ulp;
    float x;
};

static void look(int fn, float x, float y, struct worst *w)
{
    double d = x, r;
    bool tiny = fabsf(x) < 0x1p-40f; /* there the first terms are exact enough, and quicker */
    if (isnan(x)) {
        assert_true(isnan(y));
        return;
    }
    switch (fn) {
    case KERN_FN_EXP:
        if (x < LO) {
            assert_int_equal(bits(y), 0);
            return;
        }
        if (x > HI) {
            assert_int_equal(bits(y), 0x7f800000);
            return;
        }
        r = tiny ? 1 + d : exp(d);
        break;
    case KERN_FN_SIGMOID:
        if (x < LO) {
            assert_int_equal(bits(y), 0);
            return;
        }
        r = tiny ? 0.5 + d / 4 : x > 50 ? 1 : 1 / (1 + exp(-d));
        break;
    case KERN_FN_TANH:
        r = fabsf(x) > 20 ? copysign(1, d) : fabsf(x) < 0x1p-20f ? d : tanh(d);
        break;
    default:
        if (x == -INFINITY) {
            assert_true(isnan(y));
            return;
        }
        if (x < LO) {
            assert_int_equal(bits(y), 0x80000000u);
            return;
        }
        r = tiny ? d / 2 : x > 50 ? d : d / (1 + exp(-d));
        break;
    }
    if (isinf(r) || isinf(y)) {
        assert_true(r == (double)y);
        return;
    }
    double u = ulps(y, r);
    if (!(u <= w->ulp)) {
        w->ulp = u;
        w->x = x;
    }
}

#define BATCH 1000 /* no multiple of a vector */

static void test_bounds(void **state)
{
    static const enum kern_isa isas[] = {KERN_ISA_AVX2, KERN_ISA_NEON};
    const struct kern_ops *simd = NULL;
    for (size_t i = 0; i < 2; i++) {
        if (kern_isa_available(isas[i])) {
            simd = kern_ops_of(isas[i]);
        }
    }
    struct worst worst[4] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
    float x[BATCH], ref[BATCH], y[BATCH];
    for (uint64_t u = 0; u <= UINT32_MAX;) {
        size_t n = 0;
        for (; n < BATCH && u <= UINT32_MAX; u += step) {
            x[n++] = from_bits((uint32_t)u);
        }
        for (int fn = 0; fn < 4; fn++) {
            kern_ops_scalar.map((enum kern_fn)fn, ref, x, n);
            for (size_t i = 0; i < n; i++) {
                look(fn, x[i], ref[i], &worst[fn]);
            }
            if (!simd) {
                continue;
            }
            simd->map((enum kern_fn)fn, y, x, n);
            for (size_t i = 0; i < n; i++) {
                if (bits(y[i]) != bits(ref[i]) && !(isnan(y[i]) && isnan(ref[i]))) {
                    fail_msg("%s(%a) is %a on %s and %a in the reference", names[fn], (double)x[i],
                             (double)y[i], simd->name, (double)ref[i]);
                }
            }
        }
    }
    for (int fn = 0; fn < 4; fn++) {
        printf("%-8s largest error %.4f ulp, at %a (every %" PRIu32 "th binary32)\n", names[fn],
               worst[fn].ulp, (double)worst[fn].x, step);
        assert_true(worst[fn].ulp > 0.4); /* a reference that cannot differ would prove nothing */
        assert_true(worst[fn].ulp <= bounds[fn]);
    }
}

static void test_edges(void **state)
{
    assert_int_equal(bits(kern_exp(0.0f)), bits(1.0f));
    assert_int_equal(bits(kern_exp(-0.0f)), bits(1.0f));
    assert_int_equal(bits(kern_exp(0x1p-149f)), bits(1.0f));
    assert_true(kern_exp(-86.0f) > 0x1p-125f);
    assert_int_equal(bits(kern_exp(nextafterf(-86.0f, -100.0f))), 0);
    assert_int_equal(bits(kern_exp(-INFINITY)), 0);
    assert_true(isfinite(kern_exp(HI)));
    assert_true(isinf(kern_exp(nextafterf(HI, 100.0f))));
    assert_true(isinf(kern_exp(INFINITY)));
    assert_true(isnan(kern_exp(NAN)) && isnan(kern_sigmoid(NAN)) && isnan(kern_tanh(NAN)));
    assert_int_equal(bits(kern_sigmoid(0.0f)), bits(0.5f));
    assert_int_equal(bits(kern_sigmoid(INFINITY)), bits(1.0f));
    assert_int_equal(bits(kern_sigmoid(-INFINITY)), 0);
    assert_int_equal(bits(kern_tanh(-0.0f)), 0x80000000u);
    assert_int_equal(bits(kern_tanh(INFINITY)), bits(1.0f));
    assert_int_equal(bits(kern_tanh(-INFINITY)), bits(-1.0f));
    assert_int_equal(bits(kern_silu(-0.0f)), 0x80000000u);
    for (int fn = 0; fn < 4; fn++) { /* the public forms are the reference's */
        for (float x = -90; x < 90; x += 0.37f) {
            float y;
            kern_ops_scalar.map((enum kern_fn)fn, &y, &x, 1);
            assert_int_equal(bits(y), bits(scalar[fn](x)));
        }
    }
}

/* tanh is odd and monotone where its two formulas meet. */
static void test_seam(void **state)
{
    float x = 0.5499f, last = kern_tanh(x);
    for (; x < 0.5501f; x = nextafterf(x, 1.0f)) {
        float y = kern_tanh(x);
        assert_true(y >= last - 0x1p-24f);
        assert_int_equal(bits(kern_tanh(-x)), bits(y) ^ 0x80000000u);
        last = y;
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        step = (uint32_t)strtoul(argv[1], NULL, 10);
        if (!step) {
            fprintf(stderr, "usage: t_math [every-nth]\n");
            return 2;
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_seam),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
