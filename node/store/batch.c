/* SPDX-License-Identifier: MIT
 * batch.c: how objects are asked for: get, batches, hints, partial reads. See store.h. */
#include "node/store/engine.h"

#include "node/store/disk.h"
#include "node/store/origin.h"
#include "node/store/sync.h"
#include "proto/base/clock.h"
#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

#define NO_ROOM_NS 30000000000u /* how long a full disk is believed to stay full */
#define LOOK_NS 250000000u      /* between looks whether waiting has been ended */

static int check_id(const struct store *st, uint32_t id, struct err *e)
{
    if (id >= st->n_ent) {
        return err_set(e, ERR_ARG, "object %u does not exist: the model has %u", id, st->n_ent);
    }
    return 0;
}

/* The outcome of a waiter that is done; frees its error. */
static int outcome(struct store *st, struct waiter *w, struct store_view *out, struct err *e)
{
    if (w->code) {
        if (e) {
            if (w->err) {
                *e = *w->err;
            } else {
                err_set(e, w->code, "%s", err_text(w->code));
            }
        }
        free(w->err);
        w->err = NULL;
        return w->code;
    }
    if (w->want_ram) {
        struct entry *en = &st->ent[w->id];
        int r = used_may(st, w->id, e);
        if (r) {
            eng_unpin(st, en, false);
            return r;
        }
        used_now(st, en);
        *out = (struct store_view){.p = en->slot->p,
                                   .n = en->slot->size,
                                   .mem_handle = en->slot->handle,
                                   .id = w->id,
                                   .from = w->from,
                                   .again = w->again,
                                   .priv = en->slot};
    }
    return 0;
}

static int interrupted(struct err *e)
{
    return err_set(e, ERR_CANCELLED, "the node is stopping");
}

/* With mu: wait for news. False: the deadline has passed, or nobody is to wait any more. */
static bool wait_some(struct store *st, pthread_cond_t *cv, uint64_t deadline_ns)
{
    uint64_t until = clock_ns() + LOOK_NS;
    if (st->interrupted) {
        return false;
    }
    if (deadline_ns && deadline_ns < until) {
        until = deadline_ns;
    }
    return sync_wait(cv, &st->mu, until) ||
           (!st->interrupted && (!deadline_ns || clock_ns() < deadline_ns));
}

/* One object, in RAM (with a pin) or on disk. */
static int get_one(struct store *st, uint32_t id, bool ram, enum store_prio prio,
                   uint64_t deadline_ns, struct store_view *out, struct err *e)
{
    struct group g = {.head = NULL};
    struct waiter w = {.g = &g, .id = id, .want_ram = ram};
    int r = sync_cond_init(&g.cv);
    if (r) {
        return err_sys(e, r, "cannot wait");
    }
    pthread_mutex_lock(&st->mu);
    eng_add_waiter(st, &w);
    if (!w.done) {
        uint64_t t0 = clock_ns();
        eng_want(st, id, prio, ram);
        while (!w.done && wait_some(st, &g.cv, deadline_ns)) {
        }
        if (prio == STORE_DEMAND) {
            st->s.wait_ns += clock_ns() - t0;
        }
    }
    if (w.done) {
        r = outcome(st, &w, out, e);
    } else {
        eng_drop_waiter(st, &w);
        const struct entry *en = &st->ent[id];
        const char *what = en->in                    ? "peers or the origin"
                           : en->state == ENT_ORIGIN ? "the origin"
                                                     : "the disk";
        char name[128];
        r = st->interrupted ? interrupted(e)
                            : err_set(e, ERR_TIMEOUT, "%s has not come from %s in the time given",
                                      model_object_name(st->m, id, name, sizeof name), what);
        eng_lose_interest(st, id);
    }
    pthread_mutex_unlock(&st->mu);
    pthread_cond_destroy(&g.cv);
    eng_sweep(st);
    return r;
}

int store_get(struct store *st, uint32_t id, enum store_prio prio, uint64_t deadline_ns,
              struct store_view *out, struct err *e)
{
    int r = check_id(st, id, e);
    return r ? r : get_one(st, id, true, prio, deadline_ns, out, e);
}

static void release(struct store *st, struct store_view *v, bool drop)
{
    if (!v->priv) {
        return;
    }
    pthread_mutex_lock(&st->mu);
    eng_unpin(st, &st->ent[v->id], drop);
    pthread_mutex_unlock(&st->mu);
    memset(v, 0, sizeof *v);
    eng_sweep(st);
}

void store_release(struct store *st, struct store_view *v)
{
    release(st, v, false);
}

void store_release_drop(struct store *st, struct store_view *v)
{
    release(st, v, true);
}

