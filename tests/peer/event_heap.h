/* SPDX-License-Identifier: MIT
 * event_heap.h: what happens when, for simulations on virtual time: the earliest event first, of
 * equal ones the one that was put in first. An event is any struct that begins with the members of
 * struct event_when. */
#ifndef SHOAL_TESTS_PEER_EVENT_HEAP_H
#define SHOAL_TESTS_PEER_EVENT_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct event_when {
    uint64_t t;   /* ns */
    uint64_t seq; /* set by event_push */
};

struct event_heap {
    size_t size; /* of an event; to be set, the rest 0 */
    uint8_t *p;
    uint32_t n, cap;
    uint64_t seq;
};

void event_push(struct event_heap *h, const void *event);
void event_pop(struct event_heap *h, void *event); /* n > 0 */
uint64_t event_next(const struct event_heap *h);   /* UINT64_MAX: there is none */
void event_free(struct event_heap *h);

#endif
