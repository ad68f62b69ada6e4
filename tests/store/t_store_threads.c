/* SPDX-License-Identifier: MIT
 * t_store_threads.c: many threads, few RAM slots, a cache that is too small, and an origin that
 * fails now and then. Meant for ThreadSanitizer; right bytes are checked all the same. */
#include "tests/store/faulty.h"
#include "tests/store/util.h"

#include "proto/base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS 8
#define OPS 250

struct shared {
    struct store *st;
    const struct model *m;
    uint8_t **truth;
    uint32_t n;
    atomic_int wrong, failed, done;
};

struct worker {
    struct shared *s;
    uint32_t rng;
};

static uint32_t rnd(struct worker *w, uint32_t n)
{
    w->rng = w->rng * 1664525u + 1013904223u;
    return (w->rng >> 8) % n;
}

static void check(struct shared *s, const struct store_view *v)
{
    if (v->n != model_object(s->m, v->id)->size || memcmp(v->p, s->truth[v->id], v->n) != 0) {
        atomic_fetch_add(&s->wrong, 1);
    }
}

static void op_batch(struct worker *w)
{
    struct shared *s = w->s;
    uint32_t ids[24], n = 1 + rnd(w, 24), from = rnd(w, s->n), step = 1 + rnd(w, 5);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = (from + i * step) % s->n;
    }
    struct err e = {0};
    struct store_batch *b;
    if (store_batch_begin(s->st, ids, n, (enum store_prio)rnd(w, 3), &b, &e)) {
        atomic_fetch_add(&s->failed, 1);
        return;
    }
    uint32_t take = rnd(w, 4) ? n : rnd(w, n);
    struct store_view held[24];
    uint32_t k = 0;
    for (uint32_t i = 0; i < take; i++) {
        size_t which;
        struct store_view v;
        if (store_batch_next(b, &which, &v, &e)) {
            atomic_fetch_add(&s->failed, 1);
            continue;
        }
        check(s, &v);
        if (rnd(w, 3) == 0) {
            held[k++] = v;
        } else if (rnd(w, 2)) {
            store_release(s->st, &v);
        } else {
            store_release_drop(s->st, &v);
        }
    }
    store_batch_end(b);
    while (k) {
        check(s, &held[--k]);
        store_release(s->st, &held[k]);
    }
}

static void op(struct worker *w)
{
    struct shared *s = w->s;
    uint32_t id = rnd(w, s->n);
    struct err e = {0};
    struct store_view v;
    switch (rnd(w, 8)) {
    case 0:
        op_batch(w);
        break;
    case 1: {
        uint32_t ids[4] = {id, (id + 1) % s->n, (id + 2) % s->n, (id + 9) % s->n};
        store_hint(s->st, ids, 4);
        break;
    }
    case 2: {
        uint8_t row[300];
        uint64_t size = model_object(s->m, id)->size;
        uint64_t off = size > sizeof row ? rnd(w, (uint32_t)(size - sizeof row)) : 0;
        size_t n = size < sizeof row ? (size_t)size : sizeof row;
        if (store_read(s->st, id, off, row, n, &e)) {
            atomic_fetch_add(&s->failed, 1);
        } else if (memcmp(row, s->truth[id] + off, n) != 0) {
            atomic_fetch_add(&s->wrong, 1);
        }
        break;
    }
    case 3: {
        struct store_stats x;
        store_get_stats(s->st, &x);
        store_where(s->st, id);
        break;
    }
    case 4: { /* a short deadline: either way is right */
        int r = store_get(s->st, id, STORE_DEMAND, clock_ns() + rnd(w, 3000000), &v, &e);
        if (!r) {
            check(s, &v);
            store_release(s->st, &v);
        } else if (r != ERR_TIMEOUT) {
            atomic_fetch_add(&s->failed, 1);
        }
        break;
    }
    default:
        if (store_get(s->st, id, (enum store_prio)rnd(w, 3), 0, &v, &e)) {
            atomic_fetch_add(&s->failed, 1);
        } else {
            check(s, &v);
            store_release(s->st, &v);
        }
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < OPS; i++) {
        op(w);
    }
    atomic_fetch_add(&w->s->done, 1);
    return NULL;
}

