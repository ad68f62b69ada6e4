/* SPDX-License-Identifier: MIT
 * t_store_http.c: an HTTP origin, well-behaved and not: success by retry or one clear error, and
 * never a wrong byte in RAM or in the cache. */
#include "tests/store/faulty.h"
#include "tests/store/util.h"

#include "proto/base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rig {
    struct faulty *f;
    char *tmp, *url, *cache;
    struct util_log log;
    struct store *st;
    struct store_opts o;
};

static void rig_start(struct rig *r)
{
    memset(r, 0, sizeof *r);
    r->f = faulty_start(DEMO_MODEL);
    r->tmp = util_tmpdir();
    r->url = util_path("http://127.0.0.1:%d", faulty_port(r->f));
    r->cache = util_path("%s/cache", r->tmp);
    util_log_init(&r->log);
    r->o = (struct store_opts){.model = r->url,
                               .cache_dir = r->cache,
                               .ram_budget = 1 << 20,
                               .disk_floor = 1,
                               .retries = 4,
                               .retry_ms = 5,
                               .stall_ms = 8000,
                               .log = util_log_line,
                               .log_ctx = &r->log};
}

static void rig_open(struct rig *r)
{
    struct err e = {0};
    if (store_open(&r->o, &r->st, &e)) {
        fail_msg("%s", e.msg);
    }
}

static void rig_close(struct rig *r)
{
    store_close(r->st);
    r->st = NULL;
}

static void rig_end(struct rig *r)
{
    if (r->st) {
        rig_close(r);
    }
    faulty_stop(r->f);
    util_rmtree(r->tmp);
    util_log_free(&r->log);
    free(r->tmp);
    free(r->url);
    free(r->cache);
}

/* Every file in the cache holds exactly its object's bytes: opened again offline, all objects that
 * are there are read and compared. Returns how many. */
