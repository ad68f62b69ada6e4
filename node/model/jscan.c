/* SPDX-License-Identifier: MIT
 * jscan.c: see jscan.h. */
#include "node/model/jscan.h"

#include <string.h>

void jscan_init(struct jscan *s, const char *p, size_t n)
{
    s->begin = s->p = p;
    s->end = p + n;
    s->depth = 0;
    s->started = 0;
    s->e = (struct err){0};
}

bool jstr_eq(struct jstr s, const char *z)
{
    return strlen(z) == s.n && memcmp(s.p, z, s.n) == 0;
}

static int fail(struct jscan *s, int code, const char *what)
{
    return err_set(&s->e, code, "byte %zu: %s", (size_t)(s->p - s->begin), what);
}

/* Skip white space; false at the end of the text. */
static bool space(struct jscan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t')) {
        s->p++;
    }
    return s->p < s->end;
}

static int open_with(struct jscan *s, char c, const char *what)
{
    if (s->e.code) {
        return s->e.code;
    }
    if (!space(s) || *s->p != c) {
        return fail(s, ERR_FORMAT, what);
    }
    if (s->depth == JSCAN_MAX_DEPTH) {
        return fail(s, ERR_LIMIT, "nested too deeply");
    }
    s->p++;
    s->depth++;
    s->started &= ~(1ull << s->depth);
    return 0;
}

/* At a member's place: *more = false when the closing bracket was there; else the comma that must
 * part it from the one before has been read. */
static int next(struct jscan *s, char close, bool *more)
{
    *more = false;
    if (s->e.code) {
        return s->e.code;
    }
    if (!space(s)) {
        return fail(s, ERR_FORMAT, "the text ends inside an object or array");
    }
    uint64_t bit = 1ull << s->depth;
    if (*s->p == close) {
        s->p++;
        s->depth--;
        return 0;
    }
    if (s->started & bit) {
        if (*s->p != ',') {
            return fail(s, ERR_FORMAT, "expected a comma or the closing bracket");
        }
        s->p++;
        if (!space(s)) {
            return fail(s, ERR_FORMAT, "the text ends after a comma");
        }
    }
    s->started |= bit;
    *more = true;
    return 0;
}

static int hex4(struct jscan *s, uint32_t *v)
{
    if (s->end - s->p < 4) {
        return fail(s, ERR_FORMAT, "the text ends inside an escape");
    }
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        char c = s->p[i];
        uint32_t d;
        if (c >= '0' && c <= '9') {
            d = (uint32_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            d = (uint32_t)(c - 'a') + 10;
        } else if (c >= 'A' && c <= 'F') {
            d = (uint32_t)(c - 'A') + 10;
        } else {
            return fail(s, ERR_FORMAT, "expected four hexadecimal digits");
        }
        r = r << 4 | d;
    }
    s->p += 4;
    *v = r;
    return 0;
}

/* The escape after a backslash, as UTF-8 in u; *k bytes. */
static int escape(struct jscan *s, char u[4], size_t *k)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->p == s->end) {
        return fail(s, ERR_FORMAT, "the text ends inside an escape");
    }
    char c = *s->p;
    const char *f = c ? strchr(from, c) : NULL;
    if (f) {
        s->p++;
        u[0] = to[f - from];
        *k = 1;
        return 0;
    }
    if (c != 'u') {
        return fail(s, ERR_FORMAT, "unknown escape in a string");
    }
    s->p++;
    uint32_t v, lo;
    int r = hex4(s, &v);
    if (r) {
        return r;
    }
    if (v >= 0xd800 && v < 0xdc00) {
        if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u') {
            return fail(s, ERR_FORMAT, "half a surrogate pair");
        }
        s->p += 2;
        r = hex4(s, &lo);
        if (r) {
            return r;
        }
        if (lo < 0xdc00 || lo > 0xdfff) {
            return fail(s, ERR_FORMAT, "half a surrogate pair");
        }
        v = 0x10000 + ((v - 0xd800) << 10) + (lo - 0xdc00);
    } else if (v >= 0xdc00 && v < 0xe000) {
        return fail(s, ERR_FORMAT, "half a surrogate pair");
    }
    if (v == 0) {
        return fail(s, ERR_FORMAT, "a NUL character in a string");
    }
    if (v < 0x80) {
        u[0] = (char)v;
        *k = 1;
    } else if (v < 0x800) {
        u[0] = (char)(0xc0 | v >> 6);
        u[1] = (char)(0x80 | (v & 63));
        *k = 2;
    } else if (v < 0x10000) {
        u[0] = (char)(0xe0 | v >> 12);
        u[1] = (char)(0x80 | (v >> 6 & 63));
        u[2] = (char)(0x80 | (v & 63));
        *k = 3;
    } else {
        u[0] = (char)(0xf0 | v >> 18);
        u[1] = (char)(0x80 | (v >> 12 & 63));
        u[2] = (char)(0x80 | (v >> 6 & 63));
        u[3] = (char)(0x80 | (v & 63));
        *k = 4;
    }
    return 0;
}

