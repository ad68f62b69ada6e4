/* SPDX-License-Identifier: MIT
 * rest_move.c: see rest_move.h: where to, who is in the way, and the order that survives an end at
 * any point:
 *
 *   1. `moving` into the new folder;       2. all files, compared and synced; `moved-here`;
 *   3. the switch: `moved`, by one rename; 4. the old files go; then `moving`.
 *
 * The switch is in the folder that the cache is named by (`root`), which after an earlier move is
 * not the one where its files are (`from`). Back there the switch is that `moved` goes. */
#include "node/store/rest_move.h"

#include "node/store/adopt_list.h"
#include "node/store/layout.h"
#include "node/store/move_files.h"
#include "node/store/nobackup.h"
#include "node/store/rest_room.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"
#include "proto/base/sha256.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define LOCK_TRIES 40 /* whoever looks at the lock has it for a moment */
#define LOCK_US 50000
#define LINK_TRIED "moving.tmp0" /* a second name, to see whether there can be one */

static int no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "out of memory");
}

/* ---- where from ---- */

/* `named` and what it points to, as absolute paths. */
static int find_from(struct move *m, struct err *e)
{
    struct stat sb;
    struct buf at;
    buf_init(&at, PLACE_PATH_MAX);
    if (lstat(m->o->cache, &sb)) {
        return err_sys(e, errno, "there is no cache at %s", m->o->cache);
    }
    if (S_ISLNK(sb.st_mode)) {
        return err_set(e, ERR_ARG,
                       "%.250s is a symbolic link: name the folder it leads to (--cache), and set "
                       "the link anew afterwards",
                       m->o->cache);
    }
    m->root = realpath(m->o->cache, NULL);
    int r = m->root ? place_follow(m->root, &at, e)
                    : err_sys(e, errno, "there is no cache at %s", m->o->cache);
    if (!r) {
        m->from = realpath(at.p, NULL);
        r = m->from ? 0 : err_sys(e, errno, "there is no cache at %s", at.p);
    }
    buf_free(&at);
    return r;
}

/* Nobody begins to use it from here on. *fd is the lock. */
static int lock_from(struct move *m, int *fd, struct err *e)
{
    char *p = layout_path("%s/move.lock", m->from), words[400];
    int r = p ? 0 : no_memory(e);
    *fd = r ? -1 : open(p, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (!r && *fd < 0) {
        r = err_sys(e, errno, "cannot open %s", p);
    }
    for (int i = 0; !r && flock(*fd, LOCK_EX | LOCK_NB); i++) {
        if (i == LOCK_TRIES) {
            ssize_t n = pread(*fd, words, sizeof words - 1, 0);
            words[n > 0 ? n : 0] = 0;
            r = err_set(e, ERR_BUSY, "the cache %.200s is being moved already by %.200s", m->from,
                        words);
        } else {
            usleep(LOCK_US);
        }
    }
    if (!r) { /* the words are a courtesy: the volume may be full */
        int n = snprintf(words, sizeof words, "process %ld, to %.300s", (long)getpid(), m->o->to);
        bool told = !ftruncate(*fd, 0) && pwrite(*fd, words, (size_t)n, 0) == n;
        (void)told;
    }
    free(p);
    return r;
}

/* Who has a model open holds its lock; who opens one now meets ours (place_still). */
static int not_used(struct move *m, struct err *e)
{
    int lock = layout_lock(m->from, e), r = lock < 0 ? ERR_IO : 0;
    char *models = layout_path("%s/models", m->from);
    DIR *d = r || !models ? NULL : opendir(models);
    struct dirent *x;
    while (d && !r && (x = readdir(d))) {
        long pid = 0;
        char *p = x->d_name[0] == '.' ? NULL : layout_path("%s/%s", models, x->d_name);
        if (p && rest_in_use(p, &pid)) {
            r = err_set(e, ERR_BUSY,
                        "process %ld uses this cache (model %.20s): end it first (shoal up and "
                        "shoal serve end by Control-C, or kill %ld), then say this again",
                        pid, x->d_name, pid);
        }
        free(p);
    }
    if (d) {
        closedir(d);
    }
    free(models);
    layout_unlock(lock);
    return r;
}

/* ---- where to ---- */

/* Is `dir`, or the part of its path that exists, `of` or below it? By the folders themselves, since
 * one may have several names (links, capital letters). */
static bool inside(const char *dir, const char *of)
{
    char *p = strdup(dir);
    char *real = NULL;
    while (p && !(real = realpath(p, NULL))) {
        char *slash = strrchr(p, '/');
        if (!slash) {
            real = realpath(".", NULL);
            break;
        }
        slash[slash == p] = 0;
    }
    bool hit = false;
    while (real && !(hit = place_same(real, of)) && real[1]) {
        char *slash = strrchr(real, '/');
        slash[slash == real] = 0;
    }
    free(real);
    free(p);
    return hit;
}

static int outside(struct move *m, const char *to, struct err *e)
{
    struct adopt_list l = {.n = 0};
    if (inside(to, m->from) || (!place_same(to, m->root) && inside(to, m->root))) {
        return err_set(e, ERR_ARG, "%.250s is a part of the cache itself: name a folder outside",
                       to);
    }
    int r = adopt_list_read(m->from, &l, e);
    for (size_t i = 0; i < l.n && !r; i++) {
        if (inside(to, l.path[i])) {
            r = err_set(e, ERR_ARG,
                        "%.200s is in the adopted folder %.200s, where nothing is ever written", to,
                        l.path[i]);
        }
    }
    adopt_list_free(&l);
    return r;
}

/* What an empty volume has by itself. */
static bool of_volume(const char *name)
{
    static const char *const names[] = {
        "lost+found", ".DS_Store",       ".Spotlight-V100",        ".fseventsd",
        ".Trashes",   ".TemporaryItems", ".DocumentRevisions-V100"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(name, names[i])) {
            return true;
        }
    }
    return false;
}

