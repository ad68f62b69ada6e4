/* SPDX-License-Identifier: MIT
 * responses_in.c: a request in OpenAI's responses form, told again as a chat completion: items that
 * follow one another and are the assistant's (reasoning, a message, calls) become one message. */
#include "node/api/responses.h"

#include <string.h>

static const struct pyjson *field(const struct pyjson *v, const char *name)
{
    const struct pyjson *x = v && v->type == PYJSON_OBJECT ? pyjson_get(v, name) : NULL;
    return x && x->type != PYJSON_NULL ? x : NULL;
}

static const struct pyjson *text_field(const struct pyjson *v, const char *name)
{
    const struct pyjson *x = field(v, name);
    return x && x->type == PYJSON_STRING ? x : NULL;
}

static int refused(struct err *e, size_t i, const char *what)
{
    return err_set(e, ERR_ARG, "input[%zu].%s", i, what);
}

static int string_field(struct buf *b, const char *key, const struct pyjson *v)
{
    int r = buf_addf(b, "\"%s\":", key);
    return r ? r : pyjson_write_string(v->s, v->n, b);
}

/* ---- the assistant's message under construction ---- */

struct turn {
    bool open;
    struct buf text, think, calls;
};

static int turn_close(struct turn *t, struct buf *b)
{
    if (!t->open) {
        return 0;
    }
    int r = buf_adds(b, ",{\"role\":\"assistant\",\"content\":");
    r = r ? r : pyjson_write_string(t->text.p ? t->text.p : "", t->text.n, b);
    if (!r && t->think.n) {
        r = buf_adds(b, ",\"reasoning_content\":");
        r = r ? r : pyjson_write_string(t->think.p, t->think.n, b);
    }
    if (!r && t->calls.n) {
        r = buf_adds(b, ",\"tool_calls\":[");
        r = r ? r : buf_add(b, t->calls.p, t->calls.n);
        r = r ? r : buf_adds(b, "]");
    }
    t->open = false;
    t->text.n = t->think.n = t->calls.n = 0;
    return r ? r : buf_adds(b, "}");
}

/* Parts of text of some type, or a string. */
static int add_parts(struct buf *out, const struct pyjson *c, size_t i, struct err *e)
{
    if (c->type == PYJSON_STRING) {
        return buf_add(out, c->s, c->n);
    }
    int r = c->type == PYJSON_ARRAY ? 0 : refused(e, i, "content: a string or a list of parts");
    for (size_t k = 0; k < c->count && !r; k++) {
        const struct pyjson *p = c->items[k], *type = field(p, "type"), *t = text_field(p, "text"),
                            *no = text_field(p, "refusal");
        bool text = pyjson_is(type, "input_text") || pyjson_is(type, "output_text") ||
                    pyjson_is(type, "text") || pyjson_is(type, "reasoning_text") ||
                    pyjson_is(type, "summary_text");
        if (text && t) {
            r = buf_add(out, t->s, t->n);
        } else if (pyjson_is(type, "refusal") && no) {
            r = buf_add(out, no->s, no->n);
        } else {
            r = refused(e, i, "content: only text parts are supported");
        }
    }
    return r;
}

static int put_call(struct turn *t, const struct pyjson *v, size_t i, struct err *e)
{
    const struct pyjson *id = text_field(v, "call_id"), *name = text_field(v, "name"),
                        *args = text_field(v, "arguments");
    if (!id || !name || !args) {
        return refused(e, i, "call_id: a function_call needs call_id, name and arguments");
    }
    int r = buf_adds(&t->calls, t->calls.n ? ",{" : "{");
    r = r ? r : string_field(&t->calls, "id", id);
    r = r ? r : buf_adds(&t->calls, ",\"type\":\"function\",\"function\":{");
    r = r ? r : string_field(&t->calls, "name", name);
    r = r ? r : buf_adds(&t->calls, ",");
    r = r ? r : string_field(&t->calls, "arguments", args);
    t->open = true;
    return r ? r : buf_adds(&t->calls, "}}");
}

