/* SPDX-License-Identifier: MIT
 * replay.h: recorded routes through cache policies: what each would have had to read again.
 *
 * All objects have one size; a cache holds `capacity` of them. On a miss a policy takes the object
 * in and drops another, but for the optimum, which may leave it out (a cache that must read an
 * object to use it need not keep it).
 *
 * LRU drops what was used longest ago. S3-FIFO (Yang and others, 2023) has a small queue of a tenth
 * for what came once, a main one for what came again, and remembers what it dropped lately. LFU
 * with ageing (LFU-DA, Arlitt and others, 1999) drops the lowest count, and each drop raises what
 * newcomers start with. The optimum (Belady, 1966) knows the future: nobody can do better. */
#ifndef SHOAL_NODE_REPLAY_H
#define SHOAL_NODE_REPLAY_H

#include "node/routes/routes.h"

enum replay_policy { REPLAY_LRU, REPLAY_S3FIFO, REPLAY_LFU, REPLAY_BEST, REPLAY_POLICIES };
const char *replay_name(enum replay_policy p); /* "lru", "s3-fifo", "lfu", "optimum" */

struct replay_result {
    uint64_t uses, misses;
    uint64_t bytes; /* of the misses */
    uint32_t worst; /* the most misses of one layer of one step */
};

/* ERR_NOMEM, or ERR_ARG for a capacity of 0. Threads: any; nothing is shared. */
int replay_run(const struct routes *r, enum replay_policy p, uint32_t capacity,
               struct replay_result *out, struct err *e);
/* How many different objects the routes use. ERR_NOMEM. */
int replay_objects(const struct routes *r, uint32_t *n, struct err *e);

#endif
