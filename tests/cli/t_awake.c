/* SPDX-License-Identifier: MIT
 * t_awake.c: the machine is kept awake exactly while there is work, however many threads begin and
 * end it. The system's part is replaced here: its two calls are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "node/cli/awake.h"

static int held, holds;
static bool can = true;

bool awake_hold(uint32_t *token)
{
    *token = 7;
    held += can;
    holds++;
    return can;
}

void awake_let_go(uint32_t token)
{
    held -= token == 7;
}

static void t_count(void **s)
{
    struct awake a;
    awake_open(&a);
    assert_int_equal(held, 0);
    awake_work(&a, 1);
    awake_work(&a, 1);
    assert_int_equal(held, 1);
    assert_int_equal(holds, 1);
    awake_work(&a, -1);
    assert_int_equal(held, 1);
    awake_work(&a, -1);
    assert_int_equal(held, 0);
    awake_work(&a, 1);
    assert_int_equal(held, 1);
    awake_close(&a); /* with work left: nothing stays behind */
    assert_int_equal(held, 0);
    can =
        false; /* a system that cannot is asked again at the next work, and nothing is given back */
    awake_open(&a);
    awake_work(&a, 1);
    awake_work(&a, -1);
    assert_int_equal(held, 0);
    awake_close(&a);
    assert_int_equal(held, 0);
    can = true;
}

static void *work(void *ctx)
{
    for (int i = 0; i < 2000; i++) {
        awake_work(ctx, 1);
        awake_work(ctx, -1);
    }
    return NULL;
}

static void t_threads(void **s)
{
    struct awake a;
    pthread_t t[4];
    awake_open(&a);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, work, &a), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
    }
    assert_int_equal(held, 0);
    assert_int_equal(a.works, 0);
    awake_close(&a);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_count), cmocka_unit_test(t_threads)};
    return cmocka_run_group_tests_name("awake", t, NULL, NULL);
}
