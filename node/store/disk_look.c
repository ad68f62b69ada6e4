/* SPDX-License-Identifier: MIT
 * disk_look.c: see disk_adopt.h: bytes that nobody here has received: what an adopted folder
 * offers, and own files without a digest. Read once, digests computed, compared with what is known,
 * recorded. */
#include "node/store/disk_inner.h"
#include "node/store/journal.h"
#include "node/store/layout.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOURNAL_BATCH ((size_t)64 << 20)

int disk_record(struct disk *d, struct catalog_row *rows, size_t n, struct err *e)
{
    struct buf b;
    struct err why;
    int r = 0;
    if (disk_closed(d, true, &why)) { /* it counts for this process alone */
        return 0;
    }
    buf_init(&b, JOURNAL_BATCH);
    pthread_mutex_lock(&d->mu);
    for (size_t i = 0; i < n; i++) {
        rows[i].last_use = d->it[rows[i].id].last_use;
    }
    pthread_mutex_unlock(&d->mu);
    for (size_t i = 0; i < n && !r; i++) {
        r = journal_record(&b, rows[i].id, rows[i].d);
    }
    r = r ? err_set(e, r, "the digest journal: %s", err_text(r))
          : journal_append(d->journal, &b, e);
    r = r ? r : catalog_add(d->cat, d->model_no, rows, n, e);
    buf_free(&b);
    return r;
}

/* ---- what is known of the bytes ---- */

/* A digest that nobody vouches for against what others say: it takes over what that rests on. */
static int judge_unknown(struct disk *d, uint32_t id, struct digest *dg, struct err *e)
{
    const struct digest *old = disk_digest_of(d, id);
    bool back = old && old->source == DIGEST_TAKEN_BACK;
    char name[128];
    model_object_name(d->o.m, id, name, sizeof name);
    if (old && !back) {
        if (!digest_equal(old, dg)) {
            return err_set(e, ERR_DIGEST, "%s has other bytes there than on record here", name);
        }
        dg->source = old->source;
        dg->rests = old->rests;
        return 0;
    }
    struct book_says s;
    uint64_t against, agree = book_agree(d->book, id, dg->sha, &against);
    book_says(d->book, id, &s);
    if (s.basis == BASIS_MANIFEST) {
        if (memcmp(s.digest, dg->sha, SHA256_SIZE) != 0) {
            return err_set(e, ERR_DIGEST,
                           "%s has other bytes there than the imported manifest says", name);
        }
        dg->source = DIGEST_MANIFEST;
        return 0;
    }
    int yes = __builtin_popcountll(agree), no = __builtin_popcountll(against);
    if (no >= yes && (no || (back && !memcmp(old->sha, dg->sha, SHA256_SIZE)))) {
        return err_set(e, ERR_DIGEST, "%s has other bytes there than members state", name);
    }
    if (yes) {
        dg->source = yes > 1 ? DIGEST_TWO_MEMBERS : DIGEST_ONE_MEMBER;
        dg->rests = agree;
    }
    return 0;
}

int adopt_judge(struct disk *d, uint32_t id, struct digest *dg, struct err *e)
{
    return dg->source == DIGEST_ORIGIN ? disk_compare(d, id, dg, e) : judge_unknown(d, id, dg, e);
}

/* With mu: dg, which has been recorded, is on record from now on; NULL when it was taken. */
static void on_record(struct disk *d, uint32_t id, struct digest **dg)
{
    const struct digest *old = d->it[id].digest;
    if (!old || old->source == DIGEST_TAKEN_BACK || digest_beats(*dg, old)) {
        disk_set_digest(d, id, *dg);
        *dg = NULL;
    }
}

static bool is_news(struct disk *d, uint32_t id, const struct digest *dg)
{
    const struct digest *old = disk_digest_of(d, id);
    return !old || old->source == DIGEST_TAKEN_BACK || digest_beats(dg, old);
}

/* ---- one object ---- */

bool disk_offers(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    const struct disk_item *it = &d->it[id];
    bool r = !it->present && ((it->lent && !it->seen && !it->refused) || it->orphan);
    pthread_mutex_unlock(&d->mu);
    return r;
}

/* Of a packed file of the cache, the object's bytes. */
static int read_packed(int fd, const struct adopt_place *at, uint64_t size, uint8_t *p,
                       struct chunk_sum *sums, struct err *e)
{
    struct uncached u = {.fd = fd};
    struct packed pk = {.at = NULL};
    struct stat st;
    uint8_t *own = p ? NULL : malloc(CHUNK_SIZE);
    int r = !p && !own            ? err_set(e, ERR_NOMEM, "out of memory")
            : fstat(fd, &st) != 0 ? err_sys(e, errno, "%s", at->path)
                                  : packed_open(&pk, &u, at->path, size, (uint64_t)st.st_size, e);
    for (uint32_t i = 0; !r && i < chunk_count(size); i++) {
        uint8_t *c = p ? p + (size_t)i * CHUNK_SIZE : own;
        size_t n = chunk_len(size, i);
        r = packed_read(&pk, &u, at->path, (uint64_t)i * CHUNK_SIZE, c, n, e);
        if (!r) {
            chunk_sum(c, n, &sums[i]);
        }
    }
    packed_close(&pk);
    free(own);
    return r;
}

/* Fills sums; p (the whole object) or a buffer of its own. */
static int read_sums(struct disk *d, uint32_t id, int fd, const struct adopt_place *at, uint8_t *p,
                     struct chunk_sum *sums, struct err *e)
{
    uint64_t size = model_object(d->o.m, id)->size;
    if (at->packed) {
        return read_packed(fd, at, size, p, sums, e);
    }
    uint8_t *own = p ? NULL : malloc(CHUNK_SIZE);
    int r = p || own ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; !r && i < chunk_count(size); i++) {
        uint8_t *c = p ? p + (size_t)i * CHUNK_SIZE : own;
        size_t n = chunk_len(size, i);
        r = file_pread(fd, at->path, c, n, at->at + (uint64_t)i * CHUNK_SIZE, e);
        if (!r) {
            chunk_sum(c, n, &sums[i]);
        }
    }
    free(own);
    return r;
}

