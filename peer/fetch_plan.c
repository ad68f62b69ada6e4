/* SPDX-License-Identifier: MIT
 * fetch_plan.c: which source is asked for which chunks. The rules are in peer/README.md. */
#include "peer/fetch_int.h"

#include <stdio.h>
#include <string.h>

#define CHUNK ((double)STORAGE_CHUNK)
#define LOOK_NS (250 * FETCH_MS) /* while something is under way: is a Get starving? */
#define HEDGE_LOOK_NS (5 * FETCH_MS)
#define ORIGIN_AHEAD_NS (250 * FETCH_MS)

struct cand {
    struct source *s;
    double rate, latency, queued; /* bytes/s, seconds, bytes */
    uint32_t room;                /* chunks */
};

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

static uint64_t dead_ns(struct source *s)
{
    uint64_t t = 8 * plan_hedge_ns(s);
    return t < FETCH_DEAD_MIN_NS ? FETCH_DEAD_MIN_NS : u64_min(t, FETCH_DEAD_MAX_NS);
}

bool plan_candidate(const struct fetch *f, const struct flight *fl, const struct source *s)
{
    if (fl->conflict || s->rec->banned_until > f->now || !have_test(&s->have, fl->key) ||
        record_is_bad(s->rec, fl->key)) {
        return false;
    }
    for (uint32_t i = 0; i < fl->n_members; i++) {
        if (fl->m[i].rec == s->rec) {
            return !fl->m[i].excluded;
        }
    }
    return fl->n_members < FETCH_MEMBERS_MAX;
}

bool plan_origin_usable(const struct fetch *f, const struct flight *fl)
{
    return f->origin_up && !fl->peers_only && !fl->origin_failed && f->now >= f->origin_after;
}

double plan_origin_rate(const struct fetch *f)
{
    return rate_get(&f->origin.rate, FETCH_ORIGIN_RATE);
}

static bool proven(const struct source *s)
{
    return s->good >= FETCH_PROVEN;
}

/* Peers that may be asked now, and those that merely have no room. Without any, and without an
 * origin, late and paused ones are better than nothing (`desperate`). */
static uint32_t candidates(struct fetch *f, const struct flight *fl, bool desperate, struct cand *c)
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
        if (!proven(s)) {
            w = FETCH_TRIAL_CHUNKS * (uint64_t)STORAGE_CHUNK;
            used = all;
        } else if (all > w) {
            used = u64_max(used, all - w); /* whatever the priorities, twice the window at most */
        }
        c[n].room = used < w ? (uint32_t)((w - used + STORAGE_CHUNK - 1) / STORAGE_CHUNK) : 0;
        n++;
    }
    return n;
}

/* ---- peers ---- */

/* When all candidates together would be done with `bytes` more, in seconds. */
static double horizon(const struct cand *c, uint32_t n, double bytes)
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
        uint32_t n = candidates(f, fl, desperate, c);
        if (!n) {
            if (desperate || plan_origin_usable(f, fl)) {
                return;
            }
            desperate = true;
            continue;
        }
        double left = (double)fl->unasked * CHUNK;
        double end = horizon(c, n, *backlog + left) * 1.1 + 0.005;
        /* A slow peer with room is not asked when the quick ones will be through with everything
         * before it is through with one chunk. */
        struct cand *best = NULL, *any = NULL;
        for (uint32_t i = 0; i < n; i++) {
            double t = finish(&c[i], CHUNK);
            if (!any || t < finish(any, CHUNK)) {
                any = &c[i];
            }
            if (c[i].room && (!best || t < finish(best, CHUNK))) {
                best = &c[i];
            }
        }
        if (!best || (best != any && finish(best, CHUNK) > end)) {
            *backlog += left;
            return;
        }
        double share = (end - best->latency) * best->rate - best->queued;
        uint32_t most = share > CHUNK ? (uint32_t)(share / CHUNK) : 1;
        most = most < best->room ? most : best->room;
        most = most < FETCH_RUN_MAX ? most : FETCH_RUN_MAX;
        uint32_t first, k = run_of(fl, most, &first);
        if (get_send(f, fl, best->s, first, k, false) && desperate) {
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
    uint32_t n = UINT32_MAX;
    for (struct link *l = fl->gets.next, *next; l != &fl->gets; l = next) {
        struct get *g = get_of_flight(l);
        next = l->next;
        if (source_is_origin(g->s)) {
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
                n = candidates(f, fl, false, c);
            }
            struct cand *best = NULL;
            for (uint32_t j = 0; j < n; j++) {
                if (c[j].s != g->s && c[j].room &&
                    (!best || finish(&c[j], CHUNK) < finish(best, CHUNK))) {
                    best = &c[j];
                }
            }
            if (!best) {
                break;
            }
            k = k < best->room ? k : best->room;
            if (finish(best, k * CHUNK) * 2 + 0.05 > until ||
                !may_hedge(f, fl, late, k * (uint64_t)STORAGE_CHUNK)) {
                break;
            }
            if (get_send(f, fl, best->s, i, k, true)) {
                n = UINT32_MAX;
                break;
            }
            best->room -= k;
            best->queued += k * CHUNK;
            i += k - 1;
        }
    }
}

