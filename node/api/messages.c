/* SPDX-License-Identifier: MIT
 * messages.c: POST /v1/messages and /v1/messages/count_tokens: Anthropic's form. */
#include "node/api/messages.h"

#include "node/api/ids.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"model",         "messages",       "system",
                                    "max_tokens",    "stop_sequences", "stream",
                                    "temperature",   "top_p",          "top_k",
                                    "tools",         "tool_choice",    "thinking",
                                    "metadata",      "service_tier",   "seed",
                                    "timeout",       "container",      "context_management",
                                    "inference_geo", "output_config",  "output_format",
                                    "cache_control", "betas",          NULL};

enum block { NO_BLOCK, THINKING, TEXT };

struct message {
    struct oai *o;
    char id[48];
    bool stream, begun;
    size_t prompt;
    /* streamed: the block under way; whole: what was said */
    enum block block;
    json_int_t index;
    json_t *content;
    struct buf text;
    enum gen_finish finish;
    char *stop;
};

static json_t *usage_json(const struct message *m, const struct gen_usage *u)
{
    json_int_t cached = u ? (json_int_t)u->cached : 0;
    return json_pack("{s:I, s:I, s:I, s:I, s:n}", "input_tokens", (json_int_t)m->prompt - cached,
                     "cache_creation_input_tokens", (json_int_t)0, "cache_read_input_tokens",
                     cached, "output_tokens", u ? (json_int_t)u->completion : (json_int_t)0,
                     "server_tool_use");
}

static json_t *message_json(const struct message *m, json_t *content, json_t *reason, json_t *stop,
                            const struct gen_usage *u)
{
    json_t *usage = usage_json(m, u);
    json_object_set_new(usage, "cache_creation", json_null());
    json_object_set_new(usage, "service_tier", json_string("standard"));
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", m->id, "type", "message",
                     "role", "assistant", "model", m->o->m.id, "content", content, "stop_reason",
                     reason, "stop_sequence", stop, "usage", usage);
}

static const char *reason_word(const struct message *m)
{
    return m->stop                   ? "stop_sequence"
           : m->finish == GEN_LENGTH ? "max_tokens"
           : m->finish == GEN_CALLS  ? "tool_use"
                                     : "end_turn";
}

static json_t *parsed(const char *s, size_t n)
{
    json_t *v = json_loadb(s, n, JSON_ALLOW_NUL, NULL);
    return v ? v : json_object();
}

/* ---- streamed ---- */

static void begin(struct message *m, struct web_req *r)
{
    if (!m->begun) {
        m->begun = true;
        oai_sse(r, "message_start",
                json_pack("{s:s, s:o}", "type", "message_start", "message",
                          message_json(m, json_array(), json_null(), json_null(), NULL)));
    }
}

static void end_block(struct message *m, struct web_req *r)
{
    if (m->block == THINKING) {
        oai_sse(r, "content_block_delta",
                json_pack("{s:s, s:I, s:{s:s, s:s}}", "type", "content_block_delta", "index",
                          m->index, "delta", "type", "signature_delta", "signature", ""));
    }
    if (m->block != NO_BLOCK) {
        oai_sse(r, "content_block_stop",
                json_pack("{s:s, s:I}", "type", "content_block_stop", "index", m->index));
        m->index++;
        m->block = NO_BLOCK;
    }
}

static void begin_block(struct message *m, struct web_req *r, enum block b)
{
    if (m->block == b) {
        return;
    }
    end_block(m, r);
    m->block = b;
    oai_sse(r, "content_block_start",
            json_pack("{s:s, s:I, s:o}", "type", "content_block_start", "index", m->index,
                      "content_block",
                      b == TEXT
                          ? json_pack("{s:s, s:s, s:n}", "type", "text", "text", "", "citations")
                          : json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "",
                                      "signature", "")));
}

static void delta(struct message *m, struct web_req *r, const char *type, const char *key,
                  const char *s, size_t n)
{
    oai_sse(r, "content_block_delta",
            json_pack("{s:s, s:I, s:{s:s, s:o}}", "type", "content_block_delta", "index", m->index,
                      "delta", "type", type, key, oai_text(s, n)));
}

static void stream_event(struct message *m, struct gen *g, const struct gen_event *ev)
{
    struct web_req *r = gen_req(g);
    web_stream(r, 200, OAI_SSE);
    begin(m, r);
    switch (ev->type) {
    case GEN_REASONING:
        begin_block(m, r, THINKING);
        delta(m, r, "thinking_delta", "thinking", ev->text, ev->text_n);
        break;
    case GEN_TEXT:
        begin_block(m, r, TEXT);
        delta(m, r, "text_delta", "text", ev->text, ev->text_n);
        break;
    case GEN_CALL:
        end_block(m, r);
        oai_sse(r, "content_block_start",
                json_pack("{s:s, s:I, s:{s:s, s:s, s:s, s:{}}}", "type", "content_block_start",
                          "index", m->index, "content_block", "type", "tool_use", "id", ev->id,
                          "name", ev->name, "input"));
        delta(m, r, "input_json_delta", "partial_json", ev->text, ev->text_n);
        oai_sse(r, "content_block_stop",
                json_pack("{s:s, s:I}", "type", "content_block_stop", "index", m->index));
        m->index++;
        break;
    case GEN_END:
        end_block(m, r);
        m->finish = ev->finish;
        m->stop = ev->stop ? strdup(ev->stop) : NULL;
        break;
    case GEN_DONE:
        oai_sse(r, "message_delta",
                json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta",
                          "stop_reason", reason_word(m), "stop_sequence",
                          m->stop ? json_string(m->stop) : json_null(), "usage",
                          usage_json(m, ev->usage)));
        oai_sse(r, "message_stop", json_pack("{s:s}", "type", "message_stop"));
        web_end(r);
        break;
    case GEN_FAIL:
        oai_sse(r, "error", oai_error_json(true, oai_status(ev->err), NULL, ev->err->msg));
        web_end(r);
        break;
    default:
        oai_sse(r, "ping", json_pack("{s:s}", "type", "ping"));
        oai_sse_waiting(r, ev);
    }
}

