/* SPDX-License-Identifier: MIT
 * fetch_sim_peer.c: see fetch_sim.h. What the engine calls; the peers with their vices, and the
 * origin, that answer it. */
#include "tests/peer/fetch_sim_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    E_GET,
    E_SENT,
    E_DIGESTS,
    E_DATA,
    E_REFUSE,
    E_BYTES,
    E_CANCEL,
    E_UP,
    E_DOWN,
    E_ORIGIN_GO,
    E_ORIGIN_SENT,
    E_ORIGIN_FAIL,
    E_SPOT,
    E_RUN
};

static void at_peer(struct sim *s, uint64_t in, int kind, uint32_t p, uint64_t id, uint32_t chunk,
                    uint32_t n, bool flag)
{
    struct sim_event e = {s->now + in, 0, kind, p, s->peer[p].gen, chunk, n, id, flag};
    sim_push(s, e);
}

/* ---- what the engine calls ---- */

static uint64_t op_now(void *ctx)
{
    return ((struct sim *)ctx)->now;
}

static uint32_t by_slot(struct sim *s, uint32_t slot)
{
    for (uint32_t i = 0; i < s->n_peers; i++) {
        if (s->peer[i].up && s->peer[i].slot == slot) {
            return i;
        }
    }
    fail_msg("the engine used slot %u of a peer that is not up", slot);
    return 0;
}

static int op_get(void *ctx, uint32_t slot, const struct fetch_get *g)
{
    struct sim *s = ctx;
    uint32_t p = by_slot(s, slot);
    struct sim_peer *x = &s->peer[p];
    assert_true(x->n_q < 4096);
    assert_true(g->n >= 1 && g->n <= FETCH_RUN_MAX);
    assert_true(g->first + g->n <= storage_chunks(s->size));
    struct sim_get *q = &x->q[x->n_q++];
    memset(q, 0, sizeof *q);
    q->id = g->id;
    q->key = g->key;
    q->first = q->next = g->first;
    q->n = g->n;
    q->prio = g->prio;
    q->digests = g->want_digests;
    q->waiting = true;
    x->gets++;
    at_peer(s, x->latency, E_GET, p, g->id, 0, 0, false);
    return 0;
}

static void op_cancel(void *ctx, uint32_t slot, uint64_t id)
{
    struct sim *s = ctx;
    uint32_t p = by_slot(s, slot);
    s->peer[p].cancels++;
    at_peer(s, s->peer[p].latency, E_CANCEL, p, id, 0, 0, false);
}

static void op_bad(void *ctx, uint32_t slot, struct object_key k, uint32_t chunk,
                   const uint8_t *got, const uint8_t *want, enum basis b)
{
    struct sim *s = ctx;
    assert_int_not_equal(memcmp(got, want, SHA256_SIZE), 0);
    s->peer[by_slot(s, slot)].bad_told++;
}

static void op_banned(void *ctx, uint32_t slot, uint64_t ns, const char *why)
{
    struct sim *s = ctx;
    uint32_t p = by_slot(s, slot);
    s->peer[p].banned = true;
    assert_true(ns >= FETCH_BAN_1_NS);
    at_peer(s, 0, E_DOWN, p, 0, 0, 0, true);
}

static int op_origin_get(void *ctx, uint64_t id, struct object_key k, uint32_t first, uint32_t n,
                         enum fetch_prio prio, bool sure)
{
    (void)sure;
    struct sim *s = ctx;
    assert_true(s->n_oq < 4096);
    struct sim_get *q = &s->oq[s->n_oq++];
    memset(q, 0, sizeof *q);
    q->id = id;
    q->key = k;
    q->first = q->next = first;
    q->n = n;
    q->prio = prio;
    q->waiting = true;
    struct sim_event e = {.t = s->now + s->origin_latency, .kind = E_ORIGIN_GO, .id = id};
    if (s->origin_fails) {
        e.kind = E_ORIGIN_FAIL;
    }
    sim_push(s, e);
    return 0;
}

