/* SPDX-License-Identifier: MIT
 * t_sample.c: sampling (Philox against its published vectors, filters against a plain
 * double-precision reading of their definitions) and the receipt (recomputed here by hand). */
#include "kernels/backend.h"
#include "node/infer/receipt.h"
#include "node/infer/sample.h"
#include "proto/base/num.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void philox_vectors(void **s)
{
    static const struct {
        uint32_t ctr[4], key[2], want[4];
    } v[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        uint32_t out[4];
        sample_philox(v[i].ctr, v[i].key, out);
        assert_memory_equal(out, v[i].want, sizeof out);
    }
}

#define N 50
static uint64_t scratch[N];

/* How often each id comes in `draws` draws. */
static void histogram(const struct sample_opts *o, const float *l, uint32_t n, unsigned draws,
                      unsigned *count)
{
    memset(count, 0, n * sizeof *count);
    for (unsigned i = 0; i < draws; i++) {
        uint32_t id = sample_pick(o, l, n, i, scratch);
        assert_in_range(id, 0, n - 1);
        count[id]++;
    }
}

static void greedy_takes_the_lower_id(void **s)
{
    float l[4] = {1, 3, 3, 2};
    struct sample_opts o = {.temperature = 0, .top_p = 1};
    assert_int_equal(sample_pick(&o, l, 4, 0, scratch), 1);
    o.temperature = 1;
    o.top_k = 1;
    assert_int_equal(sample_pick(&o, l, 4, 9, scratch), 1);
}

static void draws_follow_the_softmax(void **s)
{
    float l[5] = {0, 1, 2, -1, -200};
    struct sample_opts o = {.temperature = 0.7f, .top_p = 1, .seed = 42};
    unsigned c[5], draws = 40000;
    histogram(&o, l, 5, draws, c);
    double sum = 0, p[5];
    for (int i = 0; i < 5; i++) {
        sum += p[i] = exp(l[i] / 0.7);
    }
    for (int i = 0; i < 5; i++) {
        double want = p[i] / sum, sd = sqrt(want * (1 - want) / draws);
        assert_true(fabs(c[i] / (double)draws - want) <= 5 * sd + 1e-9);
    }
    unsigned again[5];
    histogram(&o, l, 5, draws, again);
    assert_memory_equal(c, again, sizeof c);
    o.seed = 43;
    histogram(&o, l, 5, draws, again);
    assert_memory_not_equal(c, again, sizeof c);
}

static void filters_keep_what_they_say(void **s)
{
    /* p = 0.5 0.25 0.125 0.0625 0.0625 after sorting; ids deliberately not in that order */
    float ln2 = 0.69314718f, l[5] = {-2 * ln2, 0, -3 * ln2, -1 * ln2, -3 * ln2};
    unsigned c[5];
    struct sample_opts o = {.temperature = 1, .top_p = 0.7f, .seed = 5};
    histogram(&o, l, 5, 4000, c); /* 0.5 + 0.25 >= 0.7: two stay */
    assert_true(c[1] && c[3] && !c[0] && !c[2] && !c[4]);
    o = (struct sample_opts){.temperature = 1, .top_p = 1, .min_p = 0.2f, .seed = 5};
    histogram(&o, l, 5, 4000, c); /* 0.125 = 0.25 of the largest stays, 0.0625 goes */
    assert_true(c[1] && c[3] && c[0] && !c[2] && !c[4]);
    o = (struct sample_opts){.temperature = 1, .top_p = 1, .top_k = 4, .seed = 5};
    histogram(&o, l, 5, 4000, c); /* of the two equal last ones the lower id stays */
    assert_true(c[1] && c[3] && c[0] && c[2] && !c[4]);
}

static void options_are_checked(void **s)
{
    struct err e = {0};
    struct sample_opts ok = {.temperature = 1, .top_p = 1}, o = ok;
    assert_int_equal(sample_check(&o, &e), 0);
    o.temperature = -1;
    assert_int_equal(sample_check(&o, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "temperature"));
    o = ok;
    o.temperature = NAN;
    assert_int_equal(sample_check(&o, &e), ERR_ARG);
    o = ok;
    o.top_p = 0;
    assert_int_equal(sample_check(&o, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "top_p"));
    o = ok;
    o.min_p = 2;
    assert_int_equal(sample_check(&o, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "min_p"));
}

static void receipt_is_the_stated_chain(void **s)
{
    uint8_t root[32], buf[256], d[32];
    for (int i = 0; i < 32; i++) {
        root[i] = (uint8_t)i;
    }
    uint32_t prompt[2] = {7, 0x01020304};
    float logits[2] = {1.0f, -0.0f};
    struct receipt r;
    receipt_begin(&r, root, "bf16", prompt, 2);
    size_t n = 0;
    memcpy(buf, "shoal receipt 1\n", 16);
    n = 16;
    num_put_le32(buf + n, SHOAL_NUMERICS_VERSION);
    memcpy(buf + n + 4, root, 32);
    n += 36;
    num_put_le32(buf + n, 4);
    memcpy(buf + n + 4, "bf16", 4);
    n += 8;
    num_put_le32(buf + n, 2);
    num_put_le32(buf + n + 4, 7);
    num_put_le32(buf + n + 8, 0x01020304);
    n += 12;
    sha256(buf, n, d);
    assert_memory_equal(r.h, d, 32);
    receipt_add(&r, logits, 2, 1);
    memcpy(buf, d, 32);
    num_put_le32(buf + 32, 0x3f800000);
    num_put_le32(buf + 36, 0x80000000);
    num_put_le32(buf + 40, 1);
    sha256(buf, 44, d);
    assert_memory_equal(r.h, d, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_vectors),           cmocka_unit_test(greedy_takes_the_lower_id),
        cmocka_unit_test(draws_follow_the_softmax), cmocka_unit_test(filters_keep_what_they_say),
        cmocka_unit_test(options_are_checked),      cmocka_unit_test(receipt_is_the_stated_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
