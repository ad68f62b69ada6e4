/* SPDX-License-Identifier: MIT
 * uncached.h: private to node/store: reading large files past the system's page cache, straight
 * into the caller's memory: O_DIRECT on Linux, F_NOCACHE on the Mac. Where the volume has no such
 * thing, and for what does not lie on whole blocks, reads are plain ones.
 *
 * What is read so is not kept by the system, so it is of use for objects of a model that the
 * memory cannot hold anyway: a copy through the page cache costs time and pushes out what is used
 * for every token. uncached_wins says for which. */
#ifndef SHOAL_STORE_UNCACHED_H
#define SHOAL_STORE_UNCACHED_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where memory and offset are multiples of this, bytes come straight to their place; else they are
 * copied once, and a rest shorter than this is a plain read. */
#define UNCACHED_BLOCK 4096u

struct uncached {
    int fd;
    bool past; /* reads go past the page cache */
};

/* A model of `bytes` is larger than half of this machine's memory. */
bool uncached_wins(uint64_t bytes);
/* open(2) for reading with these flags more, errno and all; f->fd -1. `past`: if it is possible. */
int uncached_open(struct uncached *f, const char *path, int flags, bool past);
/* Exactly n bytes at off, as file_pread. */
int uncached_read(struct uncached *f, const char *name, void *p, size_t n, uint64_t off,
                  struct err *e);
/* What has been written to this file (and synced) need not stay in memory. */
void uncached_forget(int fd);

/* ---- uncached_linux.c, uncached_darwin.c ---- */

#define UNCACHED_NO_FLAG 0
int uncached_flag(void);            /* for open, or UNCACHED_NO_FLAG */
bool uncached_set(int fd, bool on); /* of an open file; false: it cannot be */

#endif
