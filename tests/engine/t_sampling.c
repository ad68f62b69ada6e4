/* SPDX-License-Identifier: MIT
 * t_sampling.c: penalties, bias, masks, logprobs against libm. */
#include "node/engine/sampling.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define V 64

static void fill(float *l)
{
    for (uint32_t i = 0; i < V; i++) {
        l[i] = (float)((i * 37 % V) * 0.125 - 3);
    }
    l[5] = 9;
    l[6] = 8.5f;
    l[7] = -2;
}

static uint32_t pick(const struct engine_sampling *o, const uint32_t *prompt, size_t n,
                     const uint32_t *took, size_t n_took, const uint32_t *mask, int want)
{
    struct sampling s;
    struct err e = {0};
    float l[V];
    uint32_t id = 999;
    fill(l);
    assert_int_equal(sampling_check(o, V, &e), 0);
    assert_int_equal(sampling_open(&s, o, V, prompt, n, &e), 0);
    for (size_t i = 0; i < n_took; i++) {
        sampling_took(&s, took[i]);
    }
    assert_int_equal(sampling_pick(&s, l, mask, 0, &id, &e), want);
    sampling_close(&s);
    return id;
}

static void test_order(void **state)
{
    (void)state;
    struct engine_sampling o = {.base = {.top_p = 1}};
    uint32_t five[] = {5, 5};
    assert_int_equal(pick(&o, NULL, 0, five, 2, NULL, 0), 5);
    o.presence = 0.4f; /* 9 - 0.4 > 8.5 */
    assert_int_equal(pick(&o, NULL, 0, five, 2, NULL, 0), 5);
    o.presence = 0.6f;
    assert_int_equal(pick(&o, NULL, 0, five, 2, NULL, 0), 6);
    assert_int_equal(pick(&o, five, 2, NULL, 0, NULL, 0), 5); /* of the answer only */
    o.presence = 0;
    o.frequency = 0.3f; /* twice */
    assert_int_equal(pick(&o, NULL, 0, five, 2, NULL, 0), 6);
    assert_int_equal(pick(&o, NULL, 0, five, 1, NULL, 0), 5);
    o.frequency = 0;
    o.repetition = 1.1f; /* 9 / 1.1 < 8.5: of the prompt, too */
    assert_int_equal(pick(&o, five, 1, NULL, 0, NULL, 0), 6);
    o.repetition = 0;
    struct engine_bias b[] = {{7, 20}, {5, -100}};
    o.bias = b;
    o.n_bias = 2;
    assert_int_equal(pick(&o, NULL, 0, NULL, 0, NULL, 0), 7);
    b[0].add = 1;
    assert_int_equal(pick(&o, NULL, 0, NULL, 0, NULL, 0), 6);
    uint32_t mask[2] = {1u << 7 | 1u << 9, 0};
    o.n_bias = 0;
    assert_int_equal(pick(&o, NULL, 0, NULL, 0, mask, 0), 9); /* 9 * 37 % 64: -2.375; 7: -2 */
    mask[0] = 1u << 5;
    o.n_bias = 2;
    pick(&o, NULL, 0, NULL, 0, mask, ERR_NUMERIC);
    o.base.temperature = 1.5f; /* drawn, but only from what may come */
    mask[0] = 1u << 3 | 1u << 11;
    for (uint64_t seed = 0; seed < 50; seed++) {
        o.base.seed = seed;
        uint32_t id = pick(&o, NULL, 0, NULL, 0, mask, 0);
        assert_true(id == 3 || id == 11);
    }
}

static void test_logprobs(void **state)
{
    (void)state;
    struct engine_sampling o = {.base = {.top_p = 1}, .logprobs = true, .top = 5};
    struct sampling s;
    struct err e = {0};
    float l[V];
    fill(l);
    assert_int_equal(sampling_open(&s, &o, V, NULL, 0, &e), 0);
    double sum = 0;
    for (int i = 0; i < V; i++) {
        sum += exp(l[i]);
    }
    for (uint32_t id = 0; id < V; id++) {
        struct engine_token t = {.id = id};
        sampling_logprobs(&s, l, &t);
        assert_true(fabs(t.logprob - (l[id] - log(sum))) < 2e-6);
        assert_int_equal(t.n_top, 5);
        assert_int_equal(t.top[0].id, 5);
        assert_int_equal(t.top[1].id, 6);
        for (uint32_t k = 1; k < 5; k++) {
            assert_true(
                t.top[k].logprob < t.top[k - 1].logprob ||
                (t.top[k].logprob == t.top[k - 1].logprob && t.top[k].id > t.top[k - 1].id));
        }
    }
    sampling_close(&s);
    for (double x = 1e-30; x < 1e30; x *= 1.37) {
        assert_true(fabs(sampling_ln(x) - log(x)) < 1e-12 + fabs(log(x)) * 1e-14);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct engine_bias far = {V, 0}, much = {1, 101};
    const struct engine_sampling bad[] = {
        {.base = {.top_p = 1}, .presence = 2.5f},
        {.base = {.top_p = 1}, .frequency = NAN},
        {.base = {.top_p = 1}, .repetition = -1},
        {.base = {.top_p = 1}, .top = 21},
        {.base = {.top_p = 1}, .bias = &far, .n_bias = 1},
        {.base = {.top_p = 1}, .bias = &much, .n_bias = 1},
        {.base = {.top_p = 0}},
        {.base = {.top_p = 1, .temperature = -1}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        assert_int_not_equal(sampling_check(&bad[i], V, &e), 0);
        assert_true(e.msg[0] != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