static void op_origin_cancel(void *ctx, uint64_t id)
{
    struct sim *s = ctx;
    for (uint32_t i = 0; i < s->n_oq; i++) {
        if (s->oq[i].id == id) {
            s->oq[i] = s->oq[--s->n_oq]; /* the order is by id anyway */
            return;
        }
    }
}

static void op_origin_raise(void *ctx, uint64_t id, enum fetch_prio prio)
{
    struct sim *s = ctx;
    for (uint32_t i = 0; i < s->n_oq; i++) {
        if (s->oq[i].id == id) {
            assert_true(prio > (enum fetch_prio)s->oq[i].prio);
            s->oq[i].prio = prio;
            return;
        }
    }
}

/* The piece comes beside the ranges: it is small. What it is compared with is what has been put
 * when it comes. */
static int op_origin_spot(void *ctx, uint64_t id, struct object_key k, uint64_t off, uint32_t n,
                          enum fetch_prio prio)
{
    (void)prio;
    struct sim *s = ctx;
    assert_true(n >= 1 && off + n <= s->size);
    struct sim_event e = {.t = s->now + 2 * s->origin_latency +
                               (uint64_t)((double)n / s->origin_rate * 1e9),
                          .kind = E_SPOT,
                          .id = id,
                          .gen = sim_index(k),
                          .chunk = (uint32_t)off,
                          .n = n,
                          .flag = s->origin_fails};
    if (!s->origin_cut) {
        sim_push(s, e);
    }
    return 0;
}

static void origin_spot(struct sim *s, const struct sim_event *e)
{
    struct sim_put *u = s->put[e->gen];
    uint32_t c = e->chunk / STORAGE_CHUNK, off = e->chunk % STORAGE_CHUNK;
    if (e->flag || !u || u->got < u->n) {
        fetch_on_spot(s->f, e->id, FETCH_SPOT_FAILED, 0);
        return;
    }
    s->spot_sent += e->n;
    bool same = memcmp(u->at[c] + off, sim_bytes(e->gen, c) + off, e->n) == 0;
    fetch_on_spot(s->f, e->id, same ? FETCH_SPOT_SAME : FETCH_SPOT_DIFFERS, 0);
}

static void op_wake(void *ctx)
{
    ((struct sim *)ctx)->woken++;
}

static void op_log(void *ctx, const char *line)
{
    struct sim *s = ctx;
    unsigned k, l, i;
    s->lines++;
    snprintf(s->last_line, sizeof s->last_line, "%s", line);
    if (s->hope && strstr(line, s->hope)) {
        s->hoped++;
    }
    const char *o = strstr(line, "object ");
    if (o && sscanf(o, "object %u/%u/%u", &k, &l, &i) == 3 && l * 896 + i < SIM_OBJECTS) {
        s->line_at[l * 896 + i] = s->now;
    }
    if (getenv("FETCH_SIM_LOG")) {
        printf("%10.3f %s\n", (double)s->now / 1e9, line);
    }
}

struct fetch_ops sim_ops(struct sim *s)
{
    return (struct fetch_ops){.ctx = s,
                              .now = op_now,
                              .send_get = op_get,
                              .send_cancel = op_cancel,
                              .send_bad = op_bad,
                              .banned = op_banned,
                              .origin_get = op_origin_get,
                              .origin_cancel = op_origin_cancel,
                              .origin_raise = op_origin_raise,
                              .origin_spot = op_origin_spot,
                              .wake = op_wake,
                              .log = op_log};
}

/* ---- peers ---- */

static struct sim_get *queued(struct sim_get *q, uint32_t n, uint64_t id)
{
    for (uint32_t i = 0; i < n; i++) {
        if (q[i].id == id) {
            return &q[i];
        }
    }
    return NULL;
}

