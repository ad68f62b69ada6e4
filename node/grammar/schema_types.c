/* SPDX-License-Identifier: MIT
 * schema_types.c: see schema_int.h. */
#include "node/grammar/schema_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A count such as minItems. */
static bool count(struct gram_schema *s, const struct pyjson *v, const char *key, const char *at,
                  uint32_t otherwise, uint32_t *out)
{
    const struct pyjson *x = gram_get(v, key);
    *out = otherwise;
    if (!x) {
        return true;
    }
    char *end;
    errno = 0;
    unsigned long n = x->type == PYJSON_NUMBER ? strtoul(x->s, &end, 10) : 0;
    if (x->type != PYJSON_NUMBER || *end || x->s[0] == '-') {
        gram_fail(s->b, ERR_FORMAT, "%s.%s: it must be a whole number, not negative", at, key);
        return false;
    }
    if (errno || n > GRAMMAR_REPEAT_MAX) {
        gram_fail(s->b, ERR_UNSUPPORTED, "%s.%s: more than %u is not supported", at, key,
                  GRAMMAR_REPEAT_MAX);
        return false;
    }
    *out = (uint32_t)n;
    return true;
}

static bool counts(struct gram_schema *s, const struct pyjson *v, const char *least,
                   const char *most, const char *at, uint32_t *min, uint32_t *max)
{
    if (!count(s, v, least, at, 0, min) || !count(s, v, most, at, GRAM_NONE, max)) {
        return false;
    }
    if (*max < *min) {
        gram_fail(s->b, ERR_FORMAT, "%s.%s: it is below %s", at, most, least);
        return false;
    }
    return true;
}

/* ---- strings ---- */

/* Formats as patterns; narrower than their standards where those have oddities. */
struct format {
    const char *name, *pattern;
    unsigned min, max; /* characters */
};

static const struct format *format_of(const struct pyjson *f)
{
#define DATE                                                                       \
    "[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-" \
    "(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5]" \
    "[0-9])"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL "[A-Za-z0-9](?:-?[A-Za-z0-9])*"
#define COUNT "[0-9]{1,6}"
#define SCHEME "[a-z][a-z0-9+.-]{1,20}:"
#define PART "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})"
#define TAIL "(?:/" PART "*)?(?:\\?" PART "*)?(?:#" PART "*)?"
    static const struct format known[] = {
        {"date", "^" DATE "$", 10, 10},
        {"time", "^" TIME "$", 9, 21},
        {"date-time", "^" DATE "T" TIME "$", 20, 32},
        {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", 36, 36},
        {"ipv4", "^" BYTE "\\." BYTE "\\." BYTE "\\." BYTE "$", 7, 15},
        {"email",
         "^[A-Za-z0-9_+-]{1,20}(?:\\.[A-Za-z0-9_+-]{1,20}){0,2}@(?:[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]"
         "{1,20})?\\.){1,3}[A-Za-z]{2,10}$",
         6, 199},
        {"hostname", "^(?=.{1,60}$)" LABEL "(?:\\." LABEL ")*$", 1, 60},
        {"duration",
         "^P(?=[0-9]|T[0-9])(?:" COUNT "Y)?(?:" COUNT "M)?(?:" COUNT "D)?(?:T(?=[0-9])(?:" COUNT
         "H)?(?:" COUNT "M)?(?:" COUNT "S)?)?$|^P" COUNT "W$",
         3, 50},
        /* with a host; of a file; without a host, where it means nothing to a browser */
        {"uri",
         "^(?!file:)" SCHEME "//(?:[A-Za-z0-9._~-]+(?::[A-Za-z0-9._~-]+)?@)?(?:localhost|(?:[a-z0-"
         "9]+(?:-[a-z0-9]+)*\\.)+[a-z]{2,20}|" BYTE "\\." BYTE "\\." BYTE "\\." BYTE
         ")(?::[1-9][0-9]{0,3})?" TAIL "$|^file://(?=/)" TAIL
         "$|^(?!(?:https?|wss?|ftp|file):)" SCHEME "(?!//)" PART "+$",
         4, GRAM_NONE},
    };
#undef LABEL
#undef COUNT
#undef SCHEME
#undef PART
#undef TAIL
#undef DATE
#undef TIME
#undef BYTE
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (pyjson_is(f, known[i].name)) {
            return &known[i];
        }
    }
    return NULL;
}

