/* SPDX-License-Identifier: MIT
 * at_rest_verify.c: see at_rest.h: is everything in a cache right? */
#include "node/store/at_rest.h"

#include "node/store/disk_inner.h"
#include "node/store/journal.h"
#include "node/store/layout.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define JOURNAL_MAX ((size_t)256 << 20)

struct work {
    const struct rest_verify *o;
    struct rest_verified *out;
    struct disk *d;
    const struct model *m;
    uint8_t *in_journal; /* [objects] */
    uint8_t *read;       /* [objects]: with deep, read as a whole already */
    uint64_t total;
};

static void found(struct work *w, uint32_t id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void found(struct work *w, uint32_t id, const char *fmt, ...)
{
    char line[1300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    w->out->faults++;
    w->out->damaged += id != MODEL_NONE;
    w->o->found(w->o->ctx, id, line);
}

/* What opening the cache had to repair. */
static void opened(void *ctx, const char *line)
{
    struct work *w = ctx;
    if (!w->d) {
        found(w, MODEL_NONE, "%s", line);
    }
}

/* ---- names ---- */

static int count_names(const char *dir, int depth)
{
    DIR *d = opendir(dir);
    struct dirent *x;
    int n = 0;
    while (d && (x = readdir(d))) {
        char *p = x->d_name[0] == '.' ? NULL : layout_path("%s/%s", dir, x->d_name);
        struct stat st;
        if (p && !lstat(p, &st)) {
            n += S_ISDIR(st.st_mode) && depth > 0 ? count_names(p, depth - 1) : 1;
        }
        free(p);
    }
    if (d) {
        closedir(d);
    }
    return n;
}

/* Files below experts and spine that are no objects. */
static void names(struct work *w)
{
    static const char *const below[] = {"experts", "spine"};
    int files = 0, objects = 0;
    for (int i = 0; i < 2; i++) {
        char *p = layout_path("%s/%s", disk_path(w->d), below[i]);
        files += p ? count_names(p, 1) : 0;
        free(p);
    }
    for (uint32_t id = 0; id < model_object_count(w->m); id++) {
        char *p = layout_object(disk_path(w->d), w->m, id);
        char *packed = packed_path(disk_path(w->d), w->m, id);
        struct stat st;
        objects += p && !lstat(p, &st);
        objects += packed && packed_may(model_object(w->m, id)) && !lstat(packed, &st);
        free(packed);
        free(p);
    }
    if (files > objects) {
        found(
            w, MODEL_NONE,
            "%d files below %s are no objects of the model: nothing uses them, they can be removed",
            files - objects, disk_path(w->d));
    }
}

/* ---- sizes ---- */

static void sizes(struct work *w)
{
    for (uint32_t id = 0; id < model_object_count(w->m); id++) {
        pthread_mutex_lock(&w->d->mu);
        const struct disk_item *it = &w->d->it[id];
        bool own = it->own, lent = !own && it->lent && it->seen;
        uint64_t whole = model_object(w->m, id)->size,
                 size = own ? disk_own_bytes(w->d, id) : whole;
        char name[128], *p = own ? disk_own_path(w->d, id) : NULL;
        pthread_mutex_unlock(&w->d->mu);
        struct stat st;
        if (own && p && (stat(p, &st) != 0 || (uint64_t)st.st_size != size)) {
            found(w, id, "%s: %s has not its %llu bytes",
                  model_object_name(w->m, id, name, sizeof name), p, (unsigned long long)size);
            disk_forget(w->d, id, p);
        } else if (own) {
            w->out->objects++;
            w->out->bytes += size;
            w->total += w->read[id] ? 0 : whole;
        } else if (lent) {
            w->out->lent++;
            w->out->lent_bytes += size;
            w->total += w->read[id] ? 0 : size;
        }
        free(p);
    }
}

/* ---- the journal ---- */

static int take(void *ctx, uint32_t id, struct digest *dg)
{
    struct work *w = ctx;
    if (id < model_object_count(w->m)) {
        const struct digest *now = disk_digest_of(w->d, id);
        w->in_journal[id] = now && digest_equal(now, dg) && now->source == dg->source;
    }
    free(dg);
    return 0;
}

/* All that is on record, in place of a journal with damage in it. What another process appends at
 * this moment is in the catalog all the same, and added by the next look. */
static int write_journal(struct work *w, const char *cache_dir, struct err *e)
{
    struct buf b;
    int r = 0;
    buf_init(&b, JOURNAL_MAX);
    for (uint32_t id = 0; !r && id < model_object_count(w->m); id++) {
        const struct digest *dg = disk_digest_of(w->d, id);
        r = dg ? journal_record(&b, id, dg) : 0;
    }
    int lock = r ? -1 : layout_lock(cache_dir, e);
    r = r          ? err_set(e, r, "the digest journal: %s", err_text(r))
        : lock < 0 ? ERR_IO
                   : file_write_atomic(w->d->journal, b.p ? b.p : "", b.n, 0600, e);
    layout_unlock(lock);
    buf_free(&b);
    return r;
}

/* Every digest on record is to be in the journal too, from which a lost catalog comes back. */
static int journal(struct work *w, const char *cache_dir, struct err *e)
{
    uint64_t skipped = 0, missing = 0;
    struct buf b;
    buf_init(&b, JOURNAL_MAX);
    int r = journal_read(w->d->journal, take, w, &skipped, e);
    for (uint32_t id = 0; !r && id < model_object_count(w->m); id++) {
        const struct digest *dg = disk_digest_of(w->d, id);
        if (dg && dg->source != DIGEST_TAKEN_BACK && !w->in_journal[id]) {
            missing++;
            r = journal_record(&b, id, dg) ? err_set(e, ERR_NOMEM, "out of memory") : 0;
        }
    }
    bool closed = w->d->closed != LAYOUT_OPEN;
    if (!r && skipped) {
        found(w, MODEL_NONE, "%llu bytes of %s are damaged%s", (unsigned long long)skipped,
              w->d->journal, closed ? "" : ": it is written anew");
        r = closed ? 0 : write_journal(w, cache_dir, e);
    }
    if (!r && missing && closed) {
        found(w, MODEL_NONE, "%llu digests are missing in %s", (unsigned long long)missing,
              w->d->journal);
    } else if (!r && missing) {
        found(w, MODEL_NONE, "%llu digests were missing in %s: added from the catalog",
              (unsigned long long)missing, w->d->journal);
        r = skipped ? 0 : journal_append(w->d->journal, &b, e);
        w->out->journal_added = missing;
    }
    buf_free(&b);
    return r;
}

/* ---- bytes ---- */

static bool go_on(struct work *w)
{
    w->out->stopped = w->out->stopped ||
                      (w->o->progress && w->o->progress(w->o->ctx, w->out->read_bytes, w->total));
    return !w->out->stopped;
}

/* What was never looked at: own files without a digest, and what adopted folders offer. */
static void look_all(struct work *w)
{
    for (uint32_t id = disk_look_next(w->d, 0); id != MODEL_NONE; id = disk_look_next(w->d, id)) {
        w->total += model_object(w->m, id++)->size;
    }
    for (uint32_t id = disk_look_next(w->d, 0); id != MODEL_NONE && go_on(w);
         id = disk_look_next(w->d, id)) {
        struct err e = {0};
        bool own = w->d->it[id].orphan;
        int r = disk_look_at(w->d, id, NULL, &e);
        if (r) {
            found(w, own ? id : MODEL_NONE, "%s", e.msg);
        } else {
            w->read[id] = 1;
        }
        w->out->read_bytes += model_object(w->m, id++)->size;
    }
    w->total = w->out->read_bytes; /* sizes() adds what is there, read_all what is yet to read */
}

static void read_all(struct work *w)
{
    for (uint32_t id = 0; id < model_object_count(w->m) && go_on(w); id++) {
        const struct digest *dg = disk_digest_of(w->d, id);
        if (w->read[id]) {
            continue;
        }
        struct err e = {0};
        int r = 0;
        for (uint32_t i = 0; disk_has(w->d, id) && i < dg->n && !r && go_on(w); i++) {
            r = disk_check_chunk(w->d, id, i, &e);
            w->out->read_bytes += chunk_len(dg->size, i);
        }
        if (r == ERR_OFFLINE) {
            found(w, MODEL_NONE, "%s", e.msg);
        } else if (r && r != ERR_BUSY && r != ERR_NOMEM) {
            found(w, id, "%s", e.msg);
        } else if (r) {
            found(w, MODEL_NONE, "not looked at: %s", e.msg);
        }
    }
}

int rest_verify(const char *cache_dir, const struct rest_model *x, const struct rest_verify *o,
                struct rest_verified *out, struct err *e)
{
    struct work w = {.o = o, .out = out, .m = x->m};
    struct disk_opts d = {.cache_dir = cache_dir, .m = x->m, .log = opened, .log_ctx = &w};
    memset(out, 0, sizeof *out);
    struct disk *disk = NULL;
    int r = disk_open(&d, &disk, e);
    if (r) {
        return r;
    }
    w.d = disk;
    w.in_journal = calloc(model_object_count(x->m) + 1, 1);
    w.read = calloc(model_object_count(x->m) + 1, 1);
    r = w.in_journal && w.read ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    if (!r && o->deep) {
        look_all(&w);
    }
    if (!r) {
        names(&w);
        sizes(&w);
        r = journal(&w, cache_dir, e);
    }
    if (!r && o->deep) {
        read_all(&w);
    }
    free(w.in_journal);
    free(w.read);
    disk_close(disk);
    return r ? r : out->stopped ? err_set(e, ERR_CANCELLED, "stopped") : 0;
}
