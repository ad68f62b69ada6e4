/* SPDX-License-Identifier: MIT
 * oai.h: the interfaces that clients know: OpenAI's chat completions, completions, responses and
 * models, Anthropic's messages, and a tokenizer, over one engine. README.md lists what is honoured
 * and what is refused. */
#ifndef SHOAL_API_OAI_H
#define SHOAL_API_OAI_H

#include "node/api/web.h"
#include "node/engine/engine.h"
#include "node/store/used.h"
#include "node/text/chat.h"

#define OAI_STOP_IDS 4

/* What the model is to clients; borrowed by oai until oai_close. */
struct oai_model {
    struct engine *engine;
    const struct model *m;
    const struct tok *tok;
    const char *id;   /* its name in requests */
    uint64_t created; /* seconds since 1970 */
    uint32_t positions;
    uint32_t stop_ids[OAI_STOP_IDS]; /* that end an answer */
    size_t n_stop_ids;
};

struct oai_opts {
    struct web_opts http;   /* ctx, handle and refuse are ours */
    enum chat_think think;  /* where a request says nothing of it */
    double timeout_s;       /* of a request that names none; 0: none */
    const uint32_t *script; /* tests: ids that every answer is made of; borrowed */
    size_t n_script;
    /* JSON for GET /health and text for GET /metrics, appended; any thread. May be NULL. */
    int (*health)(void *ctx, struct buf *out, bool *ready);
    int (*metrics)(void *ctx, struct buf *out);
    /* The weakest of what the bytes used since then rest on (store_rest), on the engine's thread:
     * told with each answer. NULL: not told. */
    enum store_rests (*rests)(void *ctx, const struct store_since *since);
    void *ctx;
};

struct oai; /* opaque */

/* Listens at once. Until oai_ready, requests for the model are answered 503 with how far it is. */
int oai_open(const struct oai_opts *o, struct oai **out, struct err *e);
/* The model can be asked from now on (`m` is copied, what it points to borrowed). */
void oai_ready(struct oai *a, const struct oai_model *m);
/* What is being done until then, for the 503's sentence. */
void oai_loading(struct oai *a, const char *text);
/* The engine must have been closed: no generation is under way. NULL is fine. */
void oai_close(struct oai *a);
/* No new requests from here on; call it before the engine is closed. */
void oai_quiet(struct oai *a);
const char *oai_url(const struct oai *a);
/* The API's own counters as Prometheus text. */
int oai_metrics(struct oai *a, struct buf *out);

#endif
