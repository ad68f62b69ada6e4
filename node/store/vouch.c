/* SPDX-License-Identifier: MIT
 * vouch.c: see vouch.h. A note is the file <model>/same/<16 digits of SHA-256 of the address> with
 * the address in it; for a folder the size and time of each shard go into the SHA-256. It lies with
 * the objects, so that it goes when they go. */
#include "node/store/vouch.h"

#include "node/store/layout.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The objects to compare of one shard: one expert, one of the spine. */
struct sample {
    uint32_t id[2];   /* MODEL_NONE: none */
    uint32_t mark[2]; /* of the one chosen so far */
};

/* Spreads ids: each layer gives another expert and another kind of tensor, each address others. */
static uint32_t mark(uint32_t id, uint32_t seed)
{
    uint32_t x = (id ^ seed) * 0x9e3779b1u;
    x ^= x >> 15;
    x *= 0x85ebca77u;
    return x ^ x >> 13;
}

/* Fills s[shards]; says how many objects of the model have a digest. */
static uint32_t choose(const struct vouch *v, uint32_t seed, struct sample *s)
{
    uint32_t n = model_object_count(v->m), known = 0, chunk;
    uint64_t xxh;
    for (uint32_t i = 0; i < model_shard_count(v->m); i++) {
        s[i] = (struct sample){{MODEL_NONE, MODEL_NONE}, {0, 0}};
    }
    for (uint32_t id = 0; id < n; id++) {
        if (!disk_last_chunk(v->disk, id, &chunk, &xxh)) {
            continue;
        }
        known++;
        const struct model_object *o = model_object(v->m, id);
        struct sample *t = &s[o->shard];
        int kind = o->kind == MODEL_EXPERT ? 0 : 1;
        uint32_t k = mark(id, seed);
        if (t->id[kind] == MODEL_NONE || k > t->mark[kind]) {
            t->id[kind] = id;
            t->mark[kind] = k;
        }
    }
    return known;
}

static int compare(const struct vouch *v, uint32_t id, uint8_t *p, struct err *e)
{
    const struct model_object *o = model_object(v->m, id);
    const char *file = model_shard(v->m, o->shard)->file;
    uint32_t chunk;
    uint64_t xxh;
    if (!disk_last_chunk(v->disk, id, &chunk, &xxh)) {
        return 0;
    }
    size_t n = chunk_len(o->size, chunk);
    int r = origin_get_range(v->origin, file, o->offset + (uint64_t)chunk * CHUNK_SIZE, p, n, e);
    if (!r && chunk_xxh(p, n) != xxh) {
        char name[128];
        r = err_set(e, ERR_DIGEST,
                    "%s has other weights than those that %s holds for a model with the same "
                    "config and index: %s in %s differs; use another cache folder for it",
                    v->address, v->cache_dir, model_object_name(v->m, id, name, sizeof name), file);
    }
    return r;
}

static int compare_all(const struct vouch *v, const struct sample *s, struct err *e)
{
    uint8_t *p = malloc(CHUNK_SIZE);
    int r = p ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; i < model_shard_count(v->m) && !r; i++) {
        for (int k = 0; k < 2 && !r; k++) {
            r = s[i].id[k] == MODEL_NONE ? 0 : compare(v, s[i].id[k], p, e);
        }
    }
    free(p);
    return r;
}

/* Removes the notes in `dir` but the one called `own`; false: there was no other. */
static bool forget_others(const char *dir, const char *own)
{
    DIR *d = opendir(dir);
    struct dirent *x;
    bool any = false;
    while (d && (x = readdir(d))) {
        bool keep = x->d_name[0] == '.' || !strcmp(x->d_name, own);
        char *p = keep ? NULL : layout_path("%s/%s", dir, x->d_name);
        any = (p && !unlink(p)) || any;
        free(p);
    }
    if (d) {
        closedir(d);
    }
    return any;
}

/* Not being able to write it only costs the comparison again. */
static void note(const struct vouch *v, const char *dir, const char *path, bool first)
{
    struct err e;
    int lock = layout_lock(v->cache_dir, &e);
    if (lock < 0) {
        return;
    }
    /* Without any digest the notes of others are old, or their objects are being fetched just now:
     * then all are compared next time. */
    if (first && forget_others(dir, strrchr(path, '/') + 1)) {
        unlink(path);
    } else if (access(path, F_OK) != 0 && !file_mkdirs(dir, &e)) {
        (void)file_write_atomic(path, v->address, strlen(v->address), 0600, &e);
    }
    layout_unlock(lock);
}

/* What the note's name is made from. */
static int identity(const struct vouch *v, uint8_t sha[SHA256_SIZE], struct err *e)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    int r = buf_adds(&b, v->address);
    for (uint32_t i = 0; v->folder && i < model_shard_count(v->m) && !r; i++) {
        struct stat st;
        char *p = layout_path("%s/%s", v->address, model_shard(v->m, i)->file);
        if (!p) {
            r = ERR_NOMEM;
        } else if (stat(p, &st) == 0) { /* one that is not there is reported by its first read */
            r = buf_addf(&b, "\n%lld %lld", (long long)st.st_size, (long long)st.st_mtime);
        }
        free(p);
    }
    if (!r) {
        sha256(b.p, b.n, sha);
    }
    buf_free(&b);
    return r ? err_set(e, r, "%s: %s", v->address, err_text(r)) : 0;
}

int vouch_address(const struct vouch *v, struct err *e)
{
    uint8_t sha[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1];
    int r = identity(v, sha, e);
    if (r) {
        return r;
    }
    sha256_hex(sha, hex);
    uint32_t seed = (uint32_t)sha[0] << 24 | (uint32_t)sha[1] << 16 | (uint32_t)sha[2] << 8;
    uint32_t shards = model_shard_count(v->m);
    char *dir = layout_path("%s/same", disk_path(v->disk));
    char *path = layout_path("%s/same/%.16s", disk_path(v->disk), hex);
    struct sample *s = calloc(shards ? shards : 1, sizeof *s);
    r = dir && path && s ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    uint32_t known = r ? 0 : choose(v, seed, s);
    if (!r && (!known || access(path, F_OK) != 0)) {
        if (known && !v->origin) {
            r = err_set(e, ERR_OFFLINE,
                        "whether %s holds the files that are in %s was never looked at, and the "
                        "origin may not be asked (offline): run once without --offline",
                        v->address, v->cache_dir);
        } else if (known) {
            if (v->log) {
                char line[700];
                snprintf(line, sizeof line,
                         "comparing a sample of %.300s with what the cache holds already",
                         v->address);
                v->log(v->log_ctx, line);
            }
            r = compare_all(v, s, e);
        }
        if (!r && v->origin) {
            note(v, dir, path, !known);
        }
    }
    free(s);
    free(path);
    free(dir);
    return r;
}
