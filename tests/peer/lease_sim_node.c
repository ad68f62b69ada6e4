/* SPDX-License-Identifier: MIT
 * lease_sim_node.c: see lease_sim.h. One node: its engine, its storage, its origin, its answers. */
#include "tests/peer/lease_sim_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TICK_NS (500 * FETCH_MS)
#define PUBLISH_NS (30 * FETCH_MS)

static const uint8_t bytes[STORAGE_CHUNK];
static struct call calls[LS_NODES];

struct object_key ls_key(uint32_t object)
{
    return (struct object_key){0, 1, object};
}

static void sum(uint32_t object, uint32_t chunk, uint8_t sha[SHA256_SIZE])
{
    memset(sha, 0, SHA256_SIZE);
    sha[0] = (uint8_t)object;
    sha[1] = (uint8_t)chunk;
    sha[2] = 1;
}

/* ---- the origin ---- */

void ls_origin_next(struct lease_sim *s, uint32_t me)
{
    struct ls_node *n = &s->node[me];
    if (n->origin_busy || !n->n_range || (n->fate != LS_FINE && n->fate != LS_APART) ||
        !n->origin_up) {
        return;
    }
    uint32_t best = 0, users = 0;
    for (uint32_t i = 1; i < n->n_range; i++) {
        best = n->range[i].prio > n->range[best].prio ? i : best;
    }
    struct ls_range *r = &n->range[best];
    n->origin_busy = true;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        users += s->node[i].origin_busy;
    }
    double rate = n->origin_rate / (s->shared_line ? users : 1);
    size_t len = storage_chunk_len(s->size, r->first);
    s->sent[r->object][r->first]++;
    s->sent_to[me][r->object][r->first]++;
    s->origin_chunks++;
    if (s->log) {
        printf("%9.3f node %u: origin gives %u chunk %u\n", (double)s->now / 1e9 - 1000, me,
               r->object, r->first);
    }
    ls_push(s, (struct ls_event){.t = s->now + (uint64_t)((double)len / rate * 1e9),
                                 .kind = EV_ORIGIN,
                                 .to = me,
                                 .gen = n->gen,
                                 .object = r->object,
                                 .chunk = r->first,
                                 .a = ++n->origin_no,
                                 .id = r->id});
}

static void drop_range(struct ls_node *n, uint32_t i)
{
    n->n_range--;
    memmove(&n->range[i], &n->range[i + 1], (n->n_range - i) * sizeof n->range[0]);
}

static void origin_came(struct lease_sim *s, const struct ls_event *e)
{
    struct ls_node *n = &s->node[e->to];
    uint8_t sha[SHA256_SIZE];
    if (e->a != n->origin_no) {
        return;
    }
    n->origin_busy = false;
    for (uint32_t i = 0; i < n->n_range; i++) {
        struct ls_range *r = &n->range[i];
        if (r->id == e->id && r->first == e->chunk) {
            r->first++;
            if (--r->n == 0) {
                drop_range(n, i);
            }
            sum(e->object, e->chunk, sha);
            n->came[e->object] |= 1ull << e->chunk;
            fetch_on_origin_data(n->f, e->id, e->chunk, bytes, storage_chunk_len(s->size, e->chunk),
                                 sha);
            break;
        }
    }
    ls_origin_next(s, e->to);
}

static int op_origin_get(void *ctx, uint64_t id, struct object_key k, uint32_t first, uint32_t n,
                         enum fetch_prio prio, bool sure)
{
    (void)sure;
    struct call *c = ctx;
    struct ls_node *x = &c->s->node[c->me];
    assert_true(x->n_range < LS_WAIT);
    x->range[x->n_range++] = (struct ls_range){id, k.index, first, n, prio};
    ls_push(
        c->s,
        (struct ls_event){
            .t = c->s->now, .kind = EV_AGAIN, .to = c->me, .gen = x->gen, .object = UINT32_MAX});
    return 0;
}

static void op_origin_cancel(void *ctx, uint64_t id)
{
    struct call *c = ctx;
    struct ls_node *x = &c->s->node[c->me];
    for (uint32_t i = 0; i < x->n_range; i++) {
        if (x->range[i].id == id) {
            drop_range(x, i);
            return;
        }
    }
}

