/* SPDX-License-Identifier: MIT
 * disk_write.c: see disk.h: receiving an object chunk by chunk, and publishing. */
#include "node/store/disk_inner.h"

#include "node/store/journal.h"
#include "node/store/layout.h"
#include "node/store/uncached.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOURNAL_BATCH ((size_t)64 << 20)

static void unreserve(struct disk *d, struct disk_file *f)
{
    pthread_mutex_lock(&d->mu);
    d->reserved -= f->reserved;
    pthread_mutex_unlock(&d->mu);
    f->reserved = 0;
}

void disk_free(struct disk *d, struct disk_file *f)
{
    if (!f) {
        return;
    }
    if (f->fd >= 0) {
        close(f->fd);
    }
    if (f->rec_fd >= 0) {
        close(f->rec_fd);
    }
    unreserve(d, f);
    free(f->sums);
    free(f->proven);
    free(f->digest);
    free(f);
}

/* The chunks of an unfinished file that are proven good. */
static void take_up(struct disk *d, struct disk_file *f, const char *part, uint8_t *ram)
{
    uint64_t size = model_object(d->o.m, f->id)->size;
    uint32_t n = chunk_count(size);
    uint8_t rec[SESSION_RECORD], *own = ram ? NULL : malloc(CHUNK_SIZE);
    struct err e;
    while (f->done < n && (ram || own)) {
        uint8_t *p = ram ? ram + (size_t)f->done * CHUNK_SIZE : own;
        size_t len = chunk_len(size, f->done);
        struct chunk_sum *s = &f->sums[f->done];
        if (pread(f->rec_fd, rec, sizeof rec, (off_t)f->done * (off_t)sizeof rec) !=
                (ssize_t)sizeof rec ||
            !session_get_record(rec, f->done, s) ||
            file_pread(f->fd, part, p, len, (uint64_t)f->done * CHUNK_SIZE, &e) ||
            chunk_xxh(p, len) != s->xxh) {
            break;
        }
        f->done++;
    }
    free(own);
    /* what lies behind is of no use */
    if (ftruncate(f->rec_fd, (off_t)f->done * (off_t)sizeof rec) != 0 ||
        ftruncate(f->fd, (off_t)f->done * (off_t)CHUNK_SIZE) != 0) {
        f->done = f->done < n ? f->done : 0;
    }
    if (f->done == n && ftruncate(f->fd, (off_t)size) != 0) {
        f->done = 0;
    }
}

/* Which chunks have a record; their bytes are looked at when they are used. */
static void read_records(struct disk_file *f, uint32_t n)
{
    uint8_t rec[SESSION_RECORD];
    for (uint32_t i = 0; i < n; i++) {
        if (pread(f->rec_fd, rec, sizeof rec, (off_t)i * (off_t)sizeof rec) !=
            (ssize_t)sizeof rec) {
            return;
        }
        if (session_get_record(rec, i, &f->sums[i])) {
            f->proven[i / 8] |= (uint8_t)(1u << i % 8);
        }
    }
}

static int begin(struct disk *d, uint32_t id, bool loose, bool second, uint8_t *ram,
                 struct disk_file **out, struct err *e)
{
    *out = NULL;
    uint64_t size = model_object(d->o.m, id)->size;
    uint32_t n = chunk_count(size);
    struct err e1 = {0};
    if (disk_closed(d, true, &e1)) {
        return err_set(e, ERR_FULL, "%s", e1.msg);
    }
    struct disk_file *f = calloc(1, sizeof *f);
    if (f) {
        f->fd = f->rec_fd = -1;
        f->id = id;
        f->sums = calloc(n ? n : 1, sizeof *f->sums);
        f->proven = calloc(n / 8 + 1, 1);
    }
    char *part = session_part(d->session, id), *rec = session_rec(d->session, id);
    int r = 0;
    if (!f || !f->sums || !f->proven || !part || !rec) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    bool partial = false;
    if (!r) {
        pthread_mutex_lock(&d->mu);
        struct disk_item *it = &d->it[id];
        partial = it->partial;
        it->partial = false;
        d->partial_bytes -= it->partial_bytes;
        it->partial_bytes = 0;
        d->n_stale -= it->litter; /* it is begun anew */
        it->litter = false;
        r = disk_room(d, id, size, second, e);
        if (!r) {
            f->reserved = size;
        }
        pthread_mutex_unlock(&d->mu);
    }
    if (!r) {
        int flags = O_RDWR | O_CREAT | O_CLOEXEC | (partial ? 0 : O_TRUNC);
        f->fd = open(part, flags, 0600);
        if (f->fd < 0) {
            r = err_sys(e, errno, "cannot create %s", part);
        } else {
            f->rec_fd = open(rec, flags, 0600);
            if (f->rec_fd < 0) {
                r = err_sys(e, errno, "cannot create %s", rec);
            }
        }
    }
    if (!r && partial && loose) {
        read_records(f, n);
    } else if (!r && partial) {
        take_up(d, f, part, ram);
    }
    if (r && f) {
        disk_unfinished(d, id);
        disk_free(d, f);
        f = NULL;
    }
    if (r && !f) {
        free(part);
        free(rec);
        return r;
    }
    free(part);
    free(rec);
    *out = f;
    return 0;
}

