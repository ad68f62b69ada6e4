/* SPDX-License-Identifier: MIT
 * fetch.c: wants and the objects they wait for; see fetch.h and fetch_int.h. */
#include "peer/fetch_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (256ull << 20)
#define NO_SOURCE_MS 5000
#define GIVE_UP_MS 30000

void fetch_log(struct fetch *f, const char *fmt, ...)
{
    if (!f->o.ops.log) {
        return;
    }
    char line[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    f->o.ops.log(f->o.ops.ctx, line);
}

#define FAILED_LINES 8u
#define FAILED_GAP_NS (10000 * FETCH_MS)

void fetch_log_failed(struct fetch *f, const char *name, const char *text)
{
    if (f->now - f->failed_since >= FAILED_GAP_NS || !f->failed_lines) {
        if (f->failed_lines > FAILED_LINES) {
            fetch_log(f, "%u other objects failed before, too", f->failed_lines - FAILED_LINES);
        }
        f->failed_since = f->now;
        f->failed_lines = 0;
    }
    if (f->failed_lines++ < FAILED_LINES) {
        fetch_log(f, "%s: %s", name, text);
    }
}

const char *flight_name(const struct fetch *f, const struct flight *fl, char *buf, size_t n)
{
    const char *s = f->o.name_of ? f->o.name_of(f->o.name_ctx, fl->key, buf, n) : NULL;
    if (s) {
        return s;
    }
    snprintf(buf, n, "object %u/%u/%u", fl->key.kind, fl->key.layer, fl->key.index);
    return buf;
}

/* ---- objects by key ---- */

static uint32_t bucket(const struct fetch *f, struct object_key k)
{
    uint64_t x =
        ((uint64_t)k.kind << 48 | (uint64_t)k.layer << 32 | k.index) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> 40) & (f->hash_cap - 1);
}

struct flight *fetch_find(const struct fetch *f, struct object_key k)
{
    for (struct flight *fl = f->hash[bucket(f, k)]; fl; fl = fl->hash_next) {
        if (object_key_equal(fl->key, k)) {
            return fl;
        }
    }
    return NULL;
}

static void hash_in(struct fetch *f, struct flight *fl)
{
    if (f->n_flights >= f->hash_cap) {
        uint32_t old = f->hash_cap;
        struct flight **h = calloc((size_t)old * 2, sizeof(*h));
        if (h) { /* without memory the chains get longer */
            struct flight **was = f->hash;
            f->hash = h;
            f->hash_cap = old * 2;
            for (uint32_t i = 0; i < old; i++) {
                for (struct flight *x = was[i], *next; x; x = next) {
                    next = x->hash_next;
                    uint32_t b = bucket(f, x->key);
                    x->hash_next = h[b];
                    h[b] = x;
                }
            }
            free(was);
        }
    }
    uint32_t b = bucket(f, fl->key);
    fl->hash_next = f->hash[b];
    f->hash[b] = fl;
    f->n_flights++;
}

void fetch_hash_out(struct fetch *f, struct flight *fl)
{
    struct flight **p = &f->hash[bucket(f, fl->key)];
    while (*p != fl) {
        p = &(*p)->hash_next;
    }
    *p = fl->hash_next;
    f->n_flights--;
}

/* ---- wants ---- */

static enum fetch_prio highest(const struct flight *fl)
{
    enum fetch_prio p = FETCH_BACKGROUND;
    for (struct link *l = fl->wants.next; l != &fl->wants; l = l->next) {
        p = want_of(l)->prio > p ? want_of(l)->prio : p;
    }
    return p;
}

static void update(struct fetch *f, struct flight *fl)
{
    bool others = fl->asked;
    fl->peers_only = true;
    fl->own = false;
    for (struct link *l = fl->wants.next; l != &fl->wants; l = l->next) {
        fl->peers_only &= want_of(l)->peers_only;
        fl->own |= want_of(l)->own;
        others |= want_of(l)->others;
    }
    if (others != fl->others) {
        fl->others = others;
        if (!fl->begun) {
            link_cut(&fl->all);
            link_add(flight_queue(f, fl), &fl->all);
        }
    }
}

void flight_asked(struct fetch *f, struct flight *fl)
{
    fl->asked = true;
    update(f, fl);
    f->dirty = true;
}

