/* SPDX-License-Identifier: MIT
 * t_store_folder.c: a local folder read in place: get, batches, hints, pins and the RAM budget. */
#include "tests/store/util.h"

#include "proto/base/clock.h"

#include <unistd.h>
#include <stdlib.h>
#include <string.h>

static struct store *open_it(uint64_t budget, struct util_log *l)
{
    struct store_opts o = {.model = DEMO_MODEL "/", .ram_budget = budget};
    if (l) {
        o.log = util_log_line;
        o.log_ctx = l;
    }
    struct store *st = NULL;
    struct err e = {0};
    if (store_open(&o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    return st;
}

static uint64_t expert_size(struct store *st)
{
    return model_expert_layout(store_model(st))->size;
}

static void t_get_all(void **s)
{
    struct store *st = open_it(1 << 20, NULL);
    const struct model *m = store_model(st);
    struct err e = {0};
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        struct store_view v;
        assert_int_equal(store_get(st, id, STORE_DEMAND, 0, &v, &e), 0);
        assert_true(util_right(m, DEMO_MODEL, &v));
        assert_int_equal((uintptr_t)v.p % 4096, 0);
        store_release(st, &v);
        store_release(st, &v); /* a released view is empty */
    }
    struct store_stats n;
    store_get_stats(st, &n);
    assert_true(n.ram_used <= 1 << 20);
    assert_true(n.ram_used > (1 << 20) - expert_size(st));
    assert_int_equal(n.spine_bytes_read, model_spine_bytes(m));
    assert_int_equal(n.disk_bytes, model_spine_bytes(m) + model_expert_bytes(m));
    assert_int_equal(n.origin_bytes, 0);
    struct store_view v;
    assert_int_equal(store_get(st, model_object_count(m), STORE_DEMAND, 0, &v, &e), ERR_ARG);
    store_close(st);
}

static void t_lru_and_pins(void **s)
{
    struct store *st = open_it(0, NULL);
    uint64_t x = expert_size(st);
    store_close(st);
    st = open_it(3 * x, NULL);
    const struct model *m = store_model(st);
    uint32_t a = model_expert_id(m, 1, 0);
    struct err e = {0};
    struct store_view v[6];
    for (int i = 0; i < 6; i++) { /* six pinned: over the budget, and allowed */
        assert_int_equal(store_get(st, a + (uint32_t)i, STORE_DEMAND, 0, &v[i], &e), 0);
    }
    struct store_stats n;
    store_get_stats(st, &n);
    assert_int_equal(n.ram_used, 6 * x);
    for (int i = 0; i < 6; i++) {
        assert_true(util_right(m, DEMO_MODEL, &v[i]));
        store_release(st, &v[i]);
    }
    store_get_stats(st, &n);
    assert_int_equal(n.ram_used, 3 * x); /* shrunk back */
    assert_int_equal(store_where(st, a), STORE_DISK);
    assert_int_equal(store_where(st, a + 3), STORE_RAM);
    assert_int_equal(store_where(st, a + 5), STORE_RAM);
    /* touch 3, bring in another: 4 must be the one to go */
    assert_int_equal(store_get(st, a + 3, STORE_DEMAND, 0, &v[0], &e), 0);
    store_release(st, &v[0]);
    assert_int_equal(store_get(st, a, STORE_DEMAND, 0, &v[0], &e), 0);
    store_release(st, &v[0]);
    assert_int_equal(store_where(st, a + 4), STORE_DISK);
    assert_int_equal(store_where(st, a + 3), STORE_RAM);
    store_get_stats(st, &n);
    assert_int_equal(n.ram_hits, 1);
    assert_int_equal(n.disk_hits, 7);
    /* the entry a batch needs next is not evicted by what the batch brings in */
    uint32_t ids[8] = {a + 10, a + 11, a + 12, a + 13, a + 3, a + 14, a + 15, a + 16};
    struct store_batch *b;
    assert_int_equal(store_batch_begin(st, ids, 8, STORE_DEMAND, &b, &e), 0);
    size_t which;
    unsigned seen = 0;
    uint64_t peak = 0;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(store_batch_next(b, &which, &v[0], &e), 0);
        assert_int_equal(v[0].id, ids[which]);
        assert_true(util_right(m, DEMO_MODEL, &v[0]));
        seen |= 1u << which;
        store_get_stats(st, &n);
        peak = n.ram_used > peak ? n.ram_used : peak;
        store_release(st, &v[0]);
    }
    assert_int_equal(store_batch_next(b, &which, &v[0], &e), ERR_NOTFOUND);
    store_batch_end(b);
    assert_int_equal(seen, 255);
    assert_true(peak <= 6 * x);
    store_get_stats(st, &n);
    assert_int_equal(n.ram_hits, 2);
    assert_int_equal(n.ram_peak, 6 * x); /* the batch kept to the budget: no new peak */
    store_close(st);
}

