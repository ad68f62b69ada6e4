/* SPDX-License-Identifier: MIT
 * t_draft.c: what prompt lookup finds, and when drafts are worth their rows, by made-up costs. */
#include "node/infer/speculate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void lookup(void **state)
{
    (void)state;
    uint32_t out[8];
    static const uint32_t a[] = {1, 2, 3, 4, 5, 9, 2, 3, 4, 7, 1, 2, 3, 4};
    /* the longest end that stood before is 1 2 3 4; the later 2 3 4 is shorter */
    assert_int_equal(draft_lookup.propose(NULL, a, 14, 3, out), 3);
    assert_int_equal(out[0], 5);
    assert_int_equal(out[1], 9);
    assert_int_equal(out[2], 2);
    /* of equally long ones the latest */
    static const uint32_t b[] = {1, 2, 8, 1, 2, 9, 1, 2};
    assert_int_equal(draft_lookup.propose(NULL, b, 8, 1, out), 1);
    assert_int_equal(out[0], 9);
    /* a loop goes on behind the end */
    static const uint32_t c[] = {5, 6, 7, 5, 6, 7, 5, 6};
    assert_int_equal(draft_lookup.propose(NULL, c, 8, 8, out), 8);
    static const uint32_t loop[] = {7, 5, 6, 7, 5, 6, 7, 5};
    assert_memory_equal(out, loop, sizeof loop);
    /* one equal token is none */
    static const uint32_t d[] = {1, 2, 3, 4, 2};
    assert_int_equal(draft_lookup.propose(NULL, d, 5, 4, out), 0);
    for (size_t n = 0; n <= 2; n++) {
        assert_int_equal(draft_lookup.propose(NULL, d, n, 4, out), 0);
    }
    static const uint32_t e[] = {3, 3, 3};
    assert_int_equal(draft_lookup.propose(NULL, e, 3, 2, out), 2);
    assert_int_equal(out[0], 3);
    assert_int_equal(out[1], 3);
}

/* ---- when it pays ---- */

static void pass_of(struct spec *s, uint32_t rows, uint32_t drafted, double each, double row)
{
    double part[SPEC_PARTS] = {[SPEC_COMPUTE] = each, [SPEC_DISK] = row * drafted};
    spec_cost(s, rows, drafted, part);
}

static uint32_t choose(struct spec *s, uint32_t rows, struct spec_luck *l, uint32_t have)
{
    struct spec_cand c = {l, have, 99};
    spec_choose(s, rows, &c, 1, 63);
    return c.use;
}

static void chosen_by_cost(void **state)
{
    (void)state;
    struct spec s;
    struct spec_luck good = {0}, bad = {0};
    spec_open(&s, NULL, &(struct spec_opts){.mode = SPEC_MEASURED});
    s.here = true;
    for (int i = 0; i < 20; i++) {
        spec_luck_add(&good, 4, 4);
        spec_luck_add(&bad, 1, 0);
    }
    assert_true(spec_luck_share(&good) > 0.9 && spec_luck_share(&bad) < 0.2);
    /* nothing before a plain pass is known */
    assert_int_equal(choose(&s, 1, &good, 8), 0);
    for (int i = 0; i < 4; i++) {
        pass_of(&s, 1, 0, 1, 0);
        assert_int_equal(choose(&s, 1, &good, 8) > 0, i == 3);
    }
    /* draft rows that cost little: all of a good draft, and nothing of a bad one once it is known
     */
    assert_in_range(choose(&s, 1, &good, 8), 1, 2); /* short ones first: they only measure */
    for (int i = 0; i < 20; i++) {
        pass_of(&s, 1, 4, 1, 0.05);
    }
    assert_int_equal(choose(&s, 1, &good, 8), 0); /* a plain pass is due */
    pass_of(&s, 1, 0, 1, 0);
    assert_int_equal(choose(&s, 1, &good, 8), 8);
    /* rows that cost nearly a pass each (experts from a disk): a good draft hardly pays */
    for (int i = 0; i < 20; i++) {
        pass_of(&s, 1, 4, 1, 0.97);
    }
    pass_of(&s, 1, 0, 1, 0);
    assert_int_equal(choose(&s, 1, &good, 8), 0);
    assert_non_null(s.s.why);
    assert_int_equal(choose(&s, 1, &bad, 8), 0);
    /* now and then one is tried, ever more seldom, and when rows have become cheap it is seen */
    uint32_t tried = 0;
    for (int i = 0; i < 3000; i++) {
        uint32_t k = choose(&s, 1, &good, 8);
        assert_true(k <= 4);
        tried += k > 0;
        pass_of(&s, 1, k, 1, 0.97);
    }
    assert_in_range(tried, 2, 8);
    for (int i = 0; i < 3000 && s.s.why; i++) {
        pass_of(&s, 1, choose(&s, 1, &good, 8), 1, 0.01);
    }
    assert_null(s.s.why);
    for (int i = 0; i < 200; i++) { /* and plain passes are measured still */
        uint32_t k = choose(&s, 1, &good, 8);
        pass_of(&s, 1, k, 1, 0.01);
        assert_true(s.since_plain <= 16);
    }
    /* beside seven others the same draft saves less of a pass */
    for (int i = 0; i < 4; i++) {
        pass_of(&s, 8, 0, 1, 0);
    }
    for (int i = 0; i < 20; i++) {
        pass_of(&s, 8, 4, 1, 0.11);
    }
    s.since_plain = 0;
    assert_true(choose(&s, 1, &good, 8) > 0);
    assert_int_equal(choose(&s, 8, &good, 8), 0);
    /* what costs somebody else's bytes is not guessed at */
    s.here = false;
    s.looked = true;
    double net[SPEC_PARTS] = {[SPEC_COMPUTE] = 1, [SPEC_NET] = 0.001};
    spec_cost(&s, 1, 0, net);
    assert_int_equal(choose(&s, 1, &good, 8), 0);
    for (int i = 0; i < 64; i++) {
        pass_of(&s, 1, 0, 1, 0);
    }
    assert_true(choose(&s, 1, &good, 8) > 0);
}

