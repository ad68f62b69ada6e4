/* SPDX-License-Identifier: MIT
 * responses.c: POST /v1/responses: OpenAI's responses form, whole or as its stream of events.
 * Nothing is stored: a conversation is sent whole each time. */
#include "node/api/responses.h"

#include "node/api/ids.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const names[] = {"model",
                                    "input",
                                    "instructions",
                                    "tools",
                                    "tool_choice",
                                    "parallel_tool_calls",
                                    "temperature",
                                    "top_p",
                                    "top_k",
                                    "min_p",
                                    "seed",
                                    "max_output_tokens",
                                    "stream",
                                    "stream_options",
                                    "text",
                                    "reasoning",
                                    "metadata",
                                    "user",
                                    "store",
                                    "include",
                                    "truncation",
                                    "service_tier",
                                    "background",
                                    "prompt_cache_key",
                                    "prompt_cache_retention",
                                    "safety_identifier",
                                    "timeout",
                                    "top_logprobs",
                                    NULL};

enum item { NO_ITEM, REASONING, MESSAGE };

struct response {
    struct oai *o;
    char id[48], item_id[48];
    json_int_t created, seq, index;
    bool stream, begun;
    json_t *echo;   /* the fields of the request that an answer repeats */
    json_t *output; /* items that are over */
    enum item item;
    struct buf text; /* of the item under way */
    enum gen_finish finish;
};

static json_t *usage_json(const struct gen_usage *u)
{
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u->prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)u->cached,
                     "output_tokens", (json_int_t)u->completion, "output_tokens_details",
                     "reasoning_tokens", (json_int_t)u->reasoning, "total_tokens",
                     (json_int_t)(u->prompt + u->completion));
}

static json_t *response_json(struct response *p, const char *status, const struct gen_usage *u)
{
    json_t *v = json_pack(
        "{s:s, s:s, s:I, s:s, s:n, s:o, s:s, s:O, s:s}", "id", p->id, "object", "response",
        "created_at", p->created, "status", status, "error", "incomplete_details",
        !strcmp(status, "incomplete") ? json_pack("{s:s}", "reason", "max_output_tokens")
                                      : json_null(),
        "model", p->o->m.id, "output", p->output, "system_fingerprint", p->o->fingerprint);
    if (u) {
        json_object_set_new(v, "usage", usage_json(u));
    }
    json_object_update_missing(v, p->echo);
    return v;
}

/* ---- events ---- */

static void send(struct response *p, struct web_req *r, const char *type, json_t *v)
{
    json_object_set_new(v, "type", json_string(type));
    json_object_set_new(v, "sequence_number", json_integer(p->seq++));
    oai_sse(r, type, v);
}

static json_t *part_json(enum item i, const char *s, size_t n)
{
    return i == MESSAGE ? json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text",
                                    oai_text(s, n), "annotations", "logprobs")
                        : json_pack("{s:s, s:o}", "type", "reasoning_text", "text", oai_text(s, n));
}

static json_t *item_json(const struct response *p, const char *status, json_t *content)
{
    return p->item == MESSAGE
               ? json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", p->item_id, "type", "message",
                           "status", status, "role", "assistant", "content", content)
               : json_pack("{s:s, s:s, s:s, s:[], s:o}", "id", p->item_id, "type", "reasoning",
                           "status", status, "summary", "content", content);
}

static json_t *place(const struct response *p)
{
    return json_pack("{s:s, s:I, s:I}", "item_id", p->item_id, "output_index", p->index,
                     "content_index", (json_int_t)0);
}

static void begin(struct response *p, struct web_req *r)
{
    if (!p->begun) {
        p->begun = true;
        send(p, r, "response.created",
             json_pack("{s:o}", "response", response_json(p, "in_progress", NULL)));
        send(p, r, "response.in_progress",
             json_pack("{s:o}", "response", response_json(p, "in_progress", NULL)));
    }
}

/* The item under way is over: it joins the output. r NULL: not streamed. */
static void end_item(struct response *p, struct web_req *r)
{
    if (p->item == NO_ITEM) {
        return;
    }
    json_t *item =
        item_json(p, "completed", json_pack("[o]", part_json(p->item, p->text.p, p->text.n)));
    if (r) {
        bool m = p->item == MESSAGE;
        json_t *v = place(p);
        json_object_set_new(v, "text", oai_text(p->text.p, p->text.n));
        if (m) {
            json_object_set_new(v, "logprobs", json_array());
        }
        send(p, r, m ? "response.output_text.done" : "response.reasoning_text.done", v);
        v = place(p);
        json_object_set_new(v, "part", part_json(p->item, p->text.p, p->text.n));
        send(p, r, "response.content_part.done", v);
        send(p, r, "response.output_item.done",
             json_pack("{s:I, s:O}", "output_index", p->index, "item", item));
    }
    json_array_append_new(p->output, item);
    p->index++;
    p->item = NO_ITEM;
    p->text.n = 0;
}

