/* SPDX-License-Identifier: MIT
 * t_store_share.c: two stores: what one gives, the other takes. The upstream between them is a
 * thread of the test (share_rig.h). */
#include "tests/store/cache_rig.h"
#include "tests/store/share_rig.h"

#include "node/demo/server.h"
#include "proto/base/clock.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OPS (&store_storage_ops)

/* A: over the demo's folder, has everything. B: over a server, and may be offline. */
struct pair {
    struct rig a, b;
    struct demo_server *srv;
    char *url;
    struct up up;
};

static void wait_published(struct rig *r, uint32_t id)
{
    uint64_t end = clock_ns() + 60000000000u;
    while (!OPS->have(r->st, store_key(r->st, id)) && clock_ns() < end) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    assert_true(OPS->have(r->st, store_key(r->st, id)));
}

static void wait_all_published(struct rig *r)
{
    for (uint32_t id = 0; id < r->n; id++) {
        wait_published(r, id);
    }
}

static void b_start(struct pair *p)
{
    struct rig *b = &p->b;
    struct err e = {0};
    assert_int_equal(demo_server_start(DEMO_MODEL, 0, &p->srv, &e), 0);
    p->url = strdup(demo_server_url(p->srv));
    memset(b, 0, sizeof *b);
    b->tmp = util_tmpdir();
    b->cache = util_path("%s/cache", b->tmp);
    util_log_init(&b->log);
    b->o = (struct store_opts){.model = p->url,
                               .cache_dir = b->cache,
                               .ram_budget = 1 << 18,
                               .disk_floor = 1,
                               .log = util_log_line,
                               .log_ctx = &b->log};
    rig_open(b); /* the metadata */
}

static void b_again(struct pair *p, bool offline)
{
    rig_close(&p->b);
    p->b.o.offline = offline;
    rig_open(&p->b);
}

static int pair_setup(void **state)
{
    struct pair *p = calloc(1, sizeof *p);
    rig_start(&p->a);
    get_all(&p->a, 1);
    wait_all_published(&p->a);
    b_start(p);
    b_again(p, true);
    *state = p;
    return 0;
}

static int pair_teardown(void **state)
{
    struct pair *p = *state;
    rig_end(&p->a);
    rig_end(&p->b);
    demo_server_stop(p->srv);
    free(p->url);
    free(p);
    return 0;
}

static struct store_stats stats(struct rig *r)
{
    struct store_stats s;
    store_get_stats(r->st, &s);
    return s;
}

static uint32_t expert(const struct rig *r, uint32_t i)
{
    return model_expert_id(r->m, 1 + i / 40 % 7, i % 40);
}

static void t_keys(void **state)
{
    struct pair *p = *state;
    struct store *st = p->a.st;
    for (uint32_t id = 0; id < p->a.n; id++) {
        struct object_key k = store_key(st, id);
        const struct model_object *o = model_object(p->a.m, id);
        assert_int_equal(k.kind, o->kind == MODEL_EXPERT ? STORE_KEY_EXPERT : STORE_KEY_SPINE);
        assert_int_equal(k.index, o->kind == MODEL_EXPERT ? o->index : id);
        assert_int_equal(store_key_id(st, k), id);
        uint64_t size;
        assert_true(OPS->size(st, k, &size));
        assert_int_equal(size, o->size);
    }
    static const struct object_key none[] = {{0, 0, 0}, {0, 1, 100000}, {0, 999, 1},
                                             {2, 0, 0}, {1, 1, 0},      {1, 0, 0xffffff}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        uint64_t size;
        assert_int_equal(store_key_id(st, none[i]), MODEL_NONE);
        assert_false(OPS->size(st, none[i], &size));
        assert_false(OPS->have(st, none[i]));
    }
    struct object_key e = store_key(st, expert(&p->a, 0)); /* an expert is no spine object */
    e.kind = STORE_KEY_SPINE;
    e.index = expert(&p->a, 0);
    e.layer = 0;
    assert_int_equal(store_key_id(st, e), MODEL_NONE);
}

