/* SPDX-License-Identifier: MIT
 * oai_int.h: private to node/api: what the endpoints share. */
#ifndef SHOAL_API_OAI_INT_H
#define SHOAL_API_OAI_INT_H

#include "node/api/gen.h"
#include "node/api/oai.h"
#include "node/text/pyjson.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#define OAI_FINGERPRINT 48
/* Where tokenizing a prompt is given up: far enough behind what the model takes that the refusal
 * can mostly say how long it is. All requests wait while one is read. */
#define OAI_TOKENS_MAX(a) ((size_t)(a)->m.positions + 65536)
#define OAI_SSE "text/event-stream; charset=utf-8"

struct oai {
    struct oai_opts o;
    struct web *http;
    pthread_mutex_t mu; /* loading */
    char loading[200];
    atomic_bool ready;
    struct oai_model m;
    struct gen_env env;
    char fingerprint[OAI_FINGERPRINT];
    atomic_uint_least64_t answers[6]; /* by status: 200, 400, 401/403, 404, 429, 5xx */
    atomic_ullong by_basis[STORE_BASES];
};

/* ---- errors ---- */

/* OpenAI's form; Anthropic's for paths below /v1/messages. A sentence that begins with a field and
 * ": " names that field as `param`. status 0: from the code. */
void oai_fail(struct oai *a, struct web_req *r, int status, const char *code, const char *text);
void oai_fail_err(struct oai *a, struct web_req *r, const struct err *e);
int oai_status(const struct err *e); /* HTTP status of an error */
/* The error as a JSON object, as it stands in a stream. The caller owns it. */
json_t *oai_error_json(bool anthropic, int status, const char *code, const char *text);

/* ---- answers ---- */

void oai_reply(struct oai *a, struct web_req *r, int status, json_t *v); /* takes the reference */
/* "data: {...}\n\n", with "event: name\n" before it unless that is NULL; takes the reference. */
bool oai_sse(struct web_req *r, const char *event, json_t *v);
bool oai_sse_comment(struct web_req *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The comments of waiting and prefill; does nothing for other events. */
void oai_sse_waiting(struct web_req *r, const struct gen_event *ev);
json_t *oai_text(const char *s, size_t n); /* valid UTF-8 */

/* ---- ends (ends.c) ---- */

/* The last step of an endpoint. rc 0: begin a generation for the format's ctx (NULL: there was no
 * memory for it), with a stream's headers at once; else, and when that fails, answer what *e says
 * (429 with Retry-After when the queue is full). ctx is the format's or freed, *ask is empty. */
void oai_begin(struct oai *a, struct web_req *r, int rc, struct gen_ask *ask,
               const struct gen_format *format, void *ctx, bool stream, struct err *e);
/* What is alike in OpenAI's streams of chunks: signs of life; the last chunk (NULL: none; takes the
 * reference) and "[DONE]", or the error, then nothing more. Does nothing for other events. */
void oai_sse_rest(struct web_req *r, const struct gen_event *ev, json_t *last);
const char *oai_finish_word(enum gen_finish f);
json_t *oai_usage_json(const struct gen_usage *u); /* without details of the answer's tokens */

/* The sentence of an error, made valid. */
json_t *oai_message(const char *text);

/* ---- requests (params.c) ---- */

/* The body as a JSON object; ERR_FORMAT with "request: ". The caller frees *d. */
int oai_body(struct web_req *r, struct pyjson_doc **d, struct err *e);
/* Every field must be in one of the two NULL-terminated lists (the second may be NULL); ERR_ARG
 * with the field's name. */
int oai_known(const struct pyjson *root, const char *const *names, const char *const *more,
              struct err *e);
int oai_check_model(struct oai *a, const struct pyjson *root, struct err *e); /* ERR_NOTFOUND */
/* Typed fields; absent and null leave *out alone. ERR_ARG with the name. */
int oai_bool(const struct pyjson *root, const char *name, bool *out, struct err *e);
int oai_real(const struct pyjson *root, const char *name, double min, double max, float *out,
             struct err *e);
int oai_int(const struct pyjson *root, const char *name, int64_t min, int64_t max, int64_t *out,
            struct err *e);
/* Sampling, penalties, seed, n, logit_bias, stop, max_tokens and max_completion_tokens, ignore_eos,
 * timeout: what chat completions and completions have in common (their names in oai_common). *a was
 * zero. */
extern const char *const oai_common[];
int oai_sampling(struct oai *o, const struct pyjson *root, struct gen_ask *a, struct err *e);
/* "stop", or another name for it (Anthropic's stop_sequences): a string or a list of strings. */
int oai_stops(const struct pyjson *root, const char *name, struct gen_ask *a, struct err *e);
struct oai_stream {
    bool stream, usage;
};
int oai_stream_opts(const struct pyjson *root, struct oai_stream *out, struct err *e);

/* ---- chat requests (chat_ask.c), also for responses and messages, which translate theirs ---- */

/* From a chat completion's JSON (raw text of n bytes, parsed as root): prompt, ids, bounds,
 * thinking, and the grammar that response_format, tool_choice and strict tools ask for. */
int oai_chat_ask(struct oai *o, const char *text, size_t n, const struct pyjson *root,
                 struct gen_ask *a, struct err *e);
/* The same from a text that another format was told as; on success it is the ask's. */
int oai_chat_ask_told(struct oai *o, struct buf *chat, struct gen_ask *a, struct err *e);

/* ---- endpoints: each answers or hands the request to gen_start ---- */
void oai_chat(struct oai *a, struct web_req *r);
void oai_completions(struct oai *a, struct web_req *r);
void oai_responses(struct oai *a, struct web_req *r);
void oai_messages(struct oai *a, struct web_req *r);
void oai_tokenize(struct oai *a, struct web_req *r);
void oai_models(struct oai *a, struct web_req *r);

#endif
