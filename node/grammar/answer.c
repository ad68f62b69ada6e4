/* SPDX-License-Identifier: MIT
 * answer.c: grammar.h: the form of K3's answers (node/text/README.md) as rules: channels by special
 * tokens, tool calls with arguments between tags, JSON within the response. */
#include "node/grammar/schema_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer {
    struct gram_builder *b;
    const struct grammar_answer *o;
    uint32_t open, close, sep, eom; /* numbers of special tokens */
};

static uint32_t opening(struct answer *a, const char *tag, uint32_t next)
{
    return gram_special(a->b, a->open, gram_str(a->b, tag, gram_special(a->b, a->sep, next)));
}

static uint32_t closing(struct answer *a, const char *tag, uint32_t next)
{
    return gram_special(a->b, a->close, gram_str(a->b, tag, gram_special(a->b, a->sep, next)));
}

/* A value of an attribute: & and " as K3 writes them. */
static uint32_t attribute(struct answer *a, const char *s, size_t n, uint32_t next)
{
    while (n--) {
        char c = s[n];
        next = c == '&'   ? gram_str(a->b, "&amp;", next)
               : c == '"' ? gram_str(a->b, "&quot;", next)
                          : gram_lit(a->b, &c, 1, next);
    }
    return next;
}

/* ---- arguments ---- */

/* What `type` an argument of this schema is declared with, and whether its value stands raw. */
static const char *type_of(struct gram_schema *s, const struct pyjson *v, const char *at)
{
    static const char *const names[] = {"string", "object", "array", "boolean", "null", "number"};
    v = gram_schema_deref(s, v, at);
    const struct pyjson *t = v ? gram_get(v, "type") : NULL, *en = v ? gram_get(v, "enum") : NULL,
                        *c = v ? gram_get(v, "const") : NULL;
    c = c ? c : en && en->type == PYJSON_ARRAY && en->count ? en->items[0] : NULL;
    for (size_t i = 1; !t && c && en && en->type == PYJSON_ARRAY && i < en->count; i++) {
        if (en->items[i]->type != c->type) {
            return NULL; /* several types */
        }
    }
    if (!t && c) {
        return c->type == PYJSON_STRING                            ? "string"
               : c->type == PYJSON_NUMBER                          ? "number"
               : c->type == PYJSON_TRUE || c->type == PYJSON_FALSE ? "boolean"
               : c->type == PYJSON_NULL                            ? "null"
               : c->type == PYJSON_ARRAY                           ? "array"
                                                                   : "object";
    }
    for (size_t i = 0; t && i < sizeof names / sizeof *names; i++) {
        if (gram_type_is(t, names[i])) {
            return names[i];
        }
    }
    return t ? "number" : NULL; /* integers are numbers to K3 */
}

static uint32_t argument(struct answer *a, const char *key, size_t n, const char *type,
                         uint32_t value)
{
    uint32_t r = gram_special(a->b, a->sep, value);
    r = gram_str(a->b, "\"", r);
    r = gram_str(a->b, "\" type=\"", gram_str(a->b, type, r));
    r = gram_str(a->b, "argument key=\"", attribute(a, key, n, r));
    return gram_special(a->b, a->open, r);
}

/* The schemas that an argument may follow: those of anyOf, or itself; each with its own type. */
static uint32_t one_argument(struct answer *a, struct gram_schema *s, const struct pyjson *m,
                             const char *at, uint32_t next)
{
    const struct pyjson *v = gram_schema_deref(s, m, at), *some = NULL;
    uint32_t end = closing(a, "argument", next), r = GRAM_NONE;
    if (v && v->type == PYJSON_OBJECT) {
        some = gram_get(v, "anyOf") ? gram_get(v, "anyOf") : gram_get(v, "oneOf");
    }
    size_t n = some && some->type == PYJSON_ARRAY ? some->count : 1;
    if (some && (!gram_schema_check(s, v, at) || gram_get(v, "allOf") ||
                 !gram_beside(s, v, some, "anyOf", at) ||
                 (gram_get(v, "oneOf") && !gram_apart(s, some, at)))) {
        gram_fail(a->b, ERR_UNSUPPORTED, "%s.allOf: beside alternatives it is not supported", at);
        return 0;
    }
    for (size_t i = 0; i < n && v && !a->b->err.code; i++) {
        const struct pyjson *x = some ? some->items[i] : v;
        const char *type = type_of(s, x, at);
        const struct pyjson *t = gram_get(gram_schema_deref(s, x, at), "type");
        if (!type || (t && t->type == PYJSON_ARRAY && t->count > 1)) {
            type = NULL;
        }
        uint32_t one;
        if (type) {
            one = argument(a, m->key, m->key_n, type,
                           gram_schema_value(s, x, !strcmp(type, "string"), at, end));
        } else { /* several types: a string stands raw, anything else as JSON */
            gram_fail(a->b, ERR_UNSUPPORTED,
                      "%s: an argument of a strict tool needs one type; give alternatives by anyOf",
                      at);
            return 0;
        }
        r = r == GRAM_NONE ? one : gram_alt(a->b, r, one);
    }
    return a->b->err.code ? 0 : r;
}

