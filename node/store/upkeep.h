/* SPDX-License-Identifier: MIT
 * upkeep.h: what a store does when nobody waits: looking round adopted folders, digests of what
 * they offer, and a scrub of the own files. One thread of low priority; any thread may call. */
#ifndef SHOAL_NODE_STORE_UPKEEP_H
#define SHOAL_NODE_STORE_UPKEEP_H

#include "node/store/store.h"

/* Whether work in the background may go on at this moment (no decode, no battery); asked once a
 * MiB on the store's thread. NULL: always, but for store_computing. */
void store_background(struct store *st, bool (*may)(void *ctx), void *ctx);
/* A decode has begun (+1) or ended (-1). */
void store_computing(struct store *st, int by);

/* ---- adopted folders ---- */

struct store_adopted {
    const char *path;          /* as long as the store is open */
    bool here;                 /* the folder is there */
    bool other_model;          /* its config or index is another's: nothing of it is used */
    uint32_t objects, experts; /* that this folder is the one to give; */
    uint32_t looked, refused;  /* of these: read and right; read and wrong */
    uint64_t bytes, looked_bytes;
};
#define STORE_ADOPTED_MAX 64
size_t store_adopted(struct store *st, struct store_adopted *out, size_t max);
/* The list of folders has changed: look round now. Reads folders, not files. */
void store_adopt_look(struct store *st);

/* ---- scrub ---- */

/* Read every own file once in so many seconds (0: do not), as evenly as allowed; at most 16 MiB a
 * second. One process of those that share a cache should. */
void store_scrub(struct store *st, uint64_t period_s);
#define STORE_SCRUB_PERIOD_S ((uint64_t)30 * 86400)

struct store_upkeep {
    uint32_t to_look; /* objects that adopted folders offer and nobody has read yet */
    uint64_t scrub_period_s;
    uint64_t scrub_started;           /* wall clock of the present round, 0: none yet */
    uint64_t scrub_done, scrub_total; /* MiB chunks of this round */
    uint64_t scrub_rounds, scrub_bad; /* completed; damaged chunks found in all */
    bool held;                        /* it would go on, but may not now */
    uint64_t quarantine_bytes;
    uint32_t quarantine_files;
    const char *quarantine; /* the folder; as long as the store is open */
};
void store_get_upkeep(struct store *st, struct store_upkeep *out);

#endif
