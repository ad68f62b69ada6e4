/* SPDX-License-Identifier: MIT
 * file.c: see file.h. */
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_open_read(const char *path, int flags)
{
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int file_read_all(const char *path, struct buf *out, struct err *e)
{
    int fd = file_open_read(path, 0);
    if (fd < 0) {
        return err_sys(e, errno, "cannot open %s", path);
    }
    int r = 0;
    for (;;) {
        r = buf_reserve(out, 1 << 16);
        if (r == ERR_LIMIT) { /* the last stretch up to the maximum, then one byte to tell */
            r = buf_reserve(out, out->max - out->n);
        }
        if (r) {
            r = err_set(e, r, "cannot read %s: %s", path, err_text(r));
            break;
        }
        size_t room = out->cap - 1 - out->n;
        char over;
        ssize_t k = room ? read(fd, out->p + out->n, room) : read(fd, &over, 1);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            r = err_sys(e, errno, "cannot read %s", path);
            break;
        }
        if (k == 0) {
            break;
        }
        if (!room) {
            r = err_set(e, ERR_LIMIT, "%s is larger than the %zu bytes allowed", path, out->max);
            break;
        }
        out->n += (size_t)k;
        out->p[out->n] = 0;
    }
    close(fd);
    return r;
}

int file_pread(int fd, const char *name, void *p, size_t n, uint64_t off, struct err *e)
{
    size_t got = 0;
    while (got < n) {
        size_t ask = n - got > FILE_STEP ? FILE_STEP : n - got;
        ssize_t k = pread(fd, (char *)p + got, ask, (off_t)(off + got));
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            return err_sys(e, errno, "cannot read %s", name);
        }
        if (k == 0) {
            return err_set(e, ERR_FORMAT, "%s is cut short: %zu of %zu bytes at offset %llu", name,
                           got, n, (unsigned long long)off);
        }
        got += (size_t)k;
    }
    return 0;
}

int file_pwrite(int fd, const char *name, const void *p, size_t n, uint64_t off, struct err *e)
{
    size_t done = 0;
    while (done < n) {
        size_t ask = n - done > FILE_STEP ? FILE_STEP : n - done;
        ssize_t k = pwrite(fd, (const char *)p + done, ask, (off_t)(off + done));
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            return err_sys(e, errno, "cannot write %s", name);
        }
        done += (size_t)k;
    }
    return 0;
}

static int sync_fd(int fd)
{
#ifdef __APPLE__
    if (fcntl(fd, F_FULLFSYNC) == 0) {
        return 0;
    } /* network volumes refuse it; fsync is what they offer */
#endif
    return fsync(fd);
}

int file_sync(int fd, const char *name, struct err *e)
{
    return sync_fd(fd) ? err_sys(e, errno, "cannot sync %s", name) : 0;
}

static int sync_dir_of(const char *path, int (*sync)(int fd), struct err *e)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    char *dir = malloc(n + 2);
    if (!dir) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (!slash) {
        memcpy(dir, ".", 2);
    } else {
        memcpy(dir, path, n ? n : 1);
        dir[n ? n : 1] = 0;
    }
    int r = 0;
    int fd = open(dir, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        r = err_sys(e, errno, "cannot open the folder %s", dir);
    } else {
        if (sync(fd) != 0 && errno != EINVAL) {
            r = err_sys(e, errno, "cannot sync the folder %s", dir);
        }
        close(fd);
    }
    free(dir);
    return r;
}

int file_sync_dir_of(const char *path, struct err *e)
{
    return sync_dir_of(path, sync_fd, e);
}

int file_order_dir_of(const char *path, struct err *e)
{
    return sync_dir_of(path, fsync, e);
}

int file_write_atomic(const char *path, const void *p, size_t n, mode_t mode, struct err *e)
{
    size_t len = strlen(path) + 32;
    char *tmp = malloc(len);
    if (!tmp) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    snprintf(tmp, len, "%s.tmp%ld", path, (long)getpid());
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    int r = 0;
    if (fd < 0) {
        r = err_sys(e, errno, "cannot create %s", path);
    } else { /* the name that is known is said, not the one that it has meanwhile */
        r = file_pwrite(fd, path, p, n, 0, e);
        if (!r) {
            r = file_sync(fd, path, e);
        }
        close(fd);
        if (!r && rename(tmp, path) != 0) {
            r = err_sys(e, errno, "cannot put %s in place", path);
        }
        if (r) {
            unlink(tmp);
        } else {
            r = file_sync_dir_of(path, e);
        }
    }
    free(tmp);
    return r;
}

int file_mkdirs(const char *path, struct err *e)
{
    size_t n = strlen(path);
    char *d = malloc(n + 1);
    if (!d) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    memcpy(d, path, n + 1);
    int r = 0;
    for (size_t i = 1; i <= n && !r; i++) {
        if (d[i] == '/' || d[i] == 0) {
            char c = d[i];
            d[i] = 0;
            if (mkdir(d, 0700) != 0 && errno != EEXIST) {
                r = err_sys(e, errno, "cannot make the folder %s", d);
            }
            d[i] = c;
        }
    }
    if (!r) {
        struct stat st;
        if (stat(path, &st) != 0) {
            r = err_sys(e, errno, "cannot use the folder %s", path);
        } else if (!S_ISDIR(st.st_mode)) {
            r = err_set(e, ERR_IO, "%s is not a folder", path);
        }
    }
    free(d);
    return r;
}
