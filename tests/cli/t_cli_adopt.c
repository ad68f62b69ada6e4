/* SPDX-License-Identifier: MIT
 * t_cli_adopt.c: shoal cache adopt and shoal cache verify, with and without a running node: the
 * same receipt whatever tier the bytes come from. */
#include "ask.h"
#include "homes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#define RUN "run", "--model", MODEL, "--prompt", "The sea is", "--max-new", "12", "--ignore-eos"

/* Shards of the demo model, by digits; links, as in a snapshot. */
static char *shards(const char *dir, const char *name, const char *which)
{
    char *d = homes_at(dir, name), from[600], to[600];
    mkdir(d, 0700);
    for (const char *c = which; *c; c++) {
        snprintf(from, sizeof from, "%s/model-0000%c-of-000009.safetensors", MODEL, *c);
        snprintf(to, sizeof to, "%s/model-0000%c-of-000009.safetensors", d, *c);
        assert_int_equal(symlink(from, to), 0);
    }
    return d;
}

static char *receipt_of(json_t *j)
{
    char *s = strdup(str_of(j, "receipt"));
    json_decref(j);
    return s;
}

static const json_t *first(const json_t *j, const char *key)
{
    const json_t *a = json_array_get(json_object_get(j, key), 0);
    assert_true(json_is_object(a));
    return a;
}

static void t_adopt_run(void **state)
{
    char *dir = homes_new(), *cache = homes_at(dir, "c"), *part = shards(dir, "part", "2569");
    char *none = homes_at(dir, "none");
    char *plain = receipt_of(MUST(RUN));
    json_t *j = MUST(RUN, "--cache", none);
    double all = num_of(j, "stats.origin_bytes");
    assert_string_equal(str_of(j, "receipt"), plain);
    json_decref(j);
    FAILS("is not a folder that is there", "cache", "adopt", "/no/such", "--cache", cache);
    FAILS("holds neither shards", "cache", "adopt", dir, "--cache", cache);
    j = MUST("cache", "adopt", part, "--cache", cache);
    assert_true(num_of(j, "added") == 1);
    assert_int_equal(json_array_size(json_object_get(j, "adopted")), 0); /* no model is known yet */
    json_decref(j);
    j = MUST(RUN, "--cache", cache);
    assert_string_equal(str_of(j, "receipt"), plain);
    double some = num_of(j, "stats.origin_bytes");
    assert_true(some > 0 && some < all);
    assert_true(num_of(j, "stats.disk_bytes") > 0);
    json_decref(j);
    j = MUST("cache", "adopt", "--list", "--cache", cache);
    const json_t *a = first(j, "adopted");
    assert_true(json_is_true(json_object_get(a, "here")));
    assert_true(num_of(a, "objects") > num_of(a, "experts") && num_of(a, "looked") > 0);
    assert_true(num_of(a, "refused") == 0);
    double offers = num_of(a, "objects"), some_of = num_of(a, "looked");
    assert_true(some_of < offers);
    json_decref(j);
    j = MUST("cache", "verify", "--deep", "--cache", cache);
    assert_true(num_of(j, "faults") == 0);
    assert_true(num_of(first(j, "models"), "adopted") == offers); /* all, not what was used */
    assert_true(num_of(first(j, "models"), "read_bytes") >= num_of(first(j, "models"), "bytes"));
    json_decref(j);
    /* a second one from everything that is there */
    j = MUST(RUN, "--cache", cache);
    assert_string_equal(str_of(j, "receipt"), plain);
    assert_true(num_of(j, "stats.origin_bytes") < some); /* what is guessed ahead may come */
    json_decref(j);
    j = MUST("cache", "adopt", "--forget", part, "--cache", cache);
    assert_true(num_of(j, "forgotten") == 1);
    json_decref(j);
    FAILS("is not adopted", "cache", "adopt", "--forget", "/no/such", "--cache", cache);
    j = MUST(RUN, "--cache", cache);
    assert_string_equal(str_of(j, "receipt"), plain);
    assert_true(num_of(j, "stats.origin_bytes") > 0);
    json_decref(j);
    struct spawn_result r;
    SPAWN(&r, NULL, "cache", "adopt", "--cache", cache);
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    free(plain);
    free(none);
    free(part);
    free(cache);
    homes_drop(dir);
}

static bool here(const char *home)
{
    json_t *s = status_of(home);
    bool r = json_is_true(json_object_get(first(s, "adopted"), "here"));
    json_decref(s);
    return r;
}

/* Adopted, unplugged and plugged in while a node answers; and a second member that takes what lies
 * in the folder from it. */
