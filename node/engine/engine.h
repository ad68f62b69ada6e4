/* SPDX-License-Identifier: MIT
 * engine.h: many requests through one model: a fair queue, decode steps shared by those that run
 * (each layer's experts and spine are read once for all), sampling with everything that clients ask
 * for, cancelling between layers, and states kept so that a growing chat pays for its new tokens
 * only. What a request gets never depends on what runs beside it, nor on what was kept.
 *
 * Threads: the engine has a thread of its own that runs the model and all hooks. The functions here
 * may be called from any thread, from inside a hook too (but engine_close). */
#ifndef SHOAL_NODE_ENGINE_H
#define SHOAL_NODE_ENGINE_H

#include "node/grammar/grammar.h"
#include "node/infer/infer.h"
#include "node/infer/receipt.h"
#include "node/infer/sample.h"
#include "node/infer/speculate.h"

#define ENGINE_TOP_MAX 20       /* logprobs of the likeliest tokens */
#define ENGINE_BIAS_MAX 1024    /* entries of a logit bias */
#define ENGINE_CLIENT_MAX 64    /* bytes of a client's name with its NUL */
#define ENGINE_QUEUE_DEFAULT 64 /* requests that wait */
#define ENGINE_SHARE 4          /* a client alone fills 4/5 of the queue, at most */
#define ENGINE_BATCH_DEFAULT 8  /* requests that run at once */
#define ENGINE_BATCH_MAX 64
#define ENGINE_STOPS_MAX 16
#define ENGINE_SAY_MS 3000   /* between two signs of life while work advances */
#define ENGINE_KEEP_MS 30000 /* of prefill that a request which is cut off may lose */
#define ENGINE_AGAIN_MAX 8   /* times that a request is begun anew */

struct engine;     /* opaque */
struct engine_job; /* opaque: one request */

/* How the engine hears of the model's progress: engine_progress and a tap are given to infer_opts,
 * the same tap to engine_open, which connects it. It outlives the infer. */
struct engine_tap {
    struct engine *engine; /* NULL before and after the engine's life */
};

struct engine_opts {
    struct engine_tap *tap; /* NULL: requests are cancelled between steps only */
    struct infer *f;        /* borrowed, like the next two; the engine alone uses it */
    const struct model *m;
    const struct tok *tok; /* NULL: no grammars */
    uint32_t chunk;        /* rows of one step, prefill and decode together; 0: 64 */
    uint32_t batch, queue; /* 0: the defaults above */
    struct spec_opts spec; /* drafts for requests that decode; zero: none */
    uint64_t ram_states;   /* bytes of states of running requests; a request beyond it waits,
                              one always runs; 0: no limit */
    uint64_t keep_ram;     /* bytes of kept states in RAM; 0: none is kept */
    uint64_t keep_disk;    /* bytes of kept states on disk; 0: none */
    uint32_t say_ms;       /* 0: ENGINE_SAY_MS */
    uint32_t keep_ms; /* 0: ENGINE_KEEP_MS. The state of a long prefill is kept that often, so that
                         a request that comes again goes on from there */
    const char *keep_dir; /* their folder (0700, files 0600); NULL: none on disk */
    /* Work on a step begins (true) or ended. May be NULL. */
    void (*busy)(void *ctx, bool on);
    /* One line for people. May be NULL. */
    void (*log)(void *ctx, const char *line);
    void *ctx;
};

int engine_open(const struct engine_opts *o, struct engine **out, struct err *e);
/* Ends all requests with ERR_CANCELLED (their `end` runs) and takes no more; writes kept states.
 * Blocks until that is done. The others may still be called. NULL is fine. */
void engine_quit(struct engine *g);
/* engine_quit, and nobody may be inside of the others. NULL is fine. */
void engine_close(struct engine *g);
int engine_progress(void *tap, const struct infer_progress *p);

/* ---- requests ---- */

struct engine_bias {
    uint32_t id;
    float add; /* to the logit; -100 and below forbids, as the API has it */
};

struct engine_sampling {
    struct sample_opts base;
    float presence, frequency; /* subtracted for each id that was chosen (times its count) */
    float repetition;          /* > 0; 0 or 1: off. As CTRL: logits of ids in prompt or answer are
                                  divided by it when positive, multiplied when negative */
    const struct engine_bias *bias; /* copied */
    size_t n_bias;
    bool logprobs;
    uint32_t top; /* of ENGINE_TOP_MAX */
};

struct engine_token {
    uint32_t id;
    float logprob; /* of the model's own distribution (before penalties, bias and grammar) */
    uint32_t n_top;
    struct {
        uint32_t id;
        float logprob;
    } top[ENGINE_TOP_MAX]; /* descending; ties: lower id */
};