static void t_batch_all_experts(void **s)
{
    /* a batch much larger than RAM, with room for nothing, taken to the end and given up half-way
     */
    for (int stop = 0; stop < 2; stop++) {
        struct store *st = open_it(0, NULL);
        const struct model *m = store_model(st);
        uint32_t n = model_object_count(m), *ids = malloc(n * sizeof *ids);
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = n - 1 - i;
        }
        struct err e = {0};
        struct store_batch *b;
        assert_int_equal(store_batch_begin(st, ids, n, STORE_DEMAND, &b, &e), 0);
        uint32_t got = 0;
        struct store_view v;
        size_t which;
        int r = 0;
        while (got < (stop ? n / 2 : n) && !(r = store_batch_next(b, &which, &v, &e))) {
            assert_int_equal(v.id, ids[which]);
            assert_true(util_right(m, DEMO_MODEL, &v));
            store_release(st, &v);
            got++;
        }
        assert_int_equal(r, 0);
        store_batch_end(b);
        struct store_stats x;
        store_get_stats(st, &x);
        if (!stop) {
            assert_int_equal(x.ram_used, 0);
            /* all of the spine may wait at once; of the experts two are under way, one is held, one
             * has just been given back */
            assert_true(x.ram_peak <= model_spine_bytes(m) + 4 * expert_size(st));
        }
        free(ids);
        store_close(st);
    }
}

static void t_hint(void **s)
{
    struct store *st = open_it(0, NULL);
    uint64_t x = expert_size(st);
    store_close(st);
    st = open_it(2 * x, NULL);
    const struct model *m = store_model(st);
    uint32_t a = model_expert_id(m, 2, 0);
    uint32_t sp = model_spine_id(m, 1, MODEL_IN_NORM), lm = model_spine_id(m, 0, MODEL_LM_HEAD);
    uint32_t ids[6] = {sp, lm, a, a + 1, a + 2, UINT32_MAX};
    store_hint(st, ids, 6);
    uint64_t end = clock_ns() + 60000000000u;
    while (clock_ns() < end &&
           !(store_where(st, sp) == STORE_RAM && store_where(st, lm) == STORE_RAM &&
             store_where(st, a) == STORE_RAM && store_where(st, a + 1) == STORE_RAM)) {
    }
    assert_int_equal(store_where(st, a + 1), STORE_RAM);
    assert_int_equal(store_where(st, a + 2), STORE_DISK); /* no room for the third */
    struct err e = {0};
    struct store_view v;
    assert_int_equal(store_get(st, sp, STORE_DEMAND, 0, &v, &e), 0);
    assert_true(util_right(m, DEMO_MODEL, &v));
    store_release(st, &v);
    assert_int_equal(store_where(st, sp), STORE_DISK); /* taken: the hint is used up */
    assert_int_equal(store_where(st, lm), STORE_RAM);
    assert_int_equal(store_get(st, lm, STORE_DEMAND, 0, &v, &e), 0);
    struct store_view w;
    assert_int_equal(store_get(st, lm, STORE_DEMAND, 0, &w, &e), 0);
    assert_ptr_equal(w.p, v.p);
    store_release_drop(st, &v);
    assert_int_equal(store_where(st, lm), STORE_RAM); /* somebody else holds it */
    assert_true(util_right(m, DEMO_MODEL, &w));
    store_release_drop(st, &w);
    assert_int_equal(store_where(st, lm), STORE_DISK);
    store_close(st);
}

