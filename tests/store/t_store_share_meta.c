/* SPDX-License-Identifier: MIT
 * t_store_share_meta.c: a cold store whose peers have the model's metadata, honest and not, with
 * and without an origin. */
#include "tests/store/cache_rig.h"
#include "tests/store/share_rig.h"

#include "node/demo/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lan {
    struct rig a, b;
    struct demo_server *srv;
    char *url;
    /* what the peer does */
    const char *lie;  /* its bytes of this file have another bit */
    const char *lack; /* it does not have this one */
    const char *text; /* its list */
    int asked, given;
    struct store_meta_peers peers;
};

static int get(void *ctx, const char *name, uint64_t max, struct buf *out, struct err *e)
{
    struct lan *l = ctx;
    uint8_t scope[SHA256_SIZE];
    uint64_t total = 1, at = 0;
    l->asked++;
    if (l->lack && (!strcmp(l->lack, name) || !strcmp(l->lack, "*"))) {
        return err_set(e, ERR_NOTFOUND, "nobody has it");
    }
    if (!*name && l->text) {
        l->given++;
        return buf_adds(out, l->text);
    }
    store_meta_scope(l->url, scope);
    while (at < total) {
        struct buf b;
        buf_init(&b, 1 << 20);
        int r = store_meta_serve(l->a.st, scope, name, at, 60000, &b, &total, e);
        if (!r && total > max) {
            r = err_set(e, ERR_LIMIT, "too large");
        }
        r = r ? r : buf_add(out, b.p, b.n);
        at += b.n;
        if (!r && !b.n && total) {
            r = ERR_IO;
        }
        buf_free(&b);
        if (r) {
            return r;
        }
    }
    if (l->lie && !strcmp(l->lie, name)) {
        out->p[out->n / 2] ^= 4;
    }
    l->given++;
    return 0;
}

static int lan_setup(void **state)
{
    struct lan *l = calloc(1, sizeof *l);
    struct err e = {0};
    assert_int_equal(demo_server_start(DEMO_MODEL, 0, &l->srv, &e), 0);
    l->url = strdup(demo_server_url(l->srv));
    l->peers = (struct store_meta_peers){.ctx = l, .get = get};
    struct rig *r[2] = {&l->a, &l->b};
    for (int i = 0; i < 2; i++) {
        r[i]->tmp = util_tmpdir();
        r[i]->cache = util_path("%s/cache", r[i]->tmp);
        util_log_init(&r[i]->log);
        r[i]->o = (struct store_opts){.model = l->url,
                                      .cache_dir = r[i]->cache,
                                      .ram_budget = 1 << 18,
                                      .disk_floor = 1,
                                      .retries = 2,
                                      .retry_ms = 1,
                                      .log = util_log_line,
                                      .log_ctx = &r[i]->log};
    }
    l->b.o.meta = &l->peers;
    rig_open(&l->a);
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_int_equal(store_read_file(l->a.st, "tokenizer_config.json", &b, &e), 0);
    assert_int_equal(store_read_file(l->a.st, "tiktoken.model", &b, &e), 0);
    assert_int_equal(store_read_file(l->a.st, "none.json", &b, &e), ERR_NOTFOUND);
    buf_free(&b);
    *state = l;
    return 0;
}

static int lan_teardown(void **state)
{
    struct lan *l = *state;
    rig_end(&l->a);
    rig_end(&l->b);
    demo_server_stop(l->srv);
    free(l->url);
    free(l);
    return 0;
}

static uint64_t requests(struct lan *l)
{
    struct demo_server_stats s;
    demo_server_get_stats(l->srv, &s);
    return s.requests;
}

static void same_model(struct lan *l)
{
    assert_memory_equal(model_root(l->a.m), model_root(l->b.m), SHA256_SIZE);
    for (uint32_t id = 0; id < l->a.n; id += 17) {
        const struct model_object *x = model_object(l->a.m, id), *y = model_object(l->b.m, id);
        assert_int_equal(x->offset, y->offset);
        assert_int_equal(x->size, y->size);
        assert_int_equal(x->shard, y->shard);
    }
}

/* Files that a run needs, and one that is known not to exist; from the cache when `cached`. */
static void files(struct lan *l)
{
    static const char *const name[] = {"config.json", "tokenizer_config.json", "tiktoken.model"};
    struct buf x, y;
    struct err e = {0};
    buf_init(&x, 1 << 20);
    buf_init(&y, 1 << 20);
    for (int i = 0; i < 3; i++) {
        x.n = y.n = 0;
        assert_int_equal(store_read_file(l->a.st, name[i], &x, &e), 0);
        if (store_read_file(l->b.st, name[i], &y, &e)) {
            fail_msg("%s", e.msg);
        }
        assert_int_equal(x.n, y.n);
        assert_memory_equal(x.p, y.p, x.n);
    }
    assert_int_equal(store_read_file(l->b.st, "none.json", &y, &e), ERR_NOTFOUND);
    buf_free(&x);
    buf_free(&y);
}