static void t_serves(void **state)
{
    struct pair *p = *state;
    struct store *st = p->a.st;
    uint32_t *ids;
    size_t n;
    struct err e = {0};
    assert_int_equal(store_share_list(st, &ids, &n, &e), 0);
    assert_int_equal(n, p->a.n);
    for (uint32_t id = 0; id < p->a.n; id += 3) {
        assert_int_equal(ids[id], id);
        uint8_t *truth = util_truth(p->a.m, DEMO_MODEL, id);
        uint64_t size = model_object(p->a.m, id)->size;
        uint32_t chunks = storage_chunks(size);
        uint8_t sha[4][SHA256_SIZE], object[SHA256_SIZE], want[SHA256_SIZE];
        enum basis b;
        struct object_key k = store_key(st, id);
        assert_true(OPS->digests(st, k, 0, chunks, sha, &b, object));
        assert_int_equal(b, BASIS_ORIGIN);
        sha256(sha, (size_t)chunks * SHA256_SIZE, want);
        assert_memory_equal(want, object, SHA256_SIZE);
        assert_false(OPS->digests(st, k, 0, chunks + 1, sha, &b, object));
        assert_false(OPS->digests(st, k, chunks + 1, 0, sha, &b, object));
        for (uint32_t i = 0; i < chunks; i++) {
            uint8_t *c;
            size_t len;
            assert_int_equal(up_read(st, id, i, 2, &c, &len), 0);
            assert_int_equal(len, storage_chunk_len(size, i));
            assert_memory_equal(c, truth + (size_t)i * STORAGE_CHUNK, len);
            sha256(c, len, want);
            assert_memory_equal(want, sha[i], SHA256_SIZE);
            free(c);
        }
        uint8_t *c;
        size_t len;
        assert_int_equal(up_read(st, id, chunks, 0, &c, &len), ERR_NOTFOUND);
        free(truth);
    }
    free(ids);
    struct store_basis bs;
    store_get_basis(st, &bs);
    assert_int_equal(bs.objects[BASIS_ORIGIN], p->a.n);
    assert_int_equal(bs.bytes[BASIS_ORIGIN], sizes(&p->a, 1));
    assert_int_equal(bs.objects[BASIS_ONE_MEMBER], 0);
}

static void run_all(struct pair *p, unsigned mode)
{
    struct rig *b = &p->b;
    up_start(&p->up, b->st, p->a.st, mode);
    get_all(b, 1);
    wait_all_published(b);
    assert_true(up_has_list(&p->up));
    up_stop(&p->up);
    struct store_stats s = stats(b);
    assert_int_equal(s.origin_bytes, 0);
    assert_int_equal(s.peer_bytes, sizes(b, 1));
    assert_int_equal(s.experts_fetched, 0);
    uint32_t experts = 0;
    for (uint32_t id = 0; id < b->n; id++) {
        experts += model_object(b->m, id)->kind == MODEL_EXPERT;
    }
    assert_int_equal(s.experts_from_peers, experts);
    assert_int_equal(s.peer_fetches, experts);
    assert_int_equal(s.bad_chunks, 0);
    struct store_basis bs;
    store_get_basis(b->st, &bs);
    assert_int_equal(bs.objects[BASIS_ONE_MEMBER], b->n);
    b_again(p, true); /* what it rests on lasts, and so do the bytes */
    store_get_basis(b->st, &bs);
    assert_int_equal(bs.objects[BASIS_ONE_MEMBER], b->n);
    get_all(b, 1);
    assert_int_equal(stats(b).peer_bytes, 0);
}

static void t_takes(void **state)
{
    run_all(*state, 0);
}

static void t_takes_any_order(void **state)
{
    run_all(*state, UP_REVERSE | UP_REPEAT | UP_THROW);
}

static void t_to_disk_only(void **state)
{
    /* without a slot: rows of the embedding, and hints for which there is no room in RAM */
    struct pair *p = *state;
    struct rig *b = &p->b;
    up_start(&p->up, b->st, p->a.st, UP_REVERSE | UP_REPEAT);
    uint32_t id = model_spine_id(b->m, MODEL_NONE, MODEL_EMBED);
    uint8_t *truth = util_truth(b->m, DEMO_MODEL, id), row[128];
    struct err e = {0};
    for (uint64_t at = 0; at < model_object(b->m, id)->size; at += 99999) {
        size_t n = model_object(b->m, id)->size - at < 128 ? 1 : 128;
        assert_int_equal(store_read(b->st, id, at, row, n, &e), 0);
        assert_memory_equal(row, truth + at, n);
    }
    free(truth);
    uint32_t ids[60];
    for (uint32_t i = 0; i < 60; i++) {
        ids[i] = expert(b, i);
    }
    store_hint(b->st, ids, 60);
    assert_true(up_wait(&p->up, &p->up.fetches, 61));
    assert_true(up_has_list(&p->up));
    for (uint32_t i = 0; i < 60; i++) {
        get_right(b, ids[i]);
    }
    assert_int_equal(p->up.fetches, 61);
    up_stop(&p->up);
}