static int admit(void *ctx, uint32_t id, uint8_t *p, size_t n, struct err *e)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
    return n ? 0 : err_set(e, ERR_FORMAT, "object %u is empty at %p", id, (void *)p);
}

static void run(const char *model, const char *cache, struct faulty *f, uint64_t disk_budget)
{
    struct shared s = {.st = NULL};
    struct util_log log;
    util_log_init(&log);
    atomic_int admitted = 0;
    struct store_opts o = {.model = model,
                           .cache_dir = cache,
                           .ram_budget = 60000, /* three experts */
                           .disk_budget = disk_budget,
                           .disk_floor = 1,
                           .retries = 1000,
                           .retry_ms = 2,
                           .admit = admit,
                           .admit_ctx = &admitted,
                           .log = util_log_line,
                           .log_ctx = &log};
    struct err e = {0};
    if (store_open(&o, &s.st, &e)) {
        fail_msg("%s", e.msg);
    }
    s.m = store_model(s.st);
    s.n = model_object_count(s.m);
    s.truth = calloc(s.n, sizeof *s.truth);
    for (uint32_t i = 0; i < s.n; i++) {
        s.truth[i] = util_truth(s.m, DEMO_MODEL, i);
    }
    struct worker w[THREADS];
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){&s, (uint32_t)i * 77777u + 5u};
        assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    static const struct {
        enum fault k;
        long arg;
    } faults[] = {{F_CUT, 3000}, {F_STATUS, 503}, {F_DEAD, 0}, {F_CUT, 100000}};
    for (int i = 0; f && atomic_load(&s.done) < THREADS; i++) {
        faulty_set(f, faults[i % 4].k, faults[i % 4].arg, NULL, 0, 1);
        struct timespec ms = {0, 20000000};
        nanosleep(&ms, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
    }
    assert_int_equal(atomic_load(&s.wrong), 0);
    assert_int_equal(atomic_load(&s.failed), 0);
    assert_true(atomic_load(&admitted) > 0);
    struct store_stats x;
    store_get_stats(s.st, &x);
    print_message("origin %llu, disk %llu bytes; RAM hits %llu; retries %llu; peak %llu\n",
                  (unsigned long long)x.origin_bytes, (unsigned long long)x.disk_bytes,
                  (unsigned long long)x.ram_hits, (unsigned long long)x.retries,
                  (unsigned long long)x.ram_peak);
    store_close(s.st);
    for (uint32_t i = 0; i < s.n; i++) {
        free(s.truth[i]);
    }
    free(s.truth);
    util_log_free(&log);
}

static void t_in_place(void **state)
{
    run(DEMO_MODEL, NULL, NULL, 0);
}

static void t_faulty_origin(void **state)
{
    char *tmp = util_tmpdir(), *cache = util_path("%s/c", tmp);
    struct faulty *f = faulty_start(DEMO_MODEL);
    char *url = util_path("http://127.0.0.1:%d", faulty_port(f));
    run(url, cache, f, 0);
    faulty_set(f, F_NONE, 0, NULL, 0, 0);
    run(url, cache, f, 9 << 20); /* too small for all: eviction at work */
    faulty_set(f, F_NONE, 0, NULL, 0, 0);
    run(url, NULL, f, 0);
    faulty_stop(f);
    util_rmtree(tmp);
    free(tmp);
    free(cache);
    free(url);
}

static void t_folder_cached(void **state)
{
    char *tmp = util_tmpdir(), *cache = util_path("%s/c", tmp);
    run(DEMO_MODEL, cache, NULL, 0);
    util_rmtree(tmp);
    free(tmp);
    free(cache);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_in_place), cmocka_unit_test(t_faulty_origin),
                                   cmocka_unit_test(t_folder_cached)};
    return cmocka_run_group_tests_name("store_threads", t, NULL, NULL);
}
