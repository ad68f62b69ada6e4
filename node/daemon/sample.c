/* SPDX-License-Identifier: MIT
 * sample.c: how much of a member's lone word is compared with the origin (peer/README.md), and
 * small objects for it. See node_int.h. */
#include "node/daemon/node_int.h"

#include "node/store/share.h"
#include "proto/base/clock.h"

#include <stdlib.h>

#define SAMPLES 4
#define SAMPLE_SHARE 1024 /* of the model is what a small object has at most */
#define SAMPLE_MAX (64ull << 20)
#define SMALL_ONES 16

/* Little against the model: four experts and four objects of the spine from 16 GB on. */
void sample_sizes(const struct model *m, uint32_t *samples, uint64_t *bytes)
{
    uint64_t all = 0;
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        all += model_object(m, id)->size;
    }
    *samples = all >> 32 >= SAMPLES ? SAMPLES : all >> 32 ? (uint32_t)(all >> 32) : 1;
    *bytes = all / SAMPLE_SHARE < SAMPLE_MAX ? all / SAMPLE_SHARE : SAMPLE_MAX;
}

struct small_job {
    struct pool_job j;
    struct node *n;
};

/* Any of the small ones of the spine that are not here yet: all are wanted soon when one is. */
static void small_run(struct pool_job *j)
{
    struct store *st = ((struct small_job *)j)->n->st;
    const struct model *m = store_model(st);
    uint32_t ids[SMALL_ONES], seen = 0, samples;
    uint64_t x = clock_ns() | 1, bytes;
    sample_sizes(m, &samples, &bytes);
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        const struct model_object *o = model_object(m, id);
        if (o->kind != MODEL_SPINE || o->size > bytes ||
            store_storage_ops.have(st, store_key(st, id))) {
            continue;
        }
        x ^= x << 13; /* xorshift64; each of those seen so far with the same chance */
        x ^= x >> 7;
        x ^= x << 17;
        uint32_t at = seen < SMALL_ONES ? seen : (uint32_t)(x % (seen + 1));
        seen++;
        if (at < SMALL_ONES) {
            ids[at] = id;
        }
    }
    store_hint(st, ids, seen < SMALL_ONES ? seen : SMALL_ONES);
    free(j);
}

bool sample_small(struct node *n, struct object_key like)
{
    struct small_job *j = like.kind == STORE_KEY_SPINE ? calloc(1, sizeof *j) : NULL;
    if (j) {
        *j = (struct small_job){.j.run = small_run, .n = n};
        if (pool_add(n->pool, &j->j)) {
            return true;
        }
        free(j);
    }
    return false;
}