static void t_past_the_disk(void **state)
{
    struct pair *p = *state;
    struct rig *b = &p->b;
    b->o.disk_budget = 10; /* nothing fits */
    b_again(p, true);
    up_start(&p->up, b->st, p->a.st, UP_REVERSE);
    get_all(b, 7);
    uint32_t id = model_spine_id(b->m, MODEL_NONE, MODEL_EMBED);
    uint8_t *truth = util_truth(b->m, DEMO_MODEL, id), row[64];
    struct err e = {0};
    assert_int_equal(store_read(b->st, id, 1048570, row, 64, &e), 0);
    assert_memory_equal(row, truth + 1048570, 64);
    free(truth);
    up_stop(&p->up);
    uint32_t *ids;
    size_t n;
    assert_int_equal(store_share_list(b->st, &ids, &n, &e), 0);
    assert_int_equal(n, 0);
    free(ids);
    assert_int_equal(stats(b).origin_bytes, 0);
    /* no cache at all: RAM alone */
    b->o.cache_dir = NULL;
    b->o.disk_budget = 0;
    b_again(p, false);
    up_start(&p->up, b->st, p->a.st, UP_REVERSE | UP_REPEAT);
    get_all(b, 11);
    assert_int_equal(stats(b).origin_bytes, 0);
    up_stop(&p->up);
}

static void t_from_the_origin(void **state)
{
    /* the upstream itself uses this store's origin */
    struct pair *p = *state;
    struct rig *b = &p->b;
    b_again(p, false);
    up_start(&p->up, b->st, NULL, UP_ORIGIN | UP_REVERSE);
    p->up.basis = BASIS_ORIGIN;
    get_all(b, 5);
    struct store_stats s = stats(b);
    assert_int_equal(s.origin_bytes, sizes(b, 5));
    assert_int_equal(s.peer_bytes + s.experts_from_peers, 0);
    bool up;
    double rate, latency;
    store_origin_measured(b->st, &up, &rate, &latency);
    assert_true(up && latency > 0);
    /* and what it cannot give comes as one sentence */
    up_stop(&p->up);
    demo_server_stop(p->srv);
    p->srv = NULL;
    b->o.retries = 1;
    b->o.retry_ms = 1;
    b->o.offline = false;
    b_again(p, false);
    up_start(&p->up, b->st, NULL, UP_ORIGIN);
    struct store_view v;
    struct err e = {0};
    assert_int_not_equal(store_get(b->st, expert(b, 1), STORE_DEMAND, 0, &v, &e), 0);
    assert_int_equal(p->up.fails, 1);
    assert_non_null(strstr(p->up.fail.msg, "cannot fetch expert"));
    store_origin_measured(b->st, &up, &rate, &latency);
    assert_false(up);
    up_stop(&p->up);
}

static void t_origin_get(void **state)
{
    struct pair *p = *state;
    struct rig *a = &p->a;
    up_start(&p->up, a->st, NULL, UP_HOLD); /* the folder is an origin as well */
    struct store *st = a->st;
    uint32_t id = model_spine_id(a->m, MODEL_NONE, MODEL_LM_HEAD);
    uint8_t *truth = util_truth(a->m, DEMO_MODEL, id);
    uint64_t size = model_object(a->m, id)->size;
    uint32_t n = storage_chunks(size);
    assert_true(n >= 2 && store_has_origin(st));
    struct object_key k = store_key(st, id);
    assert_int_not_equal(store_origin_get(st, 7, k, n, 1, STORE_DEMAND, false), 0);
    assert_int_not_equal(store_origin_get(st, 7, k, 0, n + 1, STORE_DEMAND, false), 0);
    assert_int_not_equal(store_origin_get(st, 7, k, 0, 0, STORE_DEMAND, false), 0);
    assert_int_equal(store_origin_get(st, 7, k, n - 1, 1, STORE_DEMAND, false), 0);
    assert_true(up_wait(&p->up, &p->up.parts, 1));
    assert_int_equal(store_origin_get(st, 7, k, 0, n - 1, STORE_PREFETCH, false), 0);
    assert_true(up_wait(&p->up, &p->up.parts, n));
    for (uint32_t i = 0; i < n; i++) {
        uint8_t sha[SHA256_SIZE];
        assert_int_equal(p->up.part_n[i], storage_chunk_len(size, i));
        assert_memory_equal(p->up.part[i], truth + (size_t)i * STORAGE_CHUNK, p->up.part_n[i]);
        sha256(p->up.part[i], p->up.part_n[i], sha);
        assert_memory_equal(sha, p->up.part_sha[i], SHA256_SIZE);
        free(p->up.part[i]);
    }
    free(truth);
    for (uint64_t i = 100; i < 400; i++) { /* cancelled at any time */
        assert_int_equal(store_origin_get(st, i, k, 0, n, STORE_BACKGROUND, false), 0);
        store_origin_cancel(st, i - i % 3);
    }
    for (uint64_t i = 100; i < 400; i++) {
        store_origin_cancel(st, i);
    }
    assert_int_equal(store_origin_get(st, 1000, k, 0, n, STORE_DEMAND, false), 0); /* at close */
    up_stop(&p->up);
}