static void begin_item(struct response *p, struct web_req *r, enum item i)
{
    if (p->item == i) {
        return;
    }
    end_item(p, r);
    p->item = i;
    ids_make(i == MESSAGE ? "msg_" : "rs_", 32, p->item_id, sizeof p->item_id);
    if (r) {
        send(p, r, "response.output_item.added",
             json_pack("{s:I, s:o}", "output_index", p->index, "item",
                       item_json(p, "in_progress", json_array())));
        json_t *v = place(p);
        json_object_set_new(v, "part", part_json(i, "", 0));
        send(p, r, "response.content_part.added", v);
    }
}

static void add_text(struct response *p, struct web_req *r, enum item i, const struct gen_event *ev)
{
    begin_item(p, r, i);
    buf_add(&p->text, ev->text, ev->text_n);
    if (r) {
        json_t *v = place(p);
        json_object_set_new(v, "delta", oai_text(ev->text, ev->text_n));
        if (i == MESSAGE) {
            json_object_set_new(v, "logprobs", json_array());
        }
        send(p, r, i == MESSAGE ? "response.output_text.delta" : "response.reasoning_text.delta",
             v);
    }
}

static json_t *call_json(const struct response *p, const struct gen_event *ev, bool whole)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "id", p->item_id, "type", "function_call",
                     "status", whole ? "completed" : "in_progress", "call_id", ev->id, "name",
                     ev->name, "arguments",
                     whole ? oai_text(ev->text, ev->text_n) : json_string(""));
}

static void add_call(struct response *p, struct web_req *r, const struct gen_event *ev)
{
    end_item(p, r);
    ids_make("fc_", 32, p->item_id, sizeof p->item_id);
    json_t *item = call_json(p, ev, true);
    if (r) {
        send(p, r, "response.output_item.added",
             json_pack("{s:I, s:o}", "output_index", p->index, "item", call_json(p, ev, false)));
        send(p, r, "response.function_call_arguments.delta",
             json_pack("{s:s, s:I, s:o}", "item_id", p->item_id, "output_index", p->index, "delta",
                       oai_text(ev->text, ev->text_n)));
        send(p, r, "response.function_call_arguments.done",
             json_pack("{s:s, s:I, s:s, s:o}", "item_id", p->item_id, "output_index", p->index,
                       "name", ev->name, "arguments", oai_text(ev->text, ev->text_n)));
        send(p, r, "response.output_item.done",
             json_pack("{s:I, s:O}", "output_index", p->index, "item", item));
    }
    json_array_append_new(p->output, item);
    p->index++;
}

static void on_event(void *ctx, struct gen *g, const struct gen_event *ev)
{
    struct response *p = ctx;
    struct web_req *req = gen_req(g), *r = p->stream ? req : NULL;
    if (r) {
        web_stream(r, 200, OAI_SSE);
        begin(p, r);
    }
    switch (ev->type) {
    case GEN_REASONING:
        add_text(p, r, REASONING, ev);
        break;
    case GEN_TEXT:
        add_text(p, r, MESSAGE, ev);
        break;
    case GEN_CALL:
        add_call(p, r, ev);
        break;
    case GEN_END:
        end_item(p, r);
        p->finish = ev->finish;
        break;
    case GEN_DONE: {
        const char *status = p->finish == GEN_LENGTH ? "incomplete" : "completed";
        json_t *v = response_json(p, status, ev->usage);
        if (r) {
            send(p, r, p->finish == GEN_LENGTH ? "response.incomplete" : "response.completed",
                 json_pack("{s:o}", "response", v));
            web_end(r);
        } else {
            oai_reply(p->o, req, 200, v);
        }
        break;
    }
    case GEN_FAIL:
        if (r) {
            json_t *v = response_json(p, "failed", NULL);
            json_object_set_new(v, "error",
                                json_pack("{s:s, s:o}", "code", "server_error", "message",
                                          oai_message(ev->err->msg)));
            send(p, r, "response.failed", json_pack("{s:o}", "response", v));
            web_end(r);
        } else {
            oai_fail_err(p->o, req, ev->err);
        }
        break;
    default:
        if (r) {
            oai_sse_waiting(r, ev);
        }
    }
}

static bool again(void *ctx, size_t choice)
{
    struct response *p = ctx;
    (void)choice;
    if (p->stream) {
        return false;
    }
    p->text.n = 0;
    p->item = NO_ITEM;
    p->index = 0;
    json_array_clear(p->output);
    return true;
}

static void response_free(void *ctx)
{
    struct response *p = ctx;
    json_decref(p->echo);
    json_decref(p->output);
    buf_free(&p->text);
    free(p);
}

/* ---- the request ---- */

