/* SPDX-License-Identifier: MIT
 * chat.c: the order of a prompt and its messages; see chat.h. The rules are those of the reference
 * encoder, listed in README.md. */
#include "node/text/chat.h"

#include "node/text/chat_calls.h"
#include "node/text/chat_out.h"
#include "node/text/chat_str.h"
#include "node/text/chat_think.h"
#include "node/text/pyjson.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct render {
    struct chat_out o;
    enum chat_think think;
    struct err *e;
    const struct pyjson *messages;
    size_t at;               /* the message being rendered */
    struct chat_calls calls; /* of the last assistant message */
    size_t results;          /* tool results since then */
};

/* The sentence "messages[at].FIELD: ...". */
static int fail(struct render *r, int code, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static int fail(struct render *r, int code, const char *field, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(r->e, code, "messages[%zu].%s: %s", r->at, field, what);
}

static bool given(const struct pyjson *v)
{
    return v && v->type != PYJSON_NULL;
}

static int content(struct render *r, const struct pyjson *m)
{
    const struct pyjson *c = pyjson_get(m, "content");
    if (!given(c)) {
        return 0;
    }
    if (c->type == PYJSON_STRING) {
        chat_text(&r->o, c->s, c->n);
        return 0;
    }
    if (c->type != PYJSON_ARRAY) {
        return fail(r, ERR_FORMAT, "content", "must be a string or an array of parts");
    }
    for (size_t i = 0; i < c->count; i++) {
        const struct pyjson *text = pyjson_get(c->items[i], "text");
        const struct pyjson *type = pyjson_get(c->items[i], "type");
        char field[64], shown[CHAT_SHOWN];
        if (!type || type->type != PYJSON_STRING) {
            snprintf(field, sizeof field, "content[%zu].type", i);
            return fail(r, ERR_FORMAT, field,
                        "must be a string; parts look like "
                        "{\"type\": \"text\", \"text\": ...}");
        }
        if (!pyjson_is(type, "text")) {
            snprintf(field, sizeof field, "content[%zu].type", i);
            return fail(r, ERR_UNSUPPORTED, field, "`%s` parts cannot be read; send text",
                        chat_shown(type->s, type->n, shown));
        }
        if (!text || text->type != PYJSON_STRING) {
            snprintf(field, sizeof field, "content[%zu].text", i);
            return fail(r, ERR_FORMAT, field, "must be a string");
        }
        chat_text(&r->o, text->s, text->n); /* each part is tokenised by itself */
    }
    return 0;
}

/* `<|open|>message role="ROLE" [name="NAME"]<|sep|>`; name may be NULL or null. */
static int open_message(struct render *r, const char *role, const struct pyjson *name)
{
    if (given(name) && name->type != PYJSON_STRING) {
        return fail(r, ERR_FORMAT, "name", "must be a string");
    }
    chat_open(&r->o, "message");
    chat_attrs(&r->o, "role", role);
    if (given(name) && name->n) {
        chat_attr(&r->o, "name", name->s, name->n);
    }
    chat_sep(&r->o);
    return 0;
}

/* A system message of the program's own, up to its body. */
static void open_internal(struct chat_out *o, const char *type)
{
    chat_open(o, "message");
    chat_attrs(o, "role", "system");
    chat_attrs(o, "type", type);
    chat_sep(o);
}

/* One body piece: heading, and `json` in a fence. */
static void fenced(struct chat_out *o, const char *heading, const struct pyjson *json)
{
    size_t mark = chat_mark(o);
    if (!o->rc) {
        chat_keep(o, buf_addf(&o->text, "%s```json\n", heading));
    }
    if (!o->rc) {
        chat_keep(o, pyjson_write(json, PYJSON_COMPACT | PYJSON_SORTED, &o->text));
    }
    if (!o->rc) {
        chat_keep(o, buf_adds(&o->text, "\n```"));
    }
    chat_cut(o, mark);
}

/* An absent or empty list counts as none. `field` as in the error sentence. */
static int read_tools(const struct pyjson *tools, const char *field, bool *some, struct err *e)
{
    *some = false;
    if (!given(tools)) {
        return 0;
    }
    if (tools->type != PYJSON_ARRAY) {
        return err_set(e, ERR_FORMAT, "%s: must be an array", field);
    }
    for (size_t i = 0; i < tools->count; i++) {
        if (tools->items[i]->type != PYJSON_OBJECT) {
            return err_set(e, ERR_FORMAT, "%s[%zu]: must be an object", field, i);
        }
    }
    *some = tools->count > 0;
    return 0;
}

static void declare_tools(struct chat_out *o, const struct pyjson *tools, bool more)
{
    open_internal(o, "tool-declare");
    fenced(o,
           more ? "## New Tools Available\n"
                  "The system dynamically extends the toolset via lazy-loading.\n"
                  "You have access to all existing and extended tools.\n"
                  "Here are the specs for the extended tools.\n\n"
                : "# Tools\nHere are the available tools, described in JSONSchema.\n\n",
           tools);
    chat_close_message(o);
}

static void effort_message(struct chat_out *o, enum chat_think think)
{
    const char *name = think == CHAT_THINK_LOW    ? "low"
                       : think == CHAT_THINK_HIGH ? "high"
                       : think == CHAT_THINK_MAX  ? "max"
                                                  : NULL;
    if (!name) {
        return;
    }
    open_internal(o, "thinking-effort");
    size_t mark = chat_mark(o);
    if (!o->rc) {
        chat_keep(o, buf_addf(&o->text,
                              "`thinking_effort` guides on how much to think in your thinking "
                              "channel (not including the response channel), supported values "
                              "include `low`, `medium`, `high`, and `max`.\n"
                              "Now the system is invoked with `thinking_effort=%s`.",
                              name));
    }
    chat_cut(o, mark);
    chat_close_message(o);
}

static int assistant(struct render *r, const struct pyjson *m)
{
    const struct pyjson *why = pyjson_get(m, "reasoning_content");
    const char *field = "reasoning_content";
    int rc;
    if (!given(why) || (why->type == PYJSON_STRING && !why->n)) {
        why = pyjson_get(m, "reasoning");
        field = "reasoning";
    }
    if (given(why) && why->type != PYJSON_STRING) {
        return fail(r, ERR_FORMAT, field, "must be a string");
    }
    r->results = 0;
    if ((rc = open_message(r, "assistant", pyjson_get(m, "name")))) {
        return rc;
    }
    if (r->think != CHAT_THINK_OFF) { /* always there, even when empty */
        chat_element(&r->o, "think");
        if (given(why) && !chat_blank(why->s, why->n)) {
            chat_text(&r->o, why->s, why->n);
        }
        chat_close(&r->o, "think");
    }
    chat_element(&r->o, "response");
    if ((rc = content(r, m))) {
        return rc;
    }
    chat_close(&r->o, "response");
    chat_calls_free(&r->calls);
    if ((rc = chat_calls_render(&r->calls, pyjson_get(m, "tool_calls"), r->at, &r->o, r->e))) {
        return rc;
    }
    chat_close_message(&r->o);
    return 0;
}

struct result {
    size_t call; /* the call it answers */
    size_t at;   /* its message */
};

static int by_call(const void *a, const void *b)
{
    const struct result *x = a, *y = b;
    if (x->call != y->call) {
        return x->call < y->call ? -1 : 1;
    }
    return x->at < y->at ? -1 : x->at > y->at;
}

static int one_result(struct render *r, const struct pyjson *m, const struct pyjson *name)
{
    int rc;
    r->results++;
    if (!given(name)) {
        name = pyjson_get(m, "tool");
    }
    if (!given(name)) {
        name = pyjson_get(m, "name");
    }
    if (!given(name) && r->results <= r->calls.count) {
        name = r->calls.names[r->results - 1];
    }
    if (!given(name)) {
        return fail(r, ERR_FORMAT, "tool_call_id",
                    "matches no call of the assistant message before it, and the message has no "
                    "`name`");
    }
    if (name->type != PYJSON_STRING) {
        return fail(r, ERR_FORMAT, "name", "must be a string");
    }
    chat_open(&r->o, "message");
    chat_attrs(&r->o, "role", "tool");
    chat_attr(&r->o, "tool", name->s, name->n);
    chat_attr_index(&r->o, r->results);
    chat_sep(&r->o);
    if ((rc = content(r, m))) {
        return rc;
    }
    chat_close_message(&r->o);
    return 0;
}

static bool is_result(const struct pyjson *m)
{
    return pyjson_is(pyjson_get(m, "role"), "tool");
}

/* The run of tool messages that begins at r->at; r->at ends on its last one. */
static int results(struct render *r)
{
    size_t from = r->at, n = 0;
    bool matched = true;
    int rc = 0;
    while (from + n < r->messages->count && is_result(r->messages->items[from + n])) {
        n++;
    }
    struct result *run = malloc(n * sizeof *run);
    if (!run) {
        return err_set(r->e, ERR_NOMEM, "out of memory while rendering the prompt");
    }
    for (size_t i = 0; i < n && !rc; i++) {
        const struct pyjson *m = r->messages->items[from + i];
        const struct pyjson *id = pyjson_get(m, "tool_call_id");
        id = given(id) ? id : pyjson_get(m, "id");
        run[i].at = from + i;
        r->at = from + i;
        if (given(id) && id->type != PYJSON_STRING && id->type != PYJSON_NUMBER) {
            rc = fail(r, ERR_FORMAT, "tool_call_id", "must be a string");
        } else {
            matched &= given(id) && chat_calls_find(&r->calls, id, &run[i].call);
        }
    }
    if (!rc && matched) {
        qsort(run, n, sizeof *run, by_call);
    }
    for (size_t i = 0; i < n && !rc; i++) {
        r->at = run[i].at;
        rc = one_result(r, r->messages->items[run[i].at],
                        matched ? r->calls.names[run[i].call] : NULL);
    }
    r->at = from + n - 1;
    free(run);
    return rc;
}

/* Fields of a message that would change the prompt in ways K3's form has no place for. */
static int refuse_unknown(struct render *r, const struct pyjson *m, const struct pyjson *role)
{
    static const char *const refused[] = {"function_call", "audio", "refusal"};
    static const char *const flags[] = {"partial", "prefix"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (given(pyjson_get(m, refused[i]))) {
            return fail(r, ERR_UNSUPPORTED, refused[i], "cannot be put into K3's chat form");
        }
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const struct pyjson *v = pyjson_get(m, flags[i]);
        if (given(v) && v->type != PYJSON_FALSE) {
            return fail(r, ERR_UNSUPPORTED, flags[i],
                        "going on inside a given message is not supported");
        }
    }
    if (given(pyjson_get(m, "tools")) && !pyjson_is(role, "system") &&
        !pyjson_is(role, "developer")) {
        return fail(r, ERR_FORMAT, "tools", "only a system message can declare tools");
    }
    if (given(pyjson_get(m, "tool_calls")) && !pyjson_is(role, "assistant")) {
        return fail(r, ERR_FORMAT, "tool_calls", "only an assistant message can call tools");
    }
    return 0;
}

/* Renders the message at r->at, or the whole run of tool results there. */
static int message(struct render *r)
{
    const struct pyjson *m = r->messages->items[r->at], *role = pyjson_get(m, "role");
    char field[64], shown[CHAT_SHOWN];
    bool tools = false;
    int rc;
    if (m->type != PYJSON_OBJECT) {
        return err_set(r->e, ERR_FORMAT, "messages[%zu]: must be an object", r->at);
    }
    if (!role || role->type != PYJSON_STRING) {
        return fail(r, ERR_FORMAT, "role", "must be a string");
    }
    if ((rc = refuse_unknown(r, m, role))) {
        return rc;
    }
    if (pyjson_is(role, "assistant")) {
        return assistant(r, m);
    }
    if (pyjson_is(role, "tool")) {
        return results(r);
    }
    bool system = pyjson_is(role, "system") || pyjson_is(role, "developer");
    if (!system && !pyjson_is(role, "user")) {
        return fail(r, ERR_UNSUPPORTED, "role",
                    "unknown role `%s`; known are system, developer, user, assistant, tool",
                    chat_shown(role->s, role->n, shown));
    }
    snprintf(field, sizeof field, "messages[%zu].tools", r->at);
    if (system && (rc = read_tools(pyjson_get(m, "tools"), field, &tools, r->e))) {
        return rc;
    }
    if (tools) { /* takes the place of the content, as in the reference */
        declare_tools(&r->o, pyjson_get(m, "tools"), true);
        return 0;
    }
    if ((rc = open_message(r, system ? "system" : "user", pyjson_get(m, "name"))) ||
        (rc = content(r, m))) {
        return rc;
    }
    chat_close_message(&r->o);
    return 0;
}

static int tool_choice(struct render *r, const struct pyjson *v)
{
    bool required = pyjson_is(v, "required");
    if (!given(v) || pyjson_is(v, "auto")) {
        return 0;
    }
    if (v->type == PYJSON_OBJECT) { /* a named function: said to the sampler, not to the model */
        const struct pyjson *name = pyjson_get(pyjson_get(v, "function"), "name");
        if (!pyjson_is(pyjson_get(v, "type"), "function") || !name || name->type != PYJSON_STRING) {
            return err_set(r->e, ERR_UNSUPPORTED,
                           "tool_choice: an object must be {\"type\": \"function\", \"function\": "
                           "{\"name\": ...}}");
        }
        return 0;
    }
    if (!required && !pyjson_is(v, "none")) {
        return err_set(r->e, ERR_FORMAT,
                       "tool_choice: must be auto, none, required or a named function");
    }
    open_internal(&r->o, "tool-choice");
    chat_texts(&r->o, required ? "The system is invoked with `tool_choice=required`.\n"
                                 "You MUST call tools in the next message."
                               : "The system is invoked with `tool_choice=none`.\n"
                                 "You MUST NOT call any tools in the next message.");
    chat_close_message(&r->o);
    return 0;
}

/* The schema object inside response_format: json_schema.schema, or a schema given bare. */
static int read_schema(const struct pyjson *format, const struct pyjson **out, struct err *e)
{
    const struct pyjson *outer = pyjson_get(format, "json_schema");
    const struct pyjson *v = pyjson_get(outer, "schema");
    v = v ? v : pyjson_get(outer, "json_schema");
    v = v ? v : pyjson_get(outer, "name") ? NULL : outer;
    v = given(outer) ? v : pyjson_get(format, "schema");
    if (!v || (v->type != PYJSON_OBJECT && v->type != PYJSON_TRUE && v->type != PYJSON_FALSE)) {
        return err_set(e, ERR_FORMAT, "response_format.json_schema.schema: must be a JSON schema");
    }
    *out = v;
    return 0;
}

#define RAW_JSON                                                                         \
    "Your response must be raw JSON data without markdown code blocks (```json) or any " \
    "additional formatting."

static int response_format(struct render *r, const struct pyjson *v)
{
    const struct pyjson *type = pyjson_get(v, "type"), *schema = NULL;
    int rc;
    if (!given(v)) {
        return 0;
    }
    if (v->type != PYJSON_OBJECT || !type || type->type != PYJSON_STRING) {
        return err_set(r->e, ERR_FORMAT, "response_format: must be an object with a `type`");
    }
    if (pyjson_is(type, "text")) {
        return 0;
    }
    if (pyjson_is(type, "json_object")) {
        open_internal(&r->o, "response-format");
        chat_texts(&r->o, "The system is invoked with `response_format=json_object`.\n" RAW_JSON);
    } else if (pyjson_is(type, "json_schema")) {
        if ((rc = read_schema(v, &schema, r->e))) {
            return rc;
        }
        open_internal(&r->o, "response-format");
        fenced(&r->o,
               "The system is invoked with `response_format=json_schema`.\n" RAW_JSON
               "\nThe JSON data must match the following schema:\n",
               schema);
    } else {
        return err_set(r->e, ERR_UNSUPPORTED,
                       "response_format.type: must be text, json_object or json_schema");
    }
    chat_close_message(&r->o);
    return 0;
}

/* Whether to end with the begin of the answer. */
static int read_open(const struct pyjson *q, bool *open, struct err *e)
{
    const struct pyjson *v = pyjson_get(q, "add_generation_prompt");
    v = given(v) ? v : pyjson_get(pyjson_get(q, "chat_template_kwargs"), "add_generation_prompt");
    *open = !given(v) || v->type == PYJSON_TRUE;
    return *open || v->type == PYJSON_FALSE
               ? 0
               : err_set(e, ERR_FORMAT, "add_generation_prompt: must be true or false");
}

/* Fields of a request that ask for another prompt than this one. */
static int refuse_unknown_top(const struct pyjson *q, struct err *e)
{
    static const char *const refused[] = {
        "functions",  "function_call", "continue_final_message", "chat_template",  "documents",
        "prediction", "audio",         "web_search_options",     "response_schema"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct pyjson *v = pyjson_get(q, refused[i]);
        if (given(v) && v->type != PYJSON_FALSE) {
            return err_set(e, ERR_UNSUPPORTED, "%s: not supported", refused[i]);
        }
    }
    return 0;
}

static int render(struct render *r, const struct pyjson *q, bool *open)
{
    const struct pyjson *tools = pyjson_get(q, "tools");
    bool some;
    int rc;
    r->messages = pyjson_get(q, "messages");
    if (!r->messages || r->messages->type != PYJSON_ARRAY || !r->messages->count) {
        return err_set(r->e, ERR_FORMAT, "messages: must be an array with at least one message");
    }
    if ((rc = refuse_unknown_top(q, r->e)) || (rc = read_open(q, open, r->e)) ||
        (rc = read_tools(tools, "tools", &some, r->e))) {
        return rc;
    }
    if (some) {
        declare_tools(&r->o, tools, false);
    }
    effort_message(&r->o, r->think);
    for (r->at = 0; r->at < r->messages->count; r->at++) {
        if ((rc = message(r))) {
            return rc;
        }
    }
    if ((rc = tool_choice(r, pyjson_get(q, "tool_choice"))) ||
        (rc = response_format(r, pyjson_get(q, "response_format")))) {
        return rc;
    }
    if (*open) {
        chat_open(&r->o, "message");
        chat_attrs(&r->o, "role", "assistant");
        chat_sep(&r->o);
        chat_element(&r->o, r->think == CHAT_THINK_OFF ? "response" : "think");
    }
    return 0;
}

int chat_render(const char *request, size_t n, enum chat_think fallback, struct chat_prompt *out,
                struct err *e)
{
    struct err own = {0};
    struct render r = {.e = e ? e : &own};
    struct pyjson_doc *doc;
    bool open = true;
    memset(out, 0, sizeof *out);
    if (n > CHAT_MAX_REQUEST) {
        return err_set(e, ERR_LIMIT, "request: %zu bytes; at most %zu are taken", n,
                       CHAT_MAX_REQUEST);
    }
    int rc = pyjson_parse(request, n, true, &doc, r.e);
    if (rc) {
        return rc == ERR_NOMEM ? rc : err_prefix(r.e, "request");
    }
    const struct pyjson *q = pyjson_root(doc);
    chat_out_init(&r.o);
    rc = q->type == PYJSON_OBJECT ? chat_think_read(q, fallback, &r.think, r.e)
                                  : err_set(r.e, ERR_FORMAT, "request: must be a JSON object");
    rc = rc ? rc : render(&r, q, &open);
    if (rc) {
        chat_out_free(&r.o);
    } else {
        rc = chat_out_end(&r.o, out, r.e);
    }
    if (!rc) {
        out->think = r.think;
        out->open = open;
    }
    chat_calls_free(&r.calls);
    pyjson_free(doc);
    return rc;
}

int chat_simple(const char *user, const char *system, enum chat_think think,
                struct chat_prompt *out, struct err *e)
{
    struct buf q;
    buf_init(&q, CHAT_MAX_REQUEST);
    memset(out, 0, sizeof *out);
    int rc = buf_adds(&q, "{\"messages\":[");
    if (!rc && system) {
        rc = buf_adds(&q, "{\"role\":\"system\",\"content\":");
        rc = rc ? rc : pyjson_write_string(system, strlen(system), &q);
        rc = rc ? rc : buf_adds(&q, "},");
    }
    rc = rc ? rc : buf_adds(&q, "{\"role\":\"user\",\"content\":");
    rc = rc ? rc : pyjson_write_string(user, strlen(user), &q);
    rc = rc ? rc : buf_adds(&q, "}]}");
    rc = rc ? err_set(e, rc, "request: %s", err_text(rc)) : chat_render(q.p, q.n, think, out, e);
    buf_free(&q);
    return rc;
}

void chat_prompt_free(struct chat_prompt *p)
{
    free(p->text);
    free(p->segs);
    memset(p, 0, sizeof *p);
}

int chat_prompt_ids(const struct chat_prompt *p, const struct tok *t, struct tok_ids *out,
                    struct err *e)
{
    size_t had = out->n;
    for (size_t i = 0; i < p->nsegs; i++) {
        const struct chat_seg *s = &p->segs[i];
        int rc = tok_encode(t, p->text + s->off, s->n, s->trusted, out, e);
        if (rc) {
            out->n = had;
            return rc;
        }
    }
    return 0;
}