static void unqueue(struct sim_get *q, uint32_t *n, struct sim_get *g)
{
    uint32_t i = (uint32_t)(g - q);
    memmove(q + i, q + i + 1, (*n - i - 1) * sizeof *q);
    --*n;
}

static void down(struct sim *s, uint32_t p, bool goodbye)
{
    struct sim_peer *x = &s->peer[p];
    if (!x->up) {
        return;
    }
    x->up = false;
    x->gen++;
    x->n_q = 0;
    x->sending = false;
    fetch_on_peer_down(s->f, x->slot, goodbye);
}

static void close_and_return(struct sim *s, uint32_t p)
{
    down(s, p, false);
    at_peer(s, 50 * FETCH_MS, E_UP, p, 0, 0, 0, false);
}

/* The next thing that peer p does for its queue. */
static void serve(struct sim *s, uint32_t p)
{
    struct sim_peer *x = &s->peer[p];
    static const uint32_t reasons[] = {1, 2, 3, 4, 5, 6, 7, 9, 0, 77};
    while (x->up && !x->sending && !x->cut && x->vice != V_SILENT) {
        struct sim_get *g = NULL;
        for (uint32_t i = 0; i < x->n_q; i++) {
            if (!x->q[i].waiting && (!g || x->q[i].prio > g->prio) &&
                !(x->vice == V_STARVE && x->q[i].id > 1)) {
                g = &x->q[i];
            }
        }
        if (!g) {
            return;
        }
        if (x->vice == V_REFUSE) {
            uint32_t k = x->reasons++;
            at_peer(s, x->latency, E_REFUSE, p, g->id, reasons[k % 10], k % 3 ? 0 : 100, false);
            unqueue(x->q, &x->n_q, g);
            continue;
        }
        if (x->vice == V_CLOSE_GET) {
            at_peer(s, x->latency, E_DOWN, p, 0, 0, 0, false);
            x->sending = true;
            return;
        }
        if (g->digests && !g->told && x->vice != V_NO_DIGESTS) {
            at_peer(s, x->latency, E_DIGESTS, p, g->id, g->first, g->n, false);
            if (x->vice == V_CLOSE_DIGESTS) {
                at_peer(s, x->latency, E_DOWN, p, 0, 0, 0, false);
                x->sending = true;
                return;
            }
        }
        g->told = true;
        size_t n = storage_chunk_len(s->size, g->next);
        x->sending = true;
        at_peer(s, (uint64_t)((double)n / x->rate * 1e9), E_SENT, p, g->id, g->next, 0, false);
        if (x->rate < 200000) { /* its bytes trickle */
            at_peer(s, 500 * FETCH_MS, E_BYTES, p, g->id, g->next, 0, false);
        }
        return;
    }
}

static void sent(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *x = &s->peer[e->peer];
    x->sending = false;
    struct sim_get *g = queued(x->q, x->n_q, e->id);
    bool last = false;
    if (g) {
        g->next++;
        last = g->next == g->first + g->n;
        if (x->vice == V_LAST_EARLY) {
            last = true;
        }
        if (last) {
            unqueue(x->q, &x->n_q, g);
        }
    }
    /* A chunk that was under way when the Cancel came arrives all the same. */
    if (!x->cut) {
        at_peer(s, x->latency, E_DATA, e->peer, e->id, e->chunk, 0, last);
        if (x->vice == V_TWICE) {
            at_peer(s, x->latency + 1000, E_DATA, e->peer, e->id, e->chunk, 0, last);
        }
        if (x->vice == V_CLOSE_DATA) {
            at_peer(s, x->latency + 1, E_DOWN, e->peer, 0, 0, 0, false);
        }
    }
    serve(s, e->peer);
}

/* Which object an id is about: remembered beyond the queue, since data may come late. */
struct seen {
    uint64_t id;
    struct object_key key;
};
static struct seen seen[SIM_PEERS][8192];

