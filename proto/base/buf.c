/* SPDX-License-Identifier: MIT
 * buf.c: see buf.h. */
#include "proto/base/buf.h"

#include "proto/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t max)
{
    memset(b, 0, sizeof *b);
    b->max = max;
}

void buf_free(struct buf *b)
{
    free(b->p);
    b->p = NULL;
    b->n = b->cap = 0;
}

int buf_reserve(struct buf *b, size_t extra)
{
    if (extra > b->max || b->n > b->max - extra) {
        return ERR_LIMIT;
    }
    size_t want = b->n + extra + 1;
    if (want <= b->cap) {
        return 0;
    }
    size_t cap = b->cap ? b->cap : 64;
    while (cap < want) {
        cap = cap > (size_t)-1 / 2 ? want : cap * 2;
    }
    if (cap > b->max + 1) {
        cap = b->max + 1;
    }
    char *p = realloc(b->p, cap);
    if (!p) {
        return ERR_NOMEM;
    }
    b->p = p;
    b->cap = cap;
    b->p[b->n] = 0;
    return 0;
}

int buf_add(struct buf *b, const void *p, size_t n)
{
    int r = buf_reserve(b, n);
    if (r) {
        return r;
    }
    if (n) {
        memcpy(b->p + b->n, p, n);
    }
    b->n += n;
    b->p[b->n] = 0;
    return 0;
}

int buf_adds(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap, ap2;
    va_start(ap, fmt);
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    int r = n < 0 ? ERR_ARG : buf_reserve(b, (size_t)n);
    if (!r) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap2);
        b->n += (size_t)n;
    }
    va_end(ap2);
    return r;
}

char *buf_take(struct buf *b, size_t *n)
{
    if (buf_reserve(b, 0)) {
        return NULL;
    }
    char *p = b->p;
    if (n) {
        *n = b->n;
    }
    b->p = NULL;
    b->n = b->cap = 0;
    return p;
}