/* ---- the origin ---- */

/* The origin alone would have delivered it at virtual_end; so much later is allowed. A lower
 * priority waits for higher ones, there as here. */
void plan_arrival(struct fetch *f, struct flight *fl)
{
    double now = (double)f->now, rate = plan_origin_rate(f);
    double latency = (double)source_latency(&f->origin);
    uint64_t mine = fl->begun ? fl->left : fl->size, before = 0;
    for (int p = FETCH_DEMAND; p >= (int)fl->prio; p--) {
        before += f->todo[p];
    }
    f->todo[fl->prio] += mine;
    for (int p = fl->prio; p >= FETCH_BACKGROUND; p--) {
        double v = f->virtual_end[p];
        if (p == (int)fl->prio) {
            /* Savings of the past may be spent on waiting, within a limit. */
            double most = now + (double)before / rate * 1e9 + (double)FETCH_SAVINGS_NS;
            v = v > most ? most : v;
        }
        v = (v > now ? v : now) + (double)mine / rate * 1e9;
        f->virtual_end[p] = v;
    }
    double end = f->virtual_end[fl->prio] + latency;
    fl->due = (uint64_t)(end + FETCH_ORIGIN_SLACK * (end - now));
    bool trial = false;
    for (uint32_t i = 0; i < f->slots; i++) {
        struct source *s = f->peer[i];
        if (s && plan_candidate(f, fl, s)) {
            if (proven(s)) {
                trial = false;
                break;
            }
            trial |= !s->rec->tried;
        }
    }
    if (trial && (!f->last_trial || f->now - f->last_trial >= FETCH_TRIAL_EVERY_NS)) {
        fl->due += FETCH_TRIAL_NS;
    }
    double start = (double)fl->due - latency - (double)(before + mine) / rate * 1e9;
    start = start > now ? start : now;
    f->origin_at = u64_min(f->origin_at, (uint64_t)start);
}

/* Will peers that have proved themselves deliver the rest in time? */
static bool covered(struct fetch *f, struct flight *fl, double latency, double rate)
{
    struct cand c[FETCH_PEERS_MAX];
    uint32_t n = candidates(f, fl, false, c), k = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (proven(c[i].s)) {
            c[k++] = c[i];
        }
    }
    if (!k) {
        return false;
    }
    double bytes = (double)fl->unasked * CHUNK;
    for (struct link *l = fl->gets.next; l != &fl->gets; l = l->next) {
        const struct get *g = get_of_flight(l);
        if (!source_is_origin(g->s) && (!proven(g->s) || g->s->late)) {
            bytes += __builtin_popcountll(g->open) * CHUNK; /* to be asked of the others */
        }
    }
    double t = horizon(c, k, bytes) * 1e9;
    double origin = (latency + (double)fl->left / rate * 1e9) * (1 + FETCH_ORIGIN_SLACK);
    double in_time = fl->due > f->now ? (double)(fl->due - f->now) : 0;
    return t <= (in_time > origin ? in_time : origin);
}

static void want_origin(struct fetch *f, struct flight *fl, const char *why)
{
    if (fl->origin_wanted) {
        return;
    }
    fl->origin_wanted = true;
    char name[FETCH_NAME];
    uint32_t tried = 0;
    for (struct link *l = fl->gets.next; l != &fl->gets; l = l->next) {
        struct get *g = get_of_flight(l);
        if (!source_is_origin(g->s) && !proven(g->s)) {
            g->s->rec->tried = f->now;
            tried++;
        }
    }
    if (tried) {
        f->last_trial = f->now;
    }
    if (tried || fl->n_gets || fl->n_members) {
        fetch_log(f, "%s: %s, the origin is asked for %u of %u chunks",
                  flight_name(f, fl, name, sizeof name), why, fl->left_chunks, fl->n);
    }
}

