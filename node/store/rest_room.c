/* SPDX-License-Identifier: MIT
 * rest_room.c: see rest_room.h. */
#include "node/store/rest_room.h"

#include "node/store/catalog_inner.h"
#include "node/store/kept.h"
#include "node/store/layout.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 6

/* ---- is it open? ---- */

/* Each process that has a model open holds the lock of its folder in tmp/ (session.h). */
bool rest_in_use(const char *model_dir, long *pid)
{
    char *tmp = layout_path("%s/tmp", model_dir);
    DIR *d = tmp ? opendir(tmp) : NULL;
    struct dirent *x;
    bool used = false;
    while (d && !used && (x = readdir(d))) {
        char *p = x->d_name[0] == '.' ? NULL : layout_path("%s/%s/lock", tmp, x->d_name);
        int fd = p ? open(p, O_RDWR | O_CLOEXEC) : -1;
        if (fd >= 0) {
            used = flock(fd, LOCK_EX | LOCK_NB) != 0;
            close(fd);
            if (used && pid) {
                *pid = strncmp(x->d_name, "s-", 2) ? 0 : strtol(x->d_name + 2, NULL, 10);
            }
        }
        free(p);
    }
    if (d) {
        closedir(d);
    }
    free(tmp);
    return used;
}

/* ---- the catalog, beside whoever uses it ---- */

static sqlite3 *open_catalog(const char *cache_dir)
{
    char *p = layout_path("%s/catalog.sqlite", cache_dir);
    sqlite3 *db = NULL;
    if (p && sqlite3_open_v2(p, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_PRIVATECACHE, NULL)) {
        sqlite3_close(db);
        db = NULL;
    }
    if (db) {
        sqlite3_busy_timeout(db, 20000);
    }
    free(p);
    return db;
}

/* use[id] of the model's objects, as far as the catalog can be read; the newest of all. */
static uint64_t last_uses(const char *cache_dir, const char *root, uint64_t *use, uint32_t n)
{
    sqlite3 *db = layout_state(cache_dir, NULL) ? catalog_copy(cache_dir) : open_catalog(cache_dir);
    sqlite3_stmt *s = NULL;
    uint64_t newest = 0;
    if (db && !sqlite3_prepare_v2(db,
                                  "SELECT id, last_use FROM objects WHERE model="
                                  "(SELECT no FROM models WHERE root=?)",
                                  -1, &s, NULL)) {
        sqlite3_bind_text(s, 1, root, -1, SQLITE_STATIC);
        while (sqlite3_step(s) == SQLITE_ROW) {
            sqlite3_int64 id = sqlite3_column_int64(s, 0), t = sqlite3_column_int64(s, 1);
            if (t > 0 && (uint64_t)t > newest) {
                newest = (uint64_t)t;
            }
            if (use && id >= 0 && id < n && t > 0) {
                use[id] = (uint64_t)t;
            }
        }
    }
    sqlite3_finalize(s);
    sqlite3_close(db);
    return newest;
}

static int forget_rows(const char *cache_dir, const char *root, struct err *e)
{
    static const char *const sql[] = {
        "DELETE FROM objects WHERE model=(SELECT no FROM models WHERE root=?)",
        "DELETE FROM statements WHERE model=(SELECT no FROM models WHERE root=?)",
        "DELETE FROM looked WHERE model=(SELECT no FROM models WHERE root=?)",
        "DELETE FROM models WHERE root=?"};
    sqlite3 *db = open_catalog(cache_dir);
    int r = 0;
    for (size_t i = 0; db && i < sizeof sql / sizeof *sql && !r; i++) {
        sqlite3_stmt *s = NULL;
        if (sqlite3_prepare_v2(db, sql[i], -1, &s, NULL)) {
            continue; /* an older schema has no such table */
        }
        sqlite3_bind_text(s, 1, root, -1, SQLITE_STATIC);
        if (sqlite3_step(s) != SQLITE_DONE) {
            r = err_set(e, ERR_IO, "the catalog of %s cannot be changed: %s", cache_dir,
                        sqlite3_errmsg(db));
        }
        sqlite3_finalize(s);
    }
    sqlite3_close(db);
    return r;
}

/* ---- files ---- */

