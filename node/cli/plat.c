/* SPDX-License-Identifier: MIT
 * plat.c: see plat.h; the part that is the same on every POSIX system. */
#include "node/cli/plat.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

uint64_t plat_page(void)
{
    long v = sysconf(_SC_PAGESIZE);
    return v > 0 ? (uint64_t)v : 4096;
}

uint64_t plat_raise_files(uint64_t *before)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l)) {
        return 0;
    }
    if (before) {
        *before = l.rlim_cur;
    }
    /* The Mac refuses more than OPEN_MAX even where the hard limit says infinity. */
    static const rlim_t steps[] = {65536, 24576, 10240, 4096};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        rlim_t want = l.rlim_max != RLIM_INFINITY && l.rlim_max < steps[i] ? l.rlim_max : steps[i];
        if (want <= l.rlim_cur) {
            break;
        }
        struct rlimit up = {want, l.rlim_max};
        if (!setrlimit(RLIMIT_NOFILE, &up)) {
            return want;
        }
    }
    return l.rlim_cur;
}

int plat_disk_free(const char *path, uint64_t *bytes, struct err *e)
{
    char p[PATH_MAX];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof p) {
        return err_set(e, ERR_ARG, "the path %.100s... cannot be used", path);
    }
    memcpy(p, path, n + 1);
    for (;;) {
        struct statvfs v;
        if (!statvfs(p, &v)) {
            *bytes = (uint64_t)v.f_bavail * v.f_frsize;
            return 0;
        }
        char *slash = strrchr(p, '/');
        if (errno != ENOENT || !strcmp(p, ".") || !strcmp(p, "/")) {
            return err_sys(e, errno, "cannot ask for the free space at %s", path);
        }
        if (!slash) {
            memcpy(p, ".", 2);
        } else if (slash == p) {
            p[1] = 0;
        } else {
            *slash = 0;
        }
    }
}

static int remove_one(const char *path, const struct stat *sb, int what, struct FTW *at)
{
    return remove(path);
}

int plat_remove_tree(const char *path, struct err *e)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS)) {
        return err_sys(e, errno, "cannot remove the folder %s", path);
    }
    return 0;
}

uint64_t plat_peak_rss(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) || u.ru_maxrss < 0) {
        return 0;
    }
#ifdef __APPLE__
    return (uint64_t)u.ru_maxrss; /* bytes */
#else
    return (uint64_t)u.ru_maxrss * 1024;
#endif
}
