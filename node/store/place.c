/* SPDX-License-Identifier: MIT
 * place.c: see place.h. */
#include "node/store/place.h"

#include "node/store/layout.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOPS_MAX 8
#define MARK_MAX (3 * PLACE_PATH_MAX)

static const char head[] = "shoal-place 1 ";

/* ---- the small files ---- */

static int paths_of(const char *name)
{
    return !strcmp(name, "moved") ? 1 : !strcmp(name, "moving") ? 2 : 0;
}

void place_mark_free(struct place_mark *m)
{
    free(m->root);
    free(m->from);
    memset(m, 0, sizeof *m);
}

/* An absolute path up to a line's end; *p goes behind it. */
static char *path_line(const char **p, const char *end)
{
    const char *nl = memchr(*p, '\n', (size_t)(end - *p));
    size_t n = nl ? (size_t)(nl - *p) : 0;
    if (!n || n >= PLACE_PATH_MAX || **p != '/' || memchr(*p, 0, n)) {
        return NULL;
    }
    char *s = malloc(n + 1);
    if (s) { /* no strndup: nothing behind `end` may be looked at, and there need be no NUL */
        memcpy(s, *p, n);
        s[n] = 0;
    }
    *p = nl + 1;
    return s;
}

bool place_mark_parse(const char *p, size_t n, int paths, struct place_mark *m)
{
    const char *end = p + n;
    size_t k = sizeof head - 1;
    memset(m, 0, sizeof *m);
    if (n < k + PLACE_ID + 1 || memcmp(p, head, k) != 0 || p[k + PLACE_ID] != '\n') {
        return false;
    }
    memcpy(m->id, p + k, PLACE_ID);
    p += k + PLACE_ID + 1;
    bool good = strspn(m->id, "0123456789abcdef") == PLACE_ID;
    if (good && paths > 0) {
        m->root = path_line(&p, end);
        good = m->root != NULL;
    }
    if (good && paths > 1) {
        m->from = path_line(&p, end);
        good = m->from != NULL;
    }
    good = good && p == end;
    if (!good) {
        place_mark_free(m);
    }
    return good;
}

int place_mark_read(const char *dir, const char *name, struct place_mark *m, struct err *e)
{
    char *path = layout_path("%s/%s", dir, name);
    struct buf b;
    struct err e1 = {0};
    memset(m, 0, sizeof *m);
    buf_init(&b, MARK_MAX);
    int r = path ? file_read_all(path, &b, &e1) : err_set(&e1, ERR_NOMEM, "out of memory");
    if (!r && !place_mark_parse(b.n ? b.p : "", b.n, paths_of(name), m)) {
        r = err_set(&e1, ERR_FORMAT, "%s is damaged, or of a newer version of this program", path);
    }
    if (r && e) {
        *e = e1;
    }
    buf_free(&b);
    free(path);
    return r;
}

int place_mark_write(const char *dir, const char *name, const struct place_mark *m, struct err *e)
{
    char *path = layout_path("%s/%s", dir, name);
    struct buf b;
    buf_init(&b, MARK_MAX);
    int r = path ? buf_addf(&b, "%s%s\n", head, m->id) : ERR_NOMEM;
    if (!r && paths_of(name) > 0) {
        r = buf_addf(&b, "%s\n", m->root);
    }
    if (!r && paths_of(name) > 1) {
        r = buf_addf(&b, "%s\n", m->from);
    }
    r = r ? err_set(e, r, "cannot write %s: %s", path ? path : name, err_text(r))
          : file_write_atomic(path, b.p, b.n, 0600, e);
    buf_free(&b);
    free(path);
    return r;
}

bool place_same(const char *a, const char *b)
{
    struct stat sa, sb;
    return !strcmp(a, b) ||
           (!stat(a, &sa) && !stat(b, &sb) && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino);
}

/* ---- finding ---- */