static void set_prio(struct fetch *f, struct flight *fl, enum fetch_prio p)
{
    bool up = p > fl->prio;
    if (p == fl->prio) {
        return;
    }
    f->owed[fl->prio] -= fl->begun ? fl->left : fl->size;
    fl->prio = p;
    if (!up) {
        f->owed[p] += fl->begun ? fl->left : fl->size;
    }
    link_cut(&fl->all);
    link_add(flight_queue(f, fl), &fl->all);
    if (up) {
        plan_arrival(f, fl);
    }
    /* What is asked for at a lower priority stands in a queue at the source, unless it is alone. */
    for (struct link *l = fl->gets.next, *next; up && l != &fl->gets; l = next) {
        struct get *g = get_of_flight(l);
        next = l->next;
        if (g->prio < p && source_is_origin(g->s) && f->o.ops.origin_raise) {
            get_raise(f, g, p);
        } else if (g->prio < p &&
                   (g->relay || (g->s->n_gets > 1 && g->s->gets.next != &g->in_source))) {
            get_close(f, g, true);
        }
    }
    f->dirty = true;
}

int fetch_get_object(struct fetch *f, struct object_key k, const struct fetch_want_opts *o,
                     struct fetch_want **out, struct err *e)
{
    uint64_t size;
    if (!o->done || (unsigned)o->prio >= FETCH_PRIOS) {
        return err_set(e, ERR_ARG, "a want needs a priority and a function to call");
    }
    if (!f->o.storage->size(f->o.storage_ctx, k, &size) || size == 0 ||
        size > (uint64_t)WIRE_CHUNKS_MAX * STORAGE_CHUNK) {
        return err_set(e, ERR_NOTFOUND, "the model has no object %u/%u/%u", k.kind, k.layer,
                       k.index);
    }
    if (f->closing) {
        return err_set(e, ERR_CANCELLED, "the node stops");
    }
    struct want *w = calloc(1, sizeof *w);
    if (!w) {
        return err_set(e, ERR_NOMEM, "no memory to ask for an object");
    }
    fetch_enter(f);
    struct flight *fl = fetch_find(f, k);
    if (!fl && f->n_waiting >= FETCH_WAITING_MAX) {
        free(w);
        fetch_leave(f);
        return err_set(e, ERR_LIMIT, "%d objects wait already", FETCH_WAITING_MAX);
    }
    if (!fl) {
        fl = calloc(1, sizeof *fl);
        if (!fl) {
            free(w);
            fetch_leave(f);
            return err_set(e, ERR_NOMEM, "no memory to ask for an object");
        }
        fl->key = k;
        fl->size = size;
        fl->n = storage_chunks(size);
        fl->prio = o->prio;
        fl->others = o->others;
        fl->asked_at = fl->last_byte = f->now;
        fl->say_at = f->now + FETCH_SAY_NS;
        f->look_at = u64_min(f->look_at, fl->say_at);
        link_init(&fl->wants);
        link_init(&fl->gets);
        hash_in(f, fl);
        link_add(flight_queue(f, fl), &fl->all);
        f->n_waiting++;
        plan_arrival(f, fl);
    }
    w->key = k;
    w->fl = fl;
    w->prio = o->prio;
    w->deadline = o->deadline_ns ? o->deadline_ns : FETCH_NEVER;
    w->peers_only = o->peers_only;
    w->own = o->own;
    w->others = o->others;
    w->done = o->done;
    w->ctx = o->ctx;
    f->want_deadline = u64_min(f->want_deadline, w->deadline);
    link_add(&fl->wants, &w->in_flight);
    f->n_wants++;
    update(f, fl);
    if (w->prio > fl->prio) {
        set_prio(f, fl, w->prio);
    }
    if (out) {
        *out = (struct fetch_want *)w;
    }
    f->dirty = true;
    f->hold = f->depth == 1; /* `done` waits for the next call, which is due at once */
    fetch_leave(f);
    f->hold = false;
    return 0;
}

static void want_free(struct fetch *f, struct want *w)
{
    link_cut(&w->in_flight);
    f->n_wants--;
    free(w);
}