static uint32_t check_cache(struct rig *r)
{
    struct store_opts o = r->o;
    o.offline = true;
    struct store *st;
    struct err e = {0};
    if (store_open(&o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    uint32_t n = 0;
    for (uint32_t id = 0; id < model_object_count(store_model(st)); id++) {
        if (store_where(st, id) == STORE_DISK) {
            struct store_view v;
            if (store_get(st, id, STORE_DEMAND, 0, &v, &e)) {
                fail_msg("%s", e.msg);
            }
            assert_true(util_right(store_model(st), DEMO_MODEL, &v));
            store_release(st, &v);
            n++;
        }
    }
    store_close(st);
    return n;
}

static void get_right(struct rig *r, uint32_t id)
{
    struct store_view v;
    struct err e = {0};
    if (store_get(r->st, id, STORE_DEMAND, 0, &v, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_true(util_right(store_model(r->st), DEMO_MODEL, &v));
    store_release(r->st, &v);
}

static void t_fetch_all_once(void **s)
{
    struct rig r;
    rig_start(&r);
    rig_open(&r);
    const struct model *m = store_model(r.st);
    uint32_t n = model_object_count(m), *ids = malloc(n * sizeof *ids);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = i;
    }
    struct faulty_numbers k0, k;
    faulty_get(r.f, &k0);
    struct err e = {0};
    struct store_batch *b;
    assert_int_equal(store_batch_begin(r.st, ids, n, STORE_DEMAND, &b, &e), 0);
    size_t which;
    struct store_view v;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(store_batch_next(b, &which, &v, &e), 0);
        assert_true(util_right(m, DEMO_MODEL, &v));
        store_release(r.st, &v);
    }
    store_batch_end(b);
    faulty_get(r.f, &k);
    uint64_t total = model_spine_bytes(m) + model_expert_bytes(m);
    assert_int_equal(k.body_bytes - k0.body_bytes, total); /* each byte once */
    assert_true(k.requests - k0.requests < n / 3);         /* adjacent objects in one request */
    struct store_stats x;
    store_get_stats(r.st, &x);
    assert_int_equal(x.origin_bytes, total);
    assert_int_equal(x.retries, 0);
    rig_close(&r);
    /* a second start: not one byte from the origin */
    faulty_zero(r.f);
    rig_open(&r);
    for (uint32_t i = 0; i < n; i += 7) {
        get_right(&r, i);
    }
    rig_close(&r);
    faulty_get(r.f, &k);
    assert_int_equal(k.requests, 0);
    assert_int_equal(check_cache(&r), n);
    free(ids);
    rig_end(&r);
}

static void t_small_files(void **s)
{
    struct rig r;
    rig_start(&r);
    rig_open(&r);
    struct buf a;
    buf_init(&a, 1 << 20);
    struct err e = {0};
    assert_int_equal(store_read_file(r.st, "tiktoken.model", &a, &e), 0);
    assert_int_equal(store_read_file(r.st, "no-such.json", &a, &e), ERR_NOTFOUND);
    rig_close(&r);
    faulty_zero(r.f);
    r.o.offline = true;
    rig_open(&r);
    struct buf c;
    buf_init(&c, 1 << 20);
    assert_int_equal(store_read_file(r.st, "tiktoken.model", &c, &e), 0);
    assert_int_equal(a.n, c.n);
    assert_memory_equal(a.p, c.p, a.n);
    assert_int_equal(store_read_file(r.st, "no-such.json", &c, &e), ERR_NOTFOUND);
    assert_int_equal(store_read_file(r.st, "never-asked.json", &c, &e), ERR_OFFLINE);
    assert_int_equal(store_read_file(r.st, "../../etc/passwd", &c, &e), ERR_OFFLINE);
    struct store_view v;
    assert_int_equal(store_get(r.st, 3, STORE_DEMAND, 0, &v, &e), ERR_OFFLINE);
    assert_non_null(strstr(e.msg, "--offline"));
    rig_close(&r);
    r.o.offline = false;
    rig_open(&r);
    assert_int_equal(store_read_file(r.st, "../../etc/passwd", &c, &e), ERR_FORMAT);
    buf_free(&c);
    buf_init(&c, 100);
    assert_int_equal(store_read_file(r.st, "tiktoken.model", &c, &e), ERR_LIMIT);
    buf_free(&a);
    struct faulty_numbers k;
    faulty_get(r.f, &k);
    assert_int_equal(k.requests, 0);
    rig_end(&r);
}

struct fault_case {
    enum fault kind;
    long arg;
    int times;        /* -1: for ever */
    int code;         /* 0: survived */
    const char *says; /* in the error, or in the log where it is survived */
    uint32_t faults;  /* at most so many times met; 0 = not checked */
};

static const struct fault_case cases[] = {
    {F_DEAD, 0, 2, 0, "", 0},
    {F_DEAD, 0, -1, ERR_NET, "given up after 4", 4},
    {F_GARBAGE, 0, 2, 0, "", 0},
    {F_GARBAGE, 0, -1, ERR_NET, "given up after 4", 4},
    {F_CUT, 0, 2, 0, "", 0},
    {F_CUT, 5000, 3, 0, "", 0},
    {F_CUT, 4000, -1, ERR_NET, "given up after 4", 0},
    {F_STATUS, 500, 2, 0, "status 500", 0},
    {F_STATUS, 503, 3, 0, "status 503", 0},
    {F_STATUS, 503, -1, ERR_NET, "status 503", 4},
    {F_STATUS, 429, 2, 0, "status 429", 0},
    {F_STATUS, 404, -1, ERR_NOTFOUND, "status 404", 1},
    {F_STATUS, 416, -1, ERR_NET, "status 416", 1},
    {F_STATUS, 403, -1, ERR_NET, "status 403", 1},
    {F_STATUS, 401, -1, ERR_NET, "token", 1},
    {F_STATUS, 204, -1, ERR_NET, "unexpected answer", 3},
    {F_WHOLE, 0, 1, 0, "status 200", 0},
    {F_WHOLE, 0, -1, ERR_NET, "does not support ranges", 3},
    {F_RANGE_OFF, 0, 1, 0, "instead of", 0},
    {F_RANGE_OFF, 0, -1, ERR_NET, "instead of", 3},
    {F_RANGE_NONE, 0, -1, ERR_NET, "no Content-Range", 3},
    {F_RANGE_TEXT, 0, -1, ERR_NET, "malformed Content-Range", 3},
    {F_TOTAL, 0, -1, ERR_NET, "it has changed", 1},
    {F_ETAG, 0, -1, ERR_NET, "entity tag", 1},
    {F_LONGER, 0, 1, 0, "", 0},
    {F_SHORTER, 0, 1, 0, "", 0},
    {F_SHORTER, 0, -1, ERR_NET, "instead of", 3},
    {F_STALL, 0, 1, 0, "no bytes for", 0},
    {F_STALL, 9000, 1, 0, "no bytes for", 0},
    {F_ENCODED, 0, -1, ERR_NET, "encoded", 3},
    {F_BUSY, 0, 1, 0, "status 503", 0},
};

static void t_faults(void **s)
{
    struct rig r;
    rig_start(&r);
    r.o.stall_ms = 400;
    rig_open(&r);
    const struct model *m = store_model(r.st);
    uint32_t id = model_expert_id(m, 1, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++, id += 2) {
        const struct fault_case *c = &cases[i];
        get_right(&r, id + 1); /* the entity tag of this shard is on record */
        struct faulty_numbers k0, k;
        faulty_get(r.f, &k0);
        r.log.n = 0;
        memset(r.log.text, 0, sizeof r.log.text);
        faulty_set(r.f, c->kind, c->arg, NULL, 0, c->times);
        struct store_view v;
        struct err e = {0};
        int rc = store_get(r.st, id, STORE_DEMAND, clock_ns() + 60000000000u, &v, &e);
        faulty_get(r.f, &k);
        if (rc != c->code) {
            fail_msg("case %zu: code %d (%s), expected %d", i, rc, e.msg, c->code);
        }
        if (rc) {
            char name[64];
            model_object_name(m, id, name, sizeof name);
            if (!strstr(e.msg, c->says) || !strstr(e.msg, name) || !strstr(e.msg, "127.0.0.1")) {
                fail_msg("case %zu: \"%s\" does not say \"%s\"", i, e.msg, c->says);
            }
            assert_int_equal(store_where(r.st, id), STORE_ORIGIN);
        } else {
            assert_true(util_right(m, DEMO_MODEL, &v));
            store_release(r.st, &v);
            if (!util_log_has(&r.log, c->says)) {
                fail_msg("case %zu: the log does not say \"%s\"", i, c->says);
            }
            assert_int_equal(k.faults - k0.faults, c->times);
        }
        if (c->faults &&
            k.faults - k0.faults > c->faults + 1) { /* libcurl repeats one on its own */
            /* when a connection that was kept alive turns out to be dead */
            fail_msg("case %zu: asked %d times", i, (int)(k.faults - k0.faults));
        }
        faulty_set(r.f, F_NONE, 0, NULL, 0, 0);
        get_right(&r, id); /* and it goes on as if nothing had been */
    }
    struct store_stats x;
    store_get_stats(r.st, &x);
    assert_true(x.retries > 20);
    rig_close(&r);
    assert_int_equal(check_cache(&r), 2 * sizeof cases / sizeof *cases);
    rig_end(&r);
}

/* The same faults while the model is being opened: an error names the file, or it works. */
static void t_faults_at_open(void **s)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct fault_case *c = &cases[i];
        if (c->kind == F_ETAG) {
            continue; /* nothing to compare with yet */
        }
        struct rig r;
        rig_start(&r);
        r.o.stall_ms = 400;
        faulty_set(r.f, c->kind, c->arg, "00003-of", 0, c->times);
        struct err e = {0};
        int rc = store_open(&r.o, &r.st, &e);
        bool survives = c->code == 0;
        if (c->kind == F_TOTAL) {
            survives = rc == 0; /* caught when the size is compared with the header's */
        }
        if ((rc == 0) != survives || (rc && !strstr(e.msg, "00003-of"))) {
            fail_msg("case %zu: %d %s", i, rc, e.msg);
        }
        if (rc) {
            r.st = NULL;
        }
        faulty_set(r.f, F_NONE, 0, NULL, 0, 0);
        if (c->kind != F_TOTAL) {
            if (r.st) {
                rig_close(&r);
            }
            rig_open(&r); /* what was kept of the failed start is good */
            get_right(&r, model_expert_id(store_model(r.st), 2, 5));
        }
        rig_end(&r);
    }
}

