/* SPDX-License-Identifier: MIT
 * rest_room.h: what the models of a cache folder take of the disk, and removing some of it, while
 * no process has that model open (beside one: store_drop in budget.h). */
#ifndef SHOAL_NODE_STORE_REST_ROOM_H
#define SHOAL_NODE_STORE_REST_ROOM_H

#include "node/store/at_rest.h"

/* Has a process this model (its folder) open? *pid (may be NULL) is one that has, 0 where it is not
 * known. */
bool rest_in_use(const char *model_dir, long *pid);

struct rest_count {
    uint64_t objects, bytes; /* files of experts and of the spine */
    uint64_t experts, expert_bytes;
    uint64_t of, of_bytes; /* all objects of the model; 0: not known here */
    uint32_t layers,
        complete;           /* with experts: of the model (0: not known), all of whose are here */
    uint64_t last_use;      /* microseconds since 1970; 0: not known */
    uint64_t written_today; /* bytes, UTC day */
    bool in_use;            /* a process has it open */
};
int rest_count(const char *cache_dir, const struct rest_model *x, struct rest_count *out,
               struct err *e);

struct rest_drop {
    bool whole;                   /* the model with all that is known of it */
    const uint32_t (*experts)[2]; /* else these: layer, expert; */
    size_t n;
    uint64_t before; /* and those used last before this (as last_use); 0: none */
    bool dry;        /* only count */
};
struct rest_dropped {
    uint64_t objects, bytes;
};
/* ERR_BUSY: a process has it open. Digests stay on record but for `whole`. */
int rest_drop(const char *cache_dir, const struct rest_model *x, const struct rest_drop *o,
              struct rest_dropped *out, struct err *e);

#endif