/* The file is what it was said to be, and what it is: *file. */
static int check_file(struct disk *d, uint32_t id, int fd, const struct adopt_place *at,
                      struct looked_file *file, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return err_sys(e, errno, "%s", at->path);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(e, ERR_FORMAT, "%s is no plain file", at->path);
    }
    adopt_file_of(&st, file);
    if (at->want.size && !adopt_same_file(file, &at->want)) {
        return err_set(e, ERR_NOTFOUND, "%s is another file than a moment ago", at->path);
    }
    if (!at->shard && !at->packed && file->size != model_object(d->o.m, id)->size) {
        return err_set(e, ERR_DIGEST, "%s has %llu bytes instead of %llu", at->path,
                       (unsigned long long)file->size,
                       (unsigned long long)model_object(d->o.m, id)->size);
    }
    return 0;
}

/* An own file without a digest that is no good. */
static int own_trouble(struct disk *d, uint32_t id, const char *path, int code)
{
    if (code != ERR_BUSY && code != ERR_NOMEM) {
        disk_forget(d, id, path);
    }
    return code;
}

static int record_one(struct disk *d, uint32_t id, const struct adopt_place *at,
                      const struct looked_file *file, struct digest **dg, struct err *e)
{
    struct catalog_row row = {.id = id, .d = *dg};
    struct looked l = {id, *file, num_get_le64((*dg)->sha)};
    int r = is_news(d, id, *dg) ? disk_record(d, &row, 1, e) : 0;
    if (!r && row.result) {
        r = err_set(e, row.result, "another process has recorded other bytes of it");
    }
    struct err e1 = {0};
    if (!r && at->folder && !disk_closed(d, false, &e1) &&
        catalog_looked_add(d->cat, d->model_no, at->folder->key, &l, 1, &e1)) {
        disk_log(d, "%s: it will be read again after the next start", e1.msg);
    }
    return r;
}

int disk_look_at(struct disk *d, uint32_t id, uint8_t *p, struct err *e)
{
    uint64_t size = model_object(d->o.m, id)->size;
    struct adopt_place at;
    struct looked_file file = {0}, after;
    struct err e1 = {0};
    char name[128];
    pthread_mutex_lock(&d->mu);
    bool ok = adopt_where(d, id, &at);
    uint32_t by = d->it[id].lent;
    bool right = ok && at.folder && at.shard &&
                 at.folder->pass[model_object(d->o.m, id)->shard] == PASS_RIGHT;
    pthread_mutex_unlock(&d->mu);
    struct chunk_sum *sums = calloc(chunk_count(size) + 1, sizeof *sums);
    struct digest *dg = NULL;
    int fd = -1;
    int r = ok && sums ? 0 : err_set(&e1, ERR_NOMEM, "out of memory");
    if (!r) {
        fd = file_open_read(at.path, O_NONBLOCK);
        r = fd < 0 ? err_sys(&e1, errno, "cannot open %s", at.path) : 0;
        r = r && (errno == EMFILE || errno == ENFILE) ? (e1.code = ERR_BUSY) : r;
    }
    r = r ? r : check_file(d, id, fd, &at, &file, &e1);
    r = r ? r : read_sums(d, id, fd, &at, p, sums, &e1);
    r = r ? r : check_file(d, id, fd, &at, &after, &e1);
    if (!r && !adopt_same_file(&file, &after)) {
        r = err_set(&e1, ERR_NOTFOUND, "%s is being written", at.path);
    }
    if (!r) {
        dg = digest_make(size, sums, right ? DIGEST_ORIGIN : DIGEST_UNKNOWN);
        r = dg ? adopt_judge(d, id, dg, &e1) : err_set(&e1, ERR_NOMEM, "out of memory");
    }
    r = r ? r : record_one(d, id, &at, &file, &dg, &e1);
    if (!r) {
        pthread_mutex_lock(&d->mu);
        struct disk_item *it = &d->it[id];
        on_record(d, id, &dg);
        if (!at.folder) {
            disk_set_own(d, id, true);
        } else if (it->lent == by) {
            if (!at.shard) {
                at.folder->file[id] = file;
            }
            it->seen = true;
            it->refused = false;
            disk_refresh(d, id);
        }
        pthread_mutex_unlock(&d->mu);
    } else if (ok) {
        err_prefix(&e1, "%s", model_object_name(d->o.m, id, name, sizeof name));
        if (at.folder && r != ERR_NOMEM && r != ERR_BUSY && r != ERR_FULL) {
            at.want = at.want.size ? at.want : file;
            r = adopt_trouble(d, id, &at, &e1);
        } else if (!at.folder && r != ERR_FULL) {
            r = own_trouble(d, id, at.path, r);
        }
    }
    if (r && e) {
        *e = e1;
        e->code = r;
    }
    if (fd >= 0) {
        close(fd);
    }
    free(at.path);
    free(sums);
    free(dg);
    return r;
}

uint32_t disk_look_next(struct disk *d, uint32_t from)
{
    uint32_t found = MODEL_NONE;
    pthread_mutex_lock(&d->mu);
    for (uint32_t id = from; id < d->n && found == MODEL_NONE; id++) {
        const struct disk_item *it = &d->it[id];
        if (!it->own && ((it->lent && !it->seen && !it->refused) || it->orphan)) {
            found = id;
        }
    }
    pthread_mutex_unlock(&d->mu);
    return found;
}
