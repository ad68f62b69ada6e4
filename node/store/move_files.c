/* SPDX-License-Identifier: MIT
 * move_files.c: see move_files.h. */
#include "node/store/move_files.h"

#include "node/store/at_rest.h"
#include "node/store/catalog.h"
#include "node/store/layout.h"
#include "node/store/uncached.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 8
#define BLOCK 4096u /* a file takes whole ones */
#define MTIME_S 2   /* what the coarsest of file systems (FAT) makes of a time */
#define TRIES 2     /* a disk that fails once may not the next time */

/* What is brought over; the catalog is for itself, marks and locks are made anew. */
static const char *const brought[] = {"models", "origins", "revisions",
                                      "states", "budget",  "adopted"};
static const char *const others[] = {"lock", "move.lock", "moved-here", "CACHEDIR.TAG",
                                     ".metadata_never_index"};
static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static bool ends(const char *s, const char *with)
{
    size_t n = strlen(s), k = strlen(with);
    return n >= k && !strcmp(s + n - k, with);
}

/* NAME, or what a write of it that was cut off has left. */
static bool is_name(const char *s, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(s, name, n) &&
           (!s[n] || !strcmp(s + n, MOVE_PART) || !strncmp(s + n, ".tmp", 4));
}

bool move_own_name(const char *name)
{
    for (size_t i = 0; i < sizeof brought / sizeof *brought; i++) {
        if (is_name(name, brought[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (is_name(name, others[i])) {
            return true;
        }
    }
    return begins(name, MOVE_CATALOG) || begins(name, "moved.tmp") || begins(name, "moving.tmp");
}

/* ---- what is known of the objects ---- */

static int by_rel(const void *a, const void *b)
{
    return strcmp(((const struct move_known *)a)->rel, ((const struct move_known *)b)->rel);
}

static const struct digest *known(const struct move *m, const char *rel)
{
    struct move_known key = {(char *)(uintptr_t)rel, NULL};
    const struct move_known *k =
        m->n_known ? bsearch(&key, m->known, m->n_known, sizeof key, by_rel) : NULL;
    return k ? k->d : NULL;
}

struct loading {
    struct move *m;
    const struct rest_model *x;
    char *dir; /* "models/..." */
    size_t cap;
};

static int take(void *ctx, uint32_t id, struct digest *d, uint64_t last_use)
{
    struct loading *l = ctx;
    (void)last_use;
    if (id >= model_object_count(l->x->m) || d->size != model_object(l->x->m, id)->size ||
        l->m->n_known == l->cap) {
        free(d);
        return 0;
    }
    char *rel = layout_object(l->dir, l->x->m, id);
    if (!rel) {
        free(d);
        return ERR_NOMEM;
    }
    l->m->known[l->m->n_known++] = (struct move_known){rel, d};
    return 0;
}

int move_know(struct move *m, struct err *e)
{
    struct rest_models l = {0};
    struct catalog *cat = NULL;
    struct loading ld = {.m = m};
    int r = rest_models(m->from, &l, e);
    for (size_t i = 0; i < l.n && !r; i++) {
        ld.cap += l.v[i].m ? model_object_count(l.v[i].m) : 0;
    }
    m->known = calloc(ld.cap ? ld.cap : 1, sizeof *m->known);
    if (!r && !m->known) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    if (!r && ld.cap) {
        r = catalog_open(m->from, m->o->note, m->o->ctx, &cat, e);
    }
    for (size_t i = 0; i < l.n && !r; i++) {
        int64_t no;
        uint64_t bad = 0;
        ld.x = &l.v[i];
        ld.dir = ld.x->m ? layout_path("models/%s", ld.x->folder) : NULL;
        if (ld.dir) {
            r = catalog_model(cat, ld.x->root, &no, e);
            r = r ? r : catalog_load(cat, no, take, &ld, &bad, e);
        }
        free(ld.dir);
    }
    catalog_close(cat);
    rest_models_free(&l);
    if (!r && m->n_known) {
        qsort(m->known, m->n_known, sizeof *m->known, by_rel);
    }
    return r;
}

void move_free(struct move *m)
{
    for (size_t i = 0; i < m->n_known; i++) {
        free(m->known[i].rel);
        free(m->known[i].d);
    }
    free(m->known);
    free(m->chunk);
    free(m->root);
    free(m->from);
    free(m->to);
}

/* ---- trees ---- */

struct walk {
    struct move *m;
    const char *base;
    int (*file)(struct move *m, const char *rel, const struct stat *sb, struct err *e);
    int (*left)(struct move *m, const char *rel, struct err *e); /* a folder; may be NULL */
};

/* Damaged files that were set aside stay behind. */
static bool stays(const char *rel)
{
    return begins(rel, "models/") && ends(rel, "/quarantine");
}

static int walk(const struct walk *w, const char *rel, int depth, struct err *e);

static int entry(const struct walk *w, const char *rel, int depth, struct err *e)
{
    struct stat sb;
    char *p = layout_path("%s/%s", w->base, rel);
    int r = 0;
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (lstat(p, &sb)) {
        r = errno == ENOENT ? 0 : err_sys(e, errno, "cannot look at %s", p);
    } else if (S_ISDIR(sb.st_mode)) {
        r = depth        ? walk(w, rel, depth - 1, e)
            : stays(rel) ? 0
                         : err_set(e, ERR_LIMIT, "%s: folders are too deep for a cache", p);
    } else if (S_ISREG(sb.st_mode)) {
        r = w->file(w->m, rel, &sb, e);
    } else {
        r = err_set(e, ERR_UNSUPPORTED,
                    "%s is a symbolic link, or no plain file: a cache that was laid out by hand "
                    "has to be moved by hand",
                    p);
    }
    free(p);
    return r;
}

static int walk(const struct walk *w, const char *rel, int depth, struct err *e)
{
    char *p = layout_path("%s/%s", w->base, rel);
    DIR *d = p && !stays(rel) ? opendir(p) : NULL;
    struct dirent *x;
    int r = 0;
    if (!p) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    } else if (!d && !stays(rel)) {
        r = errno == ENOENT ? 0 : err_sys(e, errno, "cannot open the folder %s", p);
    }
    while (d && !r) {
        errno = 0;
        x = readdir(d);
        if (!x) {
            r = errno ? err_sys(e, errno, "cannot read the folder %s", p) : 0;
            break;
        }
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0) {
            char *below = layout_path("%s/%s", rel, x->d_name);
            r = below ? entry(w, below, depth, e) : err_set(e, ERR_NOMEM, "out of memory");
            free(below);
        }
    }
    if (d) {
        closedir(d);
        r = r || !w->left ? r : w->left(w->m, rel, e);
    }
    free(p);
    return r;
}

static int walk_all(struct walk *w, struct err *e)
{
    int r = 0;
    for (size_t i = 0; i < sizeof brought / sizeof *brought && !r; i++) {
        r = entry(w, brought[i], DEPTH_MAX, e);
    }
    return r;
}

/* ---- of an earlier call ---- */

static int sweep_one(struct move *m, const char *rel, const struct stat *sb, struct err *e)
{
    struct stat st;
    char *from = layout_path("%s/%s", m->from, rel), *to = layout_path("%s/%s", m->to, rel);
    int r = from && to ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    (void)sb;
    if (!r && lstat(from, &st) && errno == ENOENT && unlink(to) && errno != ENOENT) {
        r = err_sys(e, errno, "cannot remove %s", to);
    }
    free(from);
    free(to);
    return r;
}

int move_sweep(struct move *m, struct err *e)
{
    struct walk w = {m, m->to, sweep_one, NULL};
    return walk_all(&w, e);
}

/* Files that are written once and have come over whole need not come again. */
static bool once(const char *rel)
{
    return begins(rel, "states/") ||
           (begins(rel, "models/") && (strstr(rel, "/experts/") || strstr(rel, "/spine/")));
}

static bool there(const char *rel, const struct stat *sb, const char *to)
{
    struct stat st;
    if (lstat(to, &st) || !S_ISREG(st.st_mode)) {
        return false;
    }
    int64_t by = (int64_t)st.st_mtime - (int64_t)sb->st_mtime;
    return (st.st_dev == sb->st_dev && st.st_ino == sb->st_ino) ||
           (once(rel) && st.st_size == sb->st_size && by >= -MTIME_S && by <= MTIME_S);
}

static int count_one(struct move *m, const char *rel, const struct stat *sb, struct err *e)
{
    char *to = layout_path("%s/%s", m->to, rel);
    if (!to) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (!m->links && !there(rel, sb, to)) {
        m->total += (uint64_t)sb->st_size;
        m->need += ((uint64_t)sb->st_size + BLOCK - 1) / BLOCK * BLOCK + BLOCK;
    }
    free(to);
    return 0;
}

int move_count(struct move *m, uint64_t *need, struct err *e)
{
    struct walk w = {m, m->from, count_one, NULL};
    struct stat sb;
    char *cat = layout_path("%s/" MOVE_CATALOG, m->from);
    m->total = m->need = 0;
    int r = cat ? walk_all(&w, e) : err_set(e, ERR_NOMEM, "out of memory");
    *need = m->need + (cat && !stat(cat, &sb) ? (uint64_t)sb.st_size : 0) + 64 * BLOCK;
    free(cat);
    return r;
}

/* ---- one file ---- */

static void note(struct move *m, const char *rel, const char *why)
{
    char line[1200];
    snprintf(line, sizeof line, "%.500s stays behind: %.600s", rel, why);
    if (m->o->note) {
        m->o->note(m->o->ctx, line);
    }
}

static int stop(struct move *m, uint64_t by, struct err *e)
{
    m->done += by;
    return m->o->progress && m->o->progress(m->o->ctx, m->done, m->total)
               ? err_set(e, ERR_CANCELLED,
                         "stopped: the cache is where it was; the same command goes on")
               : 0;
}

/* `to`, an open new file, gets the bytes of `from`; each chunk's checksum into sums[]. *bad: `from`
 * cannot be read, or is not what is on record. */
static int copy(struct move *m, int from, int to, const char *name, uint64_t size,
                const struct digest *d, uint64_t *sums, bool *bad, struct err *e)
{
    uint32_t n = chunk_count(size);
    int r = 0;
    *bad = d && d->size != size;
    if (*bad) {
        return err_set(e, ERR_DIGEST, "it has %llu bytes, and %llu are on record",
                       (unsigned long long)size, (unsigned long long)d->size);
    }
    for (uint32_t i = 0; i < n && !r; i++) {
        size_t k = chunk_len(size, i);
        r = file_pread(from, name, m->chunk, k, (uint64_t)i * CHUNK_SIZE, e);
        sums[i] = r ? 0 : chunk_xxh(m->chunk, k);
        if (!r && d && d->xxh[i] != sums[i]) {
            r = err_set(e, ERR_DIGEST, "chunk %u of it is damaged", i);
        }
        *bad = r != 0;
        r = r ? r : file_pwrite(to, name, m->chunk, k, (uint64_t)i * CHUNK_SIZE, e);
        r = r ? r : stop(m, k, e);
    }
    return r;
}

/* Down to the disk, and read from there again. */
static int compare(struct move *m, int fd, const char *name, uint64_t size, const uint64_t *sums,
                   struct err *e)
{
    uint32_t n = chunk_count(size);
    int r = file_sync(fd, name, e);
    uncached_forget(fd);
    for (uint32_t i = 0; i < n && !r; i++) {
        size_t k = chunk_len(size, i);
        r = file_pread(fd, name, m->chunk, k, (uint64_t)i * CHUNK_SIZE, e);
        if (!r && chunk_xxh(m->chunk, k) != sums[i]) {
            r = err_set(e, ERR_DIGEST,
                        "%s reads back with other bytes than were written: its disk is not to be "
                        "trusted; the cache stays where it was",
                        name);
        }
    }
    return r;
}

static int copy_file(struct move *m, const char *rel, const char *from, const char *to,
                     const struct stat *sb, bool *bad, struct err *e)
{
    char *tmp = layout_path("%s" MOVE_PART, to);
    uint64_t size = (uint64_t)sb->st_size;
    uint64_t *sums = calloc(chunk_count(size) + 1, sizeof *sums);
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), out = -1, r = 0;
    *bad = in < 0;
    if (!tmp || !sums) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    } else if (in < 0) {
        r = err_sys(e, errno, "cannot open it");
    } else if ((out = open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) < 0) {
        r = err_sys(e, errno, "cannot create %s", tmp);
    }
    r = r ? r : copy(m, in, out, tmp, size, known(m, rel), sums, bad, e);
    if (!r) {
        struct timespec t[2] = {{.tv_sec = sb->st_mtime}, {.tv_sec = sb->st_mtime}};
        (void)fchmod(out, sb->st_mode & 0777); /* a volume may know neither modes nor times */
        (void)futimens(out, t);
        r = compare(m, out, tmp, size, sums, e);
    }
    if (out >= 0) {
        close(out);
    }
    if (!r && rename(tmp, to)) {
        r = err_sys(e, errno, "cannot rename %s", tmp);
    }
    if (r && out >= 0) {
        unlink(tmp);
    }
    if (in >= 0) {
        close(in);
    }
    m->out->copied_bytes += r ? 0 : size;
    free(sums);
    free(tmp);
    return r;
}

