/* SPDX-License-Identifier: MIT
 * messages_in.c: Anthropic's form of a request, told again as a chat completion, so that both
 * become one prompt by one renderer. Text that the model wrote or a tool gave keeps its bytes. */
#include "node/api/messages.h"
#include "node/api/oai_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct pyjson *field(const struct pyjson *v, const char *name)
{
    const struct pyjson *x = v && v->type == PYJSON_OBJECT ? pyjson_get(v, name) : NULL;
    return x && x->type != PYJSON_NULL ? x : NULL;
}

static int string_field(struct buf *b, const char *key, const struct pyjson *v)
{
    int r = buf_addf(b, "\"%s\":", key);
    return r ? r : pyjson_write_string(v->s, v->n, b);
}

static int refused(struct err *e, const char *where, size_t i, const char *what)
{
    return err_set(e, ERR_ARG, "%s[%zu].%s", where, i, what);
}

/* A text, or text blocks, as one JSON string (blocks one after the other, parted by `sep`). */
static int put_text(struct buf *b, const struct pyjson *v, const char *sep, const char *where,
                    size_t at, struct err *e)
{
    if (v->type == PYJSON_STRING) {
        return pyjson_write_string(v->s, v->n, b);
    }
    struct buf all;
    buf_init(&all, WEB_BODY_MAX);
    int r = v->type == PYJSON_ARRAY
                ? 0
                : refused(e, where, at, "content: it must be a string or a list of blocks");
    for (size_t i = 0; i < v->count && !r; i++) {
        const struct pyjson *type = field(v->items[i], "type"), *t = field(v->items[i], "text"),
                            *ref = field(v->items[i], "tool_name");
        bool tool = pyjson_is(type, "tool_reference"); /* found by a search: its name */
        t = tool ? ref : t;
        if (!(tool || pyjson_is(type, "text")) || !t || t->type != PYJSON_STRING) {
            r = refused(e, where, at, "content: only text blocks are supported here");
        } else {
            r = i ? buf_adds(&all, sep) : 0;
            r = r ? r : buf_add(&all, t->s, t->n);
        }
    }
    r = r ? r : pyjson_write_string(all.p ? all.p : "", all.n, b);
    buf_free(&all);
    return r;
}

/* ---- messages ---- */

static int put_result(struct buf *b, const struct pyjson *blk, size_t i, struct err *e)
{
    const struct pyjson *id = field(blk, "tool_use_id"), *c = field(blk, "content");
    if (!id || id->type != PYJSON_STRING) {
        return refused(e, "messages", i, "content: a tool_result needs its tool_use_id");
    }
    int r = buf_adds(b, ",{\"role\":\"tool\",");
    r = r ? r : string_field(b, "tool_call_id", id);
    r = r ? r : buf_adds(b, ",\"content\":");
    r = r ? r : c ? put_text(b, c, "\n", "messages", i, e) : buf_adds(b, "\"\"");
    return r ? r : buf_adds(b, "}");
}

static int put_user(struct buf *b, const struct pyjson *c, size_t i, struct err *e)
{
    if (c->type == PYJSON_STRING) {
        int r = buf_adds(b, ",{\"role\":\"user\",\"content\":");
        r = r ? r : pyjson_write_string(c->s, c->n, b);
        return r ? r : buf_adds(b, "}");
    }
    int r = c->type == PYJSON_ARRAY ? 0 : refused(e, "messages", i, "content: a string or a list");
    bool text = false;
    for (size_t k = 0; k < c->count && !r;
         k++) { /* results answer the turn before: they come first */
        const struct pyjson *type = field(c->items[k], "type");
        if (pyjson_is(type, "tool_result")) {
            r = put_result(b, c->items[k], i, e);
        } else if (pyjson_is(type, "text") && field(c->items[k], "text")) {
            text = true;
        } else {
            r = refused(
                e, "messages", i,
                "content: only text and tool_result blocks are supported in a user message");
        }
    }
    if (r || !text) {
        return r;
    }
    r = buf_adds(b, ",{\"role\":\"user\",\"content\":[");
    bool first = true;
    for (size_t k = 0; k < c->count && !r; k++) {
        const struct pyjson *t = field(c->items[k], "text");
        if (!pyjson_is(field(c->items[k], "type"), "text")) {
            continue;
        }
        r = buf_adds(b, first ? "{\"type\":\"text\"," : ",{\"type\":\"text\",");
        r = r ? r
            : t->type == PYJSON_STRING
                ? string_field(b, "text", t)
                : refused(e, "messages", i, "content: the text of a block must be a string");
        r = r ? r : buf_adds(b, "}");
        first = false;
    }
    return r ? r : buf_adds(b, "]}");
}

