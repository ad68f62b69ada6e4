/* SPDX-License-Identifier: MIT
 * Rendezvous order: golden values (from another implementation, in Python), and that scores and
 * costs share objects out as the weights say. */
#include "peer/order.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void fill(uint8_t id[SHA256_SIZE], int byte)
{
    memset(id, byte, SHA256_SIZE);
}

static void golden_scores(void **state)
{
    (void)state;
    static const struct {
        int root;
        struct object_key k;
        int id;
        uint64_t score, cost; /* cost with weight root * 1000 + 1 */
    } want[] = {
        {0, {0, 0, 0}, 0, 0x758766728d4a4757, 0x011f855986ba0000},
        {1, {0, 0, 0}, 2, 0xbbc7d1b348ecb348, 0x00001d458eb6f78f},
        {7, {0, 91, 895}, 200, 0x661e0fb7c6914ac1, 0x00000c696da6447d},
        {7, {1, 0, 5}, 200, 0x448b45bfd40e3631, 0x000011cba9b39fcb},
        {255, {255, 65535, 16777215}, 255, 0x9ef17b08aec29de4, 0x0000002d3dc12a69},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        uint8_t root[SHA256_SIZE], id[SHA256_SIZE];
        fill(root, want[i].root);
        fill(id, want[i].id);
        struct order_seed s;
        order_seed(&s, root, id);
        assert_int_equal(order_score(root, want[i].k, id), want[i].score);
        assert_int_equal(order_score_of(&s, want[i].k), want[i].score);
        assert_int_equal(order_cost(want[i].score, (uint64_t)want[i].root * 1000 + 1),
                         want[i].cost);
    }
}

static void golden_costs(void **state)
{
    (void)state;
    static const struct {
        uint64_t score, one, million;
    } want[] = {
        {0, 0x4000000000000000, 0x431bde82d7b},
        {1, 0x3f00000000000000, 0x420f6f08cc5},
        {UINT64_MAX, 0, 0},
        {UINT64_MAX - 1, 0xb8e0000, 0xc1},
        {0x8000000000000000, 0x100000000000000, 0x10c6f7a0b5},
        {0x123456789abcdef0, 0x3d0541307730000, 0x3ffc129d37},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_int_equal(order_cost(want[i].score, 1), want[i].one);
        assert_int_equal(order_cost(want[i].score, 1000000), want[i].million);
    }
    assert_int_equal(order_cost(0, (uint64_t)1 << 31), 2147483648u);
    assert_int_equal(order_cost(0, (uint64_t)1 << 40), 2147483648u);
    assert_int_equal(order_cost(0, UINT64_MAX), 2147483648u);
    assert_true(order_cost(5, 0) == UINT64_MAX);
}

/* The bound is never above the cost, and near it where it matters: at low costs. */
static void bounds_lie_below(void **state)
{
    (void)state;
    uint64_t x = 1;
    for (unsigned i = 0; i < 400000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t score = i % 3 == 0 ? x : i % 3 == 1 ? UINT64_MAX - (x >> i % 64) : x >> i % 64;
        uint64_t weight = i % 5 ? (x >> 20) % 60000000 + 1 : (uint64_t)1 << i % 33;
        struct order_bound b;
        order_bound(&b, weight);
        uint64_t cost = order_cost(score, weight);
        assert_true(order_at_least(&b, score) <= cost);
        if (i % 3 == 0 && score >> 62 == 3 && weight < 1000000) {
            assert_true((double)order_at_least(&b, score) > 0.85 * (double)cost - 1000000);
        }
    }
    struct order_bound none;
    order_bound(&none, 0);
    assert_int_equal(order_at_least(&none, 0), 0);
}

static void costs_follow_the_logarithm(void **state)
{
    (void)state;
    uint64_t last = UINT64_MAX, s = 1;
    for (int i = 0; i < 100000; i++) {
        uint64_t score = i < 50000 ? (uint64_t)i << 48 | 0xffff : UINT64_MAX / 50000 * (i - 49999);
        double want = -log2(((double)score + 1) / 18446744073709551616.0) * pow(2, 56);
        double got = (double)order_cost(score, 1);
        assert_true(fabs(got - want) < 3e-6 * pow(2, 56));
    }
    for (int i = 0; i < 100000; i++) { /* never the wrong way round */
        s += UINT64_MAX / 100001;
        uint64_t c = order_cost(s, 1);
        assert_true(c <= last);
        last = c;
    }
}

/* 50 members with weights 1..50: each wins its share, within four standard deviations. */
static void shares(void **state)
{
    (void)state;
    enum { N = 50, OBJECTS = 82432 };
    uint8_t root[SHA256_SIZE], id[SHA256_SIZE];
    struct order_seed seed[N];
    unsigned by_cost[N] = {0}, by_score[N] = {0};
    fill(root, 9);
    for (int i = 0; i < N; i++) {
        fill(id, i + 1);
        order_seed(&seed[i], root, id);
    }
    for (uint32_t o = 0; o < OBJECTS; o++) {
        struct object_key k = {0, (uint16_t)(o / 896), o % 896};
        int best = 0, first = 0;
        uint64_t c = UINT64_MAX, top = 0;
        for (int i = 0; i < N; i++) {
            uint64_t s = order_score_of(&seed[i], k), mine = order_cost(s, (uint64_t)i + 1);
            if (mine < c) {
                c = mine;
                best = i;
            }
            if (s > top) {
                top = s;
                first = i;
            }
        }
        by_cost[best]++;
        by_score[first]++;
    }
    for (int i = 0; i < N; i++) {
        double want = OBJECTS * (i + 1.0) / (N * (N + 1) / 2.0), even = (double)OBJECTS / N;
        assert_true(fabs(by_cost[i] - want) < 4.5 * sqrt(want));
        assert_true(fabs(by_score[i] - even) < 4.5 * sqrt(even));
    }
}

static void ties(void **state)
{
    (void)state;
    uint8_t a[SHA256_SIZE], b[SHA256_SIZE];
    fill(a, 1);
    fill(b, 2);
    assert_true(order_before(5, b, 4, a));
    assert_false(order_before(4, a, 5, b));
    assert_true(order_before(5, a, 5, b));
    assert_false(order_before(5, b, 5, a));
    assert_false(order_before(5, a, 5, a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_scores),
        cmocka_unit_test(golden_costs),
        cmocka_unit_test(costs_follow_the_logarithm),
        cmocka_unit_test(bounds_lie_below),
        cmocka_unit_test(shares),
        cmocka_unit_test(ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
