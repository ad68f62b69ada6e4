/* SPDX-License-Identifier: MIT
 * regex.c: rules.h: patterns of JSON schemas (ECMA 262 with the `u` flag). Read: characters and
 * escapes, `.`, classes and their shorthands \d \w \s (and \D \W \S outside of classes), groups,
 * alternatives, ? * + {m} {m,} {m,n}, lazy forms of them (which match the same texts), ^ at the
 * beginning of the pattern or of its outermost alternatives, $, (?=...) and (?!...) outside of
 * repetitions. Anything else is refused by name.
 *
 * A pattern by itself becomes rules as it is written. With look-ahead, or together with other
 * conditions, it goes through lang.h. */
#include "node/grammar/lang.h"

#include "node/text/tok_utf8.h"

#include <stdlib.h>
#include <string.h>

#define RANGES_MAX 128
#define DEPTH_MAX 50
#define NODES_MAX 10000
#define POINT_MAX 0x10FFFFu

enum kind { EMPTY, ANYTHING, CHARS, CAT, ALT, REPEAT, AHEAD, NOT_AHEAD, END };
struct ast {
    enum kind kind;
    bool looks;        /* it is, or has within it, one of AHEAD, NOT_AHEAD, END */
    uint32_t min, max; /* REPEAT; max GRAM_NONE: without end */
    struct ast *a, *b;
    struct lang_range *r; /* CHARS, ascending, apart */
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
    n->looks = kind >= AHEAD || (a && a->looks) || (b && b->looks);
    n->a = a;
    n->b = b;
    n->all = x->all;
    x->all = n;
    return n;
}

/* ---- sets of characters ---- */

struct set {
    struct lang_range r[RANGES_MAX];
    size_t n;
};

static bool set_add(struct re *x, struct set *s, uint32_t lo, uint32_t hi)
{
    if (s->n == RANGES_MAX) {
        refuse(x, "a class with more than 128 ranges");
        return false;
    }
    s->r[s->n++] = (struct lang_range){lo, hi};
    return true;
}

static int by_lo(const void *a, const void *b)
{
    const struct lang_range *x = a, *y = b;
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
        struct lang_range r = s->r[i];
        if (negate) {
            if (r.lo > from) {
                n->r[n->n++] = (struct lang_range){from, r.lo - 1};
            }
        } else if (r.hi >= from) {
            n->r[n->n++] = (struct lang_range){r.lo > from ? r.lo : from, r.hi};
        }
        from = r.hi >= from ? r.hi + 1 : from;
    }
    if (negate && from <= POINT_MAX) {
        n->r[n->n++] = (struct lang_range){from, POINT_MAX};
    }
    return n->n ? n : refuse(x, "a class without any character");
}