static void op_origin_raise(void *ctx, uint64_t id, enum fetch_prio prio)
{
    struct call *c = ctx;
    struct ls_node *x = &c->s->node[c->me];
    for (uint32_t i = 0; i < x->n_range; i++) {
        x->range[i].prio = x->range[i].id == id ? prio : x->range[i].prio;
    }
}

/* ---- what an engine sends ---- */

static uint64_t op_now(void *ctx)
{
    return ((struct call *)ctx)->s->now;
}

static uint32_t peer_at(const struct ls_node *n, uint32_t slot)
{
    for (uint32_t i = 0; i < LS_NODES; i++) {
        if (n->up[i] && n->slot[i] == slot) {
            return i;
        }
    }
    fail_msg("a message to a peer that is not there");
    return 0;
}

static int op_get(void *ctx, uint32_t peer, const struct fetch_get *g)
{
    struct call *c = ctx;
    struct ls_event e = {.kind = EV_GET,
                         .object = g->key.index,
                         .chunk = g->first,
                         .n = g->n,
                         .id = g->id,
                         .prio = g->prio,
                         .flag = g->relay};
    ls_send(c->s, c->me, peer_at(&c->s->node[c->me], peer), e, 0);
    return 0;
}

static void op_cancel(void *ctx, uint32_t peer, uint64_t id)
{
    struct call *c = ctx;
    ls_send(c->s, c->me, peer_at(&c->s->node[c->me], peer),
            (struct ls_event){.kind = EV_CANCEL, .id = id}, 0);
}

static void op_take(void *ctx, uint32_t peer, const struct object_key *k, const uint32_t *chunks,
                    uint32_t n)
{
    struct call *c = ctx;
    for (uint32_t i = 0; i < n; i++) {
        ls_send(c->s, c->me, peer_at(&c->s->node[c->me], peer),
                (struct ls_event){.kind = EV_TAKE, .object = k[i].index, .n = chunks[i]}, 0);
    }
}

static void op_log(void *ctx, const char *line)
{
    struct call *c = ctx;
    if (c->s->log) {
        printf("%9.3f node %u: %s\n", (double)c->s->now / 1e9 - 1000, c->me, line);
    }
}

static void give(struct lease_sim *s, uint32_t me, struct ls_wait *w, uint32_t chunk, enum basis b)
{
    w->open &= ~(1ull << (chunk - w->chunk0));
    ls_send(s, me, w->from,
            (struct ls_event){.kind = EV_CHUNK,
                              .id = w->id,
                              .object = w->object,
                              .chunk = chunk,
                              .last = w->open == 0,
                              .a = b,
                              .flag = w->told},
            storage_chunk_len(s->size, chunk));
}

static void forget(struct ls_node *n)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < n->n_wait; i++) {
        if (n->wait[i].open) {
            n->wait[k++] = n->wait[i];
        }
    }
    n->n_wait = k;
}

static void op_chunk(void *ctx, struct object_key k, uint64_t size, uint32_t chunk,
                     const uint8_t *p, size_t len, const uint8_t *sha, enum basis b)
{
    struct call *c = ctx;
    struct ls_node *n = &c->s->node[c->me];
    assert_true(b >= BASIS_TWO_MEMBERS);
    for (uint32_t i = 0; i < n->n_wait; i++) {
        struct ls_wait *w = &n->wait[i];
        if (w->object == k.index && chunk >= w->chunk0 && chunk - w->chunk0 < w->n &&
            (w->open >> (chunk - w->chunk0) & 1)) {
            give(c->s, c->me, w, chunk, b);
        }
    }
    forget(n);
}

static void refuse(struct lease_sim *s, uint32_t me, uint32_t to, uint64_t id, uint32_t reason,
                   uint32_t retry_ms)
{
    ls_send(s, me, to,
            (struct ls_event){.kind = EV_REFUSE, .id = id, .chunk = reason, .n = retry_ms}, 0);
}

static void op_end(void *ctx, struct object_key k, uint32_t retry_ms)
{
    struct call *c = ctx;
    struct ls_node *n = &c->s->node[c->me];
    for (uint32_t i = 0; i < n->n_wait; i++) {
        if (n->wait[i].object == k.index) {
            refuse(c->s, c->me, n->wait[i].from, n->wait[i].id, FETCH_REFUSE_ORIGIN, retry_ms);
            n->wait[i].open = 0;
        }
    }
    forget(n);
}

