/* SPDX-License-Identifier: MIT
 * t_emu.c: the emulation finds what it is for: a missing barrier, a barrier or a shuffle that not
 * all threads reach, memory that nobody wrote. Each is planted once (planted.cc). */
#include "tests/shaders/emu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define THREADS 128
#define GROUPS 3

extern const struct emu_kernel emu_planted[6];
enum { SOUND, MISSING_BARRIER, UNWRITTEN, DIVERGENT_BARRIER, TWO_BARRIERS, DIVERGENT_SHUFFLE };

static char why[256];

static int run(int which, bool reverse, uint32_t n, float y[GROUPS * THREADS])
{
    float x[THREADS];
    for (int i = 0; i < THREADS; i++) {
        x[i] = (float)i;
    }
    memset(y, 0, sizeof(float) * GROUPS * THREADS);
    void *buf[2] = {x, y};
    const uint32_t groups[3] = {GROUPS, 1, 1};
    why[0] = 0;
    return emu_run(&emu_planted[which], &n, groups, THREADS, buf, reverse, why, sizeof why);
}

/* Values that are not the sum of all x, in one order. */
static int wrong(int which, bool reverse)
{
    float y[GROUPS * THREADS];
    int bad = 0;
    assert_int_equal(run(which, reverse, 0, y), 0);
    for (int i = 0; i < GROUPS * THREADS; i++) {
        bad += !(y[i] == THREADS * (THREADS - 1) / 2.0f);
    }
    return bad;
}

static void sound(void **state)
{
    assert_int_equal(wrong(SOUND, false), 0);
    assert_int_equal(wrong(SOUND, true), 0);
    float y[GROUPS * THREADS];
    assert_int_equal(run(DIVERGENT_SHUFFLE, false, 32, y), 0); /* here all lanes take part */
    assert_true(y[0] == 1 && y[127] == 126 + 127);
}

static void missing_barrier(void **state)
{
    /* The last of an order find all sums there, in either order others: forward the last SIMD
     * group, backward the last lane. */
    assert_int_equal(wrong(MISSING_BARRIER, false), GROUPS * (THREADS - 32));
    assert_int_equal(wrong(MISSING_BARRIER, true), GROUPS * (THREADS - 1));
}

static void unwritten(void **state)
{
    assert_int_equal(wrong(UNWRITTEN, false), GROUPS * THREADS);
}

static void divergent(void **state)
{
    static const int which[] = {DIVERGENT_BARRIER, TWO_BARRIERS, DIVERGENT_SHUFFLE};
    static const char *const says[] = {"divergent barrier", "divergent barrier",
                                       "divergent SIMD group"};
    float y[GROUPS * THREADS];
    for (size_t i = 0; i < 3; i++) {
        for (int reverse = 0; reverse < 2; reverse++) {
            assert_int_equal(run(which[i], reverse, 5, y), -1);
            assert_non_null(strstr(why, says[i]));
            assert_non_null(strstr(why, emu_planted[which[i]].name));
        }
    }
    print_message("  %s\n", why);
    assert_int_equal(wrong(SOUND, false), 0); /* a fault leaves the emulation usable */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound),
        cmocka_unit_test(missing_barrier),
        cmocka_unit_test(unwritten),
        cmocka_unit_test(divergent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