int disk_begin(struct disk *d, uint32_t id, uint8_t *ram, struct disk_file **out, struct err *e)
{
    return begin(d, id, false, false, ram, out, e);
}

int disk_begin_second(struct disk *d, uint32_t id, struct disk_file **out, struct err *e)
{
    return begin(d, id, false, true, NULL, out, e);
}

int disk_begin_loose(struct disk *d, uint32_t id, bool second, struct disk_file **out,
                     struct err *e)
{
    return begin(d, id, true, second, NULL, out, e);
}

static bool has_record(const struct disk_file *f, uint32_t i)
{
    return f->proven[i / 8] >> i % 8 & 1;
}

static int put_record(struct disk_file *f, uint32_t i, const struct chunk_sum *s, const char *name,
                      struct err *e)
{
    uint8_t rec[SESSION_RECORD] = {0}, bit = (uint8_t)(1u << i % 8);
    if (s) {
        session_put_record(rec, i, s);
    }
    f->proven[i / 8] = (uint8_t)(s ? f->proven[i / 8] | bit : f->proven[i / 8] & ~bit);
    return file_pwrite(f->rec_fd, name, rec, sizeof rec, (uint64_t)i * sizeof rec, e);
}

int disk_chunk_at(struct disk *d, struct disk_file *f, uint32_t chunk, const void *p, size_t n,
                  const struct chunk_sum *s, bool proven, struct err *e)
{
    char *part = session_part(d->session, f->id);
    if (!part) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    /* no record stands beside bytes that are not its own, at no time */
    int r = has_record(f, chunk) ? put_record(f, chunk, NULL, part, e) : 0;
    if (!r) {
        r = file_pwrite(f->fd, part, p, n, (uint64_t)chunk * CHUNK_SIZE, e);
    }
    if (!r && proven) {
        r = put_record(f, chunk, s, part, e);
    }
    free(part);
    if (!r) {
        f->sums[chunk] = *s;
        disk_wrote(d, n + (proven ? SESSION_RECORD : 0));
    }
    return r;
}

int disk_part(const struct disk_file *f, uint64_t off, void *p, size_t n, struct err *e)
{
    return file_pread(f->fd, "an unfinished file", p, n, off, e);
}

bool disk_proven(struct disk *d, struct disk_file *f, uint32_t chunk, uint8_t *p,
                 uint8_t sha[SHA256_SIZE])
{
    size_t n = chunk_len(model_object(d->o.m, f->id)->size, chunk);
    struct err e;
    if (!has_record(f, chunk) ||
        file_pread(f->fd, "an unfinished file", p, n, (uint64_t)chunk * CHUNK_SIZE, &e) ||
        chunk_xxh(p, n) != f->sums[chunk].xxh) {
        return false;
    }
    sha256(p, n, sha);
    return memcmp(sha, f->sums[chunk].sha, SHA256_SIZE) == 0;
}

int disk_chunk(struct disk *d, struct disk_file *f, const void *p, size_t n,
               const struct chunk_sum *s, struct err *e)
{
    char *part = session_part(d->session, f->id);
    if (!part) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = file_pwrite(f->fd, part, p, n, (uint64_t)f->done * CHUNK_SIZE, e);
    if (!r && f->rec_fd >= 0) {
        uint8_t rec[SESSION_RECORD];
        session_put_record(rec, f->done, s);
        r = file_pwrite(f->rec_fd, part, rec, sizeof rec, (uint64_t)f->done * sizeof rec, e);
    }
    free(part);
    if (!r) {
        f->sums[f->done++] = *s;
        disk_wrote(d, n + (f->rec_fd >= 0 ? SESSION_RECORD : 0));
    }
    return r;
}