void fetch_cancel(struct fetch *f, struct fetch_want *h)
{
    struct want *w = (struct want *)h;
    struct flight *fl = w->fl;
    fetch_enter(f);
    want_free(f, w);
    if (fl && !fl->ended) {
        if (fl->wants.next == &fl->wants) {
            flight_end(f, fl, ERR_CANCELLED, "nobody wants it any more");
        } else {
            update(f, fl);
            set_prio(f, fl, highest(fl));
        }
    }
    fetch_leave(f);
}

void fetch_raise(struct fetch *f, struct fetch_want *h, enum fetch_prio prio)
{
    struct want *w = (struct want *)h;
    fetch_enter(f);
    if (w->fl && !w->fl->ended && (unsigned)prio < FETCH_PRIOS && prio > w->prio) {
        w->prio = prio;
        if (prio > w->fl->prio) {
            set_prio(f, w->fl, prio);
        }
    }
    fetch_leave(f);
}

/* Wants whose time is over leave alone; the object goes on for the others. */
static void expire(struct fetch *f)
{
    if (f->now < f->want_deadline) {
        return;
    }
    uint64_t next = FETCH_NEVER;
    for (uint32_t b = 0; b < f->hash_cap; b++) {
        for (struct flight *fl = f->hash[b], *after; fl; fl = after) {
            after = fl->hash_next;
            bool any = false;
            struct link late;
            link_init(&late);
            for (struct link *l = fl->wants.next, *n; l != &fl->wants; l = n) {
                n = l->next;
                struct want *w = want_of(l);
                if (w->deadline <= f->now) {
                    link_cut(l);
                    link_add(&late, l);
                    any = true;
                } else {
                    next = u64_min(next, w->deadline);
                }
            }
            if (!any) {
                continue;
            }
            if (fl->wants.next == &fl->wants) {
                while (late.next != &late) { /* the object ends with them */
                    struct link *l = late.next;
                    link_cut(l);
                    link_add(&fl->wants, l);
                }
                flight_end(f, fl, ERR_TIMEOUT, "its deadline passed with %llu of %llu bytes there",
                           (unsigned long long)(fl->size - (fl->begun ? fl->left : fl->size)),
                           (unsigned long long)fl->size);
                continue;
            }
            while (late.next != &late) {
                struct link *l = late.next;
                link_cut(l);
                link_add(&f->expired, l);
                want_of(l)->fl = NULL;
            }
            update(f, fl);
            set_prio(f, fl, highest(fl));
        }
    }
    f->want_deadline = next;
}

/* ---- calling back, time ---- */

static void call_back(struct fetch *f)
{
    static const struct fetch_result without_memory = {
        .code = ERR_NOMEM, .err = {ERR_NOMEM, "out of memory while an object was fetched"}};
    while (f->expired.next != &f->expired) {
        struct want *w = want_of(f->expired.next);
        struct fetch_result *r = calloc(1, sizeof *r);
        if (r) {
            r->key = w->key;
            r->code = err_set(&r->err, ERR_TIMEOUT, "its deadline passed");
        }
        fetch_done_fn done = w->done;
        void *ctx = w->ctx;
        link_cut(&w->in_flight);
        f->n_wants--;
        done(ctx, (struct fetch_want *)w, r ? r : &without_memory);
        free(w);
        free(r);
    }
    while (f->ended.next != &f->ended) {
        struct flight *fl = flight_of(f->ended.next);
        if (fl->wants.next == &fl->wants) {
            link_cut(&fl->all);
            free(fl->r);
            free(fl);
            continue;
        }
        struct want *w = want_of(fl->wants.next);
        link_cut(&w->in_flight);
        f->n_wants--;
        w->done(w->ctx, (struct fetch_want *)w, fl->r ? fl->r : &without_memory);
        free(w);
    }
}

static bool to_call(const struct fetch *f)
{
    return f->ended.next != &f->ended || f->expired.next != &f->expired;
}

void fetch_enter(struct fetch *f)
{
    if (f->depth++ == 0) {
        uint64_t t = f->o.ops.now(f->o.ops.ctx);
        f->now = t > f->now ? t : f->now;
        /* A call long after a tick was due: this thread was held up, and what came meanwhile is
         * still to be read. Nobody is late for that. */
        if (f->due && f->now > f->due && f->now - f->due > FETCH_HEDGE_MIN_NS / 2) {
            f->held_up = f->now;
            if (f->now - f->due > FETCH_LEASE_NS / 4) {
                f->stood_still = f->now;
            }
        }
    }
}