/* Calls `each` for every plain file below; stops when it returns nonzero. */
static int walk(const char *dir, int depth,
                int (*each)(void *ctx, const char *path, const struct stat *sb), void *ctx)
{
    DIR *d = opendir(dir);
    struct dirent *x;
    int r = 0;
    while (d && !r && (x = readdir(d))) {
        struct stat sb;
        bool dots = !strcmp(x->d_name, ".") || !strcmp(x->d_name, "..");
        char *p = dots ? NULL : layout_path("%s/%s", dir, x->d_name);
        if (p && !lstat(p, &sb)) {
            r = S_ISDIR(sb.st_mode) ? (depth ? walk(p, depth - 1, each, ctx) : 0)
                                    : each(ctx, p, &sb);
        }
        free(p);
    }
    if (d) {
        closedir(d);
    }
    return r;
}

/* ".../experts/LLL/EEE.mxfp4" */
static bool expert_of(const char *path, uint32_t *layer, uint32_t *expert)
{
    const char *at = strstr(path, "/experts/"), *next;
    while (at && (next = strstr(at + 1, "/experts/"))) {
        at = next;
    }
    unsigned l, x;
    int end = 0;
    if (!at || sscanf(at, "/experts/%4u/%4u.mxfp4%n", &l, &x, &end) != 2 || !end || at[end]) {
        return false;
    }
    *layer = l;
    *expert = x;
    return true;
}

struct counting {
    struct rest_count *c;
    const struct rest_model *x;
    uint32_t n_layers;
    uint32_t *by_layer; /* [n_layers] */
};

static int count_file(void *ctx, const char *path, const struct stat *sb)
{
    struct counting *k = ctx;
    uint32_t l, x;
    k->c->objects++;
    k->c->bytes += (uint64_t)sb->st_size;
    if (expert_of(path, &l, &x)) {
        k->c->experts++;
        k->c->expert_bytes += (uint64_t)sb->st_size;
        if (l < k->n_layers) {
            k->by_layer[l]++;
        }
    }
    return 0;
}

