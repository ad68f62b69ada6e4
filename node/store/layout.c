/* SPDX-License-Identifier: MIT
 * layout.c: see layout.h. */
#include "node/store/layout.h"

#include "node/store/nobackup.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

char *layout_path(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : malloc((size_t)n + 1);
    if (p) {
        va_start(ap, fmt);
        vsnprintf(p, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    return p;
}

int layout_prepare(const char *cache_dir, struct err *e)
{
    int r = file_mkdirs(cache_dir, e);
    if (!r) {
        nobackup_mark(cache_dir);
    }
    return r;
}

int layout_lock(const char *cache_dir, struct err *e)
{
    char *p = layout_path("%s/lock", cache_dir);
    if (!p) {
        err_set(e, ERR_NOMEM, "out of memory");
        return -1;
    }
    int fd = open(p, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        err_sys(e, errno, "cannot open %s", p);
    } else {
        int r;
        do {
            r = flock(fd, LOCK_EX);
        } while (r != 0 && errno == EINTR);
        if (r != 0) {
            err_sys(e, errno, "cannot lock %s", p);
            close(fd);
            fd = -1;
        }
    }
    free(p);
    return fd;
}

#define PROBE ((size_t)256 << 10)

static bool is_locked(int no)
{
    return no == EROFS || no == EACCES || no == EPERM;
}

/* 0, or why a file of some size cannot be written in this folder. */
static int probe(const char *dir)
{
    char *p = layout_path("%s/probe.tmp%ld", dir, (long)getpid());
    char *block = calloc(1, PROBE);
    int fd = p && block ? open(p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    int no = !p || !block ? ENOMEM : fd < 0 ? errno : 0;
    if (fd >= 0) {
        ssize_t k = write(fd, block, PROBE);
        no = k < 0 ? errno : (size_t)k < PROBE ? ENOSPC : 0;
        close(fd);
        unlink(p);
    }
    free(block);
    free(p);
    return no;
}

enum layout_state layout_state(const char *dir, struct err *why)
{
    char *at = strdup(dir), *slash;
    struct statvfs v;
    int no = at ? 0 : ENOMEM;
    while (at && access(at, F_OK) != 0 && (slash = strrchr(at, '/')) && slash > at) {
        *slash = 0;
    }
    if (at) {
        no = access(at, W_OK | X_OK) ? errno : 0;
        no = is_locked(no) ? no : probe(at);
    }
    enum layout_state s = is_locked(no)                  ? LAYOUT_LOCKED
                          : no == ENOSPC || no == EDQUOT ? LAYOUT_FULL
                                                         : LAYOUT_OPEN;
    if (s == LAYOUT_LOCKED) {
        err_set(why, ERR_REFUSED, "%.300s cannot be written (%s)", dir, strerror(no));
    } else if (s == LAYOUT_FULL) {
        bool known = statvfs(at, &v) == 0;
        err_set(why, ERR_FULL, "the volume of %.300s is full (%.1f of %.1f MB are free%s)", dir,
                known ? (double)v.f_bavail * (double)v.f_frsize * 1e-6 : 0,
                known ? (double)v.f_blocks * (double)v.f_frsize * 1e-6 : 0,
                no == EDQUOT ? ", but the quota is used up" : "");
    }
    free(at);
    return s;
}

void layout_unlock(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

void layout_sweep(const char *dir, bool all)
{
    DIR *d = opendir(dir);
    struct dirent *x;
    while (d && (x = readdir(d))) {
        char *end, *at = strstr(x->d_name, ".tmp");
        long pid = at ? strtol(at + 4, &end, 10) : 0;
        if (pid <= 0 || *end || (!all && (kill((pid_t)pid, 0) == 0 || errno != ESRCH))) {
            continue;
        }
        char *p = layout_path("%s/%s", dir, x->d_name);
        if (p) {
            unlink(p);
        }
        free(p);
    }
    if (d) {
        closedir(d);
    }
}

char *layout_model_dir(const char *cache_dir, const uint8_t *root)
{
    char hex[2 * SHA256_SIZE + 1];
    sha256_hex(root, hex);
    return layout_path("%s/models/%.16s", cache_dir, hex);
}

char *layout_origin_dir(const char *cache_dir, const char *address)
{
    uint8_t d[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1];
    sha256(address, strlen(address), d);
    sha256_hex(d, hex);
    return layout_path("%s/origins/%.16s", cache_dir, hex);
}

char *layout_object(const char *model_dir, const struct model *m, uint32_t id)
{
    static const char *const role[] = {
#define ROLE_NAME(n, s) [MODEL_##n] = s,
        MODEL_LAYER_ROLES(ROLE_NAME) MODEL_GLOBAL_ROLES(ROLE_NAME)
#undef ROLE_NAME
    };
    const struct model_object *o = model_object(m, id);
    if (o->kind == MODEL_EXPERT) {
        return layout_path("%s/experts/%03u/%03u.mxfp4", model_dir, o->layer, o->index);
    }
    if (o->layer == MODEL_NONE) {
        return layout_path("%s/spine/global/%s", model_dir, role[o->index]);
    }
    return layout_path("%s/spine/%03u/%s", model_dir, o->layer, role[o->index]);
}
