/* SPDX-License-Identifier: MIT
 * chat_ask.c: oai_int.h: a chat request's prompt, the places where its state is worth keeping, and
 * the form of its answer. */
#include "node/api/oai_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOLS_MAX 1024

/* ---- places worth keeping ---- */

/* Does a message of the user begin at ids[at..]? */
static bool user_begins(const struct oai *o, const struct tok_ids *l, size_t at)
{
    char text[200];
    size_t n = 0;
    for (size_t i = at; i < l->n && i < at + 12 && n < sizeof text - 64; i++) {
        size_t k;
        const char *p = tok_bytes(o->m.tok, l->v[i], &k);
        if (p && k < 64) {
            memcpy(text + n, p, k);
            n += k;
        }
    }
    text[n] = 0;
    return strstr(text, "message role=\"user\"") != NULL;
}

/* Behind what stands before the first message of the user (system text, tools: shared by many
 * chats), and behind the last message (the next turn, or another try, begins there). */
static int bounds(const struct oai *o, struct gen_ask *a, struct err *e)
{
    uint32_t eom, first = 0, last = 0;
    if (!tok_special_id(o->m.tok, "<|end_of_msg|>", &eom)) {
        return 0;
    }
    for (size_t i = 0; i < a->prompt.n; i++) {
        if (a->prompt.v[i] == eom) {
            last = (uint32_t)i + 1;
            if (!first && user_begins(o, &a->prompt, i + 1)) {
                first = last;
            }
        }
    }
    a->bounds = calloc(2, sizeof *a->bounds);
    if (!a->bounds) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (first && first < last) {
        a->bounds[a->n_bounds++] = first;
    }
    if (last) {
        a->bounds[a->n_bounds++] = last;
    }
    return 0;
}

/* ---- the form ---- */

static const struct pyjson *field(const struct pyjson *v, const char *name)
{
    const struct pyjson *x = v && v->type == PYJSON_OBJECT ? pyjson_get(v, name) : NULL;
    return x && x->type != PYJSON_NULL ? x : NULL;
}

static int read_format(const struct pyjson *root, struct grammar_answer *g, struct err *e)
{
    const struct pyjson *f = field(root, "response_format"), *type = field(f, "type"),
                        *s = field(f, "json_schema");
    if (!f || pyjson_is(type, "text")) {
        return 0;
    }
    if (pyjson_is(type, "json_object")) {
        g->json = true;
        return 0;
    }
    if (!pyjson_is(type, "json_schema") || !field(s, "schema")) {
        return err_set(e, ERR_ARG,
                       "response_format: it must be of type text, json_object, or "
                       "json_schema with json_schema.schema");
    }
    g->json = true;
    g->schema = field(s, "schema");
    return 0;
}