/* ---- whole ---- */

static void close_text(struct message *m)
{
    if (m->block == TEXT) {
        json_array_append_new(m->content, json_pack("{s:s, s:o, s:n}", "type", "text", "text",
                                                    oai_text(m->text.p, m->text.n), "citations"));
    } else if (m->block == THINKING) {
        json_array_append_new(m->content,
                              json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                        oai_text(m->text.p, m->text.n), "signature", ""));
    }
    m->text.n = 0;
    m->block = NO_BLOCK;
}

static void whole_event(struct message *m, struct gen *g, const struct gen_event *ev)
{
    enum block b = ev->type == GEN_TEXT ? TEXT : THINKING;
    switch (ev->type) {
    case GEN_REASONING:
    case GEN_TEXT:
        if (m->block != b) {
            close_text(m);
            m->block = b;
        }
        buf_add(&m->text, ev->text, ev->text_n);
        break;
    case GEN_CALL:
        close_text(m);
        json_array_append_new(m->content,
                              json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", ev->id,
                                        "name", ev->name, "input", parsed(ev->text, ev->text_n)));
        break;
    case GEN_END:
        close_text(m);
        m->finish = ev->finish;
        m->stop = ev->stop ? strdup(ev->stop) : NULL;
        break;
    case GEN_DONE:
        oai_reply(m->o, gen_req(g), 200,
                  message_json(m, json_incref(m->content), json_string(reason_word(m)),
                               m->stop ? json_string(m->stop) : json_null(), ev->usage));
        break;
    case GEN_FAIL:
        oai_fail_err(m->o, gen_req(g), ev->err);
        break;
    default:
        break;
    }
}

static void on_event(void *ctx, struct gen *g, const struct gen_event *ev)
{
    struct message *m = ctx;
    if (m->stream) {
        stream_event(m, g, ev);
    } else {
        whole_event(m, g, ev);
    }
}

static bool again(void *ctx, size_t choice)
{
    struct message *m = ctx;
    (void)choice;
    if (m->stream) {
        return false;
    }
    m->text.n = 0;
    m->block = NO_BLOCK;
    json_array_clear(m->content);
    return true;
}

static void message_free(void *ctx)
{
    struct message *m = ctx;
    json_decref(m->content);
    buf_free(&m->text);
    free(m->stop);
    free(m);
}

/* ---- the request ---- */

static int read_request(struct oai *a, const struct pyjson *root, struct gen_ask *ask, bool *stream,
                        bool counting, struct err *e)
{
    struct buf chat;
    buf_init(&chat, WEB_BODY_MAX);
    int rc = oai_known(root, names, NULL, e);
    rc = rc ? rc : oai_check_model(a, root, e);
    rc = rc ? rc : oai_sampling(a, root, ask, e);
    rc = rc ? rc : oai_stops(root, "stop_sequences", ask, e);
    rc = rc ? rc : oai_bool(root, "stream", stream, e);
    if (!rc && !counting && !ask->max_new) {
        rc = err_set(e, ERR_ARG, "max_tokens: it is missing");
    }
    rc = rc ? rc : messages_as_chat(root, &chat, e);
    rc = rc ? rc : oai_chat_ask_told(a, &chat, ask, e);
    buf_free(&chat);
    return rc;
}

static void count_tokens(struct oai *a, struct web_req *r, const struct gen_ask *ask)
{
    oai_reply(a, r, 200, json_pack("{s:I}", "input_tokens", (json_int_t)ask->prompt.n));
}

void oai_messages(struct oai *a, struct web_req *r)
{
    static const struct gen_format format = {on_event, message_free, again};
    bool counting = !strcmp(web_path(r), "/v1/messages/count_tokens");
    struct pyjson_doc *d = NULL;
    struct err e = {0};
    struct gen_ask ask = {0};
    bool stream = false;
    int rc = oai_body(r, &d, &e);
    rc = rc ? rc : read_request(a, pyjson_root(d), &ask, &stream, counting, &e);
    struct message *m = rc || counting ? NULL : calloc(1, sizeof *m);
    if (m) {
        m->o = a;
        m->stream = stream;
        m->prompt = ask.prompt.n;
        m->content = json_array();
        buf_init(&m->text, WEB_BODY_MAX);
        ids_make("msg_", 24, m->id, sizeof m->id);
    }
    if (!rc && counting) {
        count_tokens(a, r, &ask);
        gen_ask_free(&ask);
    } else {
        oai_begin(a, r, rc, &ask, &format, m, stream, &e);
    }
    pyjson_free(d);
}
