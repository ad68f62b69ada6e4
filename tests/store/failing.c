/* SPDX-License-Identifier: MIT
 * failing.c: see failing.h. The functions do what they are named after by syscall(2). Linux only.
 */
#undef _FILE_OFFSET_BITS /* it makes one function of each pair below */
#include "tests/store/failing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define FDS 4096

const char *const failing_name[FAILING_CALLS + 1] = {
    "open", "read", "mkdir", "write", "sync", "rename", "unlink", "truncate", "any call"};

static char under[1024];
static size_t under_n;
static atomic_bool ours[FDS]; /* descriptors of files under it */
static atomic_int which = -1;
static atomic_int error_now;
static atomic_ullong from_now, until_now, failed_now, all_now;
static atomic_ullong calls[FAILING_CALLS];

void failing_under(const char *folder)
{
    snprintf(under, sizeof under, "%s", folder);
    under_n = strlen(under);
}

void failing_set(enum failing_call kind, uint64_t from, uint64_t times, int error)
{
    atomic_store(&which, -1);
    for (int i = 0; i < FAILING_CALLS; i++) {
        atomic_store(&calls[i], 0);
    }
    atomic_store(&all_now, 0);
    atomic_store(&failed_now, 0);
    atomic_store(&error_now, error);
    atomic_store(&from_now, from);
    atomic_store(&until_now, from + times);
    atomic_store(&which, (int)kind);
}

void failing_off(void)
{
    atomic_store(&which, -1);
}

uint64_t failing_count(enum failing_call kind)
{
    return kind == FAILING_CALLS ? atomic_load(&all_now) : atomic_load(&calls[kind]);
}

uint64_t failing_failed(void)
{
    return atomic_load(&failed_now);
}

unsigned failing_open_files(void)
{
    unsigned n = 0;
    for (int i = 0; i < FDS; i++) {
        n += atomic_load(&ours[i]);
    }
    return n;
}

static bool path_is_ours(const char *path)
{
    return under_n && strncmp(path, under, under_n) == 0;
}

static bool fd_is_ours(int fd)
{
    return fd >= 0 && fd < FDS && atomic_load(&ours[fd]);
}

/* The errno to fail with, FAILING_SHORT, or 0. */
static int fault(enum failing_call kind, bool mine)
{
    if (!mine) {
        return 0;
    }
    uint64_t no = atomic_fetch_add(&calls[kind], 1);
    uint64_t all = kind == FAILING_READING ? 0 : atomic_fetch_add(&all_now, 1);
    int w = atomic_load(&which);
    if (w == FAILING_CALLS && kind != FAILING_READING) {
        no = all;
    } else if (w != (int)kind) {
        return 0;
    }
    if (no < atomic_load(&from_now) || no >= atomic_load(&until_now)) {
        return 0;
    }
    int e = atomic_load(&error_now);
    if (e == FAILING_SHORT && kind != FAILING_WRITE) {
        return 0;
    }
    atomic_fetch_add(&failed_now, 1);
    return e;
}

static long failed(int e)
{
    errno = e;
    return -1;
}

static int open_at(int at, const char *path, int flags, mode_t mode)
{
    bool mine = path_is_ours(path);
    bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    int e = fault(writes ? FAILING_OPEN : FAILING_READING, mine);
    if (e) {
        return (int)failed(e);
    }
    int fd = (int)syscall(SYS_openat, at, path, flags, mode);
    if (fd >= 0 && fd < FDS) {
        atomic_store(&ours[fd], mine);
    }
    return fd;
}

#pragma GCC visibility push(default)

#define MODE(flags, mode)                          \
    do {                                           \
        if ((flags) & (O_CREAT | O_TMPFILE)) {     \
            va_list ap;                            \
            va_start(ap, flags);                   \
            (mode) = (mode_t)va_arg(ap, unsigned); \
            va_end(ap);                            \
        }                                          \
    } while (0)

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE(flags, mode);
    return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE(flags, mode);
    return open_at(AT_FDCWD, path, flags, mode);
}

int close(int fd)
{
    if (fd >= 0 && fd < FDS) {
        atomic_store(&ours[fd], false);
    }
    return (int)syscall(SYS_close, fd);
}

int mkdir(const char *path, mode_t mode)
{
    int e = fault(FAILING_MKDIR, path_is_ours(path));
    return e ? (int)failed(e) : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

ssize_t write(int fd, const void *p, size_t n)
{
    int e = fault(FAILING_WRITE, fd_is_ours(fd));
    return e > 0 ? failed(e) : syscall(SYS_write, fd, p, e && n > 1 ? n / 2 : n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
    int e = fault(FAILING_WRITE, fd_is_ours(fd));
    return e > 0 ? failed(e) : syscall(SYS_pwrite64, fd, p, e && n > 1 ? n / 2 : n, off);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off_t off)
{
    return pwrite(fd, p, n, off);
}

ssize_t pread(int fd, void *p, size_t n, off_t off)
{
    int e = fault(FAILING_READING, fd_is_ours(fd));
    return e > 0 ? failed(e) : syscall(SYS_pread64, fd, p, n, off);
}

ssize_t pread64(int fd, void *p, size_t n, off_t off)
{
    return pread(fd, p, n, off);
}

int fsync(int fd)
{
    int e = fault(FAILING_SYNC, fd_is_ours(fd));
    return e ? (int)failed(e) : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    int e = fault(FAILING_SYNC, fd_is_ours(fd));
    return e ? (int)failed(e) : (int)syscall(SYS_fdatasync, fd);
}

int rename(const char *from, const char *to)
{
    int e = fault(FAILING_RENAME, path_is_ours(from));
    return e ? (int)failed(e) : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int link(const char *from, const char *to)
{
    int e = fault(FAILING_RENAME, path_is_ours(from));
    return e ? (int)failed(e) : (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path)
{
    int e = fault(FAILING_UNLINK, path_is_ours(path));
    return e ? (int)failed(e) : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    int e = fault(FAILING_UNLINK, path_is_ours(path));
    return e ? (int)failed(e) : (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

int ftruncate(int fd, off_t n)
{
    int e = fault(FAILING_TRUNCATE, fd_is_ours(fd));
    return e ? (int)failed(e) : (int)syscall(SYS_ftruncate, fd, n);
}

int ftruncate64(int fd, off_t n)
{
    return ftruncate(fd, n);
}

#pragma GCC visibility pop