/* ---- batches ---- */

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int check_ids(const struct store *st, const uint32_t *ids, size_t n, struct err *e)
{
    if (n > STORE_BATCH_MAX) {
        return err_set(e, ERR_LIMIT, "a batch of %zu objects: at most %d", n, STORE_BATCH_MAX);
    }
    uint32_t *s = malloc((n ? n : 1) * sizeof *s);
    if (!s) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    int r = 0;
    for (size_t i = 0; i < n; i++) {
        s[i] = ids[i];
    }
    qsort(s, n, sizeof *s, by_value);
    for (size_t i = 0; i < n && !r; i++) {
        r = check_id(st, s[i], e);
        if (!r && i && s[i] == s[i - 1]) {
            r = err_set(e, ERR_ARG, "object %u stands twice in a batch", s[i]);
        }
    }
    free(s);
    return r;
}

int store_batch_begin(struct store *st, const uint32_t *ids, size_t n, enum store_prio prio,
                      struct store_batch **out, struct err *e)
{
    *out = NULL;
    int r = check_ids(st, ids, n, e);
    if (r) {
        return r;
    }
    struct store_batch *b = calloc(1, sizeof *b);
    if (b) {
        b->w = calloc(n ? n : 1, sizeof *b->w);
        b->phase = calloc(n ? n : 1, 1);
    }
    if (!b || !b->w || !b->phase || sync_cond_init(&b->g.cv)) {
        if (b) {
            free(b->w);
            free(b->phase);
        }
        free(b);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    b->st = st;
    b->n = b->pending = n;
    b->prio = (uint8_t)prio;
    for (size_t i = 0; i < n; i++) {
        b->w[i] = (struct waiter){.g = &b->g, .id = ids[i], .which = (uint32_t)i, .want_ram = true};
    }
    pthread_mutex_lock(&st->mu);
    /* what is in RAM already is pinned first, so that the rest cannot push it out */
    for (size_t i = 0; i < n; i++) {
        if (st->ent[ids[i]].state == ENT_READY) {
            b->phase[i] = PH_ASKED;
            b->pending--;
            b->active++;
            eng_add_waiter(st, &b->w[i]);
        }
    }
    struct store_batch **at = &st->batches; /* first come, first served */
    while (*at) {
        at = &(*at)->next;
    }
    *at = b;
    eng_pump(st);
    pthread_mutex_unlock(&st->mu);
    eng_sweep(st);
    *out = b;
    return 0;
}

int store_batch_next(struct store_batch *b, size_t *which, struct store_view *out, struct err *e)
{
    struct store *st = b->st;
    int r;
    pthread_mutex_lock(&st->mu);
    if (b->taken == b->n) {
        r = err_set(e, ERR_NOTFOUND, "all objects of the batch have been handed out");
    } else {
        uint64_t t0 = b->g.head ? 0 : clock_ns();
        while (!b->g.head) {
            if (!wait_some(st, &b->g.cv, 0)) {
                pthread_mutex_unlock(&st->mu);
                return interrupted(e);
            }
        }
        if (t0 && b->prio == STORE_DEMAND) {
            st->s.wait_ns += clock_ns() - t0;
        }
        struct waiter *w = b->g.head;
        b->g.head = w->next_done;
        *which = w->which;
        b->phase[w->which] = PH_TAKEN;
        b->taken++;
        b->active--;
        r = outcome(st, w, out, e);
        eng_pump(st);
    }
    pthread_mutex_unlock(&st->mu);
    eng_sweep(st);
    return r;
}

bool store_batch_ready(struct store_batch *b)
{
    pthread_mutex_lock(&b->st->mu);
    bool ready = b->g.head || b->taken == b->n;
    pthread_mutex_unlock(&b->st->mu);
    return ready;
}

void store_batch_end(struct store_batch *b)
{
    if (!b) {
        return;
    }
    struct store *st = b->st;
    pthread_mutex_lock(&st->mu);
    struct store_batch **at = &st->batches;
    while (*at != b) {
        at = &(*at)->next;
    }
    *at = b->next;
    for (size_t i = 0; i < b->n; i++) {
        struct waiter *w = &b->w[i];
        if (b->phase[i] == PH_DISK_ASKED) {
            eng_lose_interest(st, w->id);
        } else if (b->phase[i] == PH_ASKED && !w->done) {
            eng_drop_waiter(st, w);
            eng_lose_interest(st, w->id);
        } else if (b->phase[i] == PH_ASKED && !w->code) {
            eng_unpin(st, &st->ent[w->id], false);
        }
        free(w->err);
    }
    eng_pump(st);
    pthread_mutex_unlock(&st->mu);
    eng_sweep(st);
    pthread_cond_destroy(&b->g.cv);
    free(b->w);
    free(b->phase);
    free(b);
}

void store_hint(struct store *st, const uint32_t *ids, size_t n)
{
    pthread_mutex_lock(&st->mu);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < st->n_ent) {
            eng_hint(st, ids[i]);
        }
    }
    pthread_mutex_unlock(&st->mu);
}

/* ---- a part of an object ---- */

