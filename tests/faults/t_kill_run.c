/* SPDX-License-Identifier: MIT
 * t_kill_run.c: kill -9 of `shoal run --cache` at random points of a cold run; what is run next on
 * the same cache says the same receipt, and what the cache holds is the model's. */
#include "tests/faults/proc.h"
#include "tests/peer/rng.h"
#include "tests/store/util.h"

#include "node/demo/server.h"

#include <jansson.h>
#include <signal.h>
#include <time.h>

enum { KILLS = 20 };

static json_t *run(const char *url, const char *cache, const char *rate, unsigned kill_us,
                   bool *killed)
{
    struct proc p;
    const char *argv[] = {SHOAL_PROGRAM, "run",    "--model", url,
                          "--cache",     cache,    "--chat",  "Define whale.",
                          "--no-think",  "--json", "-q",      rate ? "--rate-limit" : NULL,
                          rate,          NULL};
    proc_start(&p, argv);
    if (killed) {
        proc_listen(&p, NULL, kill_us / 1000);
        *killed = p.pid != 0;
        proc_kill(&p, SIGKILL);
    }
    int status = proc_wait(&p, 100000);
    if (killed && *killed) {
        proc_free(&p);
        return NULL;
    }
    if (status) {
        fail_msg("exit %d: %s%s", status, p.said.n ? p.said.p : "",
                 p.grumbled.n ? p.grumbled.p : "");
    }
    json_t *j = json_loadb(p.said.p, p.said.n, 0, NULL);
    assert_non_null(j);
    proc_free(&p);
    return j;
}

static const char *receipt(json_t *j)
{
    const char *s = json_string_value(json_object_get(j, "receipt"));
    assert_non_null(s);
    assert_int_equal(strlen(s), 64);
    return s;
}

/* Every object that the cache holds is the source's. Returns how many that are. */
static unsigned check_cache(const char *url, const char *cache)
{
    struct store_opts o = {
        .model = url, .cache_dir = cache, .offline = true, .disk_floor = 1, .ram_budget = 64 << 20};
    struct store *st;
    struct err e = {0};
    if (store_open(&o, &st, &e)) {
        return 0; /* not even the model's own files are there yet */
    }
    const struct model *m = store_model(st);
    unsigned n = 0;
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        struct store_view v;
        if (store_where(st, id) == STORE_DISK) {
            ok(store_get(st, id, STORE_DEMAND, 0, &v, &e));
            assert_true(util_right(m, DEMO_MODEL, &v));
            store_release_drop(st, &v);
            n++;
        }
    }
    store_close(st);
    return n;
}

static void test_kill(void **state)
{
    struct rng r = rng_start((uint64_t)time(NULL) * 1000003u + (uint64_t)getpid());
    struct demo_server *sv;
    struct err e = {0};
    bool killed;
    (void)state;
    ok(demo_server_start(DEMO_MODEL, 0, &sv, &e));
    const char *url = demo_server_url(sv);
    char *tmp = util_tmpdir(), *whole = util_path("%s/whole", tmp), *cache = NULL;
    json_t *want = run(url, whole, NULL, 0, NULL);
    unsigned all = check_cache(url, whole), kills = 0, partial = 0;
    for (int i = 0; i < KILLS; i++) {
        if (i % 5 == 0) { /* a cold one: from its first file on */
            free(cache);
            cache = util_path("%s/c%d", tmp, i);
        }
        json_t *j = run(url, cache, "12M", 5000 + rng_below(&r, i % 5 ? 500000 : 150000), &killed);
        kills += killed;
        if (j) { /* it was through before it could be killed */
            assert_string_equal(receipt(j), receipt(want));
            json_decref(j);
        }
        check_cache(url, cache);
        if (i % 5 != 4) {
            continue;
        }
        /* undisturbed now */
        j = run(url, cache, NULL, 0, NULL);
        assert_string_equal(receipt(j), receipt(want));
        const json_t *s = json_object_get(j, "stats");
        partial += json_integer_value(json_object_get(s, "origin_bytes")) > 0;
        assert_int_equal(json_integer_value(json_object_get(s, "bad_chunks")), 0);
        json_decref(j);
        assert_int_equal(check_cache(url, cache), all);
    }
    print_message("%u killed of %u; %u times something was left to fetch\n", kills, KILLS, partial);
    assert_true(kills >= KILLS / 2);
    demo_server_stop(sv);
    json_decref(want);
    free(cache);
    free(whole);
    util_rmtree(tmp);
    free(tmp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kill)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
