/* SPDX-License-Identifier: MIT
 * engine_int.h: private to node/engine. `mu` guards queue, lists, counters and flags; the model,
 * the states and the kept states belong to the engine's thread. Hooks run without the lock. */
#ifndef SHOAL_ENGINE_INT_H
#define SHOAL_ENGINE_INT_H

#include "node/engine/engine.h"
#include "node/engine/keep.h"
#include "node/engine/sampling.h"

#include <pthread.h>
#include <stdatomic.h>

enum job_state { JOB_WAITS, JOB_RUNS, JOB_OVER };

/* Whose turn it is: one for each name among the living jobs. */
struct engine_client {
    struct engine_client *next;
    char name[ENGINE_CLIENT_MAX];
    uint32_t jobs, running;
    uint64_t served; /* number of the last admission */
};

struct engine_job {
    struct engine_job *next; /* in the queue, in order of arrival */
    struct engine *g;
    atomic_uint refs;
    atomic_bool cancelled;
    enum job_state state;
    struct engine_client *client;
    struct engine_ask a;                       /* arrays are own copies */
    uint64_t submitted, admitted, first_token; /* clock_ns */
    uint64_t turn;                             /* number of its admission */
    size_t said_before;                        /* last told by `waits` */
    uint64_t said_at;                          /* when `waits` or `step` was last called */
    uint64_t kept_at;                          /* when its prefill was last kept, or began */

    /* of the engine's thread */
    struct infer_state *st;
    uint32_t *ids; /* prompt and answer */
    size_t n_ids, room;
    size_t fed; /* ids taken in by st */
    size_t reused;
    size_t next_bound;
    struct sampling sampling;
    struct grammar_run *run;
    uint32_t rows;                      /* in the present step */
    uint32_t slot;                      /* of its first row's logits */
    uint32_t draft[SPEC_MOST], drafted; /* behind its last token; how many are in the step */
    uint32_t guess;                     /* the next token as a draft had it that was not used */
    bool guessed, no_draft;
    struct spec_luck luck;
    bool timed_out;
    size_t keep_n; /* engine_keep_answer: the state at the end is worth keeping */
    /* Begun anew since bytes were taken back: tokens that were told before, the receipt behind
     * them, how often, and the last reason. */
    uint32_t *told;
    size_t n_told;
    struct receipt told_receipt;
    uint32_t again;
    char why[400];
    struct receipt receipt;
};

struct engine {
    struct engine_opts o;
    char *keep_dir;
    uint32_t vocab, positions;
    struct grammar_vocab *gv;
    pthread_t thread;
    bool started;
    pthread_mutex_t mu;
    pthread_cond_t cond;
    bool stop;
    atomic_bool stopping; /* the same, for progress */
    struct engine_job *queue, **queue_tail;
    size_t n_queue;
    bool queue_changed; /* since those who wait were told */
    struct engine_job *run[ENGINE_BATCH_MAX];
    size_t n_run;
    struct engine_client *clients;
    uint64_t admissions;
    struct engine_stats s;
    bool forget;
    int forget_code;
    uint64_t forgets;

    struct keep *keep;
    struct spec spec;
    uint32_t drafted; /* rows of the present step */
    struct infer_row *rows;
    float *logits;
    size_t logit_room;
};

/* drafts.c. Before the rows of a step are laid out: the drafts of those that decode, in room rows,
 * of which `decode` are taken by the rows that they have anyway. */
void engine_draft(struct engine *g, uint32_t decode, uint32_t room);
/* After they are: what may be taken back is marked. False: no memory, and nobody has a draft. */
bool engine_mark(struct engine *g);
/* Of the job's rows the first `keep` stay. */
int engine_rewind(struct engine *g, struct engine_job *j, uint32_t keep, struct err *e);
/* The step failed, which may be due to its drafts: all of its jobs are where they were before it,
 * and those that had drafts get no more. False: it had none, or not all could go back. */
bool engine_undo(struct engine *g);

/* again.c: has the store taken back bytes that the job's state rests on? Then it begins anew, or
 * ends with an error: true. */
bool engine_again(struct engine *g, struct engine_job *j);
/* A token of a job that was begun anew, in place of telling it. 0: it was told, and is the same. */
int engine_told(struct engine_job *j, uint32_t id, struct err *e);

/* batch.c: with the lock not held, on the engine's thread */
void engine_step(struct engine *g);
/* engine.c, on the engine's thread, also within a step: with mu, which is released and retaken: who
 * waits and is over (cancelled, too late) leaves; the others hear of their places. */
void engine_look_at_queue(struct engine *g);
/* engine.c: the job leaves; calls its `end`. */
void engine_finish(struct engine *g, struct engine_job *j, enum engine_reason why,
                   const struct err *e);
void engine_log(struct engine *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