/* A large object whose connection is cut again and again moves each byte once. */
static void t_resume(void **s)
{
    struct rig r;
    rig_start(&r);
    rig_open(&r);
    const struct model *m = store_model(r.st);
    uint32_t id = model_spine_id(m, 0, MODEL_EMBED);
    struct faulty_numbers k0, k;
    faulty_get(r.f, &k0);
    faulty_set(r.f, F_CUT, 100000, NULL, 0, -1);
    get_right(&r, id);
    faulty_get(r.f, &k);
    assert_int_equal(k.body_bytes - k0.body_bytes, model_object(m, id)->size);
    assert_true(k.faults - k0.faults >= model_object(m, id)->size / 100000);
    rig_end(&r);
}

static void t_lie(void **s)
{
    /* a digest on record from an earlier fetch unmasks an origin that gives other bytes */
    struct rig r;
    rig_start(&r);
    rig_open(&r);
    const struct model *m = store_model(r.st);
    uint32_t id = model_expert_id(m, 1, 3);
    get_right(&r, id);
    rig_close(&r);
    char *file;
    assert_int_equal(util_count_files(r.cache, "experts/001/003.mxfp4", &file), 1);
    unlink(file);
    free(file);
    rig_open(&r);
    id = model_expert_id(store_model(r.st), 1, 3);
    faulty_set(r.f, F_LIE, 0, NULL, 0, 1);
    get_right(&r, id); /* once: fetched again */
    assert_int_equal(util_log_has(&r.log, "other bytes"), 1);
    rig_close(&r);
    assert_int_equal(util_count_files(r.cache, "experts/001/003.mxfp4", &file), 1);
    unlink(file);
    free(file);
    rig_open(&r);
    faulty_set(r.f, F_LIE, 0, NULL, 0, -1);
    struct store_view v;
    struct err e = {0};
    assert_int_equal(store_get(r.st, id, STORE_DEMAND, 0, &v, &e), ERR_DIGEST);
    assert_non_null(strstr(e.msg, "other bytes"));
    faulty_set(r.f, F_NONE, 0, NULL, 0, 0);
    get_right(&r, id);
    rig_end(&r);
}

