/* SPDX-License-Identifier: MIT
 * t_engine.c: many requests at once: each gets what it gets alone; cancelling, deadlines, the
 * queue, refusals, stops, grammars. */
#include "tests/engine/eng_kit.h"

#include "proto/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char tiny[] = SHOAL_TEST_DIR "/fixtures/k3/tiny_a";
#define HEX (2 * SHA256_SIZE + 1)
#define JOBS 10

static struct eng_job *jobs_new(size_t n)
{
    struct eng_job *j = calloc(n, sizeof *j);
    assert_non_null(j);
    return j;
}

/* Ten requests of all kinds through three batch sizes; the receipts are those of generate(). */
static void test_same_bits(void **state)
{
    (void)state;
    static const uint32_t batch[] = {1, 3, 8}, chunk[] = {5, 16, 64};
    char want[JOBS][HEX], got[HEX];
    for (size_t k = 0; k < 3; k++) {
        struct eng x;
        struct engine_opts o = {.batch = batch[k], .chunk = chunk[k]};
        eng_open(&x, tiny, &o);
        uint32_t V = infer_config(x.rig.f)->vocab;
        struct eng_job *j = jobs_new(JOBS);
        for (uint32_t i = 0; i < JOBS; i++) {
            eng_job(&j[i], i, 1 + i * 7 % 33, 5 + i % 4 * 6, V);
            if (i % 2) {
                j[i].ask.sampling.base = (struct sample_opts){0.8f, 0.95f, 0.01f, 40, i};
            }
            if (k == 0) { /* nothing runs in the engine yet */
                eng_alone(&x, &j[i], want[i]);
            }
        }
        for (uint32_t i = 0; i < JOBS; i++) {
            assert_int_equal(eng_submit(&x, &j[i]), 0);
        }
        for (uint32_t i = 0; i < JOBS; i++) {
            eng_wait(&j[i]);
            assert_int_equal(j[i].end.reason, ENGINE_LENGTH);
            assert_int_equal(j[i].n, j[i].ask.max_new);
            assert_int_equal(j[i].prefill_done, j[i].ask.n_prompt);
            eng_receipt(&j[i], got);
            assert_string_equal(got, want[i]);
            eng_free(&j[i]);
        }
        struct engine_stats s;
        engine_get_stats(x.g, &s);
        assert_int_equal(s.requests, JOBS);
        assert_int_equal(s.running, 0);
        assert_true(batch[k] == 1 || s.steps < s.new_tokens); /* they did share steps */
        free(j);
        eng_close(&x);
    }
}

/* Some are cancelled while they wait, read or write; the others do not notice. */
static void test_cancel(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.batch = 4, .chunk = 8};
    char want[4][HEX], got[HEX];
    eng_open(&x, tiny, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    struct eng_job *j = jobs_new(8);
    for (uint32_t i = 0; i < 4; i++) { /* these live */
        eng_job(&j[i], 100 + i, 20, 40, V);
        eng_alone(&x, &j[i], want[i]);
    }
    for (uint32_t i = 4; i < 8; i++) { /* these go */
        eng_job(&j[i], 100 + i, i == 5 ? 500 : 12, 500, V);
    }
    assert_int_equal(eng_submit(&x, &j[4]), 0);
    assert_int_equal(eng_submit(&x, &j[5]), 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(eng_submit(&x, &j[i]), 0);
    }
    assert_int_equal(eng_submit(&x, &j[6]), 0); /* waits */
    assert_int_equal(eng_submit(&x, &j[7]), 0);
    engine_cancel(j[6].job);
    eng_wait_tokens(&j[4], 3);
    engine_cancel(j[4].job);
    engine_cancel(j[5].job); /* reading its long prompt, or just through */
    eng_wait(&j[4]);
    eng_wait(&j[5]);
    eng_wait(&j[6]);
    assert_int_equal(j[6].n, 0);
    for (uint32_t i = 4; i < 7; i++) {
        assert_int_equal(j[i].end.reason, ENGINE_ERROR);
        assert_int_equal(j[i].end.err.code, ERR_CANCELLED);
    }
    for (uint32_t i = 0; i < 4; i++) {
        eng_wait(&j[i]);
        eng_receipt(&j[i], got);
        assert_string_equal(got, want[i]);
    }
    eng_wait_tokens(&j[7], 1);
    eng_close(&x); /* ends the last one */
    assert_true(j[7].over);
    assert_int_equal(j[7].end.err.code, ERR_CANCELLED);
    for (uint32_t i = 0; i < 8; i++) {
        eng_free(&j[i]);
    }
    free(j);
}