static int put_output(struct buf *b, const struct pyjson *v, size_t i, struct err *e)
{
    const struct pyjson *id = text_field(v, "call_id"), *o = field(v, "output");
    struct buf text;
    if (!id || !o) {
        return refused(e, i, "output: a function_call_output needs call_id and output");
    }
    buf_init(&text, WEB_BODY_MAX);
    int r = add_parts(&text, o, i, e);
    r = r ? r : buf_adds(b, ",{\"role\":\"tool\",");
    r = r ? r : string_field(b, "tool_call_id", id);
    r = r ? r : buf_adds(b, ",\"content\":");
    r = r ? r : pyjson_write_string(text.p ? text.p : "", text.n, b);
    buf_free(&text);
    return r ? r : buf_adds(b, "}");
}

static int put_plain(struct buf *b, const char *role, const struct pyjson *c, size_t i,
                     struct err *e)
{
    int r = buf_addf(b, ",{\"role\":\"%s\",\"content\":", role);
    if (c->type == PYJSON_STRING) {
        r = r ? r : pyjson_write_string(c->s, c->n, b);
        return r ? r : buf_adds(b, "}");
    }
    /* each part is a text of its own, as in a chat completion */
    r = r ? r : buf_adds(b, "[");
    for (size_t k = 0; c->type == PYJSON_ARRAY && k < c->count && !r; k++) {
        struct buf one;
        const struct pyjson *t = text_field(c->items[k], "text");
        buf_init(&one, WEB_BODY_MAX);
        if (!t || !(pyjson_is(field(c->items[k], "type"), "input_text") ||
                    pyjson_is(field(c->items[k], "type"), "text"))) {
            r = refused(e, i, "content: only input_text parts are supported");
        }
        r = r ? r : buf_adds(b, k ? ",{\"type\":\"text\"," : "{\"type\":\"text\",");
        r = r ? r : string_field(b, "text", t);
        r = r ? r : buf_adds(b, "}");
        buf_free(&one);
    }
    if (!r && c->type != PYJSON_ARRAY) {
        r = refused(e, i, "content: a string or a list of parts");
    }
    return r ? r : buf_adds(b, "]}");
}

static int put_item(struct buf *b, struct turn *t, const struct pyjson *v, size_t i, struct err *e)
{
    const struct pyjson *type = field(v, "type"), *role = field(v, "role"),
                        *c = field(v, "content"), *sum = field(v, "summary");
    if (pyjson_is(type, "function_call")) {
        return put_call(t, v, i, e);
    }
    if (pyjson_is(type, "reasoning")) {
        int r = t->open && (t->text.n || t->calls.n) ? turn_close(t, b) : 0;
        t->open = true;
        return r               ? r
               : c && c->count ? add_parts(&t->think, c, i, e)
               : sum           ? add_parts(&t->think, sum, i, e)
                               : 0;
    }
    if (pyjson_is(type, "function_call_output")) {
        int r = turn_close(t, b);
        return r ? r : put_output(b, v, i, e);
    }
    if (type && !pyjson_is(type, "message")) {
        return refused(e, i,
                       "type: it must be message, reasoning, function_call or "
                       "function_call_output");
    }
    if (!c) {
        return refused(e, i, "content: it is missing");
    }
    if (pyjson_is(role, "assistant")) {
        int r = t->open && (t->text.n || t->calls.n) ? turn_close(t, b) : 0;
        t->open = true;
        return r ? r : add_parts(&t->text, c, i, e);
    }
    int r = turn_close(t, b);
    bool sys = pyjson_is(role, "system") || pyjson_is(role, "developer");
    if (!r && !sys && !pyjson_is(role, "user")) {
        return refused(e, i, "role: it must be user, assistant, system or developer");
    }
    return r ? r : put_plain(b, sys ? "system" : "user", c, i, e);
}

static int put_input(struct buf *b, const struct pyjson *root, struct err *e)
{
    const struct pyjson *in = field(root, "input"), *ins = field(root, "instructions");
    struct turn t = {false, {0}, {0}, {0}};
    size_t begin = b->n;
    buf_init(&t.text, WEB_BODY_MAX);
    buf_init(&t.think, WEB_BODY_MAX);
    buf_init(&t.calls, WEB_BODY_MAX);
    int r = 0;
    if (ins && ins->type != PYJSON_STRING) {
        r = err_set(e, ERR_ARG, "instructions: it must be a string");
    } else if (ins) {
        r = buf_adds(b, ",{\"role\":\"system\",");
        r = r ? r : string_field(b, "content", ins);
        r = r ? r : buf_adds(b, "}");
    }
    if (!r && in && in->type == PYJSON_STRING) {
        r = put_plain(b, "user", in, 0, e);
    } else if (!r && (!in || in->type != PYJSON_ARRAY || !in->count)) {
        r = err_set(e, ERR_ARG, "input: it must be a string or a list of items");
    } else {
        for (size_t i = 0; i < in->count && !r; i++) {
            r = put_item(b, &t, in->items[i], i, e);
        }
        r = r ? r : turn_close(&t, b);
    }
    buf_free(&t.text);
    buf_free(&t.think);
    buf_free(&t.calls);
    if (!r) {
        b->p[begin] = '['; /* in place of the first comma */
        r = buf_adds(b, "]");
    }
    return r;
}

