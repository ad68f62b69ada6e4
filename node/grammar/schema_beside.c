/* SPDX-License-Identifier: MIT
 * schema_beside.c: schema_int.h: keywords that stand beside alternatives or constants. All of them
 * count in JSON Schema; here they are seen to be kept, or refused. */
#include "node/grammar/schema_int.h"

#include <math.h>
#include <string.h>

#define NEST_MAX 20

/* ---- constants ---- */

/* Is a constant of one of the types? (1.0 and the like count as numbers only.) */
bool gram_literal_is(const struct pyjson *t, const struct pyjson *v)
{
    switch (v->type) {
    case PYJSON_STRING:
        return gram_type_is(t, "string");
    case PYJSON_NUMBER:
        return gram_type_is(t, "number") ||
               (gram_type_is(t, "integer") && !memchr(v->s, '.', v->n) && !memchr(v->s, 'e', v->n));
    case PYJSON_NULL:
        return gram_type_is(t, "null");
    case PYJSON_OBJECT:
        return gram_type_is(t, "object");
    case PYJSON_ARRAY:
        return gram_type_is(t, "array");
    default:
        return gram_type_is(t, "boolean");
    }
}

/* A number among the keywords; `otherwise` when there is none. What is no number compares with
 * nothing, so that no constant fits. */
static double limit(const struct pyjson *v, const char *key, double otherwise)
{
    const struct pyjson *x = gram_get(v, key);
    double d;
    if (!x) {
        return otherwise;
    }
    return x->type == PYJSON_NUMBER && !pyjson_double(x->s, x->n, &d) ? d : (double)NAN;
}

static bool size_fits(const struct pyjson *v, const char *least, const char *most, size_t n)
{
    return (double)n >= limit(v, least, 0) && (double)n <= limit(v, most, INFINITY);
}

static bool number_fits(const struct pyjson *v, const struct pyjson *x)
{
    double d, step = limit(v, "multipleOf", 0);
    if (pyjson_double(x->s, x->n, &d)) {
        return false;
    }
    return d >= limit(v, "minimum", -INFINITY) && d <= limit(v, "maximum", INFINITY) &&
           (!gram_get(v, "exclusiveMinimum") || d > limit(v, "exclusiveMinimum", 0)) &&
           (!gram_get(v, "exclusiveMaximum") || d < limit(v, "exclusiveMaximum", 0)) &&
           (step == 0 || (step == 1 && (d >= 9e15 || d <= -9e15 || d == (double)(int64_t)d)));
}

static bool refused(struct gram_schema *s, const struct pyjson *v, const char *const *names,
                    const char *what, const char *at)
{
    for (; *names; names++) {
        const struct pyjson *x = gram_get(v, *names);
        if (x && (strcmp(*names, "format") != 0 || gram_format(x))) {
            gram_fail(s->b, ERR_UNSUPPORTED, "%s.%s: beside %s it is not supported", at, *names,
                      what);
            return true;
        }
    }
    return false;
}

bool gram_literal_fits(struct gram_schema *s, const struct pyjson *v, const struct pyjson *x,
                       const char *what, const char *at)
{
    static const char *const of_string[] = {"pattern", "format", NULL},
                             *const of_array[] = {"items", "prefixItems", NULL},
                             *const of_object[] = {"properties", "required", "additionalProperties",
                                                   NULL};
    size_t n = 0;
    if (!gram_literal_is(gram_get(v, "type"), x)) {
        return false;
    }
    switch (x->type) {
    case PYJSON_STRING:
        for (size_t i = 0; i < x->n; i++) {
            n += ((unsigned char)x->s[i] & 0xC0) != 0x80; /* code points */
        }
        return !refused(s, v, of_string, what, at) && size_fits(v, "minLength", "maxLength", n);
    case PYJSON_NUMBER:
        return number_fits(v, x);
    case PYJSON_ARRAY:
        return !refused(s, v, of_array, what, at) && size_fits(v, "minItems", "maxItems", x->count);
    case PYJSON_OBJECT:
        return !refused(s, v, of_object, what, at) &&
               size_fits(v, "minProperties", "maxProperties", x->count);
    default:
        return true;
    }
}