const char *gram_format(const struct pyjson *f)
{
    const struct format *k = format_of(f);
    return k ? k->pattern : NULL;
}

#define ALL_MAX 15

struct conditions {
    const struct format *form; /* the last one */
    struct gram_pattern pattern[GRAM_PATTERNS_MAX], format[GRAM_PATTERNS_MAX];
    size_t n_pattern, n_format;
    uint32_t min, max;
};

bool gram_string_all(const struct pyjson *v, const struct pyjson *all)
{
    static const char *const known[] = {"type",      "pattern", "format",      "minLength",
                                        "maxLength", "title",   "description", NULL};
    if (!pyjson_is(gram_get(v, "type"), "string") || gram_get(v, "nullable") ||
        all->type != PYJSON_ARRAY || !all->count || all->count > ALL_MAX) {
        return false;
    }
    for (size_t i = 0; i < all->count; i++) {
        const struct pyjson *x = all->items[i], *t = gram_get(x, "type");
        if (x->type != PYJSON_OBJECT || (t && !pyjson_is(t, "string"))) {
            return false;
        }
        for (size_t k = 0; k < x->count; k++) {
            size_t j = 0;
            while (known[j] && strcmp(known[j], x->items[k]->key) != 0) {
                j++;
            }
            if (!known[j]) {
                return false;
            }
        }
    }
    return true;
}

static bool gather(struct gram_schema *s, const struct pyjson *v, const char *at,
                   struct conditions *c)
{
    const struct pyjson *p = gram_get(v, "pattern"), *f = gram_get(v, "format");
    uint32_t min, max;
    if (!counts(s, v, "minLength", "maxLength", at, &min, &max)) {
        return false;
    }
    if (p && p->type != PYJSON_STRING) {
        gram_fail(s->b, ERR_FORMAT, "%s.pattern: it must be a string", at);
        return false;
    }
    c->min = min > c->min ? min : c->min;
    c->max = max < c->max ? max : c->max;
    if (p) {
        c->pattern[c->n_pattern++] = (struct gram_pattern){p->s, p->n};
    }
    const struct format *form = f ? format_of(f) : NULL;
    if (form) {
        c->form = form;
        c->format[c->n_format++] = (struct gram_pattern){form->pattern, strlen(form->pattern)};
    }
    return true;
}

static uint32_t meet(struct gram_builder *b, const struct conditions *c, bool raw, const char *at,
                     uint32_t next)
{
    struct gram_pattern l[2 * GRAM_PATTERNS_MAX];
    bool none;
    memcpy(l, c->pattern, c->n_pattern * sizeof *l);
    memcpy(l + c->n_pattern, c->format, c->n_format * sizeof *l);
    uint32_t r = gram_regex(b, l, c->n_pattern + c->n_format, c->min, c->max, raw, at, next, &none);
    if (none && c->n_pattern && c->n_format) {
        /* a format that the pattern contradicts is an annotation, no more */
        r = gram_regex(b, l, c->n_pattern, c->min, c->max, raw, at, next, &none);
    }
    if (none) {
        gram_fail(
            b, ERR_UNSUPPORTED, "%s.%s: no text fits it%s", at, c->n_pattern ? "pattern" : "format",
            c->min || c->max != GRAM_NONE ? " and has between minLength and maxLength characters"
                                          : "");
    }
    return r;
}

