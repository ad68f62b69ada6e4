/* SPDX-License-Identifier: MIT
 * fetch_plan.c: which source is asked for which chunks. The rules are in peer/README.md. */
#include "peer/fetch_int.h"

#include <stdio.h>
#include <string.h>

#define CHUNK ((double)STORAGE_CHUNK)
#define LOOK_NS (250 * FETCH_MS) /* while something is under way: is a Get starving? */
#define HEDGE_LOOK_NS (5 * FETCH_MS)

/* ---- what can be said of a source ---- */

uint64_t plan_window(const struct source *s)
{
    double rate = rate_get(s->rec ? &s->rec->rate : &s->rate, FETCH_RATE_UNKNOWN);
    double w = 2 * rate * (double)(source_latency(s) + FETCH_WINDOW_NS) / 1e9;
    w = w < FETCH_WINDOW_MIN * CHUNK ? FETCH_WINDOW_MIN * CHUNK : w;
    return (uint64_t)(w > FETCH_WINDOW_MAX * CHUNK ? FETCH_WINDOW_MAX * CHUNK : w);
}

uint64_t plan_hedge_ns(struct source *s)
{
    struct record *r = s->rec;
    if (!r || r->gap.n < PCT_MIN) {
        return FETCH_HEDGE_FIRST_NS;
    }
    if (!r->hedge) { /* renewed with every eighth chunk */
        uint64_t twice = 2 * pct_get(&r->gap, 50, 0);
        uint64_t t = u64_max(pct_get(&r->gap, FETCH_HEDGE_PERCENT, 0), twice);
        t = t < FETCH_HEDGE_MIN_NS ? FETCH_HEDGE_MIN_NS : t;
        r->hedge = u64_min(t, FETCH_HEDGE_MAX_NS);
    }
    return r->hedge;
}

bool plan_candidate(const struct fetch *f, const struct flight *fl, const struct source *s)
{
    if (fl->conflict || s->rec->banned_until > f->now || !have_test(&s->have, fl->key) ||
        record_is_bad(s->rec, fl->key) || s == fl->via || (s->rec->disbelieved && !fl->known)) {
        return false;
    }
    for (uint32_t i = 0; i < fl->n_members; i++) {
        if (fl->m[i].rec == s->rec) {
            return !fl->m[i].excluded;
        }
    }
    return fl->n_members < FETCH_MEMBERS_MAX;
}

uint32_t plan_candidates(struct fetch *f, const struct flight *fl, bool desperate, struct cand *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->slots; i++) {
        struct source *s = f->peer[i];
        if (!s || s->not_before > f->now || !plan_candidate(f, fl, s) ||
            (!desperate && (s->late || s->rec->pause_until > f->now))) {
            continue;
        }
        c[n].s = s;
        c[n].rate = source_rate_now(f, s);
        c[n].latency = (double)source_latency(s) / 1e9;
        c[n].queued = (double)source_queued(s, fl->prio);
        uint64_t all = source_queued(s, FETCH_BACKGROUND), w = plan_window(s);
        uint64_t used = (uint64_t)c[n].queued;
        if (!source_proven(s)) {
            w = FETCH_TRIAL_CHUNKS * (uint64_t)STORAGE_CHUNK;
            used = all;
        } else if (all > w) {
            used = u64_max(used, all - w); /* whatever the priorities, twice the window at most */
        }
        uint32_t gets = FETCH_GETS_MAX - (fl->prio == FETCH_DEMAND ? 0 : FETCH_GETS_SPARE);
        bool more =
            used < w && s->n_gets + s->n_relays < gets; /* small objects: many Gets, few bytes */
        c[n].room = more ? (uint32_t)((w - used + STORAGE_CHUNK - 1) / STORAGE_CHUNK) : 0;
        n++;
    }
    return n;
}

/* ---- peers ---- */

double plan_horizon(const struct cand *c, uint32_t n, double bytes)
{
    double rate = 0, latency = 1e9;
    for (uint32_t i = 0; i < n; i++) {
        rate += c[i].rate;
        bytes += c[i].queued;
        latency = c[i].latency < latency ? c[i].latency : latency;
    }
    return latency + bytes / rate;
}

static double finish(const struct cand *c, double bytes)
{
    return c->latency + (c->queued + bytes) / c->rate;
}

/* The run to ask for next: from the start, or from the end where the origin comes from the start.
 * At most `max` chunks of those asked of no peer. */
static uint32_t run_of(const struct flight *fl, uint32_t max, uint32_t *first)
{
    uint32_t n = 0;
    if (!fl->origin_wanted) {
        uint32_t i = 0;
        while (fl->c[i].done || fl->c[i].asks) {
            i++;
        }
        *first = i;
        while (i < fl->n && n < max && !fl->c[i].done && !fl->c[i].asks) {
            i++;
            n++;
        }
        return n;
    }
    uint32_t i = fl->n;
    while (fl->c[i - 1].done || fl->c[i - 1].asks) {
        i--;
    }
    max = max > 4 ? 4 : max; /* near the end: the origin is coming */
    while (i > 0 && n < max && !fl->c[i - 1].done && !fl->c[i - 1].asks) {
        i--;
        n++;
    }
    *first = i;
    return n;
}

