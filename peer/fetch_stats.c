/* SPDX-License-Identifier: MIT
 * fetch_stats.c: numbers for status, sentences for people. */
#include "peer/fetch_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(struct fetch *f, struct record *r, struct fetch_peer_stats *o)
{
    memset(o, 0, sizeof *o);
    memcpy(o->id, r->id, SHA256_SIZE);
    memcpy(o->name, r->name, FETCH_NAME);
    struct source *s = r->up;
    if (s) {
        o->up = true;
        o->peer = s->slot;
        o->proven = s->good >= FETCH_PROVEN;
        o->late = s->late;
        o->hedge_ns = plan_hedge_ns(s);
        o->window = plan_window(s);
        o->in_flight = source_queued(s, FETCH_BACKGROUND);
        o->gets = s->n_gets;
        o->objects = s->have.objects;
    }
    o->rate = rate_known(&r->rate) ? rate_get(&r->rate, 0) : 0;
    o->latency_ns = latency_get(&r->first, 0);
    o->bytes = r->bytes;
    o->chunks = r->chunks;
    o->dup_bytes = r->dup_bytes;
    o->late_bytes = r->late_bytes;
    o->bad_chunks = r->bad_chunks;
    o->protocol_faults = r->protocol_faults;
    o->refusals = r->refusals;
    o->timeouts = r->timeouts;
    o->losses = r->losses;
    uint64_t now = u64_max(f->now, f->o.ops.now(f->o.ops.ctx));
    for (uint32_t i = 0; i < r->n_strikes; i++) {
        o->strikes += now - r->strike[i] < FETCH_STRIKE_NS;
    }
    o->bans = r->bans;
    o->banned_ns = r->banned_until > now ? r->banned_until - now : 0;
    o->paused_ns = r->pause_until > now ? r->pause_until - now : 0;
    memcpy(o->last_fault, r->last_fault, FETCH_TEXT);
}

size_t fetch_get_peers(struct fetch *f, struct fetch_peer_stats *out, size_t max)
{
    size_t n = 0;
    for (int up = 1; up >= 0; up--) {
        for (uint32_t i = 0; i < FETCH_RECORDS_MAX; i++) {
            struct record *r = f->rec[i];
            if (r && (r->up != NULL) == (up == 1)) {
                if (n < max) {
                    fill(f, r, &out[n]);
                }
                n++;
            }
        }
    }
    return n;
}

void fetch_get_stats(const struct fetch *f, struct fetch_stats *out)
{
    *out = f->s;
    out->waiting = f->n_waiting;
    out->begun = f->n_begun;
    out->wants = f->n_wants;
    out->peers = f->n_peers;
    out->buffered = f->begun_bytes;
    out->in_flight = 0;
    for (uint32_t i = 0; i < f->slots; i++) {
        if (f->peer[i]) {
            out->in_flight += source_queued(f->peer[i], FETCH_BACKGROUND);
        }
    }
    out->origin_rate = plan_origin_rate(f);
    out->origin_latency_ns = source_latency(&f->origin);
    out->origin_up = f->origin_up;
}

static void add(char *buf, size_t n, size_t *at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void add(char *buf, size_t n, size_t *at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(buf + *at, n - *at, fmt, ap);
    va_end(ap);
    if (k > 0) {
        *at += (size_t)k < n - *at ? (size_t)k : n - *at - 1;
    }
}

void flight_waits_for(const struct fetch *f, const struct flight *fl, char *buf, size_t n)
{
    size_t at = 0;
    buf[0] = 0;
    for (struct link *l = fl->gets.next; l != &fl->gets; l = l->next) {
        const struct get *g = get_of_flight(l);
        add(buf, n, &at, "%s%s (%d chunks, asked %.1f s ago%s)", at ? ", " : "waits for ",
            source_is_origin(g->s) ? "the origin" : g->s->rec->name, __builtin_popcountll(g->open),
            (double)(f->now - g->sent) / 1e9,
            g->relay     ? ", it fetches them from the origin"
            : g->s->late ? ", late"
                         : "");
    }
    if (at) {
        return;
    }
    if (!fl->begun) {
        add(buf, n, &at, "waits for memory: %u objects with %llu bytes are under way", f->n_begun,
            (unsigned long long)f->begun_bytes);
        return;
    }
    if (fl->held) {
        add(buf, n, &at,
            "is whole, and waits until a sample of its giver's word has been compared "
            "with the origin");
        return;
    }
    uint32_t holders = 0, able = 0;
    for (uint32_t i = 0; i < f->slots; i++) {
        const struct source *s = f->peer[i];
        if (s && have_test(&s->have, fl->key)) {
            holders++;
            able += plan_candidate(f, fl, s);
        }
    }
    add(buf, n, &at, "waits for a source: %u of %u peers have it, %u may be asked", holders,
        f->n_peers, able);
    if (fl->peers_only) {
        add(buf, n, &at, ", and the origin may not");
    } else if (!f->origin_up) {
        add(buf, n, &at, ", and there is no origin");
    } else if (f->now < f->origin_after) {
        add(buf, n, &at, ", the origin again in %.1f s", (double)(f->origin_after - f->now) / 1e9);
    }
}

int fetch_explain(struct fetch *f, struct buf *out)
{
    static const char *const word[FETCH_PRIOS] = {"background", "prefetch", "demand"};
    int r = 0;
    f->now = u64_max(f->now, f->o.ops.now(f->o.ops.ctx));
    for (int p = FETCH_DEMAND; p >= FETCH_BACKGROUND && !r; p--) {
        struct link *lists[] = {&f->begun[p], &f->waiting[p], &f->waiting[p + FETCH_PRIOS]};
        for (int k = 0; k < 3 && !r; k++) {
            for (struct link *l = lists[k]->next; l != lists[k] && !r; l = l->next) {
                const struct flight *fl = flight_of(l);
                char name[FETCH_NAME], on[300];
                flight_waits_for(f, fl, on, sizeof on);
                r = buf_addf(out, "%s (%s): %u of %u chunks after %.1f s; %s\n",
                             flight_name(f, fl, name, sizeof name), word[p],
                             fl->begun ? fl->n - fl->left_chunks : 0, fl->n,
                             (double)(f->now - fl->asked_at) / 1e9, on);
            }
        }
    }
    return r;
}
