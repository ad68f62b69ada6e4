/* SPDX-License-Identifier: MIT
 * pyjson_write.c: the writer and the number spellings; see pyjson.h. */
#include "node/text/pyjson.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pyjson_write_string(const char *s, size_t n, struct buf *out)
{
    if (!n) {
        return buf_adds(out, "\"\"");
    }
    int rc = buf_add(out, "\"", 1);
    size_t from = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        static const char named[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
        if (c >= 0x20 && c != '"' && c != '\\') {
            continue;
        }
        rc = buf_add(out, s + from, i - from);
        from = i + 1;
        const char *k = c ? strchr(named, c) : NULL;
        if (!rc) {
            rc = k ? buf_addf(out, "\\%c", letter[k - named]) : buf_addf(out, "\\u%04x", c);
        }
    }
    if (!rc) {
        rc = buf_add(out, s + from, n - from);
    }
    return rc ? rc : buf_add(out, "\"", 1);
}

/* UTF-8 compared by bytes is in code-point order. */
static int by_key(const void *a, const void *b)
{
    const struct pyjson *x = *(const struct pyjson *const *)a,
                        *y = *(const struct pyjson *const *)b;
    int c = memcmp(x->key, y->key, x->key_n < y->key_n ? x->key_n : y->key_n);
    return c ? c : x->key_n < y->key_n ? -1 : x->key_n > y->key_n;
}

static int write_items(const struct pyjson *v, const struct pyjson *const *items, int how,
                       struct buf *out)
{
    bool object = v->type == PYJSON_OBJECT;
    int rc = buf_adds(out, object ? "{" : "[");
    for (size_t i = 0; !rc && i < v->count; i++) {
        if (i) {
            rc = buf_adds(out, how & PYJSON_COMPACT ? "," : ", ");
        }
        if (!rc && object) {
            rc = pyjson_write_string(items[i]->key, items[i]->key_n, out);
            if (!rc) {
                rc = buf_adds(out, how & PYJSON_COMPACT ? ":" : ": ");
            }
        }
        if (!rc) {
            rc = pyjson_write(items[i], how, out);
        }
    }
    return rc ? rc : buf_adds(out, object ? "}" : "]");
}

int pyjson_write(const struct pyjson *v, int how, struct buf *out)
{
    switch (v->type) {
    case PYJSON_NULL:
        return buf_adds(out, "null");
    case PYJSON_FALSE:
        return buf_adds(out, "false");
    case PYJSON_TRUE:
        return buf_adds(out, "true");
    case PYJSON_NUMBER:
        return buf_add(out, v->s, v->n);
    case PYJSON_STRING:
        return pyjson_write_string(v->s, v->n, out);
    default:
        break;
    }
    if (!(how & PYJSON_SORTED) || v->type == PYJSON_ARRAY || v->count < 2) {
        return write_items(v, v->items, how, out);
    }
    const struct pyjson **sorted = malloc(v->count * sizeof *sorted);
    if (!sorted) {
        return ERR_NOMEM;
    }
    memcpy(sorted, v->items, v->count * sizeof *sorted);
    qsort(sorted, v->count, sizeof *sorted, by_key);
    int rc = write_items(v, sorted, how, out);
    free(sorted);
    return rc;
}

int pyjson_double(const char *s, size_t n, double *out)
{
    /* Rewritten as digits and exponent only, so that no locale's decimal point matters. */
    char small[64], *t = n < sizeof small - 24 ? small : malloc(n + 24), *o = t;
    if (!t) {
        return ERR_NOMEM;
    }
    long long places = 0, e10 = 0;
    bool point = false, neg = false;
    size_t i = 0;
    for (; i < n && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] == '.') {
            point = true;
            continue;
        }
        *o++ = s[i];
        places += point;
    }
    for (i++; i < n; i++) {
        if (s[i] == '-') {
            neg = true;
        } else if (s[i] != '+' && e10 < 1000000000) { /* far beyond any exponent that matters */
            e10 = e10 * 10 + (s[i] - '0');
        }
    }
    snprintf(o, 24, "e%lld", (neg ? -e10 : e10) - places);
    *out = strtod(t, NULL);
    if (t != small) {
        free(t);
    }
    return 0;
}

/* x = 0.d1d2d3... * 10^*point, by the p significant digits nearest to x. */
static void digits_of(double x, int p, char d[24], int *point)
{
    char t[40];
    snprintf(t, sizeof t, "%.*e", p - 1, x);
    int n = 0;
    const char *q = t;
    for (; *q && *q != 'e'; q++) {
        if (*q >= '0' && *q <= '9') { /* skips the locale's decimal point */
            d[n++] = *q;
        }
    }
    d[n] = 0;
    *point = *q ? (int)strtol(q + 1, NULL, 10) + 1 : 1;
}

static bool reads_back(const char *d, int point, double x)
{
    char t[40];
    snprintf(t, sizeof t, "%se%d", d, point - (int)strlen(d));
    return strtod(t, NULL) == x;
}

/* The next longer decimal of the same number of digits. */
static void one_up(char *d, int *point)
{
    int i = (int)strlen(d) - 1;
    for (; i >= 0 && d[i] == '9'; i--) {
        d[i] = '0';
    }
    if (i >= 0) {
        d[i]++;
    } else {
        d[0] = '1';
        ++*point;
    }
}

/* The shortest digits that read back as x > 0, the nearest to x among those. */
static void shortest(double x, char d[24], int *point)
{
    /* 15 digits always survive a normal double, so a shorter answer is those without zeros. */
    for (int p = x < DBL_MIN ? 1 : 15; p < 17; p++) {
        digits_of(x, p, d, point);
        if (reads_back(d, *point, x)) {
            return;
        }
        /* Above a power of two the doubles lie twice as far apart as below it: there the nearest p
         * digits may lie below, outside, while the next ones up still read back as x. */
        one_up(d, point);
        if (reads_back(d, *point, x)) {
            return;
        }
    }
    digits_of(x, 17, d, point);
}

void pyjson_repr(double x, char out[32])
{
    if (isnan(x) || isinf(x)) {
        snprintf(out, 32, "%s", isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
        return;
    }
    char *o = out, d[24] = "0";
    int point = 1;
    if (signbit(x)) {
        *o++ = '-';
    }
    if (x != 0) {
        shortest(fabs(x), d, &point);
    }
    int n = (int)strlen(d);
    while (n > 1 && d[n - 1] == '0') {
        n--;
    }
    if (point > 16 || point < -3) {
        *o++ = d[0];
        if (n > 1) {
            *o++ = '.';
            memcpy(o, d + 1, (size_t)n - 1);
            o += n - 1;
        }
        snprintf(o, 13, "e%c%02d", point > 0 ? '+' : '-', abs(point - 1));
        return;
    }
    if (point <= 0) {
        *o++ = '0';
        *o++ = '.';
        for (int i = point; i < 0; i++) {
            *o++ = '0';
        }
        memcpy(o, d, (size_t)n);
        o += n;
    } else {
        for (int i = 0; i < point; i++) {
            *o++ = i < n ? d[i] : '0';
        }
        *o++ = '.';
        if (n > point) {
            memcpy(o, d + point, (size_t)(n - point));
            o += n - point;
        } else {
            *o++ = '0';
        }
    }
    *o = 0;
}
