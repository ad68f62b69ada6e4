/* SPDX-License-Identifier: MIT
 * move_files.h: private to node/store: the files of a move (rest_move.h): counted, brought over,
 * removed. */
#ifndef SHOAL_STORE_MOVE_FILES_H
#define SHOAL_STORE_MOVE_FILES_H

#include "node/store/chunk.h"
#include "node/store/rest_move.h"

struct move_known {
    char *rel; /* of the cache folder */
    struct digest *d;
};
struct move {
    const struct rest_move *o;
    struct rest_moved *out;
    char *root, *from, *to; /* absolute */
    char id[PLACE_ID + 1];
    bool links;               /* second names are possible */
    struct move_known *known; /* [n_known] sorted: objects whose digest is on record */
    size_t n_known;
    uint64_t done, total, need; /* bytes to bring, and what they take */
    uint8_t *chunk;             /* [CHUNK_SIZE] */
};

#define MOVE_CATALOG "catalog.sqlite"
#define MOVE_PART ".part" /* of a new file's name until it is whole */

/* Names in a cache folder: its own ones. */
bool move_own_name(const char *name);

/* Digests on record of all objects of `from`. */
int move_know(struct move *m, struct err *e);
void move_free(struct move *m);
/* What is in `to` of an earlier call and not in `from` any more goes. */
int move_sweep(struct move *m, struct err *e);
/* *need: bytes that `to` must have free. */
int move_count(struct move *m, uint64_t *need, struct err *e);
/* The catalog; one that cannot be read is left out: it is made anew from the journals. */
int move_catalog(struct move *m, struct err *e);
/* All of it, compared and synced. */
int move_bring(struct move *m, struct err *e);
/* The cache's own files leave a folder. */
int move_remove(const char *dir, struct err *e);

#endif
