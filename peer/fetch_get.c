/* SPDX-License-Identifier: MIT
 * fetch_get.c: Gets: sending, raising, closing, and what is counted of them. */
#include "peer/fetch_int.h"

#include <stdlib.h>
#include <string.h>

#define BUSY_MIN_NS (20 * FETCH_MS) /* after the layer below said that it is busy */

void get_clear(struct get *g, uint32_t i)
{
    struct flight *fl = g->fl;
    struct fchunk *c = &fl->c[i];
    g->open &= ~(1ull << (i - g->first));
    if (!g->relay) { /* what a lease brings says nothing about the peer's own rate */
        g->s->in_flight[g->prio] -= storage_chunk_len(fl->size, i);
    }
    if (get_outside(g)) {
        c->origin = false;
        return;
    }
    c->asks--;
    fl->unasked += !c->done && c->asks == 0;
}

static uint32_t deadline_ms(const struct fetch *f, const struct flight *fl)
{
    uint64_t d = 0;
    for (struct link *l = fl->wants.next; l != &fl->wants; l = l->next) {
        d = u64_max(d, want_of(l)->deadline);
    }
    if (d == FETCH_NEVER || d <= f->now) {
        return 0;
    }
    uint64_t ms = (d - f->now) / FETCH_MS + 1;
    return ms > UINT32_MAX ? 0 : (uint32_t)ms;
}

int get_send(struct fetch *f, struct flight *fl, struct source *s, uint32_t first, uint32_t n,
             enum get_kind kind)
{
    bool origin = source_is_origin(s), relay = kind == GET_RELAY, hedge = kind == GET_HEDGE;
    uint32_t m = origin ? FETCH_NOBODY : flight_member(fl, s->rec);
    struct get *g = m == FETCH_NOBODY && !origin ? NULL : calloc(1, sizeof *g);
    if (!g) {
        return ERR_NOMEM;
    }
    struct fetch_get w = {.id = s->next_id, .key = fl->key, .first = first, .n = n};
    w.relay = relay;
    w.prio = fl->prio;
    w.deadline_ms = deadline_ms(f, fl);
    uint64_t bytes = 0;
    for (uint32_t i = first; i < first + n; i++) {
        w.want_digests |= fl->c[i].basis < BASIS_TWO_MEMBERS;
        bytes += storage_chunk_len(fl->size, i);
    }
    int code;
    if (origin) {
        bool sure = fl->conflict;
        for (uint32_t i = 0; i < fl->n_members && !sure; i++) {
            sure = fl->m[i].stated || fl->m[i].has_object;
        }
        code = f->o.ops.origin_get(f->o.ops.ctx, w.id, fl->key, first, n, fl->prio, sure);
    } else {
        code = f->o.ops.send_get(f->o.ops.ctx, s->slot, &w);
    }
    if (code) {
        free(g);
        if (origin) {
            f->origin_after = f->now + FETCH_ORIGIN_RETRY_NS;
            f->look_at = u64_min(f->look_at, f->origin_after);
        } else if (code == ERR_BUSY) {
            s->not_before = f->now + BUSY_MIN_NS;
            f->look_at = u64_min(f->look_at, s->not_before);
        } else {
            source_fault(f, s, "could not be sent a request");
        }
        return code;
    }
    s->next_id++;
    g->s = s;
    g->fl = fl;
    g->id = w.id;
    g->sent = g->last = f->now;
    g->first = first;
    g->n = n;
    g->open = n == 64 ? UINT64_MAX : (1ull << n) - 1;
    g->prio = fl->prio;
    g->want_digests = w.want_digests && !origin;
    g->hedge = hedge;
    g->relay = relay;
    g->member = (uint8_t)m;
    if (relay) {
        relay_asked(f, s);
    } else {
        source_asked(f, s, g->prio, bytes);
    }
    for (uint32_t i = first; i < first + n; i++) {
        struct fchunk *c = &fl->c[i];
        if (origin || relay) {
            c->origin = true;
        } else {
            fl->unasked -= !c->done && c->asks == 0;
            c->asks++;
        }
    }
    link_add(&s->gets, &g->in_source);
    link_add(&fl->gets, &g->in_flight);
    *(relay ? &s->n_relays : &s->n_gets) += 1;
    fl->n_gets += !origin && !relay;
    if (hedge) {
        f->hedge_asked += bytes;
        f->s.hedges++;
        fl->r->hedges++;
    }
    return 0;
}

