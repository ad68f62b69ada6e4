/* SPDX-License-Identifier: MIT
 * completions.c: POST /v1/completions: text (or token ids) to be continued as it stands. */
#include "node/api/ids.h"
#include "node/api/oai_int.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const names[] = {"prompt", "echo", "suffix", "best_of", "logprobs", NULL};

struct completion_choice {
    struct buf text;
    json_t *tokens, *token_logprobs, *top, *offsets;
    size_t chars; /* of the text so far, for text_offset */
    enum gen_finish finish;
};

struct completion {
    struct oai *o;
    char id[48];
    json_int_t created;
    struct oai_stream stream;
    bool logprobs, echo, echoed[GEN_CHOICES_MAX];
    char *prompt; /* with echo */
    size_t prompt_n, n;
    struct completion_choice c[GEN_CHOICES_MAX];
};

static size_t characters(const char *s, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        k += ((unsigned char)s[i] & 0xC0) != 0x80;
    }
    return k;
}

static json_t *token_text(const char *p, size_t n)
{
    struct tok_stream s = {{0}, 0};
    char *text = malloc(TOK_STREAM_ROOM(n) + 3);
    size_t k = 0;
    if (text) {
        k = tok_stream_push(&s, p, n, text);
        k += tok_stream_flush(&s, text + k);
    }
    json_t *v = oai_text(text, k);
    free(text);
    return v;
}

/* The legacy form: four lists side by side. */
static void add_logprobs(struct completion *c, struct completion_choice *s,
                         const struct gen_event *ev)
{
    for (size_t i = 0; i < ev->n_logprobs; i++) {
        const struct gen_logprob *p = &ev->logprobs[i];
        json_t *top = json_object();
        for (uint32_t k = 0; k < p->t.n_top; k++) {
            size_t n;
            const char *b = tok_bytes(c->o->m.tok, p->t.top[k].id, &n);
            json_t *key = token_text(b, n);
            json_object_set_new(top, json_string_value(key),
                                json_real((double)p->t.top[k].logprob));
            json_decref(key);
        }
        json_array_append_new(s->tokens, token_text(p->bytes, p->n));
        json_array_append_new(s->token_logprobs, json_real((double)p->t.logprob));
        json_array_append_new(s->top, top);
        json_array_append_new(s->offsets, json_integer((json_int_t)s->chars));
        s->chars += characters(p->bytes, p->n);
    }
}

static json_t *take_logprobs(struct completion *c, struct completion_choice *s)
{
    if (!c->logprobs) {
        return json_null();
    }
    json_t *v = json_pack("{s:o, s:o, s:o, s:o}", "tokens", s->tokens, "token_logprobs",
                          s->token_logprobs, "top_logprobs", s->top, "text_offset", s->offsets);
    s->tokens = json_array();
    s->token_logprobs = json_array();
    s->top = json_array();
    s->offsets = json_array();
    return v;
}

static json_t *body(struct completion *c, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object", "text_completion",
                     "created", c->created, "model", c->o->m.id, "system_fingerprint",
                     c->o->fingerprint, "choices", choices);
}

static json_t *choice_json(struct completion *c, size_t i, const char *text, size_t n,
                           const char *finish)
{
    return json_pack("{s:o, s:I, s:o, s:o}", "text", oai_text(text, n), "index", (json_int_t)i,
                     "logprobs", take_logprobs(c, &c->c[i]), "finish_reason",
                     finish ? json_string(finish) : json_null());
}

static json_t *last_chunk(struct completion *c, const struct gen_event *ev)
{
    json_t *v = body(c, json_array());
    json_object_set_new(v, "usage", oai_usage_json(ev->usage));
    return v;
}

static void stream_event(struct completion *c, struct gen *g, const struct gen_event *ev)
{
    struct web_req *r = gen_req(g);
    web_stream(r, 200, OAI_SSE);
    if ((ev->type == GEN_TEXT || ev->type == GEN_END) && c->echo && !c->echoed[ev->choice]) {
        c->echoed[ev->choice] = true;
        oai_sse(
            r, NULL,
            body(c, json_pack("[{s:o, s:I, s:n, s:n}]", "text", oai_text(c->prompt, c->prompt_n),
                              "index", (json_int_t)ev->choice, "logprobs", "finish_reason")));
    }
    switch (ev->type) {
    case GEN_TEXT:
        add_logprobs(c, &c->c[ev->choice], ev);
        oai_sse(r, NULL,
                body(c, json_pack("[o]", choice_json(c, ev->choice, ev->text, ev->text_n, NULL))));
        break;
    case GEN_END:
        oai_sse(r, NULL,
                body(c, json_pack("[o]",
                                  choice_json(c, ev->choice, "", 0, oai_finish_word(ev->finish)))));
        break;
    default:
        oai_sse_rest(r, ev, ev->type == GEN_DONE && c->stream.usage ? last_chunk(c, ev) : NULL);
    }
}

