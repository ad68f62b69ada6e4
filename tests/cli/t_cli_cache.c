/* SPDX-License-Identifier: MIT
 * t_cli_cache.c: shoal cache budget: with and without a running node, kept for later starts. */
#include "ask.h"
#include "homes.h"

#include <signal.h>

static json_t *object(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    assert_true(json_is_object(v));
    return v;
}

static void t_budget_kept(void **state)
{
    char *dir = homes_new(), *cache = homes_at(dir, "c");
    json_t *j = MUST("cache", "budget", "--cache", cache);
    assert_true(json_is_false(json_object_get(j, "running")));
    assert_string_equal(str_of(j, "budget"), "auto");
    assert_string_equal(str_of(j, "floor"), "auto");
    json_decref(j);
    j = MUST("cache", "budget", "14M", "--floor", "64Ki", "--cache", cache);
    assert_true(num_of(j, "budget") == 14e6 && num_of(j, "floor") == 65536);
    json_decref(j);
    /* the next start takes it, says so, and keeps to it */
    struct spawn_result r;
    SPAWN(&r, NULL, "run", "--ids", "1,2,3", "--max-new", "8", "--cache", cache);
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.err.p, "at most 14.0 MB (chosen by shoal cache budget)"));
    assert_non_null(strstr(r.err.p, "65.5 kB stay free (chosen by shoal cache budget)"));
    spawn_free(&r);
    SPAWN(&r, NULL, "run", "--ids", "1,2,3", "--max-new", "1", "--cache", cache, "--disk-budget",
          "15M", "--disk-floor", "1M");
    assert_non_null(strstr(r.err.p, "at most 15.0 MB (given by --disk-budget); 1.00 MB stay free "
                                    "(given by --disk-floor)"));
    spawn_free(&r);
    j = MUST("cache", "budget", "auto", "--cache", cache);
    assert_string_equal(str_of(j, "budget"), "auto");
    assert_true(num_of(j, "floor") == 65536);
    json_decref(j);
    SPAWN(&r, NULL, "run", "--ids", "1,2,3", "--max-new", "1", "--cache", cache);
    assert_non_null(strstr(r.err.p, "room for all of the model"));
    spawn_free(&r);
    static const char *const wrong[][2] = {{"5", "5 bytes: did you mean 5G?"},
                                           {"much", "a size such as 500G, or auto"},
                                           {"0", "a size such as 500G, or auto"},
                                           {"-1", "unknown option"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        SPAWN(&r, NULL, "cache", "budget", wrong[i][0], "--cache", cache);
        assert_int_equal(r.status, 2);
        assert_non_null(strstr(r.err.p, wrong[i][1]));
        spawn_free(&r);
    }
    SPAWN(&r, NULL, "cache", "budget", "--cache", cache, "--home", dir);
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    free(cache);
    homes_drop(dir);
}

/* The same receipt whatever the budget is, also while it changes. */
static void t_budget_running(void **state)
{
    char *dir = homes_new(), *home = homes_at(dir, "home");
    struct spawn_child c;
    json_t *ready = UP(&c, home, "--model", MODEL, "--api", "127.0.0.1:0", "--disk-floor", "64Ki",
                       "--no-save-states");
    const char *api = str_of(ready, "api");
    ask_await(api);
    char *body = ask_chat("Why is the sea salty?", false, ", \"max_tokens\": 24"), fp[2][65];
    struct ask a = {.base = api, .path = "/v1/chat/completions", .body = body};
    ask_run(&a);
    assert_int_equal(a.status, 200);
    free(ask_content(a.out.p, false, fp[0]));
    buf_free(&a.out);
    json_t *s = status_of(home);
    double used = num_of(s, "tiers.disk.limits.used"), spine = num_of(s, "model.spine_bytes");
    assert_true(used > 0);
    assert_string_equal(str_of(object(object(object(s, "tiers"), "disk"), "limits"), "floor_from"),
                        "option");
    assert_true(num_of(s, "tiers.disk.written_today") >= used);
    assert_true(num_of(s, "tiers.disk.written") >= used);
    json_decref(s);
    /* down to the spine and ten experts */
    char size[32];
    snprintf(size, sizeof size, "%.0f", spine + 196000);
    json_t *j = MUST("cache", "budget", size, "--home", home);
    assert_true(json_is_true(json_object_get(j, "running")));
    assert_true(num_of(j, "limits.budget") == spine + 196000);
    assert_string_equal(str_of(object(j, "limits"), "budget_from"), "kept");
    json_decref(j);
    for (int i = 0;; i++) {
        s = status_of(home);
        used = num_of(s, "tiers.disk.limits.used");
        json_decref(s);
        if (used <= spine + 196000) {
            break;
        }
        assert_true(i < 1000);
        usleep(50000);
    }
    assert_true(ask_metric(api, "shoal_disk_written_today_bytes") >= used);
    assert_true(ask_metric(api, "shoal_disk_written_bytes_total") >= used);
    assert_true(ask_metric(api, "shoal_disk_may_bytes") <= spine + 196000);
    struct ask b = {.base = api, .path = "/v1/chat/completions", .body = body};
    ask_run(&b);
    assert_int_equal(b.status, 200);
    free(ask_content(b.out.p, false, fp[1]));
    assert_string_equal(fp[0], fp[1]);
    buf_free(&b.out);
    free(body);
    json_decref(ready);
    assert_int_equal(spawn_end(&c, SIGTERM), 0);
    /* kept: without the node, and for its next start */
    j = MUST("cache", "budget", "--home", home);
    assert_true(json_is_false(json_object_get(j, "running")));
    assert_true(num_of(j, "budget") == spine + 196000);
    json_decref(j);
    ready = UP(&c, home, "--model", MODEL);
    json_decref(ready);
    j = MUST("cache", "budget", "auto", "--floor", "auto", "--home", home);
    assert_true(json_is_null(json_object_get(object(j, "limits"), "budget")));
    assert_string_equal(str_of(object(j, "limits"), "floor_from"), "auto");
    json_decref(j);
    assert_int_equal(spawn_end(&c, SIGTERM), 0);
    free(home);
    homes_drop(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_budget_kept),
        cmocka_unit_test(t_budget_running),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
