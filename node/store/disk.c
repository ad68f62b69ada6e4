/* SPDX-License-Identifier: MIT
 * disk.c: see disk.h: what is there, reading it verified, budget and eviction. Writing is in
 * disk_write.c. */
#include "node/store/disk.h"

#include "node/store/disk_inner.h"
#include "node/store/journal.h"
#include "node/store/layout.h"
#include "node/store/uncached.h"
#include "proto/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void disk_log(struct disk *d, const char *fmt, ...)
{
    if (d->o.log) {
        char line[1200];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        d->o.log(d->o.log_ctx, line);
    }
}

const char *disk_path(const struct disk *d)
{
    return d->dir;
}

uint64_t disk_used(struct disk *d)
{
    pthread_mutex_lock(&d->mu);
    uint64_t n = d->used;
    pthread_mutex_unlock(&d->mu);
    return n;
}

/* ---- opening ---- */

static int load_row(void *ctx, uint32_t id, struct digest *dg, uint64_t last_use)
{
    struct disk *d = ctx;
    struct digest *old = id < d->n ? d->it[id].digest : NULL;
    if (id >= d->n || dg->size != model_object(d->o.m, id)->size ||
        (old && !digest_beats(dg, old))) {
        free(dg);
        return 0;
    }
    free(old);
    d->it[id].digest = dg;
    d->it[id].last_use = last_use;
    if (last_use > d->tick) {
        d->tick = last_use;
    }
    return 0;
}

static int load_journal(void *ctx, uint32_t id, struct digest *dg)
{
    struct disk *d = ctx;
    if (dg->source == DIGEST_TAKEN_BACK) {
        if (id < d->n) {
            free(d->it[id].digest);
            d->it[id].digest = NULL;
            d->it[id].back = true;
        }
        free(dg);
        return 0;
    }
    if (id < d->n) {
        d->it[id].back = false;
    }
    return load_row(ctx, id, dg, 0);
}

/* The folder experts/LLL or spine/LLL that belongs to an object, once per folder: which of the
 * names in it are there. Sizes are checked by the read. */
