/* SPDX-License-Identifier: MIT
 * t_store_rank.c: what leaves a full disk first when ranks are given: the lowest, of these the
 * longest unused; never what is worth more than what comes, nor what is above the limit. And what
 * is in memory alone comes back to the disk when somebody wants it there. */
#include "tests/store/share_rig.h"
#include "tests/store/util.h"

#include "node/store/share.h"
#include "node/store/want.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM 6 /* experts that fit */

struct rig {
    char *tmp;
    struct store *st;
    const struct model *m;
    uint32_t first; /* expert */
    uint8_t *rank;
};

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    struct err e = {0};
    r->tmp = util_tmpdir();
    char *cache = util_path("%s/c", r->tmp);
    struct store_opts o = {
        .model = DEMO_MODEL, .cache_dir = cache, .disk_floor = 1, .ram_budget = 64 << 20};
    if (store_open(&o, &r->st, &e)) { /* to learn the sizes */
        fail_msg("%s", e.msg);
    }
    uint64_t one = model_expert_layout(store_model(r->st))->size;
    store_close(r->st);
    o.disk_budget = ROOM * one + one / 2;
    if (store_open(&o, &r->st, &e)) {
        fail_msg("%s", e.msg);
    }
    r->m = store_model(r->st);
    while (model_object(r->m, r->first)->kind != MODEL_EXPERT) {
        r->first++;
    }
    r->rank = calloc(model_object_count(r->m), 1);
    free(cache);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    store_close(r->st);
    util_rmtree(r->tmp);
    free(r->tmp);
    free(r->rank);
    free(r);
    return 0;
}

static bool on_disk(struct rig *r, uint32_t i)
{
    return store_storage_ops.have(r->st, store_key(r->st, r->first + i));
}

