/* SPDX-License-Identifier: MIT
 * meta.c: see meta.h. origin.txt is lines of text:
 *     shoal-origin 1 <address>
 *     file <sha256> <size> <name>       (a piece of a file has the name <file>@<offset>+<bytes>)
 *     absent <name>
 *     shard <size> <entity tag or -> <name>
 *     end <xxHash64 of all before, 16 hex digits> */
#include "node/store/adopt_list.h"
#include "node/store/meta_inner.h"

#include "node/store/chunk.h"
#include "node/store/layout.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_MAX ((size_t)256 << 20)
#define BLOB_NAME "inventory.bin"

void meta_say(struct meta *m, const char *fmt, ...)
{
    if (m->log) {
        char line[1000];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        m->log(m->log_ctx, line);
    }
}

/* A file of ours; what is there in its place but no file counts as damage (a pipe would block). */
static int read_own(const char *path, struct buf *out, struct err *e)
{
    struct stat sb;
    if (stat(path, &sb) == 0 && !S_ISREG(sb.st_mode)) {
        return err_set(e, ERR_DIGEST, "%s is no file", path);
    }
    return file_read_all(path, out, e);
}

/* ---- the list's file ---- */

static int load_list(struct meta *m, struct err *e)
{
    char *p = layout_path("%s/origin.txt", m->dir);
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    struct buf b;
    buf_init(&b, META_LIST_MAX);
    struct err e1 = {0};
    int r = read_own(p, &b, &e1);
    if (r == ERR_NOTFOUND) {
        r = 0;
    } else if (r == ERR_DIGEST) {
        meta_say(m, "%s; the metadata are fetched anew", e1.msg);
        r = 0;
    } else if (r) {
        if (e) {
            *e = e1;
        }
    } else {
        r = meta_list_parse(&m->list, b.p, b.n, m->address, &e1);
        if (r && r != ERR_NOMEM) {
            meta_say(m, "%s: %s; the metadata are fetched anew", p, e1.msg);
            meta_list_free(&m->list);
            r = 0;
        }
        /* The model was never opened: the address was wrong, or its files were not all there yet.
         * A folder's files come and go, and looking there costs nothing. */
        if (!meta_list_find(&m->list, META_FILE, BLOB_NAME) ||
            (m->o && !strstr(m->address, "://"))) {
            meta_list_doubt(&m->list);
        }
    }
    buf_free(&b);
    free(p);
    return r;
}

/* With mu. */
static int save_list(struct meta *m, struct err *e)
{
    m->saved = clock_ns();
    if (!m->dir || !m->dirty) {
        return 0;
    }
    struct err e1 = {0};
    struct buf b;
    buf_init(&b, META_LIST_MAX);
    char *p = layout_path("%s/origin.txt", m->dir);
    int r = p ? meta_list_write(&m->list, m->address, &b) : ERR_NOMEM;
    if (r) {
        r = err_set(e, r, "%s", err_text(r));
    } else {
        int lock = layout_lock(m->cache_dir, &e1);
        r = lock < 0 ? e1.code : file_write_atomic(p, b.p, b.n, 0600, &e1);
        layout_unlock(lock);
        if (r && (m->closed || r == ERR_FULL)) { /* the disk tier says so */
            free(p);
            buf_free(&b);
            return 0;
        }
        if (r && e) {
            *e = e1;
        }
    }
    if (!r) {
        m->dirty = false;
    }
    free(p);
    buf_free(&b);
    return r;
}

int meta_save(struct meta *m, struct err *e)
{
    pthread_mutex_lock(&m->mu);
    int r = save_list(m, e);
    pthread_mutex_unlock(&m->mu);
    return r;
}

