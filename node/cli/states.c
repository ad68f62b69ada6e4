/* SPDX-License-Identifier: MIT
 * states.c: see states.h. */
#include "node/cli/states.h"

#include "proto/base/file.h"
#include "proto/base/sha256.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_ROOM 4600
#define FOLDERS_MAX 256

__attribute__((format(printf, 2, 3))) static bool path_of(char out[PATH_ROOM], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, PATH_ROOM, fmt, ap);
    va_end(ap);
    return n >= 0 && n < PATH_ROOM;
}

int states_folder(const char *base, const uint8_t *root, struct buf *out, struct err *e)
{
    char hex[2 * SHA256_SIZE + 1];
    sha256_hex(root, hex);
    int r = buf_addf(out, "%s/states/%.16s", base, hex);
    return r ? err_set(e, r, "the path of the folder for states is too long") : 0;
}

static int lock_path(const char *folder, bool make, int *fd)
{
    char path[PATH_ROOM];
    *fd = -1;
    if (!path_of(path, "%s/lock", folder)) {
        return ENAMETOOLONG;
    }
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
    if (*fd < 0) {
        return errno;
    }
    if (flock(*fd, LOCK_EX | LOCK_NB)) {
        int no = errno;
        close(*fd);
        *fd = -1;
        return no;
    }
    return 0;
}

int states_lock(const char *folder, int *fd, struct err *e)
{
    *fd = -1;
    int r = file_mkdirs(folder, e);
    if (r) {
        return r;
    }
    if (chmod(folder, 0700)) {
        return err_sys(e, errno, "%s cannot be closed to others", folder);
    }
    int no = lock_path(folder, true, fd);
    return no == EWOULDBLOCK
               ? err_set(e, ERR_BUSY, "another process keeps its states in %s", folder)
           : no ? err_sys(e, no, "%s/lock cannot be made", folder)
                : 0;
}

/* 32 hex digits and ".state"; with `all` what else holds something of a prompt: ".ids", what a
 * process that died left half written, and the last one that was put aside. */
static bool is_ours(const char *name, bool all)
{
    size_t n = strspn(name, "0123456789abcdef");
    const char *rest = name + n;
    if (n == 32 && !strcmp(rest, ".state")) {
        return true;
    }
    return all && ((n == 32 && (!strcmp(rest, ".ids") || !strncmp(rest, ".ids.tmp", 8) ||
                                !strncmp(rest, ".state.tmp", 10))) ||
                   !strcmp(name, "bad.state"));
}

/* Count the states of a folder; with `remove`, unlink them. */
static int visit(const char *folder, bool remove, size_t *count, uint64_t *bytes, struct err *e)
{
    char path[PATH_ROOM];
    struct stat sb;
    int r = 0;
    DIR *d = opendir(folder);
    if (!d) {
        return err_sys(e, errno, "cannot read %s", folder);
    }
    for (struct dirent *f; (f = readdir(d));) {
        if (!is_ours(f->d_name, true) || !path_of(path, "%s/%s", folder, f->d_name)) {
            continue;
        }
        if (lstat(path, &sb) || !S_ISREG(sb.st_mode)) {
            continue;
        }
        if (remove && unlink(path) && errno != ENOENT) {
            r = err_sys(e, errno, "cannot delete %s", path);
            continue;
        }
        *count += is_ours(f->d_name, false);
        *bytes += (uint64_t)sb.st_size;
    }
    closedir(d);
    return r;
}

int states_count(const char *folder, size_t *count, uint64_t *bytes, struct err *e)
{
    return visit(folder, false, count, bytes, e);
}

int states_list(const char *base, struct states_info *out, size_t cap, size_t *n, struct err *e)
{
    char path[PATH_ROOM];
    int r = 0, fd;
    *n = 0;
    DIR *d = path_of(path, "%s/states", base) ? opendir(path) : NULL;
    if (!d) {
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(e, errno, "cannot read %s", path);
    }
    for (struct dirent *f; !r && *n < cap && (f = readdir(d));) {
        struct states_info *x = &out[*n];
        if (strlen(f->d_name) != STATES_NAME - 1 ||
            strspn(f->d_name, "0123456789abcdef") != STATES_NAME - 1) {
            continue;
        }
        memset(x, 0, sizeof *x);
        memcpy(x->name, f->d_name, STATES_NAME);
        if (!path_of(path, "%s/states/%s", base, x->name)) {
            continue;
        }
        r = visit(path, false, &x->n, &x->bytes, e);
        int no = lock_path(path, false, &fd);
        x->busy = no == EWOULDBLOCK;
        if (!no) {
            close(fd);
        }
        *n += !r;
    }
    closedir(d);
    return r;
}

int states_clear(const char *base, const char *except, size_t *count, uint64_t *bytes,
                 struct err *e)
{
    struct states_info l[FOLDERS_MAX];
    char path[PATH_ROOM];
    size_t n;
    int r = states_list(base, l, FOLDERS_MAX, &n, e);
    for (size_t i = 0; i < n; i++) {
        if (except && !strcmp(l[i].name, except)) {
            continue;
        }
        if (!path_of(path, "%s/states/%s", base, l[i].name)) {
            continue; /* nor was it listed */
        }
        if (l[i].busy) {
            r = err_set(e, ERR_BUSY, "a process works with the states in %s: end it first", path);
            continue;
        }
        struct err e1 = {0};
        if (visit(path, true, count, bytes, &e1)) {
            *e = e1;
            r = e1.code;
        }
    }
    return r;
}

int states_drop(const char *base, const char *name, size_t *count, uint64_t *bytes, struct err *e)
{
    char path[PATH_ROOM], lock[PATH_ROOM];
    struct stat sb;
    int fd = -1;
    if (!path_of(path, "%s/states/%s", base, name) || lstat(path, &sb)) {
        return 0;
    }
    int no = lock_path(path, false, &fd);
    if (no == EWOULDBLOCK) {
        return err_set(e, ERR_BUSY, "a process works with the states in %s: end it first", path);
    }
    int r = visit(path, true, count, bytes, e);
    if (!r && path_of(lock, "%s/%s", path, "lock")) {
        unlink(lock);
        rmdir(path); /* it stays where something else is in it */
    }
    if (!no) {
        close(fd);
    }
    return r;
}