static void t_redirects(void **s)
{
    struct rig r;
    rig_start(&r);
    struct faulty *cdn = faulty_start(DEMO_MODEL);
    char *base = util_path("http://127.0.0.1:%d", faulty_port(cdn));
    faulty_redirect_to(r.f, base);
    faulty_set(r.f, F_REDIRECT, 0, ".safetensors", 0, -1);
    r.o.token = "secret";
    rig_open(&r);
    const struct model *m = store_model(r.st);
    for (uint32_t i = 0; i < 20; i++) {
        get_right(&r, model_expert_id(m, 1 + i % 7, i));
    }
    struct faulty_numbers k, c;
    faulty_get(r.f, &k);
    faulty_get(cdn, &c);
    assert_int_equal(c.with_token, 0); /* never to another host */
    assert_true(c.requests > 20);
    assert_int_equal(k.without_token, 0);
    assert_true(k.faults <= 2 * model_shard_count(m)); /* asked once per shard, not per range */
    /* the signed addresses expire: resolved again */
    faulty_set(cdn, F_STATUS, 403, NULL, 0, 1);
    get_right(&r, model_expert_id(m, 2, 30));
    faulty_get(cdn, &c);
    assert_int_equal(c.faults, 1);
    assert_int_equal(util_log_has(&r.log, "expired"), 1);
    /* one that never works is given up */
    faulty_set(cdn, F_STATUS, 403, NULL, 0, -1);
    struct store_view v;
    struct err e = {0};
    assert_int_equal(store_get(r.st, model_expert_id(m, 2, 31), STORE_DEMAND, 0, &v, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "redirects to"));
    /* the other host dies: found out, and the origin is asked where to go now */
    faulty_stop(cdn);
    faulty_set(r.f, F_NONE, 0, NULL, 0, 0);
    get_right(&r, model_expert_id(m, 3, 40));
    /* a circle */
    faulty_redirect_to(r.f, r.url);
    faulty_set(r.f, F_REDIRECT, 0, ".safetensors", 0, -1);
    assert_int_equal(store_get(r.st, model_expert_id(m, 4, 41), STORE_DEMAND, 0, &v, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "circle"));
    /* no http(s) */
    faulty_redirect_to(r.f, "file://");
    assert_int_equal(store_get(r.st, model_expert_id(m, 5, 42), STORE_DEMAND, 0, &v, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "redirects"));
    rig_close(&r);
    assert_true(check_cache(&r) >= 20);
    free(base);
    rig_end(&r);
}