/* ---- storage ---- */

static bool st_size(void *ctx, struct object_key k, uint64_t *size)
{
    struct call *c = ctx;
    *size = c->s->size;
    return k.index < c->s->n_objects;
}

static bool st_digests(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                       uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t *object)
{
    return false;
}

static int st_begin(void *ctx, struct object_key k, uint64_t size, struct storage_put **put,
                    struct err *e)
{
    struct object_key *x = malloc(sizeof *x);
    *x = k;
    *put = (struct storage_put *)x;
    return 0;
}

static int st_chunk(void *ctx, struct storage_put *put, uint32_t i, const uint8_t *p, size_t n,
                    const uint8_t *sha, struct err *e)
{
    uint8_t want[SHA256_SIZE];
    sum(((struct object_key *)put)->index, i, want);
    assert_memory_equal(want, sha, SHA256_SIZE);
    return 0;
}

static int st_end(void *ctx, struct storage_put *put, int code, enum basis b, const uint8_t *object,
                  struct err *e)
{
    struct call *c = ctx;
    struct ls_node *n = &c->s->node[c->me];
    uint32_t o = ((struct object_key *)put)->index;
    free(put);
    if (!code) {
        n->whole[o] = true;
        n->done_at[o] = c->s->now;
        ls_push(c->s, (struct ls_event){.t = c->s->now + PUBLISH_NS,
                                        .kind = EV_PUBLISH,
                                        .to = c->me,
                                        .gen = n->gen,
                                        .object = o});
    }
    return 0;
}

static const struct storage_ops storage = {.size = st_size,
                                           .digests = st_digests,
                                           .put_begin = st_begin,
                                           .put_chunk = st_chunk,
                                           .put_end = st_end};

/* ---- a node ---- */

static void want(struct lease_sim *s, uint32_t me, uint32_t o, enum fetch_prio prio, bool others);

static void on_done(void *ctx, struct fetch_want *w, const struct fetch_result *r)
{
    struct call *c = ctx;
    struct ls_node *n = &c->s->node[c->me];
    uint32_t o = r->key.index;
    n->own[o] = n->own[o] == w ? NULL : n->own[o];
    n->others[o] = n->others[o] == w ? NULL : n->others[o];
    if (r->code && r->code != ERR_CANCELLED && n->wants[o]) { /* whoever wants it tries again */
        ls_push(c->s, (struct ls_event){.t = c->s->now + FETCH_S / 2,
                                        .kind = EV_AGAIN,
                                        .to = c->me,
                                        .gen = n->gen,
                                        .object = o,
                                        .prio = FETCH_DEMAND});
    }
}

static void want(struct lease_sim *s, uint32_t me, uint32_t o, enum fetch_prio prio, bool others)
{
    struct ls_node *n = &s->node[me];
    struct fetch_want **w = others ? &n->others[o] : &n->own[o];
    struct fetch_want_opts x = {.prio = prio, .others = others, .done = on_done, .ctx = &calls[me]};
    struct err e = {0};
    if (*w) {
        fetch_raise(n->f, *w, prio);
    } else if (!n->held[o] && !n->whole[o]) {
        assert_int_equal(fetch_get_object(n->f, ls_key(o), &x, w, &e), 0);
    }
}

void ls_want(struct lease_sim *s, uint32_t node, uint32_t object, enum fetch_prio prio)
{
    s->node[node].wants[object] = true;
    want(s, node, object, prio, false);
}

void ls_state(struct lease_sim *s, uint32_t me, uint32_t to)
{
    bool works;
    uint64_t busy, rate;
    fetch_origin_state(s->node[me].f, &works, &busy, &rate);
    ls_send(s, me, to, (struct ls_event){.kind = EV_STATE, .flag = works, .a = busy, .b = rate}, 0);
}