/* Rows that cost a pass each are found out by few of them, however good the draft is. */
static void learning_is_cheap(void **state)
{
    (void)state;
    struct spec s;
    struct spec_luck good = {40, 40};
    uint32_t rows = 0;
    spec_open(&s, NULL, &(struct spec_opts){.mode = SPEC_MEASURED});
    s.here = true;
    for (int i = 0; i < 60; i++) {
        uint32_t k = choose(&s, 1, &good, 15);
        pass_of(&s, 1, k, 1, 3); /* more than a pass, even */
        rows += k;
    }
    assert_in_range(rows, 1, 16);
}

static void rooms_are_shared(void **state)
{
    (void)state;
    struct spec s;
    struct spec_luck good = {40, 40}, fair = {40, 20};
    struct spec_cand c[3] = {{&fair, 6, 9}, {&good, 0, 9}, {&good, 6, 9}};
    spec_open(&s, NULL, &(struct spec_opts){.mode = SPEC_MEASURED});
    s.here = true;
    for (int i = 0; i < 4; i++) {
        pass_of(&s, 3, 0, 1, 0);
    }
    for (int i = 0; i < 8; i++) {
        pass_of(&s, 3, 5, 1, 0.01);
    }
    spec_choose(&s, 3, c, 3, 5);
    assert_int_equal(c[1].use, 0);
    assert_int_equal(c[0].use + c[2].use, 5);
    assert_true(c[2].use > c[0].use);
    s.o.mode = SPEC_ALWAYS;
    spec_choose(&s, 3, c, 3, 8);
    assert_int_equal(c[0].use, 6);
    assert_int_equal(c[2].use, 2);
    s.o.mode = SPEC_OFF;
    spec_choose(&s, 3, c, 3, 8);
    assert_int_equal(c[0].use + c[1].use + c[2].use, 0);
}

static void words(void **state)
{
    (void)state;
    struct spec_opts o;
    assert_true(spec_parse(NULL, &o) && o.mode == SPEC_MEASURED);
    assert_true(spec_parse("auto", &o) && o.mode == SPEC_MEASURED);
    assert_true(spec_parse("off", &o) && o.mode == SPEC_OFF);
    assert_true(spec_parse("0", &o) && o.mode == SPEC_OFF);
    assert_true(spec_parse("1", &o) && o.mode == SPEC_ALWAYS && o.most == 1);
    assert_true(spec_parse("63", &o) && o.most == 63);
    static const char *const wrong[] = {"", "64", "-1", "on", "4x", "99999999999999999999", " 3"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(spec_parse(wrong[i], &o));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookup),
        cmocka_unit_test(chosen_by_cost),
        cmocka_unit_test(learning_is_cheap),
        cmocka_unit_test(rooms_are_shared),
        cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
