/* SPDX-License-Identifier: MIT
 * manifest.h: what the parts of `shoal manifest` share: making one, reading one from a file or an
 * address. The format and what a manifest is worth: node/store/manifest.h. */
#ifndef SHOAL_NODE_CLI_MANIFEST_H
#define SHOAL_NODE_CLI_MANIFEST_H

#include "node/cli/cli.h"
#include "proto/base/buf.h"

/* Append an unfinished manifest (no manifest_end yet) of the whole shards in a folder: each shard's
 * SHA-256, compared with the one that the hub stated where the folder still has it
 * (.cache/huggingface/download/NAME.metadata, as its own program leaves it), then every object's
 * digest. ERR_DIGEST: a shard is not what the hub has. *compared: shards that agree with it. */
int manifest_of_folder(const struct cli *c, const char *dir, struct buf *out, uint32_t *objects,
                       uint32_t *shards, uint32_t *compared, struct err *e);
/* The same of what a cache holds by its own downloads, without shards. */
int manifest_of_cache(const char *model, const char *cache, struct buf *out, uint32_t *known,
                      struct err *e);
/* Append the bytes of a file, or of an http(s) address; MANIFEST_MAX at most. */
int manifest_fetch(const char *from, struct buf *out, struct err *e);

#endif
