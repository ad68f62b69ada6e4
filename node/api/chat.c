/* SPDX-License-Identifier: MIT
 * chat.c: POST /v1/chat/completions: OpenAI's chat form, whole or as a stream of chunks. */
#include "node/api/ids.h"
#include "node/api/oai_int.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const chat_names[] = {"messages",
                                         "tools",
                                         "tool_choice",
                                         "parallel_tool_calls",
                                         "response_format",
                                         "reasoning_effort",
                                         "thinking_effort",
                                         "reasoning",
                                         "thinking",
                                         "enable_thinking",
                                         "chat_template_kwargs",
                                         "add_generation_prompt",
                                         "logprobs",
                                         "top_logprobs",
                                         "verbosity",
                                         "prediction",
                                         "modalities",
                                         NULL};

struct said { /* one choice, for an answer that is not streamed */
    struct buf text, reasoning;
    json_t *calls, *logprobs;
    bool begun; /* streamed: its first chunk has gone out */
    enum gen_finish finish;
};

struct chat {
    struct oai *o;
    char id[48];
    json_int_t created;
    struct oai_stream stream;
    bool logprobs;
    size_t n;
    struct said *c;
};

static json_t *usage_json(const struct gen_usage *u)
{
    json_t *v = oai_usage_json(u);
    json_object_set_new(v, "completion_tokens_details",
                        json_pack("{s:I}", "reasoning_tokens", (json_int_t)u->reasoning));
    return v;
}

/* ---- logprobs ---- */

/* A token's text with what is no UTF-8 replaced; its bytes stand beside it. */
static json_t *token_json(const char *p, size_t n, float logprob)
{
    struct tok_stream s = {{0}, 0};
    char *text = malloc(TOK_STREAM_ROOM(n) + 3);
    json_t *bytes = json_array();
    size_t k = 0;
    if (text) {
        k = tok_stream_push(&s, p, n, text);
        k += tok_stream_flush(&s, text + k);
    }
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(bytes, json_integer((unsigned char)p[i]));
    }
    json_t *v = json_pack("{s:o, s:f, s:o}", "token", oai_text(text, k), "logprob", (double)logprob,
                          "bytes", bytes);
    free(text);
    return v;
}

static json_t *logprobs_json(const struct oai *o, const struct gen_event *ev)
{
    json_t *l = json_array();
    for (size_t i = 0; i < ev->n_logprobs; i++) {
        const struct gen_logprob *p = &ev->logprobs[i];
        json_t *v = token_json(p->bytes, p->n, p->t.logprob), *top = json_array();
        for (uint32_t k = 0; k < p->t.n_top; k++) {
            size_t n;
            const char *b = tok_bytes(o->m.tok, p->t.top[k].id, &n);
            json_array_append_new(top, token_json(b, n, p->t.top[k].logprob));
        }
        json_object_set_new(v, "top_logprobs", top);
        json_array_append_new(l, v);
    }
    return l;
}

/* ---- streamed ---- */

static json_t *chunk_json(struct chat *c, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object",
                     "chat.completion.chunk", "created", c->created, "model", c->o->m.id,
                     "system_fingerprint", c->o->fingerprint, "choices", choices);
}

static void send_chunk(struct chat *c, struct web_req *r, json_t *chunk)
{
    if (c->stream.usage && !json_object_get(chunk, "usage")) {
        json_object_set_new(chunk, "usage", json_null());
    }
    oai_sse(r, NULL, chunk);
}

static void send_delta(struct chat *c, struct web_req *r, size_t choice, json_t *delta,
                       json_t *logprobs, const char *finish)
{
    if (!c->c[choice].begun) {
        c->c[choice].begun = true;
        json_object_set_new(delta, "role", json_string("assistant"));
    }
    send_chunk(
        c, r,
        chunk_json(c, json_pack("[{s:I, s:o, s:o, s:o}]", "index", (json_int_t)choice, "delta",
                                delta, "logprobs",
                                logprobs ? json_pack("{s:o, s:n}", "content", logprobs, "refusal")
                                         : json_null(),
                                "finish_reason", finish ? json_string(finish) : json_null())));
}

