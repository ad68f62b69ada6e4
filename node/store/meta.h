/* SPDX-License-Identifier: MIT
 * meta.h: private to node/store: a model's metadata (config, index, shard headers, tokenizer files,
 * the inventory's blob) from cache or origin. In the cache they lie below origins/<digest of the
 * model's address>/, listed with their SHA-256 in origin.txt, and are verified on every read: a
 * second start needs no byte from the origin. Any thread. */
#ifndef SHOAL_STORE_META_H
#define SHOAL_STORE_META_H

#include "node/model/model.h"
#include "node/store/origin.h"

struct meta; /* opaque */

/* cache_dir NULL: everything comes from the origin each time. o NULL: offline. peers (may be NULL)
 * are asked before the origin. */
int meta_open(const char *cache_dir, const char *address, struct origin *o,
              const struct store_meta_peers *peers, void (*log)(void *ctx, const char *line),
              void *log_ctx, struct meta **out, struct err *e);
void meta_close(struct meta *m);

/* For model_open; lives as long as m. */
void meta_source(struct meta *m, struct model_source *out);
/* Append a whole file; ERR_NOTFOUND when the model has none such. */
int meta_read(struct meta *m, const char *name, struct buf *out, struct err *e);
/* The inventory's blob: ERR_NOTFOUND when none is kept. */
int meta_get_blob(struct meta *m, struct buf *out, struct err *e);
int meta_put_blob(struct meta *m, const void *p, size_t n, struct err *e);
/* Size and entity tag on record of a shard: false when there is none. */
bool meta_shard(struct meta *m, const char *name, uint64_t *size, char etag[ORIGIN_ETAG_MAX]);
/* The SHA-256 of a file on record: metadata, or a shard whose entity tag is 64 hex digits. */
bool meta_known_sha(struct meta *m, const char *name, uint8_t sha[SHA256_SIZE]);
/* Remember them; written with the next meta_save. */
void meta_learned(struct meta *m, const char *name, uint64_t size, const char *etag);
/* Write origin.txt if something has changed. */
int meta_save(struct meta *m, struct err *e);
/* As store_meta_serve, for this address. */
int meta_serve(struct meta *m, const char *name, uint64_t off, size_t n, struct buf *out,
               uint64_t *total, struct err *e);
uint64_t meta_peer_bytes(struct meta *m);

#endif
