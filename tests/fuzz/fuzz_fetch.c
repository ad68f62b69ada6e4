/* SPDX-License-Identifier: MIT
 * fuzz_fetch.c: peers that say anything at any time to the fetch engine. The input is a list of
 * steps of eight bytes: what happens, who, and numbers that are often near what was asked for.
 * Nothing but right bytes may be delivered when the digests are known, every object ends, and no
 * storage is left open. */
#include "peer/fetch_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PEERS 4
#define OBJECTS 8
#define BYTES (5u * STORAGE_CHUNK + 77)

struct world {
    struct fetch *f;
    uint64_t now;
    bool known; /* digests on record */
    uint32_t puts, wants;
    struct fetch_want *want[OBJECTS];
    uint64_t id[PEERS]; /* the latest Get of each */
    uint32_t slot[PEERS];
    bool up[PEERS];
    uint64_t origin_id;
};

static uint8_t chunk[STORAGE_CHUNK + 1];

/* Digests are made up: what is "right" for a chunk is its number. */
static void right(uint32_t object, uint32_t i, uint8_t sha[SHA256_SIZE])
{
    memset(sha, 0, SHA256_SIZE);
    sha[0] = (uint8_t)object;
    sha[1] = (uint8_t)i;
    sha[2] = 1;
}

static uint64_t now(void *ctx)
{
    return ((struct world *)ctx)->now;
}

static int send_get(void *ctx, uint32_t peer, const struct fetch_get *g)
{
    struct world *w = ctx;
    for (int i = 0; i < PEERS; i++) {
        if (w->up[i] && w->slot[i] == peer) {
            w->id[i] = g->id;
            return g->id % 13 == 0 ? ERR_BUSY : 0;
        }
    }
    abort();
}

static void send_cancel(void *ctx, uint32_t peer, uint64_t id)
{
}

static int origin_get(void *ctx, uint64_t id, struct object_key k, uint32_t first, uint32_t n,
                      enum fetch_prio prio, bool sure)
{
    (void)sure;
    ((struct world *)ctx)->origin_id = id;
    return id % 7 == 0 ? ERR_NET : 0;
}

static void origin_cancel(void *ctx, uint64_t id)
{
}

static bool st_size(void *ctx, struct object_key k, uint64_t *size)
{
    *size = BYTES;
    return k.index < OBJECTS;
}

static bool st_digests(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                       uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t *object)
{
    for (uint32_t i = 0; i < n; i++) {
        right(k.index, first + i, sha[i]);
    }
    *b = BASIS_MANIFEST;
    return ((struct world *)ctx)->known && k.index % 2;
}

static int st_begin(void *ctx, struct object_key k, uint64_t size, struct storage_put **put,
                    struct err *e)
{
    uint32_t *p = malloc(sizeof *p);
    if (!p) {
        return ERR_BUSY;
    }
    *p = k.index;
    ((struct world *)ctx)->puts++;
    *put = (struct storage_put *)p;
    return 0;
}

static int st_chunk(void *ctx, struct storage_put *put, uint32_t i, const uint8_t *p, size_t n,
                    const uint8_t sha[SHA256_SIZE], struct err *e)
{
    uint32_t object = *(uint32_t *)put;
    uint8_t want[SHA256_SIZE];
    right(object, i, want);
    if (((struct world *)ctx)->known && object % 2 && memcmp(want, sha, SHA256_SIZE) != 0) {
        abort();
    }
    return 0;
}

static int st_end(void *ctx, struct storage_put *put, int code, enum basis b,
                  const uint8_t object[SHA256_SIZE], struct err *e)
{
    ((struct world *)ctx)->puts--;
    free(put);
    return 0;
}

static void done(void *ctx, struct fetch_want *h, const struct fetch_result *r)
{
    struct world *w = ctx;
    w->wants--;
    for (int i = 0; i < OBJECTS; i++) {
        if (w->want[i] == h) {
            w->want[i] = NULL;
        }
    }
}

static void on_chunk(void *ctx, struct object_key k, uint64_t size, uint32_t i, const uint8_t *p,
                     size_t n, const uint8_t sha[SHA256_SIZE], enum basis b)
{
    if (k.index >= OBJECTS || i > 5 || b < BASIS_TWO_MEMBERS) {
        abort();
    }
}

static void on_end(void *ctx, struct object_key k, uint32_t retry_ms)
{
}

static void on_take(void *ctx, uint32_t peer, const struct object_key *k, const uint32_t *chunks,
                    uint32_t n)
{
    if (n < 1 || n > WIRE_TAKE_MAX) {
        abort();
    }
}

/* What peers say of leases. */
static void lease_step(struct world *w, const uint8_t *d)
{
    uint32_t slot = w->slot[d[1] % PEERS], retry;
    struct object_key k[2] = {{0, 0, d[2] % OBJECTS}, {0, 0, d[3] % (2 * OBJECTS)}};
    switch (d[0] % 4) {
    case 0:
        fetch_on_ask(w->f, slot, k[0], &retry);
        break;
    case 1:
        fetch_on_take(w->f, slot, k, d[5] % 2 ? (const uint32_t[2]){d[6] % 4, d[7]} : NULL,
                      1 + d[4] % 2);
        break;
    default:
        fetch_on_origin_state(w->f, slot, d[4] & 1, d[5] > 240 ? d[6] * 1000u : 0, d[7]);
        break;
    }
}

