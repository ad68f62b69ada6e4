/* SPDX-License-Identifier: MIT
 * fetch_sim.c: see fetch_sim.h. */
#include "tests/peer/fetch_sim.h"

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
    E_RUN
};

/* ---- bytes: a few chunks that objects are made of ---- */

#define POOL 7
static uint8_t *pool[POOL], *flipped[POOL], *zeros;
struct cached {
    const uint8_t *p;
    size_t n;
    uint8_t sha[SHA256_SIZE];
};
static struct cached cache[256];
static uint32_t n_cache;

static void make_pool(void)
{
    if (zeros) {
        return;
    }
    uint64_t x = 88172645463325252ull;
    zeros = calloc(1, STORAGE_CHUNK);
    for (int i = 0; i < POOL; i++) {
        pool[i] = malloc(STORAGE_CHUNK);
        flipped[i] = malloc(STORAGE_CHUNK);
        for (size_t k = 0; k < STORAGE_CHUNK; k += 8) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            memcpy(pool[i] + k, &x, 8);
        }
        memcpy(flipped[i], pool[i], STORAGE_CHUNK);
        flipped[i][1000 + i] ^= 4;
    }
}

static uint32_t which(uint32_t index, uint32_t chunk)
{
    return (index * 2654435761u + chunk * 40503u) % POOL;
}

const uint8_t *sim_bytes(uint32_t index, uint32_t chunk)
{
    return pool[which(index, chunk)];
}

static const uint8_t *sha_of(const uint8_t *p, size_t n)
{
    for (uint32_t i = 0; i < n_cache; i++) {
        if (cache[i].p == p && cache[i].n == n) {
            return cache[i].sha;
        }
    }
    if (n_cache == 256) { /* whole chunks come first and stay */
        n_cache = 0;
        while (cache[n_cache].n == STORAGE_CHUNK) {
            n_cache++;
        }
    }
    assert_true(n_cache < 256);
    cache[n_cache].p = p;
    cache[n_cache].n = n;
    sha256(p, n, cache[n_cache].sha);
    return cache[n_cache++].sha;
}

void sim_object_digest(const struct sim *s, uint32_t index, uint8_t out[SHA256_SIZE])
{
    struct sha256 h;
    sha256_init(&h);
    for (uint32_t i = 0; i < storage_chunks(s->size); i++) {
        sha256_add(&h, sha_of(sim_bytes(index, i), storage_chunk_len(s->size, i)), SHA256_SIZE);
    }
    sha256_done(&h, out);
}

struct object_key sim_key(uint32_t index)
{
    struct object_key k = {SIM_KIND, (uint16_t)(index / 896), index % 896};
    return k;
}
static uint32_t index_of(struct object_key k)
{
    return k.layer * 896u + k.index;
}

uint32_t sim_rand(struct sim *s, uint32_t below)
{
    s->rng = s->rng * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(s->rng >> 8) * below >> 24);
}

/* ---- events ---- */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->t < b->t || (a->t == b->t && a->seq < b->seq);
}

static void push(struct sim *s, struct sim_event e)
{
    if (s->n_heap == s->cap_heap) {
        s->cap_heap = s->cap_heap ? s->cap_heap * 2 : 256;
        s->heap = realloc(s->heap, s->cap_heap * sizeof *s->heap);
        assert_non_null(s->heap);
    }
    e.seq = s->seq++;
    uint32_t i = s->n_heap++;
    while (i && before(&e, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = e;
}

static struct sim_event pop(struct sim *s)
{
    struct sim_event top = s->heap[0], e = s->heap[--s->n_heap];
    uint32_t i = 0;
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= s->n_heap) {
            break;
        }
        if (c + 1 < s->n_heap && before(&s->heap[c + 1], &s->heap[c])) {
            c++;
        }
        if (!before(&s->heap[c], &e)) {
            break;
        }
        s->heap[i] = s->heap[c];
        i = c;
    }
    if (s->n_heap) {
        s->heap[i] = e;
    }
    return top;
}

