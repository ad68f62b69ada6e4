/* SPDX-License-Identifier: MIT
 * sample.c: how much of a member's lone word is compared with the origin (peer/README.md), and
 * small objects for it. See node_int.h. */
#include "node/daemon/node_int.h"

#include "node/daemon/wanted.h"
#include "proto/base/clock.h"

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

/* Any of the small ones of the spine that are not here yet: all are wanted soon when one is. */
bool sample_small(struct store *st, struct wanted *w, struct object_key like)
{
    const struct model *m = store_model(st);
    uint32_t ids[SMALL_ONES], seen = 0, samples, asked = 0;
    uint64_t x = clock_ns() | 1, bytes;
    if (like.kind != STORE_KEY_SPINE) {
        return false;
    }
    sample_sizes(m, &samples, &bytes);
    for (uint32_t id = 0; id < model_object_count(m); id++) {
        const struct model_object *o = model_object(m, id);
        if (o->kind != MODEL_SPINE || o->size > bytes || model_unread(o) ||
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
    for (uint32_t i = 0; i < seen && i < SMALL_ONES; i++) {
        asked += !wanted_ask(w, store_key(st, ids[i]), STORE_DEMAND);
    }
    return asked > 0;
}
