/* SPDX-License-Identifier: MIT
 * eng_kit.h: an engine over a small model, and requests whose outcome is kept. */
#ifndef SHOAL_TESTS_ENG_KIT_H
#define SHOAL_TESTS_ENG_KIT_H

#include "node/engine/engine.h"
#include "tests/infer/rig.h"

#include <pthread.h>
#include <stdatomic.h>

struct eng {
    struct rig rig, alone; /* alone: eng_alone's own, since an infer is of one thread */
    struct rig_opts opts;
    struct engine_tap tap;
    atomic_bool hold; /* while true a step does not advance, as one that awaits its weights */
    atomic_int fail;  /* so many forward passes fail, within a layer */
    struct engine *g;
};
/* o: all but f, m, tap. Fails the test. */
void eng_open(struct eng *x, const char *model, const struct engine_opts *o);
/* The same over a rig of its own kind (all but its progress). */
void eng_open_rig(struct eng *x, const struct rig_opts *rig, const struct engine_opts *o);
void eng_close(struct eng *x);

struct eng_job {
    struct engine_job *job;
    pthread_mutex_t mu;
    pthread_cond_t cond;
    uint32_t ids[600];
    float logprob[600];
    size_t n, prefill_calls, prefill_done, waits_calls, step_calls, before;
    bool over;
    struct engine_end end;
    unsigned order;    /* of the ends, from 1 */
    size_t stop_after; /* tokens; then the hook says so */
    atomic_int *fail;  /* set to 1 after */
    size_t fail_after; /* tokens */
    bool keep_all;     /* at the end: the client will send back all ids */
    struct engine_ask ask;
    uint32_t prompt[600];
};
/* Prompt of n ids made from `seed`; max_new tokens; greedy. The caller changes j->ask, then
 * submits. */
void eng_job(struct eng_job *j, uint32_t seed, size_t n, uint32_t max_new, uint32_t vocab);
int eng_submit(struct eng *x, struct eng_job *j);
void eng_wait(struct eng_job *j); /* until it is over */
void eng_wait_tokens(struct eng_job *j, size_t n);
void eng_wait_place(struct eng_job *j, size_t before); /* until it is told this place */
void eng_wait_prefill(struct eng_job *j, size_t n);    /* until so many tokens were read */
void eng_free(struct eng_job *j);
void eng_receipt(const struct eng_job *j, char out[2 * SHA256_SIZE + 1]);
/* What the request would get alone from node/infer, without the engine; it may run meanwhile. */
void eng_alone(struct eng *x, const struct eng_job *j, char out[2 * SHA256_SIZE + 1]);

#endif
