/* SPDX-License-Identifier: MIT
 * schema.c: rules.h: a JSON schema (the subset of README.md) becomes rules. Whatever the rules let
 * through fits the schema; they may let through less (README.md says where). A keyword that would
 * narrow it and is not known here is refused by its place. */
#include "node/grammar/schema_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEST_MAX 100
#define WORK_MAX 30000000u /* comparisons: a fraction of a second */

const struct pyjson *gram_get(const struct pyjson *v, const char *key)
{
    return v && v->type == PYJSON_OBJECT ? pyjson_get(v, key) : NULL;
}

bool gram_work(struct gram_schema *s, uint64_t n)
{
    s->b->work += n;
    if (s->b->work > WORK_MAX) {
        gram_fail(s->b, ERR_LIMIT, "schema: it has too many properties or alternatives");
    }
    return !s->b->err.code;
}

void gram_place(char out[GRAM_PLACE], const char *at, const char *key, size_t n)
{
    snprintf(out, GRAM_PLACE, "%s.%.*s", at, (int)(n < 60 ? n : 60), key);
}

static void item_place(char out[GRAM_PLACE], const char *at, const char *key, size_t i)
{
    snprintf(out, GRAM_PLACE, "%s.%s[%zu]", at, key, i);
}

/* ---- keywords ---- */

/* Those that say nothing about the value, and those that are read here. */
static bool known(const struct pyjson *key)
{
    static const char *const names[] = {"title",
                                        "description",
                                        "default",
                                        "examples",
                                        "example",
                                        "$schema",
                                        "$id",
                                        "$comment",
                                        "$anchor",
                                        "deprecated",
                                        "readOnly",
                                        "writeOnly",
                                        "contentMediaType",
                                        "contentEncoding",
                                        "$defs",
                                        "definitions",
                                        "type",
                                        "enum",
                                        "const",
                                        "properties",
                                        "required",
                                        "additionalProperties",
                                        "items",
                                        "prefixItems",
                                        "minItems",
                                        "maxItems",
                                        "minLength",
                                        "maxLength",
                                        "pattern",
                                        "format",
                                        "minimum",
                                        "maximum",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        "multipleOf",
                                        "anyOf",
                                        "oneOf",
                                        "allOf",
                                        "$ref",
                                        "strict",
                                        "uniqueItems",
                                        "minProperties",
                                        "propertyNames",
                                        "nullable",
                                        NULL};
    for (size_t i = 0; names[i]; i++) {
        if (key->key_n == strlen(names[i]) && !memcmp(key->key, names[i], key->key_n)) {
            return true;
        }
    }
    return false;
}

bool gram_schema_check(struct gram_schema *s, const struct pyjson *v, const char *at)
{
    for (size_t i = 0; i < v->count; i++) {
        const struct pyjson *k = v->items[i];
        if (!known(k)) {
            gram_fail(s->b, ERR_UNSUPPORTED, "%s.%.*s: this keyword is not supported", at,
                      (int)(k->key_n < 60 ? k->key_n : 60), k->key);
            return false;
        }
    }
    const struct pyjson *u = gram_get(v, "uniqueItems"), *p = gram_get(v, "minProperties");
    if (u && u->type != PYJSON_FALSE) {
        gram_fail(s->b, ERR_UNSUPPORTED, "%s.uniqueItems: this keyword is not supported", at);
        return false;
    }
    const struct pyjson *names = gram_get(v, "propertyNames");
    if (names && (names->type != PYJSON_OBJECT || names->count > 1 ||
                  (names->count && !pyjson_is(gram_get(names, "type"), "string")))) {
        gram_fail(s->b, ERR_UNSUPPORTED,
                  "%s.propertyNames: only {\"type\": \"string\"} is supported", at);
        return false;
    }
    if (p && !(p->type == PYJSON_NUMBER && (!strcmp(p->s, "0") || !strcmp(p->s, "1")))) {
        gram_fail(s->b, ERR_UNSUPPORTED, "%s.minProperties: only 0 and 1 are supported", at);
        return false;
    }
    return true;
}