static void t_dead_for_all(void **s)
{
    /* many objects, a dead host: all fail with the attempts of a few */
    struct rig r;
    rig_start(&r);
    r.o.retry_ms = 50;
    rig_open(&r);
    const struct model *m = store_model(r.st);
    faulty_set(r.f, F_DEAD, 0, NULL, 0, -1);
    uint32_t ids[200];
    uint32_t n = 0;
    for (uint32_t l = 1; l < 8; l++) {
        for (uint32_t x = 0; x < 48 && n < 160; x += 2) {
            ids[n++] = model_expert_id(m, l, x);
        }
    }
    struct err e = {0};
    struct store_batch *b;
    struct faulty_numbers before, after;
    faulty_get(r.f, &before);
    assert_int_equal(store_batch_begin(r.st, ids, n, STORE_DEMAND, &b, &e), 0);
    size_t which;
    struct store_view v;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(store_batch_next(b, &which, &v, &e), ERR_NET);
    }
    faulty_get(r.f, &after);
    print_message("%u objects: %u requests\n", (unsigned)n,
                  (unsigned)(after.requests - before.requests));
    assert_true(after.requests - before.requests < n); /* alone each has eight */
    store_batch_end(b);
    faulty_set(r.f, F_NONE, 0, NULL, 0, 0);
    get_right(&r, ids[0]);
    rig_end(&r);
}

static void t_deadline(void **s)
{
    struct rig r;
    rig_start(&r);
    r.o.stall_ms = 2000;
    rig_open(&r);
    const struct model *m = store_model(r.st);
    uint32_t id = model_expert_id(m, 6, 6);
    faulty_set(r.f, F_STALL, 100, NULL, 0, 1);
    struct store_view v;
    struct err e = {0};
    assert_int_equal(store_get(r.st, id, STORE_DEMAND, clock_ns() + 150000000u, &v, &e),
                     ERR_TIMEOUT);
    assert_non_null(strstr(e.msg, "6/6"));
    get_right(&r, id); /* the same fetch goes on; one request in flight */
    rig_end(&r);
}

struct same {
    struct rig *r;
    uint32_t id;
};

static void *same_main(void *arg)
{
    struct same *a = arg;
    struct store_view v;
    struct err e = {0};
    int rc = store_get(a->r->st, a->id, STORE_PREFETCH, 0, &v, &e);
    int right = !rc && util_right(store_model(a->r->st), DEMO_MODEL, &v);
    if (!rc) {
        store_release(a->r->st, &v);
    }
    return right ? arg : NULL;
}

static void t_single_flight(void **s)
{
    struct rig r;
    rig_start(&r);
    rig_open(&r);
    const struct model *m = store_model(r.st);
    struct same a = {&r, model_expert_id(m, 7, 11)};
    faulty_slow(r.f, 20000);
    faulty_zero(r.f);
    store_hint(r.st, &a.id, 1);
    pthread_t t[8];
    for (int i = 0; i < 8; i++) {
        pthread_create(&t[i], NULL, same_main, &a);
    }
    uint8_t row[64];
    struct err e = {0};
    assert_int_equal(store_read(r.st, a.id, 1000, row, sizeof row, &e), 0);
    uint8_t *truth = util_truth(m, DEMO_MODEL, a.id);
    assert_memory_equal(row, truth + 1000, sizeof row);
    free(truth);
    for (int i = 0; i < 8; i++) {
        void *ok;
        pthread_join(t[i], &ok);
        assert_non_null(ok);
    }
    struct faulty_numbers k;
    faulty_get(r.f, &k);
    assert_int_equal(k.requests, 1);
    assert_int_equal(k.body_bytes, model_object(m, a.id)->size);
    rig_end(&r);
}

static void t_rate(void **s)
{
    struct rig r;
    rig_start(&r);
    rig_open(&r);
    rig_close(&r);
    r.o.rate_limit = 4 << 20;
    rig_open(&r);
    const struct model *m = store_model(r.st);
    uint32_t id = model_spine_id(m, 0, MODEL_EMBED), id2 = model_spine_id(m, 0, MODEL_LM_HEAD);
    uint64_t t0 = clock_ns();
    get_right(&r, id);
    get_right(&r, id2);
    double t = (double)(clock_ns() - t0) * 1e-9;
    double want = (double)(model_object(m, id)->size + model_object(m, id2)->size) / (4 << 20);
    print_message("rate cap 4 MiB/s: %.2f s, ideal %.2f s\n", t, want);
    assert_true(t > want * 0.75);
    rig_end(&r);
}