uint32_t gram_schema_string(struct gram_schema *s, const struct pyjson *v, bool raw, const char *at,
                            uint32_t next)
{
    struct gram_builder *b = s->b;
    struct conditions c = {.max = GRAM_NONE};
    const struct pyjson *all = gram_get(v, "allOf");
    bool fine = gather(s, v, at, &c);
    for (size_t i = 0; fine && all && i < all->count; i++) {
        char place[GRAM_PLACE];
        gram_place(place, at, "allOf", 5);
        fine = gather(s, all->items[i], place, &c);
    }
    if (!fine) {
        return 0;
    }
    uint32_t end = raw ? next : gram_str(b, "\"", next), r;
    if (c.n_format == 1 && c.min <= c.form->min && c.form->max <= c.max) {
        c.min = 0; /* its texts are that long by themselves */
        c.max = GRAM_NONE;
    }
    if (c.n_pattern || c.n_format) {
        r = meet(b, &c, raw, at, end);
    } else if (c.min || c.max != GRAM_NONE) {
        uint32_t one = gram_rule_new(b);
        gram_rule_set(b, one,
                      raw ? gram_raw_char(b, gram_ret(b)) : gram_string_char(b, gram_ret(b)));
        if (c.max < c.min) {
            gram_fail(b, ERR_UNSUPPORTED, "%s.allOf: no length fits all of it", at);
            return 0;
        }
        r = gram_repeat(b, one, c.min, c.max, NULL, end);
    } else {
        return raw ? gram_raw_any(b, next) : gram_string_any(b, next);
    }
    return raw ? r : gram_str(b, "\"", r);
}

/* ---- numbers ---- */

/* A bound as a whole number. */
static bool bound(struct gram_schema *s, const struct pyjson *v, const char *key, const char *at,
                  bool integer, bool up, bool *has, int64_t *out, bool *whole)
{
    const struct pyjson *x = gram_get(v, key);
    *has = x != NULL;
    *whole = true;
    if (!x) {
        return true;
    }
    double d;
    if (x->type != PYJSON_NUMBER || pyjson_double(x->s, x->n, &d)) {
        gram_fail(s->b, ERR_FORMAT, "%s.%s: it must be a number", at, key);
        return false;
    }
    if (!(d > -9e15 && d < 9e15)) {
        *has = (d > 0) != up; /* beyond all numbers that are written: no bound, or nothing fits */
        *out = d > 0 ? 9000000000000000ll : -9000000000000000ll;
        return true;
    }
    *out = (int64_t)d; /* towards zero */
    *whole = (double)*out == d;
    if (!*whole && !integer) {
        gram_fail(s->b, ERR_UNSUPPORTED, "%s.%s: for numbers only whole bounds are supported", at,
                  key);
        return false;
    }
    if (!*whole && (up ? d > 0 : d < 0)) { /* an integer: inwards */
        *out += 0;
    } else if (!*whole) {
        *out += up ? -1 : 1;
    }
    return true;
}

uint32_t gram_schema_number(struct gram_schema *s, const struct pyjson *v, bool integer,
                            const char *at, uint32_t next)
{
    bool lo, hi, xlo, xhi, w;
    int64_t a = 0, z = 0, xa = 0, xz = 0;
    const struct pyjson *m = gram_get(v, "multipleOf");
    if (m && !(m->type == PYJSON_NUMBER && !strcmp(m->s, "1"))) {
        gram_fail(s->b, ERR_UNSUPPORTED, "%s.multipleOf: only 1 is supported", at);
        return 0;
    }
    integer = integer || m;
    if (!bound(s, v, "minimum", at, integer, false, &lo, &a, &w) ||
        !bound(s, v, "maximum", at, integer, true, &hi, &z, &w) ||
        !bound(s, v, "exclusiveMinimum", at, integer, false, &xlo, &xa, &w) ||
        !bound(s, v, "exclusiveMaximum", at, integer, true, &xhi, &xz, &w)) {
        return 0;
    }
    if (!gram_get(v, "minimum") && !gram_get(v, "maximum") && !gram_get(v, "exclusiveMinimum") &&
        !gram_get(v, "exclusiveMaximum")) { /* even a bound that is far out lies below 9e99 */
        return gram_number_any(s->b, integer, next);
    }
    if (integer) {
        const struct pyjson *x = gram_get(v, "exclusiveMinimum");
        double d;
        if (xlo && !pyjson_double(x->s, x->n, &d) && (double)xa == d) {
            xa++; /* a bound between two integers has moved inwards already */
        }
        x = gram_get(v, "exclusiveMaximum");
        if (xhi && !pyjson_double(x->s, x->n, &d) && (double)xz == d) {
            xz--;
        }
        a = lo && xlo ? (a > xa ? a : xa) : lo ? a : xa;
        z = hi && xhi ? (z < xz ? z : xz) : hi ? z : xz;
        return gram_integers(s->b, lo || xlo, a, hi || xhi, z, next);
    }
    bool lo_open = xlo && (!lo || xa >= a), hi_open = xhi && (!hi || xz <= z);
    return gram_numbers(s->b, lo || xlo, lo_open ? xa : a, lo_open, hi || xhi, hi_open ? xz : z,
                        hi_open, next);
}