void fetch_leave(struct fetch *f)
{
    if (f->depth > 1) {
        f->depth--;
        return;
    }
    while (f->dirty || (!f->hold && to_call(f))) {
        if (f->dirty) {
            f->dirty = false;
            if (!f->closing) {
                plan_run(f);
            }
        }
        if (!f->hold) {
            call_back(f);
        }
    }
    f->depth = 0;
    uint64_t d = fetch_deadline(f);
    f->due = d;
    if (d < f->told && f->o.ops.wake && !f->closing) {
        f->told = d;
        f->o.ops.wake(f->o.ops.ctx);
    }
}

uint64_t fetch_deadline(const struct fetch *f)
{
    return to_call(f) ? 0 : u64_min(f->want_deadline, plan_deadline(f));
}

void fetch_tick(struct fetch *f)
{
    fetch_enter(f);
    f->told = FETCH_NEVER;
    expire(f);
    plan_timers(f);
    fetch_leave(f);
}

/* ---- opening and closing ---- */

int fetch_open(const struct fetch_opts *o, struct fetch **out, struct err *e)
{
    const struct storage_ops *st = o->storage;
    if (!o->ops.now || !o->ops.send_get || !o->ops.send_cancel || !st || !st->size ||
        !st->digests || !st->put_begin || !st->put_chunk || !st->put_end ||
        !o->ops.origin_get != !o->ops.origin_cancel ||
        (o->leases && (!o->ops.chunk || !o->ops.lease_end || !o->ops.send_take))) {
        return err_set(e, ERR_ARG, "the fetch engine misses one of the functions it works with");
    }
    struct fetch *f = calloc(1, sizeof *f);
    if (f) {
        f->hash_cap = 1024;
        f->hash = calloc(f->hash_cap, sizeof(*f->hash));
    }
    if (!f || !f->hash) {
        free(f);
        return err_set(e, ERR_NOMEM, "no memory for the fetch engine");
    }
    f->o = *o;
    f->o.max_bytes = o->max_bytes ? o->max_bytes : MAX_BYTES;
    f->o.no_source_ms = o->no_source_ms ? o->no_source_ms : NO_SOURCE_MS;
    f->o.give_up_ms = o->give_up_ms ? o->give_up_ms : GIVE_UP_MS;
    f->o.sample_bytes = o->sample_bytes ? o->sample_bytes : FETCH_SAMPLE_BYTES;
    f->random = o->seed | 1;
    for (int i = 0; i < FETCH_PRIOS; i++) {
        link_init(&f->waiting[i]);
        link_init(&f->waiting[i + FETCH_PRIOS]);
        link_init(&f->begun[i]);
    }
    if (o->leases) {
        order_seed(&f->seed, o->root, o->self);
    }
    link_init(&f->ended);
    link_init(&f->expired);
    source_init(&f->origin, FETCH_ORIGIN, NULL);
    f->origin_up = o->ops.origin_get != NULL;
    f->told = f->want_deadline = f->look_at = f->origin_at = FETCH_NEVER;
    *out = f;
    return 0;
}

void fetch_close(struct fetch *f)
{
    if (!f) {
        return;
    }
    fetch_enter(f);
    f->closing = true;
    for (int p = 0; p < FETCH_PRIOS; p++) {
        struct link *lists[] = {&f->waiting[p], &f->waiting[p + FETCH_PRIOS], &f->begun[p]};
        for (int k = 0; k < 3; k++) {
            while (lists[k]->next != lists[k]) {
                flight_end(f, flight_of(lists[k]->next), ERR_CANCELLED, "the node stops");
            }
        }
    }
    fetch_leave(f);
    for (uint32_t i = 0; i < FETCH_PEERS_MAX; i++) {
        if (f->peer[i]) {
            have_free(&f->peer[i]->have);
            free(f->peer[i]);
        }
    }
    for (uint32_t i = 0; i < FETCH_RECORDS_MAX; i++) {
        free(f->rec[i]);
    }
    free(f->hash);
    free(f);
}
