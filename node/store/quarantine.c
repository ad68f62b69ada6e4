/* SPDX-License-Identifier: MIT
 * quarantine.c: see quarantine.h. */
#include "node/store/quarantine.h"

#include "node/store/disk_inner.h"
#include "node/store/layout.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES_MAX 4096

struct kept {
    char *path;
    uint64_t size;
    int64_t since;
};

static int older(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    return x->since != y->since ? (x->since < y->since ? -1 : 1) : strcmp(x->path, y->path);
}

static struct kept *list(struct disk *d, size_t *n)
{
    struct kept *v = NULL;
    char *dir = layout_path("%s/quarantine", d->dir);
    DIR *at = dir ? opendir(dir) : NULL;
    struct dirent *x;
    *n = 0;
    while (at && *n < FILES_MAX && (x = readdir(at))) {
        char *p = x->d_name[0] == '.' ? NULL : layout_path("%s/%s", dir, x->d_name);
        struct stat st;
        struct kept *t = p && !lstat(p, &st) ? realloc(v, (*n + 1) * sizeof *v) : NULL;
        if (!t) {
            free(p);
            continue;
        }
        v = t;
        v[(*n)++] = (struct kept){p, (uint64_t)st.st_size, strtoll(x->d_name, NULL, 10)};
    }
    if (at) {
        closedir(at);
    }
    free(dir);
    if (*n) {
        qsort(v, *n, sizeof *v, older);
    }
    return v;
}

/* Removes the oldest until at most `bytes` and nothing from before `since` are left. */
static void trim(struct disk *d, uint64_t bytes, int64_t since, struct quarantine *left)
{
    size_t n;
    struct kept *v = list(d, &n);
    uint64_t all = 0;
    memset(left, 0, sizeof *left);
    for (size_t i = 0; i < n; i++) {
        all += v[i].size;
    }
    for (size_t i = 0; i < n; i++) {
        if (d->closed != LAYOUT_LOCKED && (all > bytes || v[i].since < since)) {
            unlink(v[i].path);
            all -= v[i].size;
        } else {
            left->files++;
            left->bytes += v[i].size;
        }
        free(v[i].path);
    }
    free(v);
}

void quarantine_look(struct disk *d)
{
    struct quarantine left;
    trim(d, QUARANTINE_BYTES, (int64_t)time(NULL) - QUARANTINE_DAYS * 86400, &left);
    pthread_mutex_lock(&d->mu);
    d->quarantine = left;
    pthread_mutex_unlock(&d->mu);
}

bool quarantine_put(struct disk *d, uint32_t id, const char *path)
{
    char name[128];
    struct err e;
    struct stat st;
    if (lstat(path, &st) != 0) {
        return true;
    }
    model_object_name(d->o.m, id, name, sizeof name);
    for (char *c = name; *c; c++) {
        *c = isalnum((unsigned char)*c) || *c == '.' || *c == '_' ? *c : '-';
    }
    char *to = layout_path("%s/quarantine/%lld-%s", d->dir, (long long)time(NULL), name);
    bool gone = to && (rename(path, to) == 0 ||
                       (!file_mkdirs(d->quarantine_dir, &e) && rename(path, to) == 0));
    gone = gone || unlink(path) == 0 || errno == ENOENT;
    free(to);
    quarantine_look(d);
    return gone;
}

void quarantine_clear(struct disk *d)
{
    struct quarantine left;
    trim(d, 0, INT64_MAX, &left);
    d->quarantine = left;
}
