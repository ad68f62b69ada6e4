/* SPDX-License-Identifier: MIT
 * rest_move.h: a whole cache folder brought to another folder or volume, while no process uses it.
 *
 * Everything is in the new folder, compared and synced, before one rename (of the file `moved` in
 * the old one, place.h) makes that the cache; then the old files go. Ended at any point the old
 * folder or the new one is whole and is the one that is used; the same call goes on. On the same
 * volume files get a second name (a hard link) in place of a copy. */
#ifndef SHOAL_NODE_STORE_REST_MOVE_H
#define SHOAL_NODE_STORE_REST_MOVE_H

#include "node/store/place.h"

#include <stdint.h>

struct rest_move {
    const char *cache; /* as it is named: where it lies, or from where it was moved before */
    const char *to;
    bool copy; /* the bytes, also where a second name would do */
    /* A sentence about what is left out; may be NULL. */
    void (*note)(void *ctx, const char *line);
    /* Bytes; true: stop. May be NULL. */
    bool (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};
struct rest_moved {
    char from[PLACE_PATH_MAX], to[PLACE_PATH_MAX]; /* absolute */
    uint64_t files, bytes;                         /* of the cache now */
    uint64_t copied_bytes;                         /* by this call */
    uint64_t left_out;                             /* damaged files, which stay behind and go */
    bool resumed;                                  /* an earlier call had begun */
};
/* ERR_BUSY: a process uses the cache. ERR_ARG: not to there. ERR_FULL: there is no room.
 * ERR_CANCELLED: stopped. */
int rest_move(const struct rest_move *o, struct rest_moved *out, struct err *e);

#endif