static void step(struct world *w, const uint8_t *d)
{
    if (d[0] >= 224 && w->up[d[1] % PEERS]) {
        lease_step(w, d);
        return;
    }
    uint32_t p = d[1] % PEERS, o = d[2] % OBJECTS, c = d[3] % 8, slot = w->slot[p];
    uint64_t id = w->id[p] - d[4] % 4 + d[4] / 128;
    size_t n = storage_chunk_len(BYTES, c < 6 ? c : 5) + (d[5] == 255);
    struct object_key k = {0, 0, o};
    struct fetch_want_opts want = {.prio = (enum fetch_prio)(d[5] % 3),
                                   .deadline_ns = d[6] ? 0 : w->now + FETCH_S,
                                   .peers_only = d[7] == 1,
                                   .done = done,
                                   .ctx = w};
    uint8_t sha[8 * SHA256_SIZE], id32[SHA256_SIZE] = {(uint8_t)p};
    for (uint32_t i = 0; i < 8; i++) {
        right(o, c + i, sha + (size_t)i * SHA256_SIZE);
        sha[i * SHA256_SIZE + 3] = d[6] < 32 ? d[6] : 0;
    }
    if (!w->up[p] && d[0] % 16 >= 3 && d[0] % 16 < 9) {
        return;
    }
    switch (d[0] % 16) {
    case 0:
        if (!w->up[p] && fetch_on_peer_up(w->f, id32, "p", &w->slot[p], NULL) == 0) {
            w->up[p] = true;
            w->id[p] = 0;
            fetch_on_have(w->f, w->slot[p], 0, 0, 0, OBJECTS, true);
        }
        break;
    case 1:
    case 2:
        if (!w->want[o] && fetch_get_object(w->f, k, &want, &w->want[o], NULL) == 0) {
            w->wants++;
        }
        break;
    case 3:
        fetch_on_digests(w->f, slot, id, BYTES + (d[7] == 255), c, 1 + d[5] % 6, sha, d[6],
                         d[7] < 128 ? sha : NULL);
        break;
    case 4:
    case 5:
        fetch_on_data(w->f, slot, id, c, d[7] > 200, chunk, n, sha);
        break;
    case 6:
        fetch_on_refuse(w->f, slot, id, d[5] % 12, d[6], "no");
        break;
    case 7:
        fetch_on_peer_down(w->f, slot, d[5] & 1);
        w->up[p] = false;
        break;
    case 8:
        fetch_on_have(w->f, slot, 0, 0, o, d[5], d[6] & 1);
        fetch_on_bytes(w->f, slot, d[7]);
        break;
    case 9:
        if (w->want[o] && d[5] & 1) {
            fetch_cancel(w->f, w->want[o]);
            w->want[o] = NULL;
            w->wants--;
        } else if (w->want[o]) {
            fetch_raise(w->f, w->want[o], (enum fetch_prio)(d[6] % 3));
        }
        break;
    case 10:
        fetch_origin_up(w->f, d[5] & 1);
        break;
    case 11:
        fetch_on_origin_data(w->f, w->origin_id - d[4] % 3, c, chunk, n, sha);
        break;
    case 12:
        fetch_on_origin_fail(w->f, w->origin_id - d[4] % 3, d[5], NULL);
        break;
    case 13:
        fetch_unban(w->f, id32);
        break;
    default:
        w->now += (uint64_t)d[4] * d[5] * FETCH_MS / 4;
        fetch_tick(w->f);
        break;
    }
}

static void check(const struct fetch *f)
{
    for (int p = 0; p < FETCH_PRIOS; p++) {
        for (struct link *l = f->begun[p].next; l != &f->begun[p]; l = l->next) {
            const struct flight *fl = flight_of(l);
            uint32_t asks = 0, counted = 0, unasked = 0;
            for (struct link *g = fl->gets.next; g != &fl->gets; g = g->next) {
                const struct get *q = get_of_flight(g);
                asks += get_outside(q) ? 0 : (uint32_t)__builtin_popcountll(q->open);
            }
            for (uint32_t i = 0; i < fl->n; i++) {
                counted += fl->c[i].asks;
                unasked += !fl->c[i].done && !fl->c[i].asks;
            }
            if (asks != counted || unasked != fl->unasked) {
                abort();
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world w = {.now = 1};
    struct storage_ops st = {.size = st_size,
                             .digests = st_digests,
                             .put_begin = st_begin,
                             .put_chunk = st_chunk,
                             .put_end = st_end};
    struct fetch_opts o = {.ops = {.ctx = &w,
                                   .now = now,
                                   .send_get = send_get,
                                   .send_cancel = send_cancel,
                                   .origin_get = origin_get,
                                   .origin_cancel = origin_cancel,
                                   .chunk = on_chunk,
                                   .lease_end = on_end,
                                   .send_take = on_take},
                           .leases = true,
                           .storage = &st,
                           .storage_ctx = &w};
    if (size < 1 || fetch_open(&o, &w.f, NULL)) {
        return 0;
    }
    w.known = data[0] & 1;
    for (size_t i = 1; i + 8 <= size && i < 8000; i += 8) {
        step(&w, data + i);
        check(w.f);
    }
    fetch_close(w.f);
    if (w.puts || w.wants) {
        abort();
    }
    return 0;
}
