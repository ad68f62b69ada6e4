/* SPDX-License-Identifier: MIT
 * t_store_mirrors.c: mirrors (node/store/mirrors.h) by real nginx: one that dies in the middle, one
 * with other bytes, one without files, one that drips, one that is all there is. */
#include "tests/store/nginx_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char ORIGIN[] = "    location /m/ { alias " DEMO_MODEL "/; }\n";
static const char FIRST[] = "    location /m/ { alias " DEMO_MODEL "/; limit_rate 600k; }\n";
static const char SECOND[] = "    location /m/ { alias " DEMO_MODEL "/; }\n"
                             "    location /none/ { return 404; }\n"
                             "    location /drip/ { alias " DEMO_MODEL "/; limit_rate 24k; }\n";

static struct nginx g0;
static char *tmp;
static struct util_log lines;
static uint32_t stall_ms; /* of the next store */

static struct store *open_with(const char *cache, const char *const *mirrors, size_t n)
{
    char *url = util_path("http://127.0.0.1:%d/m", g0.port);
    struct store_opts o = {.model = url,
                           .cache_dir = cache,
                           .ram_budget = 1 << 20,
                           .disk_floor = 1,
                           .retries = 2,
                           .retry_ms = 10,
                           .stall_ms = stall_ms,
                           .token = "hush",
                           .mirrors = mirrors,
                           .n_mirrors = n,
                           .log = util_log_line,
                           .log_ctx = &lines};
    struct store *st;
    struct err e = {0};
    if (store_open(&o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    free(url);
    return st;
}

/* All objects, `after` of them before mid (may be NULL) is called; each is compared with the file.
 * The sum of their sizes. */
static uint64_t fetch_all(struct store *st, uint32_t after, void (*mid)(void *), void *ctx)
{
    const struct model *m = store_model(st);
    uint32_t n = model_object_count(m), *ids = malloc(n * sizeof *ids);
    uint64_t sum = 0;
    struct err e = {0};
    struct store_batch *b;
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = i;
    }
    assert_int_equal(store_batch_begin(st, ids, n, STORE_DEMAND, &b, &e), 0);
    for (uint32_t i = 0; i < n; i++) {
        size_t which;
        struct store_view v;
        if (store_batch_next(b, &which, &v, &e)) {
            fail_msg("%s", e.msg);
        }
        sum += v.n;
        assert_true(util_right(m, DEMO_MODEL, &v));
        store_release(st, &v);
        if (mid && i + 1 == after) {
            mid(ctx);
        }
    }
    store_batch_end(b);
    free(ids);
    return sum;
}

static void get_one(struct store *st, uint32_t id)
{
    struct store_view v;
    struct err e = {0};
    if (store_get(st, id, STORE_DEMAND, 0, &v, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_true(util_right(store_model(st), DEMO_MODEL, &v));
    store_release(st, &v);
}

static uint32_t largest(struct store *st)
{
    const struct model *m = store_model(st);
    uint32_t best = 0;
    for (uint32_t i = 1; i < model_object_count(m); i++) {
        best = model_object(m, i)->size > model_object(m, best)->size ? i : best;
    }
    return best;
}

/* Turns every byte of the shards' data, or of one object, over. */
static void spoil(const char *dir, const struct model *m, uint32_t only)
{
    for (uint32_t i = 0; i < model_object_count(m); i++) {
        if (only != UINT32_MAX && i != only) {
            continue;
        }
        const struct model_object *o = model_object(m, i);
        char *p = util_path("%s/%s", dir, model_shard(m, o->shard)->file);
        int fd = open(p, O_RDWR);
        uint8_t *b = malloc(o->size);
        assert_true(fd >= 0 && b);
        assert_int_equal(pread(fd, b, o->size, (off_t)o->offset), o->size);
        for (uint64_t k = 0; k < o->size; k++) {
            b[k] ^= 0xff;
        }
        assert_int_equal(pwrite(fd, b, o->size, (off_t)o->offset), o->size);
        close(fd);
        free(b);
        free(p);
    }
}

static void kill_it(void *ctx)
{
    nginx_kill(ctx);
}

static void t_dies_in_the_middle(void **s)
{
    (void)s;
    struct nginx a, b;
    assert_true(nginx_start(&a, FIRST) && nginx_start(&b, SECOND));
    char *cache = util_path("%s/mid", tmp);
    char *urls[2] = {util_path("http://127.0.0.1:%d/m/", a.port),
                     util_path("http://127.0.0.1:%d/m", b.port)};
    struct store *st = open_with(cache, (const char *const *)urls, 2);
    uint64_t all = fetch_all(st, 3, kill_it, &a);
    struct store_stats x;
    struct store_mirror v[3];
    store_get_stats(st, &x);
    assert_int_equal(store_mirrors(st, v, 3), 2);
    assert_int_equal(x.origin_bytes + x.mirror_bytes, all);
    assert_true(v[0].bytes > 0 && v[0].failed > 0 && *v[0].why && !v[0].wrong);
    assert_true(v[1].bytes > 0 && v[1].parts > 0);
    assert_true(x.mirror_bytes > 0 && x.mirror_bytes <= v[0].bytes + v[1].bytes);
    assert_null(strchr(v[0].host, '/'));
    store_close(st);
    /* nothing of it is asked for again, whoever gave it */
    st = open_with(cache, NULL, 0);
    fetch_all(st, 0, NULL, NULL);
    store_get_stats(st, &x);
    assert_int_equal(x.origin_bytes + x.mirror_bytes, 0);
    store_close(st);
    nginx_stop(&b);
    uint64_t requests, auth;
    nginx_logged(&a, "/", &requests, &auth);
    assert_true(requests == 0 || auth == 0); /* what it was killed in is in no log */
    nginx_logged(&b, "/", &requests, &auth);
    assert_true(requests > 0);
    assert_int_equal(auth, 0);
    nginx_logged(&b, "/m/config.json", &requests, NULL); /* small files are the origin's */
    assert_int_equal(requests, 0);
    util_rmtree(a.dir);
    util_rmtree(b.dir);
    free(a.dir);
    free(b.dir);
    free(urls[0]);
    free(urls[1]);
    free(cache);
}

static void t_wrong_and_missing(void **s)
{
    (void)s;
    char *bad = util_path("%s/bad", tmp), *cache = util_path("%s/wrong", tmp);
    char *loc =
        util_path("    location /bad/ { alias %s/; }\n    location /none/ { return 404; }\n", bad);
    util_copy_dir(DEMO_MODEL, bad);
    struct nginx g;
    assert_true(nginx_start(&g, loc));
    struct store *st = open_with(cache, NULL, 0);
    spoil(bad, store_model(st), UINT32_MAX);
    store_close(st);
    char *urls[2] = {util_path("http://127.0.0.1:%d/none", g.port),
                     util_path("http://127.0.0.1:%d/bad", g.port)};
    st = open_with(cache, (const char *const *)urls, 2);
    uint64_t all = fetch_all(st, 0, NULL, NULL);
    struct store_stats x;
    struct store_mirror v[2];
    store_get_stats(st, &x);
    assert_int_equal(store_mirrors(st, v, 2), 2);
    assert_int_equal(x.origin_bytes, all);
    assert_int_equal(x.mirror_bytes, 0);
    assert_true(v[0].failed > 0 && !v[0].wrong && strstr(v[0].why, "404"));
    assert_true(v[1].wrong && v[1].parts == 0 && v[1].bytes > 0); /* samples */
    assert_true(util_log_has(&lines, "is not what the origin has"));
    store_close(st);
    nginx_stop(&g);
    util_rmtree(g.dir);
    free(g.dir);
    free(urls[0]);
    free(urls[1]);
    free(loc);
    free(bad);
    free(cache);
}

static uint32_t first_expert(struct store *st)
{
    uint32_t i = 0;
    while (model_object(store_model(st), i)->kind != MODEL_EXPERT) {
        i++;
    }
    return i;
}

/* One object differs, which no sample has met: what is on record does not let it in. */
static void t_differs_from_record(void **s)
{
    (void)s;
    char *bad = util_path("%s/one", tmp), *cache = util_path("%s/record", tmp);
    char *loc = util_path("    location /m/ { alias %s/; }\n", bad), *file = NULL;
    util_copy_dir(DEMO_MODEL, bad);
    struct nginx g;
    assert_true(nginx_start(&g, loc));
    struct store *st = open_with(cache, NULL, 0);
    uint32_t id = first_expert(st);
    get_one(st, id);
    spoil(bad, store_model(st), id);
    store_close(st);
    assert_int_equal(util_count_files(cache, "/experts/", &file), 1);
    assert_int_equal(unlink(file), 0); /* as if it had been evicted: its digest stays on record */
    char *url = util_path("http://127.0.0.1:%d/m", g.port);
    const char *one[1] = {url};
    st = open_with(cache, one, 1);
    const struct model *m = store_model(st);
    uint32_t other = UINT32_MAX; /* of the same file, so that its sample is of good bytes */
    for (uint32_t i = 0; i < model_object_count(m) && other == UINT32_MAX; i++) {
        other = i != id && model_object(m, i)->shard == model_object(m, id)->shard ? i : other;
    }
    get_one(st, other);
    struct store_stats x;
    struct store_mirror v[1];
    store_get_stats(st, &x);
    assert_int_equal(x.mirror_bytes, model_object(m, other)->size);
    assert_int_equal(x.origin_bytes, 0);
    get_one(st, id);
    store_get_stats(st, &x);
    assert_int_equal(x.origin_bytes, model_object(m, id)->size);
    assert_int_equal(x.bad_chunks, 1);
    assert_int_equal(store_mirrors(st, v, 1), 1);
    assert_true(v[0].wrong);
    assert_false(store_mirrors_up(st));
    store_close(st);
    nginx_stop(&g);
    util_rmtree(g.dir);
    free(g.dir);
    free(url);
    free(file);
    free(loc);
    free(bad);
    free(cache);
}

static void t_drips(void **s)
{
    (void)s;
    struct nginx g;
    assert_true(nginx_start(&g, SECOND));
    char *cache = util_path("%s/drips", tmp);
    char *url = util_path("http://127.0.0.1:%d/drip", g.port);
    const char *one[1] = {url};
    stall_ms = 2000; /* how long it is borne with */
    struct store *st = open_with(cache, one, 1);
    stall_ms = 0;
    get_one(st, largest(st));
    struct store_stats x;
    struct store_mirror v[1];
    store_get_stats(st, &x);
    assert_int_equal(store_mirrors(st, v, 1), 1);
    assert_true(x.origin_bytes > 0 && v[0].failed > 0 && !v[0].wrong);
    assert_int_equal(x.origin_bytes + x.mirror_bytes,
                     model_object(store_model(st), largest(st))->size);
    store_close(st);
    nginx_stop(&g);
    util_rmtree(g.dir);
    free(g.dir);
    free(url);
    free(cache);
}

static void t_alone(void **s)
{
    (void)s;
    struct nginx g;
    assert_true(nginx_start(&g, SECOND));
    char *cache = util_path("%s/alone", tmp);
    char *url = util_path("http://127.0.0.1:%d/m", g.port);
    const char *one[1] = {url};
    struct store *st = open_with(cache, one, 1); /* the small files come into the cache */
    store_close(st);
    nginx_stop(&g0);
    st = open_with(cache, one, 1);
    uint64_t all = fetch_all(st, 0, NULL, NULL);
    struct store_stats x;
    store_get_stats(st, &x);
    assert_int_equal(x.mirror_bytes, all);
    assert_int_equal(x.origin_bytes, 0);
    assert_true(util_log_has(&lines, "cannot be compared with the origin"));
    store_close(st);
    nginx_stop(&g);
    util_rmtree(g.dir);
    free(g.dir);
    free(url);
    free(cache);
}

static void t_refused(void **s)
{
    (void)s;
    char *url = util_path("http://127.0.0.1:%d/m", g0.port);
    const char *same[1] = {url}, *ftp[1] = {"ftp://127.0.0.1/m"};
    struct store_opts o = {.model = url, .n_mirrors = 1};
    struct store *st;
    struct err e = {0};
    o.mirrors = same;
    assert_int_equal(store_open(&o, &st, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "own address"));
    o.mirrors = ftp;
    assert_int_equal(store_open(&o, &st, &e), ERR_ARG);
    o.model = DEMO_MODEL;
    assert_int_equal(store_open(&o, &st, &e), ERR_ARG);
    free(url);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_refused),
                                   cmocka_unit_test(t_dies_in_the_middle),
                                   cmocka_unit_test(t_wrong_and_missing),
                                   cmocka_unit_test(t_differs_from_record),
                                   cmocka_unit_test(t_drips),
                                   cmocka_unit_test(t_alone) /* stops the origin */};
    if (!nginx_find()) {
        printf("SKIPPED: there is no nginx on this machine; install it to run this test\n");
        return 0;
    }
    if (!nginx_start(&g0, ORIGIN)) {
        printf("nginx does not start; see %s/error.log\n", g0.dir);
        return 1;
    }
    tmp = util_tmpdir();
    util_log_init(&lines);
    int r = cmocka_run_group_tests_name("store_mirrors", t, NULL, NULL);
    uint64_t requests, auth;
    nginx_logged(&g0, "/m/config.json", &requests, &auth);
    if (!requests || auth != requests) {
        printf("the origin's log has the token in %d of %d requests\n", (int)auth, (int)requests);
        r = 1;
    }
    util_log_free(&lines);
    util_rmtree(tmp);
    util_rmtree(g0.dir);
    free(tmp);
    free(g0.dir);
    return r;
}
