/* SPDX-License-Identifier: MIT
 * t_yield.c: how serving gives way to the own decode: nothing without one; with one, a rate that is
 * kept, in which demand goes before prefetch and that before background. */
#include "peer/home_util.h"

#include "node/daemon/node_int.h"
#include "proto/base/clock.h"

#define CHUNK 100000

/* Serve chunks of this priority as serve.c would for so many seconds; bytes that went. */
static uint64_t serve_for(struct yield *y, unsigned prio, double s)
{
    uint64_t end = clock_ns() + (uint64_t)(s * 1e9), bytes = 0;
    while (clock_ns() < end) {
        unsigned ms = yield_ms(y, prio);
        if (ms) {
            assert_true(ms <= 1000);
            usleep(ms * 1000);
        } else {
            yield_served(y, CHUNK);
            bytes += CHUNK;
        }
    }
    return bytes;
}

static void test_no_decode(void **state)
{
    struct yield y;
    yield_init(&y);
    for (unsigned p = 0; p < 3; p++) {
        for (int i = 0; i < 10000; i++) {
            assert_int_equal(yield_ms(&y, p), 0);
            yield_served(&y, 1 << 20);
        }
    }
    /* more ends than begins are no reason to give way, or not to later */
    yield_computing(&y, -1);
    assert_int_equal(yield_ms(&y, 0), 0);
    yield_computing(&y, 1);
    assert_int_equal(y.computing, 1);
    yield_free(&y);
}

static void test_rate(void **state)
{
    struct yield y;
    yield_init(&y);
    assert_true(y.rate >= 6e6); /* with two processors: two peers at 5 MB/s each */
    y.rate = 10e6;
    yield_computing(&y, 1);
    double t = clock_s();
    uint64_t bytes = serve_for(&y, 2, 1.0);
    t = clock_s() - t;
    /* the rate, what was saved up, and one chunk; how much less depends on how busy the machine is
     */
    print_message("%.2f of the rate\n", (double)bytes / y.rate / t);
    assert_true((double)bytes <= y.rate * (t + 0.25) + CHUNK);
    assert_true(bytes >= 5 * CHUNK);
    assert_true(y.puts_off > 0);
    yield_free(&y);
}

/* What each priority has to wait with all of the budget saved up, and after more and more was
 * served. False: the machine stood still meanwhile, so that some of it was saved up again. */
static bool waits(struct yield *y, unsigned ms[4][3])
{
    static const uint64_t served[4] = {0, 1300000, 1100000, 5000000}; /* of the 2.5 MB */
    usleep(300000);
    uint64_t t = clock_ns();
    for (unsigned i = 0; i < 4; i++) {
        yield_served(y, served[i]);
        for (unsigned p = 0; p < 3; p++) {
            ms[i][p] = yield_ms(y, p);
        }
    }
    return clock_ns() - t < 5000000;
}

static void test_order(void **state)
{
    struct yield y;
    unsigned ms[4][3];
    bool whole = false;
    yield_init(&y);
    for (int i = 0; i < 100 && !whole; i++) {
        yield_free(&y);
        yield_init(&y);
        y.rate = 10e6;
        yield_computing(&y, 1);
        whole = waits(&y, ms);
    }
    assert_true(whole);
    for (unsigned p = 0; p < 3; p++) {
        assert_int_equal(ms[0][p], 0); /* all may go */
    }
    assert_true(ms[1][0] > 0); /* about half is left */
    assert_int_equal(ms[1][2], 0);
    assert_true(ms[2][0] > ms[2][1] && ms[2][1] > 0);
    assert_true(ms[3][1] > ms[3][2] && ms[3][2] > 0);
    /* the decode ends: at once */
    yield_computing(&y, -1);
    for (unsigned p = 0; p < 3; p++) {
        assert_int_equal(yield_ms(&y, p), 0);
    }
    yield_free(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_decode),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