static int put_call(struct buf *b, const struct pyjson *blk, bool first, size_t i, struct err *e)
{
    const struct pyjson *id = field(blk, "id"), *name = field(blk, "name"),
                        *in = field(blk, "input");
    if (!id || id->type != PYJSON_STRING || !name || name->type != PYJSON_STRING ||
        (in && in->type != PYJSON_OBJECT)) {
        return refused(e, "messages", i, "content: a tool_use needs id, name and an input object");
    }
    struct buf args;
    buf_init(&args, WEB_BODY_MAX);
    int r = in ? pyjson_write(in, 0, &args) : buf_adds(&args, "{}");
    r = r ? r : buf_adds(b, first ? ",\"tool_calls\":[{" : ",{");
    r = r ? r : string_field(b, "id", id);
    r = r ? r : buf_adds(b, ",\"type\":\"function\",\"function\":{");
    r = r ? r : string_field(b, "name", name);
    r = r ? r : buf_adds(b, ",\"arguments\":");
    r = r ? r : pyjson_write_string(args.p, args.n, b);
    r = r ? r : buf_adds(b, "}}");
    buf_free(&args);
    return r;
}

static int put_assistant(struct buf *b, const struct pyjson *c, size_t i, struct err *e)
{
    struct buf text, think, calls;
    buf_init(&text, WEB_BODY_MAX);
    buf_init(&think, WEB_BODY_MAX);
    buf_init(&calls, WEB_BODY_MAX);
    int r = 0;
    if (c->type == PYJSON_STRING) {
        r = buf_add(&text, c->s, c->n);
    } else if (c->type != PYJSON_ARRAY) {
        r = refused(e, "messages", i, "content: a string or a list");
    }
    for (size_t k = 0; k < c->count && !r && c->type == PYJSON_ARRAY; k++) {
        const struct pyjson *blk = c->items[k], *type = field(blk, "type"), *t = field(blk, "text"),
                            *th = field(blk, "thinking");
        if (pyjson_is(type, "text") && t && t->type == PYJSON_STRING) {
            r = buf_add(&text, t->s, t->n);
        } else if (pyjson_is(type, "thinking") && th && th->type == PYJSON_STRING) {
            r = buf_add(&think, th->s, th->n);
        } else if (pyjson_is(type, "tool_use")) {
            r = put_call(&calls, blk, calls.n == 0, i, e);
        } else if (!pyjson_is(type, "redacted_thinking")) {
            r = refused(e, "messages", i,
                        "content: only text, thinking and tool_use blocks are supported in an "
                        "assistant message");
        }
    }
    r = r ? r : buf_adds(b, ",{\"role\":\"assistant\",\"content\":");
    r = r ? r : pyjson_write_string(text.p ? text.p : "", text.n, b);
    if (!r && think.n) {
        r = buf_adds(b, ",\"reasoning_content\":");
        r = r ? r : pyjson_write_string(think.p, think.n, b);
    }
    if (!r && calls.n) {
        r = buf_add(b, calls.p, calls.n);
        r = r ? r : buf_adds(b, "]");
    }
    r = r ? r : buf_adds(b, "}");
    buf_free(&text);
    buf_free(&think);
    buf_free(&calls);
    return r;
}

