/* SPDX-License-Identifier: MIT
 * origin_drop.c: parts that nobody wants any more while their request is running: what is left of
 * the range is read to its end only where that costs less than another request. */
#include "node/store/chunk.h"
#include "node/store/origin_inner.h"
#include "proto/base/clock.h"

#define WAIT_NS 2000000   /* what is given up is given up object by object */
#define LEAST (16u << 10) /* a request costs at least so many bytes: heads, a round of the loop */

bool origin_drop(struct origin *o, struct origin_part *p)
{
    uint64_t now = clock_ns();
    pthread_mutex_lock(&o->mu);
    bool out = p->queued && !o->stop;
    if (out) {
        origin_queue_cut(o, p);
        p->queued = false;
    } else {
        p->dropped = true;
        o->cut_after = o->cut_after > now ? o->cut_after : now + WAIT_NS;
        origin_wake(o);
    }
    pthread_mutex_unlock(&o->mu);
    return out;
}

/* What is left of a part, with what of it is skipped already. */
static uint64_t rest(const struct run *r, const struct origin_part *p)
{
    return p->off + p->size - (p->off > r->pos + r->skip ? p->off : r->pos + r->skip);
}

/* With mu: so many bytes would come in the time that n requests take, on a new connection. */
static uint64_t price(const struct origin *o, unsigned n)
{
    double trip = o->latency * o->rate; /* 0: not measured yet */
    double bytes = (double)n * LEAST + (double)(n + 2) * trip;
    return bytes < CHUNK_SIZE ? (uint64_t)bytes : CHUNK_SIZE;
}

/* With mu: dropped parts leave the request: all, or those at the front. */
static struct origin_part *take_dropped(struct run *r, bool front)
{
    struct origin_part **at = &r->head, *gone = NULL, **end = &gone;
    while (*at && (!front || (*at)->dropped)) {
        struct origin_part *p = *at;
        if (p->dropped) {
            *at = p->next;
            p->next = NULL;
            *end = p;
            end = &p->next;
        } else {
            at = &p->next;
        }
    }
    return gone;
}

/* Without mu. */
static void dropped_done(struct origin_part *gone)
{
    while (gone) {
        struct err e = {0};
        struct origin_part *p = gone;
        gone = p->next;
        p->next = NULL;
        err_set(&e, ERR_CANCELLED, "%s: nobody wants it any more", p->name);
        p->done(p, e.code, &e);
    }
}

bool run_cut(struct origin *o, struct run *r)
{
    uint64_t hole = 0, idle = 0, since = r->skip; /* before the first wanted byte; before the last
                                                   * one in all; since the latest one */
    unsigned stretches = 0;
    if (r->end == ORIGIN_UNKNOWN || (!r->head && !r->skip)) {
        return false;
    }
    uint64_t now = clock_ns();
    pthread_mutex_lock(&o->mu);
    for (struct origin_part *p = r->head; p; p = p->next) {
        if (p->dropped) {
            since += rest(r, p);
        } else if (since || p == r->head) {
            hole = stretches ? hole : since;
            stretches++;
            idle += since;
            since = 0;
        }
    }
    /* What is behind the last wanted one is cut off for nothing when that has come. */
    hole = stretches ? hole : since;
    idle = stretches ? idle : since;
    bool cut = hole && idle >= price(o, stretches ? stretches : 1) && now >= o->cut_after;
    if (cut) {
        r->cut = true;
        r->skip = 0;
    } else if (r->head && r->head->dropped) {
        r->skip = hole;
    }
    struct origin_part *gone = take_dropped(r, !cut);
    pthread_mutex_unlock(&o->mu);
    dropped_done(gone);
    return cut;
}

void run_drop(struct origin *o, struct run *r)
{
    pthread_mutex_lock(&o->mu);
    struct origin_part *gone = take_dropped(r, false);
    pthread_mutex_unlock(&o->mu);
    dropped_done(gone);
}
