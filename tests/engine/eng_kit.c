/* SPDX-License-Identifier: MIT
 * eng_kit.c: see eng_kit.h. */
#include "tests/engine/eng_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static atomic_uint ends;

void eng_open(struct eng *x, const char *model, const struct engine_opts *o)
{
    struct rig_opts ro = {.model = model};
    eng_open_rig(x, &ro, o);
}

static int progress(void *ctx, const struct infer_progress *p)
{
    struct eng *x = ctx;
    int r = engine_progress(&x->tap, p);
    while (!r && atomic_load(&x->hold)) {
        usleep(1000);
        r = engine_progress(&x->tap, p);
    }
    if (!r && atomic_load(&x->fail) > 0) {
        atomic_fetch_sub(&x->fail, 1);
        return 1;
    }
    return r;
}

void eng_open_rig(struct eng *x, const struct rig_opts *rig, const struct engine_opts *o)
{
    struct err e = {0};
    struct rig_opts ro = *rig;
    ro.progress = progress;
    ro.progress_ctx = x;
    memset(x, 0, sizeof *x);
    x->opts = (struct rig_opts){.model = rig->model, .isa = rig->isa, .threads = rig->threads};
    if (rig_open(&x->rig, &ro, &e)) {
        fail_msg("%s", e.msg);
    }
    struct engine_opts eo = *o;
    eo.f = x->rig.f;
    eo.m = x->rig.m;
    eo.tap = &x->tap;
    if (engine_open(&eo, &x->g, &e)) {
        fail_msg("%s", e.msg);
    }
}

void eng_close(struct eng *x)
{
    engine_close(x->g);
    rig_close(&x->rig);
    if (x->alone.f) {
        rig_close(&x->alone);
    }
}

static void on_waits(void *ctx, size_t before)
{
    struct eng_job *j = ctx;
    pthread_mutex_lock(&j->mu);
    j->waits_calls++;
    j->before = before;
    pthread_cond_broadcast(&j->cond);
    pthread_mutex_unlock(&j->mu);
}

static void on_prefill(void *ctx, size_t done, size_t total, size_t reused)
{
    struct eng_job *j = ctx;
    pthread_mutex_lock(&j->mu);
    assert_true(done >= j->prefill_done && done <= total && reused <= done);
    j->prefill_calls++;
    j->prefill_done = done;
    pthread_cond_broadcast(&j->cond);
    pthread_mutex_unlock(&j->mu);
}

static void on_step(void *ctx, uint32_t layer, uint32_t n_layers)
{
    struct eng_job *j = ctx;
    assert_true(layer < n_layers);
    pthread_mutex_lock(&j->mu);
    j->step_calls++;
    pthread_mutex_unlock(&j->mu);
}

static int on_token(void *ctx, const struct engine_token *t)
{
    struct eng_job *j = ctx;
    pthread_mutex_lock(&j->mu);
    j->ids[j->n] = t->id;
    j->logprob[j->n++] = t->logprob;
    int r = j->stop_after && j->n >= j->stop_after;
    if (j->fail && j->n == j->fail_after) {
        atomic_store(j->fail, 1);
    }
    pthread_cond_broadcast(&j->cond);
    pthread_mutex_unlock(&j->mu);
    return r;
}

static void on_end(void *ctx, const struct engine_end *end)
{
    struct eng_job *j = ctx;
    if (j->keep_all) {
        uint32_t all[1200];
        memcpy(all, j->prompt, j->ask.n_prompt * sizeof *all);
        memcpy(all + j->ask.n_prompt, j->ids, j->n * sizeof *all);
        engine_keep_answer(j->job, all, j->ask.n_prompt + j->n);
    }
    pthread_mutex_lock(&j->mu);
    assert_false(j->over);
    j->end = *end;
    j->order = atomic_fetch_add(&ends, 1) + 1;
    j->over = true;
    pthread_cond_broadcast(&j->cond);
    pthread_mutex_unlock(&j->mu);
}

void eng_job(struct eng_job *j, uint32_t seed, size_t n, uint32_t max_new, uint32_t vocab)
{
    memset(j, 0, sizeof *j);
    pthread_mutex_init(&j->mu, NULL);
    pthread_cond_init(&j->cond, NULL);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        j->prompt[i] = (seed >> 8) % vocab;
    }
    j->ask.prompt = j->prompt;
    j->ask.n_prompt = n;
    j->ask.max_new = max_new;
    j->ask.sampling.base.top_p = 1;
    j->ask.hooks = (struct engine_hooks){j, on_waits, on_step, on_prefill, on_token, on_end, NULL};
}

int eng_submit(struct eng *x, struct eng_job *j)
{
    struct err e = {0};
    /* `end` may come before engine_submit has returned its job: it waits for the lock */
    pthread_mutex_lock(&j->mu);
    int r = engine_submit(x->g, &j->ask, &j->job, NULL, &e);
    pthread_mutex_unlock(&j->mu);
    return r;
}

static void wait_for(struct eng_job *j, size_t tokens, size_t prefill, size_t place)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 1500; /* beyond any patience of ctest: a busy machine is no failure */
    pthread_mutex_lock(&j->mu);
    int r = 0;
    while (!j->over && j->n < tokens && j->prefill_done < prefill &&
           !(j->waits_calls && j->before == place) && !r) {
        r = pthread_cond_timedwait(&j->cond, &j->mu, &t);
    }
    pthread_mutex_unlock(&j->mu);
    if (r) {
        fail_msg("a request never ended");
    }
}

void eng_wait(struct eng_job *j)
{
    wait_for(j, SIZE_MAX, SIZE_MAX, SIZE_MAX);
}

void eng_wait_place(struct eng_job *j, size_t before)
{
    wait_for(j, SIZE_MAX, SIZE_MAX, before);
}

void eng_wait_tokens(struct eng_job *j, size_t n)
{
    wait_for(j, n, SIZE_MAX, SIZE_MAX);
}

void eng_wait_prefill(struct eng_job *j, size_t n)
{
    wait_for(j, SIZE_MAX, n, SIZE_MAX);
}

void eng_free(struct eng_job *j)
{
    engine_release(j->job);
    pthread_mutex_destroy(&j->mu);
    pthread_cond_destroy(&j->cond);
}

void eng_receipt(const struct eng_job *j, char out[2 * SHA256_SIZE + 1])
{
    receipt_hex(&j->end.receipt, out);
}

void eng_alone(struct eng *x, const struct eng_job *j, char out[2 * SHA256_SIZE + 1])
{
    struct generate_opts o = {.prompt = j->prompt,
                              .n_prompt = j->ask.n_prompt,
                              .max_new = j->ask.max_new,
                              .sample = j->ask.sampling.base};
    struct generate_result r;
    struct err e = {0};
    if ((!x->alone.f && rig_open(&x->alone, &x->opts, &e)) ||
        generate(x->alone.f, x->alone.m, &o, &r, &e)) {
        fail_msg("%s", e.msg);
    }
    receipt_hex(&r.receipt, out);
    generate_result_free(&r);
}
