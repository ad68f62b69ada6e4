/* SPDX-License-Identifier: MIT
 * want.c: see want.h. An item is a waiter of the engine that is content with the disk. An object
 * that is ready in RAM ends its waiters before its file is published; such items settle: they are
 * looked at again every SETTLE_NS until the publisher is done with them. */
#include "node/store/want.h"

#include "node/store/disk.h"
#include "node/store/engine.h"
#include "node/store/sync.h"
#include "proto/base/clock.h"

#include <stddef.h>
#include <stdlib.h>

#define BUCKETS 1024
#define SETTLE_NS 10000000u

struct item {
    struct item *next; /* in its bucket */
    struct item *settle;
    uint64_t tag;
    struct waiter w;
};

struct store_wants {
    struct store *st;
    struct group g;
    struct item *bucket[BUCKETS];
    struct item *settling;
    bool stop;
};

static struct item **slot(struct store_wants *w, uint64_t tag)
{
    struct item **at = &w->bucket[tag % BUCKETS];
    while (*at && (*at)->tag != tag) {
        at = &(*at)->next;
    }
    return at;
}

int store_wants_open(struct store *st, struct store_wants **out, struct err *e)
{
    *out = NULL;
    if (!st->disk) {
        return err_set(e, ERR_UNSUPPORTED, "this store keeps nothing on disk");
    }
    struct store_wants *w = calloc(1, sizeof *w);
    if (!w || sync_cond_init(&w->g.cv)) {
        free(w);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    w->st = st;
    *out = w;
    return 0;
}

int store_wants_add(struct store_wants *w, uint64_t tag, uint32_t id, enum store_prio prio,
                    struct err *e)
{
    struct store *st = w->st;
    if (id >= st->n_ent) {
        return err_set(e, ERR_ARG, "object %u does not exist: the model has %u", id, st->n_ent);
    }
    struct item *x = calloc(1, sizeof *x);
    if (!x) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    x->tag = tag;
    x->w = (struct waiter){.g = &w->g, .id = id};
    pthread_mutex_lock(&st->mu);
    struct item **at = &w->bucket[tag % BUCKETS];
    x->next = *at;
    *at = x;
    keep_start(st, &st->ent[id]);
    eng_add_waiter(st, &x->w);
    if (!x->w.done) {
        eng_want(st, id, prio, false);
    }
    pthread_mutex_unlock(&st->mu);
    eng_sweep(st);
    return 0;
}

void store_wants_raise(struct store_wants *w, uint64_t tag, enum store_prio prio)
{
    struct store *st = w->st;
    pthread_mutex_lock(&st->mu);
    struct item *x = *slot(w, tag);
    if (x && !x->w.done) {
        eng_want(st, x->w.id, prio, false);
    }
    pthread_mutex_unlock(&st->mu);
    eng_sweep(st);
}

bool store_wants_drop(struct store_wants *w, uint64_t tag)
{
    struct store *st = w->st;
    pthread_mutex_lock(&st->mu);
    struct item **at = slot(w, tag), *x = *at;
    bool drop = x && !x->w.done;
    if (drop) {
        *at = x->next;
        eng_drop_waiter(st, &x->w);
        eng_lose_interest(st, x->w.id);
    }
    pthread_mutex_unlock(&st->mu);
    if (drop) {
        free(x);
    }
    eng_sweep(st);
    return drop;
}

/* With mu: is it settled what became of the file? Then *code says so. */
static bool settled(struct store *st, struct item *x, int *code, struct err *why)
{
    const struct entry *en = &st->ent[x->w.id];
    if (x->w.code) {
        *code = x->w.code;
        if (x->w.err) {
            *why = *x->w.err;
        } else {
            err_set(why, x->w.code, "%s", err_text(x->w.code));
        }
        return true;
    }
    if (disk_has(st->disk, x->w.id)) {
        *code = 0;
        return true;
    }
    if (en->publishing) {
        return false;
    }
    char name[128];
    *code = err_set(why, ERR_FULL, "%s is in memory only: the cache could not take it",
                    model_object_name(st->m, x->w.id, name, sizeof name));
    return true;
}

/* With mu: one that has ended, taken out of all lists. */
static struct item *ended(struct store_wants *w, int *code, struct err *why)
{
    while (w->g.head) {
        struct waiter *d = w->g.head;
        struct item *x = (struct item *)((char *)d - offsetof(struct item, w));
        w->g.head = d->next_done;
        x->settle = w->settling;
        w->settling = x;
    }
    for (struct item **at = &w->settling; *at; at = &(*at)->settle) {
        struct item *x = *at;
        if (settled(w->st, x, code, why)) {
            *at = x->settle;
            *slot(w, x->tag) = x->next;
            return x;
        }
    }
    return NULL;
}

static void give(struct item *x, uint64_t *tag, uint32_t *id)
{
    *tag = x->tag;
    *id = x->w.id;
    free(x->w.err);
    free(x);
}

int store_wants_poll(struct store_wants *w, uint64_t *tag, uint32_t *id, int *code, struct err *why)
{
    pthread_mutex_lock(&w->st->mu);
    struct item *x = w->stop ? NULL : ended(w, code, why);
    pthread_mutex_unlock(&w->st->mu);
    if (!x) {
        return ERR_BUSY;
    }
    give(x, tag, id);
    return 0;
}

int store_wants_next(struct store_wants *w, uint64_t *tag, uint32_t *id, int *code, struct err *why)
{
    struct store *st = w->st;
    struct item *x = NULL;
    pthread_mutex_lock(&st->mu);
    while (!w->stop && !(x = ended(w, code, why))) {
        sync_wait(&w->g.cv, &st->mu, w->settling ? clock_ns() + SETTLE_NS : 0);
    }
    pthread_mutex_unlock(&st->mu);
    if (!x) {
        return ERR_CANCELLED;
    }
    give(x, tag, id);
    return 0;
}

void store_wants_stop(struct store_wants *w)
{
    pthread_mutex_lock(&w->st->mu);
    w->stop = true;
    pthread_cond_signal(&w->g.cv);
    pthread_mutex_unlock(&w->st->mu);
}

void store_wants_close(struct store_wants *w)
{
    if (!w) {
        return;
    }
    struct store *st = w->st;
    pthread_mutex_lock(&st->mu);
    for (size_t i = 0; i < BUCKETS; i++) {
        while (w->bucket[i]) {
            struct item *x = w->bucket[i];
            w->bucket[i] = x->next;
            if (!x->w.done) {
                eng_drop_waiter(st, &x->w);
                eng_lose_interest(st, x->w.id);
            }
            free(x->w.err);
            free(x);
        }
    }
    pthread_mutex_unlock(&st->mu);
    pthread_cond_destroy(&w->g.cv);
    free(w);
}