/* ---- digests ---- */

/* The digest on record, if it says something else, gives way to one that rests on more. */
int disk_compare(struct disk *d, uint32_t id, struct digest *dg, struct err *e)
{
    int r = disk_judge(d, id, dg, e);
    const struct digest *old = disk_digest_of(d, id);
    char name[128];
    model_object_name(d->o.m, id, name, sizeof name);
    if (r) {
        return r;
    }
    if (!old || old->source == DIGEST_TAKEN_BACK) {
        return 0;
    }
    if (digest_equal(old, dg)) {
        if (digest_basis(old) > digest_basis(dg)) {
            dg->source = old->source;
            dg->rests = old->rests;
        }
        return 0;
    }
    if (digest_basis(dg) > digest_basis(old)) {
        disk_log(d,
                 "%s: what the cache held of it rested on less and has other bytes; it is replaced",
                 name);
        disk_remove(d, id);
        return 0;
    }
    if (digest_basis(dg) < BASIS_ORIGIN) {
        return err_set(e, ERR_DIGEST,
                       "%s: peers give other bytes than those that are on record for it here",
                       name);
    }
    return err_set(e, ERR_DIGEST,
                   "%s: the origin now gives other bytes than when it was first fetched; if its "
                   "files were replaced on purpose, remove %s and start again",
                   name, d->dir);
}

int disk_digest(struct disk *d, struct disk_file *f, enum basis b, struct err *e)
{
    f->digest = digest_make(model_object(d->o.m, f->id)->size, f->sums, digest_source_of(b));
    if (!f->digest) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    f->digest->rests = b < BASIS_ORIGIN ? f->rests : 0;
    return disk_compare(d, f->id, f->digest, e);
}

int disk_digest_again(struct disk *d, struct disk_file *f, struct err *e)
{
    const struct digest *old = disk_digest_of(d, f->id);
    f->digest = digest_make(model_object(d->o.m, f->id)->size, f->sums, DIGEST_UNKNOWN);
    if (!f->digest) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    if (!old || old->source == DIGEST_TAKEN_BACK || !digest_equal(old, f->digest)) {
        char name[128];
        return err_set(e, ERR_DIGEST, "%s: what is in memory is not what is on record",
                       model_object_name(d->o.m, f->id, name, sizeof name));
    }
    f->digest->source = old->source;
    f->digest->rests = old->rests;
    return 0;
}

int disk_check(struct disk *d, uint32_t id, const struct chunk_sum *sums, enum basis b,
               uint32_t *source, uint64_t *rests, struct err *e)
{
    struct digest *dg = digest_make(model_object(d->o.m, id)->size, sums, digest_source_of(b));
    if (dg) {
        dg->rests = b < BASIS_ORIGIN ? *rests : 0;
    }
    int r = dg ? disk_compare(d, id, dg, e) : err_set(e, ERR_NOMEM, "out of memory");
    if (!r) {
        *source = dg->source;
        *rests = dg->rests;
    }
    free(dg);
    return r;
}

/* ---- publishing ---- */

/* Digests into journal and catalog, before any file gets its name. */
static int record(struct disk *d, struct disk_file *list, struct err *e)
{
    size_t n = 0, k = 0;
    for (struct disk_file *f = list; f; f = f->next) {
        n += f->result == 0;
    }
    if (!n) {
        return 0;
    }
    struct catalog_row *rows = calloc(n, sizeof *rows);
    struct disk_file **of = calloc(n, sizeof *of);
    struct buf b;
    buf_init(&b, JOURNAL_BATCH);
    int r = rows && of ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    for (struct disk_file *f = list; f && !r; f = f->next) {
        if (f->result) {
            continue;
        }
        pthread_mutex_lock(&d->mu);
        const struct disk_item *it = &d->it[f->id];
        bool known = !d->was_closed && it->digest && it->digest->source != DIGEST_TAKEN_BACK &&
                     !digest_beats(f->digest, it->digest);
        rows[k] = (struct catalog_row){.id = f->id, .d = f->digest, .last_use = it->last_use};
        pthread_mutex_unlock(&d->mu);
        of[k++] = f;
        if (!known && journal_record(&b, f->id, f->digest)) {
            r = err_set(e, ERR_NOMEM, "out of memory");
        }
    }
    if (!r && b.n) {
        r = journal_append(d->journal, &b, e);
        disk_wrote(d, b.n);
    }
    if (!r) {
        r = catalog_add(d->cat, d->model_no, rows, k, e);
    }
    for (size_t i = 0; i < k && !r; i++) {
        of[i]->result = rows[i].result;
        if (rows[i].result) {
            char name[128];
            disk_log(d,
                     "%s: another process has recorded other bytes for it; this copy is not kept",
                     model_object_name(d->o.m, of[i]->id, name, sizeof name));
        }
    }
    free(rows);
    free(of);
    buf_free(&b);
    return r;
}

