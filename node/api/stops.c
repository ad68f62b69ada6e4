/* SPDX-License-Identifier: MIT
 * stops.c: see stops.h. */
#include "node/api/stops.h"

#include "proto/base/err.h"

#include <string.h>

void stops_init(struct stops *f)
{
    memset(f, 0, sizeof *f);
    buf_init(&f->held, (size_t)1 << 24);
}

void stops_free(struct stops *f)
{
    buf_free(&f->held);
}

int stops_add(struct stops *f, const char *s, size_t n)
{
    if (f->count == STOPS_MAX || n == 0 || n > STOP_BYTES_MAX) {
        return ERR_LIMIT;
    }
    f->s[f->count] = s;
    f->n[f->count++] = n;
    return 0;
}

/* Where in held the first stop string begins, and which; or, unless `last`, where the first
 * beginning of one stands at the end (*hit 0). */
static size_t find(const struct stops *f, bool last, int *hit)
{
    const char *p = f->held.p;
    size_t n = f->held.n, best = n;
    *hit = 0;
    for (size_t at = 0; at < n; at++) {
        size_t longest = 0;
        bool begins = false;
        for (size_t i = 0; i < f->count; i++) {
            size_t k = f->n[i] < n - at ? f->n[i] : n - at;
            if (memcmp(p + at, f->s[i], k) != 0) {
                continue;
            }
            if (k == f->n[i] && k > longest) {
                longest = k;
                *hit = (int)i + 1;
            }
            begins = begins || k < f->n[i];
        }
        if (longest) {
            return at;
        }
        if (begins && !last) {
            return at;
        }
    }
    return best;
}

bool stops_feed(struct stops *f, const char *p, size_t n, struct buf *out)
{
    int hit;
    if (f->hit) {
        return true;
    }
    if (!f->count) {
        buf_add(out, p, n);
        return false;
    }
    if (buf_add(&f->held, p, n)) {
        return false;
    }
    size_t k = find(f, false, &hit);
    buf_add(out, f->held.p, k);
    if (hit) {
        f->hit = hit;
        f->held.n = 0;
        return true;
    }
    memmove(f->held.p, f->held.p + k, f->held.n - k);
    f->held.n -= k;
    return false;
}

bool stops_flush(struct stops *f, struct buf *out)
{
    int hit;
    size_t k = find(f, true, &hit);
    if (!f->hit) {
        f->hit = hit;
    }
    buf_add(out, f->held.p, k);
    f->held.n = 0;
    return f->hit != 0;
}