static void t_ends(void **state)
{
    struct pair *p = *state;
    struct rig *b = &p->b;
    struct store_view v;
    struct err e = {0};
    up_start(&p->up, b->st, p->a.st, UP_FAIL);
    up_mode(&p->up, UP_FAIL, ERR_NOTFOUND);
    assert_int_equal(store_get(b->st, expert(b, 1), STORE_DEMAND, 0, &v, &e), ERR_NOTFOUND);
    assert_string_equal(e.msg, "no machine has it");
    up_mode(&p->up, UP_FAIL, ERR_OFFLINE); /* the upstream is gone, and there is no origin */
    assert_int_equal(store_get(b->st, expert(b, 1), STORE_DEMAND, 0, &v, &e), ERR_OFFLINE);
    up_mode(&p->up, UP_ELSEWHERE, 0); /* it is said to be there, and is not */
    assert_int_equal(store_get(b->st, expert(b, 1), STORE_DEMAND, 0, &v, &e), ERR_NOTFOUND);
    assert_non_null(strstr(e.msg, "by another process"));
    up_mode(&p->up, 0, 0);
    get_right(b, expert(b, 1));
    up_stop(&p->up);
    /* with an origin of its own it goes there */
    b_again(p, false);
    up_start(&p->up, b->st, p->a.st, UP_FAIL);
    up_mode(&p->up, UP_FAIL, ERR_OFFLINE);
    get_right(b, expert(b, 2));
    assert_int_equal(stats(b).origin_bytes, model_object(b->m, expert(b, 2))->size);
    assert_int_equal(stats(b).experts_fetched, 1);
    /* another process with the same cache publishes it */
    struct store *two;
    assert_int_equal(store_open(&b->o, &two, &e), 0);
    p->up.other = two;
    up_mode(&p->up, UP_ELSEWHERE, 0);
    get_right(b, expert(b, 3));
    struct store_stats s = stats(b);
    assert_int_equal(s.origin_bytes, model_object(b->m, expert(b, 2))->size);
    assert_int_equal(s.peer_bytes, 5);
    assert_int_equal(s.disk_bytes, model_object(b->m, expert(b, 3))->size);
    assert_true(up_has_list(&p->up)); /* also what the other one has published is served */
    up_stop(&p->up);
    store_close(two);
}

static void t_cancel(void **state)
{
    struct pair *p = *state;
    struct rig *b = &p->b;
    struct store_view v;
    struct err e = {0};
    up_start(&p->up, b->st, p->a.st, UP_HOLD);
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t id = expert(b, i);
        assert_int_equal(store_get(b->st, id, STORE_PREFETCH, clock_ns() + 1000000, &v, &e),
                         ERR_TIMEOUT);
        if (i % 2) { /* again at once, before or after the cancel has come through */
            up_mode(&p->up, 0, 0);
            get_right(b, id);
            up_mode(&p->up, UP_HOLD, 0);
        }
    }
    assert_true(up_wait(&p->up, &p->up.cancels, 20));
    /* a hint that becomes a demand */
    uint32_t id = expert(b, 30);
    store_hint(b->st, &id, 1);
    assert_int_equal(store_get(b->st, id, STORE_DEMAND, clock_ns() + 1000000, &v, &e), ERR_TIMEOUT);
    assert_true(up_wait(&p->up, &p->up.raises, 1));
    up_mode(&p->up, 0, 0);
    get_right(b, id);
    /* nobody asked for these */
    struct storage_put *put;
    struct object_key k = store_key(b->st, expert(b, 33));
    assert_int_equal(OPS->put_begin(b->st, k, 1, &put, &e), ERR_NOTFOUND);
    assert_int_equal(OPS->put_begin(b->st, (struct object_key){9, 9, 9}, 1, &put, &e),
                     ERR_NOTFOUND);
    /* the upstream goes while it is asked; the request is ended all the same; a close with
     * requests that never end */
    up_mode(&p->up, UP_HOLD, 0);
    uint32_t ids[8];
    for (uint32_t i = 0; i < 8; i++) {
        ids[i] = expert(b, 50 + i);
    }
    store_hint(b->st, ids, 8);
    store_set_upstream(b->st, NULL);
    assert_int_equal(store_get(b->st, ids[0], STORE_DEMAND, clock_ns() + 1000000, &v, &e),
                     ERR_TIMEOUT);
    up_mode(&p->up, 0, 0);
    get_right(b, ids[0]);
    assert_int_equal(store_get(b->st, expert(b, 70), STORE_DEMAND, 0, &v, &e), ERR_OFFLINE);
    store_set_upstream(b->st, &p->up.u);
    up_mode(&p->up, UP_HOLD, 0);
    for (uint32_t i = 0; i < 8; i++) {
        ids[i] = expert(b, 80 + i);
    }
    store_hint(b->st, ids, 8);
    up_stop(&p->up);
    rig_close(b);
    rig_open(b);
}

