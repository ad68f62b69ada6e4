/* SPDX-License-Identifier: MIT
 * edit.h: a temporary copy of a checkpoint folder, to be spoilt. Untouched files are links. All
 * functions end the running cmocka test when something is amiss. */
#ifndef SHOAL_TESTS_EDIT_H
#define SHOAL_TESTS_EDIT_H

#include "proto/base/buf.h"

#include <stddef.h>

struct edit {
    char dir[64];
};

void edit_begin(struct edit *d, const char *from);
void edit_end(struct edit *d); /* removes the folder */
void edit_read(const struct edit *d, const char *file, struct buf *out);
void edit_write(const struct edit *d, const char *file, const void *p, size_t n);
void edit_remove(const struct edit *d, const char *file);
/* Replace the first `from` of a text file. */
void edit_text(const struct edit *d, const char *file, const char *from, const char *to);
/* The same within the JSON header of a shard, whose length field follows; the data stays. */
void edit_header(const struct edit *d, const char *file, const char *from, const char *to);
void edit_append(const struct edit *d, const char *file, const void *p, size_t n);

#endif
