/* SPDX-License-Identifier: MIT
 * regex.c: rules.h: patterns of JSON schemas (ECMA 262 with the `u` flag). Read: characters and
 * escapes, `.`, classes and their shorthands \d \w \s (and \D \W \S outside of classes), groups,
 * alternatives, ? * + {m} {m,} {m,n}, lazy forms of them (which match the same texts), ^ and $ at
 * the ends of the pattern or of its outermost alternatives. Anything else is refused by name. */
#include "node/grammar/rules.h"

#include "node/text/tok_utf8.h"

#include <stdlib.h>
#include <string.h>

#define RANGES_MAX 128
#define DEPTH_MAX 50
#define NODES_MAX 10000
#define POINT_MAX 0x10FFFFu

struct range {
    uint32_t lo, hi;
};

enum kind { EMPTY, CHARS, CAT, ALT, REPEAT };
struct ast {
    enum kind kind;
    uint32_t min, max; /* REPEAT; max GRAM_NONE: without end */
    struct ast *a, *b;
    struct range *r; /* CHARS, ascending, apart */
    size_t n;
    struct ast *all; /* list for freeing */
};

struct re {
    struct gram_builder *b;
    const char *p, *end, *at;
    struct ast *all;
    unsigned depth, count;
};

static struct ast *refuse(struct re *x, const char *what)
{
    gram_fail(x->b, ERR_UNSUPPORTED, "%s.pattern: %s", x->at, what);
    return NULL;
}

static struct ast *node(struct re *x, enum kind kind, struct ast *a, struct ast *b)
{
    if (x->b->err.code) {
        return NULL;
    }
    if (++x->count > NODES_MAX) {
        return refuse(x, "the pattern is too long");
    }
    struct ast *n = calloc(1, sizeof *n);
    if (!n) {
        gram_fail(x->b, ERR_NOMEM, "out of memory");
        return NULL;
    }
    n->kind = kind;
    n->a = a;
    n->b = b;
    n->all = x->all;
    x->all = n;
    return n;
}

/* ---- sets of characters ---- */

struct set {
    struct range r[RANGES_MAX];
    size_t n;
};

static bool set_add(struct re *x, struct set *s, uint32_t lo, uint32_t hi)
{
    if (s->n == RANGES_MAX) {
        refuse(x, "a class with more than 128 ranges");
        return false;
    }
    s->r[s->n++] = (struct range){lo, hi};
    return true;
}