static void assign(struct fetch *f, struct flight *fl, double *backlog)
{
    struct cand c[FETCH_PEERS_MAX];
    bool desperate = false;
    while (fl->unasked) {
        uint32_t n = plan_candidates(f, fl, desperate, c);
        if (!n) {
            if (desperate || (relay_outside(f, fl) && !plan_patient(f, fl))) {
                return;
            }
            desperate = true;
            continue;
        }
        double chunk = flight_chunk_bytes(fl), left = (double)fl->unasked * chunk;
        double end = plan_horizon(c, n, *backlog + left) * 1.1 + 0.005;
        /* A slow peer with room is not asked when the quick ones will be through with everything
         * before it is through with one chunk. */
        struct cand *best = NULL, *any = NULL;
        for (uint32_t i = 0; i < n; i++) {
            double t = finish(&c[i], chunk);
            if (!any || t < finish(any, chunk)) {
                any = &c[i];
            }
            if (c[i].room && (!best || t < finish(best, chunk))) {
                best = &c[i];
            }
        }
        if (!best || (best != any && finish(best, chunk) > end)) {
            *backlog += left;
            return;
        }
        double share = (end - best->latency) * best->rate - best->queued;
        uint32_t most = share > chunk ? (uint32_t)(share / chunk) : 1;
        most = most < best->room ? most : best->room;
        most = most < FETCH_RUN_MAX ? most : FETCH_RUN_MAX;
        uint32_t first, k = run_of(fl, most, &first);
        if (get_send(f, fl, best->s, first, k, GET_PLAIN) && desperate) {
            return;
        }
    }
}

/* ---- hedging ---- */

static bool may_hedge(const struct fetch *f, const struct flight *fl, bool late, uint64_t bytes)
{
    /* A demand is worth a duplicate when its source is late, whatever was spent before. */
    return (late && fl->prio == FETCH_DEMAND) ||
           f->hedge_asked + bytes <= f->s.peer_bytes / FETCH_HEDGE_SHARE + FETCH_HEDGE_FREE;
}

static bool starving(const struct fetch *f, struct get *g, double expected_s)
{
    uint64_t hedge = plan_hedge_ns(g->s);
    return f->now - g->last > 4 * hedge + (uint64_t)(4 * expected_s * 1e9);
}

/* All chunks are asked for; some of them of a source that is late or much slower than another. */
static void hedge(struct fetch *f, struct flight *fl)
{
    struct cand c[FETCH_PEERS_MAX];
    double chunk = flight_chunk_bytes(fl);
    uint32_t n = UINT32_MAX;
    for (struct link *l = fl->gets.next, *next; l != &fl->gets; l = next) {
        struct get *g = get_of_flight(l);
        next = l->next;
        if (get_outside(g)) {
            continue;
        }
        double now_s = (double)source_latency(g->s) / 1e9 +
                       (double)source_queued(g->s, g->prio) / source_rate_now(f, g->s);
        bool late = g->s->late || starving(f, g, now_s);
        double until = late ? 1e9 : now_s;
        if (until < 0.05) {
            continue; /* not worth a thought */
        }
        for (uint32_t i = g->first; i < g->first + g->n; i++) {
            if (!(g->open >> (i - g->first) & 1) || fl->c[i].done || fl->c[i].asks > 1) {
                continue;
            }
            uint32_t k = 1;
            while (i + k < g->first + g->n && (g->open >> (i + k - g->first) & 1) &&
                   !fl->c[i + k].done && fl->c[i + k].asks == 1) {
                k++;
            }
            if (n == UINT32_MAX) {
                n = plan_candidates(f, fl, false, c);
            }
            struct cand *best = NULL;
            for (uint32_t j = 0; j < n; j++) {
                if (c[j].s != g->s && c[j].room &&
                    (!best || finish(&c[j], chunk) < finish(best, chunk))) {
                    best = &c[j];
                }
            }
            if (!best) {
                break;
            }
            k = k < best->room ? k : best->room;
            if (finish(best, k * chunk) * 2 + 0.05 > until ||
                !may_hedge(f, fl, late, k * (uint64_t)STORAGE_CHUNK)) {
                break;
            }
            if (get_send(f, fl, best->s, i, k, GET_HEDGE)) {
                n = UINT32_MAX;
                break;
            }
            best->room -= k;
            best->queued += k * chunk;
            i += k - 1;
        }
    }
}

/* ---- all together ---- */

