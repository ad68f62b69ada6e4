/* SPDX-License-Identifier: MIT
 * journal.h: the digests of a model's objects in an append-only file beside them, so that a lost
 * catalog can be rebuilt. Each record carries its own checksum; a torn or damaged one is skipped,
 * the ones behind it are found again. Several processes may append. Of two records of one object
 * the one that beats the other counts (chunk.h), else the first. */
#ifndef SHOAL_STORE_JOURNAL_H
#define SHOAL_STORE_JOURNAL_H

#include "node/store/chunk.h"
#include "proto/base/buf.h"
#include "proto/base/err.h"

/* Add one record to a buffer; write that with journal_append. ERR_NOMEM, ERR_LIMIT. */
int journal_record(struct buf *out, uint32_t id, const struct digest *d);
int journal_append(const char *path, const struct buf *records, struct err *e);
/* Calls `each` for every good record in order (the digest is its to keep, or to free). Stops when
 * it returns nonzero and returns that. A missing file is empty. *skipped: damaged bytes passed
 * over. */
int journal_read(const char *path, int (*each)(void *ctx, uint32_t id, struct digest *d), void *ctx,
                 uint64_t *skipped, struct err *e);
/* The same over bytes in memory. */
int journal_scan(const void *p, size_t n, int (*each)(void *ctx, uint32_t id, struct digest *d),
                 void *ctx, uint64_t *skipped, struct err *e);

#endif