static bool origin_full(const struct fetch *f)
{
    double ahead =
        plan_origin_rate(f) * (double)(source_latency(&f->origin) + ORIGIN_AHEAD_NS) / 1e9;
    return (double)source_queued(&f->origin, FETCH_BACKGROUND) > ahead + 2 * CHUNK;
}

/* Ask the origin for what is missing: first what nobody is asked for, then the rest. Two Gets at a
 * time, so that it does not idle between them. */
static void origin_gets(struct fetch *f, struct flight *fl)
{
    uint32_t open = 0;
    for (struct link *l = fl->gets.next; l != &fl->gets; l = l->next) {
        open += source_is_origin(get_of_flight(l)->s);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < fl->n && open < 2; i++) {
            uint32_t k = 0;
            while (i + k < fl->n && k < FETCH_RUN_MAX && !fl->c[i + k].done &&
                   !fl->c[i + k].origin && (pass || !fl->c[i + k].asks)) {
                k++;
            }
            if (!k) {
                continue;
            }
            if (get_send(f, fl, &f->origin, i, k, false)) {
                return;
            }
            open++;
            i += k - 1;
        }
    }
}

/* The first object, in order, that neither the origin nor proven peers deliver; at most up to
 * `last`, from where the last search ended. */
static struct flight *uncovered(struct fetch *f, struct link **at, int *p,
                                const struct flight *last, double latency, double rate)
{
    for (;;) {
        while (*at == &f->begun[*p]) {
            if (--*p <= FETCH_BACKGROUND) {
                *p = FETCH_PREFETCH;
                return NULL;
            }
            *at = f->begun[*p].next;
        }
        struct flight *fl = flight_of(*at);
        if (!fl->origin_wanted && plan_origin_usable(f, fl) && !covered(f, fl, latency, rate)) {
            return fl;
        }
        if (fl == last) {
            return NULL;
        }
        *at = (*at)->next;
    }
}

/* The latest times at which the origin must begin so that each object is there when due; it serves
 * one after the other. */
static void origin_rule(struct fetch *f)
{
    if (f->now < f->origin_at) {
        return;
    }
    double rate = plan_origin_rate(f), latency = (double)source_latency(&f->origin);
    double before = 0;
    int q = FETCH_DEMAND; /* where the search for an object to give it has come to */
    struct link *at = f->begun[q].next;
    f->origin_at = FETCH_NEVER;
    for (int p = FETCH_DEMAND; p > FETCH_BACKGROUND; p--) {
        for (struct link *l = f->begun[p].next; l != &f->begun[p]; l = l->next) {
            struct flight *fl = flight_of(l);
            if (!plan_origin_usable(f, fl)) {
                continue;
            }
            before += (double)fl->left;
            double start = (double)fl->due - latency - before / rate * 1e9;
            if (start > (double)f->now) {
                f->origin_at = u64_min(f->origin_at, (uint64_t)start + 1);
                continue;
            }
            struct flight *first = uncovered(f, &at, &q, fl, latency, rate);
            if (!first) {
                continue;
            }
            if (origin_full(f)) {
                f->origin_at = 0; /* looked at again when something has come */
                return;
            }
            want_origin(f, first, "no peer gives it in time");
            origin_gets(f, first);
        }
    }
}

void plan_conflict(struct fetch *f, struct flight *fl, const char *what)
{
    char name[FETCH_NAME];
    bool origin = plan_origin_usable(f, fl);
    f->s.conflicts++;
    fetch_log(f, "%s: %s; %s", flight_name(f, fl, name, sizeof name), what,
              origin ? "the origin decides" : "two others must agree, the origin is out of reach");
    for (uint32_t i = 0; i < fl->n_members; i++) {
        /* Those who have said nothing yet may still tip the scales. */
        if (origin || fl->m[i].stated) {
            flight_void(f, fl, i);
            fl->m[i].excluded = fl->m[i].disputed = true;
        }
    }
    for (struct link *l = fl->gets.next, *next; l != &fl->gets; l = next) {
        struct get *g = get_of_flight(l);
        next = l->next;
        if (!source_is_origin(g->s) && fl->m[g->member].excluded) {
            get_close(f, g, true);
        }
    }
    if (origin) {
        fl->conflict = true;
        want_origin(f, fl, what);
    } else {
        fl->disputed = true;
        for (uint32_t i = 0; i < f->slots; i++) {
            if (f->peer[i] && plan_candidate(f, fl, f->peer[i])) {
                f->dirty = true;
                return;
            }
        }
        flight_end(f, fl, ERR_DIGEST,
                   "%s, and without the origin nobody can tell who is right; it is not used", what);
    }
    f->dirty = true;
}

