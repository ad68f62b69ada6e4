/* SPDX-License-Identifier: MIT
 * agree.h: do catalog, files and what the disk tier says of itself agree exactly? */
#ifndef SHOAL_TESTS_STORE_AGREE_H
#define SHOAL_TESTS_STORE_AGREE_H

#include "node/store/disk.h"

/* Asserts it, object by object, with the sums of bytes; nothing may be in publication, be
 * evicted or be looked at in an adopted folder meanwhile, and nobody may watch the disk
 * (disk_watch). Returns the number of files. */
uint32_t agree(struct disk *d, const char *cache, const struct model *m);
/* Files of unfinished objects that the disk tier (NULL: it is closed) knows nothing of. */
int agree_orphans(struct disk *d, const char *cache, const struct model *m);
/* Files left by writes of processes that have ended, which a start clears away. */
int agree_cut_off(const char *cache);

#endif