void get_raise(struct fetch *f, struct get *g, enum fetch_prio prio)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        bytes += g->open >> i & 1 ? storage_chunk_len(g->fl->size, g->first + i) : 0;
    }
    g->s->in_flight[g->prio] -= bytes;
    g->s->in_flight[prio] += bytes;
    g->prio = prio;
    f->o.ops.origin_raise(f->o.ops.ctx, g->id, prio);
}

void get_close(struct fetch *f, struct get *g, bool cancel)
{
    struct source *s = g->s;
    struct flight *fl = g->fl;
    uint64_t bytes = 0;
    bool was_late = s->late && !g->relay;
    for (uint32_t i = g->first; g->open; i++) {
        if (g->open >> (i - g->first) & 1) {
            bytes += storage_chunk_len(fl->size, i);
            get_clear(g, i);
        }
    }
    link_cut(&g->in_source);
    link_cut(&g->in_flight);
    if (g->sample) {
        sample_over(f, g);
    }
    *(g->relay ? &s->n_relays : &s->n_gets) -= 1;
    if (source_is_origin(s)) {
        if (cancel && bytes) {
            f->closed[f->n_closed++ % FETCH_CLOSED_MAX] =
                (struct closed_get){g->id, fl->key, g->first, g->n};
            f->o.ops.origin_cancel(f->o.ops.ctx, g->id);
        }
    } else {
        fl->n_gets -= !g->relay;
        if (cancel && bytes) {
            s->allow_late += bytes;
            f->o.ops.send_cancel(f->o.ops.ctx, s->slot, g->id);
            if (was_late) {
                source_fault(f, s, "did not give what it was asked for in time");
            }
        }
    }
    free(g);
    f->dirty = true;
}

/* Kept where nobody's word is against it: what has been paid for is not fetched a second time
 * because its Get was closed while it waited to be handed over. */
void get_late(struct fetch *f, uint64_t id, uint32_t i, const uint8_t *p, size_t n,
              const uint8_t *sha256_or_null)
{
    const struct closed_get *x = NULL;
    for (uint32_t k = 0; k < FETCH_CLOSED_MAX && !x; k++) {
        x = id && f->closed[k].id == id ? &f->closed[k] : NULL;
    }
    struct flight *fl = x ? fetch_find(f, x->key) : NULL;
    if (!fl || !fl->begun || fl->held || fl->conflict || fl->disputed || fl->peers_only ||
        i < x->first || i - x->first >= x->n || n != storage_chunk_len(fl->size, i) ||
        fl->c[i].done) {
        return;
    }
    struct fchunk *c = &fl->c[i];
    uint8_t got[SHA256_SIZE];
    if (sha256_or_null) {
        memcpy(got, sha256_or_null, SHA256_SIZE);
    } else {
        sha256(p, n, got);
    }
    if (c->basis != BASIS_NONE && memcmp(got, c->sha, SHA256_SIZE) != 0) {
        return; /* who is right is found out on the usual way */
    }
    memcpy(c->sha, got, SHA256_SIZE);
    c->basis = c->basis < BASIS_ORIGIN ? BASIS_ORIGIN : c->basis;
    fl->last_byte = f->now;
    fl->say_at = f->now + FETCH_SAY_NS;
    f->s.late_chunks++;
    flight_chunk(f, fl, i, p, n, FETCH_NOBODY);
    f->dirty = true;
}

void get_forget_chunk(struct fetch *f, struct flight *fl, uint32_t i)
{
    for (struct link *l = fl->gets.next, *next; l != &fl->gets; l = next) {
        struct get *g = get_of_flight(l);
        next = l->next;
        if (i < g->first || i - g->first >= g->n || !(g->open >> (i - g->first) & 1)) {
            continue;
        }
        bool needed = false;
        for (uint32_t k = 0; k < g->n && !needed; k++) {
            needed = (g->open >> k & 1) && !fl->c[g->first + k].done;
        }
        if (!needed) {
            get_close(f, g, true);
        }
    }
}
