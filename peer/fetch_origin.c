/* SPDX-License-Identifier: MIT
 * fetch_origin.c: when the origin takes part in an object, and in which chunks; what happens when
 * members contradict each other. The rules are in peer/README.md. */
#include "peer/fetch_int.h"

#include <stdio.h>
#include <string.h>

#define CHUNK ((double)STORAGE_CHUNK)
#define ORIGIN_AHEAD_NS (250 * FETCH_MS)
#define ORIGIN_SAID_NS (5000 * FETCH_MS)

bool plan_origin_usable(const struct fetch *f, const struct flight *fl)
{
    return f->origin_up && !fl->peers_only && !fl->origin_failed && f->now >= f->origin_after;
}

double plan_origin_rate(const struct fetch *f)
{
    return rate_get(&f->origin.rate, FETCH_ORIGIN_RATE);
}

/* The origin alone would have delivered it at virtual_end; so much later is allowed. A lower
 * priority waits for higher ones, there as here. */
void plan_arrival(struct fetch *f, struct flight *fl)
{
    double now = (double)f->now, rate = plan_origin_rate(f);
    double latency = (double)source_latency(&f->origin);
    uint64_t mine = fl->begun ? fl->left : fl->size, before = 0;
    for (int p = FETCH_DEMAND; p >= (int)fl->prio; p--) {
        before += f->owed[p];
    }
    f->owed[fl->prio] += mine;
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
            if (source_proven(s)) {
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
    uint32_t n = plan_candidates(f, fl, false, c), k = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (source_proven(c[i].s)) {
            c[k++] = c[i];
        }
    }
    if (!k) {
        return false;
    }
    double chunk = flight_chunk_bytes(fl), bytes = (double)fl->unasked * chunk;
    for (struct link *l = fl->gets.next; l != &fl->gets; l = l->next) {
        const struct get *g = get_of_flight(l);
        if (!get_outside(g) && (!source_proven(g->s) || g->s->late)) {
            bytes += __builtin_popcountll(g->open) * chunk; /* to be asked of the others */
        }
    }
    double t = plan_horizon(c, k, bytes) * 1e9;
    double origin = (latency + (double)fl->left / rate * 1e9) * (1 + FETCH_ORIGIN_SLACK);
    double in_time = fl->due > f->now ? (double)(fl->due - f->now) : 0;
    return t <= (in_time > origin ? in_time : origin);
}

bool plan_patient(struct fetch *f, const struct flight *fl)
{
    /* At a reunion a member is asked for much at once. */
    uint64_t until =
        fl->patient_from + (fl->stood_aside ? FETCH_LEASE_NS : FETCH_LEASE_PATIENCE_NS);
    if (!f->o.leases || f->now >= until || fl->conflict) {
        return false;
    }
    for (uint32_t i = 0; i < f->slots; i++) {
        struct source *s = f->peer[i];
        if (!s || !s->leases || !plan_candidate(f, fl, s) ||
            (s->rec->pause_until > f->now && s->rec->pause > FETCH_PAUSE_MIN_NS)) {
            continue; /* not there, or late again and again */
        }
        /* It was late once, or may be: that is a busy machine. */
        double need = (double)(source_queued(s, fl->prio) + fl->left) / source_rate_now(f, s) * 1e9;
        if (!source_proven(s) || need < (double)FETCH_LEASE_PATIENCE_NS) {
            f->origin_at = u64_min(f->origin_at, until);
            return true;
        }
    }
    return false;
}

void plan_want_origin(struct fetch *f, struct flight *fl, const char *why)
{
    if (fl->origin_wanted) {
        return;
    }
    fl->origin_wanted = true;
    char name[FETCH_NAME];
    uint32_t tried = 0;
    for (struct link *l = fl->gets.next; l != &fl->gets; l = l->next) {
        struct get *g = get_of_flight(l);
        if (!get_outside(g) && !source_proven(g->s)) {
            g->s->rec->tried = f->now;
            tried++;
        }
    }
    if (tried) {
        f->last_trial = f->now;
    }
    if (!tried && !fl->n_gets && !fl->n_members) {
        return;
    }
    /* One line in a while: a slow peer makes hundreds of small objects go this way at once. */
    if (f->origin_said && f->now - f->origin_said < ORIGIN_SAID_NS) {
        f->origin_unsaid++;
        return;
    }
    char more[64] = "";
    if (f->origin_unsaid) {
        snprintf(more, sizeof more, "; so it was for %u other objects before", f->origin_unsaid);
    }
    fetch_log(f, "%s: %s, the origin is asked for %u of %u chunks%s",
              flight_name(f, fl, name, sizeof name), why, fl->left_chunks, fl->n, more);
    f->origin_said = f->now;
    f->origin_unsaid = 0;
}

static bool origin_full(const struct fetch *f)
{
    double ahead =
        plan_origin_rate(f) * (double)(source_latency(&f->origin) + ORIGIN_AHEAD_NS) / 1e9;
    return (double)source_queued(&f->origin, FETCH_BACKGROUND) > ahead + 2 * CHUNK;
}

/* First what nobody is asked for, then the rest. */
void plan_outside_gets(struct fetch *f, struct flight *fl, struct source *s, uint32_t most)
{
    uint32_t open = 0;
    for (struct link *l = fl->gets.next; l != &fl->gets; l = l->next) {
        open += get_outside(get_of_flight(l));
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < fl->n && open < most; i++) {
            uint32_t k = 0;
            while (i + k < fl->n && k < FETCH_RUN_MAX && !fl->c[i + k].done &&
                   !fl->c[i + k].origin && (pass || !fl->c[i + k].asks)) {
                k++;
            }
            if (!k) {
                continue;
            }
            if (get_send(f, fl, s, i, k, source_is_origin(s) ? GET_PLAIN : GET_RELAY)) {
                return;
            }
            open++;
            i += k - 1;
        }
    }
}

void plan_origin_gets(struct fetch *f, struct flight *fl)
{
    if (!relay_settle(f, fl)) {
        return;
    }
    if (fl->how == HOW_LEASE) {
        relay_gets(f, fl);
    } else {
        plan_outside_gets(f, fl, &f->origin, 2); /* so that it does not idle between them */
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
        if (!fl->held && !fl->origin_wanted && plan_origin_usable(f, fl) &&
            !covered(f, fl, latency, rate) && !plan_patient(f, fl)) {
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
void plan_origin_rule(struct fetch *f)
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
            if (fl->held || !plan_origin_usable(f, fl)) {
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
            if (!relay_foreign(f, first) && origin_full(f)) {
                f->origin_at = 0; /* looked at again when something has come */
                return;
            }
            plan_want_origin(f, first, "no peer gives it in time");
            plan_origin_gets(f, first);
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
        if (fl->how == HOW_LEASE) {
            relay_leave(f, fl);
        }
        plan_want_origin(f, fl, what);
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