/* A string; out = NULL: only checked. `store` takes the decoded bytes when there are escapes. */
static int string(struct jscan *s, char *store, struct jstr *out)
{
    if (!space(s) || *s->p != '"') {
        return fail(s, ERR_FORMAT, "expected a string");
    }
    const char *from = ++s->p;
    while (s->p < s->end && *s->p != '"' && *s->p != '\\' && (unsigned char)*s->p >= 0x20) {
        s->p++;
    }
    size_t n = (size_t)(s->p - from);
    bool in_place = s->p < s->end && *s->p == '"';
    if (out && n > JSCAN_MAX_STRING) {
        return fail(s, ERR_LIMIT, "a string is too long");
    }
    if (out && in_place) {
        *out = (struct jstr){from, n};
    } else if (out) {
        memcpy(store, from, n);
    }
    while (!in_place) {
        if (s->p == s->end) {
            return fail(s, ERR_FORMAT, "the text ends inside a string");
        }
        char u[4] = {*s->p, 0, 0, 0};
        size_t k = 1;
        if (*s->p == '"') {
            if (out) {
                *out = (struct jstr){store, n};
            }
            break;
        }
        if ((unsigned char)*s->p < 0x20) {
            return fail(s, ERR_FORMAT, "a control character in a string");
        }
        s->p++;
        if (u[0] == '\\') {
            int r = escape(s, u, &k);
            if (r) {
                return r;
            }
        }
        if (out) {
            if (k > JSCAN_MAX_STRING - n) {
                return fail(s, ERR_LIMIT, "a string is too long");
            }
            memcpy(store + n, u, k);
            n += k;
        }
    }
    s->p++;
    return 0;
}

int jscan_object(struct jscan *s)
{
    return open_with(s, '{', "expected an object ('{')");
}

int jscan_array(struct jscan *s)
{
    return open_with(s, '[', "expected an array ('[')");
}

static int key_of(struct jscan *s, struct jstr *key, bool *more)
{
    int r = next(s, '}', more);
    if (r || !*more) {
        return r;
    }
    r = string(s, s->key, key);
    if (r) {
        return r;
    }
    if (!space(s) || *s->p != ':') {
        return fail(s, ERR_FORMAT, "expected a colon after a key");
    }
    s->p++;
    return 0;
}

int jscan_key(struct jscan *s, struct jstr *key, bool *more)
{
    return key_of(s, key, more);
}

int jscan_item(struct jscan *s, bool *more)
{
    return next(s, ']', more);
}

int jscan_string(struct jscan *s, struct jstr *v)
{
    return s->e.code ? s->e.code : string(s, s->value, v);
}

static bool digit(const struct jscan *s)
{
    return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

int jscan_u64(struct jscan *s, uint64_t *v)
{
    if (s->e.code) {
        return s->e.code;
    }
    space(s);
    if (!digit(s)) {
        return fail(s, ERR_FORMAT, "expected an integer that is not negative");
    }
    const char *from = s->p;
    uint64_t r = 0;
    for (; digit(s); s->p++) {
        if (__builtin_mul_overflow(r, (uint64_t)10, &r) ||
            __builtin_add_overflow(r, (uint64_t)(*s->p - '0'), &r)) {
            return fail(s, ERR_LIMIT, "an integer is larger than 64 bits");
        }
    }
    if (*from == '0' && s->p - from > 1) {
        return fail(s, ERR_FORMAT, "an integer begins with 0");
    }
    if (s->p < s->end && (*s->p == '.' || *s->p == 'e' || *s->p == 'E')) {
        return fail(s, ERR_FORMAT, "expected an integer, found a fraction");
    }
    *v = r;
    return 0;
}

static int digits(struct jscan *s)
{
    if (!digit(s)) {
        return fail(s, ERR_FORMAT, "malformed number");
    }
    while (digit(s)) {
        s->p++;
    }
    return 0;
}

static int number(struct jscan *s)
{
    if (*s->p == '-') {
        s->p++;
    }
    const char *from = s->p;
    int r = digits(s);
    if (!r && *from == '0' && s->p - from > 1) {
        r = fail(s, ERR_FORMAT, "a number begins with 0");
    }
    if (!r && s->p < s->end && *s->p == '.') {
        s->p++;
        r = digits(s);
    }
    if (!r && s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-')) {
            s->p++;
        }
        r = digits(s);
    }
    return r;
}

static int scalar(struct jscan *s)
{
    static const char *const words[] = {"true", "false", "null"};
    if (!space(s)) {
        return fail(s, ERR_FORMAT, "the text ends where a value must be");
    }
    if (*s->p == '"') {
        return string(s, NULL, NULL);
    }
    if (*s->p == '-' || digit(s)) {
        return number(s);
    }
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->p) >= n && memcmp(s->p, words[i], n) == 0) {
            s->p += n;
            return 0;
        }
    }
    return fail(s, ERR_FORMAT, "expected a value");
}

int jscan_skip(struct jscan *s)
{
    if (s->e.code) {
        return s->e.code;
    }
    unsigned base = s->depth;
    uint64_t is_array = 0; /* bit d: depth d is an array */
    do {
        int r;
        if (s->depth > base) {
            bool more;
            bool arr = is_array >> s->depth & 1;
            if (arr) {
                r = next(s, ']', &more);
            } else {
                struct jstr k;
                r = key_of(s, &k, &more);
            }
            if (r) {
                return r;
            }
            if (!more) {
                continue;
            }
        }
        if (space(s) && (*s->p == '{' || *s->p == '[')) {
            bool arr = *s->p == '[';
            r = open_with(s, *s->p, "");
            if (!r) {
                uint64_t bit = 1ull << s->depth;
                is_array = arr ? is_array | bit : is_array & ~bit;
            }
        } else {
            r = scalar(s);
        }
        if (r) {
            return r;
        }
    } while (s->depth > base);
    return 0;
}

int jscan_end(struct jscan *s)
{
    if (s->e.code) {
        return s->e.code;
    }
    return space(s) ? fail(s, ERR_FORMAT, "something follows the end of the JSON text") : 0;
}