/* What a peer with one of these vices makes digests of and gives. */
static const uint8_t *stated(const struct sim_peer *x, uint32_t i, uint32_t chunk)
{
    bool few = i % SIM_FEW == 7;
    return x->vice == V_LIE || x->vice == V_PERJURE || (x->vice == V_FEW_BIT && few)
               ? sim_flipped(i, chunk)
           : x->vice == V_FEW && few ? sim_zeros()
                                     : sim_bytes(i, chunk);
}

static void data(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *x = &s->peer[e->peer];
    struct object_key k = seen[e->peer][e->id % 8192].key;
    assert_true(seen[e->peer][e->id % 8192].id == e->id);
    uint32_t chunk = e->chunk;
    uint64_t id = e->id;
    size_t n = storage_chunk_len(s->size, chunk);
    const uint8_t *p = stated(x, sim_index(k), chunk);
    switch (x->vice) {
    case V_FLIP:
        p = sim_flipped(sim_index(k), chunk);
        break;
    case V_ZERO:
        p = sim_zeros();
        break;
    case V_UNASKED:
        id += 1000000;
        break;
    case V_WRONG_CHUNK:
        chunk += 70000;
        break;
    case V_WRONG_SIZE:
        n--;
        break;
    default:
        break;
    }
    x->chunks++;
    x->given += n;
    fetch_on_data(s->f, x->slot, id, chunk, e->flag, p, n, s->real_sha ? NULL : sim_sha(p, n));
}

static void digests(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *x = &s->peer[e->peer];
    uint8_t sha[FETCH_RUN_MAX][SHA256_SIZE], object[SHA256_SIZE];
    uint32_t i = sim_index(seen[e->peer][e->id % 8192].key);
    sim_object_digest(s, i, object);
    for (uint32_t k = 0; k < e->n; k++) {
        const uint8_t *p = stated(x, i, e->chunk + k);
        memcpy(sha[k], sim_sha(p, storage_chunk_len(s->size, e->chunk + k)), SHA256_SIZE);
    }
    if (x->vice == V_LIE) {
        object[0] ^= 1;
    }
    if (x->vice > V_COUNT) {
        struct sha256 all;
        sha256_init(&all);
        for (uint32_t k = 0; k < storage_chunks(s->size); k++) {
            sha256_add(&all, sim_sha(stated(x, i, k), storage_chunk_len(s->size, k)), SHA256_SIZE);
        }
        sha256_done(&all, object);
    }
    fetch_on_digests(s->f, x->slot, e->id, s->size + (x->vice == V_OTHER_SIZE),
                     e->chunk + (x->vice == V_ODD_DIGESTS), e->n, sha[0], BASIS_ORIGIN, object);
}

static void origin_serve(struct sim *s)
{
    if (s->origin_busy || s->origin_cut) {
        return;
    }
    struct sim_get *g = NULL;
    for (uint32_t i = 0; i < s->n_oq; i++) {
        struct sim_get *q = &s->oq[i];
        if (!q->waiting && (!g || q->prio > g->prio || (q->prio == g->prio && q->id < g->id))) {
            g = q;
        }
    }
    if (g) {
        size_t n = storage_chunk_len(s->size, g->next);
        struct sim_event e = {.t = s->now + (uint64_t)((double)n / s->origin_rate * 1e9),
                              .kind = E_ORIGIN_SENT,
                              .id = g->id,
                              .chunk = g->next};
        s->origin_busy = true;
        sim_push(s, e);
    }
}