/* Its file of an object. */
static char *file_of_expert(struct rig *r, uint32_t id)
{
    const struct model_object *o = model_object(r->m, id);
    char *part = util_path("experts/%03u/%03u.", o->layer, o->index), *f = file_of(r, part);
    free(part);
    return f;
}

static void t_damaged(void **state)
{
    struct pair *p = *state;
    struct rig *a = &p->a;
    up_start(&p->up, a->st, NULL, UP_FAIL);
    up_mode(&p->up, UP_FAIL, ERR_OFFLINE);
    uint32_t id = expert(a, 9), other = expert(a, 10);
    char *f = file_of_expert(a, id);
    poke(f, 77, 3);
    uint8_t *c;
    size_t n;
    assert_int_equal(up_read(a->st, id, 0, 1, &c, &n), ERR_DIGEST);
    assert_int_equal(access(f, F_OK), -1);
    assert_int_equal(up_read(a->st, id, 0, 1, &c, &n), ERR_NOTFOUND);
    assert_true(up_has_list(&p->up));
    assert_int_equal(p->up.has[id], 0);
    assert_int_equal(util_log_has(&a->log, "is damaged"), 1);
    get_right(a, id); /* fetched again, and served again */
    assert_true(up_has_list(&p->up));
    wait_published(a, id);
    assert_int_equal(up_read(a->st, id, 0, 1, &c, &n), 0);
    free(c);
    /* somebody complains: nothing is wrong, then something is */
    store_share_check(a->st, other, 0);
    store_share_check(a->st, other, 99);
    store_share_check(a->st, 1u << 30, 0);
    free(f);
    f = file_of_expert(a, other);
    poke(f, -1, 7);
    store_share_check(a->st, other, 0);
    for (int i = 0; i < 5000 && OPS->have(a->st, store_key(a->st, other)); i++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    assert_int_equal(access(f, F_OK), -1);
    assert_true(up_has_list(&p->up));
    free(f);
    up_stop(&p->up);
}

static void t_stronger(void **state)
{
    struct pair *p = *state;
    struct rig *b = &p->b;
    uint32_t id = expert(b, 5), kept = expert(b, 6), both = expert(b, 7);
    struct store_view v;
    struct err e = {0};
    /* a lie that nobody could notice */
    up_start(&p->up, b->st, p->a.st, UP_FALSE);
    assert_int_equal(store_get(b->st, id, STORE_DEMAND, 0, &v, &e), 0);
    assert_false(util_right(b->m, DEMO_MODEL, &v));
    store_release_drop(b->st, &v);
    wait_published(b, id);
    up_mode(&p->up, 0, 0);
    get_right(b, both);
    wait_published(b, both);
    assert_true(up_has_list(&p->up));
    struct store_basis bs;
    store_get_basis(b->st, &bs);
    assert_int_equal(bs.objects[BASIS_ONE_MEMBER], 2);
    up_stop(&p->up);
    /* the origin's word is stronger: once the file is gone the bytes and the digest are replaced */
    b_again(p, false);
    get_right(b, kept);
    wait_published(b, kept);
    static const uint32_t gone[] = {5, 7};
    for (int i = 0; i < 2; i++) {
        char *f = file_of_expert(b, expert(b, gone[i]));
        unlink(f);
        free(f);
        get_right(b, expert(b, gone[i]));
        wait_published(b, expert(b, gone[i]));
    }
    assert_int_equal(util_log_has(&b->log, "rested on less"), 1);
    up_start(&p->up, b->st, p->a.st, 0);
    store_get_basis(b->st, &bs);
    assert_int_equal(bs.objects[BASIS_ORIGIN], 3);
    assert_int_equal(bs.objects[BASIS_ONE_MEMBER], 0);
    /* and it does not give way to a weaker one */
    char *f = file_of_expert(b, kept);
    unlink(f);
    free(f);
    for (uint32_t i = 20; i < 40; i++) { /* out of RAM */
        get_right(b, expert(b, i));
        wait_published(b, expert(b, i));
    }
    up_mode(&p->up, UP_FALSE, 0);
    assert_int_equal(store_get(b->st, kept, STORE_DEMAND, 0, &v, &e), ERR_DIGEST);
    assert_non_null(strstr(e.msg, "peers give other bytes"));
    up_mode(&p->up, 0, 0);
    get_right(b, kept);
    wait_published(b, kept);
    up_stop(&p->up);
    /* lasting: from the catalog, and from the journals alone */
    for (int i = 0; i < 2; i++) {
        b_again(p, true);
        get_right(b, id);
        get_right(b, both);
        store_get_basis(b->st, &bs);
        assert_int_equal(bs.objects[BASIS_ORIGIN], 3);
        assert_int_equal(bs.objects[BASIS_ONE_MEMBER], 20);
        rig_close(b);
        static const char *const tail[] = {"", "-wal", "-shm"};
        for (int k = 0; k < 3; k++) {
            char *c = util_path("%s/catalog.sqlite%s", b->cache, tail[k]);
            unlink(c);
            free(c);
        }
        rig_open(b);
    }
}

struct getter {
    struct rig *r;
    uint32_t rng;
    int wrong;
    atomic_bool done;
};

static void *get_some(void *arg)
{
    struct getter *g = arg;
    for (int i = 0; i < 300; i++) {
        g->rng = g->rng * 1664525u + 1013904223u;
        uint32_t id = (g->rng >> 8) % g->r->n;
        g->wrong += try_get(g->r->st, id);
    }
    atomic_store(&g->done, true);
    return NULL;
}

static void t_evicts(void **state)
{
    /* B's disk is small: it takes, serves and evicts at the same time, with several threads */
    struct pair *p = *state;
    struct rig *b = &p->b;
    b->o.disk_budget = sizes(b, 1) / 3 * 2;
    b_again(p, true);
    up_start(&p->up, b->st, p->a.st, UP_REVERSE | UP_REPEAT);
    pthread_t t[3];
    struct getter g[3];
    for (uint32_t i = 0; i < 3; i++) {
        g[i] = (struct getter){b, i * 7919u + 3u, 0, false};
        assert_int_equal(pthread_create(&t[i], NULL, get_some, &g[i]), 0);
    }
    uint32_t served = 0;
    for (uint32_t i = 0; i < 600 || !atomic_load(&g[0].done); i++) {
        uint32_t id = i * 37 % b->n;
        uint8_t *c;
        size_t n;
        int r = up_read(b->st, id, 0, (uint8_t)(i % 3), &c, &n);
        assert_true(r == 0 || r == ERR_NOTFOUND);
        if (!r) {
            uint8_t *truth = util_truth(b->m, DEMO_MODEL, id);
            assert_memory_equal(c, truth, n);
            free(truth);
            free(c);
            served++;
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(g[i].wrong, 0);
    }
    for (uint32_t i = 0; i < 280; i++) { /* enough for the budget */
        get_right(b, expert(b, i));
    }
    assert_true(served > 0);
    assert_true(up_has_list(&p->up));
    uint32_t n = 0;
    for (uint32_t id = 0; id < b->n; id++) {
        n += p->up.has[id];
    }
    assert_true(n > 0 && n < b->n);
    up_stop(&p->up);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, pair_setup, pair_teardown)
    const struct CMUnitTest t[] = {
        T(t_keys),         T(t_serves),        T(t_takes),      T(t_takes_any_order),
        T(t_to_disk_only), T(t_past_the_disk), T(t_origin_get), T(t_from_the_origin),
        T(t_ends),         T(t_cancel),        T(t_damaged),    T(t_stronger),
        T(t_evicts),
    };
    return cmocka_run_group_tests_name("store_share", t, NULL, NULL);
}