static json_t *call_json(const struct gen_event *ev)
{
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", ev->id, "type", "function", "function",
                     "name", ev->name, "arguments", oai_text(ev->text, ev->text_n));
}

static json_t *last_chunk(struct chat *c, const struct gen_event *ev)
{
    json_t *v = chunk_json(c, json_array());
    json_object_set_new(v, "usage", usage_json(ev->usage));
    return v;
}

static void stream_event(struct chat *c, struct gen *g, const struct gen_event *ev)
{
    struct web_req *r = gen_req(g);
    json_t *v;
    switch (ev->type) {
    case GEN_REASONING:
        send_delta(c, r, ev->choice,
                   json_pack("{s:o}", "reasoning_content", oai_text(ev->text, ev->text_n)), NULL,
                   NULL);
        break;
    case GEN_TEXT:
        send_delta(c, r, ev->choice, json_pack("{s:o}", "content", oai_text(ev->text, ev->text_n)),
                   c->logprobs ? logprobs_json(c->o, ev) : NULL, NULL);
        break;
    case GEN_CALL:
        v = call_json(ev);
        json_object_set_new(v, "index", json_integer((json_int_t)ev->call));
        send_delta(c, r, ev->choice, json_pack("{s:[o]}", "tool_calls", v), NULL, NULL);
        break;
    case GEN_END:
        send_delta(c, r, ev->choice, json_object(), NULL, oai_finish_word(ev->finish));
        break;
    default:
        oai_sse_rest(r, ev, ev->type == GEN_DONE && c->stream.usage ? last_chunk(c, ev) : NULL);
    }
}

/* ---- whole ---- */

static json_t *choice_json(const struct chat *c, size_t i)
{
    struct said *s = &c->c[i];
    bool calls = json_array_size(s->calls) > 0;
    json_t *m = json_pack("{s:s, s:o, s:n, s:[]}", "role", "assistant", "content",
                          s->text.n || !calls ? oai_text(s->text.p, s->text.n) : json_null(),
                          "refusal", "annotations");
    if (s->reasoning.n) {
        json_object_set_new(m, "reasoning_content", oai_text(s->reasoning.p, s->reasoning.n));
    }
    if (calls) {
        json_object_set(m, "tool_calls", s->calls);
    }
    return json_pack("{s:I, s:o, s:o, s:s}", "index", (json_int_t)i, "message", m, "logprobs",
                     c->logprobs ? json_pack("{s:O, s:n}", "content", s->logprobs, "refusal")
                                 : json_null(),
                     "finish_reason", oai_finish_word(s->finish));
}

static void whole_event(struct chat *c, struct gen *g, const struct gen_event *ev)
{
    struct said *s = &c->c[ev->choice < c->n ? ev->choice : 0];
    json_t *l;
    switch (ev->type) {
    case GEN_REASONING:
        buf_add(&s->reasoning, ev->text, ev->text_n);
        break;
    case GEN_TEXT:
        buf_add(&s->text, ev->text, ev->text_n);
        if (c->logprobs) {
            l = logprobs_json(c->o, ev);
            json_array_extend(s->logprobs, l);
            json_decref(l);
        }
        break;
    case GEN_CALL:
        json_array_append_new(s->calls, call_json(ev));
        break;
    case GEN_END:
        s->finish = ev->finish;
        break;
    case GEN_DONE:
        l = json_array();
        for (size_t i = 0; i < c->n; i++) {
            json_array_append_new(l, choice_json(c, i));
        }
        oai_reply(c->o, gen_req(g), 200,
                  json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:o, s:o}", "id", c->id, "object",
                            "chat.completion", "created", c->created, "model", c->o->m.id,
                            "system_fingerprint", c->o->fingerprint, "service_tier", "default",
                            "choices", l, "usage", usage_json(ev->usage)));
        break;
    case GEN_FAIL:
        oai_fail_err(c->o, gen_req(g), ev->err);
        break;
    default:
        break;
    }
}

