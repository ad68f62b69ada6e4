/* SPDX-License-Identifier: MIT
 * bench_engine.c: what sharing and keeping are worth.
 * usage: bench_engine [MODEL] (default: the demo model)
 *
 * Sharing: eight answers at once against one after the other, rounds interleaved, medians; also the
 * bytes of weights that a token costs, as the layers' reads are shared. Keeping: a chat of about
 * 2,000 tokens grown by ten turns with kept states, against the prefill of its new tokens alone
 * (each turn from a copied state, without engine). Exit 1 when the turns cost more than 2 % above.
 * Every receipt is compared with its pair's. */
#include "tests/engine/eng_kit.h"

#include "proto/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define AT_ONCE 8
#define NEW 48
#define ROUNDS 3
#define TURNS 10
#define GROW 40 /* tokens of a turn's message */
#define FIRST 2000

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* Seconds for eight requests, all at once or each after the last. */
static double eight(struct eng *x, bool at_once, char receipts[AT_ONCE][2 * SHA256_SIZE + 1])
{
    struct eng_job *j = calloc(AT_ONCE, sizeof *j);
    uint32_t V = infer_config(x->rig.f)->vocab;
    double t = clock_s();
    assert_non_null(j);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        eng_job(&j[i], i, 32, NEW, V);
        j[i].ask.no_keep = true;
        assert_int_equal(eng_submit(x, &j[i]), 0);
        if (!at_once) {
            eng_wait(&j[i]);
        }
    }
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        eng_wait(&j[i]);
        eng_receipt(&j[i], receipts[i]);
    }
    t = clock_s() - t;
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        eng_free(&j[i]);
    }
    free(j);
    return t;
}

static void sharing(const char *model)
{
    struct eng x;
    struct engine_opts o = {.batch = AT_ONCE};
    char a[AT_ONCE][2 * SHA256_SIZE + 1], b[AT_ONCE][2 * SHA256_SIZE + 1];
    double once[ROUNDS], one[ROUNDS];
    eng_open(&x, model, &o);
    eight(&x, true, a); /* everything is in memory now */
    for (int i = 0; i < ROUNDS; i++) {
        once[i] = eight(&x, true, a);
        one[i] = eight(&x, false, b);
        assert_memory_equal(a, b, sizeof a);
    }
    struct engine_stats s;
    engine_get_stats(x.g, &s);
    double t1 = median(once, ROUNDS), t2 = median(one, ROUNDS);
    printf(
        "sharing: %d answers of %d tokens: %.2f s at once, %.2f s one after the other: %.2f times "
        "as fast\n",
        AT_ONCE, NEW, t1, t2, t2 / t1);
    printf("         each layer's weights are read once a step: %llu steps for %llu new tokens\n",
           (unsigned long long)s.steps, (unsigned long long)s.new_tokens);
    eng_close(&x);
}

/* The prompt of a turn: the one before and GROW tokens more. */
static void make_prompt(uint32_t *ids, size_t n, uint32_t V)
{
    uint32_t seed = 5;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (seed >> 8) % V;
    }
}

struct turn {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    bool over;
    struct engine_end end;
};

static void on_end(void *ctx, const struct engine_end *end)
{
    struct turn *t = ctx;
    pthread_mutex_lock(&t->mu);
    t->end = *end;
    t->over = true;
    pthread_cond_signal(&t->cond);
    pthread_mutex_unlock(&t->mu);
}

