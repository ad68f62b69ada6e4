/* SPDX-License-Identifier: MIT
 * replay_policy.c: the policies; see replay.h for what each is. */
#include "node/routes/replay_int.h"

#include <stdlib.h>
#include <string.h>

struct cache {
    uint32_t capacity;
    struct rlinks links;
    struct rheap heap;
    struct rlist main, small, ghost;
    uint8_t *where, *seen; /* S3-FIFO: enum place; uses since it came, at most 3 */
    uint64_t age;          /* LFU */
    uint32_t *next;        /* the optimum: [uses] the use after this one, REPLAY_NIL: none */
};
enum place { OUT, SMALL, MAIN, GHOST };

static struct cache *made(struct cache *c, bool ok, void (*close)(struct cache *c))
{
    if (c && !ok) {
        close(c);
        return NULL;
    }
    return c;
}

static void close_cache(struct cache *c)
{
    rlinks_close(&c->links);
    rheap_close(&c->heap);
    free(c->where);
    free(c->seen);
    free(c->next);
    free(c);
}

/* ---- LRU ---- */

static struct cache *lru_open(const struct routes *r, uint32_t objects, uint32_t capacity)
{
    struct cache *c = calloc(1, sizeof *c);
    (void)r;
    if (c) {
        c->capacity = capacity;
        rlist_init(&c->main);
        c->where = calloc(objects, 1);
    }
    return made(c, c && c->where && rlinks_open(&c->links, objects), close_cache);
}

static bool lru_use(struct cache *c, uint32_t x, size_t at)
{
    bool hit = c->where[x] == MAIN;
    (void)at;
    if (hit) {
        rlist_drop(&c->links, &c->main, x);
    } else if (c->main.n == c->capacity) {
        uint32_t out = c->main.tail;
        rlist_drop(&c->links, &c->main, out);
        c->where[out] = OUT;
    }
    rlist_push(&c->links, &c->main, x);
    c->where[x] = MAIN;
    return hit;
}

const struct policy replay_lru = {"lru", lru_open, lru_use, close_cache};

/* ---- S3-FIFO ---- */

static struct cache *s3_open(const struct routes *r, uint32_t objects, uint32_t capacity)
{
    struct cache *c = lru_open(r, objects, capacity);
    if (c) {
        rlist_init(&c->small);
        rlist_init(&c->ghost);
        c->seen = calloc(objects, 1);
    }
    return made(c, c && c->seen, close_cache);
}

static void move(struct cache *c, uint32_t x, struct rlist *from, struct rlist *to, enum place p)
{
    if (from) {
        rlist_drop(&c->links, from, x);
    }
    if (to) {
        rlist_push(&c->links, to, x);
    }
    c->where[x] = (uint8_t)p;
}

static void s3_evict_main(struct cache *c)
{
    for (;;) {
        uint32_t x = c->main.tail;
        if (!c->seen[x]) {
            move(c, x, &c->main, NULL, OUT);
            return;
        }
        c->seen[x]--;
        move(c, x, &c->main, &c->main, MAIN);
    }
}

static void s3_evict(struct cache *c)
{
    uint32_t share = c->capacity / 10;
    while (c->small.n && (c->small.n > share || !c->main.n)) {
        uint32_t x = c->small.tail;
        if (c->seen[x] > 1) { /* it came again while it was here */
            c->seen[x] = 0;
            move(c, x, &c->small, &c->main, MAIN);
            continue;
        }
        move(c, x, &c->small, &c->ghost, GHOST);
        if (c->ghost.n > c->capacity - share) {
            move(c, c->ghost.tail, &c->ghost, NULL, OUT);
        }
        return;
    }
    s3_evict_main(c);
}

static bool s3_use(struct cache *c, uint32_t x, size_t at)
{
    (void)at;
    if (c->where[x] == SMALL || c->where[x] == MAIN) {
        c->seen[x] += c->seen[x] < 3;
        return true;
    }
    bool again = c->where[x] == GHOST;
    if (again) {
        move(c, x, &c->ghost, NULL, OUT);
    }
    while (c->small.n + c->main.n >= c->capacity) {
        s3_evict(c);
    }
    c->seen[x] = 0;
    move(c, x, NULL, again ? &c->main : &c->small, again ? MAIN : SMALL);
    return false;
}

const struct policy replay_s3fifo = {"s3-fifo", s3_open, s3_use, close_cache};

/* ---- LFU with ageing ---- */

static struct cache *lfu_open(const struct routes *r, uint32_t objects, uint32_t capacity)
{
    struct cache *c = calloc(1, sizeof *c);
    (void)r;
    if (c) {
        c->capacity = capacity;
    }
    return made(c, c && rheap_open(&c->heap, objects), close_cache);
}

static bool lfu_use(struct cache *c, uint32_t x, size_t at)
{
    bool hit = c->heap.pos[x] != 0;
    if (!hit && c->heap.n == c->capacity) {
        uint32_t out = rheap_pop(&c->heap);
        c->age = c->heap.key[out];
    }
    rheap_set(&c->heap, x, hit ? c->heap.key[x] + 1 : c->age + 1, at);
    return hit;
}

const struct policy replay_lfu = {"lfu", lfu_open, lfu_use, close_cache};

/* ---- the optimum ---- */

static struct cache *best_open(const struct routes *r, uint32_t objects, uint32_t capacity)
{
    struct cache *c = calloc(1, sizeof *c);
    uint32_t *last = malloc(objects * sizeof *last);
    if (c) {
        c->capacity = capacity;
        c->next = malloc(r->n * sizeof *c->next);
    }
    bool ok = c && last && c->next && r->n < REPLAY_NIL && rheap_open(&c->heap, objects);
    if (ok) {
        memset(last, 0xff, objects * sizeof *last);
        for (size_t i = r->n; i-- > 0;) {
            c->next[i] = last[r->use[i].object];
            last[r->use[i].object] = (uint32_t)i;
        }
    }
    free(last);
    return made(c, ok, close_cache);
}

static bool best_use(struct cache *c, uint32_t x, size_t at)
{
    uint64_t farther = REPLAY_NIL - c->next[at]; /* the farther, the smaller: on top of the heap */
    bool hit = c->heap.pos[x] != 0;
    if (!hit && c->heap.n == c->capacity) {
        if (c->heap.key[c->heap.at[0]] >= farther) {
            return false; /* it is the one to go */
        }
        rheap_pop(&c->heap);
    }
    rheap_set(&c->heap, x, farther, 0);
    return hit;
}

const struct policy replay_best = {"optimum", best_open, best_use, close_cache};
