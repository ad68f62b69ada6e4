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

_Static_assert(CHUNK_SIZE == STORAGE_CHUNK, "peers are given the chunks that are on record");

struct digest *digest_alloc(uint64_t size, bool shas)
{
    uint32_t n = chunk_count(size);
    size_t head = sizeof(struct digest) + (size_t)n * sizeof(uint64_t);
    struct digest *d = calloc(1, head + (shas ? (size_t)n * SHA256_SIZE : 0));
    if (d) {
        d->size = size;
        d->n = n;
        d->shas = shas ? (uint8_t(*)[SHA256_SIZE])((uint8_t *)d + head) : NULL;
    }
    return d;
}

struct digest *digest_make(uint64_t size, const struct chunk_sum *sums, uint32_t source)
{
    struct digest *d = digest_alloc(size, true);
    if (!d) {
        return NULL;
    }
    d->source = source;
    for (uint32_t i = 0; i < d->n; i++) {
        memcpy(d->shas[i], sums[i].sha, SHA256_SIZE);
        d->xxh[i] = sums[i].xxh;
    }
    sha256(d->shas, (size_t)d->n * SHA256_SIZE, d->sha);
    return d;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return a->size == b->size && memcmp(a->sha, b->sha, SHA256_SIZE) == 0 &&
           memcmp(a->xxh, b->xxh, (size_t)a->n * sizeof a->xxh[0]) == 0;
}

enum basis digest_basis(const struct digest *d)
{
    switch (d->source) {
    case DIGEST_ORIGIN:
        return BASIS_ORIGIN;
    case DIGEST_ONE_MEMBER:
        return BASIS_ONE_MEMBER;
    case DIGEST_TWO_MEMBERS:
        return BASIS_TWO_MEMBERS;
    case DIGEST_MANIFEST:
        return BASIS_MANIFEST;
    default:
        return BASIS_NONE;
    }
}

uint32_t digest_source_of(enum basis b)
{
    switch (b) {
    case BASIS_ORIGIN:
        return DIGEST_ORIGIN;
    case BASIS_TWO_MEMBERS:
        return DIGEST_TWO_MEMBERS;
    case BASIS_MANIFEST:
        return DIGEST_MANIFEST;
    default: /* whatever it was, a member gave it */
        return DIGEST_ONE_MEMBER;
    }
}

bool digest_beats(const struct digest *a, const struct digest *b)
{
    if (digest_basis(a) != digest_basis(b)) {
        return digest_basis(a) > digest_basis(b);
    }
    return a->shas && !b->shas && digest_equal(a, b);
}
