/* SPDX-License-Identifier: MIT
 * lease_sim.c: see lease_sim.h. Events, running, what happens to nodes. */
#include "tests/peer/lease_sim_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LOSS_NS (9 * FETCH_S) /* until a silent connection is given up */

uint32_t ls_rand(struct lease_sim *s, uint32_t below)
{
    s->rng = s->rng * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(s->rng >> 8) * below >> 24);
}

/* ---- events ---- */

void ls_push(struct lease_sim *s, struct ls_event e)
{
    event_push(&s->heap, &e);
}

static bool unplugged(const struct ls_node *n)
{
    return n->fate == LS_CUT || n->fate == LS_APART;
}

void ls_hold(struct lease_sim *s, struct ls_event e)
{
    s->held = realloc(s->held, (s->n_held + 1) * sizeof *s->held);
    assert_non_null(s->held);
    s->held[s->n_held++] = e;
}

/* A message: in order on each link, bulk bytes one after the other out of a node. */
void ls_send(struct lease_sim *s, uint32_t from, uint32_t to, struct ls_event e, uint64_t bulk)
{
    struct ls_node *a = &s->node[from], *b = &s->node[to];
    uint64_t at = s->now;
    if (a->fate == LS_DEAD || b->fate == LS_DEAD) {
        return;
    }
    if (bulk) {
        a->out_free = u64_max(a->out_free, s->now) + (uint64_t)((double)bulk / s->link_rate * 1e9);
        at = a->out_free;
    }
    at = u64_max(at + s->latency, b->in_at[from] + 1);
    b->in_at[from] = at;
    e.t = at;
    e.from = from;
    e.to = to;
    e.gen = b->gen;
    e.link = b->link_gen[from];
    if (unplugged(a) || unplugged(b)) { /* it waits in the sender's socket */
        ls_hold(s, e);
    } else {
        ls_push(s, e);
    }
}

/* ---- running ---- */

/* What each engine must keep whatever happens. */
static void check(struct lease_sim *s)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        struct fetch *f = s->node[i].f;
        uint32_t leases = 0, room[ROOMS] = {0}, begun = 0;
        if (s->node[i].fate == LS_DEAD) {
            continue;
        }
        for (int p = 0; p < FETCH_PRIOS; p++) {
            for (struct link *l = f->begun[p].next; l != &f->begun[p]; l = l->next) {
                struct flight *fl = flight_of(l);
                leases += fl->how == HOW_LEASE;
                room[fl->room]++;
                begun++;
                assert_true((fl->how == HOW_LEASE) == (fl->via != NULL));
                for (struct link *g = fl->gets.next; g != &fl->gets; g = g->next) {
                    assert_true(!get_of_flight(g)->relay || get_of_flight(g)->s == fl->via);
                    assert_true(!source_is_origin(get_of_flight(g)->s) || fl->how == HOW_SELF);
                }
                if (fl->how != HOW_LEASE) {
                    assert_true(fl->room == ROOM_OWN || fl->room == ROOM_OTHERS);
                }
            }
        }
        assert_int_equal(leases, f->n_leases);
        assert_int_equal(begun, f->n_begun);
        for (int r = 0; r < ROOMS; r++) {
            assert_int_equal(room[r], f->room[r].n);
        }
    }
}

static bool step(struct lease_sim *s, uint64_t until)
{
    uint64_t at = FETCH_NEVER;
    uint32_t who = 0;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        struct ls_node *n = &s->node[i];
        uint64_t d =
            n->fate == LS_DEAD || n->fate == LS_STOPPED ? FETCH_NEVER : fetch_deadline(n->f);
        if (d < at) {
            at = d;
            who = i;
        }
    }
    uint64_t t = event_next(&s->heap);
    if (u64_min(at, t) > until) {
        s->now = u64_max(s->now, until);
        return false;
    }
    if (at <= t) {
        s->now = u64_max(s->now, at);
        fetch_tick(s->node[who].f);
        if (fetch_deadline(s->node[who].f) <= s->now) {
            fail_msg("node %u: the timer stands still", who);
        }
    } else {
        struct ls_event e;
        event_pop(&s->heap, &e);
        s->now = u64_max(s->now, e.t);
        ls_handle(s, &e);
    }
    if (++s->events % 16 == 0) {
        check(s);
    }
    return true;
}

static bool all_there(const struct lease_sim *s)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        const struct ls_node *n = &s->node[i];
        for (uint32_t o = 0; o < s->n_objects && n->fate == LS_FINE; o++) {
            if (n->wants[o] && !n->held[o]) {
                return false;
            }
        }
    }
    return true;
}

bool ls_run(struct lease_sim *s, uint64_t until)
{
    while (!all_there(s) && step(s, until)) {
    }
    check(s);
    return all_there(s);
}

void ls_until(struct lease_sim *s, uint64_t t)
{
    while (step(s, t)) {
    }
}

/* ---- what happens to nodes ---- */

void ls_origin(struct lease_sim *s, uint32_t node, bool up)
{
    struct ls_node *n = &s->node[node];
    n->origin_up = up;
    n->origin_busy = false;
    n->origin_no++;
    fetch_origin_up(n->f, up);
    if (!up) {
        n->n_range = 0;
    }
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        if (n->up[i]) {
            ls_state(s, node, i);
        }
    }
    ls_origin_next(s, node);
}