/* Does `moved` in `to` lead to where the files are now? Then it was a cache of before. */
static bool leads_here(const struct move *m)
{
    struct place_mark at;
    struct err e;
    bool here = !place_mark_read(m->to, "moved", &at, &e) && place_same(at.root, m->from);
    place_mark_free(&at);
    return here;
}

static int empty(struct move *m, struct err *e)
{
    bool before = leads_here(m);
    DIR *d = opendir(m->to);
    struct dirent *x;
    int r = d ? 0 : err_sys(e, errno, "cannot open the folder %s", m->to);
    while (!r && (x = readdir(d))) {
        const char *s = x->d_name;
        bool mark = before && (!strcmp(s, "moved") || !strcmp(s, "lock") ||
                               !strcmp(s, "move.lock") || !strcmp(s, "moved-here"));
        if (!strcmp(s, ".") || !strcmp(s, "..") || of_volume(s) || mark ||
            !strncmp(s, "moving.tmp", 10) || !strcmp(s, "CACHEDIR.TAG") ||
            !strcmp(s, ".metadata_never_index")) {
            continue;
        }
        r = !strcmp(s, "models") || !strcmp(s, "catalog.sqlite") || !strcmp(s, "moved")
                ? err_set(e, ERR_ARG,
                          "%.250s is another cache already: name a new or an empty folder", m->to)
                : err_set(e, ERR_ARG,
                          "there is something else in %.250s (%.100s): name a new or an empty "
                          "folder",
                          m->to, s);
    }
    if (d) {
        closedir(d);
    }
    return r;
}

static void make_id(struct move *m)
{
    struct timespec t = {0};
    uint8_t d[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1];
    clock_gettime(CLOCK_REALTIME, &t);
    struct {
        uint64_t s, ns, mono, pid;
    } seed = {(uint64_t)t.tv_sec, (uint64_t)t.tv_nsec, clock_ns(), (uint64_t)getpid()};
    sha256(&seed, sizeof seed, d);
    sha256_hex(d, hex);
    memcpy(m->id, hex, PLACE_ID);
}