enum engine_reason { ENGINE_STOP, ENGINE_HOOK, ENGINE_LENGTH, ENGINE_ERROR };
struct engine_end {
    struct engine_job *job;    /* for engine_keep_answer */
    enum engine_reason reason; /* a stop id; a hook said so; max_new or the model's positions */
    struct err err;            /* with ENGINE_ERROR: ERR_CANCELLED, ERR_TIMEOUT (deadline), ... */
    size_t prompt, reused, fresh; /* tokens of the prompt; of those taken from a kept state; new */
    struct receipt receipt;
    uint32_t again;           /* times that it was begun anew */
    struct store_since since; /* of the state that gave the answer */
    double wait_s, prefill_s, decode_s;
};

struct engine_hooks {
    void *ctx;
    /* How many requests are before it; when it changes, and each ENGINE_SAY_MS while work on those
     * advances. May be NULL. */
    void (*waits)(void *ctx, size_t before);
    /* The step that this request takes part in is at this layer: each ENGINE_SAY_MS while it
     * advances (at K3's size a step takes many seconds). May be NULL. */
    void (*step)(void *ctx, uint32_t layer, uint32_t n_layers);
    /* Prompt tokens done of all, `reused` of them from a kept state. May be NULL. */
    void (*prefill)(void *ctx, size_t done, size_t total, size_t reused);
    /* A token was chosen. Nonzero ends the request (ENGINE_HOOK). May be NULL. */
    int (*token)(void *ctx, const struct engine_token *t);
    /* The last call, exactly once. */
    void (*end)(void *ctx, const struct engine_end *end);
    /* Bytes of another member that the answer so far rests on have been taken back (`why`, a
     * sentence), and it begins anew. True: none of the tokens has been seen, and they are
     * forgotten. Else, and with NULL, those that come first must be the same (with logprobs their
     * logits, too) and are not told again; if they are not, the request ends with ERR_DIGEST. */
    bool (*again)(void *ctx, const char *why);
};

struct engine_ask { /* all copied, except the grammar (lives until `end`) */
    const uint32_t *prompt;
    size_t n_prompt; /* at least 1 */
    /* Ascending positions in the prompt at which a state is worth keeping (ends of messages). */
    const uint32_t *bounds;
    size_t n_bounds;
    uint32_t max_new;     /* at least 1 */
    const uint32_t *stop; /* ids that end the answer; they are given to `token` too */
    size_t n_stop;
    struct engine_sampling sampling;
    const struct grammar *grammar; /* NULL: none */
    /* Tests: these ids are chosen, one after the other, in place of what the sampler says. */
    const uint32_t *script;
    size_t n_script;
    uint64_t deadline_ns; /* of clock_ns(); 0: none */
    const char *client;   /* whose turn it is; NULL: "" */
    bool no_keep;         /* neither use nor keep states */
    struct engine_hooks hooks;
};

/* ERR_BUSY: the queue is full, or this client has its share of it: as many waiting as ENGINE_SHARE
 * times the places left (the queue's length in *waiting, which may be NULL). ERR_ARG, ERR_LIMIT:
 * the request cannot be done, with a sentence. *out is released by engine_release. */
int engine_submit(struct engine *g, const struct engine_ask *a, struct engine_job **out,
                  size_t *waiting, struct err *e);
/* It ends with ERR_CANCELLED within a layer, wherever it is; no effect after its end. */
void engine_cancel(struct engine_job *j);
void engine_release(struct engine_job *j); /* NULL is fine; a running request goes on */

/* Inside `end` only: the ids of the whole conversation as the client will send it back, up to and
 * with this answer. If they begin with the ids that were computed, the state at the end is kept. */
void engine_keep_answer(struct engine_job *j, const uint32_t *ids, size_t n);

/* ---- numbers ---- */

struct engine_stats {
    size_t waiting, running;
    uint64_t requests, cancelled, refused, failed;
    uint64_t again; /* requests begun anew, since bytes were taken back */
    uint64_t prompt_tokens, reused_tokens, new_tokens, steps, rows;
    struct spec_stats spec;             /* drafts; its passes: steps of decoding alone */
    double prefill_tok_s, decode_tok_s; /* lately, of one request; 0: not known */
    size_t kept_ram, kept_disk;         /* states */
    uint64_t kept_ram_bytes, kept_disk_bytes, keep_hits;
};
void engine_get_stats(struct engine *g, struct engine_stats *out);
/* Delete all kept states, in RAM and on disk. */
int engine_forget(struct engine *g, struct err *e);

#endif
