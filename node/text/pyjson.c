/* SPDX-License-Identifier: MIT
 * pyjson.c: the reader; see pyjson.h. The writer and the number spellings are in pyjson_write.c. */
#include "node/text/pyjson.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)64 << 10)

struct chunk {
    struct chunk *next;
    size_t used, cap;
    max_align_t data[];
};

struct pyjson_doc {
    struct chunk *chunks;
    const struct pyjson *root;
};

struct reader {
    const char *p, *end, *start;
    bool python;
    struct pyjson_doc *doc;
    struct err *e;
    int depth;
    size_t values;
    struct pyjson **stack; /* finished values whose container is still open */
    size_t nstack, cap;
};

static int oom(struct reader *r)
{
    return err_set(r->e, ERR_NOMEM, "out of memory while reading JSON");
}

static int bad(struct reader *r, const char *at, const char *what)
{
    return err_set(r->e, ERR_FORMAT, "not JSON: %s at byte %zu", what, (size_t)(at - r->start));
}

static void *take(struct pyjson_doc *d, size_t n)
{
    n = (n + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
    struct chunk *c = d->chunks;
    if (!c || c->cap - c->used < n) {
        size_t cap = n > CHUNK ? n : CHUNK;
        struct chunk *fresh = malloc(sizeof *fresh + cap);
        if (!fresh) {
            return NULL;
        }
        fresh->used = 0;
        fresh->cap = cap;
        if (c && n > CHUNK / 2) { /* a big one of its own: the open chunk stays in front */
            fresh->next = c->next;
            c->next = fresh;
        } else {
            fresh->next = c;
            d->chunks = fresh;
        }
        c = fresh;
    }
    void *p = (char *)c->data + c->used;
    c->used += n;
    return p;
}

static void blanks(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r')) {
        r->p++;
    }
}

/* Length of the valid UTF-8 character at p, 0 when there is none. */
static int utf8_len(const char *p, const char *end)
{
    const unsigned char *s = (const unsigned char *)p;
    ptrdiff_t left = end - p;
    if (s[0] < 0x80) {
        return 1;
    }
    if (s[0] < 0xC2 || s[0] > 0xF4) {
        return 0;
    }
    int n = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (left < n) {
        return 0;
    }
    unsigned lo = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    unsigned hi = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    if (s[1] < lo || s[1] > hi) {
        return 0;
    }
    for (int i = 2; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return n;
}

static char *put_utf8(char *o, uint32_t c)
{
    if (c < 0x80) {
        *o++ = (char)c;
    } else if (c < 0x800) {
        *o++ = (char)(0xC0 | c >> 6);
        *o++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *o++ = (char)(0xE0 | c >> 12);
        *o++ = (char)(0x80 | (c >> 6 & 0x3F));
        *o++ = (char)(0x80 | (c & 0x3F));
    } else {
        *o++ = (char)(0xF0 | c >> 18);
        *o++ = (char)(0x80 | (c >> 12 & 0x3F));
        *o++ = (char)(0x80 | (c >> 6 & 0x3F));
        *o++ = (char)(0x80 | (c & 0x3F));
    }
    return o;
}

static bool hex4(const char *p, const char *end, uint32_t *out)
{
    if (end - p < 4) {
        return false;
    }
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        uint32_t d;
        if (c >= '0' && c <= '9') {
            d = (uint32_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            d = (uint32_t)(c - 'a') + 10;
        } else if (c >= 'A' && c <= 'F') {
            d = (uint32_t)(c - 'A') + 10;
        } else {
            return false;
        }
        v = v << 4 | d;
    }
    *out = v;
    return true;
}

/* r->p stands behind \u; *o gets the character. */
static int unicode_escape(struct reader *r, char **o)
{
    uint32_t c, low;
    if (!hex4(r->p, r->end, &c)) {
        return bad(r, r->p, "\\u without four hex digits");
    }
    r->p += 4;
    if (c >= 0xD800 && c < 0xDC00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u' &&
        hex4(r->p + 2, r->end, &low) && low >= 0xDC00 && low < 0xE000) {
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        r->p += 6;
    } else if (c >= 0xD800 && c < 0xE000) {
        c = 0xFFFD;
    }
    *o = put_utf8(*o, c);
    return 0;
}

static int string(struct reader *r, const char **out, size_t *out_n)
{
    const char *open = r->p++, *q = r->p;
    while (q < r->end && *q != '"') {
        q += *q == '\\' && r->end - q > 1 ? 2 : 1;
    }
    if (q >= r->end) {
        return bad(r, open, "a string without its closing quote");
    }
    char *text =
        take(r->doc, (size_t)(q - r->p) + 1); /* an escape is never shorter than its text */
    if (!text) {
        return oom(r);
    }
    char *o = text;
    while (*r->p != '"') {
        unsigned char c = (unsigned char)*r->p;
        if (c == '\\') {
            static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
            char k = r->p[1];
            const char *f = k ? strchr(names, k) : NULL;
            r->p += 2;
            if (k == 'u') {
                int rc = unicode_escape(r, &o);
                if (rc) {
                    return rc;
                }
            } else if (f) {
                *o++ = means[f - names];
            } else {
                return bad(r, r->p - 2, "an unknown escape");
            }
        } else if (c < 0x20) {
            return bad(r, r->p, "a raw control character in a string");
        } else {
            int len = utf8_len(r->p, q);
            if (!len) {
                return bad(r, r->p, "invalid UTF-8");
            }
            memcpy(o, r->p, (size_t)len);
            o += len;
            r->p += len;
        }
    }
    r->p++;
    *o = 0;
    *out = text;
    *out_n = (size_t)(o - text);
    return 0;
}

static bool digit(const struct reader *r)
{
    return r->p < r->end && *r->p >= '0' && *r->p <= '9';
}

static bool word(struct reader *r, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n) != 0) {
        return false;
    }
    r->p += n;
    return true;
}

