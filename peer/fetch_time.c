/* SPDX-License-Identifier: MIT
 * fetch_time.c: what time alone brings about: late and dead peers, lines about objects that get
 * no bytes, their end. */
#include "peer/fetch_int.h"

static uint64_t dead_ns(struct source *s)
{
    uint64_t t = 8 * plan_hedge_ns(s);
    return t < FETCH_DEAD_MIN_NS ? FETCH_DEAD_MIN_NS : u64_min(t, FETCH_DEAD_MAX_NS);
}

static uint64_t late_at(const struct fetch *f, struct source *s)
{
    return u64_max(f->held_up + FETCH_HEDGE_MIN_NS / 2, source_since(s) + plan_hedge_ns(s));
}

static uint64_t dead_at(struct source *s)
{
    return u64_max(s->busy_since, u64_max(s->last_data, s->last_bytes)) + dead_ns(s);
}

uint64_t plan_deadline(const struct fetch *f)
{
    uint64_t t = f->look_at;
    if (f->n_begun && f->origin_at) {
        t = u64_min(t, f->origin_at);
    }
    for (uint32_t i = 0; i < f->slots; i++) {
        struct source *s = f->peer[i];
        if (s && s->n_gets) {
            t = u64_min(t, s->late ? dead_at(s) : late_at(f, s));
        }
    }
    return t;
}

static void say(struct fetch *f, struct flight *fl)
{
    char name[FETCH_NAME], on[300];
    flight_waits_for(f, fl, on, sizeof on);
    fetch_log(f, "%s: no byte for %.0f s; %u of %u chunks are there; %s",
              flight_name(f, fl, name, sizeof name), (double)(f->now - fl->last_byte) / 1e9,
              fl->begun ? fl->n - fl->left_chunks : 0, fl->n, on);
}

void plan_timers(struct fetch *f)
{
    for (uint32_t i = 0; i < f->slots; i++) {
        struct source *s = f->peer[i];
        if (!s || !s->n_gets) {
            continue;
        }
        if (!s->late && f->now >= late_at(f, s)) {
            s->late = true;
            s->good = 0;
            f->origin_at = f->hedge_at = 0;
            f->dirty = true;
        }
        if (f->now >= dead_at(s)) {
            s->rec->timeouts++;
            s->late = false; /* the fault is told here */
            source_fault(f, s, "gave nothing, or hardly a byte a while, of what it was asked for");
            source_drop_plain(f, s);
        }
    }
    if (f->now >= f->origin_at) {
        f->dirty = true;
    }
    if (f->now < f->look_at) {
        return;
    }
    f->look_at = FETCH_NEVER;
    f->dirty = true;
    relay_timers(f);
    for (int p = 0; p < FETCH_PRIOS; p++) {
        struct link *lists[] = {&f->waiting[p], &f->waiting[p + FETCH_PRIOS], &f->begun[p]};
        for (int k = 0; k < 3; k++) {
            for (struct link *l = lists[k]->next, *next; l != lists[k]; l = next) {
                struct flight *fl = flight_of(l);
                next = l->next;
                if (f->now >= fl->say_at) {
                    fl->say_at = f->now + FETCH_SAY_NS;
                    say(f, fl);
                }
                f->look_at = u64_min(f->look_at, fl->say_at);
                if (fl->begun && f->now - fl->last_byte >= f->o.give_up_ms * FETCH_MS &&
                    f->now >= f->busy_until && !relay_outside(f, fl)) {
                    char on[300];
                    flight_waits_for(f, fl, on, sizeof on);
                    flight_end(f, fl, ERR_TIMEOUT, "no byte for %llu s; %s",
                               (unsigned long long)f->o.give_up_ms / 1000, on);
                }
            }
        }
    }
    /* A Get that is passed over while its peer serves others is given up at last. */
    for (uint32_t i = 0; i < f->slots; i++) {
        struct source *s = f->peer[i];
        for (struct link *l = s ? s->gets.next : NULL, *next; l && l != &s->gets; l = next) {
            struct get *g = get_of_source(l);
            next = l->next;
            bool highest = source_queued(s, g->prio) == source_queued(s, FETCH_BACKGROUND) ||
                           source_queued(s, g->prio) == s->in_flight[g->prio];
            if (!g->relay && highest && s->last_data > g->last &&
                f->now - g->last >
                    FETCH_DEAD_MAX_NS + (uint64_t)((double)source_queued(s, g->prio) /
                                                   source_rate_now(f, s) * 4e9)) {
                g->fl->m[g->member].excluded = true;
                s->rec->timeouts++;
                get_close(f, g, true);
            }
        }
    }
}
