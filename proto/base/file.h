/* SPDX-License-Identifier: MIT
 * file.h: whole-file reads with a maximum, exact positioned reads and writes, and the write that
 * survives kill -9 and power loss: temporary name, sync, rename, sync of the folder. */
#ifndef SHOAL_BASE_FILE_H
#define SHOAL_BASE_FILE_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdint.h>
#include <sys/types.h>

/* Most bytes of one read or write: the Mac refuses what is over 2 GiB - 1, and a tensor may be. A
 * whole number of blocks. */
#define FILE_STEP ((size_t)1 << 30)

/* Opens for reading, with more flags of open(); once more whenever a signal ended that, as it may
 * on a file system over the net. -1, and errno.. */
int file_open_read(const char *path, int flags);
/* Append the whole file to *out (whose maximum applies). The sentence names the path. */
int file_read_all(const char *path, struct buf *out, struct err *e);
/* Read or write exactly n bytes at `off`, going on after short counts and EINTR. A file that ends
 * early is ERR_FORMAT with have and want in the sentence. `name` is for the sentence only. */
int file_pread(int fd, const char *name, void *p, size_t n, uint64_t off, struct err *e);
int file_pwrite(int fd, const char *name, const void *p, size_t n, uint64_t off, struct err *e);
/* Data and metadata down to the disk: F_FULLFSYNC on the Mac, fsync elsewhere. */
int file_sync(int fd, const char *name, struct err *e);
/* Sync the folder that holds `path`, so that a rename in it lasts. */
int file_sync_dir_of(const char *path, struct err *e);
/* The same for what may be lost to a power cut, though not to a crash: on the Mac it is much less
 * work, and the drive keeps it back for a while. */
int file_order_dir_of(const char *path, struct err *e);
/* Replace `path` by these bytes, all or nothing. */
int file_write_atomic(const char *path, const void *p, size_t n, mode_t mode, struct err *e);
/* mkdir -p with mode 0700 for the folders it makes. */
int file_mkdirs(const char *path, struct err *e);

#endif