static int make_folder(const char *file, struct err *e)
{
    char *dir = strdup(file);
    int r = dir ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    if (!r) {
        *strrchr(dir, '/') = 0;
        r = file_mkdirs(dir, e);
    }
    free(dir);
    return r;
}

static int bring_to(struct move *m, const char *rel, const struct stat *sb, const char *from,
                    const char *to, bool *bad, struct err *e)
{
    struct stat st;
    *bad = false;
    if (there(rel, sb, to)) {
        return 0;
    }
    bool is = !lstat(to, &st);
    if (is && !m->out->resumed) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: another file has come there under this name: the new volume does not "
                       "tell capital letters from small ones",
                       to);
    }
    int r = make_folder(to, e);
    if (!r && m->links) {
        if (is && unlink(to)) {
            return err_sys(e, errno, "cannot replace %s", to);
        }
        if (!link(from, to)) {
            return 0;
        }
    }
    for (int i = 0; i < TRIES && !r; i++) {
        r = copy_file(m, rel, from, to, sb, bad, e);
        if (!r || !*bad || i + 1 == TRIES) {
            break;
        }
        r = 0;
    }
    return r;
}

static int bring_one(struct move *m, const char *rel, const struct stat *sb, struct err *e)
{
    struct err e1 = {0};
    bool bad = false;
    char *from = layout_path("%s/%s", m->from, rel), *to = layout_path("%s/%s", m->to, rel);
    int r = from && to ? bring_to(m, rel, sb, from, to, &bad, &e1)
                       : err_set(&e1, ERR_NOMEM, "out of memory");
    if (!r) {
        m->out->files++;
        m->out->bytes += (uint64_t)sb->st_size;
        r = stop(m, 0, &e1);
    } else if (bad && once(rel)) { /* it would be fetched again, here as there */
        note(m, rel, e1.msg);
        m->out->left_out++;
        r = unlink(to) && errno != ENOENT ? err_sys(&e1, errno, "cannot remove %s", to) : 0;
    } else if (bad) {
        err_prefix(&e1, "%s", from);
    }
    if (r && e) {
        *e = e1;
    }
    free(from);
    free(to);
    return r;
}