static void at_peer(struct sim *s, uint64_t in, int kind, uint32_t p, uint64_t id, uint32_t chunk,
                    uint32_t n, bool flag)
{
    struct sim_event e = {s->now + in, 0, kind, p, s->peer[p].gen, chunk, n, id, flag};
    push(s, e);
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
                         enum fetch_prio prio)
{
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
    push(s, e);
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

/* ---- storage ---- */

static bool st_size(void *ctx, struct object_key k, uint64_t *size)
{
    struct sim *s = ctx;
    *size = s->size;
    return k.kind == SIM_KIND && index_of(k) < SIM_OBJECTS;
}

static bool st_digests(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                       uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t *object)
{
    struct sim *s = ctx;
    if (!s->known[index_of(k)]) {
        return false;
    }
    *b = (enum basis)s->known[index_of(k)];
    for (uint32_t i = 0; i < n; i++) {
        memcpy(sha[i],
               sha_of(sim_bytes(index_of(k), first + i), storage_chunk_len(s->size, first + i)),
               SHA256_SIZE);
    }
    return true;
}

static int st_begin(void *ctx, struct object_key k, uint64_t size, struct storage_put **out,
                    struct err *e)
{
    struct sim *s = ctx;
    if (s->full) {
        return err_set(e, ERR_BUSY, "full");
    }
    struct sim_put *p = calloc(1, sizeof *p);
    p->key = k;
    p->size = size;
    p->n = storage_chunks(size);
    p->have = calloc(p->n, 1);
    p->sums = calloc(p->n, SHA256_SIZE);
    s->live_puts++;
    *out = (struct storage_put *)p;
    return 0;
}

/* 0: not put, 1: right bytes, 2: wrong bytes. */
static int st_chunk(void *ctx, struct storage_put *h, uint32_t chunk, const uint8_t *p, size_t n,
                    const uint8_t *sha, struct err *e)
{
    struct sim_put *u = (struct sim_put *)h;
    assert_true(chunk < u->n);
    assert_int_equal(n, storage_chunk_len(u->size, chunk));
    assert_memory_equal(sha, sha_of(p, n), SHA256_SIZE);
    const uint8_t *right = sim_bytes(index_of(u->key), chunk);
    bool ok = p == right || memcmp(p, right, n) == 0;
    u->got += u->have[chunk] == 0;
    u->have[chunk] = ok ? 1 : 2;
    memcpy(u->sums + (size_t)chunk * SHA256_SIZE, sha, SHA256_SIZE);
    return 0;
}

static int st_end(void *ctx, struct storage_put *h, int code, enum basis b, const uint8_t *object,
                  struct err *e)
{
    struct sim *s = ctx;
    struct sim_put *u = (struct sim_put *)h;
    if (!code) {
        uint8_t d[SHA256_SIZE];
        assert_int_equal(u->got, u->n);
        for (uint32_t i = 0; i < u->n; i++) {
            s->wrong_bytes += u->have[i] != 1;
        }
        sha256(u->sums, (size_t)u->n * SHA256_SIZE, d);
        assert_memory_equal(d, object, SHA256_SIZE);
        assert_true(b >= BASIS_ONE_MEMBER);
        s->puts_ok++;
    }
    s->live_puts--;
    free(u->have);
    free(u->sums);
    free(u);
    return 0;
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

static void data(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *x = &s->peer[e->peer];
    struct object_key k = seen[e->peer][e->id % 8192].key;
    assert_true(seen[e->peer][e->id % 8192].id == e->id);
    uint32_t chunk = e->chunk;
    uint64_t id = e->id;
    size_t n = storage_chunk_len(s->size, chunk);
    const uint8_t *p = sim_bytes(index_of(k), chunk);
    switch (x->vice) {
    case V_FLIP:
    case V_LIE:
        p = flipped[which(index_of(k), chunk)];
        break;
    case V_ZERO:
        p = zeros;
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
    fetch_on_data(s->f, x->slot, id, chunk, e->flag, p, n, s->real_sha ? NULL : sha_of(p, n));
}

static void digests(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *x = &s->peer[e->peer];
    uint8_t sha[FETCH_RUN_MAX][SHA256_SIZE], object[SHA256_SIZE];
    uint32_t i = index_of(seen[e->peer][e->id % 8192].key);
    sim_object_digest(s, i, object);
    for (uint32_t k = 0; k < e->n; k++) {
        const uint8_t *p =
            x->vice == V_LIE ? flipped[which(i, e->chunk + k)] : sim_bytes(i, e->chunk + k);
        memcpy(sha[k], sha_of(p, storage_chunk_len(s->size, e->chunk + k)), SHA256_SIZE);
    }
    if (x->vice == V_LIE) {
        object[0] ^= 1;
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
        push(s, e);
    }
}

static void handle(struct sim *s, const struct sim_event *e)
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
            fetch_on_bytes(s->f, x->slot, 500);
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
            uint32_t i = index_of(g->key);
            const uint8_t *p = sim_bytes(i, e->chunk);
            size_t n = storage_chunk_len(s->size, e->chunk);
            if (++g->next == g->first + g->n) {
                unqueue(s->oq, &s->n_oq, g);
            }
            fetch_on_origin_data(s->f, e->id, e->chunk, p, n, s->real_sha ? NULL : sha_of(p, n));
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
    default:
        break;
    }
}

/* ---- invariants ---- */

static void check_source(struct sim *s, struct source *x)
{
    uint64_t in[FETCH_PRIOS] = {0};
    uint32_t n = 0;
    for (struct link *l = x->gets.next; l != &x->gets; l = l->next) {
        struct get *g = get_of_source(l);
        assert_ptr_equal(g->s, x);
        assert_true(g->open != 0);
        for (uint32_t i = 0; i < g->n; i++) {
            in[g->prio] += g->open >> i & 1 ? storage_chunk_len(g->fl->size, g->first + i) : 0;
        }
        n++;
    }
    assert_int_equal(n, x->n_gets);
    for (int p = 0; p < FETCH_PRIOS; p++) {
        assert_int_equal(in[p], x->in_flight[p]);
    }
}

void sim_check(struct sim *s)
{
    struct fetch *f = s->f;
    uint64_t begun_bytes = 0, todo[FETCH_PRIOS] = {0};
    uint32_t begun = 0, waiting = 0, wants = 0, puts = 0;
    assert_int_equal(f->depth, 0);
    if (fetch_deadline(f) > s->now) { /* else they are called by the tick that is due */
        assert_ptr_equal(f->ended.next, &f->ended);
        assert_ptr_equal(f->expired.next, &f->expired);
    }
    for (int p = 0; p < FETCH_PRIOS; p++) {
        for (struct link *l = f->waiting[p].next; l != &f->waiting[p]; l = l->next) {
            struct flight *fl = flight_of(l);
            assert_false(fl->begun);
            assert_int_equal(fl->prio, p);
            for (struct link *w = fl->wants.next; w != &fl->wants; w = w->next) {
                wants++;
            }
            todo[p] += fl->size;
            waiting++;
        }
        for (struct link *l = f->begun[p].next; l != &f->begun[p]; l = l->next) {
            struct flight *fl = flight_of(l);
            uint32_t asks[64] = {0}, orig[64] = {0}, unasked = 0, left_chunks = 0, gets = 0;
            uint64_t left = 0, by[FETCH_MEMBERS_MAX] = {0};
            assert_true(fl->begun && !fl->ended && fl->n <= 64);
            assert_int_equal(fl->prio, p);
            assert_ptr_equal(fetch_find(f, fl->key), fl);
            for (struct link *g = fl->gets.next; g != &fl->gets; g = g->next) {
                struct get *q = get_of_flight(g);
                bool o = source_is_origin(q->s);
                assert_ptr_equal(q->fl, fl);
                gets += !o;
                for (uint32_t i = 0; i < q->n; i++) {
                    if (q->open >> i & 1) {
                        (o ? orig : asks)[q->first + i]++;
                    }
                }
            }
            assert_int_equal(gets, fl->n_gets);
            for (uint32_t i = 0; i < fl->n; i++) {
                struct fchunk *c = &fl->c[i];
                assert_int_equal(c->asks, asks[i]);
                assert_int_equal(c->origin, orig[i]);
                assert_true(c->asks <= 2);
                unasked += !c->done && !c->asks;
                left_chunks += !c->done;
                left += c->done ? 0 : storage_chunk_len(fl->size, i);
                if (c->done) {
                    assert_true(c->basis != BASIS_NONE);
                    if (c->by != FETCH_NOBODY) {
                        by[c->by] += storage_chunk_len(fl->size, i);
                    }
                }
            }
            for (uint32_t i = 0; i < fl->n_members; i++) {
                assert_int_equal(by[i], fl->m[i].bytes);
            }
            assert_int_equal(unasked, fl->unasked);
            assert_int_equal(left_chunks, fl->left_chunks);
            assert_int_equal(left, fl->left);
            assert_true(left_chunks > 0);
            for (struct link *w = fl->wants.next; w != &fl->wants; w = w->next) {
                wants++;
            }
            begun++;
            todo[p] += left;
            begun_bytes += fl->size;
            puts += fl->put != NULL;
            /* Nothing goes ten seconds without bytes and without a line. */
            uint64_t sign = u64_max(fl->last_byte, s->line_at[index_of(fl->key)]);
            if (!s->quiet_ok && s->now - u64_max(sign, fl->begun_at) > 10 * FETCH_S) {
                fail_msg("object %u: silent for %g s", index_of(fl->key),
                         (double)(s->now - sign) / 1e9);
            }
        }
    }
    assert_int_equal(begun, f->n_begun);
    assert_int_equal(waiting, f->n_waiting);
    assert_int_equal(wants, f->n_wants);
    assert_int_equal(begun_bytes, f->begun_bytes);
    for (int p = 0; p < FETCH_PRIOS; p++) {
        assert_int_equal(todo[p], f->todo[p]);
    }
    assert_int_equal(puts, s->live_puts);
    assert_true(f->begun_bytes <= 2 * f->o.max_bytes + s->size);
    for (uint32_t i = 0; i < FETCH_PEERS_MAX; i++) {
        if (f->peer[i]) {
            assert_true(i < f->slots);
            check_source(s, f->peer[i]);
            /* Bounded: twice the window and what hedges add. */
            assert_true(source_queued(f->peer[i], 0) <=
                        3 * (uint64_t)FETCH_WINDOW_MAX * STORAGE_CHUNK);
            if (f->peer[i]->rec->banned_until > s->now) {
                assert_int_equal(f->peer[i]->n_gets, 0);
            }
        }
    }
    check_source(s, &f->origin);
}

/* ---- running ---- */

static bool step(struct sim *s, uint64_t until)
{
    uint64_t d = fetch_deadline(s->f);
    uint64_t t = s->n_heap ? s->heap[0].t : FETCH_NEVER;
    if (u64_min(d, t) > until) {
        s->now = u64_max(s->now, until);
        return false;
    }
    if (d <= t) {
        s->now = u64_max(s->now, d);
        fetch_tick(s->f);
        uint64_t again = fetch_deadline(s->f);
        if (again <= s->now) {
            fail_msg("the timer stands still at %g s", (double)s->now / 1e9);
        }
    } else {
        struct sim_event e = pop(s);
        s->now = u64_max(s->now, e.t);
        handle(s, &e);
    }
    s->events++;
    sim_check(s);
    return true;
}

bool sim_run(struct sim *s, uint64_t until)
{
    while (s->pending && step(s, until)) {
    }
    return s->pending == 0;
}

void sim_until(struct sim *s, uint64_t t)
{
    while (step(s, t)) {
    }
}

static void on_done(void *ctx, struct fetch_want *w, const struct fetch_result *r)
{
    struct sim *s = ctx;
    uint32_t i = index_of(r->key);
    s->done[i].code = r->code;
    s->done[i].times++;
    s->done[i].r = *r;
    s->done[i].at = s->now;
    s->n_done++;
    s->n_ok += r->code == 0;
    s->pending--;
    uint64_t sum = r->origin_bytes;
    for (uint32_t k = 0; k < r->n_from; k++) {
        sum += r->from[k].bytes;
    }
    if (!r->code) {
        assert_int_equal(sum, s->size); /* who got what from whom adds up */
    } else {
        assert_true(r->err.msg[0] != 0);
    }
}

struct fetch_want *sim_want_opts(struct sim *s, uint32_t index, const struct fetch_want_opts *o)
{
    struct fetch_want *w = NULL;
    struct fetch_want_opts x = *o;
    struct err e = {0};
    x.done = on_done;
    x.ctx = s;
    uint32_t done = s->n_done;
    s->pending++;
    assert_int_equal(fetch_get_object(s->f, sim_key(index), &x, &w, &e), 0);
    assert_int_equal(s->n_done, done); /* never before the call returns */
    return w;
}

struct fetch_want *sim_want(struct sim *s, uint32_t index, enum fetch_prio prio)
{
    struct fetch_want_opts o = {.prio = prio};
    return sim_want_opts(s, index, &o);
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

void sim_origin(struct sim *s, double rate, uint64_t latency)
{
    s->origin = true;
    s->origin_rate = rate;
    s->origin_latency = latency;
    fetch_origin_up(s->f, true);
}

void sim_init(struct sim *s, uint32_t seed, struct fetch_opts *o)
{
    make_pool();
    memset(s, 0, sizeof *s);
    s->rng = seed * 2654435761u + 1;
    s->now = 1000 * FETCH_S;
    s->size = SIM_SIZE;
    s->known = calloc(SIM_OBJECTS, 1);
    s->ops = (struct storage_ops){.size = st_size,
                                  .digests = st_digests,
                                  .put_begin = st_begin,
                                  .put_chunk = st_chunk,
                                  .put_end = st_end};
    memset(o, 0, sizeof *o);
    o->ops = (struct fetch_ops){s,         op_now,        op_get,           op_cancel, op_bad,
                                op_banned, op_origin_get, op_origin_cancel, op_wake,   op_log};
    o->storage = &s->ops;
    o->storage_ctx = s;
}

void sim_start(struct sim *s, const struct fetch_opts *o)
{
    struct err e;
    assert_int_equal(fetch_open(o, &s->f, &e), 0);
    fetch_origin_up(s->f, false);
}

void sim_free(struct sim *s)
{
    for (uint32_t i = 0; i < s->n_peers; i++) {
        s->peer[i].away = true;
    }
    fetch_close(s->f);
    assert_int_equal(s->pending, 0);
    assert_int_equal(s->live_puts, 0);
    free(s->known);
    free(s->heap);
    s->heap = NULL;
}

void sim_stats(struct sim *s, uint32_t p, struct fetch_peer_stats *o)
{
    struct fetch_peer_stats all[SIM_PEERS];
    size_t n = fetch_get_peers(s->f, all, SIM_PEERS);
    for (size_t i = 0; i < n && i < SIM_PEERS; i++) {
        if (memcmp(all[i].id, s->peer[p].id, SHA256_SIZE) == 0) {
            *o = all[i];
            return;
        }
    }
    fail_msg("peer %u is not in the list", p);
}
