/* SPDX-License-Identifier: MIT
 * chunk.h: an object as a list of 1 MiB chunks, and what is known of their bytes.
 *
 * Per chunk a fast checksum (xxHash64, seed 0: bit rot, verified on every read) and a SHA-256. The
 * digest of an object is SHA-256 over the SHA-256s of its chunks, in order. */
#ifndef SHOAL_STORE_CHUNK_H
#define SHOAL_STORE_CHUNK_H

#include "peer/storage.h"
#include "proto/base/sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHUNK_SIZE (1u << 20) /* as STORAGE_CHUNK */

struct chunk_sum {
    uint8_t sha[SHA256_SIZE];
    uint64_t xxh;
};

/* What a digest rests on, as numbers on disk (enum basis has its own, by strength). */
enum digest_source {
    DIGEST_ORIGIN = 1,
    DIGEST_ONE_MEMBER = 2,
    DIGEST_TWO_MEMBERS = 3,
    DIGEST_MANIFEST = 4,
    DIGEST_TAKEN_BACK = 5, /* in journals alone: what was on record before counts no longer */
    DIGEST_UNKNOWN = 6     /* computed from a file whose source nobody vouches for: an adopted
                              folder, or the cache when catalog and journal were lost */
};

#define DIGEST_RESTS_OWN 1u

struct digest {
    struct digest *older; /* the owner's: the one that this one has replaced */
    uint64_t size;
    uint8_t sha[SHA256_SIZE];
    uint32_t source; /* enum digest_source */
    uint32_t n;      /* chunks */
    /* With DIGEST_ONE_MEMBER and DIGEST_TWO_MEMBERS: on whose word it rests, bits by the members'
     * numbers in the catalog (catalog_words.h); 0: not on record. With DIGEST_MANIFEST: on what it
     * rested before, bit 0 for the own download. */
    uint64_t rests;
    /* [n], in the same memory: SHA-256s of the chunks. NULL: not on record (objects received by a
     * program that did not keep them). */
    uint8_t (*shas)[SHA256_SIZE];
    uint64_t xxh[]; /* [n] */
};

static inline uint32_t chunk_count(uint64_t size)
{
    return (uint32_t)((size + CHUNK_SIZE - 1) / CHUNK_SIZE);
}
/* Bytes of chunk i of an object of this size. */
static inline size_t chunk_len(uint64_t size, uint32_t i)
{
    uint64_t at = (uint64_t)i * CHUNK_SIZE;
    return (size_t)(size - at < CHUNK_SIZE ? size - at : CHUNK_SIZE);
}

uint64_t chunk_xxh(const void *p, size_t n);
void chunk_sum(const void *p, size_t n, struct chunk_sum *out);
/* The digest of an object from its chunks' sums; malloc'ed; NULL: no memory. */
struct digest *digest_make(uint64_t size, const struct chunk_sum *sums, uint32_t source);
struct digest *digest_alloc(uint64_t size, bool shas);
bool digest_equal(const struct digest *a, const struct digest *b);
enum basis digest_basis(const struct digest *d);
uint32_t digest_source_of(enum basis b);
/* Is `a` to take the place of `b`, of the same object? It rests on more, or says the same and knows
 * the chunks' SHA-256s, too. */
bool digest_beats(const struct digest *a, const struct digest *b);

#endif
