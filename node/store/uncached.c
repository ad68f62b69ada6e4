/* SPDX-License-Identifier: MIT
 * uncached.c: see uncached.h. */
#include "node/store/uncached.h"

#include "proto/base/file.h"
#include "proto/base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BESIDE ((size_t)4 << 20)

bool uncached_wins(uint64_t bytes)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && bytes > (uint64_t)pages * (uint64_t)page / 2;
}

int uncached_open(struct uncached *f, const char *path, int flags, bool past)
{
    f->past = past;
    f->fd = file_open_read(path, flags | (past ? uncached_flag() : 0));
    if (f->fd < 0 && past && errno == EINVAL) {
        f->past = false;
        f->fd = file_open_read(path, flags);
    }
    if (f->fd >= 0 && f->past && uncached_flag() == UNCACHED_NO_FLAG) {
        f->past = uncached_set(f->fd, true);
    }
    return f->fd;
}

/* Up to n bytes: fewer at the file's end, and where the volume does not play along. */
static size_t read_some(const struct uncached *f, uint8_t *p, size_t n, uint64_t off)
{
    size_t got = 0;
    while (got < n) {
        size_t ask = n - got < FILE_STEP ? n - got : FILE_STEP;
        ssize_t k = pread(f->fd, p + got, ask, (off_t)(off + got));
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

/* What does not lie on whole blocks, by way of memory that does. */
static size_t read_beside(const struct uncached *f, uint8_t *p, size_t n, uint64_t off)
{
    size_t got = 0;
    void *b;
    if (posix_memalign(&b, UNCACHED_BLOCK, BESIDE + 2 * UNCACHED_BLOCK)) {
        return 0;
    }
    while (got < n) {
        size_t skip = (off + got) % UNCACHED_BLOCK, want = n - got < BESIDE ? n - got : BESIDE;
        size_t whole = (size_t)num_round_up(skip + want, UNCACHED_BLOCK);
        size_t k = read_some(f, b, whole, off + got - skip);
        if (k < skip + want) {
            break;
        }
        memcpy(p + got, (uint8_t *)b + skip, want);
        got += want;
    }
    free(b);
    return got;
}

static size_t read_past(const struct uncached *f, uint8_t *p, size_t n, uint64_t off)
{
    if (uncached_flag() == UNCACHED_NO_FLAG) {
        return read_some(f, p, n, off);
    }
    if ((uintptr_t)p % UNCACHED_BLOCK || off % UNCACHED_BLOCK) {
        return n < UNCACHED_BLOCK ? 0 : read_beside(f, p, n, off);
    }
    return read_some(f, p, n - n % UNCACHED_BLOCK, off);
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