/* ---- all together ---- */

static bool has_room(const struct fetch *f, const struct flight *fl)
{
    uint64_t max = fl->prio == FETCH_DEMAND ? f->o.max_bytes * 2 : f->o.max_bytes;
    uint32_t begun = fl->prio == FETCH_DEMAND ? FETCH_BEGUN_MAX : FETCH_BEGUN_MAX - 64;
    return !f->n_begun || (f->begun_bytes + fl->size <= max && f->n_begun < begun);
}

static void begin(struct fetch *f)
{
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND; p--) {
        while (f->waiting[p].next != &f->waiting[p]) {
            struct flight *fl = flight_of(f->waiting[p].next);
            if (fl->retry_put > f->now || !has_room(f, fl)) {
                f->look_at = u64_min(f->look_at, u64_max(fl->retry_put, f->now + LOOK_NS));
                return; /* a smaller one behind it must not starve it */
            }
            if (flight_begin(f, fl) == ERR_BUSY) {
                fl->retry_put = f->now + 20 * FETCH_MS;
                f->look_at = u64_min(f->look_at, fl->retry_put);
                return;
            }
        }
    }
}

/* Nobody is asked for this object and nobody can be: the origin, waiting, the end. */
static void without_source(struct fetch *f, struct flight *fl)
{
    if (fl->gets.next != &fl->gets) {
        fl->no_source = 0;
        return;
    }
    struct cand c[FETCH_PEERS_MAX];
    bool origin = f->origin_up && !fl->peers_only && !fl->origin_failed;
    if (candidates(f, fl, !origin, c)) {
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

void plan_run(struct fetch *f)
{
    double backlog = 0;
    begin(f);
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND; p--) {
        for (struct link *l = f->begun[p].next, *next; l != &f->begun[p]; l = next) {
            struct flight *fl = flight_of(l);
            next = l->next;
            if (fl->unasked) {
                assign(f, fl, &backlog);
            }
            if (fl->unasked && !fl->n_gets && !fl->origin_wanted && plan_origin_usable(f, fl)) {
                struct cand c[FETCH_PEERS_MAX];
                if (!candidates(f, fl, false, c)) {
                    want_origin(f, fl, "no peer gives it");
                }
            }
        }
    }
    origin_rule(f);
    bool hedges = f->now >= f->hedge_at;
    if (hedges) {
        f->hedge_at = f->now + HEDGE_LOOK_NS;
    }
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND; p--) {
        for (struct link *l = f->begun[p].next, *next; l != &f->begun[p]; l = next) {
            struct flight *fl = flight_of(l);
            next = l->next;
            if (fl->origin_wanted && plan_origin_usable(f, fl)) {
                origin_gets(f, fl);
            } else if (!fl->unasked && hedges) {
                hedge(f, fl);
            }
            without_source(f, fl);
        }
    }
    if (f->n_begun) {
        f->look_at = u64_min(f->look_at, f->now + LOOK_NS);
    }
}

/* ---- time ---- */

static uint64_t late_at(struct source *s)
{
    return u64_max(s->busy_since, s->last_data) + plan_hedge_ns(s);
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
            t = u64_min(t, s->late ? dead_at(s) : late_at(s));
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
        if (!s->late && f->now >= late_at(s)) {
            s->late = true;
            s->good = 0;
            f->origin_at = f->hedge_at = 0;
            f->dirty = true;
        }
        if (f->now >= dead_at(s)) {
            s->rec->timeouts++;
            s->late = false; /* the fault is told here */
            source_fault(f, s, "gave no byte of what it was asked for");
            source_drop_gets(f, s, true);
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
    for (int p = 0; p < FETCH_PRIOS; p++) {
        struct link *lists[] = {&f->waiting[p], &f->begun[p]};
        for (int k = 0; k < 2; k++) {
            for (struct link *l = lists[k]->next, *next; l != lists[k]; l = next) {
                struct flight *fl = flight_of(l);
                next = l->next;
                if (f->now >= fl->say_at) {
                    fl->say_at = f->now + FETCH_SAY_NS;
                    say(f, fl);
                }
                f->look_at = u64_min(f->look_at, fl->say_at);
                if (fl->begun && f->now - fl->last_byte >= f->o.give_up_ms * FETCH_MS &&
                    !plan_origin_usable(f, fl)) {
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
            if (highest && s->last_data > g->last &&
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
