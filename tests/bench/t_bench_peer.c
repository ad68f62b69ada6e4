/* SPDX-License-Identifier: MIT
 * t_bench_peer.c: the measurement of peer/bench.h does what it says: both sides move objects, the
 * numbers fit together, it can be stopped, a folder that cannot be used is an error. How large the
 * numbers are is not judged here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "peer/bench.h"

static char dir[] = "/tmp/t_bench_peer-XXXXXX";

static void remove_homes(void)
{
    char cmd[64];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'/*", dir);
    assert_int_equal(system(cmd), 0);
}

static void side_is_whole(const struct peer_bench_side *s)
{
    assert_true(s->bytes_s > 1e5 && s->bytes_s < 1e11);
    assert_true(s->cpu_s_byte > 0 && s->cpu_s_byte < 1e-5);
    assert_true(s->one_s > 1 && s->one_s < 1e7);
    assert_true(s->batch_s > 1 && s->batch_s < 1e7);
}

static bool near(double a, double b)
{
    return a > 0.999 * b && a < 1.001 * b;
}

static void test_measures(void **state)
{
    struct peer_bench b;
    struct err e = {0};
    struct peer_bench_opts o = {.dir = dir, .seconds = 0.4, .rounds = 1, .software = "test 1"};
    if (peer_bench(&o, &b, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(b.rounds, 1);
    side_is_whole(&b.bare);
    side_is_whole(&b.mesh);
    /* with one round a ratio is the quotient of the two numbers beside it */
    assert_true(near(b.ratio.bytes_s, b.mesh.bytes_s / b.bare.bytes_s));
    assert_true(near(b.ratio.cpu_s_byte, b.mesh.cpu_s_byte / b.bare.cpu_s_byte));
    assert_true(near(b.ratio.one_s, b.mesh.one_s / b.bare.one_s));
    assert_true(near(b.ratio.batch_s, b.mesh.batch_s / b.bare.batch_s));
    assert_true(near(b.ratio_min, b.ratio.bytes_s) && near(b.ratio_max, b.ratio.bytes_s));
    assert_true(strncmp(b.version, "TLSv1.", 6) == 0);
    assert_true(strstr(b.suite, "GCM") || strstr(b.suite, "CHACHA20"));
    assert_int_equal(b.bare_threads, 2);
    assert_true(b.mesh_threads >= 4 && b.mesh_threads <= 6); /* one worker in some builds of TLS */
    assert_true(near(1 / b.bound_bytes_s, 1 / b.seal_bytes_s + 1 / b.hash_bytes_s));
    remove_homes();
}

static int at_once(void *ctx)
{
    ++*(int *)ctx;
    return 1;
}

static void test_stops(void **state)
{
    struct peer_bench b;
    struct err e = {0};
    int asked = 0;
    struct peer_bench_opts o = {
        .dir = dir, .seconds = 60, .software = "test 1", .stop = at_once, .ctx = &asked};
    assert_int_equal(peer_bench(&o, &b, &e), ERR_CANCELLED);
    assert_int_equal(asked, 1);
    remove_homes();
}

static void test_no_folder(void **state)
{
    struct peer_bench b;
    struct err e = {0};
    struct peer_bench_opts o = {.dir = "/dev/null/no", .seconds = 1, .software = "test 1"};
    assert_int_not_equal(peer_bench(&o, &b, &e), 0);
    assert_true(e.msg[0] != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_no_folder),
    };
    if (!mkdtemp(dir)) {
        return 2;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    remove_homes();
    return rmdir(dir) || r;
}
