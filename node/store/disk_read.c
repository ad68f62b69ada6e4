/* SPDX-License-Identifier: MIT
 * disk_read.c: see disk.h: reading what is there, every chunk verified. */
#include "node/store/disk_inner.h"

#include "node/store/layout.h"
#include "node/store/uncached.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* `left`: its file is still there. */
static void forget(struct disk *d, uint32_t id, bool left)
{
    pthread_mutex_lock(&d->mu);
    disk_set_own(d, id, false);
    if (left && !d->it[id].stale) {
        d->it[id].stale = true;
        d->n_stale++;
    }
    disk_drop_kept(d, id);
    pthread_mutex_unlock(&d->mu);
}

void disk_forget(struct disk *d, uint32_t id, const char *path)
{
    bool left = path && !quarantine_put(d, id, path);
    forget(d, id, left);
}

void disk_remove(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    bool left = !disk_unlink_own(d, id);
    pthread_mutex_unlock(&d->mu);
    forget(d, id, left);
}

void disk_taken_back_elsewhere(struct disk *d, uint32_t id)
{
    const struct digest *old = disk_digest_of(d, id);
    struct digest *now = NULL, *dg = old ? digest_alloc(old->size, false) : NULL;
    struct err e;
    if (!dg || (old->source != DIGEST_ONE_MEMBER && old->source != DIGEST_TWO_MEMBERS &&
                old->source != DIGEST_UNKNOWN)) {
        free(dg);
        return;
    }
    catalog_get(d->cat, d->model_no, id, &now, &e);
    bool same = now && digest_equal(now, old); /* it came again */
    free(now);
    if (same) {
        free(dg);
        return;
    }
    memcpy(dg->sha, old->sha, SHA256_SIZE);
    memcpy(dg->xxh, old->xxh, (size_t)old->n * sizeof old->xxh[0]);
    dg->source = DIGEST_TAKEN_BACK;
    forget(d, id, false); /* the file has gone, or is another one, which disk_look finds */
    pthread_mutex_lock(&d->mu);
    disk_set_digest(d, id, dg);
    pthread_mutex_unlock(&d->mu);
}

void disk_drop_kept(struct disk *d, uint32_t id)
{
    for (int i = 0; i < DISK_CHUNKS_KEPT; i++) {
        if (d->kept[i].p && d->kept[i].id == id) {
            d->kept[i].used = 0;
            d->kept[i].id = UINT32_MAX;
        }
    }
}

char *disk_file_path(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    char *p = d->it[id].own ? disk_own_path(d, id) : NULL;
    pthread_mutex_unlock(&d->mu);
    return p;
}

bool disk_past_cache(const struct disk *d, uint64_t size, size_t *step)
{
    *step = DISK_READ_SIZE;
    return d->uncached && size >= CHUNK_SIZE;
}

/* A digest never changes or goes away before disk_close, so it may be used without the lock. */
const struct digest *disk_digest_of(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    const struct digest *dg = d->it[id].digest;
    pthread_mutex_unlock(&d->mu);
    return dg;
}

/* A file that does not fit its digest: has another digest taken that one's place meanwhile, here or
 * by another process? */
static bool renewed(struct disk *d, uint32_t id, const struct digest *used)
{
    struct digest *dg = NULL;
    struct err e;
    if (disk_digest_of(d, id) == used) {
        catalog_get(d->cat, d->model_no, id, &dg, &e);
    }
    pthread_mutex_lock(&d->mu);
    if (dg && d->it[id].digest == used && dg->size == used->size && digest_beats(dg, used) &&
        !digest_equal(dg, used)) {
        disk_set_digest(d, id, dg);
        dg = NULL;
    }
    bool changed = d->it[id].digest != used;
    pthread_mutex_unlock(&d->mu);
    free(dg);
    return changed;
}

/* An object's bytes, open for reading by the digest on record. */
struct open_file {
    const struct digest *dg;
    struct adopt_place at;
    char name[128];
    struct uncached u;
    struct packed head;
    const struct packed *packed; /* NULL: the file is the object's bytes */
    bool image;                  /* it is in memory, nothing was opened */
};

static void open_file(struct disk *d, uint32_t id, bool past, struct open_file *f)
{
    uncached_open(&f->u, f->at.path, O_NONBLOCK, past); /* a pipe must not block us */
    if (f->u.fd >= 0 || errno != ENOENT || f->at.folder || !disk_form_switched(d, id)) {
        return;
    }
    free(f->at.path);
    pthread_mutex_lock(&d->mu);
    bool ok = adopt_where(d, id, &f->at);
    pthread_mutex_unlock(&d->mu);
    errno = ENOMEM;
    if (ok) {
        uncached_open(&f->u, f->at.path, O_NONBLOCK, past);
    }
}