static int spell(struct reader *r, struct pyjson *v, const char *s, size_t n)
{
    char *t = take(r->doc, n + 1);
    if (!t) {
        return oom(r);
    }
    memcpy(t, s, n);
    t[n] = 0;
    v->type = PYJSON_NUMBER;
    v->s = t;
    v->n = n;
    return 0;
}

static int number(struct reader *r, struct pyjson *v)
{
    const char *from = r->p;
    bool real = false;
    if (*r->p == '-') {
        r->p++;
        if (r->python && word(r, "Infinity")) {
            return spell(r, v, "-Infinity", 9);
        }
    }
    if (!digit(r)) {
        return bad(r, r->p, "a number without digits");
    }
    if (*r->p == '0') {
        r->p++;
    } else {
        while (digit(r)) {
            r->p++;
        }
    }
    const char *mark = r->p;
    if (r->p < r->end && *r->p == '.') {
        r->p++;
        if (!digit(r)) {
            return bad(r, mark, "a decimal point without digits behind it");
        }
        while (digit(r)) {
            r->p++;
        }
        real = true;
    }
    mark = r->p;
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-')) {
            r->p++;
        }
        if (!digit(r)) {
            return bad(r, mark, "an exponent without digits");
        }
        while (digit(r)) {
            r->p++;
        }
        real = true;
    }
    size_t n = (size_t)(r->p - from);
    if (!real) {
        return n == 2 && from[0] == '-' && from[1] == '0' ? spell(r, v, "0", 1)
                                                          : spell(r, v, from, n);
    }
    double x;
    if (pyjson_double(from, n, &x)) {
        return oom(r);
    }
    if (isinf(x) && !r->python) {
        return spell(r, v, from, n);
    }
    char repr[32];
    pyjson_repr(x, repr);
    return spell(r, v, repr, strlen(repr));
}

static int push(struct reader *r, struct pyjson *v)
{
    if (r->nstack == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 64;
        struct pyjson **s = realloc(r->stack, cap * sizeof *s);
        if (!s) {
            return oom(r);
        }
        r->stack = s;
        r->cap = cap;
    }
    r->stack[r->nstack++] = v;
    return 0;
}

struct place {
    struct pyjson *v;
    size_t at;
};

static int by_key(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    size_t n = x->v->key_n < y->v->key_n ? x->v->key_n : y->v->key_n;
    int c = memcmp(x->v->key, y->v->key, n);
    if (c) {
        return c;
    }
    if (x->v->key_n != y->v->key_n) {
        return x->v->key_n < y->v->key_n ? -1 : 1;
    }
    return x->at < y->at ? -1 : x->at > y->at;
}

static bool same_key(const struct pyjson *a, const struct pyjson *b)
{
    return a->key_n == b->key_n && memcmp(a->key, b->key, a->key_n) == 0;
}

/* A repeated key: the first place gets the last value, the other places go. */
static int merge_repeated(struct reader *r, struct pyjson **m, size_t *count)
{
    size_t n = *count;
    if (n < 2) {
        return 0;
    }
    struct place small[16], *s = n <= 16 ? small : malloc(n * sizeof *s);
    if (!s) {
        return oom(r);
    }
    for (size_t i = 0; i < n; i++) {
        s[i].v = m[i];
        s[i].at = i;
    }
    qsort(s, n, sizeof *s, by_key);
    bool repeated = false;
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && same_key(s[i].v, s[j].v); j++) {
            m[s[j].at] = NULL;
            repeated = true;
        }
        m[s[i].at] = s[j - 1].v;
    }
    if (s != small) {
        free(s);
    }
    if (repeated) {
        size_t k = 0;
        for (size_t i = 0; i < n; i++) {
            if (m[i]) {
                m[k++] = m[i];
            }
        }
        *count = k;
    }
    return 0;
}

static int close_container(struct reader *r, struct pyjson *v, size_t base)
{
    struct pyjson **m = r->stack ? r->stack + base : NULL;
    size_t count = r->nstack - base;
    int rc = v->type == PYJSON_OBJECT ? merge_repeated(r, m, &count) : 0;
    if (rc) {
        return rc;
    }
    if (count) {
        struct pyjson **items = take(r->doc, count * sizeof *items);
        if (!items) {
            return oom(r);
        }
        memcpy(items, m, count * sizeof *items);
        v->items = (const struct pyjson *const *)items;
        v->count = count;
    }
    r->nstack = base;
    return 0;
}

