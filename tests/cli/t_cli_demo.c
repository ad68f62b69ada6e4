/* SPDX-License-Identifier: MIT
 * t_cli_demo.c: the program over HTTP: `shoal demo` from end to end, and `shoal run` with a URL, a
 * cache, and without the origin. The server's own count of bytes is the judge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "node/demo/server.h"
#include "spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL SHOAL_SOURCE_DIR "/node/demo/model"
#define ANSWER "whale: any of the larger cetacean mammals"

static char dir[] = "/tmp/t_cli_demo.XXXXXX";

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    assert_non_null(s);
    return s;
}

static long long num(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static void t_demo_json(void **state)
{
    char tmp[64];
    struct spawn_result r;
    snprintf(tmp, sizeof tmp, "%s/tmp", dir);
    assert_int_equal(mkdir(tmp, 0700), 0);
    setenv("TMPDIR", tmp, 1);
    SPAWN(&r, NULL, "demo", "--json", "-q");
    assert_int_equal(r.status, 0);
    assert_true(json_is_true(json_object_get(r.json, "ok")));
    const json_t *a = json_object_get(r.json, "first"), *b = json_object_get(r.json, "second");
    assert_int_equal(strncmp(str(a, "text"), ANSWER, strlen(ANSWER)), 0);
    assert_string_equal(str(a, "text"), str(b, "text"));
    assert_string_equal(str(a, "receipt"), str(b, "receipt"));
    assert_true(num(a, "served_bytes") > 1000000);
    assert_int_equal(num(b, "served_bytes"), 0);
    assert_true(num(json_object_get(a, "stats"), "experts_fetched") > 0);
    assert_int_equal(num(json_object_get(b, "stats"), "experts_fetched"), 0);
    assert_int_equal(num(json_object_get(b, "stats"), "origin_bytes"), 0);
    assert_true(num(json_object_get(b, "stats"), "disk_bytes") > 0);
    assert_true(num(json_object_get(r.json, "origin"), "ranges") > 0);
    spawn_free(&r);
    assert_int_equal(rmdir(tmp), 0); /* fails when the demo left something behind */
    unsetenv("TMPDIR");
}

static void t_demo_text(void **state)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "demo", "--threads", "2");
    assert_int_equal(r.status, 0);
    const char *first = strstr(r.out.p, ANSWER);
    assert_non_null(first);
    assert_non_null(strstr(first + 1, ANSWER)); /* twice */
    assert_null(strstr(r.out.p, "<|"));
    assert_non_null(strstr(r.err.p, "from the origin"));
    const char *next = strstr(r.err.p, "Try next: "), *run = next ? strstr(next, " run ") : NULL;
    char exe[4096] = "";
    assert_non_null(run); /* what it proposes to type is the program, from where it was started */
    next += strlen("Try next: ");
    assert_true((size_t)(run - next) < sizeof exe);
    memcpy(exe, next, (size_t)(run - next));
    assert_int_equal(access(exe, X_OK), 0);
    spawn_free(&r);
}

/* Cold, warm, warm without the origin, cold without the origin. */
static void t_url(void **state)
{
    struct demo_server *s;
    struct demo_server_stats v[4];
    struct err e;
    struct spawn_result folder, cold, warm, off, none;
    char cache[80], empty[80], url[80];
    snprintf(cache, sizeof cache, "%s/cache", dir);
    snprintf(empty, sizeof empty, "%s/empty", dir);
    assert_int_equal(demo_server_start(MODEL, 0, &s, &e), 0);
    snprintf(url, sizeof url, "%s", demo_server_url(s));
#define RUN(r, m, ...)                                                                     \
    SPAWN(r, NULL, "run", "--model", m, "--chat", "Define whale.", "--no-think", "--json", \
          __VA_ARGS__)
    RUN(&folder, MODEL, "-q");
    assert_int_equal(folder.status, 0);

    demo_server_get_stats(s, &v[0]);
    RUN(&cold, url, "--cache", cache);
    demo_server_get_stats(s, &v[1]);
    assert_int_equal(cold.status, 0);
    assert_string_equal(str(cold.json, "receipt"), str(folder.json, "receipt"));
    const json_t *st = json_object_get(cold.json, "stats");
    assert_true(num(st, "origin_bytes") > 0);
    assert_true(num(st, "experts_fetched") > 0);
    assert_true(v[1].bytes - v[0].bytes >= (uint64_t)num(st, "origin_bytes"));

    RUN(&warm, url, "--cache", cache);
    demo_server_get_stats(s, &v[2]);
    assert_int_equal(warm.status, 0);
    assert_string_equal(str(warm.json, "receipt"), str(folder.json, "receipt"));
    assert_int_equal(v[2].bytes - v[1].bytes, 0);
    assert_int_equal(num(json_object_get(warm.json, "stats"), "origin_bytes"), 0);

    demo_server_stop(s); /* nobody answers at this URL now */
    RUN(&off, url, "--cache", cache, "--offline");
    assert_int_equal(off.status, 0);
    assert_string_equal(str(off.json, "receipt"), str(folder.json, "receipt"));
    RUN(&none, url, "--cache", empty, "--offline");
    assert_int_equal(none.status, 1);
    assert_non_null(json_object_get(none.json, "error"));
#undef RUN
    spawn_free(&folder);
    spawn_free(&cold);
    spawn_free(&warm);
    spawn_free(&off);
    spawn_free(&none);
}

/* Without --cache a URL's objects go under SHOAL_HOME. */
static void t_home(void **state)
{
    struct demo_server *s;
    struct err e;
    struct spawn_result r;
    char home[80], cache[96];
    snprintf(home, sizeof home, "%s/home", dir);
    snprintf(cache, sizeof cache, "%s/cache", home);
    setenv("SHOAL_HOME", home, 1);
    assert_int_equal(demo_server_start(MODEL, 0, &s, &e), 0);
    SPAWN(&r, NULL, "run", "--model", demo_server_url(s), "--prompt", "music: the", "--max-new",
          "2", "--json");
    assert_int_equal(r.status, 0);
    assert_int_equal(access(cache, R_OK), 0);
    assert_non_null(strstr(r.err.p, cache)); /* and the plan says where */
    spawn_free(&r);
    demo_server_stop(s);
    unsetenv("SHOAL_HOME");
}

static int setup(void **state)
{
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    char cmd[96];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_demo_json),
        cmocka_unit_test(t_demo_text),
        cmocka_unit_test(t_url),
        cmocka_unit_test(t_home),
    };
    return cmocka_run_group_tests_name("cli_demo", tests, setup, teardown);
}