static int folder_left(struct move *m, const char *rel, struct err *e)
{
    struct stat sb;
    char *to = layout_path("%s/%s", m->to, rel), *in = layout_path("%s/%s/x", m->to, rel);
    int r = to && in ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    if (!r && !stat(to, &sb)) {
        r = file_sync_dir_of(in, e);
    }
    free(to);
    free(in);
    return r;
}

int move_bring(struct move *m, struct err *e)
{
    struct walk w = {m, m->from, bring_one, folder_left};
    m->done = 0;
    m->chunk = m->chunk ? m->chunk : malloc(CHUNK_SIZE);
    int r = m->chunk ? walk_all(&w, e) : err_set(e, ERR_NOMEM, "out of memory");
    return r ? r : move_catalog(m, e);
}

/* ---- removing ---- */

static int remove_tree(const char *path, int depth, struct err *e)
{
    struct stat sb;
    int r = 0;
    if (lstat(path, &sb)) {
        return errno == ENOENT ? 0 : err_sys(e, errno, "cannot look at %s", path);
    }
    if (!S_ISDIR(sb.st_mode)) {
        return unlink(path) && errno != ENOENT ? err_sys(e, errno, "cannot remove %s", path) : 0;
    }
    DIR *d = opendir(path);
    struct dirent *x;
    if (!d) {
        return err_sys(e, errno, "cannot open the folder %s", path);
    }
    while (!r && depth && (x = readdir(d))) {
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0) {
            char *p = layout_path("%s/%s", path, x->d_name);
            r = p ? remove_tree(p, depth - 1, e) : err_set(e, ERR_NOMEM, "out of memory");
            free(p);
        }
    }
    closedir(d);
    return !r && rmdir(path) && errno != ENOENT ? err_sys(e, errno, "cannot remove %s", path) : r;
}

int move_remove(const char *dir, struct err *e)
{
    DIR *d = opendir(dir);
    struct dirent *x;
    int r = 0;
    if (!d) {
        return errno == ENOENT ? 0 : err_sys(e, errno, "cannot open the folder %s", dir);
    }
    while (!r && (x = readdir(d))) {
        if (move_own_name(x->d_name)) {
            char *p = layout_path("%s/%s", dir, x->d_name);
            r = p ? remove_tree(p, DEPTH_MAX + 2, e) : err_set(e, ERR_NOMEM, "out of memory");
            free(p);
        }
    }
    closedir(d);
    return r;
}
