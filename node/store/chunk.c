/* SPDX-License-Identifier: MIT
 * chunk.c: see chunk.h. */
#include "node/store/chunk.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

uint64_t chunk_xxh(const void *p, size_t n)
{
    return XXH64(p, n, 0);
}

void chunk_sum(const void *p, size_t n, struct chunk_sum *out)
{
    sha256(p, n, out->sha);
    out->xxh = chunk_xxh(p, n);
}

struct digest *digest_alloc(uint64_t size)
{
    uint32_t n = chunk_count(size);
    struct digest *d = calloc(1, sizeof *d + (size_t)n * sizeof d->xxh[0]);
    if (d) {
        d->size = size;
        d->n = n;
    }
    return d;
}

struct digest *digest_make(uint64_t size, const struct chunk_sum *sums, uint32_t source)
{
    struct digest *d = digest_alloc(size);
    if (!d) {
        return NULL;
    }
    d->source = source;
    struct sha256 h;
    sha256_init(&h);
    for (uint32_t i = 0; i < d->n; i++) {
        sha256_add(&h, sums[i].sha, SHA256_SIZE);
        d->xxh[i] = sums[i].xxh;
    }
    sha256_done(&h, d->sha);
    return d;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return a->size == b->size && memcmp(a->sha, b->sha, SHA256_SIZE) == 0 &&
           memcmp(a->xxh, b->xxh, (size_t)a->n * sizeof a->xxh[0]) == 0;
}