static int value(struct reader *r, struct pyjson **out);

static int container(struct reader *r, struct pyjson *v, char close)
{
    size_t base = r->nstack;
    int rc;
    if (++r->depth > PYJSON_MAX_DEPTH) {
        return err_set(r->e, ERR_LIMIT, "JSON nested deeper than %d levels at byte %zu",
                       PYJSON_MAX_DEPTH, (size_t)(r->p - r->start));
    }
    v->type = close == '}' ? PYJSON_OBJECT : PYJSON_ARRAY;
    r->p++;
    blanks(r);
    bool more = !(r->p < r->end && *r->p == close);
    while (more) {
        const char *key = NULL;
        size_t key_n = 0;
        struct pyjson *m;
        blanks(r);
        if (close == '}') {
            if (r->p >= r->end || *r->p != '"') {
                return bad(r, r->p, "a member without a quoted key");
            }
            if ((rc = string(r, &key, &key_n))) {
                return rc;
            }
            blanks(r);
            if (r->p >= r->end || *r->p != ':') {
                return bad(r, r->p, "a key without ':'");
            }
            r->p++;
        }
        if ((rc = value(r, &m))) {
            return rc;
        }
        m->key = key;
        m->key_n = key_n;
        if ((rc = push(r, m))) {
            return rc;
        }
        blanks(r);
        if (r->p >= r->end || (*r->p != ',' && *r->p != close)) {
            return bad(r, r->p, close == '}' ? "',' or '}' missing" : "',' or ']' missing");
        }
        more = *r->p == ',';
        r->p += more;
    }
    r->p++;
    r->depth--;
    return close_container(r, v, base);
}

static int value(struct reader *r, struct pyjson **out)
{
    blanks(r);
    if (r->p >= r->end) {
        return bad(r, r->p, "a value is missing");
    }
    if (++r->values > PYJSON_MAX_VALUES) {
        return err_set(r->e, ERR_LIMIT, "JSON with more than %d values", PYJSON_MAX_VALUES);
    }
    struct pyjson *v = take(r->doc, sizeof *v);
    if (!v) {
        return oom(r);
    }
    memset(v, 0, sizeof *v);
    *out = v;
    char c = *r->p;
    if (c == '"') {
        v->type = PYJSON_STRING;
        return string(r, &v->s, &v->n);
    }
    if (c == '{') {
        return container(r, v, '}');
    }
    if (c == '[') {
        return container(r, v, ']');
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return number(r, v);
    }
    if (word(r, "null")) {
        v->type = PYJSON_NULL;
        return 0;
    }
    if (word(r, "true")) {
        v->type = PYJSON_TRUE;
        return 0;
    }
    if (word(r, "false")) {
        v->type = PYJSON_FALSE;
        return 0;
    }
    if (r->python && word(r, "NaN")) {
        return spell(r, v, "NaN", 3);
    }
    if (r->python && word(r, "Infinity")) {
        return spell(r, v, "Infinity", 8);
    }
    return bad(r, r->p, "a value is missing");
}

int pyjson_parse(const char *text, size_t n, bool python, struct pyjson_doc **out, struct err *e)
{
    *out = NULL;
    if (n > PYJSON_MAX_TEXT) {
        return err_set(e, ERR_LIMIT, "JSON of %zu bytes; at most %zu are taken", n,
                       PYJSON_MAX_TEXT);
    }
    struct reader r = {.python = python, .e = e, .doc = calloc(1, sizeof *r.doc)};
    struct pyjson *root;
    r.p = r.start = n ? text : "";
    r.end = r.start + n;
    if (!r.doc) {
        return oom(&r);
    }
    int rc = value(&r, &root);
    if (!rc) {
        blanks(&r);
        if (r.p < r.end) {
            rc = bad(&r, r.p, "text behind the value");
        }
    }
    free(r.stack);
    if (rc) {
        pyjson_free(r.doc);
        return rc;
    }
    r.doc->root = root;
    *out = r.doc;
    return 0;
}

const struct pyjson *pyjson_root(const struct pyjson_doc *d)
{
    return d->root;
}

void pyjson_free(struct pyjson_doc *d)
{
    if (!d) {
        return;
    }
    for (struct chunk *c = d->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(d);
}

const struct pyjson *pyjson_get(const struct pyjson *v, const char *key)
{
    if (!v || v->type != PYJSON_OBJECT) {
        return NULL;
    }
    size_t n = strlen(key);
    for (size_t i = 0; i < v->count; i++) {
        if (v->items[i]->key_n == n && memcmp(v->items[i]->key, key, n) == 0) {
            return v->items[i];
        }
    }
    return NULL;
}

bool pyjson_is(const struct pyjson *v, const char *s)
{
    return v && v->type == PYJSON_STRING && v->n == strlen(s) && memcmp(v->s, s, v->n) == 0;
}
