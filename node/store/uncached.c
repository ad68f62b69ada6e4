/* SPDX-License-Identifier: MIT
 * uncached.c: see uncached.h. */
#include "node/store/uncached.h"

#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool uncached_wins(uint64_t bytes)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && bytes > (uint64_t)pages * (uint64_t)page / 2;
}

static int open_again(const char *path, int flags)
{
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int uncached_open(struct uncached *f, const char *path, int flags, bool past)
{
    f->past = past;
    f->fd = open_again(path, flags | (past ? uncached_flag() : 0));
    if (f->fd < 0 && past && errno == EINVAL) {
        f->past = false;
        f->fd = open_again(path, flags);
    }
    if (f->fd >= 0 && f->past && uncached_flag() == UNCACHED_NO_FLAG) {
        f->past = uncached_set(f->fd, true);
    }
    return f->fd;
}

/* As far as whole blocks go and the volume plays along. */
static size_t read_past(const struct uncached *f, uint8_t *p, size_t n, uint64_t off)
{
    size_t got = 0;
    if ((uintptr_t)p % UNCACHED_BLOCK || off % UNCACHED_BLOCK) {
        return 0;
    }
    n -= n % UNCACHED_BLOCK;
    while (got < n) {
        ssize_t k = pread(f->fd, p + got, n - got, (off_t)(off + got));
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            break; /* the plain read meets the same, and says it */
        }
        got += (size_t)k;
        if (k % UNCACHED_BLOCK) {
            break;
        }
    }
    return got;
}

int uncached_read(struct uncached *f, const char *name, void *p, size_t n, uint64_t off,
                  struct err *e)
{
    uint8_t *b = p;
    size_t got = f->past ? read_past(f, b, n, off) : 0;
    if (got == n) {
        return 0;
    }
    if (f->past) {
        uncached_set(f->fd, false);
        f->past = false;
    }
    return file_pread(f->fd, name, b + got, n - got, off + got, e);
}