static int check_refused(const struct pyjson *root, struct err *e)
{
    const struct pyjson *prev = pyjson_get(root, "previous_response_id"),
                        *t = pyjson_get(root, "truncation"),
                        *top = pyjson_get(root, "top_logprobs");
    bool background = false;
    int rc = oai_bool(root, "background", &background, e);
    if (!rc && prev && prev->type != PYJSON_NULL) {
        rc = err_set(e, ERR_UNSUPPORTED,
                     "previous_response_id: answers are not stored here; send "
                     "the conversation as input");
    }
    if (!rc && background) {
        rc = err_set(e, ERR_UNSUPPORTED, "background: answers are not stored here");
    }
    if (!rc && t && t->type != PYJSON_NULL && !pyjson_is(t, "disabled")) {
        rc = err_set(e, ERR_UNSUPPORTED, "truncation: only disabled is supported");
    }
    if (!rc && top && top->type == PYJSON_NUMBER && strcmp(top->s, "0") != 0) {
        rc = err_set(e, ERR_UNSUPPORTED, "top_logprobs: chat completions give them");
    }
    return rc;
}

static int read_request(struct oai *a, const struct pyjson *root, struct gen_ask *ask, bool *stream,
                        struct err *e)
{
    struct buf chat;
    int64_t max = 0;
    buf_init(&chat, WEB_BODY_MAX);
    int rc = check_refused(root, e);
    rc = rc ? rc : oai_known(root, names, NULL, e);
    rc = rc ? rc : oai_check_model(a, root, e);
    rc = rc ? rc : oai_sampling(a, root, ask, e);
    rc = rc ? rc : oai_bool(root, "stream", stream, e);
    rc = rc ? rc : oai_int(root, "max_output_tokens", 1, INT32_MAX, &max, e);
    if (max) {
        ask->max_new = max > (int64_t)GEN_MAX_TOKENS ? GEN_MAX_TOKENS : (uint32_t)max;
    }
    rc = rc ? rc : responses_as_chat(root, &chat, e);
    rc = rc ? rc : oai_chat_ask_told(a, &chat, ask, e);
    buf_free(&chat);
    return rc;
}

/* What an answer repeats of its request, with the values that were used where it said nothing. */
static json_t *echo_of(const char *body, size_t n)
{
    static const char *const kept[] = {
        "instructions", "tools", "tool_choice",         "temperature", "top_p", "max_output_tokens",
        "metadata",     "user",  "parallel_tool_calls", "reasoning",   "text",  NULL};
    json_t *v =
        json_pack("{s:n, s:[], s:s, s:f, s:f, s:n, s:{}, s:b, s:{s:n, s:n}, "
                  "s:{s:{s:s}}, s:n, s:b, s:s, s:b, s:s}",
                  "instructions", "tools", "tool_choice", "auto", "temperature", 1.0, "top_p", 1.0,
                  "max_output_tokens", "metadata", "parallel_tool_calls", 1, "reasoning", "effort",
                  "summary", "text", "format", "type", "text", "previous_response_id", "store", 0,
                  "truncation", "disabled", "background", 0, "service_tier", "default");
    json_t *q = json_loadb(body, n, JSON_ALLOW_NUL, NULL), *tool;
    size_t at;
    for (size_t i = 0; v && kept[i]; i++) {
        json_t *x = json_object_get(q, kept[i]);
        if (x && !json_is_null(x)) {
            json_object_set(v, kept[i], x);
        }
    }
    json_array_foreach(json_object_get(v, "tools"), at, tool)
    {
        if (!json_object_get(tool, "parameters")) {
            json_object_set_new(tool, "parameters", json_null());
        }
        if (!json_object_get(tool, "strict")) {
            json_object_set_new(tool, "strict", json_false());
        }
    }
    json_decref(q);
    return v;
}

void oai_responses(struct oai *a, struct web_req *r)
{
    static const struct gen_format format = {on_event, response_free, again};
    struct pyjson_doc *d = NULL;
    struct err e = {0};
    struct gen_ask ask = {0};
    size_t n;
    const char *body = web_body(r, &n);
    bool stream = false;
    int rc = oai_body(r, &d, &e);
    rc = rc ? rc : read_request(a, pyjson_root(d), &ask, &stream, &e);
    struct response *p = rc ? NULL : calloc(1, sizeof *p);
    if (p) {
        p->o = a;
        p->stream = stream;
        p->created = (json_int_t)time(NULL);
        p->output = json_array();
        p->echo = echo_of(body, n);
        buf_init(&p->text, WEB_BODY_MAX);
        ids_make("resp_", 32, p->id, sizeof p->id);
        if (!p->echo) {
            response_free(p);
            p = NULL;
        }
    }
    oai_begin(a, r, rc, &ask, &format, p, stream, &e);
    pyjson_free(d);
}
