/* SPDX-License-Identifier: MIT
 * gen.h: private to node/api: one generation for one HTTP request: n answers to a prompt, told as
 * events that the formats (chat, completions, responses, messages) write in their own way.
 *
 * All events of one generation come on the engine's thread, one after the other. */
#ifndef SHOAL_API_GEN_H
#define SHOAL_API_GEN_H

#include "node/api/web.h"
#include "node/api/stops.h"
#include "node/engine/engine.h"
#include "node/store/used.h"
#include "node/text/chat.h"
#include "node/text/parse.h"

#include <stdatomic.h>

#define GEN_CHOICES_MAX 16
#define GEN_MAX_TOKENS 1000000u

enum gen_event_type {
    GEN_WAIT,    /* before: requests before it in the queue */
    GEN_PREFILL, /* done, total, reused: tokens of the prompt; seconds: estimate of what is left */
    GEN_STEP,    /* done, total: layers of the step under way */
    GEN_REASONING, /* text */
    GEN_TEXT,      /* text (content; all text of a raw completion), logprobs of its tokens */
    GEN_CALL,      /* a whole tool call: call (index from 0), id, name, text: arguments as JSON */
    GEN_END,       /* a choice is over: finish, stop (the stop string, or NULL) */
    GEN_DONE,      /* all are; usage. The last event */
    GEN_FAIL       /* err. The last event in place of GEN_DONE */
};

enum gen_finish { GEN_STOPPED, GEN_LENGTH, GEN_CALLS };

struct gen_logprob {
    const char *bytes; /* of the token; special ones by their spelling */
    size_t n;
    struct engine_token t;
};

struct gen_usage {
    size_t prompt, cached, completion, reasoning; /* tokens; reasoning is part of completion */
    double wait_s, prefill_s, decode_s;
};

struct gen_event {
    enum gen_event_type type;
    size_t choice;
    const char *text; /* valid UTF-8, valid during the call; a NUL follows */
    size_t text_n;
    const char *id, *name;
    size_t call;
    size_t before, done, total, reused;
    double seconds;
    enum gen_finish finish;
    const char *stop;
    const struct gen_logprob *logprobs;
    size_t n_logprobs;
    const struct gen_usage *usage;
    const struct err *err;
};

struct gen;
struct gen_format {
    void (*event)(void *ctx, struct gen *g, const struct gen_event *ev);
    void (*free)(void *ctx);
    /* A choice begins anew (engine_hooks.again): true when nothing of it has been sent, and what
     * was told of it is forgotten. NULL: never. */
    bool (*again)(void *ctx, size_t choice);
};

/* What a format found in its request. */
struct gen_ask {
    struct tok_ids prompt;
    uint32_t *bounds; /* malloc'ed, may be NULL */
    size_t n_bounds;
    bool chat, thinking;             /* the answer has channels; it begins inside `think` */
    uint32_t max_new;                /* 0: as long as it takes */
    uint32_t n;                      /* 1..GEN_CHOICES_MAX */
    struct engine_sampling sampling; /* bias malloc'ed */
    char *stops[STOPS_MAX];          /* malloc'ed */
    size_t n_stops;
    bool ignore_stop_ids;
    struct grammar *grammar; /* may be NULL */
    double timeout_s;        /* 0: none */
    /* For keeping the state behind the answer: the request as the client would send it back, with
     * this answer as one more message (raw JSON of the body, chat only). NULL: not kept. */
    const char *request;
    size_t request_n;
    char *own_request; /* malloc'ed, when `request` does not point into the HTTP body */
    enum chat_think fallback;
};
void gen_ask_free(struct gen_ask *a);

/* What generations need of the node. */
struct gen_env {
    struct engine *engine;
    const struct tok *tok;
    const uint32_t *stop_ids;
    size_t n_stop_ids;
    const uint32_t *script; /* tests */
    size_t n_script;
    /* As oai_opts.rests; answers are counted by it in by_basis[STORE_BASES]. */
    enum store_rests (*rests)(void *ctx, const struct store_since *since);
    void *rests_ctx;
    atomic_ullong *by_basis;
};

/* Begins. On success *a is empty and format->free(ctx) will be called after the last event; on
 * failure nothing was done (ERR_BUSY: *waiting requests are in the queue). */
int gen_start(const struct gen_env *env, struct web_req *req, struct gen_ask *a,
              const struct gen_format *format, void *ctx, size_t *waiting, struct err *e);
struct web_req *gen_req(struct gen *g);

#endif