static int put_messages(struct buf *b, const struct pyjson *root, struct err *e)
{
    const struct pyjson *l = field(root, "messages"), *sys = field(root, "system");
    if (!l || l->type != PYJSON_ARRAY || !l->count) {
        return err_set(e, ERR_ARG, "messages: it must be a list of at least one message");
    }
    size_t begin = b->n;
    int r = 0;
    if (sys) {
        r = buf_adds(b, ",{\"role\":\"system\",\"content\":");
        r = r ? r : put_text(b, sys, "\n", "system", 0, e);
        r = r ? r : buf_adds(b, "}");
    }
    for (size_t i = 0; i < l->count && !r; i++) {
        const struct pyjson *role = field(l->items[i], "role"), *c = field(l->items[i], "content");
        if (!c) {
            r = refused(e, "messages", i, "content: it is missing");
        } else if (pyjson_is(role, "user")) {
            r = put_user(b, c, i, e);
        } else if (pyjson_is(role, "assistant") && i + 1 == l->count) {
            r = refused(e, "messages", i,
                        "role: an answer that begins with given words (a last message of the "
                        "assistant) is not supported");
        } else if (pyjson_is(role, "assistant")) {
            r = put_assistant(b, c, i, e);
        } else if (pyjson_is(role, "system")) {
            r = buf_adds(b, ",{\"role\":\"system\",\"content\":");
            r = r ? r : put_text(b, c, "\n", "messages", i, e);
            r = r ? r : buf_adds(b, "}");
        } else {
            r = refused(e, "messages", i, "role: it must be user or assistant");
        }
    }
    if (!r) {
        b->p[begin] = '['; /* in place of the first comma */
        r = buf_adds(b, "]");
    }
    return r;
}

/* ---- tools and thinking ---- */