static uint32_t strict_arguments(struct answer *a, const struct grammar_tool *t, const char *at,
                                 uint32_t next)
{
    struct gram_schema s = {.b = a->b, .root = t->parameters};
    static const char *const not_here[] = {"anyOf", "oneOf", "allOf", "enum", "const"};
    const struct pyjson *v = gram_schema_deref(&s, t->parameters, at);
    const struct pyjson *props = v ? gram_get(v, "properties") : NULL;
    const struct pyjson *required = v ? gram_get(v, "required") : NULL;
    if (v && v->type != PYJSON_OBJECT) {
        gram_fail(a->b, ERR_FORMAT, "%s: it must be a schema of an object", at);
    }
    if (!v || a->b->err.code || !gram_schema_check(&s, v, at) || !gram_object_check(&s, v, at)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof not_here / sizeof *not_here; i++) {
        if (gram_get(v, not_here[i])) {
            gram_fail(a->b, ERR_UNSUPPORTED, "%s.%s: around a tool's arguments it is not supported",
                      at, not_here[i]);
        }
    }
    const struct pyjson *own = gram_get(v, "type"), *few = gram_get(v, "minProperties");
    if (!gram_type_is(own, "object")) {
        gram_fail(a->b, ERR_FORMAT, "%s.type: a tool's arguments are an object", at);
    }
    if (few && strcmp(few->s, "0") != 0 && !(required && required->count)) {
        gram_fail(
            a->b, ERR_UNSUPPORTED,
            "%s.minProperties: of a tool's arguments it is not supported; name those that are "
            "required",
            at);
    }
    for (size_t i = props && props->type == PYJSON_OBJECT ? props->count : 0;
         i-- > 0 && !a->b->err.code;) {
        const struct pyjson *m = props->items[i];
        char place[GRAM_PLACE];
        bool must = false;
        gram_place(place, at, m->key, m->key_n);
        for (size_t k = 0; required && required->type == PYJSON_ARRAY && k < required->count; k++) {
            const struct pyjson *q = required->items[k];
            must = must ||
                   (q->type == PYJSON_STRING && q->n == m->key_n && !memcmp(q->s, m->key, q->n));
        }
        uint32_t one = one_argument(a, &s, m, place, next);
        next = must ? one : gram_alt(a->b, one, next);
    }
    gram_schema_done(&s);
    return next;
}

/* Any names, any types. */
static uint32_t free_arguments(struct answer *a, uint32_t next)
{
    struct gram_builder *b = a->b;
    uint32_t rule = gram_rule_new(b), end = closing(a, "argument", gram_ret(b));
    static const char *const types[] = {"object", "array", "boolean", "null", "number"};
    uint32_t typed = gram_str(b, "string\"", gram_special(b, a->sep, gram_raw_any(b, end)));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        uint32_t v = i == 0   ? gram_any_object(b, false, end)
                     : i == 1 ? gram_any_array(b, end)
                     : i == 2 ? gram_alt(b, gram_str(b, "true", end), gram_str(b, "false", end))
                     : i == 3 ? gram_str(b, "null", end)
                              : gram_number_any(b, false, end);
        uint32_t one = gram_str(b, types[i], gram_str(b, "\"", gram_special(b, a->sep, v)));
        typed = gram_alt(b, typed, one);
    }
    struct gram_set letters = {{0}};
    for (unsigned c = 0x20; c < 0x7F; c++) {
        if (c != '"' && c != '&') {
            gram_set_add(&letters, c);
        }
    }
    uint32_t loop = gram_hole(b), rest = gram_str(b, "\" type=\"", typed);
    uint32_t one = gram_alt(b, gram_bytes(b, &letters, loop), gram_points(b, 0x80, 0x10FFFF, loop));
    gram_fill(b, loop, one, rest);
    gram_rule_set(b, rule, gram_special(b, a->open, gram_str(b, "argument key=\"", one)));
    return gram_repeat(b, rule, 0, GRAM_NONE, NULL, next);
}

