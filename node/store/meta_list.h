/* SPDX-License-Identifier: MIT
 * meta_list.h: private to node/store: the list in origin.txt, as data and as text. No locks. */
#ifndef SHOAL_STORE_META_LIST_H
#define SHOAL_STORE_META_LIST_H

#include "node/store/origin.h"
#include "proto/base/sha256.h"

enum meta_kind { META_FILE, META_ABSENT, META_SHARD };

struct meta_item {
    enum meta_kind kind;
    char *name; /* owned by the list */
    uint64_t size;
    uint8_t sha[SHA256_SIZE];
    char etag[ORIGIN_ETAG_MAX];
};

struct meta_list {
    struct meta_item *it;
    size_t n, cap;
};

void meta_list_free(struct meta_list *l); /* and empty */
/* Valid until the list changes; NULL: none. */
const struct meta_item *meta_list_find(const struct meta_list *l, enum meta_kind kind,
                                       const char *name);
/* Add or replace (same kind and name). A file replaces "absent". ERR_NOMEM, ERR_FORMAT (a name that
 * cannot be one). */
int meta_list_set(struct meta_list *l, const char *name, const struct meta_item *it);
/* Forgets what was absent. */
void meta_list_doubt(struct meta_list *l);
int meta_list_write(const struct meta_list *l, const char *address, struct buf *out);
/* Fills an empty list; any damage is ERR_FORMAT. */
int meta_list_parse(struct meta_list *l, const char *p, size_t n, const char *address,
                    struct err *e);

#endif