/* `past` the page cache, if it can be. ERR_BUSY: nothing is wrong with the file. */
static int open_object(struct disk *d, uint32_t id, bool past, struct open_file *f, struct err *e)
{
    const struct model_object *o = model_object(d->o.m, id);
    model_object_name(d->o.m, id, f->name, sizeof f->name);
    f->u.fd = -1;
    f->head.at = NULL;
    f->packed = NULL;
    f->image = false;
    memset(&f->at, 0, sizeof f->at);
    pthread_mutex_lock(&d->mu);
    f->dg = d->it[id].digest;
    const struct disk_item *it = &d->it[id];
    bool left = !it->own && !it->orphan && !it->lent;
    bool ok = left || adopt_where(d, id, &f->at);
    if (ok && f->at.packed && d->image && d->image[id]) {
        f->packed = &d->image[id]->at;
        f->image = true;
    }
    pthread_mutex_unlock(&d->mu);
    if (!ok) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (left) { /* its folder has gone meanwhile, or its word: no file of ours is missing */
        return err_set(e, ERR_OFFLINE, "%s is not on the disk any more", f->name);
    }
    if (!f->dg) {
        return err_set(e, ERR_NOTFOUND, "%s has no digest on record", f->name);
    }
    if (f->image) {
        return 0;
    }
    open_file(d, id, past, f);
    const char *kind = f->at.folder ? "adopted" : "cache", *path = f->at.path;
    struct stat st;
    if (f->u.fd < 0 && errno == ENOENT) {
        return err_set(e, ERR_NOTFOUND, "%s is missing from the %s (%s is gone)", f->name,
                       f->at.folder ? "adopted folder" : "cache", path);
    }
    if (f->u.fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        return err_set(e, ERR_BUSY, "%s: cannot open the %s file %s: %s", f->name, kind, path,
                       strerror(errno));
    }
    if (f->u.fd < 0 || fstat(f->u.fd, &st) != 0) {
        return err_sys(e, errno, "%s: cannot open the %s file %s", f->name, kind, path);
    }
    if (f->at.packed) {
        f->packed = &f->head;
        int r = packed_open(&f->head, &f->u, path, o->size, (uint64_t)st.st_size, e);
        if (r) {
            err_prefix(e, "%s", f->name);
        }
        return r;
    }
    if (!f->at.folder && (uint64_t)st.st_size != o->size) {
        return err_set(e, ERR_DIGEST, "%s: the cache file %s has %lld bytes instead of %llu",
                       f->name, path, (long long)st.st_size, (unsigned long long)o->size);
    }
    struct looked_file now;
    adopt_file_of(&st, &now);
    if (f->at.folder && !adopt_same_file(&now, &f->at.want)) {
        return err_set(e, ERR_NOTFOUND, "%s: the adopted file %s is not the one that was looked at",
                       f->name, path);
    }
    return 0;
}

/* After `r`. True: try once more, the fault was ours. A file that is no good is forgotten. */
static bool close_object(struct disk *d, uint32_t id, struct open_file *f, int *r, struct err *e)
{
    bool again = *r == ERR_DIGEST && f->dg && renewed(d, id, f->dg);
    if (*r && !again && f->image) {
        disk_image_bad(d, id, f->packed);
        again = true;
    } else if (*r && !again && f->dg && f->at.path && *r != ERR_BUSY && *r != ERR_NOMEM) {
        if (f->at.folder) {
            *r = adopt_trouble(d, id, &f->at, e);
            e->code = *r;
        } else {
            disk_forget(d, id, f->at.path);
        }
    }
    if (f->u.fd >= 0) {
        close(f->u.fd);
    }
    packed_close(&f->head);
    free(f->at.path);
    return again;
}

/* n bytes at off, whole chunks but for the object's last one: read together, then verified. */
static int read_chunks(struct open_file *f, uint64_t off, uint8_t *p, size_t n, struct err *e)
{
    int r = f->packed ? packed_read(f->packed, &f->u, f->at.path, off, p, n, e)
                      : uncached_read(&f->u, f->at.path, p, n, f->at.at + off, e);
    if (r) {
        err_prefix(e, "%s", f->name);
    }
    for (size_t at = 0; !r && at < n; at += CHUNK_SIZE) {
        uint32_t i = (uint32_t)((off + at) / CHUNK_SIZE);
        if (chunk_xxh(p + at, chunk_len(f->dg->size, i)) != f->dg->xxh[i]) {
            r = err_set(e, ERR_DIGEST,
                        "%s: the %s file %s is damaged (the checksum of its MiB %u differs)",
                        f->name, f->at.folder ? "adopted" : "cache", f->at.path, i);
        }
    }
    return r;
}

