/* SPDX-License-Identifier: MIT
 * t_store_memory.c: memory that is not to be had, or wanted elsewhere: experts leave by steps, the
 * least recently used first, what is held stays, and the budget comes back when all is calm. */
#include "tests/store/util.h"

#include "node/store/pressure.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Memory of which there is only so much, as a GPU's. */
struct little {
    pthread_mutex_t mu;
    size_t used, most, limit;
    unsigned refused;
};

struct piece {
    size_t size;
    void *p;
};

static void *little_alloc(void *ctx, size_t size, void **handle)
{
    struct little *l = ctx;
    struct piece *x = malloc(sizeof *x);
    pthread_mutex_lock(&l->mu);
    bool ok = x && l->used + size <= l->limit;
    l->refused += !ok;
    l->used += ok ? size : 0;
    l->most = l->used > l->most ? l->used : l->most;
    pthread_mutex_unlock(&l->mu);
    if (!ok) {
        free(x);
        return NULL;
    }
    *x = (struct piece){size, aligned_alloc(4096, (size + 4095) / 4096 * 4096)};
    assert_non_null(x->p);
    *handle = x;
    return x->p;
}

static void little_release(void *ctx, void *handle)
{
    struct little *l = ctx;
    struct piece *x = handle;
    pthread_mutex_lock(&l->mu);
    l->used -= x->size;
    pthread_mutex_unlock(&l->mu);
    free(x->p);
    free(x);
}

static struct store *open_it(struct little *l, size_t limit, uint64_t budget, struct util_log *log)
{
    *l = (struct little){.limit = limit};
    pthread_mutex_init(&l->mu, NULL);
    struct store_opts o = {.model = DEMO_MODEL "/",
                           .ram_budget = budget,
                           .mem = {l, little_alloc, little_release},
                           .log = util_log_line,
                           .log_ctx = log};
    struct store *st = NULL;
    struct err e = {0};
    if (store_open(&o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    return st;
}

static struct store_stats stats(struct store *st)
{
    struct store_stats s;
    store_get_stats(st, &s);
    return s;
}

static void get(struct store *st, uint32_t id, struct store_view *v)
{
    struct err e = {0};
    if (store_get(st, id, STORE_DEMAND, 0, v, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_true(util_right(store_model(st), DEMO_MODEL, v));
}

/* The first `max` experts, one after the other. */
static uint32_t get_experts(struct store *st, uint32_t max)
{
    const struct model *m = store_model(st);
    uint32_t n = 0;
    for (uint32_t id = 0; id < model_object_count(m) && n < max; id++) {
        if (model_object(m, id)->kind == MODEL_EXPERT) {
            struct store_view v;
            get(st, id, &v);
            store_release(st, &v);
            n++;
        }
    }
    return n;
}

static uint32_t an_expert(struct store *st, uint32_t nth)
{
    const struct model *m = store_model(st);
    uint32_t id = 0;
    for (uint32_t n = 0;; id++) {
        if (model_object(m, id)->kind == MODEL_EXPERT && n++ == nth) {
            return id;
        }
    }
}

static void no_more_to_be_had(void **state)
{
    struct util_log log;
    struct little l;
    util_log_init(&log);
    struct store *st = open_it(&l, 600000, 1 << 30, &log);
    uint64_t one = model_expert_layout(store_model(st))->size;
    assert_true(get_experts(st, UINT32_MAX) * one > 2 * l.limit);
    struct store_stats s = stats(st);
    assert_true(l.most <= l.limit && l.refused >= 1);
    /* the budget is what there is, found out once and not for every expert */
    assert_true(s.ram_budget <= l.limit && s.ram_budget >= l.limit / 2);
    assert_true(l.refused < 5);
    assert_int_equal(util_log_has(&log, "memory is short"), 1);
    /* a layer's choice is left, whoever asks */
    uint64_t least = model_config(store_model(st))->topk * one;
    store_ram_back_off(st, UINT64_MAX);
    assert_int_equal(stats(st).ram_budget, least);
    assert_true(l.used <= least);
    assert_true(stats(st).ram_experts <= least);
    /* and when there is nothing at all, the error says so; nothing is lost */
    struct store_view v;
    struct err e = {0};
    l.limit = 0;
    uint32_t far = model_spine_id(store_model(st), 1, MODEL_IN_NORM); /* no expert's slot fits it */
    assert_int_equal(store_get(st, far, STORE_DEMAND, 0, &v, &e), ERR_NOMEM);
    l.limit = 600000;
    get(st, far, &v);
    store_release(st, &v);
    store_close(st);
    util_log_free(&log);
    pthread_mutex_destroy(&l.mu);
}

static void pressure(void **state)
{
    struct util_log log;
    struct little l;
    util_log_init(&log);
    struct store *st = open_it(&l, SIZE_MAX, 0, &log);
    uint64_t one = model_expert_layout(store_model(st))->size, plan = 64 * one;
    struct pressure_watch w = {.plan = plan};
    struct store_view held;
    store_set_ram_budget(st, plan);
    get(st, an_expert(st, 0), &held);
    get_experts(st, 64);
    assert_int_equal(stats(st).ram_experts, plan);
    pressure_look(&w, st, PRESSURE_WARN);
    assert_int_equal(stats(st).ram_budget, 56 * one);
    assert_int_equal(stats(st).ram_experts, 56 * one);
    assert_int_equal(l.used, 56 * one); /* it went to the system, not to a list for reuse */
    pressure_look(&w, st, PRESSURE_CRITICAL);
    assert_int_equal(l.used, 28 * one);
    /* the least recently used went; what is held stayed */
    assert_int_equal(store_where(st, an_expert(st, 0)), STORE_RAM);
    assert_int_not_equal(store_where(st, an_expert(st, 1)), STORE_RAM);
    assert_int_equal(store_where(st, an_expert(st, 63)), STORE_RAM);
    assert_true(util_right(store_model(st), DEMO_MODEL, &held));
    for (int i = 0; i < PRESSURE_CALM - 1; i++) {
        pressure_look(&w, st, PRESSURE_NONE);
    }
    assert_int_equal(stats(st).ram_budget, 28 * one);
    pressure_look(&w, st, PRESSURE_NONE);
    assert_int_equal(stats(st).ram_budget, 36 * one);
    for (int i = 0; i < PRESSURE_CALM - 1; i++) {
        pressure_look(&w, st, PRESSURE_NONE);
    }
    pressure_look(&w, st, PRESSURE_WARN); /* it begins again, and the calm with it */
    assert_true(stats(st).ram_budget < 36 * one);
    for (int i = 0; i < 8 * PRESSURE_CALM; i++) {
        pressure_look(&w, st, PRESSURE_NONE);
    }
    assert_int_equal(stats(st).ram_budget, plan); /* and not more */
    store_release(st, &held);
    store_close(st);
    assert_int_equal(l.used, 0);
    util_log_free(&log);
    pthread_mutex_destroy(&l.mu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_more_to_be_had),
                                       cmocka_unit_test(pressure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