/* Takes expert i; true when it has come to the disk, too. */
static bool take(struct rig *r, uint32_t i, bool wait)
{
    struct err e = {0};
    struct store_view v;
    if (store_get(r->st, r->first + i, STORE_DEMAND, 0, &v, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_true(util_right(r->m, DEMO_MODEL, &v));
    store_release_drop(r->st, &v);
    for (int t = 0; t < (wait ? 30000 : 150) && !on_disk(r, i); t++) {
        usleep(2000); /* published behind the answer */
    }
    return on_disk(r, i);
}

static void fill(struct rig *r)
{
    for (uint32_t i = 0; i < ROOM; i++) {
        assert_true(take(r, i, true));
    }
}

static void ranks(struct rig *r, uint8_t most)
{
    assert_int_equal(store_ranks(r->st, r->rank, most), 0);
}

static void t_lowest_first(void **state)
{
    struct rig *r = *state;
    uint32_t ids[4];
    fill(r);
    memset(r->rank + r->first, 3, 20);
    r->rank[r->first + 2] = r->rank[r->first + 4] = 1;
    ranks(r, 3);
    assert_int_equal(store_oldest(r->st, 1, ids, 4), 2);
    assert_int_equal(ids[0], r->first + 2);
    assert_int_equal(ids[1], r->first + 4);
    assert_int_equal(store_oldest(r->st, 3, ids, 2), 2);
    assert_int_equal(ids[0], r->first);
    assert_int_equal(ids[1], r->first + 1);
    assert_true(take(r, 10, true));
    assert_false(on_disk(r, 2)); /* the older one of the lowest rank */
    assert_true(on_disk(r, 0) && on_disk(r, 4));
    assert_true(take(r, 11, true));
    assert_false(on_disk(r, 4));
    assert_true(take(r, 12, true)); /* all are alike now: the oldest */
    assert_false(on_disk(r, 0));
    struct store_space s;
    store_get_space(r->st, &s);
    assert_int_equal(s.experts, ROOM * model_expert_layout(r->m)->size);
}

static void t_not_for_less(void **state)
{
    struct rig *r = *state;
    fill(r);
    memset(r->rank + r->first, 3, ROOM);
    ranks(r, 3);
    assert_false(take(r, 10, false)); /* rank 0: used, not kept */
    for (uint32_t i = 0; i < ROOM; i++) {
        assert_true(on_disk(r, i));
    }
    assert_true(store_rank(r->st, r->first + 3, 0));
    assert_false(store_rank(r->st, r->first + 10, 0)); /* it is not on disk */
    assert_true(take(r, 10, true));
    assert_false(on_disk(r, 3));
}

/* What has just come has the rank of one that was not here: it stays until it is ranked anew. */
static void t_new_ones_stay(void **state)
{
    struct rig *r = *state;
    fill(r);
    memset(r->rank + r->first, 3, ROOM);
    r->rank[r->first] = 0;
    ranks(r, 3);
    assert_true(take(r, 10, true)); /* of rank 0, as the one that goes */
    assert_false(on_disk(r, 0));
    assert_false(take(r, 11, false));
    assert_true(on_disk(r, 10));
    ranks(r, 3);
    assert_true(take(r, 11, true));
    assert_false(on_disk(r, 10));
}

static void t_limit(void **state)
{
    struct rig *r = *state;
    fill(r);
    memset(r->rank + r->first, 3, 20);
    ranks(r, 2);
    assert_false(take(r, 10, false));
    assert_int_equal(store_ranks(r->st, NULL, 0), 0); /* as without */
    assert_true(take(r, 11, true));
    assert_false(on_disk(r, 0));
}

/* What another member holds, too, pushes out nothing but spare copies, whatever its rank: what was
 * known when that was given may be late. */
static void t_second(void **state)
{
    struct rig *r = *state, from = {0};
    struct up up;
    struct err e = {0};
    char *cache = util_path("%s/from", r->tmp);
    struct store_opts o = {
        .model = DEMO_MODEL, .cache_dir = cache, .disk_floor = 1, .ram_budget = 64 << 20};
    if (store_open(&o, &from.st, &e)) {
        fail_msg("%s", e.msg);
    }
    from.m = store_model(from.st);
    from.first = r->first;
    for (uint32_t i = 10; i < 13; i++) {
        assert_true(take(&from, i, true));
    }
    fill(r);
    memset(r->rank + r->first, 3, 20);
    ranks(r, 3);
    up_start(&up, r->st, from.st, UP_SECOND);
    assert_false(take(r, 10, false));
    for (uint32_t i = 0; i < ROOM; i++) {
        assert_true(on_disk(r, i));
    }
    assert_true(store_rank(r->st, r->first + 4, 0));
    assert_true(take(r, 11, true));
    assert_false(on_disk(r, 4));
    up_mode(&up, 0, 0);
    store_rank_coming(r->st, r->first + 12, 2);
    assert_false(take(r, 12, false));
    store_rank_coming(r->st, r->first + 12, 3);
    store_rank_coming(r->st, r->first + 11, 0); /* it is on disk: nothing happens */
    assert_true(take(r, 12, true));
    assert_true(on_disk(r, 11));
    assert_false(on_disk(r, 0));
    up_stop(&up);
    store_close(from.st);
    free(cache);
}

/* Expert i to the disk, by who wants it there; 0: it is. */
static int want(struct rig *r, uint32_t i)
{
    struct store_wants *w;
    struct err e = {0};
    uint64_t tag = 0;
    uint32_t id = 0;
    int code = -1;
    assert_int_equal(store_wants_open(r->st, &w, &e), 0);
    assert_int_equal(store_wants_add(w, 7, r->first + i, STORE_BACKGROUND, &e), 0);
    assert_int_equal(store_wants_next(w, &tag, &id, &code, &e), 0);
    assert_int_equal(tag, 7);
    assert_int_equal(id, r->first + i);
    store_wants_stop(w);
    store_wants_close(w);
    return code;
}

static void hold(struct rig *r, uint32_t i, struct store_view *v)
{
    struct err e = {0};
    assert_int_equal(store_get(r->st, r->first + i, STORE_DEMAND, 0, v, &e), 0);
    assert_true(util_right(r->m, DEMO_MODEL, v));
}

static uint64_t asked(struct rig *r)
{
    struct store_stats s;
    store_get_stats(r->st, &s);
    return s.origin_bytes;
}

static void t_back_from_memory(void **state)
{
    struct rig *r = *state;
    struct store_view v;
    memset(r->rank + r->first, 1, 20);
    ranks(r, 3);
    for (uint32_t i = 0; i < ROOM; i++) { /* they stay in memory */
        hold(r, i, &v);
        store_release(r->st, &v);
        assert_int_equal(want(r, i), 0);
    }
    ranks(r, 3);
    assert_true(take(r, 10, true));
    assert_false(on_disk(r, 0)); /* its file had to go */
    uint64_t before = asked(r);
    assert_int_equal(want(r, 0), 0);
    assert_true(on_disk(r, 0));
    assert_false(on_disk(r, 1)); /* the one used longest ago made room */
    hold(r, 1, &v);              /* also while somebody holds it */
    assert_int_equal(want(r, 1), 0);
    store_release(r->st, &v);
    assert_true(on_disk(r, 1));
    assert_int_equal(asked(r), before);
    hold(r, 0, &v); /* what was written is read: right bytes, from the file */
    store_release_drop(r->st, &v);
    hold(r, 0, &v);
    assert_int_equal(v.from, STORE_DISK);
    store_release(r->st, &v);

    r->rank[r->first + 12] = 0; /* nothing here is worth so little: it comes to memory alone */
    ranks(r, 3);
    hold(r, 12, &v);
    store_release(r->st, &v);
    assert_false(on_disk(r, 12));
    assert_int_equal(want(r, 12), ERR_FULL);
    r->rank[r->first + 12] = 1;
    ranks(r, 3);
    assert_int_equal(want(r, 12), 0);
    assert_true(on_disk(r, 12));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(t_lowest_first, setup, teardown),
        cmocka_unit_test_setup_teardown(t_not_for_less, setup, teardown),
        cmocka_unit_test_setup_teardown(t_new_ones_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(t_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(t_second, setup, teardown),
        cmocka_unit_test_setup_teardown(t_back_from_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