int disk_read(struct disk *d, uint32_t id, uint8_t *p, struct err *e)
{
    if (disk_offers(d, id)) {
        return disk_look_at(d, id, p, e);
    }
    uint64_t size = model_object(d->o.m, id)->size;
    for (int tries = 0;; tries++) {
        struct open_file f;
        struct err e1 = {0};
        size_t step;
        bool past = disk_past_cache(d, size, &step);
        int r = open_object(d, id, past, &f, &e1);
        for (uint64_t off = 0; !r && off < size; off += step) {
            size_t n = size - off < step ? (size_t)(size - off) : step;
            r = read_chunks(&f, off, p + off, n, &e1);
        }
        if (close_object(d, id, &f, &r, &e1) && !tries) {
            continue;
        }
        if (r && e) {
            *e = e1;
        }
        return r;
    }
}

int disk_read_chunk(struct disk *d, uint32_t id, uint32_t chunk, uint8_t *p, size_t *n,
                    struct err *e)
{
    for (int tries = 0;; tries++) {
        struct open_file f;
        struct err e1 = {0};
        int r = open_object(d, id, false, &f, &e1);
        if (!r && chunk >= f.dg->n) {
            close_object(d, id, &f, &r, &e1);
            return err_set(e, ERR_ARG, "%s has no MiB %u", f.name, chunk);
        }
        if (!r) {
            *n = chunk_len(f.dg->size, chunk);
            r = read_chunks(&f, (uint64_t)chunk * CHUNK_SIZE, p, *n, &e1);
        }
        if (close_object(d, id, &f, &r, &e1) && !tries) {
            continue;
        }
        if (r && e) {
            *e = e1;
        }
        return r;
    }
}

/* Copy from a chunk verified a moment ago: rows of the embedding come from few chunks. */
static bool from_kept(struct disk *d, uint32_t id, uint32_t chunk, size_t off, void *p, size_t n)
{
    bool hit = false;
    pthread_mutex_lock(&d->mu);
    for (int i = 0; i < DISK_CHUNKS_KEPT && !hit; i++) {
        struct disk_kept *k = &d->kept[i];
        if (k->p && k->id == id && k->chunk == chunk) {
            memcpy(p, k->p + off, n);
            k->used = ++d->kept_tick;
            hit = true;
        }
    }
    pthread_mutex_unlock(&d->mu);
    return hit;
}

static void keep(struct disk *d, uint32_t id, uint32_t chunk, uint8_t *p)
{
    pthread_mutex_lock(&d->mu);
    struct disk_kept *old = &d->kept[0];
    for (int i = 1; i < DISK_CHUNKS_KEPT; i++) {
        if (d->kept[i].used < old->used) {
            old = &d->kept[i];
        }
    }
    free(old->p);
    *old = (struct disk_kept){p, id, chunk, ++d->kept_tick};
    pthread_mutex_unlock(&d->mu);
}

/* One chunk, kept for the next bytes of it. */
static int fetch_chunk(struct disk *d, uint32_t id, uint32_t i, size_t at, void *out, size_t k,
                       struct err *e)
{
    size_t n;
    uint8_t *b = malloc(CHUNK_SIZE);
    if (!b) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = disk_read_chunk(d, id, i, b, &n, e);
    if (r) {
        free(b);
        return r;
    }
    memcpy(out, b + at, k);
    keep(d, id, i, b);
    return 0;
}

int disk_read_part(struct disk *d, uint32_t id, uint64_t off, void *p, size_t n, struct err *e)
{
    uint64_t size = model_object(d->o.m, id)->size;
    uint8_t *out = p;
    int r = 0;
    while (n && !r) {
        uint32_t i = (uint32_t)(off / CHUNK_SIZE);
        size_t at = (size_t)(off % CHUNK_SIZE), len = chunk_len(size, i);
        size_t k = n < len - at ? n : len - at;
        if (!from_kept(d, id, i, at, out, k)) {
            r = fetch_chunk(d, id, i, at, out, k, e);
        }
        out += k;
        off += k;
        n -= k;
    }
    return r;
}