static void t_adopt_up(void **state)
{
    char *dir = homes_new(), *home = homes_at(dir, "a"), *away = homes_at(dir, "away");
    char *b = homes_at(dir, "b"), *part = shards(dir, "part", "1234567"), fp[3][65];
    struct spawn_child c;
    DO("init", "--home", home);
    json_t *ready = UP(&c, home, "--model", MODEL, "--api", "127.0.0.1:0");
    const char *api = str_of(ready, "api");
    ask_await(api);
    json_t *j = MUST("cache", "adopt", part, "--home", home);
    assert_true(num_of(first(j, "adopted"), "objects") > 0);
    json_decref(j);
    char *body = ask_chat("Why is the sea salty?", false, ", \"max_tokens\": 24");
    for (int i = 0; i < 3; i++) {
        struct ask a = {.base = api, .path = "/v1/chat/completions", .body = body};
        ask_run(&a);
        assert_int_equal(a.status, 200);
        free(ask_content(a.out.p, false, fp[i]));
        assert_string_equal(fp[i], fp[0]);
        buf_free(&a.out);
        if (i == 0) {
            assert_int_equal(rename(part, away), 0);
        } else if (i == 1) {
            assert_int_equal(rename(away, part), 0);
            for (int k = 0; !here(home); k++) {
                assert_true(k < 1200);
                usleep(50000);
            }
        }
    }
    await_num(home, "upkeep.to_look", 0);
    ask_await_metric(api, "shoal_adopted_to_look", 0);
    assert_true(ask_metric(api, "shoal_quarantine_bytes") == 0);
    json_t *s = status_of(home);
    assert_true(num_of(first(s, "adopted"), "looked") > 0); /* but for what has come meanwhile */
    assert_true(num_of(first(s, "adopted"), "refused") == 0);
    assert_true(num_of(s, "upkeep.scrub.period_s") == 30 * 86400);
    json_decref(s);
    take_in(home, b);
    char *plain = receipt_of(MUST(RUN));
    j = MUST(RUN, "--home", b);
    assert_string_equal(str_of(j, "receipt"), plain);
    assert_true(num_of(j, "stats.peer_bytes") > 0);
    json_decref(j);
    json_decref(ready);
    assert_int_equal(spawn_end(&c, SIGTERM), 0);
    free(plain);
    free(body);
    free(part);
    free(away);
    free(b);
    free(home);
    homes_drop(dir);
}

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    char x = 0;
    assert_true(fd >= 0 && pread(fd, &x, 1, at) == 1);
    x ^= 4;
    assert_int_equal(pwrite(fd, &x, 1, at), 1);
    close(fd);
}

/* The model's folder in a cache, and the nth expert file in it. */
static char *expert_in(const char *cache, int nth)
{
    char models[600], path[1200];
    snprintf(models, sizeof models, "%s/models", cache);
    DIR *d = opendir(models);
    struct dirent *x;
    assert_non_null(d);
    while ((x = readdir(d)) && x->d_name[0] == '.') {
    }
    assert_non_null(x);
    for (int layer = 1; layer < 8; layer++) {
        for (int e = 0; e < 48; e++) {
            snprintf(path, sizeof path, "%s/%s/experts/%03d/%03d.mxfp4", models, x->d_name, layer,
                     e);
            if (access(path, F_OK) == 0 && nth-- == 0) {
                closedir(d);
                return strdup(path);
            }
        }
    }
    closedir(d);
    fail_msg("no such file below %s", models);
    return NULL;
}

static void t_verify(void **state)
{
    char *dir = homes_new(), *cache = homes_at(dir, "c");
    struct spawn_result r;
    FAILS("there is no cache", "cache", "verify", "--cache", cache);
    char *plain = receipt_of(MUST(RUN, "--cache", cache));
    char *one = expert_in(cache, 0), *two = expert_in(cache, 3), *three = expert_in(cache, 5);
    /* a bit, which only a deep look finds */
    flip(one, 100);
    DO("cache", "verify", "--cache", cache);
    /* and a file that is too short */
    assert_int_equal(truncate(two, 10), 0);
    SPAWN(&r, NULL, "cache", "verify", "--deep", "--cache", cache, "--json");
    assert_int_equal(r.status, 1);
    assert_true(num_of(r.json, "faults") == 2);
    assert_true(num_of(r.json, "left") == 2);
    assert_true(num_of(first(r.json, "models"), "damaged") == 2);
    assert_int_equal(json_array_size(json_object_get(r.json, "found")), 2);
    spawn_free(&r);
    assert_int_equal(access(one, F_OK), -1); /* set aside */
    assert_int_equal(access(two, F_OK), -1);
    DO("cache", "verify", "--deep", "--cache", cache); /* nothing is wrong any more, it lacks two */
    flip(three, 7);
    SPAWN(&r, NULL, "cache", "verify", "--deep", "--repair", "--cache", cache, "--json");
    assert_int_equal(r.status, 1);
    assert_true(num_of(first(r.json, "models"), "repaired") == 1);
    assert_true(num_of(r.json, "left") == 0);
    spawn_free(&r);
    assert_int_equal(access(three, F_OK), 0);
    DO("cache", "verify", "--deep", "--cache", cache);
    /* the journal lacks what the catalog has: said, and put right */
    char *slash = strstr(one, "/experts/"), journal[1200];
    snprintf(journal, sizeof journal, "%.*s/digests.log", (int)(slash - one), one);
    assert_int_equal(truncate(journal, 500), 0);
    SPAWN(&r, NULL, "cache", "verify", "--cache", cache, "--json");
    assert_int_equal(r.status, 1);
    assert_true(num_of(first(r.json, "models"), "journal_added") > 0);
    spawn_free(&r);
    DO("cache", "verify", "--cache", cache);
    char *again = receipt_of(MUST(RUN, "--cache", cache));
    assert_string_equal(again, plain);
    free(again);
    free(plain);
    free(one);
    free(two);
    free(three);
    free(cache);
    homes_drop(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_adopt_run),
        cmocka_unit_test(t_adopt_up),
        cmocka_unit_test(t_verify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