/* One client's many requests do not keep another's from its turn; what does not fit is refused. */
static void test_queue(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.batch = 1, .queue = 6};
    eng_open(&x, tiny, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    struct eng_job *j = jobs_new(9);
    for (uint32_t i = 0; i < 9; i++) {
        eng_job(&j[i], i, 30, 3, V);
        j[i].ask.client = i == 5 ? "b" : i == 6 ? "c" : "a";
    }
    j[0].ask.max_new = 200; /* holds the only place while the others come */
    assert_int_equal(eng_submit(&x, &j[0]), 0);
    eng_wait_tokens(&j[0], 1);
    for (uint32_t i = 1; i < 7; i++) {
        assert_int_equal(eng_submit(&x, &j[i]), 0);
    }
    size_t waiting = 0;
    struct err e = {0};
    assert_int_equal(engine_submit(x.g, &j[7].ask, &j[7].job, &waiting, &e), ERR_BUSY);
    assert_int_equal(waiting, 6);
    engine_cancel(j[0].job);
    for (uint32_t i = 0; i < 7; i++) {
        eng_wait(&j[i]);
    }
    /* a1, then those who had nothing yet, then the rest of a */
    assert_true(j[5].order < j[2].order && j[6].order < j[2].order);
    for (uint32_t i = 1; i < 4; i++) {
        assert_true(j[i].order < j[i + 1].order);
        assert_true(j[i + 1].waits_calls > 0);
    }
    for (uint32_t i = 0; i < 9; i++) {
        eng_free(&j[i]);
    }
    free(j);
    eng_close(&x);
}