/* \d \w \s as ECMA 262 defines them. */
static bool shorthand(struct re *x, struct set *s, char c)
{
    static const struct lang_range d[] = {{'0', '9'}};
    static const struct lang_range w[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct lang_range sp[] = {
        {9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
        {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    const struct lang_range *r = c == 'd' ? d : c == 'w' ? w : sp;
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
        enum kind look = EMPTY;
        if (x->p < x->end && *x->p == '?') {
            char k = x->end - x->p < 2 ? 0 : x->p[1];
            if (k != ':' && k != '=' && k != '!') {
                return refuse(x, "only plain groups, (?:...), (?=...) and (?!...) are supported");
            }
            look = k == '=' ? AHEAD : k == '!' ? NOT_AHEAD : EMPTY;
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
        return a && look != EMPTY ? node(x, look, a, NULL) : a;
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
    if (c == '^') {
        return refuse(x, "^ is supported at the beginning of the pattern only");
    }
    if (c == '$') {
        x->p++;
        return node(x, END, NULL, NULL);
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
        if (a->looks && max != 1) {
            return refuse(x, "a look-ahead within a repetition is not supported");
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

/* Sets of characters that take more than a node have a rule of their own, once. */
struct writer {
    struct re *x;
    bool raw;
    struct set_rule {
        struct lang_range *r;
        size_t n;
        uint32_t rule;
    } * seen;
    size_t n_seen, cap_seen;
};

static uint32_t write_chars(const struct writer *w, const struct lang_range *range, size_t n,
                            uint32_t next)
{
    struct gram_builder *b = w->x->b;
    uint32_t r = GRAM_NONE;
    for (size_t i = 0; i < n; i++) {
        uint32_t lo = range[i].lo, hi = range[i].hi;
        while (lo <= hi) {
            uint32_t to = hi, one;
            bool escaped = !w->raw && (lo < 0x20 || lo == '"' || lo == '\\');
            if (escaped) {
                char c = (char)lo;
                to = lo;
                one = gram_text(b, &c, 1, false, next);
            } else {
                if (!w->raw && lo < '"' && hi >= '"') {
                    to = '"' - 1;
                } else if (!w->raw && lo < '\\' && hi >= '\\') {
                    to = '\\' - 1;
                }
                if (lo >= 0xD800 && to <= 0xDFFF) { /* no characters */
                    lo = to + 1;
                    continue;
                }
                one = gram_points(b, lo, to, next);
            }
            r = r == GRAM_NONE ? one : gram_alt(b, r, one);
            lo = to + 1;
        }
    }
    return r;
}

static uint32_t shared_chars(void *ctx, const struct lang_range *r, size_t n, uint32_t next)
{
    struct writer *w = ctx;
    struct gram_builder *b = w->x->b;
    if (n == 1 && r->lo > '"' && r->hi < 0x7F && (r->hi < '\\' || r->lo > '\\')) {
        return gram_points(b, r->lo, r->hi, next);
    }
    for (size_t i = 0; i < w->n_seen; i++) {
        if (w->seen[i].n == n && !memcmp(w->seen[i].r, r, n * sizeof *r)) {
            return gram_call(b, w->seen[i].rule, next);
        }
    }
    if (w->n_seen == w->cap_seen) {
        size_t cap = w->cap_seen ? 2 * w->cap_seen : 16;
        struct set_rule *p = realloc(w->seen, cap * sizeof *p);
        if (!p) {
            gram_fail(b, ERR_NOMEM, "out of memory");
            return 0;
        }
        w->seen = p;
        w->cap_seen = cap;
    }
    struct set_rule *s = &w->seen[w->n_seen];
    *s = (struct set_rule){malloc(n * sizeof *r), n, gram_rule_new(b)};
    if (!s->r) {
        gram_fail(b, ERR_NOMEM, "out of memory");
        return 0;
    }
    memcpy(s->r, r, n * sizeof *r);
    w->n_seen++;
    gram_rule_set(b, s->rule, write_chars(w, r, n, gram_ret(b)));
    return gram_call(b, s->rule, next);
}

static uint32_t anything(struct re *x, bool raw, uint32_t next)
{
    uint32_t loop = gram_hole(x->b);
    gram_fill(x->b, loop, raw ? gram_raw_char(x->b, loop) : gram_string_char(x->b, loop), next);
    return loop;
}

static uint32_t emit(struct re *x, const struct ast *a, bool raw, uint32_t next)
{
    struct writer w = {.x = x, .raw = raw};
    uint32_t r;
    if (x->b->err.code) {
        return 0;
    }
    switch (a->kind) {
    case CHARS:
        r = write_chars(&w, a->r, a->n, next);
        if (r == GRAM_NONE) {
            refuse(x, "a class of surrogates");
        }
        return r == GRAM_NONE ? 0 : r;
    case ANYTHING:
        return anything(x, raw, next);
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

/* ---- to a set of texts ---- */

/* The texts of a with those of `then` behind them. */
static uint32_t texts(struct lang *l, const struct ast *a, uint32_t then)
{
    switch (a->kind) {
    case CHARS:
        return lang_cat(l, lang_chars(l, a->r, a->n), then);
    case ANYTHING:
        return lang_cat(l, LANG_ALL, then);
    case CAT:
        return texts(l, a->a, texts(l, a->b, then));
    case ALT:
        return lang_or(l, texts(l, a->a, then), texts(l, a->b, then));
    case REPEAT:
        if (a->a->looks) { /* once, or perhaps once */
            uint32_t once = texts(l, a->a, then);
            return a->min ? once : lang_or(l, once, then);
        }
        return lang_cat(l, lang_repeat(l, texts(l, a->a, LANG_EMPTY), a->min, a->max), then);
    case AHEAD:
        return lang_and(l, then, texts(l, a->a, LANG_ALL));
    case NOT_AHEAD:
        return lang_and(l, then, lang_not(l, texts(l, a->a, LANG_ALL)));
    case END:
        return lang_and(l, then, LANG_EMPTY);
    default:
        return then;
    }
}

/* The whole pattern, with what may stand before and behind it. */
static struct ast *parse(struct re *x)
{
    struct ast *r = NULL;
    do {
        bool from = x->p < x->end && *x->p == '^';
        x->p += from;
        struct ast *a = sequence(x);
        bool to = a && x->p < x->end && *x->p == '$';
        x->p += to;
        if (a && x->p < x->end && *x->p != '|') {
            a = refuse(x, "a `)` without its group");
        }
        struct ast *all = a && !(from && to) ? node(x, ANYTHING, NULL, NULL) : a;
        a = a && !to ? node(x, CAT, a, all) : a;
        a = a && all && !from ? node(x, CAT, all, a) : a;
        r = !a ? NULL : r ? node(x, ALT, r, a) : a;
        if (!r || x->p == x->end) {
            return r;
        }
        x->p++;
    } while (true);
}

/* All conditions at once. */
static uint32_t met(struct re *x, struct ast *const *a, size_t n, uint32_t min, uint32_t max,
                    bool raw, uint32_t next, bool *none)
{
    struct lang *l = lang_new(x->b);
    struct writer w = {.x = x, .raw = raw};
    uint32_t all = LANG_ALL, r = 0;
    int rc = l ? 0 : ERR_NOMEM;
    for (size_t i = 0; i < n && !rc; i++) {
        all = lang_and(l, all, texts(l, a[i], LANG_EMPTY));
    }
    if (!rc && (min || max != GRAM_NONE)) {
        struct lang_range any = {0, POINT_MAX};
        all = lang_and(l, all, lang_repeat(l, lang_chars(l, &any, 1), min, max));
    }
    rc = rc ? rc : lang_rules(l, all, x->b, shared_chars, &w, next, &r);
    for (size_t i = 0; i < w.n_seen; i++) {
        free(w.seen[i].r);
    }
    free(w.seen);
    lang_free(l);
    if (rc == ERR_NOTFOUND) {
        *none = true;
    } else if (rc == ERR_LIMIT) {
        refuse(x, "with its look-ahead, its format and its lengths it is too large");
    } else if (rc) {
        gram_fail(x->b, rc, "out of memory");
    }
    return r;
}

uint32_t gram_regex(struct gram_builder *b, const struct gram_pattern *p, size_t n, uint32_t min,
                    uint32_t max, bool raw, const char *at, uint32_t next, bool *none)
{
    struct re x = {.b = b, .at = at};
    struct ast *a[GRAM_PATTERNS_MAX];
    bool looks = n > 1 || min || max != GRAM_NONE;
    uint32_t r = 0;
    *none = false;
    for (size_t i = 0; i < n && !b->err.code; i++) {
        x.p = p[i].p;
        x.end = p[i].p + p[i].n;
        a[i] = parse(&x);
        looks = looks || (a[i] && a[i]->looks);
    }
    if (!b->err.code) {
        r = looks ? met(&x, a, n, min, max, raw, next, none) : emit(&x, a[0], raw, next);
    }
    while (x.all) {
        struct ast *t = x.all;
        x.all = t->all;
        free(t->r);
        free(t);
    }
    return b->err.code ? 0 : r;
}