/* From RAM when it is there: true. */
static bool read_ram(struct store *st, uint32_t id, uint64_t off, void *p, size_t n)
{
    pthread_mutex_lock(&st->mu);
    struct entry *en = &st->ent[id];
    bool there = en->state == ENT_READY;
    const uint8_t *from = NULL;
    if (there) {
        eng_pin(st, en);
        used_now(st, en);
        from = en->slot->p + off;
    }
    pthread_mutex_unlock(&st->mu);
    if (there) {
        memcpy(p, from, n);
        pthread_mutex_lock(&st->mu);
        eng_unpin(st, en, false);
        pthread_mutex_unlock(&st->mu);
        eng_sweep(st);
    }
    return there;
}

static int read_origin(struct store *st, uint32_t id, uint64_t off, void *p, size_t n,
                       struct err *e)
{
    const struct model_object *ob = eng_object(st, id);
    int r = origin_get_range(st->origin, model_shard(st->m, ob->shard)->file, ob->offset + off, p,
                             n, e);
    if (!r) {
        pthread_mutex_lock(&st->mu);
        sink_count(st, n);
        pthread_mutex_unlock(&st->mu);
    }
    return r;
}

/* As a whole into RAM: there is no origin that gives a part, or no disk to keep it on. */
static int read_whole(struct store *st, uint32_t id, uint64_t off, void *p, size_t n, struct err *e)
{
    struct store_view v;
    int r = get_one(st, id, true, STORE_DEMAND, 0, &v, e);
    if (!r) {
        memcpy(p, v.p + off, n);
        store_release(st, &v);
    }
    return r;
}

static int read_past_disk(struct store *st, uint32_t id, uint64_t off, void *p, size_t n,
                          struct err *e)
{
    return st->origin ? read_origin(st, id, off, p, n, e) : read_whole(st, id, off, p, n, e);
}

/* Did this object fail to fit on the disk a moment ago? Trying again for every few bytes that are
 * read of it would begin a transfer of the whole each time. */
static bool no_room(struct store *st, uint32_t id)
{
    pthread_mutex_lock(&st->mu);
    bool r = st->no_room_id == id && clock_ns() < st->no_room_until;
    pthread_mutex_unlock(&st->mu);
    return r;
}

static void remember_no_room(struct store *st, uint32_t id)
{
    pthread_mutex_lock(&st->mu);
    st->no_room_id = id;
    st->no_room_until = clock_ns() + NO_ROOM_NS;
    pthread_mutex_unlock(&st->mu);
}

int store_read(struct store *st, uint32_t id, uint64_t off, void *p, size_t n, struct err *e)
{
    int r = check_id(st, id, e);
    if (r) {
        return r;
    }
    uint64_t end, size = eng_object(st, id)->size;
    char name[128];
    if (!num_add_u64(off, n, &end) || end > size) {
        return err_set(e, ERR_ARG, "%zu bytes at %llu are outside of %s (%llu bytes)", n,
                       (unsigned long long)off, model_object_name(st->m, id, name, sizeof name),
                       (unsigned long long)size);
    }
    pthread_mutex_lock(&st->mu);
    bool any = !st->trust;
    pthread_mutex_unlock(&st->mu);
    if (n == 0 || (any && read_ram(st, id, off, p, n))) {
        return 0;
    }
    if (st->in_place) {
        r = worker_read_in_place(st, id, off, p, n, e);
        if (!r) {
            pthread_mutex_lock(&st->mu);
            st->s.disk_bytes += n;
            pthread_mutex_unlock(&st->mu);
        }
        return r;
    }
    if (!st->disk || no_room(st, id)) {
        return read_past_disk(st, id, off, p, n, e);
    }
    for (int tries = 0; tries < 3; tries++) {
        struct store_view none;
        struct err e1 = {0};
        r = get_one(st, id, false, STORE_DEMAND, 0, &none, &e1);
        if (r == ERR_FULL) { /* it cannot be kept: only these bytes, then */
            remember_no_room(st, id);
            return read_past_disk(st, id, off, p, n, e);
        }
        if (r) {
            if (e) {
                *e = e1;
            }
            return r;
        }
        pthread_mutex_lock(&st->mu);
        r = used_may(st, id, e);
        pthread_mutex_unlock(&st->mu);
        if (r || read_ram(st, id, off, p, n)) {
            return r;
        }
        pthread_mutex_lock(&st->mu);
        used_now(st, &st->ent[id]); /* before: what is taken back meanwhile counts as used */
        pthread_mutex_unlock(&st->mu);
        r = disk_read_part(st->disk, id, off, p, n, &e1);
        pthread_mutex_lock(&st->mu);
        if (!r) {
            st->s.disk_bytes += n;
        } else {
            st->s.refetched += r != ERR_OFFLINE;
            st->s.bad_chunks += r == ERR_DIGEST;
        }
        pthread_mutex_unlock(&st->mu);
        if (!r) {
            return 0;
        }
        if (e) {
            *e = e1;
        }
        if (r != ERR_OFFLINE) { /* else an adopted folder's, said already */
            eng_log(st, "%s; fetching it again", e1.msg);
        }
    }
    return r;
}