/* A new folder, or the one of an earlier call. */
static int find_to(struct move *m, struct err *e)
{
    struct place_mark k;
    struct err e1 = {0};
    int r = file_mkdirs(m->o->to, e);
    m->to = r ? NULL : realpath(m->o->to, NULL);
    if (!r && !m->to) {
        r = err_sys(e, errno, "cannot use the folder %s", m->o->to);
    }
    if (r) {
        return r;
    }
    if (strlen(m->to) + 1 >= PLACE_PATH_MAX || strchr(m->to, '\n') || strchr(m->from, '\n') ||
        strchr(m->root, '\n')) {
        return err_set(e, ERR_ARG, "the name of %.250s is too long, or has a line break", m->to);
    }
    r = place_mark_read(m->to, "moving", &k, &e1);
    if (!r && place_same(k.root, m->root) && place_same(k.from, m->from)) {
        memcpy(m->id, k.id, sizeof m->id);
        m->out->resumed = true;
    } else if (!r) {
        r = err_set(e, ERR_ARG,
                    "a move of the cache %.200s into %.200s was begun: end that one, or remove the "
                    "folder",
                    k.root, m->to);
    } else if (r == ERR_NOTFOUND) {
        make_id(m);
        r = empty(m, e);
    } else if (e) {
        *e = e1;
    }
    place_mark_free(&k);
    return r;
}

/* A second name for a file of `from` in `to`: then bytes need not be copied. */
static bool can_link(struct move *m)
{
    char *a = layout_path("%s/move.lock", m->from), *b = layout_path("%s/" LINK_TRIED, m->to);
    bool can = a && b && !m->o->copy && (!unlink(b) || errno == ENOENT) && !link(a, b);
    if (can) {
        unlink(b);
    }
    free(a);
    free(b);
    return can;
}

static int room(struct move *m, struct err *e)
{
    struct statvfs v;
    uint64_t need;
    int r = move_count(m, &need, e);
    if (!r && !statvfs(m->to, &v)) {
        uint64_t left = (uint64_t)v.f_bavail * v.f_frsize;
        if (left < need) {
            r = err_set(e, ERR_FULL,
                        "the volume of %.200s has no room for the cache: %.3f GB are needed and "
                        "%.3f GB are free, %.3f GB lack",
                        m->to, (double)need * 1e-9, (double)left * 1e-9,
                        (double)(need - left) * 1e-9);
        }
    }
    return r;
}

/* ---- the switch ---- */

static int unlink_in(const char *dir, const char *name, struct err *e)
{
    char *p = layout_path("%s/%s", dir, name);
    int r = !p                             ? no_memory(e)
            : unlink(p) && errno != ENOENT ? err_sys(e, errno, "cannot remove %s", p)
                                           : file_sync_dir_of(p, e);
    free(p);
    return r;
}

/* A cache on a full disk is what is moved most often: one expert makes room for the mark, as if it
 * had been evicted. */
static bool make_room(struct move *m)
{
    for (size_t i = 0; i < m->n_known; i++) {
        char *p = strstr(m->known[i].rel, "/experts/")
                      ? layout_path("%s/%s", m->from, m->known[i].rel)
                      : NULL;
        bool gone = p && !unlink(p);
        free(p);
        if (gone) {
            return true;
        }
    }
    return false;
}

static int make_switch(struct move *m, struct err *e)
{
    struct place_mark k = {.root = m->to};
    memcpy(k.id, m->id, sizeof k.id);
    if (place_same(m->root, m->to)) {
        return unlink_in(m->root, "moved", e);
    }
    int r = place_mark_write(m->root, "moved", &k, e);
    if (r == ERR_FULL && place_same(m->root, m->from) && make_room(m)) {
        r = place_mark_write(m->root, "moved", &k, e);
    }
    return r;
}