static int read_tools(const struct pyjson *root, struct grammar_answer *g,
                      struct grammar_tool *tools, bool *strict, struct err *e)
{
    const struct pyjson *l = field(root, "tools");
    size_t n = l && l->type == PYJSON_ARRAY ? l->count : 0;
    *strict = false;
    if (n > TOOLS_MAX) {
        return err_set(e, ERR_LIMIT, "tools: more than %d", TOOLS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        const struct pyjson *f = field(l->items[i], "function"), *name = field(f, "name"),
                            *s = field(f, "strict");
        if (!name || name->type != PYJSON_STRING || memchr(name->s, 0, name->n)) {
            return err_set(e, ERR_ARG, "tools[%zu].function.name: it must be a string", i);
        }
        tools[i].name = name->s;
        tools[i].parameters = field(f, "parameters");
        tools[i].strict = s && s->type == PYJSON_TRUE;
        *strict = *strict || tools[i].strict;
    }
    g->tools = tools;
    g->n_tools = n;
    return 0;
}

/* tool_choice: which tools, and whether. One that is named is the only one left in the list. */
static int read_choice(const struct pyjson *root, struct grammar_answer *g,
                       struct grammar_tool *tools, bool strict, struct err *e)
{
    const struct pyjson *c = field(root, "tool_choice"), *p = field(root, "parallel_tool_calls");
    g->one_call = p && p->type == PYJSON_FALSE;
    g->calls = g->n_tools && (strict || g->one_call) ? GRAMMAR_MAY_CALL : GRAMMAR_NO_CALLS;
    if (!c || pyjson_is(c, "auto")) {
        return 0;
    }
    if (pyjson_is(c, "none")) {
        g->calls = GRAMMAR_NO_CALLS;
        return 0;
    }
    if (!g->n_tools) {
        return err_set(e, ERR_ARG, "tool_choice: there are no tools to choose from");
    }
    g->calls = GRAMMAR_MUST_CALL;
    if (pyjson_is(c, "required")) {
        return 0;
    }
    const struct pyjson *name = field(field(c, "function"), "name");
    for (size_t i = 0; name && i < g->n_tools; i++) {
        if (pyjson_is(name, tools[i].name)) {
            tools[0] = tools[i];
            g->n_tools = 1;
            g->one_call = true;
            return 0;
        }
    }
    return err_set(e, ERR_ARG,
                   name ? "tool_choice: no tool of that name is given"
                        : "tool_choice: it must be none, auto, required or a function");
}

/* Is anything to be enforced? Calls that nothing narrows need no grammar, nor does "none": the
 * model is told, and what it calls all the same is left out by a grammar without calls. */
static int form(struct oai *o, const struct pyjson *root, struct gen_ask *a, struct err *e)
{
    struct grammar_answer g = {.thinking = a->thinking};
    const struct pyjson *l = field(root, "tools"), *c = field(root, "tool_choice");
    size_t n = l && l->type == PYJSON_ARRAY ? l->count : 0;
    struct grammar_tool *tools = calloc(n ? n : 1, sizeof *tools);
    bool strict;
    if (!tools) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = read_format(root, &g, e);
    r = r ? r : read_tools(root, &g, tools, &strict, e);
    r = r ? r : read_choice(root, &g, tools, strict, e);
    bool none = n && c && pyjson_is(c, "none");
    if (!r && g.json && g.calls == GRAMMAR_NO_CALLS && n && !none) {
        g.calls = GRAMMAR_MAY_CALL; /* JSON is asked for, and tools may be called as well */
    }
    if (!r && (g.json || g.calls != GRAMMAR_NO_CALLS || none)) {
        r = grammar_answer(&g, o->m.tok, &a->grammar, e);
        if (r && !strncmp(e->msg, "schema", 6)) {
            char msg[sizeof e->msg];
            snprintf(msg, sizeof msg, "%s", e->msg);
            err_set(e, r, "response_format.json_schema.%s", msg);
        }
    }
    free(tools);
    return r;
}

int oai_chat_ask(struct oai *o, const char *text, size_t n, const struct pyjson *root,
                 struct gen_ask *a, struct err *e)
{
    struct chat_prompt p;
    int r = chat_render(text, n, o->o.think, &p, e);
    if (r) {
        return r;
    }
    a->chat = true;
    a->thinking = p.think != CHAT_THINK_OFF;
    if (!p.open) {
        r = err_set(e, ERR_ARG, "add_generation_prompt: an answer needs it");
    }
    a->prompt.max = OAI_TOKENS_MAX(o);
    r = r ? r : chat_prompt_ids(&p, o->m.tok, &a->prompt, e);
    chat_prompt_free(&p);
    r = r ? r : bounds(o, a, e);
    r = r ? r : form(o, root, a, e);
    a->request = text;
    a->request_n = n;
    a->fallback = o->o.think;
    return r;
}

int oai_chat_ask_told(struct oai *o, struct buf *chat, struct gen_ask *a, struct err *e)
{
    struct pyjson_doc *d = NULL;
    int r = pyjson_parse(chat->p, chat->n, false, &d, e);
    r = r ? r : oai_chat_ask(o, chat->p, chat->n, pyjson_root(d), a, e);
    pyjson_free(d);
    if (!r) {
        a->own_request = buf_take(chat, NULL);
        a->request = a->own_request;
    }
    return r;
}