static void begin(struct fetch *f)
{
    bool blocked[2] = {false, false}; /* this node's own; those for others */
    for (int i = 2 * FETCH_PRIOS - 1; i >= 0; i--) {
        struct link *queue = &f->waiting[i / 2 + (i % 2 ? 0 : FETCH_PRIOS)];
        bool others = i % 2 == 0;
        while (!blocked[others] && queue->next != queue) {
            struct flight *fl = flight_of(queue->next);
            bool room = room_has(f, fl, others ? ROOM_OTHERS : ROOM_OWN);
            if (fl->retry_put > f->now || !room) {
                f->look_at = u64_min(f->look_at, u64_max(fl->retry_put, f->now + LOOK_NS));
                blocked[others] = true; /* a smaller one behind it must not starve it */
            } else if (flight_begin(f, fl) == ERR_BUSY) {
                fl->retry_put = f->now + 20 * FETCH_MS;
                f->look_at = u64_min(f->look_at, fl->retry_put);
                blocked[others] = true;
            }
        }
    }
}

/* Nobody is asked for this object and nobody can be: the origin, waiting, the end. */
static void without_source(struct fetch *f, struct flight *fl)
{
    if (fl->held || fl->gets.next != &fl->gets || (f->busy_until > f->now && !fl->peers_only)) {
        fl->no_source = 0;
        return;
    }
    struct cand c[FETCH_PEERS_MAX];
    bool origin = (f->origin_up && !fl->peers_only && !fl->origin_failed) || relay_outside(f, fl);
    if (plan_candidates(f, fl, !origin, c)) {
        fl->no_source = 0; /* as soon as there is room */
        return;
    }
    bool later = origin;
    for (uint32_t i = 0; i < f->slots && !later; i++) {
        later = f->peer[i] && plan_candidate(f, fl, f->peer[i]);
    }
    if (!fl->no_source) {
        fl->no_source = f->now;
    }
    uint64_t wait = fl->peers_only && !later ? 0
                    : later                  ? f->o.give_up_ms
                    : fl->origin_failed      ? 0
                                             : f->o.no_source_ms;
    uint64_t end = fl->no_source + wait * FETCH_MS;
    if (f->now < end) {
        f->look_at = u64_min(f->look_at, end);
    } else if (fl->disputed) {
        flight_end(f, fl, ERR_DIGEST,
                   "members contradict each other about it and without the "
                   "origin nobody can tell who is right; it is not used");
    } else if (fl->peers_only) {
        flight_end(f, fl, ERR_NOTFOUND, "no peer gives it");
    } else if (fl->origin_failed || (f->origin_err.code && origin)) {
        flight_end(f, fl, f->origin_err.code, "no peer gives it, and %s", f->origin_err.msg);
    } else {
        flight_end(f, fl, ERR_OFFLINE,
                   "no peer gives it and there is no origin; %u of %u chunks came",
                   fl->n - fl->left_chunks, fl->n);
    }
}

/* A peer that gives and is late just now: the origin rule says how long that may be waited for. */
static bool hiccup(const struct fetch *f, const struct flight *fl)
{
    for (uint32_t i = 0; i < f->slots; i++) {
        struct source *s = f->peer[i];
        if (s && s->late && s->last_data && s->rec->pause_until <= f->now &&
            plan_candidate(f, fl, s) && f->now - source_since(s) < 4 * plan_hedge_ns(s)) {
            return true;
        }
    }
    return false;
}

void plan_run(struct fetch *f)
{
    double backlog = 0;
    begin(f);
    sample_run(f);
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND; p--) {
        for (struct link *l = f->begun[p].next, *next; l != &f->begun[p]; l = next) {
            struct flight *fl = flight_of(l);
            next = l->next;
            if (fl->unasked) {
                assign(f, fl, &backlog);
            }
            if (fl->unasked && !fl->n_gets && !fl->origin_wanted && relay_outside(f, fl)) {
                struct cand c[FETCH_PEERS_MAX];
                if (!plan_candidates(f, fl, false, c) && !hiccup(f, fl) && !plan_patient(f, fl)) {
                    plan_want_origin(f, fl, "no peer gives it");
                }
            }
        }
    }
    plan_origin_rule(f);
    bool hedges = f->now >= f->hedge_at;
    if (hedges) {
        f->hedge_at = f->now + HEDGE_LOOK_NS;
    }
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND; p--) {
        for (struct link *l = f->begun[p].next, *next; l != &f->begun[p]; l = next) {
            struct flight *fl = flight_of(l);
            next = l->next;
            if (fl->held) {
                continue;
            }
            if (fl->origin_wanted && relay_outside(f, fl)) {
                plan_origin_gets(f, fl);
            } else if (!fl->unasked && hedges) {
                hedge(f, fl);
            }
            without_source(f, fl);
        }
    }
    if (f->n_begun) {
        f->look_at = u64_min(f->look_at, f->now + LOOK_NS);
    }
    if (f->n_take) {
        relay_say(f);
    }
}
