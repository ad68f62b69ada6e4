/* SPDX-License-Identifier: MIT
 * vouch.h: private to node/store: does an address hold the files that the cache holds? A model is
 * told by its metadata, and two checkpoints of one architecture may have the same metadata and
 * other weights. So before objects that came from elsewhere are used for an address, a sample of
 * them is compared with it. */
#ifndef SHOAL_STORE_VOUCH_H
#define SHOAL_STORE_VOUCH_H

#include "node/store/disk.h"
#include "node/store/origin.h"

struct vouch {
    const char *cache_dir, *address;
    bool folder; /* the address is a local one */
    const struct model *m;
    struct disk *disk;
    struct origin *origin; /* NULL: offline */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
};

/* Once for each address and model (for a folder: also when a shard's size or time has changed),
 * remembered in <model>/same/: the last chunk of one expert and of
 * one spine object of each shard, of those whose digest is on record. ERR_DIGEST: other bytes;
 * ERR_OFFLINE: it cannot be told now. */
int vouch_address(const struct vouch *v, struct err *e);

#endif
