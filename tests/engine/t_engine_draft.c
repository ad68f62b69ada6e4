/* SPDX-License-Identifier: MIT
 * t_engine_draft.c: the engine with drafts, right and wrong ones: requests of all kinds, several at
 * once, get the ids, log probabilities, receipts and ends that they get without; kept states are
 * the same; a step that fails because of drafts is done again; where there is no memory, no draft.
 */
#include "tests/engine/eng_kit.h"
#include "tests/grammar/gram_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char tiny[] = SHOAL_TEST_DIR "/fixtures/k3/tiny_a";
static const char demo[] = SHOAL_SOURCE_DIR "/node/demo/model";
#define HEX (2 * SHA256_SIZE + 1)
#define JOBS 6

/* ---- a source that knows the answers ---- */

enum kind { RIGHT, WRONG, GARBAGE, KINDS };

struct book {
    enum kind kind;
    struct eng_job *j; /* as they went without drafts */
    size_t n;
    uint32_t vocab, calls, seed;
};

static size_t propose(void *ctx, const uint32_t *tokens, size_t n, size_t max, uint32_t *out)
{
    struct book *b = ctx;
    size_t wrong = b->kind == WRONG ? b->calls++ % (max + 1) : SIZE_MAX;
    for (size_t k = 0; k < b->n; k++) {
        const struct eng_job *j = &b->j[k];
        size_t p = j->ask.n_prompt;
        if (n <= p || memcmp(tokens, j->prompt, p * sizeof *tokens) != 0 || n - p > j->n ||
            memcmp(tokens + p, j->ids, (n - p) * sizeof *tokens) != 0) {
            continue;
        }
        for (size_t i = 0; i < max; i++) {
            uint32_t id = n - p + i < j->n ? j->ids[n - p + i] : 1;
            b->seed = b->seed * 1664525u + 1013904223u;
            out[i] = b->kind == GARBAGE ? b->seed % (2 * b->vocab)
                     : i < wrong        ? id
                                        : (id + 1) % b->vocab;
        }
        return max;
    }
    fail_msg("these tokens are no beginning of any request's answer");
    return 0;
}

static struct eng_job *jobs_new(size_t n)
{
    struct eng_job *j = calloc(n, sizeof *j);
    assert_non_null(j);
    return j;
}

static void jobs_free(struct eng_job *j, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        eng_free(&j[i]);
    }
    free(j);
}

static void same(const struct eng_job *got, const struct eng_job *want)
{
    char a[HEX], b[HEX];
    assert_int_equal(got->end.reason, want->end.reason);
    assert_int_equal(got->end.err.code, want->end.err.code);
    assert_int_equal(got->n, want->n);
    assert_memory_equal(got->ids, want->ids, want->n * sizeof *want->ids);
    assert_memory_equal(got->logprob, want->logprob, want->n * sizeof *want->logprob);
    assert_int_equal(got->end.prompt, want->end.prompt);
    assert_int_equal(got->end.fresh, want->end.fresh);
    eng_receipt(got, a);
    eng_receipt(want, b);
    assert_string_equal(a, b);
}

/* ---- requests of all kinds ---- */

static const struct engine_bias bias[] = {{3, 4.0f}, {9, -100.0f}, {40, 2.5f}};

static void make(struct eng_job *j, uint32_t i, uint32_t V, uint32_t *stop)
{
    eng_job(j, i, 1 + i * 7 % 33, 14 + i % 4 * 5, V);
    struct engine_sampling *s = &j->ask.sampling;
    if (i % 2) {
        s->base = (struct sample_opts){0.8f, 0.95f, 0.01f, 40, i};
    }
    if (i % 3 == 0) {
        s->presence = 0.7f;
        s->frequency = 0.4f;
        s->repetition = 1.3f;
    }
    if (i % 3 == 1) {
        s->bias = bias;
        s->n_bias = 3;
    }
    s->logprobs = true;
    s->top = 3;
    j->stop_after = i == 4 ? 9 : 0;
    if (i == 5) {
        j->ask.stop = stop;
        j->ask.n_stop = 1;
    }
}

static void go(const char *model, const struct engine_opts *o, struct eng_job *j, size_t n,
               struct spec_stats *s)
{
    struct eng x;
    struct engine_stats st;
    eng_open(&x, model, o);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(eng_submit(&x, &j[i]), 0);
    }
    for (size_t i = 0; i < n; i++) {
        eng_wait(&j[i]);
    }
    engine_quit(x.g);
    engine_get_stats(x.g, &st);
    *s = st.spec;
    eng_close(&x);
}

