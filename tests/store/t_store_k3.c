/* SPDX-License-Identifier: MIT
 * t_store_k3.c: the store at K3's real size. An origin of 1.56 TB whose bytes are computed: every
 * byte of an expert in its place, by one exact range. A disk tier of the real objects that is
 * refilled again and again: what leaves is what was used longest ago, and catalog, files and bitmap
 * agree. `t_store_k3 all` has all 82,432 places looked at and 10,000 refills among all experts. */
#include "tests/store/agree.h"
#include "tests/store/faulty.h"
#include "tests/store/k3full.h"
#include "tests/store/k3rig.h"
#include "tests/store/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    char *tmp, *dir, *url;
    struct faulty *f;
    bool all;
} g;

static uint32_t random_of(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static struct store *open_store(const char *cache, uint64_t ram)
{
    struct store_opts o = {.model = g.url, .cache_dir = cache, .ram_budget = ram, .disk_floor = 1};
    struct store *st;
    struct err e = {0};
    if (store_open(&o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    return st;
}

/* A whole expert, compared with what its shard and offset say. */
static void whole_expert(struct store *st, uint32_t layer, uint32_t e)
{
    struct faulty_numbers n;
    struct store_view v;
    struct err err = {0};
    faulty_zero(g.f);
    if (store_get(st, model_expert_id(store_model(st), layer, e), STORE_DEMAND, 0, &v, &err)) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(v.n, K3_EXPERT_BYTES);
    uint8_t *want = malloc(v.n);
    k3_bytes(layer + 1, k3_expert_at(layer, e), want, v.n);
    assert_memory_equal(v.p, want, v.n);
    free(want);
    store_release(st, &v);
    faulty_get(g.f, &n);
    assert_int_equal(n.requests, 1);
    assert_int_equal(n.shard_bytes, K3_EXPERT_BYTES);
}

/* The first and the last bytes alone, straight from the origin. */
static void ends_of_expert(struct store *st, uint32_t layer, uint32_t e)
{
    uint32_t id = model_expert_id(store_model(st), layer, e);
    uint64_t at = k3_expert_at(layer, e), off[2] = {0, K3_EXPERT_BYTES - 24};
    for (int i = 0; i < 2; i++) {
        uint8_t have[24], want[24];
        struct err err = {0};
        if (store_read(st, id, off[i], have, sizeof have, &err)) {
            fail_msg("%s", err.msg);
        }
        k3_bytes(layer + 1, at + off[i], want, sizeof want);
        assert_memory_equal(have, want, sizeof want);
    }
}

static void t_places(void **state)
{
    (void)state;
    uint64_t seed = 6;
    struct faulty_numbers n;
    char *cache = util_path("%s/places", g.tmp);
    struct store *st = open_store(cache, K3_EXPERT_BYTES);
    assert_int_equal(model_object_count(store_model(st)), 82432 + 2460);
    for (int i = 0; i < (g.all ? 64 : 4); i++) {
        whole_expert(st, 1 + random_of(&seed) % 92, random_of(&seed) % K3_EXPERTS);
    }
    whole_expert(st, 92, 99); /* the last one of the last shard, by the order of names */
    store_close(st);
    /* warm: nothing is asked of the origin before an object is */
    faulty_zero(g.f);
    st = open_store(cache, K3_EXPERT_BYTES);
    faulty_get(g.f, &n);
    assert_int_equal(n.requests, 0);
    struct err e = {0};
    struct store_view v;
    uint32_t id = model_expert_id(store_model(st), 92, 99);
    assert_int_equal(store_where(st, id), STORE_DISK);
    assert_int_equal(store_get(st, id, STORE_DEMAND, 0, &v, &e), 0);
    uint8_t *want = malloc(K3_EXPERT_BYTES);
    k3_bytes(93, k3_expert_at(92, 99), want, K3_EXPERT_BYTES);
    assert_memory_equal(v.p, want, K3_EXPERT_BYTES);
    free(want);
    store_release(st, &v);
    store_close(st);
    util_rmtree(cache);
    free(cache);

    st = open_store(NULL, K3_EXPERT_BYTES);
    for (uint32_t l = 1; l < K3_LAYERS; l++) {
        for (uint32_t x = g.all ? 0 : l * 9; x < K3_EXPERTS; x += g.all ? 1 : K3_EXPERTS) {
            ends_of_expert(st, l, x);
        }
    }
    store_close(st);
}

/* The test's own idea of what was used when. */
struct oracle {
    struct disk *d;
    uint64_t *used; /* [n]; 0: not here */
    uint64_t now;
    uint32_t n, first; /* experts begin at `first` */
};

static void refill(struct oracle *o, const struct model *m, uint32_t id)
{
    struct err e = {0};
    uint32_t oldest = 0;
    for (uint32_t i = o->first; i < o->n; i++) {
        if (o->used[i] && (!oldest || o->used[i] < o->used[oldest])) {
            oldest = i;
        }
    }
    disk_pin(o->d, id, 1);
    if (k3_refill(o->d, m, id, &e)) {
        fail_msg("%s", e.msg);
    }
    disk_pin(o->d, id, -1);
    assert_true(disk_has(o->d, id));
    assert_false(disk_has(o->d, oldest));
    o->used[oldest] = 0;
    o->used[id] = ++o->now;
}

static void use(struct oracle *o, uint32_t id)
{
    disk_pin(o->d, id, 1);
    disk_pin(o->d, id, -1);
    o->used[id] = ++o->now;
}

static uint32_t random_expert(const struct oracle *o, uint64_t *seed, bool here)
{
    uint32_t id;
    do {
        id = o->first + random_of(seed) % (o->n - o->first);
    } while ((o->used[id] != 0) != here);
    return id;
}

static void t_turns(void **state)
{
    (void)state;
    uint32_t layers = g.all ? 91 : 1, rounds = g.all ? 10000 : 60;
    uint64_t seed = 7;
    char *cache = util_path("%s/turns", g.tmp);
    struct model_source src;
    struct model *m = NULL;
    struct err e = {0};
    if (model_folder_open(g.dir, &src, &e) || model_open(&src, &m, &e)) {
        fail_msg("%s", e.msg);
    }
    struct disk_opts opts = {
        .cache_dir = cache, .m = m, .budget = k3_fill(cache, m, layers), .floor = 1};
    struct oracle o = {.n = model_object_count(m), .first = model_expert_id(m, 1, 0)};
    o.used = calloc(o.n, sizeof *o.used);
    if (disk_open(&opts, &o.d, &e)) {
        fail_msg("%s", e.msg);
    }
    uint32_t filled = layers * K3_EXPERTS, files = agree(o.d, cache, m);
    assert_int_equal(files, o.first + filled); /* the spine's numbers come first */
    for (uint32_t i = 0; i < filled; i++) {    /* an order of our own; 5077 is a prime */
        use(&o, o.first + (uint32_t)((uint64_t)i * 5077 % filled));
    }
    for (uint32_t i = 1; i <= rounds; i++) {
        refill(&o, m, random_expert(&o, &seed, false));
        for (int k = 0; k < 8; k++) {
            use(&o, random_expert(&o, &seed, true));
        }
        if (i % (rounds / 3) == 0) {
            assert_int_equal(agree(o.d, cache, m), files);
        }
    }
    disk_close(o.d);
    assert_int_equal(agree_orphans(NULL, cache, m), 0);
    /* and after a new start */
    if (disk_open(&opts, &o.d, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(agree(o.d, cache, m), files);
    for (uint32_t id = o.first; id < o.n; id++) {
        assert_int_equal(disk_has(o.d, id), o.used[id] != 0);
    }
    for (int i = 0; i < 3; i++) { /* what was used when is not forgotten */
        refill(&o, m, random_expert(&o, &seed, false));
    }
    disk_close(o.d);
    print_message("%u refills among %u experts on disk\n", rounds + 3, filled);
    model_close(m);
    model_folder_close(&src);
    util_rmtree(cache);
    free(cache);
    free(o.used);
}

static int start(void **state)
{
    (void)state;
    g.tmp = util_tmpdir();
    g.dir = util_path("%s/k3", g.tmp);
    if (k3_table() || k3_folder(g.dir)) {
        return 1;
    }
    g.f = k3_origin(g.dir);
    g.url = util_path("http://127.0.0.1:%d", faulty_port(g.f));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    faulty_stop(g.f);
    util_rmtree(g.tmp);
    free(g.tmp);
    free(g.dir);
    free(g.url);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_places), cmocka_unit_test(t_turns)};
    g.all = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests_name("store_k3", t, start, stop);
}