int meta_open(const char *cache_dir, const char *address, struct origin *o,
              const struct store_meta_peers *peers, void (*log)(void *ctx, const char *line),
              void *log_ctx, struct meta **out, struct err *e)
{
    *out = NULL;
    struct meta *m = calloc(1, sizeof *m);
    if (!m || pthread_mutex_init(&m->mu, NULL)) {
        free(m);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (pthread_mutex_init(&m->serve_mu, NULL)) {
        pthread_mutex_destroy(&m->mu);
        free(m);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    buf_init(&m->served, META_FILE_MAX);
    m->o = o;
    m->peers = peers;
    m->log = log;
    m->log_ctx = log_ctx;
    m->address = strdup(address);
    m->saved = clock_ns();
    int r = m->address ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    if (!r && cache_dir) {
        m->cache_dir = strdup(cache_dir);
        m->dir = layout_origin_dir(cache_dir, address);
        r = m->cache_dir && m->dir ? layout_prepare(cache_dir, e)
                                   : err_set(e, ERR_NOMEM, "out of memory");
        if (!r) {
            r = file_mkdirs(m->dir, e);
        }
        int lock = r ? -1 : layout_lock(cache_dir, e);
        if (lock >= 0) {
            layout_sweep(m->dir, true);
            layout_unlock(lock);
        } else if (!r) {
            r = e ? e->code : ERR_IO;
        }
        if (r && r != ERR_NOMEM && layout_state(cache_dir, NULL)) {
            m->closed = true;
            r = 0;
        }
        if (!r) {
            r = load_list(m, e);
        }
    }
    if (r) {
        meta_close(m);
        return r;
    }
    *out = m;
    return 0;
}

void meta_close(struct meta *m)
{
    if (m) {
        meta_list_free(&m->list);
        meta_list_free(&m->given);
        buf_free(&m->served);
        free(m->served_name);
        pthread_mutex_destroy(&m->serve_mu);
        pthread_mutex_destroy(&m->mu);
        free(m->head_of);
        free(m->cache_dir);
        free(m->dir);
        free(m->address);
        free(m);
    }
}

/* ---- files in the cache ---- */

/* Append a kept file. ERR_NOTFOUND: it is not kept, or not good any more (said in the log). */
int meta_kept(struct meta *m, const char *name, struct buf *out, struct err *e)
{
    uint8_t want[SHA256_SIZE], have[SHA256_SIZE];
    uint64_t size = 0;
    pthread_mutex_lock(&m->mu);
    const struct meta_item *it = meta_list_find(&m->list, META_FILE, name);
    if (it) {
        memcpy(want, it->sha, sizeof want);
        size = it->size;
    }
    pthread_mutex_unlock(&m->mu);
    char *p = it && m->dir ? layout_path("%s/%s", m->dir, name) : NULL;
    if (!p) {
        return ERR_NOTFOUND;
    }
    struct err e1 = {0};
    struct buf b;
    buf_init(&b, size > META_FILE_MAX ? META_FILE_MAX : (size_t)size);
    int r = read_own(p, &b, &e1);
    if (!r) {
        sha256(b.p, b.n, have);
        if (b.n != size || memcmp(have, want, sizeof want) != 0) {
            r = ERR_DIGEST;
        }
    }
    if (!r) {
        r = buf_add(out, b.p, b.n);
        if (r) {
            err_set(e, r, "%s has %zu bytes: %s", name, b.n, err_text(r));
        }
    } else {
        meta_say(m, "the cached metadata file %s is %s%s", p,
                 r == ERR_NOTFOUND ? "missing" : "damaged",
                 m->o || m->peers ? "; getting it anew" : "");
        r = ERR_NOTFOUND;
    }
    buf_free(&b);
    free(p);
    return r;
}

/* Keep bytes under a name. What the origin gives now must be what it gave before. */
static int put(struct meta *m, const char *name, const void *bytes, size_t n, bool may_change,
               struct err *e)
{
    if (!m->dir) {
        return 0;
    }
    struct meta_item it = {.kind = META_FILE, .size = n};
    sha256(bytes, n, it.sha);
    pthread_mutex_lock(&m->mu);
    const struct meta_item *old = meta_list_find(&m->list, META_FILE, name);
    bool differs = old && memcmp(old->sha, it.sha, sizeof it.sha) != 0;
    pthread_mutex_unlock(&m->mu);
    if (differs && !may_change) {
        return err_set(e, ERR_NET,
                       "%s at the origin is not what it was when the model was first opened: use "
                       "another cache folder for the new files, or remove %s",
                       name, m->dir);
    }
    char *p = layout_path("%s/%s", m->dir, name);
    struct err e1 = {0};
    int r = ERR_NOMEM;
    int lock = p ? layout_lock(m->cache_dir, &e1) : -1;
    if (lock >= 0) {
        r = file_write_atomic(p, bytes, n, 0600, &e1);
        layout_unlock(lock);
    }
    free(p);
    pthread_mutex_lock(&m->mu);
    if (!r) {
        r = meta_list_set(&m->list, name, &it);
        m->dirty = true;
        m->trouble = false;
        if (clock_ns() - m->saved > 100000000u) {
            save_list(m, &e1);
        }
    } else if (!m->trouble && !m->closed && e1.code != ERR_FULL) { /* the disk tier says those */
        m->trouble = true;
        meta_say(m, "metadata cannot be kept for the next start: %s", e1.msg);
    }
    pthread_mutex_unlock(&m->mu);
    return 0; /* not being able to keep it does no harm now */
}

static int offline(const struct meta *m, const char *name, struct err *e)
{
    return err_set(e, ERR_OFFLINE,
                   "%s is not in the cache%s and the origin may not be asked (offline): run once "
                   "without --offline to fetch it",
                   name, m->peers ? ", no peer has it" : "");
}

int meta_read(struct meta *m, const char *name, struct buf *out, struct err *e)
{
    pthread_mutex_lock(&m->mu);
    bool absent = meta_list_find(&m->list, META_ABSENT, name) != NULL;
    pthread_mutex_unlock(&m->mu);
    if (absent) {
        return err_set(e, ERR_NOTFOUND, "the model has no file %s", name);
    }
    int r = meta_kept(m, name, out, e);
    if (r != ERR_NOTFOUND) {
        return r;
    }
    size_t had = out->n;
    r = meta_from_peers(m, name, out, e);
    if (!r) {
        return put(m, name, out->p + had, out->n - had, false, e);
    }
    pthread_mutex_lock(&m->mu);
    absent = meta_list_find(&m->list, META_ABSENT, name) != NULL; /* peers may have said so */
    pthread_mutex_unlock(&m->mu);
    if (absent) {
        return err_set(e, ERR_NOTFOUND, "the model has no file %s", name);
    }
    if (!m->o) {
        return offline(m, name, e);
    }
    r = origin_get_file(m->o, name, out, e);
    if (r && r != ERR_NOTFOUND && m->peers) { /* somebody may have come meanwhile */
        struct err e1 = {0};
        out->n = had;
        pthread_mutex_lock(&m->mu);
        m->given_asked = 0;
        pthread_mutex_unlock(&m->mu);
        r = meta_from_peers(m, name, out, &e1) ? r : 0;
    }
    if (r == ERR_NOTFOUND) {
        struct meta_item it = {.kind = META_ABSENT};
        pthread_mutex_lock(&m->mu);
        m->dirty = !meta_list_set(&m->list, name, &it) || m->dirty;
        pthread_mutex_unlock(&m->mu);
    } else if (!r) {
        r = put(m, name, out->p + had, out->n - had, false, e);
    }
    return r;
}

int meta_get_blob(struct meta *m, struct buf *out, struct err *e)
{
    int r = meta_kept(m, BLOB_NAME, out, e);
    return r == ERR_NOTFOUND ? err_set(e, r, "no inventory is kept") : r;
}

int meta_put_blob(struct meta *m, const void *p, size_t n, struct err *e)
{
    return put(m, BLOB_NAME, p, n, true, e);
}

/* ---- shards ---- */

bool meta_shard(struct meta *m, const char *name, uint64_t *size, char etag[ORIGIN_ETAG_MAX])
{
    pthread_mutex_lock(&m->mu);
    const struct meta_item *it = meta_list_find(&m->list, META_SHARD, name);
    if (it) {
        *size = it->size;
        snprintf(etag, ORIGIN_ETAG_MAX, "%s", it->etag);
    }
    pthread_mutex_unlock(&m->mu);
    return it != NULL;
}

bool meta_known_sha(struct meta *m, const char *name, uint8_t sha[SHA256_SIZE])
{
    char tag[ORIGIN_ETAG_MAX] = "";
    pthread_mutex_lock(&m->mu);
    const struct meta_item *it = meta_list_find(&m->list, META_FILE, name);
    const struct meta_item *shard = it ? NULL : meta_list_find(&m->list, META_SHARD, name);
    if (it) {
        memcpy(sha, it->sha, SHA256_SIZE);
    } else if (shard && *shard->etag) { /* "..." */
        snprintf(tag, sizeof tag, "%s", shard->etag + (*shard->etag == '"'));
        tag[strcspn(tag, "\"")] = 0;
    }
    pthread_mutex_unlock(&m->mu);
    return it || adopt_hex_sha(tag, sha);
}

void meta_learned(struct meta *m, const char *name, uint64_t size, const char *etag)
{
    struct meta_item it = {.kind = META_SHARD, .size = size};
    snprintf(it.etag, sizeof it.etag, "%s", etag);
    pthread_mutex_lock(&m->mu);
    m->dirty = !meta_list_set(&m->list, name, &it) || m->dirty;
    pthread_mutex_unlock(&m->mu);
}

/* ---- as a model_source ---- */

/* The first bytes of a file of which only the size was wanted: they are asked for next. */
static bool head_take(struct meta *m, const char *name, uint64_t off, void *p, size_t n)
{
    pthread_mutex_lock(&m->mu);
    bool has = m->head_of && strcmp(m->head_of, name) == 0 && off == 0 && n == sizeof m->head;
    if (has) {
        memcpy(p, m->head, n);
    }
    pthread_mutex_unlock(&m->mu);
    return has;
}

static int head_get(struct meta *m, const char *name, struct err *e)
{
    uint8_t b[sizeof m->head];
    int r = origin_get_range(m->o, name, 0, b, sizeof b, e);
    if (r) { /* it may have fewer */
        return origin_get_range(m->o, name, 0, b, 1, e);
    }
    pthread_mutex_lock(&m->mu);
    free(m->head_of);
    m->head_of = strdup(name); /* without it: asked for again */
    memcpy(m->head, b, sizeof b);
    pthread_mutex_unlock(&m->mu);
    return 0;
}

static int src_read_file(void *ctx, const char *name, struct buf *out, struct err *e)
{
    return meta_read(ctx, name, out, e);
}

static int src_read_range(void *ctx, const char *name, uint64_t off, void *p, size_t n,
                          struct err *e)
{
    struct meta *m = ctx;
    char *key = layout_path("%s@%llu+%zu", name, (unsigned long long)off, n);
    struct buf b;
    buf_init(&b, n);
    int r = n > PIECE_MAX ? ERR_LIMIT : 0;
    if (!key || r) {
        free(key);
        return err_set(e, r ? r : ERR_NOMEM, "%s: a header of %zu bytes", name, n);
    }
    r = meta_kept(m, key, &b, e);
    if (!r) {
        memcpy(p, b.p, n);
    } else if (r == ERR_NOTFOUND) {
        r = meta_from_peers(m, key, &b, e);
        if (!r && b.n == n) {
            memcpy(p, b.p, n);
        } else if (!head_take(m, name, off, p, n)) {
            r = m->o ? origin_get_range(m->o, name, off, p, n, e) : offline(m, name, e);
        } else {
            r = 0;
        }
        if (!r) {
            r = put(m, key, p, n, false, e);
        }
    }
    buf_free(&b);
    free(key);
    return r;
}

static int src_file_size(void *ctx, const char *name, uint64_t *size, struct err *e)
{
    struct meta *m = ctx;
    char etag[ORIGIN_ETAG_MAX];
    *size = UINT64_MAX;
    if (meta_shard(m, name, size, etag)) {
        return 0;
    }
    meta_ask_list(m);
    if (meta_shard(m, name, size, etag) || !m->o) {
        return 0;
    }
    uint32_t file;
    int r = origin_file(m->o, name, &file, e);
    if (!r && origin_size(m->o, file) == ORIGIN_UNKNOWN) {
        r = head_get(m, name, e); /* the answer to any range says how long the file is */
    }
    if (!r) {
        *size = origin_size(m->o, file);
    }
    return r;
}

void meta_source(struct meta *m, struct model_source *out)
{
    *out = (struct model_source){m, src_read_file, src_read_range, src_file_size};
}