static int by_text(const void *a, const void *b)
{
    const struct pyjson *x = *(const struct pyjson *const *)a,
                        *y = *(const struct pyjson *const *)b;
    size_t n = x->n < y->n ? x->n : y->n;
    int c = memcmp(x->s, y->s, n);
    return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

/* The names of tools that results refer to, sorted; ones that are deferred are shown from then on.
 */
struct found {
    const struct pyjson **v;
    size_t n, cap;
};

static int find_references(const struct pyjson *messages, struct found *f, struct err *e)
{
    for (size_t i = 0; i < messages->count; i++) {
        const struct pyjson *c = field(messages->items[i], "content");
        for (size_t k = 0; c && c->type == PYJSON_ARRAY && k < c->count; k++) {
            const struct pyjson *in = field(c->items[k], "content");
            for (size_t j = 0; in && in->type == PYJSON_ARRAY && j < in->count; j++) {
                const struct pyjson *name = field(in->items[j], "tool_name");
                if (!name || name->type != PYJSON_STRING ||
                    !pyjson_is(field(in->items[j], "type"), "tool_reference")) {
                    continue;
                }
                if (f->n == f->cap) {
                    size_t cap = f->cap ? 2 * f->cap : 16;
                    void *p = realloc(f->v, cap * sizeof(void *));
                    if (!p) {
                        return err_set(e, ERR_NOMEM, "out of memory");
                    }
                    f->v = p;
                    f->cap = cap;
                }
                f->v[f->n++] = name;
            }
        }
    }
    if (f->n) {
        qsort(f->v, f->n, sizeof *f->v, by_text);
    }
    return 0;
}

static bool deferred(const struct pyjson *tool, const struct found *f)
{
    const struct pyjson *d = field(tool, "defer_loading"), *name = field(tool, "name");
    return d && d->type == PYJSON_TRUE && name && name->type == PYJSON_STRING &&
           !(f->n && bsearch(&name, f->v, f->n, sizeof *f->v, by_text));
}

/* What a tool may say. Without effect here: where a cache may end, and how finely input streams. */
static int check_tool(const struct pyjson *t, size_t i, struct err *e)
{
    static const char *const known[] = {
        "name",          "description",   "input_schema",          "type", "strict",
        "defer_loading", "cache_control", "eager_input_streaming", NULL};
    static const char *const more[] = {"allowed_callers", NULL};
    const struct pyjson *who = field(t, "allowed_callers");
    if (t->type != PYJSON_OBJECT) {
        return err_set(e, ERR_ARG, "tools[%zu]: it must be an object", i);
    }
    if (oai_known(t, known, more, e)) {
        char msg[sizeof e->msg];
        snprintf(msg, sizeof msg, "%s", e->msg);
        return refused(e, "tools", i, msg);
    }
    for (size_t k = 0; who && (k < who->count || who->type != PYJSON_ARRAY); k++) {
        if (who->type != PYJSON_ARRAY || !pyjson_is(who->items[k], "direct")) {
            return refused(e, "tools", i, "allowed_callers: only [\"direct\"] is here");
        }
    }
    return 0;
}

static int put_tools(struct buf *b, const struct pyjson *l, const struct found *f, struct err *e)
{
    bool first = true;
    int r = l->type == PYJSON_ARRAY ? 0 : err_set(e, ERR_ARG, "tools: it must be a list");
    for (size_t i = 0; i < l->count && !r; i++) {
        const struct pyjson *type = field(l->items[i], "type");
        if (type && !pyjson_is(type, "custom")) {
            return refused(e, "tools", i, "type: tools that Anthropic's servers run are not here");
        }
        r = check_tool(l->items[i], i, e);
        if (r || deferred(l->items[i], f)) {
            continue;
        }
        const struct pyjson *t = l->items[i], *name = field(t, "name"),
                            *d = field(t, "description"), *s = field(t, "input_schema"),
                            *strict = field(t, "strict");
        if (!name || name->type != PYJSON_STRING || (d && d->type != PYJSON_STRING)) {
            return refused(e, "tools", i, "name: it must be a string");
        }
        r = buf_adds(b, first ? ",\"tools\":[" : ",");
        r = r ? r : buf_adds(b, "{\"type\":\"function\",\"function\":{");
        r = r ? r : string_field(b, "name", name);
        first = false;
        if (!r && d) {
            r = buf_adds(b, ",");
            r = r ? r : string_field(b, "description", d);
        }
        if (!r && s) {
            r = buf_adds(b, ",\"parameters\":");
            r = r ? r : pyjson_write(s, 0, b);
        }
        if (!r && strict && strict->type == PYJSON_TRUE) {
            r = buf_adds(b, ",\"strict\":true");
        }
        r = r ? r : buf_adds(b, "}}");
    }
    return r || first ? r : buf_adds(b, "]");
}

static int put_choice(struct buf *b, const struct pyjson *c, struct err *e)
{
    const struct pyjson *type = field(c, "type"), *name = field(c, "name"),
                        *one = field(c, "disable_parallel_tool_use");
    int r = one && one->type == PYJSON_TRUE ? buf_adds(b, ",\"parallel_tool_calls\":false") : 0;
    if (r || pyjson_is(type, "auto")) {
        return r;
    }
    if (pyjson_is(type, "any") || pyjson_is(type, "none")) {
        return buf_adds(b, pyjson_is(type, "any") ? ",\"tool_choice\":\"required\""
                                                  : ",\"tool_choice\":\"none\"");
    }
    if (!pyjson_is(type, "tool") || !name || name->type != PYJSON_STRING) {
        return err_set(e, ERR_ARG,
                       "tool_choice: its type must be auto, any, none, or tool with a "
                       "name");
    }
    r = buf_adds(b, ",\"tool_choice\":{\"type\":\"function\",\"function\":{");
    r = r ? r : string_field(b, "name", name);
    return r ? r : buf_adds(b, "}}");
}

/* Thinking is off unless it is asked for, as Anthropic has it; output_config.effort says how long
 * it is, or else the budget chooses. */
static int put_thinking(struct buf *b, const struct pyjson *root, struct err *e)
{
    const struct pyjson *t = field(root, "thinking"), *type = field(t, "type"),
                        *budget = field(t, "budget_tokens"),
                        *effort = field(field(root, "output_config"), "effort");
    double tokens = 0;
    enum chat_think think;
    if (effort && (effort->type != PYJSON_STRING || pyjson_is(effort, "none") ||
                   !chat_think_by_name(effort->s, effort->n, &think))) {
        return err_set(e, ERR_ARG,
                       "output_config.effort: it must be low, medium, high, xhigh or max");
    }
    if (!t || pyjson_is(type, "disabled")) {
        return buf_adds(b, ",\"reasoning_effort\":\"none\"");
    }
    if (effort && (pyjson_is(type, "adaptive") || pyjson_is(type, "enabled"))) {
        int r = buf_adds(b, ",");
        return r ? r : string_field(b, "reasoning_effort", effort);
    }
    if (pyjson_is(type, "adaptive")) {
        return 0;
    }
    if (!pyjson_is(type, "enabled") || (budget && (budget->type != PYJSON_NUMBER ||
                                                   pyjson_double(budget->s, budget->n, &tokens)))) {
        return err_set(e, ERR_ARG,
                       "thinking: its type must be enabled, disabled or adaptive, its "
                       "budget_tokens a number");
    }
    return buf_addf(b, ",\"reasoning_effort\":\"%s\"",
                    !budget          ? "high"
                    : tokens < 4096  ? "low"
                    : tokens < 32768 ? "high"
                                     : "max");
}

/* output_config.format, and output_format as it was called before. */
static int put_format(struct buf *b, const struct pyjson *root, struct err *e)
{
    static const char *const known[] = {"effort", "format", NULL};
    const struct pyjson *c = field(root, "output_config"), *f = field(c, "format"),
                        *old = field(root, "output_format");
    if (c && c->type != PYJSON_OBJECT) {
        return err_set(e, ERR_ARG, "output_config: it must be an object");
    }
    int r = c ? oai_known(c, known, NULL, e) : 0;
    if (r) {
        char msg[sizeof e->msg];
        snprintf(msg, sizeof msg, "%s", e->msg);
        return err_set(e, r, "output_config.%s", msg);
    }
    f = f ? f : old;
    if (!f) {
        return 0;
    }
    if (!pyjson_is(field(f, "type"), "json_schema") || !field(f, "schema")) {
        return err_set(e, ERR_ARG,
                       "output_config.format: it must be of type json_schema, with a schema");
    }
    r = buf_adds(b, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":"
                    "\"answer\",\"schema\":");
    r = r ? r : pyjson_write(field(f, "schema"), 0, b);
    return r ? r : buf_adds(b, "}}");
}

int messages_as_chat(const struct pyjson *root, struct buf *b, struct err *e)
{
    const struct pyjson *tools = field(root, "tools"), *choice = field(root, "tool_choice");
    struct found f = {NULL, 0, 0};
    int r = buf_adds(b, "{\"messages\":");
    r = r ? r : put_messages(b, root, e);
    r = r ? r : find_references(field(root, "messages"), &f, e);
    r = r ? r : tools && tools->count ? put_tools(b, tools, &f, e) : 0;
    free(f.v);
    r = r ? r : choice ? put_choice(b, choice, e) : 0;
    r = r ? r : put_thinking(b, root, e);
    r = r ? r : put_format(b, root, e);
    r = r ? r : buf_adds(b, "}");
    if (r && e && !e->code) {
        err_set(e, r, "request: %s", err_text(r));
    }
    return r;
}