static void asked(struct lease_sim *s, uint32_t me, const struct ls_event *e)
{
    struct ls_node *n = &s->node[me];
    struct ls_wait w = {
        .from = e->from, .chunk0 = e->chunk, .n = e->n, .object = e->object, .id = e->id};
    w.open = e->n == 64 ? UINT64_MAX : (1ull << e->n) - 1;
    uint32_t retry = 0, no = 0;
    if (n->held[e->object]) {
        ls_send(
            s, me, e->from,
            (struct ls_event){
                .kind = EV_DIGESTS, .id = e->id, .object = e->object, .chunk = e->chunk, .n = e->n},
            0);
        w.told = true;
        for (uint32_t i = 0; i < e->n; i++) {
            give(s, me, &w, e->chunk + i, BASIS_ONE_MEMBER);
        }
        return;
    }
    no = !e->flag ? FETCH_REFUSE_NOT_HELD
                  : fetch_on_ask(n->f, n->slot[e->from], ls_key(e->object), &retry);
    if (no) {
        refuse(s, me, e->from, e->id, no, retry);
        return;
    }
    assert_true(n->n_wait < LS_WAIT);
    n->wait[n->n_wait++] = w;
    s->most_waits = n->n_wait > s->most_waits ? n->n_wait : s->most_waits;
    for (uint32_t i = 0; i < e->n && !s->no_readback; i++) {
        if (n->came[e->object] >> (e->chunk + i) & 1) {
            give(s, me, &n->wait[n->n_wait - 1], e->chunk + i, BASIS_ORIGIN);
        }
    }
    forget(n);
    want(s, me, e->object, (enum fetch_prio)e->prio, true);
}

static void published(struct lease_sim *s, uint32_t me, uint32_t o)
{
    struct ls_node *n = &s->node[me];
    n->held[o] = true;
    for (uint32_t i = 0; i < n->n_wait; i++) {
        for (uint32_t k = 0; n->wait[i].object == o && k < n->wait[i].n; k++) {
            if (n->wait[i].open >> k & 1) {
                give(s, me, &n->wait[i], n->wait[i].chunk0 + k, BASIS_ONE_MEMBER);
            }
        }
    }
    forget(n);
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        if (n->up[i]) {
            ls_send(s, me, i, (struct ls_event){.kind = EV_HAVE, .object = o}, 0);
        }
    }
}

static void link_up(struct lease_sim *s, uint32_t me, uint32_t peer)
{
    struct ls_node *n = &s->node[me];
    struct err e = {0};
    char name[8];
    if (n->up[peer]) {
        return;
    }
    snprintf(name, sizeof name, "n%u", peer);
    if (fetch_on_peer_up(n->f, s->node[peer].id, name, &n->slot[peer], &e)) {
        fail_msg("node %u: %s", me, e.msg);
    }
    n->up[peer] = true;
    ls_state(s, me, peer);
    for (uint32_t o = 0; o < s->n_objects; o++) {
        if (n->held[o]) {
            ls_send(s, me, peer, (struct ls_event){.kind = EV_HAVE, .object = o}, 0);
        }
    }
}

static void link_down(struct lease_sim *s, uint32_t me, uint32_t peer)
{
    struct ls_node *n = &s->node[me];
    if (!n->up[peer]) {
        return;
    }
    n->link_gen[peer]++;
    for (uint32_t i = 0; i < n->n_wait; i++) {
        n->wait[i].open = n->wait[i].from == peer ? 0 : n->wait[i].open;
    }
    forget(n);
    fetch_on_peer_down(n->f, n->slot[peer], false);
    n->up[peer] = false;
}

static void tick(struct lease_sim *s, uint32_t me)
{
    struct ls_node *n = &s->node[me];
    bool works;
    uint64_t busy, rate;
    fetch_origin_state(n->f, &works, &busy, &rate);
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        bool waits = works != n->said_works || (busy > 0) != n->said_busy;
        for (uint32_t k = 0; k < n->n_wait && !waits; k++) {
            waits = n->wait[k].from == i;
        }
        if (waits && n->up[i]) {
            ls_state(s, me, i);
        }
    }
    n->said_works = works;
    n->said_busy = busy > 0;
    ls_push(s, (struct ls_event){.t = s->now + TICK_NS, .kind = EV_TICK, .to = me, .gen = n->gen});
}

