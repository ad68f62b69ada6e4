/* SPDX-License-Identifier: MIT
 * event_heap.c: see event_heap.h. */
#include "tests/peer/event_heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *at(const struct event_heap *h, uint32_t i)
{
    return h->p + i * h->size;
}

static bool before(const void *a, const void *b)
{
    struct event_when x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x.t < y.t || (x.t == y.t && x.seq < y.seq);
}

void event_push(struct event_heap *h, const void *event)
{
    if (h->n + 1 >= h->cap) { /* one more: the place of what is on its way */
        h->cap = h->cap ? h->cap * 2 : 1024;
        h->p = realloc(h->p, h->cap * h->size);
        assert_non_null(h->p);
    }
    uint32_t i = h->n++;
    uint8_t *e = at(h, h->cap - 1);
    memcpy(e, event, h->size);
    memcpy(e + offsetof(struct event_when, seq), &h->seq, sizeof h->seq);
    h->seq++;
    while (i && before(e, at(h, (i - 1) / 2))) {
        memcpy(at(h, i), at(h, (i - 1) / 2), h->size);
        i = (i - 1) / 2;
    }
    memcpy(at(h, i), e, h->size);
}

void event_pop(struct event_heap *h, void *event)
{
    const void *last = at(h, --h->n);
    uint32_t i = 0;
    memcpy(event, h->p, h->size);
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= h->n) {
            break;
        }
        if (c + 1 < h->n && before(at(h, c + 1), at(h, c))) {
            c++;
        }
        if (!before(at(h, c), last)) {
            break;
        }
        memcpy(at(h, i), at(h, c), h->size);
        i = c;
    }
    if (i != h->n) {
        memcpy(at(h, i), last, h->size);
    }
}

uint64_t event_next(const struct event_heap *h)
{
    struct event_when w = {UINT64_MAX, 0};
    if (h->n) {
        memcpy(&w, h->p, sizeof w);
    }
    return w.t;
}

void event_free(struct event_heap *h)
{
    free(h->p);
    h->p = NULL;
    h->n = h->cap = 0;
}