static bool names_in(const char *dir, char ***names, size_t *n)
{
    *names = NULL;
    *n = 0;
    DIR *d = opendir(dir);
    if (!d) {
        return false;
    }
    struct dirent *x;
    size_t cap = 0;
    while ((x = readdir(d))) {
        if (*n == cap) {
            cap = cap ? cap * 2 : 64;
            char **t = realloc(*names, cap * sizeof *t);
            if (!t) {
                break;
            }
            *names = t;
        }
        (*names)[*n] = strdup(x->d_name);
        *n += (*names)[*n] != NULL;
    }
    closedir(d);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The packed file of an object: it comes before a plain one beside it. */
static int scan_packed(struct disk *d, uint32_t id, char **names, size_t n, struct err *e)
{
    char *p = packed_path(d->dir, d->o.m, id);
    struct stat st;
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    const char *key = strrchr(p, '/') + 1;
    if (n && bsearch(&key, names, n, sizeof *names, by_name) && stat(p, &st) == 0 && st.st_size) {
        d->it[id].packed = (uint64_t)st.st_size;
        d->it[id].found = true;
    }
    free(p);
    return 0;
}

/* Sets `found` for every object whose file exists; objects of a folder follow each other. */
static int scan(struct disk *d, struct err *e)
{
    char *dir = NULL, **names = NULL;
    size_t n = 0;
    int r = 0;
    for (uint32_t id = 0; id < d->n && !r; id++) {
        char *p = layout_object(d->dir, d->o.m, id);
        if (!p) {
            r = err_set(e, ERR_NOMEM, "out of memory");
            break;
        }
        char *slash = strrchr(p, '/');
        *slash = 0;
        if (!dir || strcmp(dir, p) != 0) {
            for (size_t i = 0; i < n; i++) {
                free(names[i]);
            }
            free(names);
            free(dir);
            dir = strdup(p);
            names_in(p, &names, &n);
            if (n) { /* qsort wants an array even for none */
                qsort(names, n, sizeof *names, by_name);
            }
        }
        const char *key = slash + 1;
        d->it[id].found = n && bsearch(&key, names, n, sizeof *names, by_name) != NULL;
        free(p);
        r = packed_may(model_object(d->o.m, id)) ? scan_packed(d, id, names, n, e) : 0;
    }
    for (size_t i = 0; i < n; i++) {
        free(names[i]);
    }
    free(names);
    free(dir);
    return r;
}

/* A file without a digest on record is looked at again before it is used (disk_look.c); one that
 * was taken back, and one of another size, go. */
static void settle(struct disk *d)
{
    for (uint32_t id = 0; id < d->n; id++) {
        struct disk_item *it = &d->it[id];
        if (it->found && it->digest) {
            disk_set_own(d, id, true);
            if (it->partial) { /* of an earlier time */
                it->partial = false;
                d->partial_bytes -= it->partial_bytes;
                it->partial_bytes = 0;
                disk_unfinished(d, id);
            }
        } else if (it->found) {
            char *p = disk_own_path(d, id);
            struct stat st;
            it->orphan = !it->back && p && stat(p, &st) == 0 &&
                         (uint64_t)st.st_size == disk_own_bytes(d, id);
            if (it->orphan) {
                d->used += disk_own_bytes(d, id);
                d->adopt.orphans++;
                disk_order_set(d, id);
            } else if (p && d->closed != LAYOUT_LOCKED) {
                unlink(p);
                it->packed = 0;
            }
            free(p);
        }
    }
    if (!d->closed) {
        disk_form_settle(d);
    }
    if (d->adopt.orphans) {
        disk_log(d,
                 "%u cached objects in %s have no digest on record: each is read and compared with "
                 "what is known before it is used",
                 d->adopt.orphans, d->dir);
    }
}

static int open_model(struct disk *d, struct err *e)
{
    char hex[2 * SHA256_SIZE + 1];
    sha256_hex(model_root(d->o.m), hex);
    int r = disk_prepare(d, hex, e);
    if (!r) {
        r = d->closed ? catalog_open_copy(d->o.cache_dir, d->o.log, d->o.log_ctx, &d->cat, e)
                      : catalog_open(d->o.cache_dir, d->o.log, d->o.log_ctx, &d->cat, e);
    }
    if (!r) {
        r = catalog_model(d->cat, hex, &d->model_no, e);
    }
    if (!r) {
        struct book_opts b = {d->o.m, d->cat, d->model_no, d->manifest, d->o.log, d->o.log_ctx};
        r = book_open(&b, &d->book, e);
    }
    uint64_t bad = 0;
    if (!r) {
        r = catalog_load(d->cat, d->model_no, load_row, d, &bad, e);
    }
    if (!r) {
        r = scan(d, e);
    }
    if (!r) {
        bool missing = false;
        for (uint32_t id = 0; id < d->n && !missing; id++) {
            missing = d->it[id].found && !d->it[id].digest;
        }
        if (missing || bad) { /* power loss or damage has taken rows: the journal may have them */
            uint64_t skipped;
            r = journal_read(d->journal, load_journal, d, &skipped, e);
        }
    }
    if (bad) {
        disk_log(d, "%llu damaged rows of the catalog were replaced from the digest journal",
                 (unsigned long long)bad);
    }
    return r;
}

/* What an opening that failed has left. */
static void open_undo(struct disk *d)
{
    session_close(d->session);
    book_close(d->book);
    catalog_close(d->cat);
    d->session = NULL;
    d->book = NULL;
    d->cat = NULL;
    for (uint32_t id = 0; id < d->n; id++) {
        free(d->it[id].digest);
    }
    memset(d->it, 0, d->n * sizeof *d->it);
    d->partial_bytes = 0;
}

int disk_open(const struct disk_opts *o, struct disk **out, struct err *e)
{
    *out = NULL;
    struct disk *d = calloc(1, sizeof *d);
    if (!d) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    d->o = *o;
    d->n = model_object_count(o->m);
    d->uncached =
        o->past_cache || uncached_wins(model_expert_bytes(o->m) + model_spine_bytes(o->m));
    d->it = calloc(d->n ? d->n : 1, sizeof *d->it);
    d->dir = layout_model_dir(o->cache_dir, model_root(o->m));
    d->journal = d->dir ? layout_path("%s/digests.log", d->dir) : NULL;
    d->manifest = d->dir ? layout_path("%s/manifest", d->dir) : NULL;
    d->quarantine_dir = d->dir ? layout_path("%s/quarantine", d->dir) : NULL;
    d->order = calloc(d->n ? d->n : 1, sizeof *d->order);
    if (!d->it || !d->order || !d->journal || !d->manifest || !d->quarantine_dir ||
        pthread_mutex_init(&d->mu, NULL) || pthread_mutex_init(&d->again, NULL)) {
        free(d->it);
        free(d->order);
        free(d->dir);
        free(d->journal);
        free(d->manifest);
        free(d->quarantine_dir);
        free(d);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = layout_prepare(o->cache_dir, e);
    if (!r) {
        r = open_model(d, e);
    }
    if (r && r != ERR_NOMEM && r != ERR_BUSY && disk_close_for_writing(d)) {
        open_undo(d);
        r = open_model(d, e);
    }
    if (r) {
        disk_close(d);
        return r;
    }
    settle(d);
    quarantine_look(d);
    d->o.taken_back = NULL; /* nothing is in RAM, and nobody listens yet */
    d->o.voided = NULL;
    disk_look_manifest(d);
    d->o.taken_back = o->taken_back;
    d->o.voided = o->voided;
    r = adopt_open(d, e);
    if (r) {
        disk_close(d);
        return r;
    }
    *out = d;
    return 0;
}

void disk_save_use(struct disk *d)
{
    uint32_t *ids = calloc(d->n ? d->n : 1, sizeof *ids);
    uint64_t *use = calloc(d->n ? d->n : 1, sizeof *use);
    size_t k = 0;
    pthread_mutex_lock(&d->mu);
    for (uint32_t id = 0; ids && use && id < d->n; id++) {
        struct disk_item *it = &d->it[id];
        if (it->used_now && it->digest) {
            ids[k] = id;
            use[k++] = it->last_use;
            it->used_now = false;
        }
    }
    pthread_mutex_unlock(&d->mu);
    struct err e;
    if (k) {
        catalog_touch(d->cat, d->model_no, ids, use, k,
                      &e); /* only the order of eviction is at stake */
    }
    free(ids);
    free(use);
}

void disk_close(struct disk *d)
{
    if (!d) {
        return;
    }
    if (d->cat) {
        disk_save_use(d);
    }
    disk_count_end(d);
    session_close(d->session);
    book_close(d->book);
    catalog_close(d->cat);
    for (uint32_t id = 0; id < d->n; id++) {
        while (d->it[id].digest) {
            struct digest *dg = d->it[id].digest;
            d->it[id].digest = dg->older;
            free(dg);
        }
    }
    for (int i = 0; i < DISK_CHUNKS_KEPT; i++) {
        free(d->kept[i].p);
    }
    adopt_close(d);
    disk_form_close(d);
    pthread_mutex_destroy(&d->mu);
    pthread_mutex_destroy(&d->again);
    free(d->noted);
    free(d->rank);
    free(d->order);
    free(d->it);
    free(d->dir);
    free(d->journal);
    free(d->manifest);
    free(d->quarantine_dir);
    free(d);
}

/* ---- what is there ---- */

void disk_note(struct disk *d, uint32_t id)
{
    struct disk_item *it = &d->it[id];
    if (d->noted && !it->noted) {
        it->noted = true;
        d->noted[d->n_noted++] = id;
        if (d->o.changed) {
            d->o.changed(d->o.changed_ctx);
        }
    }
}

void disk_set_digest(struct disk *d, uint32_t id, struct digest *dg)
{
    struct disk_item *it = &d->it[id];
    if (it->digest) {
        disk_drop_kept(d, id);
    }
    if (it->seen && (dg->source == DIGEST_TAKEN_BACK || !digest_equal(dg, it->digest))) {
        it->seen = false; /* the folder's bytes are not these */
        it->refused = true;
    }
    d->digests_set++;
    dg->older = it->digest; /* whoever reads by it at this moment may go on */
    it->digest = dg;
    disk_refresh(d, id);
    disk_note(d, id);
}

void disk_refresh(struct disk *d, uint32_t id)
{
    struct disk_item *it = &d->it[id];
    bool present = it->own || (it->lent && it->seen && it->digest);
    if (it->present != present) {
        it->present = present;
        disk_note(d, id);
    }
}

void disk_set_own(struct disk *d, uint32_t id, bool own)
{
    struct disk_item *it = &d->it[id];
    const struct model_object *o = model_object(d->o.m, id);
    if (it->orphan) { /* it becomes an own one, or goes */
        it->orphan = false;
        d->adopt.orphans--;
        d->used -= disk_own_bytes(d, id);
    }
    if (it->own != own) {
        uint64_t size = disk_own_bytes(d, id), by = own ? size : 0 - size;
        it->own = own;
        d->used += by;
        d->experts += o->kind == MODEL_EXPERT ? by : 0;
        if (own && d->rank && o->kind == MODEL_EXPERT) {
            d->rank[id] = UINT8_MAX; /* the rank so far was that of one that is not here */
        }
    }
    it->packed = own ? it->packed : 0;
    disk_order_set(d, id);
    disk_refresh(d, id);
}

bool disk_has(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    bool has = d->it[id].present;
    pthread_mutex_unlock(&d->mu);
    return has;
}

bool disk_look(struct disk *d, uint32_t id)
{
    if (disk_has(d, id)) {
        return true;
    }
    const struct model_object *o = model_object(d->o.m, id);
    char *p = layout_object(d->dir, d->o.m, id);
    struct stat st;
    bool there = p && stat(p, &st) == 0 && (uint64_t)st.st_size == o->size, packed = false;
    if (!there && packed_may(o)) {
        free(p);
        p = packed_path(d->dir, d->o.m, id);
        there = packed = p && stat(p, &st) == 0 && st.st_size;
    }
    if (!there) {
        free(p);
        return false;
    }
    /* another process has published it meanwhile: its digest was recorded before its file */
    struct digest *dg = NULL;
    struct err e;
    catalog_get(d->cat, d->model_no, id, &dg, &e);
    pthread_mutex_lock(&d->mu);
    struct disk_item *it = &d->it[id];
    if (dg && dg->size == model_object(d->o.m, id)->size &&
        (!it->digest || digest_beats(dg, it->digest))) {
        disk_set_digest(d, id, dg);
        dg = NULL;
    }
    /* what leaves the disk does so with mu */
    bool has = it->present || (it->digest && it->digest->source != DIGEST_TAKEN_BACK &&
                               !it->stale && stat(p, &st) == 0);
    if (has && !it->own) {
        it->packed = packed ? (uint64_t)st.st_size : 0;
    }
    if (has) {
        disk_set_own(d, id, true);
    }
    pthread_mutex_unlock(&d->mu);
    free(p);
    free(dg);
    return has;
}

bool disk_last_chunk(struct disk *d, uint32_t id, uint32_t *chunk, uint64_t *xxh)
{
    pthread_mutex_lock(&d->mu);
    const struct digest *dg = d->it[id].digest;
    bool known = dg && dg->n && digest_basis(dg) >= BASIS_ORIGIN;
    if (known) {
        *chunk = dg->n - 1;
        *xxh = dg->xxh[dg->n - 1];
    }
    pthread_mutex_unlock(&d->mu);
    return known;
}

bool disk_has_partial(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    bool has = d->it[id].partial;
    pthread_mutex_unlock(&d->mu);
    return has;
}

/* With mu: the time, so that last uses of several processes and of a year ago compare; a clock that
 * was set back only makes steps of one. */
static uint64_t next_use(struct disk *d)
{
    struct timespec t;
    uint64_t now = 0;
    if (!clock_gettime(CLOCK_REALTIME, &t) && t.tv_sec > 0) {
        now = (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
    }
    d->tick = now > d->tick ? now : d->tick + 1;
    return d->tick;
}

void disk_pin(struct disk *d, uint32_t id, int by)
{
    pthread_mutex_lock(&d->mu);
    struct disk_item *it = &d->it[id];
    it->pins = (uint32_t)((int64_t)it->pins + by);
    it->last_use = next_use(d);
    it->used_now = true;
    disk_order_set(d, id);
    pthread_mutex_unlock(&d->mu);
}

/* Room and what leaves for it: disk_room.c. */