/* One turn through the engine: seconds; *reused: tokens that were not computed again. */
static double one_turn(struct eng *x, const uint32_t *ids, size_t n, size_t *reused, char hex[65])
{
    struct turn t = {.over = false};
    struct engine_job *job;
    struct err e = {0};
    uint32_t bound = (uint32_t)n - 4; /* before the generation prefix, as a chat has it */
    struct engine_ask a = {.prompt = ids,
                           .n_prompt = n,
                           .bounds = &bound,
                           .n_bounds = 1,
                           .max_new = 1,
                           .sampling = {.base = {.top_p = 1}},
                           .hooks = {.ctx = &t, .end = on_end}};
    pthread_mutex_init(&t.mu, NULL);
    pthread_cond_init(&t.cond, NULL);
    double s = clock_s();
    assert_int_equal(engine_submit(x->g, &a, &job, NULL, &e), 0);
    pthread_mutex_lock(&t.mu);
    while (!t.over) {
        pthread_cond_wait(&t.cond, &t.mu);
    }
    pthread_mutex_unlock(&t.mu);
    s = clock_s() - s;
    *reused = t.end.reused;
    receipt_hex(&t.end.receipt, hex);
    engine_release(job);
    return s;
}

static double bare_turn(struct eng *x, struct infer_state **st, const uint32_t *ids, size_t from,
                        size_t n, float *logits)
{
    struct infer_row rows[512];
    struct infer_state *next;
    struct err e = {0};
    double s = clock_s();
    assert_int_equal(infer_state_copy(*st, &next, &e), 0);
    size_t k = 0;
    for (size_t i = from; i < n; i++) {
        rows[k++] = (struct infer_row){next, ids[i], i + 1 == n};
    }
    assert_int_equal(infer_forward(x->rig.f, rows, k, logits, &e), 0);
    s = clock_s() - s;
    infer_state_free(*st);
    *st = next;
    return s;
}

static int keeping(const char *model)
{
    struct eng x;
    struct engine_opts o = {.keep_ram = (uint64_t)2 << 30, .chunk = 512};
    eng_open(&x, model, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    size_t most = FIRST + TURNS * GROW;
    uint32_t *ids = malloc(most * sizeof *ids);
    float *logits = malloc(V * sizeof *logits);
    char hex[65];
    assert_true(ids && logits);
    make_prompt(ids, most, V);
    size_t reused;
    double first = one_turn(&x, ids, FIRST, &reused, hex), kept = 0, bare = 0;
    struct infer_state *st;
    struct err e = {0};
    assert_int_equal(infer_state_new(x.rig.f, &st, &e), 0);
    for (size_t at = 0; at < FIRST - 4; at += 256) {
        struct infer_row rows[256];
        size_t k = FIRST - 4 - at < 256 ? FIRST - 4 - at : 256;
        for (size_t i = 0; i < k; i++) {
            rows[i] = (struct infer_row){st, ids[at + i], false};
        }
        assert_int_equal(infer_forward(x.rig.f, rows, k, NULL, &e), 0);
    }
    size_t from = FIRST - 4;
    for (int i = 1; i <= TURNS; i++) { /* interleaved, the order changing */
        size_t n = FIRST + (size_t)i * GROW;
        if (i % 2) {
            kept += one_turn(&x, ids, n, &reused, hex);
        }
        /* the bare run ends where the next turn's kept state lies, and one token later */
        bare += bare_turn(&x, &st, ids, from, n - 4, logits);
        struct infer_state *tail = NULL;
        assert_int_equal(infer_state_copy(st, &tail, &e), 0);
        bare += bare_turn(&x, &tail, ids, n - 4, n, logits);
        infer_state_free(tail);
        if (!(i % 2)) {
            kept += one_turn(&x, ids, n, &reused, hex);
        }
        assert_int_equal(reused, from);
        from = n - 4;
    }
    double more = kept / bare - 1;
    printf(
        "keeping: a chat of %d tokens (%.2f s) grown by %d turns of %d: %.3f s, new tokens alone "
        "%.3f s: %+.1f %%\n",
        FIRST, first, TURNS, GROW, kept, bare, more * 100);
    infer_state_free(st);
    free(ids);
    free(logits);
    eng_close(&x);
    return more > 0.02;
}

int main(int argc, char **argv)
{
    const char *model = argc > 1 ? argv[1] : SHOAL_SOURCE_DIR "/node/demo/model";
    sharing(model);
    return keeping(model);
}
