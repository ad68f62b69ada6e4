/* SPDX-License-Identifier: MIT
 * replay_int.h: private to replay*.c: a policy, and lists and a heap of objects. */
#ifndef SHOAL_NODE_REPLAY_INT_H
#define SHOAL_NODE_REPLAY_INT_H

#include "node/routes/replay.h"

#include <stdbool.h>

struct cache; /* a policy's own */
struct policy {
    const char *name;
    /* objects: their numbers are below it. NULL without memory. */
    struct cache *(*open)(const struct routes *r, uint32_t objects, uint32_t capacity);
    bool (*use)(struct cache *c, uint32_t object, size_t at); /* was it there? */
    void (*close)(struct cache *c);
};
extern const struct policy replay_lru, replay_s3fifo, replay_lfu, replay_best;

/* Doubly linked lists over objects; an object is in one list at most. */
#define REPLAY_NIL UINT32_MAX
struct rlist {
    uint32_t head, tail, n;
};
struct rlinks {
    uint32_t *next, *prev;
};
bool rlinks_open(struct rlinks *k, uint32_t objects);
void rlinks_close(struct rlinks *k);
void rlist_init(struct rlist *l);
void rlist_push(struct rlinks *k, struct rlist *l, uint32_t x); /* at the head */
void rlist_drop(struct rlinks *k, struct rlist *l, uint32_t x);

/* A heap of objects, the least key on top; equal keys: the lower second key. */
struct rheap {
    uint32_t *at, *pos; /* at[0..n): objects; pos: place + 1 of an object, 0: not in it */
    uint64_t *key, *second;
    uint32_t n;
};
bool rheap_open(struct rheap *h, uint32_t objects);
void rheap_close(struct rheap *h);
void rheap_set(struct rheap *h, uint32_t x, uint64_t key, uint64_t second); /* in, or moved */
uint32_t rheap_pop(struct rheap *h);

#endif