/* ---- arrays ---- */

uint32_t gram_schema_array(struct gram_schema *s, const struct pyjson *v, const char *at,
                           uint32_t next)
{
    struct gram_builder *b = s->b;
    const struct pyjson *items = gram_get(v, "items"), *first = gram_get(v, "prefixItems");
    uint32_t min, max;
    if (!first && items && items->type == PYJSON_ARRAY) {
        first = items; /* as older drafts have it */
        items = NULL;
    }
    const struct pyjson *no = items;
    if (!counts(s, v, "minItems", "maxItems", at, &min, &max)) {
        return 0;
    }
    char place[GRAM_PLACE];
    uint32_t close = gram_ws(b, gram_str(b, "]", next)), r;
    size_t n = first && first->type == PYJSON_ARRAY ? first->count : 0;
    if (max < n || (items && items->type == PYJSON_FALSE && min > n)) {
        gram_fail(b, ERR_UNSUPPORTED,
                  max < n ? "%s.maxItems: below the number of prefixItems it is not supported"
                          : "%s.minItems: there are fewer items than this",
                  at);
        return 0;
    }
    if (items && items->type == PYJSON_FALSE) {
        max = 0;
        items = NULL;
        if (!first) {
            return gram_str(b, "[", close);
        }
    }
    uint32_t item = gram_rule_new(b);
    gram_place(place, at, "items", 5);
    gram_rule_set(b, item,
                  items ? gram_schema_value(s, items, false, place, gram_ret(b))
                        : gram_any(b, gram_ret(b)));
    if (!first) {
        r = gram_ws(b, gram_repeat(b, item, min ? min : 1, max, ",", close));
        r = max == 0 ? close : min ? r : gram_alt(b, r, close);
        return gram_str(b, "[", r);
    }
    /* A tuple: all of the first ones are written, then others as they are allowed. */
    if (n == 0 || n > 256) {
        gram_fail(b, ERR_FORMAT, "%s.prefixItems: it must be a list of 1 to 256 schemas", at);
        return 0;
    }
    uint32_t rest_min = min > n ? min - (uint32_t)n : 0, rest_max = max;
    if (no && no->type == PYJSON_FALSE) {
        rest_max = 0;
    } else if (max != GRAM_NONE) {
        rest_max = max > n ? max - (uint32_t)n : 0;
    }
    if (!no && rest_min == 0) {
        rest_max = 0; /* what is not described is not written */
    }
    r = close;
    if (rest_max) {
        uint32_t more =
            gram_comma(b, gram_repeat(b, item, rest_min ? rest_min : 1, rest_max, ",", close));
        r = rest_min ? more : gram_alt(b, more, close);
    }
    for (size_t i = n; i-- > 0 && !b->err.code;) {
        gram_place(place, at, "prefixItems", 11);
        r = gram_schema_value(s, first->items[i], false, place, r);
        r = i ? gram_comma(b, r) : gram_ws(b, r);
    }
    return gram_str(b, "[", r);
}

