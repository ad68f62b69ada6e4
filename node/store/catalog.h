/* SPDX-License-Identifier: MIT
 * catalog.h: private to node/store: SQLite, one file per cache folder: which digest every object
 * had when it was first fetched, and when it was last used. Whether an object is present is a
 * matter of its file. A damaged or missing catalog is set aside and rebuilt from the journals with
 * one log line, at open or in the middle of work. Any thread, several processes. */
#ifndef SHOAL_STORE_CATALOG_H
#define SHOAL_STORE_CATALOG_H

#include "node/store/chunk.h"
#include "proto/base/err.h"

struct catalog; /* opaque */

int catalog_open(const char *cache_dir, void (*log)(void *ctx, const char *line), void *log_ctx,
                 struct catalog **out, struct err *e);
/* The same where nothing can be written: a copy in memory. What would write ends with ERR_FULL. */
int catalog_open_copy(const char *cache_dir, void (*log)(void *ctx, const char *line),
                      void *log_ctx, struct catalog **out, struct err *e);
/* Such a copy gives way to the file. Else, and when it fails, all stays as it is. */
int catalog_reopen(struct catalog *c, struct err *e);
void catalog_close(struct catalog *c);

/* The catalog's number of a model, by the hex digits of its root. */
int catalog_model(struct catalog *c, const char *root_hex, int64_t *model, struct err *e);
/* All rows of a model; the digest is the callback's to keep. Rows that fail their own checksum are
 * left out and counted in *bad. */
int catalog_load(struct catalog *c, int64_t model,
                 int (*each)(void *ctx, uint32_t id, struct digest *d, uint64_t last_use),
                 void *ctx, uint64_t *bad, struct err *e);
/* One row; ERR_NOTFOUND. */
int catalog_get(struct catalog *c, int64_t model, uint32_t id, struct digest **out, struct err *e);

struct catalog_row {
    uint32_t id;
    const struct digest *d;
    uint64_t last_use;
    int result; /* 0, or ERR_DIGEST: another digest, not beaten by this one, is on record; it stays
                 */
};
/* All rows in one transaction. */
int catalog_add(struct catalog *c, int64_t model, struct catalog_row *rows, size_t n,
                struct err *e);
int catalog_touch(struct catalog *c, int64_t model, const uint32_t *ids, const uint64_t *last_use,
                  size_t n, struct err *e);

#endif