static void no_origin(struct lan *l)
{
    struct store_stats s;
    uint64_t before = requests(l);
    rig_open(&l->b);
    same_model(l);
    files(l);
    store_get_stats(l->b.st, &s);
    assert_true(s.peer_bytes > 250000); /* the index alone is as long */
    assert_int_equal(requests(l), before);
    assert_int_equal(l->b.log.n, 0);
    /* and the weights come from peers as well */
    struct up up;
    up_start(&up, l->b.st, l->a.st, UP_REVERSE);
    for (uint32_t i = 0; i < 30; i++) {
        get_right(&l->a, model_expert_id(l->a.m, 3, i));
    }
    while (!store_storage_ops.have(l->a.st, store_key(l->a.st, model_expert_id(l->a.m, 3, 3)))) {
    }
    get_right(&l->b, model_expert_id(l->b.m, 3, 3));
    up_stop(&up);
    rig_close(&l->b);
    /* the next start needs nobody */
    l->b.o.meta = NULL;
    before = requests(l);
    rig_open(&l->b);
    same_model(l);
    files(l);
    get_right(&l->b, model_expert_id(l->b.m, 3, 3));
    assert_int_equal(requests(l), before);
    assert_int_equal(l->b.log.n, 0);
}

static void t_offline(void **state)
{
    struct lan *l = *state;
    l->b.o.offline = true;
    no_origin(l);
}

static void t_online(void **state)
{
    no_origin(*state); /* the origin is not asked although it might be */
}

static void t_dead_origin(void **state)
{
    struct lan *l = *state;
    demo_server_stop(l->srv);
    l->srv = NULL;
    rig_open(&l->b);
    same_model(l);
    files(l);
    /* nobody to ask: as before, one sentence */
    rig_close(&l->b);
    util_rmtree(l->b.cache);
    l->lack = "*";
    struct err e = {0};
    struct store *st;
    assert_int_not_equal(store_open(&l->b.o, &st, &e), 0);
    assert_non_null(strstr(e.msg, "config.json"));
    l->b.o.offline = true;
    assert_int_equal(store_open(&l->b.o, &st, &e), ERR_OFFLINE);
    assert_non_null(strstr(e.msg, "no peer has it"));
}

/* Something about the peer is wrong: said once, the origin helps. */
static void origin_helps(struct lan *l, const char *said)
{
    uint64_t before = requests(l);
    rig_open(&l->b);
    same_model(l);
    files(l);
    assert_true(requests(l) > before);
    if (said) {
        assert_int_equal(util_log_has(&l->b.log, said), 1);
    } else {
        assert_int_equal(l->b.log.n, 0);
    }
    rig_close(&l->b);
    l->b.o.meta = NULL; /* and what is kept is right */
    before = requests(l);
    rig_open(&l->b);
    same_model(l);
    files(l);
    assert_int_equal(requests(l), before);
    rig_close(&l->b);
    l->b.o.meta = &l->peers;
    util_rmtree(l->b.cache);
    l->lie = l->lack = l->text = NULL;
}

static void t_lies(void **state)
{
    struct lan *l = *state;
    static const char *const name[] = {"config.json", "model.safetensors.index.json",
                                       "tiktoken.model"};
    for (int i = 0; i < 3; i++) {
        l->lie = name[i];
        origin_helps(l, "is not what the list");
        l->lack = name[i];
        origin_helps(l, NULL);
    }
    l->lie = ""; /* a bit of the list */
    origin_helps(l, "is no good");
    l->lack = "";
    origin_helps(l, NULL);
    l->text = "hello";
    origin_helps(l, "is no good");
    l->text = "";
    origin_helps(l, "is no good");
    char *lines = malloc(400001);
    memset(lines, '\n', 400000);
    lines[400000] = 0;
    l->text = lines;
    origin_helps(l, "is no good");
    free(lines);
    l->lie = "config.json"; /* offline there is no help, and no false file */
    l->b.o.offline = true;
    struct err e = {0};
    struct store *st;
    assert_int_equal(store_open(&l->b.o, &st, &e), ERR_OFFLINE);
    l->lie = NULL;
    rig_open(&l->b);
    same_model(l);
}

static void t_serve(void **state)
{
    struct lan *l = *state;
    uint8_t scope[SHA256_SIZE], other[SHA256_SIZE];
    struct buf b;
    struct err e = {0};
    uint64_t total = 0;
    buf_init(&b, 1 << 20);
    store_meta_scope(l->url, scope);
    char *slashes = util_path("%s///", l->url);
    store_meta_scope(slashes, other);
    assert_memory_equal(scope, other, SHA256_SIZE);
    free(slashes);
    assert_int_equal(store_meta_serve(l->a.st, scope, "config.json", 0, 1 << 20, &b, &total, &e),
                     0);
    size_t n = b.n;
    assert_int_equal(total, n);
    b.n = 0;
    assert_int_equal(store_meta_serve(l->a.st, scope, "config.json", n - 5, 100, &b, &total, &e),
                     0);
    assert_int_equal(b.n, 5);
    assert_int_equal(store_meta_serve(l->a.st, scope, "config.json", n, 100, &b, &total, &e), 0);
    assert_int_equal(store_meta_serve(l->a.st, scope, "config.json", UINT64_MAX, 9, &b, &total, &e),
                     0);
    assert_int_equal(b.n, 5);
    static const char *const none[] = {"none.json",
                                       "../config.json",
                                       "origin.txt",
                                       "/etc/passwd",
                                       "model-00001-of-000009.safetensors",
                                       "lock",
                                       "x/y"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(store_meta_serve(l->a.st, scope, none[i], 0, 100, &b, &total, &e),
                         ERR_NOTFOUND);
    }
    other[3] ^= 1;
    assert_int_equal(store_meta_serve(l->a.st, other, "config.json", 0, 100, &b, &total, &e),
                     ERR_NOTFOUND);
    buf_free(&b);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, lan_setup, lan_teardown)
    const struct CMUnitTest t[] = {T(t_offline), T(t_online), T(t_dead_origin), T(t_lies),
                                   T(t_serve)};
    return cmocka_run_group_tests_name("store_share_meta", t, NULL, NULL);
}