/* ---- objects ---- */

static bool is_required(const struct pyjson *required, const struct pyjson *member)
{
    for (size_t i = 0; required && i < required->count; i++) {
        const struct pyjson *x = required->items[i];
        if (x->type == PYJSON_STRING && x->n == member->key_n && !memcmp(x->s, member->key, x->n)) {
            return true;
        }
    }
    return false;
}

bool gram_object_check(struct gram_schema *s, const struct pyjson *v, const char *at)
{
    const struct pyjson *props = gram_get(v, "properties"), *required = gram_get(v, "required");
    if (props && props->type != PYJSON_OBJECT) {
        gram_fail(s->b, ERR_FORMAT, "%s.properties: it must be an object", at);
        return false;
    }
    if (required && required->type != PYJSON_ARRAY) {
        gram_fail(s->b, ERR_FORMAT, "%s.required: it must be a list of names", at);
        return false;
    }
    /* each of one list with each of the other, twice: here, and where members are written */
    if (required && props && !gram_work(s, 2 * (uint64_t)required->count * props->count)) {
        return false;
    }
    for (size_t i = 0; required && i < required->count; i++) {
        const struct pyjson *x = required->items[i];
        bool there = false;
        for (size_t k = 0; props && k < props->count; k++) {
            const struct pyjson *m = props->items[k];
            there = there ||
                    (x->type == PYJSON_STRING && m->key_n == x->n && !memcmp(m->key, x->s, x->n));
        }
        if (!there) {
            gram_fail(s->b, ERR_UNSUPPORTED, "%s.required[%zu]: the name stands not in properties",
                      at, i);
            return false;
        }
    }
    return true;
}

/* Members in the order of `properties`; behind them others, where additionalProperties says so by
 * name (when it is absent they would be allowed, and are not written). */
uint32_t gram_schema_object(struct gram_schema *s, const struct pyjson *v, const char *at,
                            uint32_t next)
{
    struct gram_builder *b = s->b;
    const struct pyjson *props = gram_get(v, "properties"), *required = gram_get(v, "required"),
                        *more = gram_get(v, "additionalProperties"),
                        *min = gram_get(v, "minProperties");
    bool one = min && !strcmp(min->s, "1");
    if (!gram_object_check(s, v, at)) {
        return 0;
    }
    if (!props && !more) {
        return gram_any_object(b, one, next);
    }
    size_t n = props ? props->count : 0;
    char place[GRAM_PLACE];
    uint32_t close = gram_ws(b, gram_str(b, "}", next));
    /* `first` and `later`: where it goes on when no member was written yet, and when one was */
    uint32_t first = close, later = close;
    if (one) {
        first = gram_hole(b); /* leads nowhere */
    }
    if (more && more->type != PYJSON_FALSE) {
        uint32_t other = gram_rule_new(b), end = gram_ret(b);
        gram_place(place, at, "additionalProperties", 20);
        uint32_t val = gram_schema_value(s, more, false, place, end);
        gram_rule_set(b, other,
                      gram_other_key(b, props ? props->items : NULL, n,
                                     gram_ws(b, gram_str(b, ":", gram_ws(b, val)))));
        uint32_t some = gram_repeat(b, other, 1, GRAM_NONE, ",", close);
        first = gram_alt(b, first, gram_ws(b, some));
        later = gram_alt(b, later, gram_comma(b, some));
    }
    for (size_t i = n; i-- > 0 && !b->err.code;) {
        const struct pyjson *m = props->items[i];
        gram_place(place, at, m->key, m->key_n);
        uint32_t val = gram_schema_value(s, m, false, place, later);
        uint32_t member =
            gram_str(b, "\"",
                     gram_text(b, m->key, m->key_n, false,
                               gram_str(b, "\"", gram_ws(b, gram_str(b, ":", gram_ws(b, val))))));
        bool must = is_required(required, m);
        uint32_t f = gram_ws(b, member), l = gram_comma(b, member);
        first = must ? f : gram_alt(b, f, first);
        later = must ? l : gram_alt(b, l, later);
    }
    return gram_str(b, "{", first);
}