/* ---- references ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static const struct pyjson *pointer(struct gram_schema *s, const struct pyjson *ref, const char *at)
{
    const struct pyjson *v = s->root;
    const char *p = ref->s, *end = p + ref->n;
    if (p == end || *p != '#' || (end - p > 1 && p[1] != '/')) {
        gram_fail(s->b, ERR_UNSUPPORTED,
                  "%s.$ref: only references within the schema (#/...) are "
                  "supported",
                  at);
        return NULL;
    }
    p++;
    while (p < end) {
        char key[256];
        size_t n = 0;
        bool good = true;
        for (p++; p < end && *p != '/'; p++) {
            char c = *p;
            good = good && n + 1 < sizeof key;
            if (c == '%') { /* a reference is part of an address */
                int hi = end - p > 2 ? hex(p[1]) : -1, lo = end - p > 2 ? hex(p[2]) : -1;
                c = (char)(hi * 16 + lo);
                good = good && hi >= 0 && lo >= 0 && c && c != '/' && c != '~';
                p += good ? 2 : 0;
            } else if (c == '~' && end - p > 1 && (p[1] == '0' || p[1] == '1')) {
                c = *++p == '0' ? '~' : '/';
            }
            if (good) {
                key[n++] = c;
            }
        }
        key[n] = 0;
        v = good ? v : NULL;
        if (v && v->type == PYJSON_ARRAY) {
            char *stop;
            unsigned long i = strtoul(key, &stop, 10);
            v = n && !*stop && i < v->count ? v->items[i] : NULL;
        } else {
            v = v ? gram_get(v, key) : NULL;
        }
        if (!v) {
            gram_fail(s->b, ERR_FORMAT, "%s.$ref: the schema has nothing at `%.*s`", at,
                      (int)(ref->n < 100 ? ref->n : 100), ref->s);
            return NULL;
        }
    }
    return v;
}

const struct pyjson *gram_schema_deref(struct gram_schema *s, const struct pyjson *v,
                                       const char *at)
{
    for (int i = 0; v && i < NEST_MAX; i++) {
        const struct pyjson *ref = gram_get(v, "$ref");
        if (!ref) {
            return v;
        }
        if (ref->type != PYJSON_STRING) {
            gram_fail(s->b, ERR_FORMAT, "%s.$ref: it must be a string", at);
            return NULL;
        }
        for (size_t k = 0; k < v->count; k++) { /* what stands beside it would count as well */
            const struct pyjson *x = v->items[k];
            static const char *const beside[] = {
                "$ref",        "description", "title", "default",  "examples",   "$defs",
                "definitions", "$schema",     "$id",   "$comment", "deprecated", NULL};
            bool fine = false;
            for (size_t j = 0; beside[j]; j++) {
                fine =
                    fine || (x->key_n == strlen(beside[j]) && !memcmp(x->key, beside[j], x->key_n));
            }
            if (!fine) {
                gram_fail(s->b, ERR_UNSUPPORTED, "%s.%.*s: it is not supported beside $ref", at,
                          (int)(x->key_n < 60 ? x->key_n : 60), x->key);
                return NULL;
            }
        }
        v = pointer(s, ref, at);
    }
    if (v) {
        gram_fail(s->b, ERR_UNSUPPORTED, "%s.$ref: it leads back to itself", at);
    }
    return NULL;
}

/* ---- literals ---- */

/* A fixed value as JSON, objects and arrays without blanks. */
static uint32_t literal(struct gram_schema *s, const struct pyjson *v, bool raw, uint32_t next)
{
    if (v->type == PYJSON_STRING) {
        if (raw) {
            return gram_text(s->b, v->s, v->n, true, next);
        }
        return gram_str(s->b, "\"", gram_text(s->b, v->s, v->n, false, gram_str(s->b, "\"", next)));
    }
    struct buf out;
    buf_init(&out, GRAMMAR_SCHEMA_MAX);
    int r = pyjson_write(v, PYJSON_COMPACT, &out);
    if (r) {
        gram_fail(s->b, r, "schema: a constant: %s", err_text(r));
    }
    uint32_t first = r ? 0 : gram_lit(s->b, out.p, out.n, next);
    buf_free(&out);
    return first;
}

/* ---- types ---- */

bool gram_type_is(const struct pyjson *t, const char *name)
{
    if (!t) {
        return true; /* no type: all of them */
    }
    if (t->type == PYJSON_STRING) {
        return pyjson_is(t, name);
    }
    for (size_t i = 0; t->type == PYJSON_ARRAY && i < t->count; i++) {
        if (pyjson_is(t->items[i], name)) {
            return true;
        }
    }
    return false;
}