static void message(struct lease_sim *s, uint32_t me, const struct ls_event *e)
{
    struct ls_node *n = &s->node[me];
    uint32_t slot = n->slot[e->from];
    struct object_key k = ls_key(e->object);
    uint8_t sha[64][SHA256_SIZE];
    if (e->kind == EV_LINK_UP) {
        link_up(s, me, e->from);
        return;
    }
    if (!n->up[e->from] || e->link != n->link_gen[e->from]) {
        return;
    }
    switch (e->kind) {
    case EV_LINK_DOWN:
        if (!e->a || e->a == s->unplugged) { /* else the cable is in again */
            link_down(s, me, e->from);
        }
        break;
    case EV_GET:
        asked(s, me, e);
        break;
    case EV_CANCEL:
        for (uint32_t i = 0; i < n->n_wait; i++) {
            if (n->wait[i].from == e->from && n->wait[i].id == e->id) {
                n->wait[i].open = 0;
            }
        }
        forget(n);
        break;
    case EV_DIGESTS:
        for (uint32_t i = 0; i < e->n; i++) {
            sum(e->object, e->chunk + i, sha[i]);
        }
        fetch_on_digests(n->f, slot, e->id, s->size, e->chunk, e->n, sha[0], BASIS_ONE_MEMBER,
                         NULL);
        break;
    case EV_CHUNK:
        sum(e->object, e->chunk, sha[0]);
        if (!e->flag) { /* of a lease they come one by one */
            fetch_on_digests(n->f, slot, e->id, s->size, e->chunk, 1, sha[0], (uint32_t)e->a, NULL);
        }
        fetch_on_data(n->f, slot, e->id, e->chunk, e->last, bytes,
                      storage_chunk_len(s->size, e->chunk), sha[0]);
        break;
    case EV_REFUSE:
        fetch_on_refuse(n->f, slot, e->id, e->chunk, e->n, "no");
        break;
    case EV_HAVE:
        fetch_on_have(n->f, slot, k.kind, k.layer, k.index, 1, true);
        break;
    case EV_STATE:
        fetch_on_origin_state(n->f, slot, e->flag, e->a, e->b);
        break;
    case EV_TAKE:
        fetch_on_take(n->f, slot, &k, &e->n, 1);
        break;
    default:
        break;
    }
}

void ls_handle(struct lease_sim *s, struct ls_event *e)
{
    struct ls_node *n = &s->node[e->to];
    if (n->fate == LS_DEAD || e->gen != n->gen) {
        return;
    }
    if (n->fate == LS_STOPPED) { /* all of it waits, in order */
        n->parked = realloc(n->parked, (n->n_parked + 1) * sizeof *n->parked);
        assert_non_null(n->parked);
        n->parked[n->n_parked++] = *e;
        return;
    }
    if (n->fate == LS_CUT && e->kind == EV_ORIGIN) { /* the connection survives that */
        ls_hold(s, *e);
        return;
    }
    if (e->kind < EV_MESSAGES) {
        message(s, e->to, e);
    } else if (e->kind == EV_ORIGIN) {
        origin_came(s, e);
    } else if (e->kind == EV_PUBLISH) {
        published(s, e->to, e->object);
    } else if (e->kind == EV_TICK) {
        tick(s, e->to);
    } else if (e->object == UINT32_MAX) {
        ls_origin_next(s, e->to);
    } else {
        want(s, e->to, e->object, (enum fetch_prio)e->prio, false);
    }
}

void ls_open_node(struct lease_sim *s, uint32_t i)
{
    struct ls_node *n = &s->node[i];
    struct fetch_opts o = {.storage = &storage, .storage_ctx = &calls[i], .leases = true};
    struct err e = {0};
    calls[i] = (struct call){s, i};
    for (int k = 0; k < SHA256_SIZE; k++) {
        n->id[k] = (uint8_t)ls_rand(s, 256);
    }
    memcpy(o.self, n->id, SHA256_SIZE);
    o.root[0] = 7;
    o.ops = (struct fetch_ops){.ctx = &calls[i],
                               .now = op_now,
                               .send_get = op_get,
                               .send_cancel = op_cancel,
                               .origin_get = op_origin_get,
                               .origin_cancel = op_origin_cancel,
                               .origin_raise = op_origin_raise,
                               .log = op_log,
                               .chunk = op_chunk,
                               .lease_end = op_end,
                               .send_take = op_take};
    n->origin_up = true;
    n->origin_rate = 12.5e6;
    n->said_works = true;
    assert_int_equal(fetch_open(&o, &n->f, &e), 0);
    ls_push(s, (struct ls_event){.t = s->now + TICK_NS + i * 1000, .kind = EV_TICK, .to = i});
}
