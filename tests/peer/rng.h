/* SPDX-License-Identifier: MIT
 * rng.h: pseudo-random numbers for tests, the same on every system: splitmix64 (Steele, Lea and
 * Flood, "Fast splittable pseudorandom number generators", 2014). The seed is printed;
 * SHOAL_TEST_SEED in the environment replaces it. */
#ifndef SHOAL_TESTS_PEER_RNG_H
#define SHOAL_TESTS_PEER_RNG_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct rng {
    uint64_t state;
};

static inline struct rng rng_start(uint64_t seed)
{
    const char *given = getenv("SHOAL_TEST_SEED");
    char *end;
    if (given && *given) {
        unsigned long long v = strtoull(given, &end, 10);
        seed = *end ? seed : v;
    }
    printf("seed %llu\n", (unsigned long long)seed);
    return (struct rng){seed};
}

static inline uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 0 .. n - 1, n from 1 to 2^31; the upper bits, so that small n get good ones. */
static inline unsigned rng_below(struct rng *r, unsigned n)
{
    return (unsigned)((rng_next(r) >> 32) * n >> 32);
}

#endif