int rest_count(const char *cache_dir, const struct rest_model *x, struct rest_count *out,
               struct err *e)
{
    static const char *const below[] = {"experts", "spine"};
    const struct model_config *mc = x->m ? model_config(x->m) : NULL;
    struct counting k = {out, x, mc ? mc->n_layers : 0, NULL};
    char *dir = layout_path("%s/models/%s", cache_dir, x->folder);
    memset(out, 0, sizeof *out);
    k.by_layer = calloc(k.n_layers ? k.n_layers : 1, sizeof *k.by_layer);
    if (!dir || !k.by_layer) {
        free(dir);
        free(k.by_layer);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (int i = 0; i < 2; i++) {
        char *p = layout_path("%s/%s", dir, below[i]);
        if (p) {
            (void)walk(p, 2, count_file, &k);
        }
        free(p);
    }
    if (mc) {
        out->of = model_object_count(x->m);
        out->of_bytes = model_expert_bytes(x->m) + model_spine_bytes(x->m);
        out->layers = mc->n_layers - mc->first_dense;
        for (uint32_t l = mc->first_dense; l < mc->n_layers; l++) {
            out->complete += k.by_layer[l] >= mc->n_experts;
        }
    }
    out->last_use = last_uses(cache_dir, x->root, NULL, 0);
    out->written_today = kept_written_today(dir);
    out->in_use = rest_in_use(dir, NULL);
    free(k.by_layer);
    free(dir);
    return 0;
}

/* ---- removing ---- */

struct dropping {
    const struct rest_drop *o;
    const struct rest_model *x;
    const uint64_t *use; /* by id, with `before` */
    struct rest_dropped *out;
    struct err *e;
};

static bool chosen(const struct dropping *k, uint32_t layer, uint32_t expert)
{
    for (size_t i = 0; i < k->o->n; i++) {
        if (k->o->experts[i][0] == layer && k->o->experts[i][1] == expert) {
            return true;
        }
    }
    if (!k->o->before || layer >= model_config(k->x->m)->n_layers ||
        expert >= model_config(k->x->m)->n_experts) {
        return false;
    }
    uint32_t id = model_expert_id(k->x->m, layer, expert);
    return id < model_object_count(k->x->m) && k->use[id] < k->o->before;
}

static int drop_file(void *ctx, const char *path, const struct stat *sb)
{
    struct dropping *k = ctx;
    uint32_t layer, expert;
    if (!k->o->whole && (!expert_of(path, &layer, &expert) || !chosen(k, layer, expert))) {
        return 0;
    }
    if (!k->o->dry && unlink(path) && errno != ENOENT) {
        return err_sys(k->e, errno, "cannot remove %s", path);
    }
    k->out->objects++;
    k->out->bytes += (uint64_t)sb->st_size;
    return 0;
}

static int drop_rest(void *ctx, const char *path, const struct stat *sb)
{
    struct dropping *k = ctx;
    (void)sb;
    return unlink(path) && errno != ENOENT ? err_sys(k->e, errno, "cannot remove %s", path) : 0;
}

static void drop_folders(const char *dir, int depth)
{
    DIR *d = opendir(dir);
    struct dirent *x;
    while (d && depth && (x = readdir(d))) {
        char *p = x->d_name[0] == '.' ? NULL : layout_path("%s/%s", dir, x->d_name);
        struct stat sb;
        if (p && !lstat(p, &sb) && S_ISDIR(sb.st_mode)) {
            drop_folders(p, depth - 1);
        }
        free(p);
    }
    if (d) {
        closedir(d);
    }
    rmdir(dir);
}

/* Which commit a hub's branch is here, where it is this address's. */
static int drop_pin(void *ctx, const char *path, const struct stat *sb)
{
    const char *address = ctx, *line;
    struct buf b;
    struct err e;
    (void)sb;
    buf_init(&b, 8192);
    if (!file_read_all(path, &b, &e) && b.n) {
        line = b.p;
        for (int i = 0; i < 3 && line; i++) {
            line = strchr(line, '\n');
            line += line != NULL;
        }
        size_t n = line ? strspn(line, "0123456789abcdef") : 0;
        char commit[65] = "";
        if (n >= 40 && n < sizeof commit) {
            memcpy(commit, line, n);
        }
        if (*commit && strstr(address, commit)) {
            unlink(path);
        }
    }
    buf_free(&b);
    return 0;
}

struct dropping_origin {
    const char *cache_dir;
    struct dropping *k;
};

static int drop_origin(void *ctx, const char *dir, const char *address, struct err *e)
{
    struct dropping_origin *o = ctx;
    (void)e; /* k's, which is the same */
    char *pins = layout_path("%s/revisions", o->cache_dir);
    if (pins && *address) {
        (void)walk(pins, 0, drop_pin, (void *)(uintptr_t)address);
    }
    free(pins);
    int r = walk(dir, DEPTH_MAX, drop_rest, o->k);
    drop_folders(dir, DEPTH_MAX);
    return r;
}

/* Objects first: whatever ends this in the middle, what is left is a model with fewer objects. */
static int drop_model(const char *cache_dir, const char *dir, struct dropping *k)
{
    struct dropping_origin o = {cache_dir, k};
    int r = forget_rows(cache_dir, k->x->root, k->e);
    r = r ? r : rest_origins(cache_dir, k->x->root, drop_origin, &o, k->e);
    r = r ? r : walk(dir, DEPTH_MAX, drop_rest, k);
    if (!r) {
        drop_folders(dir, DEPTH_MAX);
    }
    return r;
}

int rest_drop(const char *cache_dir, const struct rest_model *x, const struct rest_drop *o,
              struct rest_dropped *out, struct err *e)
{
    static const char *const below[] = {"experts", "spine"};
    struct dropping k = {o, x, NULL, out, e};
    uint64_t *use = NULL;
    memset(out, 0, sizeof *out);
    if (o->before && !x->m) {
        return err_set(e, ERR_NOTFOUND,
                       "the metadata of model %s are not in the cache, so it is not known when its "
                       "experts were used",
                       x->folder);
    }
    char *dir = layout_path("%s/models/%s", cache_dir, x->folder);
    uint32_t n = x->m ? model_object_count(x->m) : 0;
    use = calloc(n ? n : 1, sizeof *use);
    if (!dir || !use) {
        free(dir);
        free(use);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (o->before) {
        last_uses(cache_dir, x->root, use, n);
    }
    k.use = use;
    int r = 0, lock = o->dry ? -1 : layout_lock(cache_dir, e); /* nobody opens it meanwhile */
    if (!o->dry && lock < 0) {
        r = ERR_IO;
    } else if (!o->dry && rest_in_use(dir, NULL)) {
        r = err_set(e, ERR_BUSY, "a process has model %s open: end it, or try again later",
                    x->folder);
    }
    for (int i = 0; i < 2 && !r; i++) {
        char *p = layout_path("%s/%s", dir, below[i]);
        r = p ? walk(p, 2, drop_file, &k) : err_set(e, ERR_NOMEM, "out of memory");
        free(p);
    }
    if (!r && o->whole && !o->dry) {
        r = drop_model(cache_dir, dir, &k);
    }
    layout_unlock(lock);
    free(use);
    free(dir);
    return r;
}