/* A client that sends without end leaves places for one that has nothing in the queue. */
static void test_share(void **state)
{
    (void)state;
    enum { QUEUE = 30, MOST = 24, OTHERS = 6 }; /* 4/5; one from each of the others */
    struct eng x;
    struct engine_opts o = {.batch = 1, .queue = QUEUE};
    struct err e = {0};
    size_t waiting = 0;
    eng_open(&x, tiny, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    struct eng_job *j = jobs_new(QUEUE + 2), *last = &j[QUEUE + 1];
    for (uint32_t i = 0; i < QUEUE + 2; i++) {
        eng_job(&j[i], i, 8, 1, V);
        j[i].ask.client = "greedy";
    }
    j[0].ask.max_new = 500; /* holds the only place while the others come */
    assert_int_equal(eng_submit(&x, &j[0]), 0);
    eng_wait_tokens(&j[0], 1);
    for (uint32_t i = 1; i <= MOST; i++) {
        assert_int_equal(eng_submit(&x, &j[i]), 0);
    }
    assert_int_equal(engine_submit(x.g, &last->ask, &last->job, &waiting, &e), ERR_BUSY);
    assert_int_equal(waiting, MOST);
    assert_non_null(strstr(e.msg, "24 of them yours"));
    static const char *const names[OTHERS] = {"b", "c", "d", "e", "f", "g"};
    for (uint32_t i = 0; i < OTHERS; i++) {
        j[MOST + 1 + i].ask.client = names[i];
        assert_int_equal(eng_submit(&x, &j[MOST + 1 + i]), 0);
    }
    last->ask.client = "h"; /* now it is full, for whom it may be */
    assert_int_equal(engine_submit(x.g, &last->ask, &last->job, &waiting, &e), ERR_BUSY);
    assert_int_equal(waiting, QUEUE);
    engine_cancel(j[0].job);
    for (uint32_t i = 0; i <= QUEUE; i++) {
        eng_wait(&j[i]);
    }
    for (uint32_t i = 0; i < OTHERS; i++) { /* before the second of the greedy one */
        assert_true(j[MOST + 1 + i].order < j[2].order);
    }
    for (uint32_t i = 0; i < QUEUE + 2; i++) {
        eng_free(&j[i]);
    }
    free(j);
    eng_close(&x);
}

/* Within a step that does not end, those who wait hear of their places, and leave when they are
 * cancelled or too late. */
static void test_queue_within_a_step(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.batch = 1, .say_ms = 20};
    char want[HEX], got[HEX];
    eng_open(&x, tiny, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    struct eng_job *j = jobs_new(4);
    for (uint32_t i = 0; i < 4; i++) {
        eng_job(&j[i], i, 30, 20, V);
    }
    eng_alone(&x, &j[0], want);
    assert_int_equal(eng_submit(&x, &j[0]), 0);
    eng_wait_tokens(&j[0], 1);
    atomic_store(&x.hold, true);
    pthread_mutex_lock(&j[0].mu);
    size_t n = j[0].n;
    pthread_mutex_unlock(&j[0].mu);
    assert_int_equal(eng_submit(&x, &j[1]), 0);
    eng_wait_place(&j[1], 0);
    assert_int_equal(eng_submit(&x, &j[3]), 0);
    eng_wait_place(&j[3], 1);
    j[2].ask.deadline_ns = clock_ns() + 30000000;
    assert_int_equal(eng_submit(&x, &j[2]), 0);
    eng_wait(&j[2]);
    assert_int_equal(j[2].end.err.code, ERR_TIMEOUT);
    engine_cancel(j[1].job);
    eng_wait(&j[1]);
    assert_int_equal(j[1].end.err.code, ERR_CANCELLED);
    eng_wait_place(&j[3], 0);
    pthread_mutex_lock(&j[0].mu);
    assert_true(j[0].n <= n + 1 && !j[0].over); /* the step that was under way, at most */
    pthread_mutex_unlock(&j[0].mu);
    atomic_store(&x.hold, false);
    eng_wait(&j[0]);
    eng_wait(&j[3]);
    eng_receipt(&j[0], got);
    assert_string_equal(got, want);
    assert_int_equal(j[3].n, 20);
    for (uint32_t i = 0; i < 4; i++) {
        eng_free(&j[i]);
    }
    free(j);
    eng_close(&x);
}

static void test_ends(void **state)
{
    (void)state;
    struct eng x;
    struct engine_opts o = {.batch = 4};
    struct err e = {0};
    eng_open(&x, tiny, &o);
    uint32_t V = infer_config(x.rig.f)->vocab;
    struct eng_job *j = jobs_new(6);
    eng_job(&j[0], 1, 8, 30, V);
    assert_int_equal(eng_submit(&x, &j[0]), 0);
    eng_wait(&j[0]);
    eng_job(&j[1], 1, 8, 30, V); /* the same, until its fifth token */
    j[1].ask.stop = &j[0].ids[4];
    j[1].ask.n_stop = 1;
    size_t first = 0;
    while (j[0].ids[first] != j[0].ids[4]) {
        first++;
    }
    assert_int_equal(eng_submit(&x, &j[1]), 0);
    eng_wait(&j[1]);
    assert_int_equal(j[1].end.reason, ENGINE_STOP);
    assert_int_equal(j[1].n, first + 1);
    eng_job(&j[2], 1, 8, 30, V);
    j[2].stop_after = 7;
    assert_int_equal(eng_submit(&x, &j[2]), 0);
    eng_wait(&j[2]);
    assert_int_equal(j[2].end.reason, ENGINE_HOOK);
    assert_int_equal(j[2].n, 7);
    assert_memory_equal(j[2].ids, j[0].ids, 7 * sizeof(uint32_t));
    eng_job(&j[3], 1, 8, 500, V);
    j[3].ask.deadline_ns = clock_ns() + 30000000;
    assert_int_equal(eng_submit(&x, &j[3]), 0);
    eng_wait(&j[3]);
    assert_true(j[3].n < 500);
    assert_int_equal(j[3].end.err.code, ERR_TIMEOUT);
    eng_job(&j[4], 1, 8, 4, V);
    uint32_t script[] = {5, 9, 5};
    j[4].ask.script = script;
    j[4].ask.n_script = 3;
    j[4].ask.sampling.logprobs = true;
    assert_int_equal(eng_submit(&x, &j[4]), 0);
    eng_wait(&j[4]);
    assert_memory_equal(j[4].ids, script, sizeof script);
    assert_true(j[4].logprob[0] < 0 && j[4].logprob[0] > -100);
    /* refused at once, with a sentence */
    eng_job(&j[5], 1, 8, 4, V);
    j[5].ask.n_prompt = 0;
    assert_int_equal(engine_submit(x.g, &j[5].ask, &j[5].job, NULL, &e), ERR_ARG);
    j[5].ask.n_prompt = 8;
    j[5].prompt[3] = V;
    assert_int_equal(engine_submit(x.g, &j[5].ask, &j[5].job, NULL, &e), ERR_ARG);
    j[5].prompt[3] = 1;
    j[5].ask.sampling.presence = 3;
    assert_int_equal(engine_submit(x.g, &j[5].ask, &j[5].job, NULL, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "presence_penalty"));
    for (uint32_t i = 0; i < 6; i++) {
        eng_free(&j[i]);
    }
    free(j);
    eng_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_queue_within_a_step),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
