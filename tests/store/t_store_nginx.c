/* SPDX-License-Identifier: MIT
 * t_store_nginx.c: the same store against a real server: nginx, started as a child with a
 * configuration of its own in the test's folder. */
#include "tests/store/nginx_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char LOCATIONS[] = "    location /m/ { alias " DEMO_MODEL "/; }\n"
                                "    location /slow/ { alias " DEMO_MODEL "/; limit_rate 4m; }\n"
                                "    location /moved/ { rewrite ^/moved/(.*)$ /m/$1 redirect; }\n"
                                "    location /busy/ { return 503; }\n"
                                "    location /plain/ { alias " DEMO_MODEL "/; max_ranges 0; }\n";

static void fetch_all(struct store *st)
{
    const struct model *m = store_model(st);
    uint32_t n = model_object_count(m), *ids = malloc(n * sizeof *ids);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = i;
    }
    struct err e = {0};
    struct store_batch *b;
    assert_int_equal(store_batch_begin(st, ids, n, STORE_DEMAND, &b, &e), 0);
    size_t which;
    struct store_view v;
    for (uint32_t i = 0; i < n; i++) {
        if (store_batch_next(b, &which, &v, &e)) {
            fail_msg("%s", e.msg);
        }
        assert_true(util_right(m, DEMO_MODEL, &v));
        store_release(st, &v);
    }
    store_batch_end(b);
    free(ids);
}

static void t_nginx(void **s)
{
    if (!nginx_find()) {
        print_message("SKIPPED: there is no nginx on this machine; install it to run this test\n");
        skip();
    }
    struct nginx g;
    if (!nginx_start(&g, LOCATIONS)) {
        fail_msg("nginx does not start; see %s/error.log", g.dir);
    }
    char *tmp = util_tmpdir(), *cache = util_path("%s/c", tmp);
    static const char *const base[] = {"m", "slow", "moved"};
    uint64_t total = 0;
    struct err e = {0};
    struct store *st;
    struct store_opts o = {
        .cache_dir = cache, .ram_budget = 1 << 20, .disk_floor = 1, .retries = 3, .retry_ms = 10};
    for (int i = 0; i < 3; i++) {
        char *url = util_path("http://127.0.0.1:%d/%s", g.port, base[i]);
        o.model = url;
        for (int again = 0; again < 2; again++) {
            if (store_open(&o, &st, &e)) {
                fail_msg("%s", e.msg);
            }
            const struct model *m = store_model(st);
            total = model_spine_bytes(m) + model_expert_bytes(m);
            if (i == 1) { /* the objects are known by their model, not by their address */
                struct store_view v;
                assert_int_equal(store_get(st, 9, STORE_DEMAND, 0, &v, &e), 0);
                store_release(st, &v);
            } else {
                fetch_all(st);
            }
            struct store_stats x;
            store_get_stats(st, &x);
            assert_int_equal(x.origin_bytes, i == 0 && !again ? total : 0);
            assert_int_equal(x.retries, 0);
            store_close(st);
        }
        free(url);
    }
    util_rmtree(cache);
    char *moved = util_path("http://127.0.0.1:%d/moved/", g.port);
    o.model = moved;
    assert_int_equal(store_open(&o, &st, &e), 0);
    fetch_all(st);
    store_close(st);
    free(moved);
    /* errors in a sentence */
    char *busy = util_path("http://127.0.0.1:%d/busy", g.port);
    o.model = busy;
    assert_int_equal(store_open(&o, &st, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "503"));
    free(busy);
    char *none = util_path("http://127.0.0.1:%d/nothing/here", g.port);
    o.model = none;
    assert_int_equal(store_open(&o, &st, &e), ERR_NOTFOUND);
    assert_non_null(strstr(e.msg, "config.json"));
    free(none);
    char *plain = util_path("http://127.0.0.1:%d/plain", g.port);
    o.model = plain;
    assert_int_equal(store_open(&o, &st, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "ranges"));
    free(plain);
    nginx_stop(&g);
    uint64_t requests, sent = nginx_logged(&g, "/m/", &requests, NULL);
    print_message("nginx sent %llu bytes in %llu requests for twice %llu bytes of objects\n",
                  (unsigned long long)sent, (unsigned long long)requests,
                  (unsigned long long)total);
    assert_true(sent >= 2 * total);
    /* and metadata, and for each further address a sample of the shards (vouch.h): a chunk of one
     * expert and of one spine object each, of which only the two largest fill a chunk */
    assert_true(sent < 2 * total + 7000000);
    util_rmtree(tmp);
    util_rmtree(g.dir);
    free(tmp);
    free(cache);
    free(g.dir);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_nginx)};
    return cmocka_run_group_tests_name("store_nginx", t, NULL, NULL);
}
