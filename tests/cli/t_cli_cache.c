/* SPDX-License-Identifier: MIT
 * t_cli_cache.c: shoal cache budget, ls, path, rm and move: with and without a running node. */
#include "ask.h"
#include "homes.h"

#include <signal.h>
#include <sys/stat.h>

static json_t *object(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    assert_true(json_is_object(v));
    return v;
}

static void t_budget_kept(void **state)
{
    char *dir = homes_new(), *cache = homes_at(dir, "c"), *none = homes_at(dir, "none");
    struct stat sb;
    /* a mistyped name is no cache, and does not become one */
    FAILS("there is no cache at", "cache", "budget", "--cache", cache);
    FAILS("there is no cache at", "cache", "budget", "14M", "--cache", cache);
    FAILS("there is no home", "cache", "budget", "14M", "--home", none);
    FAILS("there is no cache at", "cache", "verify", "--cache", cache);
    FAILS("there is no cache at", "cache", "verify", "--home", none);
    assert_int_not_equal(stat(cache, &sb), 0);
    assert_int_not_equal(stat(none, &sb), 0);
    free(none);
    assert_int_equal(mkdir(cache, 0700), 0);
    struct spawn_result v;
    SPAWN(&v, NULL, "cache", "verify", "--cache", cache);
    assert_int_equal(v.status, 0);
    assert_non_null(strstr(v.out.p, "there is no model in the cache"));
    spawn_free(&v);
    SPAWN(&v, NULL, "cache", "budget", "900000T", "--cache", cache);
    assert_int_equal(v.status, 0);
    assert_non_null(strstr(v.out.p, "more than its whole volume has"));
    spawn_free(&v);
    DO("cache", "budget", "auto", "--cache", cache);
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

/* ---- ls, path, rm ---- */

#define EXPERTS 336
#define EXPERT 19584

static json_t *only_model(json_t *ls)
{
    json_t *l = json_object_get(ls, "models");
    assert_int_equal(json_array_size(l), 1);
    return json_array_get(l, 0);
}

static void expect_experts(const char *flag, const char *dir, int n)
{
    json_t *j = MUST("cache", "ls", flag, dir);
    assert_true(num_of(only_model(j), "experts") == n);
    assert_true(num_of(only_model(j), "expert_bytes") == (double)n * EXPERT);
    json_decref(j);
}

static void t_files(void **state)
{
    char *dir = homes_new(), *cache = homes_at(dir, "c");
    json_t *j = MUST("cache", "ls", "--cache", cache); /* nothing is there */
    assert_int_equal(json_array_size(json_object_get(j, "models")), 0);
    json_decref(j);
    FAILS("there is no model", "cache", "rm", "1.0", "--yes", "--cache", cache);
    DO("setup", MODEL, "--full", "--cache", cache);
    j = MUST("cache", "ls", "--cache", cache);
    json_t *m = only_model(j);
    assert_true(num_of(m, "bytes") == 19116224 && num_of(m, "bytes_of") == 19116224);
    assert_true(num_of(m, "layers") == 7 && num_of(m, "layers_complete") == 7);
    assert_true(num_of(m, "written_today") >= 19116224);
    if (num_of(m, "last_use") < 1e9) { /* a time of our days */
        fail_msg("last use: %.3f", num_of(m, "last_use"));
    }
    assert_true(json_is_false(json_object_get(m, "in_use")));
    char *root = strdup(str_of(m, "root"));
    json_decref(j);
    expect_experts("--cache", cache, EXPERTS);

    struct stat sb;
    j = MUST("cache", "path", "2.5", "--cache", cache);
    assert_int_equal(stat(str_of(j, "path"), &sb), 0);
    assert_int_equal(sb.st_size, EXPERT);
    json_decref(j);
    j = MUST("cache", "path", "spine/global/lm_head.weight", "--cache", cache);
    json_decref(j);
    FAILS("is not in the cache", "cache", "path", "2.48", "--cache", cache);
    FAILS("is no object", "cache", "path", "../../etc", "--cache", cache);
    FAILS("is no object", "cache", "path", "spine/../root", "--cache", cache);

    /* nothing goes without a yes */
    FAILS("say --yes", "cache", "rm", "2.5", "--cache", cache);
    expect_experts("--cache", cache, EXPERTS);
    j = MUST("cache", "rm", "2.5", "3.0", "3.0", "7.99", "--yes", "--cache", cache);
    assert_true(num_of(j, "objects") == 2 && num_of(j, "bytes") == 2 * EXPERT);
    json_decref(j);
    FAILS("is not in the cache", "cache", "path", "2.5", "--cache", cache);
    j = MUST("cache", "ls", "--cache", cache);
    assert_true(num_of(only_model(j), "layers_complete") == 5);
    json_decref(j);
    /* what was used in the last hour is not older than an hour; all of it is older than nothing */
    j = MUST("cache", "rm", "--older-than", "1h", "--yes", "--cache", cache);
    assert_true(num_of(j, "objects") == 0);
    json_decref(j);
    j = MUST("cache", "rm", "--older-than", "0s", "--model", root, "--yes", "--cache", cache);
    assert_true(num_of(j, "objects") == EXPERTS - 2);
    json_decref(j);
    expect_experts("--cache", cache, 0);
    /* they come again, and are right: their digests stayed on record */
    DO("setup", MODEL, "--full", "--cache", cache);
    expect_experts("--cache", cache, EXPERTS);
    struct spawn_result r;
    SPAWN(&r, NULL, "cache", "rm", "--cache", cache);
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    SPAWN(&r, NULL, "cache", "rm", "2.x", "--cache", cache);
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    FAILS("no model in", "cache", "rm", "--model", "ffff", "--yes", "--cache", cache);
    FAILS("4 digits at least", "cache", "rm", "--model", "", "--yes", "--cache", cache);
    /* kept conversations of it go, too, and no others */
    char *states = homes_at(cache, "states"), name[64];
    snprintf(name, sizeof name, "%.16s", root);
    char *own = homes_at(states, name), *other = homes_at(states, "00112233445566aa");
    assert_int_equal(mkdir(states, 0700) | mkdir(own, 0700) | mkdir(other, 0700), 0);
    for (int i = 0; i < 2; i++) {
        char *f = homes_at(i ? own : other, "00112233445566778899aabbccddeeff.state");
        FILE *o = fopen(f, "w");
        assert_true(o && fputs("x", o) >= 0);
        fclose(o);
        free(f);
    }
    j = MUST("cache", "rm", "--model", root, "--yes", "--cache", cache);
    assert_true(num_of(j, "bytes") == 19116224 && num_of(j, "states") == 1);
    assert_int_equal(stat(own, &sb), -1);
    assert_int_equal(stat(other, &sb), 0);
    free(states);
    free(own);
    free(other);
    json_decref(j);
    j = MUST("cache", "ls", "--cache", cache);
    assert_int_equal(json_array_size(json_object_get(j, "models")), 0);
    json_decref(j);
    DO("setup", MODEL, "--cache", cache); /* as if it had never been there */
    free(root);
    free(cache);
    homes_drop(dir);
}

static void t_beside_node(void **state)
{
    char *dir = homes_new(), *home = homes_at(dir, "home"), *cache = homes_at(dir, "home/cache");
    DO("setup", MODEL, "--full", "--home", home);
    struct spawn_child c;
    json_t *ready = UP(&c, home, "--model", MODEL);
    json_t *j = MUST("cache", "ls", "--home", home);
    assert_true(json_is_true(json_object_get(only_model(j), "in_use")));
    char *root = strdup(str_of(only_model(j), "root"));
    json_decref(j);
    /* past the node, as a plain folder: it is in use */
    FAILS("a process has model", "cache", "rm", "2.5", "--yes", "--cache", cache);
    FAILS("the running node works on model", "cache", "rm", "--model", root, "--yes", "--home",
          home);
    expect_experts("--home", home, EXPERTS);
    j = MUST("cache", "rm", "2.5", "2.6", "--yes", "--home", home);
    assert_true(num_of(j, "objects") == 2 && num_of(j, "in_use") == 0);
    assert_true(num_of(j, "last_copies") == 2); /* it is in no shoal: nobody else has them */
    json_decref(j);
    expect_experts("--home", home, EXPERTS - 2);
    await_num(home, "coverage.own.experts", EXPERTS - 2);
    FAILS("has no expert 2.48", "cache", "rm", "2.48", "--yes", "--home", home);
    j = MUST("cache", "rm", "--older-than", "0s", "--yes", "--home", home);
    assert_true(num_of(j, "objects") == EXPERTS - 2);
    json_decref(j);
    await_num(home, "coverage.own.experts", 0);
    expect_experts("--home", home, 0);
    json_decref(ready);
    assert_int_equal(spawn_end(&c, SIGTERM), 0);
    free(root);
    free(cache);
    free(home);
    homes_drop(dir);
}

/* A home whose cache is moved goes on as it was, with the same answers and nothing fetched. */
static void t_move(void **state)
{
    char *dir = homes_new(), *home = homes_at(dir, "home"), *cache = homes_at(dir, "home/cache"),
         *to = homes_at(dir, "big/cache"), *in = homes_at(dir, "home/cache/models/x");
    DO("setup", MODEL, "--full", "--home", home);
    json_t *first = MUST("run", "--ids", "1,2,3", "--max-new", "4", "--home", home);
    struct spawn_child c;
    json_t *ready = UP(&c, home, "--model", MODEL);
    char who[64];
    snprintf(who, sizeof who, "process %.0f uses this cache", num_of(ready, "pid"));
    FAILS(who, "cache", "move", to, "--home", home);
    json_decref(ready);
    assert_int_equal(spawn_end(&c, SIGTERM), 0);
    FAILS("part of the cache itself", "cache", "move", in, "--home", home);
    FAILS("something else in", "cache", "move", MODEL, "--home", home);
    struct spawn_result r;
    SPAWN(&r, NULL, "cache", "move", "--home", home);
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    json_t *j = MUST("cache", "move", to, "--home", home);
    assert_string_equal(str_of(j, "to"), to);
    assert_string_equal(str_of(j, "from"), cache);
    assert_true(num_of(j, "bytes") > 19116224 && num_of(j, "left_out") == 0);
    json_decref(j);
    FAILS("lies in", "cache", "move", to, "--home", home);
    j = MUST("cache", "path", "2.5", "--home", home);
    assert_non_null(strstr(str_of(j, "path"), "big/cache/models"));
    json_decref(j);
    expect_experts("--home", home, EXPERTS);
    expect_experts("--cache", to, EXPERTS);
    DO("cache", "verify", "--deep", "--home", home);
    json_t *second = MUST("run", "--ids", "1,2,3", "--max-new", "4", "--home", home);
    assert_string_equal(str_of(second, "receipt"), str_of(first, "receipt"));
    assert_true(num_of(second, "stats.origin_bytes") == 0);
    ready = UP(&c, home, "--model", MODEL);
    json_t *s = status_of(home);
    assert_string_equal(str_of(object(object(s, "tiers"), "disk"), "folder"), to);
    json_decref(s);
    json_decref(ready);
    assert_int_equal(spawn_end(&c, SIGTERM), 0);
    /* another folder in its place is not taken for it */
    char *gone = homes_at(dir, "gone");
    assert_int_equal(rename(to, gone), 0);
    assert_int_equal(mkdir(to, 0700), 0);
    FAILS("connect its volume", "run", "--ids", "1", "--max-new", "1", "--home", home);
    FAILS("connect its volume", "cache", "ls", "--home", home);
    assert_int_equal(rmdir(to), 0);
    assert_int_equal(rename(gone, to), 0);
    DO("cache", "move", cache, "--home", home);
    j = MUST("cache", "path", "--home", home);
    assert_string_equal(str_of(j, "path"), cache);
    json_decref(j);
    expect_experts("--home", home, EXPERTS);
    json_decref(first);
    json_decref(second);
    free(gone);
    free(in);
    free(to);
    free(cache);
    free(home);
    homes_drop(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_budget_kept), cmocka_unit_test(t_budget_running),
        cmocka_unit_test(t_files),       cmocka_unit_test(t_beside_node),
        cmocka_unit_test(t_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
