/* SPDX-License-Identifier: MIT
 * order.h: rendezvous order: which member comes first for an object, the same on every machine.
 *
 * Each member has a score for each object of a model, by a hash of the three. Leases (who fetches
 * from the origin for all) go by the highest score; homes (who keeps what) by the lowest cost,
 * which is the score weighted by how much a member can keep. Ties go to the lower node id. All of
 * it is integer arithmetic with one result everywhere; the numbers are part of the protocol and
 * never change (golden values in tests/peer/t_order.c).
 *
 * Formulas. Seed of a member in a model: the first 16 bytes of SHA-256("shoal order 1\n" || root ||
 * id) as two little-endian u64 a, b. Key: x = kind << 40 | layer << 24 | index. Score:
 * f(f(x ^ a) + b), f being the 64-bit finalizer of MurmurHash3. Cost: -log2((score + 1) / 2^64) /
 * weight, the usual form of weighted rendezvous hashing, with log2 in fixed point by a table of 256
 * intervals, straight lines between (error below 3e-6).
 *
 * Threads: pure functions. */
#ifndef SHOAL_PEER_ORDER_H
#define SHOAL_PEER_ORDER_H

#include "peer/storage.h"

/* What a member's scores in one model are made from; making it costs a SHA-256, a score then costs
 * a few multiplications. */
struct order_seed {
    uint64_t a, b;
};

/* root: of the model, or any other 32 bytes that say what is ordered (the scope of an address, with
 * key {0, 0, 0}). */
void order_seed(struct order_seed *s, const uint8_t root[SHA256_SIZE],
                const uint8_t id[SHA256_SIZE]);
static inline uint64_t order_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}
static inline uint64_t order_score_of(const struct order_seed *s, struct object_key k)
{
    uint64_t x = (uint64_t)k.kind << 40 | (uint64_t)k.layer << 24 | (k.index & 0xffffff);
    return order_mix(order_mix(x ^ s->a) + s->b);
}
/* Both in one, for a single question. */
uint64_t order_score(const uint8_t root[SHA256_SIZE], struct object_key k,
                     const uint8_t id[SHA256_SIZE]);

/* Does the member with score a come before the one with score b? For leases: higher first, equal
 * scores: lower id. */
bool order_before(uint64_t a, const uint8_t id_a[SHA256_SIZE], uint64_t b,
                  const uint8_t id_b[SHA256_SIZE]);

/* For homes: lower is better. weight: 1 .. 2^31 (place.h has the unit); larger counts as 2^31,
 * 0 gives UINT64_MAX, which nobody else has. */
uint64_t order_cost(uint64_t score, uint64_t weight);

/* A lower bound of order_cost of one weight, for a multiplication: -log2(u) >= (1 - u) * log2(e).
 * Among many members most are no better than the best so far, and this says so. */
struct order_bound {
    uint64_t by, less;
};
void order_bound(struct order_bound *b, uint64_t weight);
static inline uint64_t order_at_least(const struct order_bound *b, uint64_t score)
{
    __extension__ typedef unsigned __int128 wide;
    uint64_t top = (uint64_t)((wide)~score * b->by >> 64);
    return top > b->less ? top - b->less : 0;
}

#endif