static int by_lo(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static struct ast *set_done(struct re *x, struct set *s, bool negate)
{
    struct ast *n = node(x, CHARS, NULL, NULL);
    if (!n) {
        return NULL;
    }
    n->r = malloc((s->n + 1) * sizeof *n->r);
    if (!n->r) {
        gram_fail(x->b, ERR_NOMEM, "out of memory");
        return NULL;
    }
    qsort(s->r, s->n, sizeof *s->r, by_lo);
    uint32_t from = 0; /* the least character that is not covered yet */
    for (size_t i = 0; i < s->n; i++) {
        struct range r = s->r[i];
        if (negate) {
            if (r.lo > from) {
                n->r[n->n++] = (struct range){from, r.lo - 1};
            }
        } else if (r.hi >= from) {
            n->r[n->n++] = (struct range){r.lo > from ? r.lo : from, r.hi};
        }
        from = r.hi >= from ? r.hi + 1 : from;
    }
    if (negate && from <= POINT_MAX) {
        n->r[n->n++] = (struct range){from, POINT_MAX};
    }
    return n->n ? n : refuse(x, "a class without any character");
}

/* \d \w \s as ECMA 262 defines them. */
static bool shorthand(struct re *x, struct set *s, char c)
{
    static const struct range d[] = {{'0', '9'}};
    static const struct range w[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct range sp[] = {
        {9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
        {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    const struct range *r = c == 'd' ? d : c == 'w' ? w : sp;
    size_t n = c == 'd' ? 1 : c == 'w' ? 4 : sizeof sp / sizeof *sp;
    for (size_t i = 0; i < n; i++) {
        if (!set_add(x, s, r[i].lo, r[i].hi)) {
            return false;
        }
    }
    return true;
}

static bool point(struct re *x, uint32_t *out)
{
    unsigned len;
    int32_t c = utf8_next((const uint8_t *)x->p, (size_t)(x->end - x->p), &len);
    if (c < 0) {
        refuse(x, "not UTF-8");
        return false;
    }
    x->p += len;
    *out = (uint32_t)c;
    return true;
}

static bool hex(struct re *x, int n, uint32_t *out)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *at = x->p < x->end && *x->p ? strchr(digits, *x->p | 0x20) : NULL;
        if (!at || (*x->p >= '0' && *x->p <= '9' ? *at != *x->p : false)) {
            refuse(x, "a \\x or \\u escape that is not hexadecimal");
            return false;
        }
        v = v << 4 | (uint32_t)(at - digits);
        x->p++;
    }
    *out = v;
    return true;
}

/* What follows a backslash, when it stands for one character. */
static bool escape(struct re *x, uint32_t *out)
{
    static const char from[] = "tnvfr0", to[] = "\t\n\v\f\r";
    char c = x->p < x->end ? *x->p : 0;
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        x->p++;
        *out = (unsigned char)to[at - from];
        return true;
    }
    if (c == 'x' || c == 'u') {
        x->p++;
        if (c == 'u' && x->p < x->end && *x->p == '{') {
            refuse(x, "\\u{...} is not supported: write the character itself");
            return false;
        }
        return hex(x, c == 'x' ? 2 : 4, out);
    }
    if (c && strchr("^$\\.*+?()[]{}|/-\"'<>=!:,@#%&~` ;", c)) {
        x->p++;
        *out = (unsigned char)c;
        return true;
    }
    gram_fail(x->b, ERR_UNSUPPORTED, "%s.pattern: the escape \\%c is not supported", x->at,
              c >= 32 && c < 127 ? c : '?');
    return false;
}

static struct ast *class_of(struct re *x)
{
    struct set s = {.n = 0};
    bool negate = x->p < x->end && *x->p == '^';
    x->p += negate;
    while (x->p < x->end && *x->p != ']') {
        uint32_t lo, hi;
        if (*x->p == '\\' && x->p + 1 < x->end && strchr("dws", x->p[1])) {
            if (!shorthand(x, &s, x->p[1])) {
                return NULL;
            }
            x->p += 2;
            continue;
        }
        bool esc = *x->p == '\\';
        x->p += esc;
        if (esc ? !escape(x, &lo) : !point(x, &lo)) {
            return NULL;
        }
        hi = lo;
        if (x->end - x->p > 1 && *x->p == '-' && x->p[1] != ']') {
            x->p++;
            esc = *x->p == '\\';
            x->p += esc;
            if (esc ? !escape(x, &hi) : !point(x, &hi)) {
                return NULL;
            }
            if (hi < lo) {
                return refuse(x, "a range in a class that runs backwards");
            }
        }
        if (!set_add(x, &s, lo, hi)) {
            return NULL;
        }
    }
    if (x->p == x->end) {
        return refuse(x, "a class without its `]`");
    }
    x->p++;
    return set_done(x, &s, negate);
}

/* ---- the pattern ---- */

static struct ast *alternatives(struct re *x);

static struct ast *atom(struct re *x)
{
    struct set s = {.n = 0};
    char c = *x->p;
    uint32_t v;
    if (c == '(') {
        x->p++;
        if (x->p < x->end && *x->p == '?') {
            if (x->end - x->p < 2 || x->p[1] != ':') {
                return refuse(x, "only plain groups and (?:...) are supported");
            }
            x->p += 2;
        }
        if (++x->depth > DEPTH_MAX) {
            return refuse(x, "groups more than 50 deep");
        }
        struct ast *a = alternatives(x);
        x->depth--;
        if (a && (x->p == x->end || *x->p != ')')) {
            return refuse(x, "a group without its `)`");
        }
        x->p += a != NULL;
        return a;
    }
    if (c == '[') {
        x->p++;
        return class_of(x);
    }
    if (c == '.') { /* anything but the ends of lines */
        x->p++;
        set_add(x, &s, '\n', '\n');
        set_add(x, &s, '\r', '\r');
        set_add(x, &s, 0x2028, 0x2029);
        return set_done(x, &s, true);
    }
    if (c == '^' || c == '$') {
        return refuse(x, "^ and $ are supported at the ends of the pattern only");
    }
    if (c == '*' || c == '+' || c == '?' || c == '{' || c == ']' || c == '}') {
        return refuse(x, "a character that repeats stands where there is nothing to repeat");
    }
    if (c == '\\') {
        x->p++;
        char k = x->p < x->end ? *x->p : 0;
        if (k && strchr("dwsDWS", k)) {
            x->p++;
            return shorthand(x, &s, (char)(k | 0x20)) ? set_done(x, &s, k < 'a') : NULL;
        }
        if (!escape(x, &v)) {
            return NULL;
        }
    } else if (!point(x, &v)) {
        return NULL;
    }
    return set_add(x, &s, v, v) ? set_done(x, &s, false) : NULL;
}

static bool number(struct re *x, uint32_t *out)
{
    uint32_t v = 0;
    const char *from = x->p;
    while (x->p < x->end && *x->p >= '0' && *x->p <= '9' && v <= GRAMMAR_REPEAT_MAX) {
        v = v * 10 + (uint32_t)(*x->p++ - '0');
    }
    *out = v;
    return x->p != from && v <= GRAMMAR_REPEAT_MAX;
}

static struct ast *piece(struct re *x)
{
    struct ast *a = atom(x);
    while (a && x->p < x->end && strchr("*+?{", *x->p)) {
        uint32_t min = 0, max = GRAM_NONE;
        char c = *x->p++;
        if (c == '+') {
            min = 1;
        } else if (c == '?') {
            max = 1;
        } else if (c == '{') {
            bool ok = number(x, &min);
            max = min;
            if (ok && x->p < x->end && *x->p == ',') {
                x->p++;
                max = GRAM_NONE;
                if (x->p < x->end && *x->p != '}') {
                    ok = number(x, &max) && max >= min;
                }
            }
            if (!ok || x->p == x->end || *x->p != '}') {
                return refuse(x, "a count in {} that is not {m}, {m,} or {m,n} up to 4096");
            }
            x->p++;
        }
        if (x->p < x->end && *x->p == '?') {
            x->p++; /* lazy: the same texts */
        }
        a = node(x, REPEAT, a, NULL);
        if (a) {
            a->min = min;
            a->max = max;
        }
    }
    return a;
}

static struct ast *sequence(struct re *x)
{
    struct ast *r = node(x, EMPTY, NULL, NULL);
    while (r && x->p < x->end && *x->p != '|' && *x->p != ')') {
        if (*x->p == '$' && x->depth == 0 && (x->p + 1 == x->end || x->p[1] == '|')) {
            break;
        }
        struct ast *a = piece(x);
        r = a ? node(x, CAT, r, a) : NULL;
    }
    return r;
}

static struct ast *alternatives(struct re *x)
{
    struct ast *r = sequence(x);
    while (r && x->p < x->end && *x->p == '|') {
        x->p++;
        struct ast *a = sequence(x);
        r = a ? node(x, ALT, r, a) : NULL;
    }
    return r;
}

/* ---- to rules ---- */

static uint32_t emit_chars(struct re *x, const struct ast *a, bool raw, uint32_t next)
{
    uint32_t r = GRAM_NONE;
    for (size_t i = 0; i < a->n; i++) {
        uint32_t lo = a->r[i].lo, hi = a->r[i].hi;
        while (lo <= hi) {
            uint32_t to = hi, one;
            bool escaped = !raw && (lo < 0x20 || lo == '"' || lo == '\\');
            if (escaped) {
                char c = (char)lo;
                to = lo;
                one = gram_text(x->b, &c, 1, false, next);
            } else {
                if (!raw && lo < '"' && hi >= '"') {
                    to = '"' - 1;
                } else if (!raw && lo < '\\' && hi >= '\\') {
                    to = '\\' - 1;
                }
                if (lo >= 0xD800 && to <= 0xDFFF) { /* no characters */
                    lo = to + 1;
                    continue;
                }
                one = gram_points(x->b, lo, to, next);
            }
            r = r == GRAM_NONE ? one : gram_alt(x->b, r, one);
            lo = to + 1;
        }
    }
    if (r == GRAM_NONE) {
        refuse(x, "a class of surrogates");
        return 0;
    }
    return r;
}

static uint32_t emit(struct re *x, const struct ast *a, bool raw, uint32_t next)
{
    if (x->b->err.code) {
        return 0;
    }
    switch (a->kind) {
    case CHARS:
        return emit_chars(x, a, raw, next);
    case CAT:
        return emit(x, a->a, raw, emit(x, a->b, raw, next));
    case ALT:
        return gram_alt(x->b, emit(x, a->a, raw, next), emit(x, a->b, raw, next));
    case REPEAT: {
        uint32_t rule = gram_rule_new(x->b);
        gram_rule_set(x->b, rule, emit(x, a->a, raw, gram_ret(x->b)));
        return gram_repeat(x->b, rule, a->min, a->max, NULL, next);
    }
    default:
        return next;
    }
}

static uint32_t anything(struct re *x, bool raw, uint32_t next)
{
    uint32_t loop = gram_hole(x->b);
    gram_fill(x->b, loop, raw ? gram_raw_char(x->b, loop) : gram_string_char(x->b, loop), next);
    return loop;
}

uint32_t gram_regex(struct gram_builder *b, const char *p, size_t n, bool raw, const char *at,
                    uint32_t next)
{
    struct re x = {.b = b, .p = p, .end = p + n, .at = at};
    uint32_t r = GRAM_NONE;
    do {
        bool from = x.p < x.end && *x.p == '^';
        x.p += from;
        struct ast *a = sequence(&x);
        bool to = a && x.p < x.end && *x.p == '$';
        x.p += to;
        if (a && x.p < x.end && *x.p != '|') {
            a = refuse(&x, "a `)` without its group");
        }
        if (!a) {
            break;
        }
        uint32_t one = emit(&x, a, raw, to ? next : anything(&x, raw, next));
        one = from ? one : anything(&x, raw, one);
        r = r == GRAM_NONE ? one : gram_alt(b, r, one);
        if (x.p == x.end) {
            break;
        }
        x.p++;
    } while (true);
    while (x.all) {
        struct ast *a = x.all;
        x.all = a->all;
        free(a->r);
        free(a);
    }
    return b->err.code ? 0 : r;
}