static void t_read_and_files(void **s)
{
    struct store *st = open_it(1 << 20, NULL);
    const struct model *m = store_model(st);
    uint32_t em = model_spine_id(m, 0, MODEL_EMBED);
    uint8_t *truth = util_truth(m, DEMO_MODEL, em), row[512];
    struct err e = {0};
    size_t n = (size_t)model_object(m, em)->size;
    for (size_t off = 0; off + sizeof row <= n; off += 100003) {
        assert_int_equal(store_read(st, em, off, row, sizeof row, &e), 0);
        assert_memory_equal(row, truth + off, sizeof row);
    }
    assert_int_equal(store_read(st, em, n - 511, row, 512, &e), ERR_ARG);
    assert_int_equal(store_read(st, em, UINT64_MAX, row, 512, &e), ERR_ARG);
    assert_int_equal(store_read(st, em, n, row, 0, &e), 0);
    free(truth);
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_int_equal(store_read_file(st, "tiktoken.model", &b, &e), 0);
    assert_true(b.n > 1000);
    assert_int_equal(store_read_file(st, "no-such-file", &b, &e), ERR_NOTFOUND);
    buf_free(&b);
    store_close(st);
}

/* Rewrites experts in place and refuses one by name. */
static int hook(void *ctx, uint32_t id, uint8_t *p, size_t n, struct err *e)
{
    uint32_t *bad = ctx;
    p[0] ^= 0xff;
    return id == *bad ? err_set(e, ERR_FORMAT, "scale byte 255") : 0;
}

static void t_admit(void **s)
{
    struct store *st = open_it(1 << 20, NULL);
    const struct model *m = store_model(st);
    uint32_t bad = model_expert_id(m, 3, 7);
    store_set_admit(st, hook, &bad);
    struct err e = {0};
    struct store_view v;
    for (int i = 0; i < 2; i++) { /* the second time from RAM: not called again */
        assert_int_equal(store_get(st, bad + 1, STORE_DEMAND, 0, &v, &e), 0);
        uint8_t *t = util_truth(m, DEMO_MODEL, bad + 1);
        assert_int_equal(v.p[0], t[0] ^ 0xff);
        assert_memory_equal(v.p + 1, t + 1, v.n - 1);
        free(t);
        store_release(st, &v);
    }
    uint32_t ids[3] = {bad - 1, bad, bad + 1};
    struct store_batch *b;
    assert_int_equal(store_batch_begin(st, ids, 3, STORE_DEMAND, &b, &e), 0);
    int failed = 0;
    size_t which;
    for (int i = 0; i < 3; i++) {
        int r = store_batch_next(b, &which, &v, &e);
        if (r) {
            failed++;
            assert_int_equal(which, 1);
            assert_int_equal(r, ERR_FORMAT);
            assert_non_null(strstr(e.msg, "3/7"));
            assert_non_null(strstr(e.msg, "scale byte 255"));
        } else {
            store_release(st, &v);
        }
    }
    assert_int_equal(failed, 1);
    store_batch_end(b);
    assert_int_equal(store_get(st, bad, STORE_DEMAND, 0, &v, &e), ERR_FORMAT);
    ids[1] = ids[0];
    assert_int_equal(store_batch_begin(st, ids, 3, STORE_DEMAND, &b, &e), ERR_ARG);
    store_close(st);
}

static void t_short_shard(void **s)
{
    char *d = util_tmpdir(), *dir = util_path("%s/m", d);
    util_copy_dir(DEMO_MODEL, dir);
    struct store_opts o = {.model = dir, .ram_budget = 1 << 20};
    struct store *st;
    struct err e = {0};
    assert_int_equal(store_open(&o, &st, &e), 0);
    uint32_t id = model_expert_id(store_model(st), 2, 1);
    const char *file = model_shard(store_model(st), model_object(store_model(st), id)->shard)->file;
    char *p = util_path("%s/%s", dir, file);
    assert_int_equal(truncate(p, 5000), 0);
    struct store_view v;
    assert_int_equal(store_get(st, id, STORE_DEMAND, 0, &v, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, file));
    assert_non_null(strstr(e.msg, "2/1"));
    unlink(p);
    assert_int_equal(store_get(st, id, STORE_DEMAND, 0, &v, &e), ERR_NOTFOUND);
    store_close(st);
    o.model = "/nowhere/at/all";
    assert_int_not_equal(store_open(&o, &st, &e), 0);
    assert_non_null(strstr(e.msg, "/nowhere/at/all"));
    free(p);
    util_rmtree(d);
    free(d);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(t_get_all),           cmocka_unit_test(t_lru_and_pins),
        cmocka_unit_test(t_batch_all_experts), cmocka_unit_test(t_hint),
        cmocka_unit_test(t_read_and_files),    cmocka_unit_test(t_admit),
        cmocka_unit_test(t_short_shard),
    };
    return cmocka_run_group_tests_name("store_folder", t, NULL, NULL);
}