static void no_draft_changes_a_bit(void **state)
{
    (void)state;
    static const uint32_t batch[] = {1, 4, 8}, chunk[] = {7, 16, 64}, most[] = {3, 15, 5};
    struct spec_stats s;
    struct engine_opts o = {.batch = 4};
    struct eng_job *want = jobs_new(JOBS);
    uint32_t V, stop = 0;
    struct rig r;
    struct rig_opts ro = {.model = tiny};
    struct err e = {0};
    assert_int_equal(rig_open(&r, &ro, &e), 0);
    V = infer_config(r.f)->vocab;
    rig_close(&r);
    for (int pass = 0; pass < 2; pass++) { /* the stop id is one that the first pass chose */
        for (uint32_t i = 0; i < JOBS; i++) {
            if (pass) {
                eng_free(&want[i]);
            }
            make(&want[i], i, V, &stop);
            want[i].ask.n_stop = pass && i == 5 ? 1 : 0;
        }
        go(tiny, &o, want, JOBS, &s);
        assert_int_equal(s.drafted, 0);
        stop = want[5].ids[6];
    }
    assert_int_equal(want[5].end.reason, ENGINE_STOP);
    assert_int_equal(want[4].end.reason, ENGINE_HOOK);
    for (int k = 0; k < KINDS; k++) {
        struct book b = {.kind = (enum kind)k, .j = want, .n = JOBS, .vocab = V};
        struct draft_source source = {propose, &b};
        struct eng_job *got = jobs_new(JOBS);
        o = (struct engine_opts){
            .batch = batch[k], .chunk = chunk[k], .spec = {SPEC_ALWAYS, most[k], &source}};
        for (uint32_t i = 0; i < JOBS; i++) {
            make(&got[i], i, V, &stop);
        }
        go(tiny, &o, got, JOBS, &s);
        for (uint32_t i = 0; i < JOBS; i++) {
            same(&got[i], &want[i]);
        }
        assert_true(s.drafted > 0 && s.with_draft > 0 && s.accepted <= s.drafted);
        if (k == RIGHT) {
            assert_int_equal(s.accepted, s.drafted);
        }
        jobs_free(got, JOBS);
    }
    jobs_free(want, JOBS);
}

/* What a form forbids is forbidden to drafts as well, and logits are masked as without. */
static void with_a_grammar(void **state)
{
    (void)state;
    static const char *const schemas[2] = {
        "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":4}", NULL};
    struct gram_kit kit;
    struct grammar *g[2];
    struct err e = {0};
    struct spec_stats s;
    gram_kit_open(&kit);
    struct eng_job *want = jobs_new(2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gram_kit_schema(schemas[i], &g[i], &e), 0);
    }
    for (int k = -1; k < KINDS; k++) {
        struct book b = {.kind = (enum kind)k, .j = want, .n = 2, .vocab = 512};
        struct draft_source source = {propose, &b};
        struct engine_opts o = {.tok = kit.t};
        struct eng_job *j = k < 0 ? want : jobs_new(2);
        if (k >= 0) {
            o.spec = (struct spec_opts){SPEC_ALWAYS, 4, &source};
        }
        for (uint32_t i = 0; i < 2; i++) {
            eng_job(&j[i], i, 12, 18, 512);
            j[i].ask.grammar = g[i];
            if (i) {
                j[i].ask.sampling.base = (struct sample_opts){1, 1, 0, 0, 5};
            }
        }
        go(demo, &o, j, 2, &s);
        for (int i = 0; i < 2 && k >= 0; i++) {
            same(&j[i], &want[i]);
        }
        if (k >= 0) {
            assert_true(s.with_draft > 0);
            jobs_free(j, 2);
        }
    }
    jobs_free(want, 2);
    for (int i = 0; i < 2; i++) {
        grammar_free(g[i]);
    }
    gram_kit_close(&kit);
}

/* A chat that grows: what is kept behind an answer is the state of the answer, not of a draft. */
static void kept_states(void **state)
{
    (void)state;
    struct eng_job *want = jobs_new(3), *got = jobs_new(3);
    uint32_t bounds[] = {20, 40};
    struct rig r;
    struct rig_opts ro = {.model = tiny};
    struct err e = {0};
    assert_int_equal(rig_open(&r, &ro, &e), 0);
    uint32_t V = infer_config(r.f)->vocab;
    rig_close(&r);
    for (int drafts = 0; drafts < 2; drafts++) {
        struct eng_job *j = drafts ? got : want;
        struct book b = {.kind = WRONG, .j = want, .n = 3, .vocab = V};
        struct draft_source source = {propose, &b};
        struct engine_opts o = {.keep_ram = 64 << 20};
        struct eng x;
        if (drafts) {
            o.spec = (struct spec_opts){SPEC_ALWAYS, 6, &source};
        }
        eng_open(&x, tiny, &o);
        for (int t = 0; t < 3; t++) {
            /* each turn is the last one, its answer, and eight tokens more */
            const struct eng_job *last = t ? &j[t - 1] : NULL;
            size_t n = t ? last->ask.n_prompt + last->n : 40;
            eng_job(&j[t], 7 + (uint32_t)t, n + (t ? 8 : 0), 11, V);
            if (t) {
                memcpy(j[t].prompt, last->prompt, last->ask.n_prompt * sizeof *last->prompt);
                memcpy(j[t].prompt + last->ask.n_prompt, last->ids, last->n * sizeof *last->ids);
            }
            j[t].keep_all = true;
            j[t].ask.bounds = bounds;
            j[t].ask.n_bounds = 2;
            assert_int_equal(eng_submit(&x, &j[t]), 0);
            eng_wait(&j[t]);
            assert_int_equal(j[t].end.reused, t ? n - 1 : 0);
        }
        eng_close(&x);
    }
    for (int t = 0; t < 3; t++) {
        same(&got[t], &want[t]);
    }
    jobs_free(want, 3);
    jobs_free(got, 3);
}