void sim_handle(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *x = &s->peer[e->peer];
    struct sim_get *g;
    if (e->kind < E_UP && (!x->up || e->gen != x->gen)) {
        return;
    }
    switch (e->kind) {
    case E_GET:
        g = queued(x->q, x->n_q, e->id);
        if (g) {
            seen[e->peer][e->id % 8192].id = e->id;
            seen[e->peer][e->id % 8192].key = g->key;
            g->waiting = false;
            serve(s, e->peer);
        }
        break;
    case E_SENT:
        sent(s, e);
        break;
    case E_DIGESTS:
        digests(s, e);
        break;
    case E_DATA:
        data(s, e);
        break;
    case E_REFUSE:
        fetch_on_refuse(s->f, x->slot, e->id, e->chunk, e->n, "not today");
        break;
    case E_BYTES:
        if (x->sending && queued(x->q, x->n_q, e->id) && !x->cut) {
            fetch_on_bytes(s->f, x->slot, (uint64_t)(x->rate / 2));
            at_peer(s, 500 * FETCH_MS, E_BYTES, e->peer, e->id, e->chunk, 0, false);
        }
        break;
    case E_CANCEL:
        g = queued(x->q, x->n_q, e->id);
        if (g) {
            unqueue(x->q, &x->n_q, g);
        }
        break;
    case E_UP:
        if (!x->up && !x->banned && !x->away) {
            sim_up(s, e->peer);
        }
        break;
    case E_DOWN:
        if (x->up && e->gen == x->gen) {
            if (e->flag) {
                down(s, e->peer, false);
            } else {
                close_and_return(s, e->peer);
            }
        }
        break;
    case E_ORIGIN_GO:
        g = queued(s->oq, s->n_oq, e->id);
        if (g) {
            g->waiting = false;
        }
        origin_serve(s);
        break;
    case E_ORIGIN_SENT:
        s->origin_busy = false;
        s->origin_sent += storage_chunk_len(s->size, e->chunk);
        g = queued(s->oq, s->n_oq, e->id);
        if (g) {
            uint32_t i = sim_index(g->key);
            const uint8_t *p = sim_bytes(i, e->chunk);
            size_t n = storage_chunk_len(s->size, e->chunk);
            if (++g->next == g->first + g->n) {
                unqueue(s->oq, &s->n_oq, g);
            }
            fetch_on_origin_data(s->f, e->id, e->chunk, p, n, s->real_sha ? NULL : sim_sha(p, n));
        }
        origin_serve(s);
        break;
    case E_ORIGIN_FAIL:
        g = queued(s->oq, s->n_oq, e->id);
        if (g) {
            struct err err;
            unqueue(s->oq, &s->n_oq, g);
            err_set(&err, ERR_NET, "the origin says 503");
            fetch_on_origin_fail(s->f, e->id, 0, &err);
        }
        break;
    case E_SPOT:
        origin_spot(s, e);
        break;
    default:
        break;
    }
}

void sim_up(struct sim *s, uint32_t p)
{
    struct sim_peer *x = &s->peer[p];
    char name[32];
    snprintf(name, sizeof name, "peer%u", p);
    struct err e = {0};
    int r = fetch_on_peer_up(s->f, x->id, name, &x->slot, &e);
    if (r == ERR_REFUSED) {
        x->banned = true;
        return;
    }
    assert_int_equal(r, 0);
    x->up = true;
    x->cut = false;
    for (uint32_t l = 0; l * 896 < SIM_OBJECTS; l++) {
        assert_int_equal(fetch_on_have(s->f, x->slot, SIM_KIND, (uint16_t)l, 0, 896, true), 0);
    }
}

uint32_t sim_peer(struct sim *s, enum vice v, double rate, uint64_t latency)
{
    uint32_t p = s->n_peers++;
    assert_true(p < SIM_PEERS);
    struct sim_peer *x = &s->peer[p];
    x->vice = v;
    x->rate = v == V_SLOW ? 1000 : rate;
    x->latency = latency;
    memset(x->id, (int)p + 1, sizeof x->id);
    sim_up(s, p);
    return p;
}

void sim_kill(struct sim *s, uint32_t p, bool goodbye)
{
    s->peer[p].away = true;
    down(s, p, goodbye);
}
