/* SPDX-License-Identifier: MIT
 * replay.c: see replay.h: the run, lists, the heap. */
#include "node/routes/replay_int.h"

#include <stdlib.h>
#include <string.h>

static const struct policy *const policies[REPLAY_POLICIES] = {&replay_lru, &replay_s3fifo,
                                                               &replay_lfu, &replay_best};

const char *replay_name(enum replay_policy p)
{
    return policies[p]->name;
}

int replay_run(const struct routes *r, enum replay_policy p, uint32_t capacity,
               struct replay_result *out, struct err *e)
{
    uint32_t experts = r->head.experts, objects = r->head.layers * experts;
    memset(out, 0, sizeof *out);
    if (!capacity) {
        return err_set(e, ERR_ARG, "a cache of nothing keeps nothing");
    }
    struct cache *c = policies[p]->open(r, objects, capacity < objects ? capacity : objects);
    if (!c) {
        return err_set(e, ERR_NOMEM, "no memory to replay the routes");
    }
    uint32_t layer_misses = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct routes_use *u = &r->use[i];
        if (i && (u->step != u[-1].step || u->object / experts != u[-1].object / experts)) {
            layer_misses = 0;
        }
        if (!policies[p]->use(c, u->object, i)) {
            out->misses++;
            layer_misses++;
            out->worst = layer_misses > out->worst ? layer_misses : out->worst;
        }
    }
    policies[p]->close(c);
    out->uses = r->n;
    out->bytes = out->misses * r->head.expert_bytes;
    return 0;
}

int replay_objects(const struct routes *r, uint32_t *n, struct err *e)
{
    uint8_t *seen = calloc((size_t)r->head.layers * r->head.experts, 1);
    *n = 0;
    if (!seen) {
        return err_set(e, ERR_NOMEM, "no memory to replay the routes");
    }
    for (size_t i = 0; i < r->n; i++) {
        *n += !seen[r->use[i].object];
        seen[r->use[i].object] = 1;
    }
    free(seen);
    return 0;
}

/* ---- lists ---- */

bool rlinks_open(struct rlinks *k, uint32_t objects)
{
    k->next = malloc(objects * sizeof *k->next);
    k->prev = malloc(objects * sizeof *k->prev);
    return k->next && k->prev;
}

void rlinks_close(struct rlinks *k)
{
    free(k->next);
    free(k->prev);
}

void rlist_init(struct rlist *l)
{
    *l = (struct rlist){REPLAY_NIL, REPLAY_NIL, 0};
}

void rlist_push(struct rlinks *k, struct rlist *l, uint32_t x)
{
    k->prev[x] = REPLAY_NIL;
    k->next[x] = l->head;
    if (l->head != REPLAY_NIL) {
        k->prev[l->head] = x;
    } else {
        l->tail = x;
    }
    l->head = x;
    l->n++;
}

void rlist_drop(struct rlinks *k, struct rlist *l, uint32_t x)
{
    if (k->prev[x] != REPLAY_NIL) {
        k->next[k->prev[x]] = k->next[x];
    } else {
        l->head = k->next[x];
    }
    if (k->next[x] != REPLAY_NIL) {
        k->prev[k->next[x]] = k->prev[x];
    } else {
        l->tail = k->prev[x];
    }
    l->n--;
}

/* ---- the heap ---- */

bool rheap_open(struct rheap *h, uint32_t objects)
{
    h->at = malloc(objects * sizeof *h->at);
    h->pos = calloc(objects, sizeof *h->pos);
    h->key = malloc(objects * sizeof *h->key);
    h->second = malloc(objects * sizeof *h->second);
    h->n = 0;
    return h->at && h->pos && h->key && h->second;
}

void rheap_close(struct rheap *h)
{
    free(h->at);
    free(h->pos);
    free(h->key);
    free(h->second);
}

static bool less(const struct rheap *h, uint32_t a, uint32_t b)
{
    return h->key[a] != h->key[b] ? h->key[a] < h->key[b] : h->second[a] < h->second[b];
}

static void place(struct rheap *h, uint32_t i, uint32_t x)
{
    h->at[i] = x;
    h->pos[x] = i + 1;
}

/* x belongs at i or above or below it. */
static void settle(struct rheap *h, uint32_t i, uint32_t x)
{
    while (i && less(h, x, h->at[(i - 1) / 2])) {
        place(h, i, h->at[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c + 1 < h->n && less(h, h->at[c + 1], h->at[c])) {
            c++;
        }
        if (c >= h->n || !less(h, h->at[c], x)) {
            break;
        }
        place(h, i, h->at[c]);
        i = c;
    }
    place(h, i, x);
}

void rheap_set(struct rheap *h, uint32_t x, uint64_t key, uint64_t second)
{
    h->key[x] = key;
    h->second[x] = second;
    if (!h->pos[x]) {
        place(h, h->n, x);
        h->n++;
    }
    settle(h, h->pos[x] - 1, x);
}

uint32_t rheap_pop(struct rheap *h)
{
    uint32_t top = h->at[0], last = h->at[--h->n];
    h->pos[top] = 0;
    if (last != top) {
        settle(h, 0, last);
    }
    return top;
}