static void on_event(void *ctx, struct gen *g, const struct gen_event *ev)
{
    struct chat *c = ctx;
    if (c->stream.stream) {
        web_stream(gen_req(g), 200, OAI_SSE);
        stream_event(c, g, ev);
    } else {
        whole_event(c, g, ev);
    }
}

static bool again(void *ctx, size_t choice)
{
    struct chat *c = ctx;
    struct said *s = &c->c[choice];
    if (c->stream.stream) {
        return !s->begun;
    }
    s->text.n = s->reasoning.n = 0;
    json_array_clear(s->calls);
    json_array_clear(s->logprobs);
    return true;
}

static void chat_free(void *ctx)
{
    struct chat *c = ctx;
    for (size_t i = 0; c->c && i < c->n; i++) {
        buf_free(&c->c[i].text);
        buf_free(&c->c[i].reasoning);
        json_decref(c->c[i].calls);
        json_decref(c->c[i].logprobs);
    }
    free(c->c);
    free(c);
}

static struct chat *chat_new(struct oai *a, size_t n)
{
    struct chat *c = calloc(1, sizeof *c);
    if (!c) {
        return NULL;
    }
    c->o = a;
    c->n = n;
    c->created = (json_int_t)time(NULL);
    ids_make("chatcmpl-", 29, c->id, sizeof c->id);
    c->c = calloc(n, sizeof *c->c);
    for (size_t i = 0; c->c && i < n; i++) {
        buf_init(&c->c[i].text, WEB_BODY_MAX);
        buf_init(&c->c[i].reasoning, WEB_BODY_MAX);
        c->c[i].calls = json_array();
        c->c[i].logprobs = json_array();
    }
    if (!c->c) {
        free(c);
        return NULL;
    }
    return c;
}

/* ---- the request ---- */

static int read_request(struct oai *a, struct web_req *r, const struct pyjson *root,
                        struct gen_ask *ask, struct oai_stream *stream, struct err *e)
{
    int64_t top = 0;
    size_t n;
    const char *body = web_body(r, &n);
    int rc = oai_known(root, oai_common, chat_names, e);
    rc = rc ? rc : oai_check_model(a, root, e);
    rc = rc ? rc : oai_sampling(a, root, ask, e);
    rc = rc ? rc : oai_stream_opts(root, stream, e);
    rc = rc ? rc : oai_bool(root, "logprobs", &ask->sampling.logprobs, e);
    rc = rc ? rc : oai_int(root, "top_logprobs", 0, ENGINE_TOP_MAX, &top, e);
    if (!rc && top && !ask->sampling.logprobs) {
        rc = err_set(e, ERR_ARG, "top_logprobs: it goes with logprobs: true");
    }
    ask->sampling.top = (uint32_t)top;
    return rc ? rc : oai_chat_ask(a, body, n, root, ask, e);
}

void oai_chat(struct oai *a, struct web_req *r)
{
    static const struct gen_format format = {on_event, chat_free, again};
    struct pyjson_doc *d = NULL;
    struct err e = {0};
    struct gen_ask ask = {0};
    struct oai_stream stream = {0};
    int rc = oai_body(r, &d, &e);
    rc = rc ? rc : read_request(a, r, pyjson_root(d), &ask, &stream, &e);
    struct chat *c = rc ? NULL : chat_new(a, ask.n);
    if (c) {
        c->stream = stream;
        c->logprobs = ask.sampling.logprobs;
    }
    oai_begin(a, r, rc, &ask, &format, c, stream.stream, &e);
    pyjson_free(d);
}
