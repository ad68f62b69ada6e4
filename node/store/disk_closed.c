/* SPDX-License-Identifier: MIT
 * disk_closed.c: see disk.h: the part of the cache that this process writes in, and the time in
 * which it cannot: the volume is full, or the folder may only be read. Then nothing is begun, what
 * is there is read by a catalog in memory, and whoever wants to write looks whether it can be done
 * again. */
#include "node/store/disk_inner.h"
#include "node/store/layout.h"
#include "node/store/place.h"
#include "proto/base/file.h"

#include <stdlib.h>
#include <string.h>

/* Another model's root that could lie in a folder of this name: 64 digits, the first 16 the same.
 * Everything else in the file is damage. */
static bool other_root(const struct buf *b, const char *hex)
{
    return b->n >= 64 && strspn(b->p, "0123456789abcdef") >= 64 && memcmp(b->p, hex, 16) == 0 &&
           memcmp(b->p, hex, 64) != 0;
}

/* The folder of a model says which one it is: 16 digits in its name are no proof. */
static int check_root(struct disk *d, const char *hex, bool write, struct err *e)
{
    char *p = layout_path("%s/root", d->dir);
    if (!p) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    struct buf b;
    buf_init(&b, 200);
    struct err e1 = {0};
    int r = file_read_all(p, &b, &e1);
    if (!r && other_root(&b, hex)) {
        r = err_set(e, ERR_FORMAT, "%s belongs to another model (its file \"root\" differs)",
                    d->dir);
    } else if (!write) {
        r = 0;
    } else if (r || b.n < 64 || memcmp(b.p, hex, 64) != 0) {
        r = file_write_atomic(p, hex, 64, 0600, e);
    }
    buf_free(&b);
    free(p);
    return r;
}

static void taken_over(void *ctx, uint32_t id, uint64_t bytes)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->mu);
    if (!d->it[id].present) {
        d->it[id].partial = true;
        d->it[id].partial_bytes = bytes;
        d->partial_bytes += bytes;
    }
    pthread_mutex_unlock(&d->mu);
}

/* With the folder's lock: the model's folder, and in it this process's own. */
static int make_own(struct disk *d, const char *hex, struct session **s, struct err *e)
{
    int r = place_still(d->o.cache_dir, e);
    r = r ? r : file_mkdirs(d->dir, e);
    r = r ? r : check_root(d, hex, true, e);
    r = r ? r : session_open(d->dir, d->n, taken_over, d, s, e);
    layout_sweep(d->o.cache_dir, false);
    layout_sweep(d->dir, false);
    char *same = layout_path("%s/same", d->dir);
    if (same) {
        layout_sweep(same, true);
    }
    free(same);
    return r;
}

int disk_prepare(struct disk *d, const char *hex, struct err *e)
{
    if (d->closed) {
        return check_root(d, hex, false, e);
    }
    int lock = layout_lock(d->o.cache_dir, e);
    if (lock < 0) {
        return e ? e->code : ERR_IO;
    }
    int r = make_own(d, hex, &d->session, e);
    layout_unlock(lock);
    return r;
}

/* Of the folders that are written in, the first that cannot be. */
static enum layout_state state_of(struct disk *d, struct err *why)
{
    static const char *const below[] = {"", "/experts", "/spine", "/tmp"};
    enum layout_state s = layout_state(d->o.cache_dir, why);
    for (size_t i = 0; i < sizeof below / sizeof *below && !s; i++) {
        char *p = layout_path("%s%s", d->dir, below[i]);
        s = p ? layout_state(p, NULL) : LAYOUT_OPEN;
        if (s) { /* in the words of the cache */
            (void)layout_state(p, why);
        }
        free(p);
    }
    return s;
}

bool disk_close_for_writing(struct disk *d)
{
    d->closed = state_of(d, &d->closed_why);
    return d->closed != LAYOUT_OPEN;
}

static int open_again(struct disk *d, struct err *e)
{
    char hex[2 * SHA256_SIZE + 1];
    struct session *s = NULL;
    sha256_hex(model_root(d->o.m), hex);
    if (state_of(d, e)) {
        return e->code;
    }
    int lock = -1, r = layout_prepare(d->o.cache_dir, e);
    if (!r) {
        lock = layout_lock(d->o.cache_dir, e);
        r = lock < 0 ? e->code : make_own(d, hex, &s, e);
        layout_unlock(lock);
    }
    r = r ? r : catalog_reopen(d->cat, e);
    pthread_mutex_lock(&d->mu);
    if (!r) {
        d->session = s;
        s = NULL;
        d->closed = LAYOUT_OPEN;
        d->was_closed = true;
    }
    pthread_mutex_unlock(&d->mu);
    session_close(s);
    return r;
}

int disk_closed(struct disk *d, bool look, struct err *e)
{
    struct err e1 = {0};
    pthread_mutex_lock(&d->mu);
    bool closed = d->closed != LAYOUT_OPEN;
    pthread_mutex_unlock(&d->mu);
    if (!closed) {
        return 0;
    }
    if (look) { /* on a full volume it costs one call that fails */
        pthread_mutex_lock(&d->again);
        pthread_mutex_lock(&d->mu);
        closed = d->closed != LAYOUT_OPEN; /* another may have waited for it, too */
        pthread_mutex_unlock(&d->mu);
        int r = closed ? open_again(d, &e1) : 0;
        pthread_mutex_unlock(&d->again);
        closed = r != 0;
    }
    pthread_mutex_lock(&d->mu);
    if (e1.code == ERR_FULL || e1.code == ERR_REFUSED) {
        d->closed_why = e1;
    }
    *e = d->closed_why;
    pthread_mutex_unlock(&d->mu);
    return closed ? e->code : 0;
}