static bool check_type(struct gram_schema *s, const struct pyjson *t, const char *at)
{
    static const char *const names[] = {"object",  "array",   "string", "number",
                                        "integer", "boolean", "null",   NULL};
    if (!t) {
        return true;
    }
    size_t n = t->type == PYJSON_ARRAY ? t->count : 1;
    for (size_t i = 0; i < n; i++) {
        const struct pyjson *x = t->type == PYJSON_ARRAY ? t->items[i] : t;
        bool fine = false;
        for (size_t k = 0; names[k]; k++) {
            fine = fine || pyjson_is(x, names[k]);
        }
        if (!fine) {
            gram_fail(s->b, ERR_FORMAT,
                      "%s.type: it must be one of object, array, string, number, "
                      "integer, boolean, null, or a list of these",
                      at);
            return false;
        }
    }
    if (n == 0) {
        gram_fail(s->b, ERR_FORMAT, "%s.type: an empty list", at);
    }
    return n > 0;
}

static uint32_t either(struct gram_schema *s, uint32_t a, uint32_t b)
{
    return a == GRAM_NONE ? b : gram_alt(s->b, a, b);
}

static uint32_t typed(struct gram_schema *s, const struct pyjson *v, bool raw, const char *at,
                      uint32_t next)
{
    const struct pyjson *t = gram_get(v, "type");
    const struct pyjson *nullable = gram_get(v, "nullable");
    uint32_t r = GRAM_NONE;
    if (!check_type(s, t, at)) {
        return 0;
    }
    bool bare = v->count == 0 || (v->count == 1 && nullable);
    if (bare && !raw) {
        return gram_any(s->b, next);
    }
    if (gram_type_is(t, "string")) {
        r = gram_schema_string(s, v, raw, at, next);
    }
    if (raw && r != GRAM_NONE) {
        return r; /* text between tags is a string whenever it may be one */
    }
    if (gram_type_is(t, "object")) {
        r = either(s, r, gram_schema_object(s, v, at, next));
    }
    if (gram_type_is(t, "array")) {
        r = either(s, r, gram_schema_array(s, v, at, next));
    }
    bool number = gram_type_is(t, "number");
    if (number || gram_type_is(t, "integer")) {
        r = either(s, r, gram_schema_number(s, v, !number, at, next));
    }
    if (gram_type_is(t, "boolean")) {
        r = either(s, r, gram_str(s->b, "true", next));
        r = either(s, r, gram_str(s->b, "false", next));
    }
    if (gram_type_is(t, "null") || (nullable && nullable->type == PYJSON_TRUE)) {
        r = either(s, r, gram_str(s->b, "null", next));
    }
    return r;
}

/* ---- alternatives ---- */

static uint32_t any_of(struct gram_schema *s, const struct pyjson *v, const char *key, bool raw,
                       const char *at, uint32_t next)
{
    const struct pyjson *l = gram_get(v, key);
    uint32_t r = GRAM_NONE;
    if (l->type != PYJSON_ARRAY || !l->count) {
        gram_fail(s->b, ERR_FORMAT, "%s.%s: it must be a list of schemas", at, key);
        return 0;
    }
    if (!gram_beside(s, v, l, key, at) || (!strcmp(key, "oneOf") && !gram_apart(s, l, at))) {
        return 0;
    }
    for (size_t i = 0; i < l->count && !s->b->err.code; i++) {
        char place[GRAM_PLACE];
        item_place(place, at, key, i);
        r = either(s, r, gram_schema_value(s, l->items[i], raw, place, next));
    }
    return r;
}