/* Two answers in one step, which fails: both go on, without drafts, as if nothing had been. A third
 * was cancelled in a step with drafts. */
static void a_failing_step_is_done_again(void **state)
{
    (void)state;
    struct eng_job *want = jobs_new(3), *got = jobs_new(3);
    struct rig r;
    struct rig_opts ro = {.model = tiny};
    struct err e = {0};
    struct spec_stats s;
    assert_int_equal(rig_open(&r, &ro, &e), 0);
    uint32_t V = infer_config(r.f)->vocab;
    rig_close(&r);
    for (uint32_t i = 0; i < 3; i++) {
        eng_job(&want[i], i, 5, i == 2 ? 500 : 60, V);
        eng_job(&got[i], i, 5, i == 2 ? 500 : 60, V);
    }
    struct engine_opts o = {.batch = 3};
    go(tiny, &o, want, 3, &s);
    struct book b = {.kind = RIGHT, .j = want, .n = 3, .vocab = V};
    struct draft_source source = {propose, &b};
    struct eng x;
    o.spec = (struct spec_opts){SPEC_ALWAYS, 1, &source};
    eng_open(&x, tiny, &o);
    atomic_store(&x.hold, true);
    assert_int_equal(eng_submit(&x, &got[0]), 0);
    assert_int_equal(eng_submit(&x, &got[1]), 0);
    assert_int_equal(eng_submit(&x, &got[2]), 0);
    atomic_store(&x.hold, false);
    eng_wait_tokens(&got[2], 4);
    engine_cancel(got[2].job);
    eng_wait(&got[2]);
    assert_int_equal(got[2].end.err.code, ERR_CANCELLED);
    for (int i = 0; i < 2; i++) {
        eng_wait(&got[i]);
        same(&got[i], &want[i]);
        eng_free(&got[i]);
        eng_job(&got[i], (uint32_t)i, 5, 60, V);
    }
    /* once more, with a failure in a step of both: the second comes while the first one's prompt is
     * read, so they are together from its second token on */
    got[0].fail = &x.fail;
    got[0].fail_after = 6;
    atomic_store(&x.hold, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(eng_submit(&x, &got[i]), 0);
    }
    atomic_store(&x.hold, false);
    for (int i = 0; i < 2; i++) {
        eng_wait(&got[i]);
        same(&got[i], &want[i]);
    }
    struct engine_stats st;
    engine_get_stats(x.g, &st);
    assert_int_equal(st.spec.failed, 1);
    eng_close(&x);
    jobs_free(want, 3);
    jobs_free(got, 3);
}

/* The memory for states holds one of them, and no mark beside it. */
static void no_memory_no_drafts(void **state)
{
    (void)state;
    struct eng_job *want = jobs_new(2), *got = jobs_new(2);
    struct rig r;
    struct rig_opts ro = {.model = tiny};
    struct err e = {0};
    struct spec_stats s;
    assert_int_equal(rig_open(&r, &ro, &e), 0);
    uint32_t V = infer_config(r.f)->vocab;
    uint64_t one = infer_state_bytes(r.f, 35), mark = infer_mark_bytes(r.f, 4);
    rig_close(&r);
    for (int k = 0; k < 3; k++) {
        struct book b = {.kind = RIGHT, .j = want, .n = 2, .vocab = V};
        struct draft_source source = {propose, &b};
        struct engine_opts o = {.batch = 2};
        struct eng_job *j = k ? got : want;
        for (uint32_t i = 0; i < 2; i++) {
            if (k == 2) {
                eng_free(&j[i]);
            }
            eng_job(&j[i], i, 5, 31, V);
        }
        if (k) {
            o.spec = (struct spec_opts){SPEC_ALWAYS, 3, &source};
            o.ram_states = k == 2 ? 2 * (one + mark) : one + mark / 2;
        }
        go(tiny, &o, j, 2, &s);
        for (int i = 0; i < 2 && k; i++) {
            same(&j[i], &want[i]);
        }
        if (k == 1) {
            assert_int_equal(s.drafted, 0);
            assert_non_null(strstr(s.why, "memory"));
        }
        assert_true(k != 2 || s.drafted);
    }
    jobs_free(want, 2);
    jobs_free(got, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_draft_changes_a_bit),
        cmocka_unit_test(with_a_grammar),
        cmocka_unit_test(kept_states),
        cmocka_unit_test(a_failing_step_is_done_again),
        cmocka_unit_test(no_memory_no_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
