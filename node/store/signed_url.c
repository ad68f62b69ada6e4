/* SPDX-License-Identifier: MIT
 * signed_url.c: see signed_url.h. */
#include "node/store/signed_url.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#define EPOCH_LEAST 1000000000ll /* 2001: smaller numbers are no time */
#define EPOCH_MOST 10000000000ll /* 2286 */
#define LIFE_MOST (100ll * 366 * 86400)
#define FIELD_MAX 64

struct field {
    const char *key, *value;
    size_t key_n;
    char text[FIELD_MAX]; /* the value without percent signs, "" when it is too long for a time */
};

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static void decode(struct field *f, const char *p, size_t n)
{
    size_t k = 0;
    f->text[0] = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (c == '%' && n - i > 2 && hex(p[i + 1]) >= 0 && hex(p[i + 2]) >= 0) {
            c = (char)(hex(p[i + 1]) * 16 + hex(p[i + 2]));
            i += 2;
        }
        if (k + 1 == sizeof f->text || c == 0) {
            f->text[0] = 0;
            return;
        }
        f->text[k++] = c;
    }
    f->text[k] = 0;
}

/* Decimal digits and nothing else; -1: it is none, or too large for any time. */
static int64_t number(const char *s)
{
    int64_t v = 0;
    if (!*s || strlen(s) > 15) {
        return -1;
    }
    for (; *s; s++) {
        if (*s < '0' || *s > '9') {
            return -1;
        }
        v = v * 10 + (*s - '0');
    }
    return v;
}

static int two(const char *s)
{
    return s[0] >= '0' && s[0] <= '9' && s[1] >= '0' && s[1] <= '9'
               ? (s[0] - '0') * 10 + (s[1] - '0')
               : -1;
}

/* Days from 1970-01-01 of a date of the Gregorian calendar. */
static int64_t days(int y, int m, int d)
{
    y -= m <= 2;
    int era = y / 400, of = y - era * 400;
    int day = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return (int64_t)era * 146097 + (int64_t)of * 365 + of / 4 - of / 100 + day - 719468;
}

/* 20260131T235959Z or 2026-01-31T23:59:59Z (also without seconds or time); 0: it is none. */
static int64_t date(const char *s)
{
    char plain[16] = ""; /* YYYYMMDDHHMMSS */
    size_t k = 0;
    for (; *s && *s != 'Z' && *s != '.'; s++) {
        if (*s == '-' || *s == ':' || *s == 'T') {
            continue;
        }
        if (*s < '0' || *s > '9' || k == 14) {
            return 0;
        }
        plain[k++] = *s;
    }
    if (k != 8 && k != 12 && k != 14) {
        return 0;
    }
    memset(plain + k, '0', 14 - k);
    int y = two(plain) * 100 + two(plain + 2), mon = two(plain + 4), d = two(plain + 6);
    int h = two(plain + 8), min = two(plain + 10), sec = two(plain + 12);
    if (y < 1970 || mon < 1 || mon > 12 || d < 1 || d > 31 || h > 23 || min > 59 || sec > 60) {
        return 0;
    }
    int64_t at = days(y, mon, d) * 86400 + h * 3600 + min * 60 + sec;
    return at >= EPOCH_LEAST && at < EPOCH_MOST ? at : 0;
}

static int64_t epoch(int64_t v)
{
    v = v >= EPOCH_MOST ? v / 1000 : v; /* milliseconds */
    return v >= EPOCH_LEAST && v < EPOCH_MOST ? v : 0;
}

static bool is(const struct field *f, const char *key)
{
    return f->key_n == strlen(key) && strncasecmp(f->key, key, f->key_n) == 0;
}

/* "X-<service>-<what>": the signature of version 4 and its relatives. */
static bool v4(const struct field *f, const char *what)
{
    size_t n = strlen(what);
    return f->key_n > n + 3 && strncasecmp(f->key, "x-", 2) == 0 &&
           f->key[f->key_n - n - 1] == '-' && strncasecmp(f->key + f->key_n - n, what, n) == 0;
}

static const char *const epoch_keys[] = {"expires",    "exp",        "expire",     "expiry",
                                         "expires_at", "expires_on", "expiration", "e"};

int64_t signed_url_expires(const char *url)
{
    const char *p = strchr(url, '?');
    int64_t best = 0, signed_at = 0, life = -1;
    while (p && *p && *p != '#') {
        p++;
        size_t n = strcspn(p, "&;~#");
        const char *eq = NULL, *from = p;
        for (size_t i = 0; i < n; i++) { /* what the last "=" divides */
            if (p[i] == '=') {
                from = eq ? eq + 1 : p;
                eq = p + i;
            }
        }
        if (eq) {
            struct field f = {.key = from, .value = eq + 1, .key_n = (size_t)(eq - from)};
            decode(&f, f.value, (size_t)(p + n - f.value));
            int64_t at = 0;
            if (v4(&f, "date")) {
                signed_at = date(f.text);
            } else if (v4(&f, "expires")) {
                life = number(f.text);
            } else if (is(&f, "se")) {
                at = date(f.text);
            } else {
                for (size_t i = 0; i < sizeof epoch_keys / sizeof *epoch_keys; i++) {
                    at = is(&f, epoch_keys[i]) ? epoch(number(f.text)) : at;
                }
            }
            best = at && (!best || at < best) ? at : best;
        }
        p += n;
    }
    if (signed_at && life >= 0 && life <= LIFE_MOST && (!best || signed_at + life < best)) {
        best = signed_at + life;
    }
    return best;
}
