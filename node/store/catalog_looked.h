/* SPDX-License-Identifier: MIT
 * catalog_looked.h: private to node/store: which objects of adopted folders have been read and
 * agreed with their digest, and what their file was like at that time. A lost table costs another
 * look, nothing else. */
#ifndef SHOAL_STORE_CATALOG_LOOKED_H
#define SHOAL_STORE_CATALOG_LOOKED_H

#include "node/store/catalog.h"

/* What tells that a file is the one of last time. size 0: there is no file. */
struct looked_file {
    uint64_t size;
    int64_t mtime; /* ns since 1970 */
    uint64_t ino;
};

struct looked {
    uint32_t id;
    struct looked_file file;
    uint64_t digest; /* the first eight bytes of the object's digest */
};

int catalog_looked(struct catalog *c, int64_t model, int64_t folder,
                   void (*each)(void *ctx, const struct looked *l), void *ctx, struct err *e);
int catalog_looked_add(struct catalog *c, int64_t model, int64_t folder, const struct looked *l,
                       size_t n, struct err *e);
/* All of a folder, of every model. */
int catalog_looked_drop(struct catalog *c, int64_t folder, struct err *e);

#endif
