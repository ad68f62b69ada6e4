/* SPDX-License-Identifier: MIT
 * fetch_sim.c: see fetch_sim.h. Bytes, the queue of events, the storage, running. */
#include "tests/peer/fetch_sim_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

const uint8_t *sim_flipped(uint32_t index, uint32_t chunk)
{
    return flipped[which(index, chunk)];
}

const uint8_t *sim_zeros(void)
{
    return zeros;
}

const uint8_t *sim_sha(const uint8_t *p, size_t n)
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
        sha256_add(&h, sim_sha(sim_bytes(index, i), storage_chunk_len(s->size, i)), SHA256_SIZE);
    }
    sha256_done(&h, out);
}

struct object_key sim_key(uint32_t index)
{
    struct object_key k = {SIM_KIND, (uint16_t)(index / 896), index % 896};
    return k;
}

uint32_t sim_index(struct object_key k)
{
    return k.layer * 896u + k.index;
}

uint32_t sim_rand(struct sim *s, uint32_t below)
{
    s->rng = s->rng * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(s->rng >> 8) * below >> 24);
}

/* ---- events ---- */

void sim_push(struct sim *s, struct sim_event e)
{
    event_push(&s->heap, &e);
}

/* ---- storage ---- */

static bool st_size(void *ctx, struct object_key k, uint64_t *size)
{
    struct sim *s = ctx;
    *size = s->size;
    return k.kind == SIM_KIND && sim_index(k) < SIM_OBJECTS;
}

static bool st_digests(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                       uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t *object)
{
    struct sim *s = ctx;
    if (!s->known[sim_index(k)]) {
        return false;
    }
    *b = (enum basis)s->known[sim_index(k)];
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *bytes = sim_bytes(sim_index(k) + s->known_wrong, first + i);
        memcpy(sha[i], sim_sha(bytes, storage_chunk_len(s->size, first + i)), SHA256_SIZE);
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
    p->at = calloc(p->n, sizeof *p->at);
    s->put[sim_index(k)] = p;
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
    assert_memory_equal(sha, sim_sha(p, n), SHA256_SIZE);
    const uint8_t *right = sim_bytes(sim_index(u->key), chunk);
    bool ok = p == right || memcmp(p, right, n) == 0;
    u->got += u->have[chunk] == 0;
    u->have[chunk] = ok ? 1 : 2;
    u->at[chunk] = p; /* of the pool, which stays */
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
    s->put[sim_index(u->key)] = NULL;
    free(u->at);
    free(u->have);
    free(u->sums);
    free(u);
    return 0;
}

/* ---- running ---- */

static bool step(struct sim *s, uint64_t until)
{
    uint64_t d = fetch_deadline(s->f);
    uint64_t t = event_next(&s->heap);
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
        struct sim_event e;
        event_pop(&s->heap, &e);
        s->now = u64_max(s->now, e.t);
        sim_handle(s, &e);
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
    uint32_t i = sim_index(r->key);
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
    s->heap.size = sizeof(struct sim_event);
    s->now = 1000 * FETCH_S;
    s->size = SIM_SIZE;
    s->known = calloc(SIM_OBJECTS, 1);
    s->ops = (struct storage_ops){.size = st_size,
                                  .digests = st_digests,
                                  .put_begin = st_begin,
                                  .put_chunk = st_chunk,
                                  .put_end = st_end};
    memset(o, 0, sizeof *o);
    o->ops = sim_ops(s);
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
    event_free(&s->heap);
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
