/* SPDX-License-Identifier: MIT
 * t_cli_demo.c: the program over HTTP: `shoal demo` from end to end, and `shoal run` with a URL, a
 * cache, and without the origin. The server's own count of bytes is the judge, and between nodes
 * each count is held against the other side's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "node/demo/server.h"
#include "spawn.h"

#include <signal.h>
#include <stdbool.h>
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

static const json_t *part(const json_t *row, const char *key)
{
    const json_t *p = json_object_get(row, key);
    assert_true(json_is_object(p));
    return p;
}

/* One row of the table; returns the bytes that came from nodes. */
static long long check_row(const json_t *row, int node, const char *receipt)
{
    const json_t *peers = json_object_get(row, "peers");
    long long sum = 0;
    assert_int_equal(num(row, "node"), node);
    assert_string_equal(str(row, "receipt"), receipt);
    assert_true(json_real_value(json_object_get(row, "seconds")) > 0);
    assert_true(num(part(row, "ram"), "experts") > 0);
    assert_int_equal(json_array_size(peers), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *p = json_array_get(peers, i);
        assert_int_equal(num(p, "node"), (int)i + 1);
        assert_true(num(p, "bytes") <= num(p, "given_bytes")); /* what came twice is given twice */
        if ((int)i + 1 >= node) { /* nobody gives to itself, or before it runs */
            assert_int_equal(num(p, "given_bytes"), 0);
            assert_int_equal(num(p, "experts"), 0);
        }
        sum += num(p, "bytes");
    }
    return sum;
}

static long long experts_from_peers(const json_t *row)
{
    long long n = 0;
    size_t i;
    const json_t *p;
    json_array_foreach(json_object_get(row, "peers"), i, p)
    {
        n += num(p, "experts");
    }
    return n;
}

/* Who got what from whom. Returns whether the third got something from both. */
static bool check_nodes(const json_t *demo)
{
    const json_t *rows = json_object_get(demo, "nodes"), *one = json_array_get(rows, 0),
                 *again = json_array_get(rows, 1), *two = json_array_get(rows, 2),
                 *three = json_array_get(rows, 3);
    const char *receipt = str(json_object_get(demo, "first"), "receipt");
    assert_int_equal(json_array_size(rows), 4);
    assert_int_equal(check_row(one, 1, receipt), 0);
    assert_int_equal(check_row(again, 1, receipt), 0);
    assert_false(json_is_true(json_object_get(one, "again")));
    assert_true(json_is_true(json_object_get(again, "again")));
    /* All of the origin's bytes are node 1's: objects, and the small files before them. */
    long long all = num(json_object_get(demo, "origin"), "bytes");
    long long experts = num(part(one, "origin"), "experts");
    assert_int_equal(num(json_object_get(demo, "first"), "served_bytes"), all);
    assert_int_equal(num(part(one, "origin"), "bytes"), all);
    assert_true(experts > 0);
    assert_int_equal(num(part(again, "disk"), "experts"), experts);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(num(part(json_array_get(rows, (size_t)i), "origin"), "bytes"), 0);
        assert_int_equal(num(part(json_array_get(rows, (size_t)i), "origin"), "experts"), 0);
    }
    /* Each of the others needed the same, and a list of the files. */
    long long b2 = check_row(two, 2, receipt), b3 = check_row(three, 3, receipt);
    assert_true(b2 >= all);
    assert_true(b2 <= all + 65536);
    assert_int_equal(b2, b3);
    assert_int_equal(experts_from_peers(two), experts);
    assert_int_equal(experts_from_peers(three), experts);
    const json_t *from = json_object_get(three, "peers");
    return num(json_array_get(from, 0), "bytes") > 0 && num(json_array_get(from, 1), "bytes") > 0;
}

static void tmp_begin(char tmp[64])
{
    snprintf(tmp, 64, "%s/tmp", dir);
    assert_int_equal(mkdir(tmp, 0700), 0);
    setenv("TMPDIR", tmp, 1);
}

static void tmp_end(const char *tmp)
{
    assert_int_equal(rmdir(tmp), 0); /* fails when the demo left something behind */
    unsetenv("TMPDIR");
}

static void t_demo_json(void **state)
{
    char tmp[64];
    struct spawn_result r;
    tmp_begin(tmp);
    unsetenv("HOME"); /* it needs none, and nothing is made there */
    SPAWN(&r, NULL, "demo", "--json", "-q");
    assert_int_equal(r.status, 0);
    assert_true(json_is_true(json_object_get(r.json, "ok")));
    assert_int_equal(r.err.n, 0);
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
    /* On a machine that is very busy one of two peers may be late all the time. */
    bool both = check_nodes(r.json);
    spawn_free(&r);
    for (int i = 0; i < 4 && !both; i++) {
        SPAWN(&r, NULL, "demo", "--json", "-q");
        assert_int_equal(r.status, 0);
        both = check_nodes(r.json);
        spawn_free(&r);
    }
    assert_true(both);
    tmp_end(tmp);
}

/* Interrupted while the nodes run: an error, and nothing is left. */
static void t_demo_interrupted(void **state)
{
    char tmp[64];
    struct spawn_child c;
    tmp_begin(tmp);
    SPAWN_START(&c, "demo");
    spawn_await(&c, "The origin is stopped");
    assert_int_equal(spawn_end(&c, SIGINT), 1);
    tmp_end(tmp);
}

static void t_demo_text(void **state)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "demo", "--threads", "2");
    assert_int_equal(r.status, 0);
    const char *first = strstr(r.out.p, ANSWER);
    assert_non_null(first);
    for (int i = 1; i < 4; i++) { /* four times: node 1 twice, node 2, node 3 */
        first = strstr(first + 1, ANSWER);
        assert_non_null(first);
    }
    assert_null(strstr(r.out.p, "<|"));
    assert_non_null(strstr(r.err.p, "from the origin"));
    assert_non_null(strstr(r.err.p, "node 2 has answered with "));
    assert_non_null(strstr(r.err.p, "node 3 has answered with "));
    assert_non_null(strstr(r.err.p, "\n  asked by "));
    assert_null(strstr(r.err.p, "connected to")); /* the nodes' log */
    assert_non_null(strstr(r.err.p, " init, then "));
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

/* "brief" (an emulator, a sanitizer): the demo from end to end once, not twice. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_demo_json),
        cmocka_unit_test(t_demo_interrupted),
        cmocka_unit_test(t_url),
        cmocka_unit_test(t_home),
    };
    const struct CMUnitTest more[] = {cmocka_unit_test(t_demo_text)};
    int r = cmocka_run_group_tests_name("cli_demo", tests, setup, teardown);
    if (argc < 2 || strcmp(argv[1], "brief") != 0) {
        r += cmocka_run_group_tests_name("cli_demo_text", more, NULL, NULL);
    }
    return r;
}