/* ---- alternatives ---- */

/* Is all that fits `v` of the types `t`? */
static bool within(struct gram_schema *s, const struct pyjson *v, const struct pyjson *t,
                   const char *at, unsigned depth)
{
    static const char *const names[] = {"object",  "array",   "string", "number",
                                        "integer", "boolean", "null"},
                             *const lists[] = {"anyOf", "oneOf", "allOf", "enum"};
    v = depth < NEST_MAX ? gram_schema_deref(s, v, at) : NULL;
    if (!v || v->type != PYJSON_OBJECT) {
        return false;
    }
    const struct pyjson *own = gram_get(v, "type"), *c = gram_get(v, "const");
    if (own) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            bool may = gram_type_is(t, names[i]) ||
                       (!strcmp(names[i], "integer") && gram_type_is(t, "number"));
            if (gram_type_is(own, names[i]) && !may) {
                return false;
            }
        }
        return !gram_get(v, "nullable") || gram_type_is(t, "null");
    }
    if (c) {
        return gram_literal_is(t, c);
    }
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const struct pyjson *l = gram_get(v, lists[k]);
        for (size_t i = 0; l && l->type == PYJSON_ARRAY && i < l->count; i++) {
            if (k == 3 ? !gram_literal_is(t, l->items[i])
                       : !within(s, l->items[i], t, at, depth + 1)) {
                return false;
            }
        }
        if (l) {
            return true;
        }
    }
    return false;
}

bool gram_beside(struct gram_schema *s, const struct pyjson *v, const struct pyjson *list,
                 const char *what, const char *at)
{
    static const char *const names[] = {"enum",
                                        "const",
                                        "properties",
                                        "required",
                                        "additionalProperties",
                                        "items",
                                        "minItems",
                                        "maxItems",
                                        "prefixItems",
                                        "minLength",
                                        "maxLength",
                                        "pattern",
                                        "format",
                                        "minimum",
                                        "maximum",
                                        "multipleOf",
                                        "minProperties",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        NULL};
    const struct pyjson *t = gram_get(v, "type");
    if (refused(s, v, names, what, at)) {
        return false;
    }
    for (size_t i = 0; t && list->type == PYJSON_ARRAY && i < list->count; i++) {
        if (!within(s, list->items[i], t, at, 0)) {
            gram_fail(s->b, ERR_UNSUPPORTED,
                      "%s.type: beside %s it is not supported, unless each alternative has such a "
                      "type of its own",
                      at, what);
            return false;
        }
    }
    return true;
}

/* ---- oneOf ---- */

bool gram_same(const struct pyjson *a, const struct pyjson *b)
{
    double x, y;
    if (a->type != b->type || a->count != b->count) {
        return false;
    }
    switch (a->type) {
    case PYJSON_NUMBER:
        return !pyjson_double(a->s, a->n, &x) && !pyjson_double(b->s, b->n, &y) && x == y;
    case PYJSON_STRING:
        return a->n == b->n && !memcmp(a->s, b->s, a->n);
    case PYJSON_OBJECT:
    case PYJSON_ARRAY:
        for (size_t i = 0; i < a->count; i++) {
            const struct pyjson *m = a->items[i], *o = NULL;
            for (size_t k = 0; a->type == PYJSON_OBJECT && k < b->count && !o; k++) {
                const struct pyjson *c = b->items[k];
                o = c->key_n == m->key_n && !memcmp(c->key, m->key, m->key_n) ? c : NULL;
            }
            o = a->type == PYJSON_ARRAY ? b->items[i] : o;
            if (!o || !gram_same(m, o)) { /* as deep as the document: PYJSON_MAX_DEPTH */
                return false;
            }
        }
        return true;
    default:
        return true;
    }
}