/* ---- calls ---- */

/* The arguments of a tool as a rule: it stands in each of the calls that there may be. */
static uint32_t arguments(struct answer *a, const struct grammar_tool *t)
{
    struct gram_builder *b = a->b;
    char at[GRAM_PLACE];
    if (!t->parameters || b->err.code) {
        return GRAM_NONE;
    }
    snprintf(at, sizeof at, "tools.%.80s.parameters", t->name);
    uint32_t rule = gram_rule_new(b), end = gram_ret(b);
    gram_rule_set(b, rule, t->strict ? strict_arguments(a, t, at, end) : free_arguments(a, end));
    return rule;
}

static uint32_t call_of(struct answer *a, const struct grammar_tool *t, uint32_t args,
                        unsigned index, uint32_t next)
{
    struct gram_builder *b = a->b;
    char tail[40];
    snprintf(tail, sizeof tail, "\" index=\"%u\"", index);
    uint32_t r = closing(a, "call", next);
    r = args == GRAM_NONE ? r : gram_call(b, args, r);
    r = gram_special(b, a->sep, r);
    r = gram_str(b, "call tool=\"", attribute(a, t->name, strlen(t->name), gram_str(b, tail, r)));
    return gram_special(b, a->open, r);
}

#define CALLS_MAX 16 /* in one answer whose calls are enforced */

static uint32_t calls(struct answer *a, uint32_t next)
{
    uint32_t end = closing(a, "tools", next), r = end, any = GRAM_NONE;
    uint32_t *args = malloc(a->o->n_tools * sizeof *args);
    if (!args) {
        gram_fail(a->b, ERR_NOMEM, "out of memory for a grammar");
        return 0;
    }
    for (size_t k = 0; k < a->o->n_tools; k++) {
        const struct grammar_tool *t = &a->o->tools[k];
        bool is_free = t->parameters && !t->strict; /* one and the same for all of these */
        args[k] = is_free && any != GRAM_NONE ? any : arguments(a, t);
        any = is_free ? args[k] : any;
    }
    for (unsigned i = a->o->one_call ? 1 : CALLS_MAX; i > 0 && !a->b->err.code; i--) {
        uint32_t one = GRAM_NONE;
        for (size_t k = 0; k < a->o->n_tools; k++) {
            uint32_t c = call_of(a, &a->o->tools[k], args[k], i, r);
            one = one == GRAM_NONE ? c : gram_alt(a->b, one, c);
        }
        r = i > 1 ? gram_alt(a->b, one, end) : one;
    }
    free(args);
    return opening(a, "tools", r);
}

int grammar_answer(const struct grammar_answer *o, const struct tok *t, struct grammar **out,
                   struct err *e)
{
    struct gram_builder b;
    struct answer a = {.b = &b, .o = o};
    static const char *const names[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"};
    uint32_t *to[] = {&a.open, &a.close, &a.sep, &a.eom};
    *out = NULL;
    for (size_t i = 0; i < 4; i++) {
        uint32_t id;
        if (!tok_special_id(t, names[i], &id)) {
            return err_set(e, ERR_FORMAT, "the tokenizer has no %s: answers have no form",
                           names[i]);
        }
        *to[i] = id - tok_ranks(t);
    }
    if (o->calls != GRAMMAR_NO_CALLS && !o->n_tools) {
        return err_set(e, ERR_ARG, "tools: there is none that may be called");
    }
    if (gram_begin(&b)) {
        if (e) {
            *e = b.err;
        }
        return b.err.code;
    }
    struct gram_schema s = {.b = &b, .root = o->schema};
    uint32_t rule = gram_rule_new(&b), end = gram_special(&b, a.eom, gram_ret(&b));
    uint32_t r = closing(&a, "message", end);
    if (o->calls != GRAMMAR_NO_CALLS) {
        uint32_t c = calls(&a, r);
        r = o->calls == GRAMMAR_MUST_CALL ? c : gram_alt(&b, c, r);
    }
    r = closing(&a, "response", r);
    if (o->json) {
        uint32_t ws = gram_ws(&b, r);
        r = gram_ws(&b, o->schema ? gram_schema_value(&s, o->schema, false, "schema", ws)
                                  : gram_any_object(&b, false, ws));
    } else {
        r = gram_raw_any(&b, r);
    }
    if (o->thinking) {
        r = gram_raw_any(&b, closing(&a, "think", opening(&a, "response", r)));
    }
    gram_rule_set(&b, rule, r);
    gram_schema_done(&s);
    return gram_end(&b, rule, out, e);
}