void ls_kill(struct lease_sim *s, uint32_t node)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        if (i != node) {
            ls_send(s, node, i, (struct ls_event){.kind = EV_LINK_DOWN}, 0);
        }
    }
    s->node[node].fate = LS_DEAD;
    s->node[node].origin_busy = false;
    s->node[node].gen++;
}

void ls_stop(struct lease_sim *s, uint32_t node, bool stop)
{
    struct ls_node *n = &s->node[node];
    n->fate = stop ? LS_STOPPED : LS_FINE;
    for (int origin = 0; origin < 2; origin++) {
        for (uint32_t i = 0; i < n->n_parked; i++) {
            if ((n->parked[i].kind >= EV_MESSAGES) == origin) {
                n->parked[i].t = s->now + (uint64_t)origin;
                ls_push(s, n->parked[i]);
            }
        }
    }
    n->n_parked = 0;
}

static void unplug(struct lease_sim *s, uint32_t node, enum ls_fate how)
{
    struct ls_node *n = &s->node[node];
    n->fate = how;
    s->unplugged++;
    for (uint32_t i = 0; i < s->n_nodes; i++) { /* each side finds out by itself */
        if (i != node) {
            struct ls_event e = {.kind = EV_LINK_DOWN, .t = s->now + LOSS_NS, .a = s->unplugged};
            e.from = node, e.to = i, e.gen = s->node[i].gen, e.link = s->node[i].link_gen[node];
            ls_push(s, e);
            e.from = i, e.to = node, e.gen = n->gen, e.link = n->link_gen[i];
            ls_push(s, e);
        }
    }
}

void ls_cut(struct lease_sim *s, uint32_t node)
{
    unplug(s, node, LS_CUT); /* what comes from the origin waits, too: see ls_handle */
}

void ls_apart(struct lease_sim *s, uint32_t node)
{
    unplug(s, node, LS_APART);
}

void ls_heal(struct lease_sim *s, uint32_t node)
{
    struct ls_node *n = &s->node[node];
    struct ls_event *held = s->held;
    uint32_t n_held = s->n_held;
    n->fate = LS_FINE;
    s->unplugged++;
    s->held = NULL;
    s->n_held = 0;
    for (uint32_t i = 0; i < n_held; i++) {
        held[i].t = s->now + s->latency;
        ls_push(s, held[i]);
    }
    free(held);
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        n->in_at[i] = s->node[i].in_at[node] = s->now + s->latency;
        if (i != node && !n->up[i]) {
            ls_connect(s, node, i);
        }
    }
    ls_origin_next(s, node);
}

void ls_connect(struct lease_sim *s, uint32_t a, uint32_t b)
{
    ls_send(s, a, b, (struct ls_event){.kind = EV_LINK_UP}, 0);
    ls_send(s, b, a, (struct ls_event){.kind = EV_LINK_UP}, 0);
}

void ls_connect_all(struct lease_sim *s)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        for (uint32_t k = 0; k < i; k++) {
            ls_connect(s, i, k);
        }
    }
}

uint32_t ls_first(struct lease_sim *s, uint32_t object)
{
    static const uint8_t root[SHA256_SIZE] = {7};
    uint32_t best = 0;
    for (uint32_t i = 1; i < s->n_nodes; i++) {
        if (order_before(order_score(root, ls_key(object), s->node[i].id), s->node[i].id,
                         order_score(root, ls_key(object), s->node[best].id), s->node[best].id)) {
            best = i;
        }
    }
    return best;
}

uint64_t ls_twice(const struct lease_sim *s)
{
    uint64_t n = 0;
    for (uint32_t o = 0; o < s->n_objects; o++) {
        for (uint32_t i = 0; i < s->chunks; i++) {
            n += s->sent[o][i] > 1 ? s->sent[o][i] - 1 : 0;
        }
    }
    return n;
}

uint64_t ls_both(const struct lease_sim *s, uint32_t node)
{
    uint64_t n = 0;
    for (uint32_t o = 0; o < s->n_objects; o++) {
        for (uint32_t i = 0; i < s->chunks; i++) {
            uint32_t here = s->sent_to[node][o][i];
            n += here && s->sent[o][i] > here;
        }
    }
    return n;
}

uint64_t ls_missing(const struct lease_sim *s)
{
    uint64_t n = 0;
    for (uint32_t o = 0; o < s->n_objects; o++) {
        for (uint32_t i = 0; i < s->chunks; i++) {
            n += s->sent[o][i] == 0;
        }
    }
    return n;
}

void ls_init(struct lease_sim *s, uint32_t seed, uint32_t nodes, uint32_t objects, uint32_t chunks)
{
    memset(s, 0, sizeof *s);
    s->rng = seed * 2654435761u + 12345;
    s->heap.size = sizeof(struct ls_event);
    s->now = 1000 * FETCH_S;
    s->n_nodes = nodes;
    s->n_objects = objects;
    s->chunks = chunks;
    s->size = (uint64_t)chunks * STORAGE_CHUNK - 1234;
    s->link_rate = 110e6;
    s->latency = 300000;
    s->log = getenv("FETCH_SIM_LOG") != NULL;
    for (uint32_t i = 0; i < nodes; i++) {
        ls_open_node(s, i);
    }
}

void ls_free(struct lease_sim *s)
{
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        memset(s->node[i].wants, 0, sizeof s->node[i].wants);
        fetch_close(s->node[i].f);
        free(s->node[i].parked);
    }
    free(s->held);
    event_free(&s->heap);
}
