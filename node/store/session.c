/* SPDX-License-Identifier: MIT
 * session.c: see session.h. */
#include "node/store/session.h"

#include "node/store/kept.h"
#include "node/store/layout.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KEEP_DAYS 7 /* an unfinished object that nobody has continued for so long goes */

struct session {
    char *dir;
    int lock;
};

void session_put_record(uint8_t out[SESSION_RECORD], uint32_t chunk, const struct chunk_sum *c)
{
    num_put_le32(out, chunk);
    num_put_le32(out + 4, 0);
    memcpy(out + 8, c->sha, SHA256_SIZE);
    num_put_le64(out + 40, c->xxh);
    num_put_le64(out + 48, chunk_xxh(out, 48));
}

bool session_get_record(const uint8_t in[SESSION_RECORD], uint32_t chunk, struct chunk_sum *c)
{
    if (num_get_le32(in) != chunk || num_get_le64(in + 48) != chunk_xxh(in, 48)) {
        return false;
    }
    memcpy(c->sha, in + 8, SHA256_SIZE);
    c->xxh = num_get_le64(in + 40);
    return true;
}

char *session_part(const struct session *s, uint32_t id)
{
    return layout_path("%s/%" PRIu32 ".part", s->dir, id);
}

char *session_rec(const struct session *s, uint32_t id)
{
    return layout_path("%s/%" PRIu32 ".rec", s->dir, id);
}

static bool gone(char *path)
{
    bool r = path && (unlink(path) == 0 || errno == ENOENT);
    free(path);
    return r;
}

bool session_remove(const struct session *s, uint32_t id)
{
    bool part = gone(session_part(s, id)), rec = gone(session_rec(s, id));
    return part && rec;
}

/* Try to own the lock file of a session folder: descriptor or -1. */
static int try_lock(const char *dir)
{
    char *p = layout_path("%s/lock", dir);
    int fd = p ? open(p, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    free(p);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

void session_count(const struct session *s, int32_t day, uint64_t bytes)
{
    char line[64], date[KEPT_DATE], *p = layout_path("%s/" KEPT_WRITTEN, s->dir);
    struct err e;
    kept_date(day, date);
    /* of one length, so that it is never half new */
    int n = snprintf(line, sizeof line, "%s %020" PRIu64 "\n", date, bytes);
    int fd = p ? open(p, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        (void)file_pwrite(fd, p, line, (size_t)n, 0, &e);
        close(fd);
    }
    free(p);
}

struct adopt {
    struct session *s;
    const char *model_dir;
    uint32_t n_objects;
    void (*adopted)(void *ctx, uint32_t id, uint64_t bytes);
    void *ctx;
};

/* One <id>.part of a dead process: ours from now on, unless we have more of it already. */
static void adopt_part(const struct adopt *a, const char *dir, const char *name)
{
    char *end;
    unsigned long id = strtoul(name, &end, 10);
    if (end == name || strcmp(end, ".part") != 0 || id >= a->n_objects) {
        return;
    }
    char *from = layout_path("%s/%s", dir, name), *rec = layout_path("%s/%lu.rec", dir, id);
    char *to = session_part(a->s, (uint32_t)id), *torec = session_rec(a->s, (uint32_t)id);
    struct stat st, rs, have;
    if (from && rec && to && torec && stat(from, &st) == 0 && stat(rec, &rs) == 0 &&
        rs.st_size >= (off_t)SESSION_RECORD && time(NULL) - st.st_mtime < KEEP_DAYS * 86400) {
        bool more = stat(torec, &have) != 0 || have.st_size < rs.st_size;
        if (more && rename(from, to) == 0 && rename(rec, torec) == 0) {
            a->adopted(a->ctx, (uint32_t)id, (uint64_t)st.st_size);
        }
    }
    free(from);
    free(rec);
    free(to);
    free(torec);
}

static void remove_all(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *x;
    while (d && (x = readdir(d))) {
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0) {
            char *p = layout_path("%s/%s", dir, x->d_name);
            if (p) {
                unlink(p);
            }
            free(p);
        }
    }
    if (d) {
        closedir(d);
    }
    rmdir(dir);
}

static void sweep(const struct adopt *a, const char *tmp)
{
    DIR *d = opendir(tmp);
    struct dirent *x;
    while (d && (x = readdir(d))) {
        char *dir = layout_path("%s/%s", tmp, x->d_name);
        if (dir && strncmp(x->d_name, "s-", 2) == 0 && strcmp(dir, a->s->dir) != 0) {
            int lock = try_lock(dir);
            if (lock >= 0) {
                DIR *in = opendir(dir);
                struct dirent *y;
                while (in && (y = readdir(in))) {
                    adopt_part(a, dir, y->d_name);
                }
                if (in) {
                    closedir(in);
                }
                kept_written_take(a->model_dir, dir);
                remove_all(dir);
                close(lock);
            }
        }
        free(dir);
    }
    if (d) {
        closedir(d);
    }
}

int session_open(const char *model_dir, uint32_t n_objects,
                 void (*adopted)(void *ctx, uint32_t id, uint64_t bytes), void *ctx,
                 struct session **out, struct err *e)
{
    *out = NULL;
    struct session *s = calloc(1, sizeof *s);
    char *tmp = layout_path("%s/tmp", model_dir);
    if (!s || !tmp) {
        free(s);
        free(tmp);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    s->lock = -1;
    int r = file_mkdirs(tmp, e);
    for (uint64_t salt = clock_ns(); !r && !s->dir; salt++) {
        s->dir = layout_path("%s/s-%ld-%08x", tmp, (long)getpid(), (unsigned)(salt & 0xffffffffu));
        if (!s->dir) {
            r = err_set(e, ERR_NOMEM, "out of memory");
        } else if (mkdir(s->dir, 0700) != 0) {
            if (errno != EEXIST) {
                r = err_sys(e, errno, "cannot make the folder %s", s->dir);
            }
            free(s->dir);
            s->dir = NULL;
        }
    }
    if (!r) {
        s->lock = try_lock(s->dir);
        if (s->lock < 0) {
            r = err_set(e, ERR_IO, "cannot lock %s/lock", s->dir);
        }
    }
    if (!r) {
        struct adopt a = {s, model_dir, n_objects, adopted, ctx};
        sweep(&a, tmp);
    }
    free(tmp);
    if (r) {
        session_close(s);
        return r;
    }
    *out = s;
    return 0;
}

void session_close(struct session *s)
{
    if (!s) {
        return;
    }
    if (s->dir) {
        bool kept = false;
        DIR *d = opendir(s->dir);
        struct dirent *x;
        while (d && (x = readdir(d))) {
            size_t n = strlen(x->d_name);
            kept = kept || (n > 5 && strcmp(x->d_name + n - 5, ".part") == 0);
        }
        if (d) {
            closedir(d);
        }
        if (!kept) {
            remove_all(s->dir);
        }
    }
    if (s->lock >= 0) {
        close(s->lock);
    }
    free(s->dir);
    free(s);
}
