/* SPDX-License-Identifier: MIT
 * t_rate.c: estimators against values worked out by hand and against sorting. */
#include "peer/rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS 1000000ull

static void near(double got, double want, double part)
{
    if (got < want * (1 - part) || got > want * (1 + part)) {
        fail_msg("%g is not within %g of %g", got, part, want);
    }
}

static void steady(void **state)
{
    struct rate r;
    rate_init(&r);
    assert_false(rate_known(&r));
    near(rate_get(&r, 5e6), 5e6, 1e-12);
    for (int i = 0; i < 1000; i++) {
        rate_add(&r, 1 << 20, 10 * MS);
        near(rate_get(&r, 5e6), 104857600, 1e-9); /* at every step: 1 MiB in 10 ms */
    }
    assert_true(rate_known(&r));
}

static void change(void **state)
{
    struct rate r;
    rate_init(&r);
    for (int i = 0; i < 1000; i++) {
        rate_add(&r, 1 << 20, 10 * MS);
    }
    /* One chunk that took 10 s: keep = 1 / 21. The sums before it: ns = 10 ms / (1 - keep0) with
     * keep0 = 1 / 1.02, that is 510 ms. */
    double want = (510e6 / 10e6 * (1 << 20) / 21 + (1 << 20)) / (510e6 / 21 + 10e9) * 1e9;
    rate_add(&r, 1 << 20, 10000 * MS);
    near(rate_get(&r, 0), want, 1e-6);
    assert_true(rate_get(&r, 0) < 400e3);
    for (int i = 0; i < 150; i++) { /* 1.5 s at the old rate */
        rate_add(&r, 1 << 20, 10 * MS);
    }
    near(rate_get(&r, 0), 104857600, 0.6);
}

static void limits(void **state)
{
    struct rate r;
    rate_init(&r);
    near(rate_at_most(&r, 50e6, 1 << 20, 0), 50e6, 1e-12);
    near(rate_at_most(&r, 50e6, 1 << 20, 1000 * MS), 1 << 20, 1e-12);
    near(rate_at_most(&r, 50e6, 1 << 20, 1 * MS), 50e6, 1e-12);
    rate_add(&r, 0, 1000 * MS);
    near(rate_get(&r, 7), 1, 1e-12); /* never zero */
    rate_add(&r, 1, 0);
    assert_true(rate_get(&r, 7) >= 1);
    rate_set(&r, 3e6);
    near(rate_get(&r, 7), 3e6, 1e-12);
    rate_add(&r, 3000, 1 * MS);
    near(rate_get(&r, 7), 3e6, 1e-12);
    rate_set(&r, 0);
    assert_false(rate_known(&r));
}

static void latencies(void **state)
{
    struct latency l = {0};
    assert_int_equal(latency_get(&l, 77), 77);
    assert_int_equal(latency_least(&l, 78), 78);
    latency_add(&l, 800);
    assert_int_equal(latency_get(&l, 77), 800);
    latency_add(&l, 1600);
    assert_int_equal(latency_get(&l, 77), 900);
    assert_int_equal(latency_least(&l, 77), 900);
    latency_add(&l, 100);
    assert_int_equal(latency_get(&l, 77), 800);
    assert_int_equal(latency_least(&l, 77), 100);
}

static int cmp(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void percentiles(void **state)
{
    struct pct p;
    pct_init(&p);
    uint64_t all[1000];
    uint32_t x = 12345;
    for (uint32_t i = 0; i < 1000; i++) {
        x = x * 1664525 + 1013904223;
        all[i] = x >> 20; /* many are equal */
        pct_add(&p, all[i]);
        uint32_t n = i + 1 < PCT_SAMPLES ? i + 1 : PCT_SAMPLES;
        uint64_t s[PCT_SAMPLES];
        for (uint32_t k = 0; k < n; k++) {
            s[k] = all[i - k];
        }
        qsort(s, n, sizeof s[0], cmp);
        for (uint32_t q = 1; q <= 100; q += 9) {
            uint64_t got = pct_get(&p, q, UINT64_MAX);
            if (n < PCT_MIN) {
                assert_true(got == UINT64_MAX);
                continue;
            }
            /* By the definition, not by the rank. */
            uint32_t least = 0;
            while ((least + 1) * 100 < q * n) {
                least++;
            }
            assert_int_equal(got, s[least]);
            assert_int_equal(pct_get(&p, q, 0), got);
        }
    }
    assert_int_equal(pct_get(&p, 1000, 0), pct_get(&p, 100, 0));
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(steady),    cmocka_unit_test(change),      cmocka_unit_test(limits),
        cmocka_unit_test(latencies), cmocka_unit_test(percentiles),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