/* Behind the switch: `from` is empty but for the mark that leads away from it. */
static int leave(struct move *m, struct err *e)
{
    struct place_mark k = {.root = m->to}, made = {.root = m->root};
    struct stat sb;
    int r = 0;
    memcpy(k.id, m->id, sizeof k.id);
    memcpy(made.id, m->id, sizeof made.id);
    if (!place_moved(m->to, &made) || place_same(m->from, m->to)) {
        return err_set(e, ERR_IO, "the cache %.200s does not lead to %.200s: nothing is removed",
                       m->root, m->to);
    }
    if (!stat(m->from, &sb)) {
        r = place_same(m->root, m->from) ? 0 : place_mark_write(m->from, "moved", &k, e);
        r = r ? r : move_remove(m->from, e);
    }
    r = r ? r : unlink_in(m->to, LINK_TRIED, e);
    r = r ? r : unlink_in(m->to, "moving", e);
    if (r) {
        err_prefix(e,
                   "the cache is in %.150s now, but not all old files are gone (the same "
                   "command goes on)",
                   m->to);
    }
    return r;
}

/* An earlier call came as far as the switch. */
static int end_earlier(struct move *m, struct err *e)
{
    struct place_mark k;
    struct err e1 = {0};
    int r = place_mark_read(m->from, "moving", &k, &e1);
    if (r == ERR_NOTFOUND) {
        return 0;
    }
    if (!r && !place_moved(m->from, &k)) {
        r = err_set(&e1, ERR_BUSY,
                    "a move of the cache %.150s into %.150s is not finished: shoal cache move "
                    "%.150s --cache %.150s goes on with it",
                    k.root, m->from, m->from, k.root);
    } else if (!r) {
        struct move before = {.o = m->o, .root = k.root, .from = k.from, .to = m->from};
        memcpy(before.id, k.id, sizeof before.id);
        m->out->resumed = true;
        r = leave(&before, &e1);
    }
    place_mark_free(&k);
    if (r && e) {
        *e = e1;
    }
    return r;
}

/* ---- all of it ---- */

static int bring(struct move *m, struct err *e)
{
    struct place_mark k = {.root = m->root, .from = m->from};
    memcpy(k.id, m->id, sizeof k.id);
    m->links = can_link(m);
    int r = m->out->resumed ? move_sweep(m, e) : 0;
    r = r ? r : room(m, e);
    if (!r && !m->out->resumed) {
        r = place_mark_write(m->to, "moving", &k, e);
    }
    if (!r && !place_same(m->root, m->to)) { /* of a move away from there, long ago */
        r = unlink_in(m->to, "moved", e);
    }
    if (!r) {
        nobackup_mark(m->to);
        r = move_know(m, e);
    }
    r = r ? r : move_bring(m, e);
    struct place_mark here = {.root = NULL};
    memcpy(here.id, m->id, sizeof here.id);
    r = r ? r : place_mark_write(m->to, "moved-here", &here, e);
    r = r ? r : make_switch(m, e);
    return r ? r : leave(m, e);
}

static int move(struct move *m, struct err *e)
{
    struct stat sb;
    int fd = -1, r = find_from(m, e);
    snprintf(m->out->from, sizeof m->out->from, "%s", m->from ? m->from : "");
    r = r ? r : lock_from(m, &fd, e);
    r = r ? r : not_used(m, e);
    r = r ? r : end_earlier(m, e);
    bool was = !stat(m->o->to, &sb);
    if (!r && place_same(m->o->to, m->from)) {
        snprintf(m->out->to, sizeof m->out->to, "%s", m->from);
        r = m->out->resumed ? 0 : err_set(e, ERR_ARG, "the cache lies in %.300s already", m->from);
    } else if (!r) {
        m->out->resumed = false;
        r = outside(m, m->o->to, e);
        r = r ? r : find_to(m, e);
        r = r ? r : outside(m, m->to, e); /* by its own name now */
        r = r ? r : bring(m, e);
        snprintf(m->out->to, sizeof m->out->to, "%s", m->to ? m->to : "");
        if (r && !was && m->to) {
            rmdir(m->to); /* where nothing has begun */
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return r;
}

int rest_move(const struct rest_move *o, struct rest_moved *out, struct err *e)
{
    struct move m = {.o = o, .out = out};
    memset(out, 0, sizeof *out);
    if (!o->cache || !*o->cache || !o->to || !*o->to) {
        return err_set(e, ERR_ARG, "name the cache and the new folder");
    }
    int r = move(&m, e);
    move_free(&m);
    return r;
}