static void whole_event(struct completion *c, struct gen *g, const struct gen_event *ev)
{
    struct completion_choice *s = &c->c[ev->choice];
    json_t *l, *v;
    switch (ev->type) {
    case GEN_TEXT:
        buf_add(&s->text, ev->text, ev->text_n);
        add_logprobs(c, s, ev);
        break;
    case GEN_END:
        s->finish = ev->finish;
        break;
    case GEN_DONE:
        l = json_array();
        for (size_t i = 0; i < c->n; i++) {
            s = &c->c[i];
            json_array_append_new(
                l, choice_json(c, i, s->text.p, s->text.n, oai_finish_word(s->finish)));
        }
        v = body(c, l);
        json_object_set_new(v, "usage", oai_usage_json(ev->usage));
        oai_reply(c->o, gen_req(g), 200, v);
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
    struct completion *c = ctx;
    if (c->stream.stream) {
        stream_event(c, g, ev);
    } else {
        whole_event(c, g, ev);
    }
}

static bool again(void *ctx, size_t choice)
{
    struct completion *c = ctx;
    struct completion_choice *s = &c->c[choice];
    if (c->stream.stream) {
        return false;
    }
    s->text.n = c->echo ? c->prompt_n : 0; /* which begins with the prompt */
    s->chars = 0;
    json_array_clear(s->tokens);
    json_array_clear(s->token_logprobs);
    json_array_clear(s->top);
    json_array_clear(s->offsets);
    return true;
}

static void completion_free(void *ctx)
{
    struct completion *c = ctx;
    for (size_t i = 0; i < c->n; i++) {
        buf_free(&c->c[i].text);
        json_decref(c->c[i].tokens);
        json_decref(c->c[i].token_logprobs);
        json_decref(c->c[i].top);
        json_decref(c->c[i].offsets);
    }
    free(c->prompt);
    free(c);
}

/* ---- the request ---- */

static int ids_of(struct oai *a, const struct pyjson *l, struct tok_ids *out, struct err *e)
{
    for (size_t i = 0; i < l->count; i++) {
        const struct pyjson *v = l->items[i];
        char *end;
        unsigned long id = v->type == PYJSON_NUMBER ? strtoul(v->s, &end, 10) : 0;
        if (v->type != PYJSON_NUMBER || *end || v->s[0] == '-' || id >= tok_vocab(a->m.tok)) {
            return err_set(e, ERR_ARG, "prompt[%zu]: it must be a token id below %u", i,
                           tok_vocab(a->m.tok));
        }
        if (tok_ids_add(out, (uint32_t)id)) {
            return err_set(e, ERR_NOMEM, "out of memory");
        }
    }
    return 0;
}

static int read_prompt(struct oai *a, const struct pyjson *root, struct gen_ask *ask, struct err *e)
{
    const struct pyjson *p = pyjson_get(root, "prompt");
    if (p && p->type == PYJSON_ARRAY && p->count == 1 &&
        (p->items[0]->type == PYJSON_STRING || p->items[0]->type == PYJSON_ARRAY)) {
        p = p->items[0]; /* a list of one */
    }
    if (p && p->type == PYJSON_STRING && p->n) {
        ask->prompt.max = OAI_TOKENS_MAX(a);
        return tok_encode(a->m.tok, p->s, p->n, false, &ask->prompt, e);
    }
    if (p && p->type == PYJSON_ARRAY && p->count && p->items[0]->type == PYJSON_NUMBER) {
        return ids_of(a, p, &ask->prompt, e);
    }
    return err_set(
        e, ERR_ARG,
        "prompt: it must be one text, or one list of token ids, and not be empty (several "
        "prompts in one request are not supported)");
}

static int read_request(struct oai *a, const struct pyjson *root, struct gen_ask *ask,
                        struct oai_stream *stream, bool *echo, struct err *e)
{
    const struct pyjson *suffix = pyjson_get(root, "suffix");
    int64_t top = -1, best = 1;
    int rc = oai_known(root, oai_common, names, e);
    rc = rc ? rc : oai_check_model(a, root, e);
    rc = rc ? rc : oai_sampling(a, root, ask, e);
    rc = rc ? rc : oai_stream_opts(root, stream, e);
    rc = rc ? rc : oai_int(root, "logprobs", 0, 5, &top, e);
    rc = rc ? rc : oai_int(root, "best_of", 1, GEN_CHOICES_MAX, &best, e);
    rc = rc ? rc : oai_bool(root, "echo", echo, e);
    if (!rc && suffix && suffix->type != PYJSON_NULL &&
        !(suffix->type == PYJSON_STRING && !suffix->n)) {
        rc = err_set(e, ERR_UNSUPPORTED, "suffix: this model cannot fill in before a given end");
    }
    if (!rc && best != 1 && best != (int64_t)ask->n) {
        rc = err_set(e, ERR_UNSUPPORTED, "best_of: only the value of n is supported");
    }
    if (!rc && *echo && top >= 0) {
        rc = err_set(e, ERR_UNSUPPORTED, "echo: together with logprobs it is not supported");
    }
    ask->sampling.logprobs = top >= 0;
    ask->sampling.top = top > 0 ? (uint32_t)top : 0;
    if (!ask->max_new) {
        ask->max_new = 16; /* as the API has it */
    }
    return rc ? rc : read_prompt(a, root, ask, e);
}

/* The prompt's text, for echo: of ids, too. */
static int keep_prompt(struct completion *c, const struct gen_ask *ask)
{
    struct buf b;
    buf_init(&b, WEB_BODY_MAX);
    struct tok_stream s = {{0}, 0};
    int r = 0;
    for (size_t i = 0; i < ask->prompt.n && !r; i++) {
        size_t n;
        const char *p = tok_bytes(c->o->m.tok, ask->prompt.v[i], &n);
        r = buf_reserve(&b, TOK_STREAM_ROOM(n));
        if (!r && !tok_is_special(c->o->m.tok, ask->prompt.v[i])) {
            b.n += tok_stream_push(&s, p, n, b.p + b.n);
        }
    }
    r = r ? r : buf_reserve(&b, 4);
    if (!r) {
        b.n += tok_stream_flush(&s, b.p + b.n);
        c->prompt_n = b.n;
        c->prompt = buf_take(&b, NULL);
    }
    buf_free(&b);
    return r;
}

static struct completion *completion_new(struct oai *a, const struct gen_ask *ask, bool echo)
{
    struct completion *c = calloc(1, sizeof *c);
    if (!c) {
        return NULL;
    }
    c->o = a;
    c->n = ask->n;
    c->created = (json_int_t)time(NULL);
    c->logprobs = ask->sampling.logprobs;
    c->echo = echo;
    ids_make("cmpl-", 29, c->id, sizeof c->id);
    for (size_t i = 0; i < c->n; i++) {
        buf_init(&c->c[i].text, WEB_BODY_MAX);
        c->c[i].tokens = json_array();
        c->c[i].token_logprobs = json_array();
        c->c[i].top = json_array();
        c->c[i].offsets = json_array();
    }
    bool fine = !echo || !keep_prompt(c, ask);
    for (size_t i = 0; fine && echo && !c->stream.stream && i < c->n; i++) {
        fine = !buf_add(&c->c[i].text, c->prompt, c->prompt_n);
    }
    if (!fine) {
        completion_free(c);
        return NULL;
    }
    return c;
}

void oai_completions(struct oai *a, struct web_req *r)
{
    static const struct gen_format format = {on_event, completion_free, again};
    struct pyjson_doc *d = NULL;
    struct err e = {0};
    struct gen_ask ask = {0};
    struct oai_stream stream = {0};
    bool echo = false;
    int rc = oai_body(r, &d, &e);
    rc = rc ? rc : read_request(a, pyjson_root(d), &ask, &stream, &echo, &e);
    struct completion *c = rc ? NULL : completion_new(a, &ask, echo);
    if (c) {
        c->stream = stream;
    }
    oai_begin(a, r, rc, &ask, &format, c, stream.stream, &e);
    pyjson_free(d);
}
