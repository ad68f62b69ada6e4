/* SPDX-License-Identifier: MIT
 * quarantine.h: private to node/store: damaged files of the cache are set aside in
 * <model>/quarantine, for people to look at, and not for long: QUARANTINE_BYTES and
 * QUARANTINE_DAYS at most, and first to go when there is no room. A name is
 * <seconds since 1970>-<object's name with - for what is no letter or digit>. */
#ifndef SHOAL_STORE_QUARANTINE_H
#define SHOAL_STORE_QUARANTINE_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QUARANTINE_BYTES ((uint64_t)1 << 30)
#define QUARANTINE_DAYS 14

struct disk;

struct quarantine {
    uint64_t bytes; /* guarded by disk.mu */
    uint32_t files;
};

/* What lies there, oldest gone where that is too much or too old. Without mu. */
void quarantine_look(struct disk *d);
/* A damaged file of the cache; where it cannot be moved it is removed. False: it is still there.
 * Without mu. */
bool quarantine_put(struct disk *d, uint32_t id, const char *path);
/* All of it goes. With or without mu, but not at once with another of these: with disk.mu. */
void quarantine_clear(struct disk *d);

#endif
