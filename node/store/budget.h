/* SPDX-License-Identifier: MIT
 * budget.h: how much of a disk the cache takes, and how that changes while it is open.
 *
 * Two numbers bound it: a budget (bytes of the cache's objects; none: what the volume has) and a
 * floor (bytes that stay free on the volume, whoever fills it). Each is given when the store is
 * opened, or kept in the cache folder by an earlier store_set_budget, or automatic. Only the
 * cache's own objects are counted. When the sum is over either of them, because a number was
 * changed or because others filled the volume, a thread of the store evicts down in small steps:
 * experts by rank and last use, never the spine and never what a present request needs. */
#ifndef SHOAL_NODE_STORE_BUDGET_H
#define SHOAL_NODE_STORE_BUDGET_H

#include "node/store/store.h"

enum store_from { STORE_AUTO, STORE_GIVEN, STORE_KEPT };

struct store_budget {
    uint64_t budget, floor; /* bytes; budget 0: none but the floor */
    enum store_from budget_from, floor_from;
    uint64_t floor_now;    /* what counts now: less than an automatic floor where less was free when
                              the store was opened (store_soft_floor) */
    uint64_t may;          /* bytes of objects that may lie here as things are */
    uint64_t used;         /* objects of this model, */
    uint64_t others;       /* and of other models in the same folder */
    uint64_t unfinished;   /* bytes of objects that had begun to come, good for going on */
    uint64_t model;        /* all objects of this model */
    uint64_t volume, free; /* of the volume; 0: unknown */
    uint64_t trimmed;      /* bytes evicted to come down to these numbers since the store is open */
    uint64_t written, written_today; /* to the cache: by this store; by all processes, UTC day */
};
/* ERR_UNSUPPORTED: there is no disk tier. Any thread. */
int store_get_budget(struct store *st, struct store_budget *out, struct err *e);
/* 0, or why nothing is written to the cache now: ERR_FULL (the volume is full), ERR_REFUSED (it may
 * only be read), and a sentence. Any thread. */
int store_closed(struct store *st, struct err *why);
/* From now on and, kept in the cache folder, for later starts. NULL leaves a number as it is; a
 * budget of 0 and a floor of UINT64_MAX mean automatic. Comes back at once. Any thread. */
int store_set_budget(struct store *st, const uint64_t *budget, const uint64_t *floor,
                     struct err *e);
/* An expert leaves the disk if it is there and nobody wants it now; its bytes, 0: it stays. */
uint64_t store_drop(struct store *st, uint32_t id);
/* When an object was last used, in microseconds since 1970; 0: never, or not on disk. */
uint64_t store_last_use(struct store *st, uint32_t id);
/* The automatic floor for a volume of that size with so much free and so much of it ours: a
 * twentieth of the volume, at most 32 GiB and at most half of what could be free, at least 1 GiB
 * (an eighth of a volume that is smaller than 8 GiB). */
uint64_t store_auto_floor(uint64_t volume, uint64_t free, uint64_t own);
/* What counts of an automatic floor for a store that is opened with so much free: nothing leaves
 * because a program starts, so no more than that, until the whole floor has been free once; but
 * never less than the least (1 GiB, or an eighth of a small volume). */
uint64_t store_soft_floor(uint64_t automatic, uint64_t volume, uint64_t free);
/* What is kept in a cache folder: 0 and UINT64_MAX where nothing is. */
void store_kept_budget(const char *cache_dir, uint64_t *budget, uint64_t *floor);
/* The same two numbers for a cache that no process has open. */
int store_keep_budget(const char *cache_dir, const uint64_t *budget, const uint64_t *floor,
                      struct err *e);

#endif
