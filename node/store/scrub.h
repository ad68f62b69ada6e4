/* SPDX-License-Identifier: MIT
 * scrub.h: private to node/store: reading the own files of a cache, a chunk now and then, so that
 * damage is found before it is met. Where it stands is kept in <model>/scrub. One thread. */
#ifndef SHOAL_STORE_SCRUB_H
#define SHOAL_STORE_SCRUB_H

#include "node/store/disk.h"

struct scrub {
    uint64_t id, chunk;         /* next */
    uint64_t started;           /* wall clock; 0: never */
    uint64_t done, rounds, bad; /* chunks of this round; complete rounds; damaged in all */
    uint64_t saved_at, unsaved; /* wall clock; chunks since */
};

/* The file's bytes; what is none is the beginning. */
void scrub_parse(struct scrub *s, const char *p, size_t n);
void scrub_load(struct scrub *s, const char *model_dir);
void scrub_save(struct scrub *s, const char *model_dir);
/* Is a chunk due, `total` being what a round has, now (wall clock)? Begins a round when one is. */
bool scrub_due(struct scrub *s, uint64_t total, uint64_t period_s, uint64_t now);
/* One chunk, or the end of the round. ERR_DIGEST, ERR_NOTFOUND: *id was damaged and is set aside.
 */
int scrub_step(struct scrub *s, struct disk *d, uint32_t *id, struct err *e);

#endif
