/* SPDX-License-Identifier: MIT
 * talk.h: one turn of a conversation with a server of OpenAI's chat completions, streamed. Any
 * thread; curl_global_init has been called. */
#ifndef SHOAL_NODE_CLI_TALK_H
#define SHOAL_NODE_CLI_TALK_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What comes while an answer is made; each may be NULL. Text is a piece, to be appended. */
struct talk_hooks {
    void *ctx;
    void (*waiting)(void *ctx, const char *words); /* the server says what it does */
    void (*reasoning)(void *ctx, const char *text, size_t n);
    void (*content)(void *ctx, const char *text, size_t n);
    bool (*stop)(void *ctx); /* asked several times a second: true gives the answer up */
};

struct talk_answer { /* free with talk_free, after an error too */
    struct buf content, reasoning;
    char finish[24]; /* "stop", "length", ...; "" when it was given up */
    json_t *usage;   /* NULL: it was not told */
    bool done;       /* private: the stream's end was seen */
};

struct talk_server {
    char url[500];   /* without /v1 */
    const char *key; /* NULL: none */
    bool direct;     /* past any proxy of the environment */
};

/* From what the user typed: "http://127.0.0.1:8080", with or without "/v1" or a slash at the end.
 */
int talk_server_set(struct talk_server *s, const char *url, struct err *e);
/* The name of the server's first model into name[0..cap). */
int talk_model(const struct talk_server *s, char *name, size_t cap, struct err *e);
/* Send the request (messages, model, ...; "stream" is added) and read the answer. ERR_CANCELLED:
 * `stop` said so, and *a holds what had come. */
int talk_ask(const struct talk_server *s, json_t *request, const struct talk_hooks *k,
             struct talk_answer *a, struct err *e);
void talk_free(struct talk_answer *a);

#endif