/* ---- tools, form, effort ---- */

static int put_tools(struct buf *b, const struct pyjson *l, struct err *e)
{
    int r = l->type == PYJSON_ARRAY ? buf_adds(b, ",\"tools\":[")
                                    : err_set(e, ERR_ARG, "tools: it must be a list");
    for (size_t i = 0; i < l->count && !r; i++) {
        const struct pyjson *t = l->items[i];
        if (!pyjson_is(field(t, "type"), "function") || !text_field(t, "name")) {
            return err_set(e, ERR_ARG, "tools[%zu].type: only functions with a name are supported",
                           i);
        }
        r = buf_adds(b, i ? ",{\"type\":\"function\",\"function\":{"
                          : "{\"type\":\"function\",\"function\":{");
        bool first = true;
        for (size_t k = 0; k < t->count && !r; k++) {
            const struct pyjson *m = t->items[k];
            if ((m->key_n == 4 && !memcmp(m->key, "type", 4)) || m->type == PYJSON_NULL) {
                continue;
            }
            r = first ? 0 : buf_adds(b, ",");
            r = r ? r : pyjson_write_string(m->key, m->key_n, b);
            r = r ? r : buf_adds(b, ":");
            r = r ? r : pyjson_write(m, 0, b);
            first = false;
        }
        r = r ? r : buf_adds(b, "}}");
    }
    return r ? r : buf_adds(b, "]");
}

static int put_choice(struct buf *b, const struct pyjson *c, struct err *e)
{
    if (c->type == PYJSON_STRING) {
        int r = buf_adds(b, ",");
        return r ? r : string_field(b, "tool_choice", c);
    }
    const struct pyjson *name = text_field(c, "name");
    if (!pyjson_is(field(c, "type"), "function") || !name) {
        return err_set(e, ERR_ARG, "tool_choice: it must be none, auto, required or a function");
    }
    int r = buf_adds(b, ",\"tool_choice\":{\"type\":\"function\",\"function\":{");
    r = r ? r : string_field(b, "name", name);
    return r ? r : buf_adds(b, "}}");
}

static int put_format(struct buf *b, const struct pyjson *f, struct err *e)
{
    const struct pyjson *type = field(f, "type"), *s = field(f, "schema");
    if (!f || pyjson_is(type, "text")) {
        return 0;
    }
    if (pyjson_is(type, "json_object")) {
        return buf_adds(b, ",\"response_format\":{\"type\":\"json_object\"}");
    }
    if (!pyjson_is(type, "json_schema") || !s) {
        return err_set(e, ERR_ARG,
                       "text.format: its type must be text, json_object, or json_schema "
                       "with a schema");
    }
    int r = buf_adds(b, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":"
                        "\"answer\",\"schema\":");
    r = r ? r : pyjson_write(s, 0, b);
    return r ? r : buf_adds(b, "}}");
}

int responses_as_chat(const struct pyjson *root, struct buf *b, struct err *e)
{
    const struct pyjson *tools = field(root, "tools"), *choice = field(root, "tool_choice"),
                        *par = field(root, "parallel_tool_calls"),
                        *effort = field(field(root, "reasoning"), "effort");
    int r = buf_adds(b, "{\"messages\":");
    r = r ? r : put_input(b, root, e);
    r = r ? r : tools && tools->count ? put_tools(b, tools, e) : 0;
    r = r ? r : choice ? put_choice(b, choice, e) : 0;
    r = r ? r : put_format(b, field(field(root, "text"), "format"), e);
    if (!r && par && par->type == PYJSON_FALSE) {
        r = buf_adds(b, ",\"parallel_tool_calls\":false");
    }
    if (!r && effort) {
        r = buf_adds(b, ",\"reasoning_effort\":");
        r = r ? r : pyjson_write(effort, 0, b);
    }
    return r ? r : buf_adds(b, "}");
}
