/* SPDX-License-Identifier: MIT
 * ends.c: how a request for an answer begins and ends, whatever its format: handed over or refused,
 * a stream's last words, finish reasons and usage of chat completions and completions. */
#include "node/api/oai_int.h"

#include <stdio.h>

static const char *code_of(const struct err *e)
{
    int status = oai_status(e);
    return e->code == ERR_NOTFOUND      ? "model_not_found"
           : e->code == ERR_UNSUPPORTED ? "unsupported"
           : e->code == ERR_TIMEOUT     ? "deadline_exceeded"
           : status == 503              ? "stopping"
           : status >= 500              ? "internal_error"
                                        : "invalid_request";
}

void oai_fail_err(struct oai *a, struct web_req *r, const struct err *e)
{
    oai_fail(a, r, oai_status(e), code_of(e), e->msg);
}

/* The queue is full: 429, and when to come again. A place is free when the shortest of those that
 * run is through: a guess from what answers took lately, at most a minute. */
static void busy(struct oai *a, struct web_req *r, const struct err *e)
{
    struct engine_stats s;
    char text[24];
    engine_get_stats(a->m.engine, &s);
    double wait = s.decode_tok_s > 0 ? 64 / s.decode_tok_s : 5;
    snprintf(text, sizeof text, "%d", wait < 1 ? 1 : wait > 60 ? 60 : (int)wait);
    web_add_header(r, "Retry-After", text);
    oai_fail(a, r, 429, "queue_full", e->msg);
}

void oai_begin(struct oai *a, struct web_req *r, int rc, struct gen_ask *ask,
               const struct gen_format *format, void *ctx, bool stream, struct err *e)
{
    size_t waiting;
    if (!rc && !ctx) {
        rc = err_set(e, ERR_NOMEM, "out of memory");
    }
    if (!rc) {
        rc = gen_start(&a->env, r, ask, format, ctx, &waiting, e);
        if (!rc && stream) {
            web_stream(r, 200, OAI_SSE); /* unless an event was quicker */
        } else if (rc == ERR_BUSY) {
            busy(a, r, e);
        }
    }
    if (rc) {
        if (ctx) {
            format->free(ctx);
        }
        if (rc != ERR_BUSY) {
            oai_fail_err(a, r, e);
        }
    }
    gen_ask_free(ask);
}

void oai_sse_rest(struct web_req *r, const struct gen_event *ev, json_t *last)
{
    if (last) {
        oai_sse(r, NULL, last);
    }
    if (ev->type == GEN_DONE) {
        web_write(r, "data: [DONE]\n\n", 14);
        web_end(r);
    } else if (ev->type == GEN_FAIL) {
        oai_sse(r, NULL,
                oai_error_json(false, oai_status(ev->err), code_of(ev->err), ev->err->msg));
        web_end(r);
    } else {
        oai_sse_waiting(r, ev);
    }
}

const char *oai_finish_word(enum gen_finish f)
{
    return f == GEN_LENGTH ? "length" : f == GEN_CALLS ? "tool_calls" : "stop";
}

json_t *oai_usage_json(const struct gen_usage *u)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)u->prompt,
                     "completion_tokens", (json_int_t)u->completion, "total_tokens",
                     (json_int_t)(u->prompt + u->completion), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)u->cached);
}