static uint32_t value(struct gram_schema *s, const struct pyjson *v, bool raw, const char *at,
                      uint32_t next)
{
    if (v->type == PYJSON_TRUE) {
        return raw ? gram_raw_any(s->b, next) : gram_any(s->b, next);
    }
    if (v->type != PYJSON_OBJECT) {
        gram_fail(s->b, v->type == PYJSON_FALSE ? ERR_UNSUPPORTED : ERR_FORMAT,
                  v->type == PYJSON_FALSE ? "%s: nothing fits the schema false"
                                          : "%s: a schema must be an object or true",
                  at);
        return 0;
    }
    if (!gram_schema_check(s, v, at)) {
        return 0;
    }
    const struct pyjson *c = gram_get(v, "const"), *en = gram_get(v, "enum"),
                        *all = gram_get(v, "allOf");
    const char *some = gram_get(v, "anyOf") ? "anyOf" : gram_get(v, "oneOf") ? "oneOf" : NULL;
    if (some && all) {
        gram_fail(s->b, ERR_UNSUPPORTED, "%s.allOf: beside %s it is not supported", at, some);
        return 0;
    }
    if (gram_get(v, "anyOf") && gram_get(v, "oneOf")) {
        gram_fail(s->b, ERR_UNSUPPORTED, "%s.oneOf: beside anyOf it is not supported", at);
        return 0;
    }
    if (all && !c && !en && gram_string_all(v, all)) {
        return gram_schema_string(s, v, raw, at, next);
    }
    if (all) {
        if (all->type != PYJSON_ARRAY || all->count != 1) {
            gram_fail(s->b, ERR_UNSUPPORTED, "%s.allOf: more than one schema is not supported", at);
            return 0;
        }
        if (!gram_beside(s, v, all, "allOf", at)) {
            return 0;
        }
        char place[GRAM_PLACE];
        item_place(place, at, "allOf", 0);
        return gram_schema_value(s, all->items[0], raw, place, next);
    }
    if (some) {
        return any_of(s, v, some, raw, at, next);
    }
    if (c && en) {
        gram_fail(s->b, ERR_UNSUPPORTED, "%s.enum: beside const it is not supported", at);
        return 0;
    }
    if (c) {
        if (!gram_literal_fits(s, v, c, "const", at)) {
            gram_fail(s->b, ERR_UNSUPPORTED,
                      "%s.const: it does not fit the type or the bounds beside it", at);
            return 0;
        }
        return literal(s, c, raw, next);
    }
    if (en) {
        uint32_t r = GRAM_NONE;
        for (size_t i = 0; en->type == PYJSON_ARRAY && i < en->count; i++) {
            if (gram_literal_fits(s, v, en->items[i], "enum", at)) {
                r = either(s, r, literal(s, en->items[i], raw, next));
            }
        }
        if (r == GRAM_NONE) {
            gram_fail(s->b, ERR_FORMAT, "%s.enum: no value in it fits", at);
            return 0;
        }
        return r;
    }
    return typed(s, v, raw, at, next);
}

/* Every schema becomes one rule, however often it is used: $ref may lead back into one that is
 * being built. */
uint32_t gram_schema_value(struct gram_schema *s, const struct pyjson *v, bool raw, const char *at,
                           uint32_t next)
{
    v = gram_schema_deref(s, v, at);
    if (!v || s->b->err.code) {
        return 0;
    }
    if (!gram_work(s, s->n_seen)) {
        return 0;
    }
    for (size_t i = 0; i < s->n_seen; i++) {
        if (s->seen[i].v == v && s->seen[i].raw == raw) {
            return gram_call(s->b, s->seen[i].rule, next);
        }
    }
    if (s->n_seen == s->cap_seen) {
        size_t cap = s->cap_seen ? s->cap_seen * 2 : 64;
        void *p = realloc(s->seen, cap * sizeof *s->seen);
        if (!p) {
            gram_fail(s->b, ERR_NOMEM, "out of memory");
            return 0;
        }
        s->seen = p;
        s->cap_seen = cap;
    }
    if (++s->depth > NEST_MAX) {
        gram_fail(s->b, ERR_LIMIT, "%s: schemas more than %d deep", at, NEST_MAX);
        return 0;
    }
    uint32_t rule = gram_rule_new(s->b);
    s->seen[s->n_seen].v = v;
    s->seen[s->n_seen].raw = raw;
    s->seen[s->n_seen++].rule = rule;
    gram_rule_set(s->b, rule, value(s, v, raw, at, gram_ret(s->b)));
    s->depth--;
    return gram_call(s->b, rule, next);
}

void gram_schema_done(struct gram_schema *s)
{
    free(s->seen);
    s->seen = NULL;
    s->n_seen = s->cap_seen = 0;
}

int grammar_json(const struct pyjson *schema, struct grammar **out, struct err *e)
{
    struct gram_builder b;
    struct gram_schema s = {.b = &b, .root = schema};
    *out = NULL;
    if (gram_begin(&b)) {
        if (e) {
            *e = b.err;
        }
        return b.err.code;
    }
    uint32_t rule = gram_rule_new(&b), end = gram_ws(&b, gram_ret(&b));
    uint32_t v = schema ? gram_schema_value(&s, schema, false, "schema", end)
                        : gram_any_object(&b, false, end);
    gram_rule_set(&b, rule, gram_ws(&b, v));
    gram_schema_done(&s);
    return gram_end(&b, rule, out, e);
}