/* The bad file in its place, if there is one, is about to be replaced. */
static void not_stale(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    d->n_stale -= d->it[id].stale;
    d->it[id].stale = false;
    pthread_mutex_unlock(&d->mu);
}

static int give_name(struct disk *d, struct disk_file *f, struct err *e)
{
    not_stale(d, f->id);
    char *part = session_part(d->session, f->id), *to = layout_object(d->dir, d->o.m, f->id);
    int r = part && to ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    if (!r && rename(part, to) != 0) {
        if (errno == ENOENT) { /* the first of its folder */
            char *slash = strrchr(to, '/');
            *slash = 0;
            r = file_mkdirs(to, e);
            *slash = '/';
        }
        if (!r && rename(part, to) != 0) {
            r = err_sys(e, errno, "cannot rename %s to %s", part, to);
        }
    }
    if (!r) {
        disk_form_published(d, f->id);
    }
    free(part);
    free(to);
    return r;
}

/* Sync each folder that got a file, once. */
static void sync_dirs(struct disk *d, struct disk_file *list)
{
    char *last = NULL;
    struct err e;
    for (struct disk_file *f = list; f; f = f->next) {
        char *p = f->result ? NULL : layout_object(d->dir, d->o.m, f->id);
        char *slash = p ? strrchr(p, '/') : NULL;
        size_t n = slash ? (size_t)(slash - p) : 0;
        if (p && !(last && strncmp(last, p, n) == 0 && last[n] == '/')) {
            file_order_dir_of(p, &e); /* at worst the file is fetched again after a power loss */
        }
        if (p) {
            free(last);
            last = p;
        }
    }
    free(last);
}

int disk_publish(struct disk *d, struct disk_file *list, struct err *e)
{
    int first = 0;
    struct err e1 = {0};
    for (struct disk_file *f = list; f; f = f->next) {
        f->result = file_sync(f->fd, "a file of the cache", &e1);
        if (!f->result && d->uncached) {
            uncached_forget(f->fd);
        }
        if (f->result && !first) {
            first = f->result;
            *e = e1;
        }
    }
    int r = record(d, list, &e1);
    if (r && !first) {
        first = r;
        *e = e1;
    }
    for (struct disk_file *f = list; f; f = f->next) {
        if (r && !f->result) {
            f->result = r;
        }
        if (!f->result) {
            f->result = give_name(d, f, &e1);
            if (f->result && !first) {
                first = f->result;
                *e = e1;
            }
        }
        disk_unfinished(d, f->id); /* the record, and the file where it got no name */
        if (f->result) {
            unreserve(d, f);
        } else { /* at no moment its room is nobody's */
            pthread_mutex_lock(&d->mu);
            d->reserved -= f->reserved;
            f->reserved = 0;
            struct disk_item *it = &d->it[f->id];
            if (!it->digest || digest_beats(f->digest, it->digest)) {
                disk_set_digest(d, f->id, f->digest);
                f->digest = NULL;
            }
            disk_set_own(d, f->id, true);
            pthread_mutex_unlock(&d->mu);
        }
    }
    sync_dirs(d, list);
    return first;
}

void disk_abandon(struct disk *d, struct disk_file *f, bool keep)
{
    if (!f) {
        return;
    }
    uint32_t id = f->id, n = chunk_count(model_object(d->o.m, id)->size), kept = f->done;
    for (uint32_t i = f->done; i < n; i++) {
        kept += has_record(f, i);
    }
    disk_free(d, f);
    if (keep && kept) {
        pthread_mutex_lock(&d->mu);
        struct disk_item *it = &d->it[id];
        it->partial = true;
        it->partial_bytes = (uint64_t)kept * CHUNK_SIZE;
        d->partial_bytes += it->partial_bytes;
        pthread_mutex_unlock(&d->mu);
    } else {
        disk_unfinished(d, id);
    }
}