/* A folder as origin obeys the caps, of all and of each connection; one read in place has none. */
static void t_rate_folder(void **s)
{
    for (int conn = 0; conn < 2; conn++) {
        struct rig r;
        rig_start(&r);
        r.o.model = DEMO_MODEL;
        *(conn ? &r.o.rate_conn : &r.o.rate_limit) = 8 << 20;
        rig_open(&r);
        const struct model *m = store_model(r.st);
        uint32_t id = model_spine_id(m, 0, MODEL_EMBED), id2 = model_spine_id(m, 0, MODEL_LM_HEAD);
        uint64_t t0 = clock_ns();
        get_right(&r, id);
        get_right(&r, id2);
        double t = (double)(clock_ns() - t0) * 1e-9;
        uint64_t n = model_object(m, id)->size + model_object(m, id2)->size;
        assert_true(t > (double)n / (8 << 20) * 0.75 - 0.1);
        rig_close(&r);
        r.o.cache_dir = NULL;
        struct err e = {0};
        assert_int_equal(store_open(&r.o, &r.st, &e), ERR_ARG);
        assert_non_null(strstr(e.msg, "read in place"));
        r.st = NULL;
        rig_end(&r);
    }
}

static void t_no_cache(void **s)
{
    struct rig r;
    rig_start(&r);
    r.o.cache_dir = NULL;
    rig_open(&r);
    const struct model *m = store_model(r.st);
    for (uint32_t i = 0; i < 40; i++) {
        get_right(&r, model_expert_id(m, 1 + i % 7, i));
    }
    uint8_t row[512];
    struct err e = {0};
    uint32_t em = model_spine_id(m, 0, MODEL_EMBED);
    faulty_zero(r.f);
    assert_int_equal(store_read(r.st, em, 51200, row, sizeof row, &e), 0);
    struct faulty_numbers k;
    faulty_get(r.f, &k);
    assert_int_equal(k.body_bytes, sizeof row);
    uint8_t *truth = util_truth(m, DEMO_MODEL, em);
    assert_memory_equal(row, truth + 51200, sizeof row);
    free(truth);
    assert_int_equal(access(r.cache, F_OK), -1);
    rig_end(&r);
}

static void t_bad_address(void **s)
{
    struct store *st;
    struct err e = {0};
    struct store_opts o = {.model = "http://127.0.0.1:1/x?y", .retries = 2, .retry_ms = 1};
    assert_int_equal(store_open(&o, &st, &e), ERR_ARG);
    o.model = "http://127.0.0.1:1/x";
    assert_int_equal(store_open(&o, &st, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "127.0.0.1:1"));
    assert_non_null(strstr(e.msg, "config.json"));
    static const char *const never[] = {"http://[::1", "http://127.0.0.1:99999/x"};
    for (size_t i = 0; i < 2; i++) { /* no number of attempts would help */
        struct store_opts w = {.model = never[i], .retries = 8, .retry_ms = 60000};
        assert_int_equal(store_open(&w, &st, &e), ERR_NET);
        assert_non_null(strstr(e.msg, "URL"));
    }
    o.token = "a\r\nb";
    assert_int_equal(store_open(&o, &st, &e), ERR_ARG);
    o.token = NULL;
    o.offline = true;
    assert_int_equal(store_open(&o, &st, &e), ERR_OFFLINE);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(t_fetch_all_once), cmocka_unit_test(t_small_files),
        cmocka_unit_test(t_faults),         cmocka_unit_test(t_faults_at_open),
        cmocka_unit_test(t_resume),         cmocka_unit_test(t_lie),
        cmocka_unit_test(t_redirects),      cmocka_unit_test(t_dead_for_all),
        cmocka_unit_test(t_deadline),       cmocka_unit_test(t_single_flight),
        cmocka_unit_test(t_rate),           cmocka_unit_test(t_rate_folder),
        cmocka_unit_test(t_no_cache),       cmocka_unit_test(t_bad_address),
    };
    return cmocka_run_group_tests_name("store_http", t, NULL, NULL);
}