/* Where `dir` points; ERR_NOTFOUND: nowhere, it lies there itself. */
static int step(const char *dir, char **to, struct err *e)
{
    struct place_mark at, here;
    struct err e1 = {0};
    struct stat sb;
    *to = NULL;
    if (stat(dir, &sb) || !S_ISDIR(sb.st_mode)) {
        return ERR_NOTFOUND; /* whoever opens it has better words */
    }
    int r = place_mark_read(dir, "moved", &at, e);
    if (r) {
        return r;
    }
    r = place_mark_read(at.root, "moved-here", &here, &e1);
    if (r || strcmp(here.id, at.id) != 0) {
        r = err_set(e, ERR_OFFLINE,
                    "the cache %.300s was moved to %.300s, which is not there now: connect its "
                    "volume; who wants to begin anew removes the file \"moved\" in %.300s",
                    dir, at.root, dir);
    } else {
        *to = at.root;
        at.root = NULL;
    }
    place_mark_free(&at);
    place_mark_free(&here);
    return r;
}

int place_follow(const char *dir, struct buf *out, struct err *e)
{
    char *at = strdup(dir);
    int r = at ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    for (int hops = 0; !r; hops++) {
        char *to = NULL;
        struct err e1 = {0};
        r = hops < HOPS_MAX ? step(at, &to, &e1)
                            : err_set(&e1, ERR_FORMAT, "%.300s: the files \"moved\" go round", dir);
        if (r == ERR_NOTFOUND) {
            r = buf_adds(out, at)
                    ? err_set(e, ERR_LIMIT, "the path of the cache folder is too long")
                    : 0;
            break;
        }
        if (r) {
            if (e) {
                *e = e1;
            }
        } else {
            free(at);
            at = to;
        }
    }
    free(at);
    return r;
}

bool place_moved(const char *dir, const struct place_mark *m)
{
    struct place_mark at;
    struct err e;
    int r = place_mark_read(m->root, "moved", &at, &e);
    bool moved = place_same(dir, m->root) ? r == ERR_NOTFOUND : !r && !strcmp(at.id, m->id);
    place_mark_free(&at);
    return moved;
}

/* Does a process hold move.lock? Its words are what it wrote there. */
static int no_mover(const char *dir, struct err *e)
{
    char *p = layout_path("%s/move.lock", dir);
    char words[512] = "another process";
    int fd = p ? open(p, O_RDONLY | O_CLOEXEC) : -1, r = 0;
    if (!p) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    } else if (fd < 0 && errno != ENOENT) {
        r = err_sys(e, errno, "cannot open %s", p);
    } else if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0) {
        ssize_t n = pread(fd, words, sizeof words - 1, 0);
        words[n > 0 ? n : (ssize_t)strlen(words)] = 0;
        r = err_set(e, ERR_BUSY, "the cache %.300s is being moved by %.200s: wait until it is done",
                    dir, words);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(p);
    return r;
}

/* Is this folder, which points nowhere, a whole cache that is at rest? */
static int at_rest(const char *dir, struct err *e)
{
    struct place_mark m;
    struct err e1 = {0};
    struct stat sb;
    if (stat(dir, &sb) || !S_ISDIR(sb.st_mode)) {
        return 0;
    }
    int r = place_mark_read(dir, "moving", &m, &e1);
    if (!r && !place_moved(dir, &m)) {
        r = err_set(
            e, ERR_BUSY,
            "a move of the cache %.150s is not finished: shoal cache move %.150s --cache %.150s "
            "goes on with it",
            m.root, dir, m.root);
        place_mark_free(&m);
        return r;
    }
    place_mark_free(&m);
    if (r && r != ERR_NOTFOUND) {
        if (e) {
            *e = e1;
        }
        return r;
    }
    return no_mover(dir, e);
}

int place_find(const char *dir, struct buf *out, struct err *e)
{
    size_t was = out->n;
    int r = place_follow(dir, out, e);
    return r ? r : at_rest(out->p + was, e);
}

int place_still(const char *dir, struct err *e)
{
    struct buf now;
    buf_init(&now, PLACE_PATH_MAX);
    int r = place_find(dir, &now, e);
    if (!r && strcmp(now.p, dir) != 0) {
        r = err_set(e, ERR_BUSY, "the cache %.200s has just been moved to %.200s: start again", dir,
                    now.p);
    }
    buf_free(&now);
    return r;
}
