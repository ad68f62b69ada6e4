/* SPDX-License-Identifier: MIT
 * t_store_opening.c: how many requests it takes to open a model: of each shard one for its size and
 * the length of its header together, one for the header; from a cache none. */
#include "tests/store/faulty.h"
#include "tests/store/util.h"

#include <stdlib.h>
#include <sys/stat.h>

static uint64_t retries_of_opening(const char *url, const char *cache, bool offline,
                                   uint32_t *shards)
{
    struct store_opts o = {
        .model = url, .cache_dir = cache, .ram_budget = 1 << 20, .disk_floor = 1};
    struct store *st;
    struct err e = {0};
    o.offline = offline;
    if (store_open(&o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    struct store_stats s;
    store_get_stats(st, &s);
    *shards = model_shard_count(store_model(st));
    store_close(st);
    return s.retries;
}

static void t_opening(void **state)
{
    enum { SMALL = 5 }; /* config.json, the index, and three that tell how to read and write text */
    struct faulty *f = faulty_start(DEMO_MODEL);
    char *tmp = util_tmpdir(), *cache = util_path("%s/cache", tmp);
    char *url = util_path("http://127.0.0.1:%d", faulty_port(f));
    struct faulty_numbers k;
    uint32_t shards;
    faulty_zero(f);
    assert_int_equal(retries_of_opening(url, cache, false, &shards), 0);
    faulty_get(f, &k);
    assert_int_equal(shards, 9);
    assert_int_equal(k.requests, SMALL + 2 * shards);
    faulty_zero(f);
    retries_of_opening(url, cache, true, &shards);
    faulty_get(f, &k);
    assert_int_equal(k.requests, 0);
    faulty_stop(f);
    util_rmtree(tmp);
    free(url);
    free(cache);
    free(tmp);
}

static void text_of(const struct store_opts *o, int want)
{
    struct store *st;
    struct err e = {0};
    struct buf b;
    if (store_open(o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    buf_init(&b, 1 << 24);
    assert_int_equal(store_read_file(st, "tiktoken.model", &b, &e), want);
    buf_free(&b);
    store_close(st);
}

/* A folder that is filled after a first try is no folder without a model for ever. */
static void t_late(void **state)
{
    char *tmp = util_tmpdir(), *cache = util_path("%s/cache", tmp), *dir = util_path("%s/m", tmp);
    struct store_opts o = {
        .model = dir, .cache_dir = cache, .ram_budget = 1 << 20, .disk_floor = 1};
    static const char *const part[] = {"config.json", "model.safetensors.index.json", "model-*",
                                       "tiktoken.model"};
    struct store *st;
    struct err e = {0};
    assert_int_equal(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < 4; i++) {
        if (i < 3) {
            assert_int_equal(store_open(&o, &st, &e), ERR_NOTFOUND);
        } else {
            text_of(&o, ERR_NOTFOUND);
        }
        char *cmd = util_path("ln -s '%s'/%s %s/", DEMO_MODEL, part[i], dir);
        assert_int_equal(system(cmd), 0);
        free(cmd);
    }
    text_of(&o, 0);
    util_rmtree(tmp);
    free(dir);
    free(cache);
    free(tmp);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_opening), cmocka_unit_test(t_late)};
    return cmocka_run_group_tests_name("store_opening", t, NULL, NULL);
}
