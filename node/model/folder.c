/* SPDX-License-Identifier: MIT
 * folder.c: a model_source over a local folder. */
#include "node/model/model.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct folder {
    char *dir;
};

/* dir/name, or NULL; a name never leaves the folder. */
static char *path_of(const struct folder *f, const char *name, struct err *e)
{
    if (name[0] == 0 || name[0] == '.' || strchr(name, '/')) {
        err_set(e, ERR_ARG, "\"%s\" is no plain file name", name);
        return NULL;
    }
    size_t n = strlen(f->dir) + strlen(name) + 2;
    char *p = malloc(n);
    if (p) {
        snprintf(p, n, "%s/%s", f->dir, name);
    } else {
        err_set(e, ERR_NOMEM, "out of memory");
    }
    return p;
}

static int open_file(const struct folder *f, const char *name, char **path, int *fd, struct err *e)
{
    struct err own;
    e = e ? e : &own;
    *path = path_of(f, name, e);
    if (!*path) {
        return e->code;
    }
    *fd = open(*path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block us */
    if (*fd < 0) {
        int r = err_sys(e, errno, "cannot open %s", *path);
        free(*path);
        return r;
    }
    struct stat st;
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        int r = err_set(e, ERR_IO, "%s is not a plain file", *path);
        close(*fd);
        free(*path);
        return r;
    }
    return 0;
}

static int read_file(void *ctx, const char *name, struct buf *out, struct err *e)
{
    char *path;
    int fd, r = open_file(ctx, name, &path, &fd, e);
    if (!r) {
        close(fd);
        r = file_read_all(path, out, e);
        free(path);
    }
    return r;
}

static int read_range(void *ctx, const char *name, uint64_t off, void *p, size_t n, struct err *e)
{
    char *path;
    int fd, r = open_file(ctx, name, &path, &fd, e);
    if (!r) {
        r = file_pread(fd, path, p, n, off, e);
        close(fd);
        free(path);
    }
    return r;
}

static int file_size(void *ctx, const char *name, uint64_t *size, struct err *e)
{
    char *path;
    int fd, r = open_file(ctx, name, &path, &fd, e);
    if (!r) {
        struct stat st;
        if (fstat(fd, &st) != 0) {
            r = err_sys(e, errno, "cannot examine %s", path);
        } else {
            *size = (uint64_t)st.st_size;
        }
        close(fd);
        free(path);
    }
    return r;
}

int model_folder_open(const char *dir, struct model_source *out, struct err *e)
{
    struct stat st;
    if (stat(dir, &st) != 0) {
        return err_sys(e, errno, "cannot use the model folder %s", dir);
    }
    if (!S_ISDIR(st.st_mode)) {
        return err_set(e, ERR_ARG, "%s is not a folder", dir);
    }
    struct folder *f = malloc(sizeof *f);
    size_t n = strlen(dir) + 1;
    char *copy = malloc(n);
    if (!f || !copy) {
        free(f);
        free(copy);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    memcpy(copy, dir, n);
    f->dir = copy;
    *out = (struct model_source){f, read_file, read_range, file_size};
    return 0;
}

void model_folder_close(struct model_source *src)
{
    struct folder *f = src->ctx;
    if (f) {
        free(f->dir);
        free(f);
    }
    *src = (struct model_source){0};
}
