/* SPDX-License-Identifier: MIT
 * cache_rig.h: a store with a cache folder over the demo model, for the tests of the disk tier. */
#ifndef SHOAL_TESTS_STORE_CACHE_RIG_H
#define SHOAL_TESTS_STORE_CACHE_RIG_H

#include "tests/store/util.h"

struct rig {
    char *tmp, *cache;
    struct util_log log;
    struct store_opts o;
    struct store *st;
    const struct model *m;
    uint32_t n;
};

void rig_start(struct rig *r); /* a new empty cache, opened */
void rig_open(struct rig *r);  /* the same cache again */
void rig_close(struct rig *r);
void rig_end(struct rig *r); /* closes, and removes the cache */

uint64_t origin_bytes(struct rig *r);
/* 0 when the object comes and its bytes are the model's. */
int try_get(struct store *st, uint32_t id);
void get_right(struct rig *r, uint32_t id); /* the same, asserted */
/* Every step-th object; and the bytes of those together. */
void get_all(struct rig *r, uint32_t step);
uint64_t sizes(struct rig *r, uint32_t step);
/* The one file of the cache whose path holds `part`; free it. */
char *file_of(struct rig *r, const char *part);
/* Flip a bit at `off`, counted from the end when negative. */
void poke(const char *path, long off, int bit);

#endif
