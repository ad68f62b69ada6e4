/* SPDX-License-Identifier: MIT
 * t_cli_bench.c: `shoal bench decode` and `prefill` on the demo model: what they count and draw,
 * and that nothing is told of a run with another receipt. No time is judged. */
#include "spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *text(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    assert_non_null(s);
    return s;
}

static json_int_t number(const json_t *j, const char *key)
{
    assert_true(json_is_integer(json_object_get(j, key)));
    return json_integer_value(json_object_get(j, key));
}

static void decode(void **state)
{
    (void)state;
    struct spawn_result r, k;
    char plot[] = "/tmp/shoal-bench-XXXXXX", head[5] = "";
    int fd = mkstemp(plot);
    assert_true(fd >= 0);
    close(fd);
    SPAWN(&r, NULL, "bench", "decode", "--tokens", "3", "--rounds", "2", "--ram-budget", "2M",
          "--prefetch", "off", "--threads", "1", "--plot", plot, "--json");
    assert_int_equal(r.status, 0);
    assert_int_equal(number(r.json, "tokens"), 3);
    assert_int_equal(number(r.json, "tokens_a_call"), 1);
    assert_int_equal(json_array_size(json_object_get(r.json, "rounds_wall_s")), 2);
    assert_true(json_real_value(json_object_get(r.json, "ratio")) > 0);
    assert_int_equal(number(r.json, "spine_streamed"), 0);
    FILE *f = fopen(plot, "r");
    assert_non_null(f);
    assert_int_equal(fread(head, 1, 4, f), 4);
    assert_string_equal(head, "<svg");
    fclose(f);
    unlink(plot);

    /* the same bits however it is run; another receipt is refused */
    const char *receipt = text(r.json, "receipt");
    SPAWN(&k, NULL, "bench", "decode", "--tokens", "3", "--rounds", "1", "--spine-ram", "0",
          "--threads", "2", "--receipt", receipt, "--json");
    assert_int_equal(k.status, 0);
    assert_string_equal(text(k.json, "receipt"), receipt);
    assert_true(number(k.json, "spine_streamed") > 0);
    spawn_free(&k);
    SPAWN(&k, NULL, "bench", "decode", "--tokens", "4", "--rounds", "1", "--receipt", receipt,
          "--json");
    assert_int_equal(k.status, 1);
    assert_string_equal(text(json_object_get(k.json, "error"), "code"), "ERR_RECEIPT");
    assert_null(json_object_get(k.json, "ratio"));
    spawn_free(&k);
    spawn_free(&r);
}

static void prefill(void **state)
{
    (void)state;
    struct spawn_result a, b;
    SPAWN(&a, NULL, "bench", "prefill", "--tokens", "48", "--rounds", "1", "--prefill-chunk", "48",
          "--json");
    assert_int_equal(a.status, 0);
    assert_int_equal(number(a.json, "tokens_a_call"), 48);
    assert_string_equal(text(json_object_get(a.json, "plan"), "prefill_chunk_why"),
                        "given by --prefill-chunk");
    SPAWN(&b, NULL, "bench", "prefill", "--tokens", "48", "--rounds", "1", "--prefill-chunk", "8",
          "--ram-budget", "0", "--receipt", text(a.json, "receipt"), "--json");
    assert_int_equal(b.status, 0);
    assert_true(number(b.json, "experts_chosen") > number(a.json, "experts_chosen"));
    spawn_free(&a);
    spawn_free(&b);
}

static void usage(void **state)
{
    (void)state;
    struct spawn_result r;
    SPAWN(&r, NULL, "bench", "decode", "--receipt", "12");
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    SPAWN(&r, NULL, "bench", "prefill", "--home", "/tmp/a", "--cache", "/tmp/b");
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    SPAWN(&r, NULL, "bench", "kernels", "--tokens", "3");
    assert_int_equal(r.status, 2);
    spawn_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(decode), cmocka_unit_test(prefill),
                                       cmocka_unit_test(usage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