/* ---- oneOf ---- */

/* Do the constants of two schemas (const or enum) have none in common? False: they have no such. */
static bool constants_apart(struct gram_schema *s, const struct pyjson *a, const struct pyjson *b)
{
    const struct pyjson *ca = gram_get(a, "const"), *cb = gram_get(b, "const"),
                        *ea = gram_get(a, "enum"), *eb = gram_get(b, "enum");
    if ((!ca && !ea) || (!cb && !eb)) {
        return false;
    }
    size_t na = ca ? 1 : ea->count, nb = cb ? 1 : eb->count;
    if (!gram_work(s, 16 * (uint64_t)na * nb)) { /* numbers are compared by value */
        return false;
    }
    for (size_t i = 0; i < na; i++) {
        for (size_t k = 0; k < nb; k++) {
            if (gram_same(ca ? ca : ea->items[i], cb ? cb : eb->items[k])) {
                return false;
            }
        }
    }
    return true;
}

static bool types_apart(const struct pyjson *a, const struct pyjson *b)
{
    static const char *const names[] = {"object", "array", "string", "boolean", "null"};
    const struct pyjson *ta = gram_get(a, "type"), *tb = gram_get(b, "type");
    if (!ta || !tb || gram_get(a, "nullable") || gram_get(b, "nullable")) {
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (gram_type_is(ta, names[i]) && gram_type_is(tb, names[i])) {
            return false;
        }
    }
    return !((gram_type_is(ta, "number") || gram_type_is(ta, "integer")) &&
             (gram_type_is(tb, "number") || gram_type_is(tb, "integer")));
}

static bool pair_apart(struct gram_schema *s, const struct pyjson *a, const struct pyjson *b,
                       const char *at)
{
    a = gram_schema_deref(s, a, at);
    b = a ? gram_schema_deref(s, b, at) : NULL;
    if (!b || a->type != PYJSON_OBJECT || b->type != PYJSON_OBJECT) {
        return false;
    }
    if (types_apart(a, b) || constants_apart(s, a, b)) {
        return true;
    }
    /* a property tells objects apart: neither may be anything else */
    const struct pyjson *pa = gram_get(a, "properties"), *pb = gram_get(b, "properties"),
                        *ta = gram_get(a, "type"), *tb = gram_get(b, "type");
    if (!ta || !tb || !pyjson_is(ta, "object") || !pyjson_is(tb, "object") ||
        gram_get(a, "nullable") || gram_get(b, "nullable")) {
        return false;
    }
    const struct pyjson *ra = gram_get(a, "required"), *rb = gram_get(b, "required");
    uint64_t each = (pb ? pb->count : 0) + (ra ? ra->count : 0) + (rb ? rb->count : 0);
    for (size_t i = 0; pa && pb && i < pa->count && gram_work(s, each); i++) {
        const struct pyjson *x = pa->items[i], *y = gram_get(pb, x->key);
        if (y && is_required(ra, x) && is_required(rb, y) && constants_apart(s, x, y)) {
            return true;
        }
    }
    return false;
}

bool gram_apart(struct gram_schema *s, const struct pyjson *list, const char *at)
{
    for (size_t i = 0; i < list->count; i++) {
        for (size_t k = i + 1; k < list->count; k++) {
            if (!gram_work(s, 8)) {
                return false;
            }
            if (!pair_apart(s, list->items[i], list->items[k], at)) {
                gram_fail(s->b, ERR_UNSUPPORTED,
                          "%s.oneOf: alternatives %zu and %zu could both fit one value; give them "
                          "different types or a required property with different constants, or use "
                          "anyOf",
                          at, i, k);
                return false;
            }
        }
    }
    return true;
}
