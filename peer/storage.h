/* SPDX-License-Identifier: MIT
 * storage.h: what peer/ needs from whoever keeps the objects. peer/ knows an object as a key and a
 * number of bytes; the node gives the functions below and decides where the bytes lie.
 *
 * An object has chunks of STORAGE_CHUNK bytes, the last one may be shorter. Its digest is SHA-256
 * over the SHA-256s of its chunks, in order.
 *
 * Threads: all functions are called on the loop thread and must not wait for a disk or a network:
 * they look things up in memory, copy a chunk, or hand work on. */
#ifndef SHOAL_PEER_STORAGE_H
#define SHOAL_PEER_STORAGE_H

#include "proto/base/err.h"
#include "proto/base/sha256.h"
#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORAGE_CHUNK WIRE_CHUNK

/* An object below the one model root. */
struct object_key {
    uint8_t kind;   /* 0..WIRE_KIND_MAX */
    uint16_t layer; /* 0..WIRE_LAYER_MAX */
    uint32_t index; /* 0..WIRE_INDEX_MAX */
};

static inline bool object_key_equal(struct object_key a, struct object_key b)
{
    return a.kind == b.kind && a.layer == b.layer && a.index == b.index;
}
static inline uint32_t storage_chunks(uint64_t size)
{
    return (uint32_t)((size + STORAGE_CHUNK - 1) / STORAGE_CHUNK);
}
/* Bytes of chunk i; i < storage_chunks(size). */
static inline size_t storage_chunk_len(uint64_t size, uint32_t i)
{
    uint64_t at = (uint64_t)i * STORAGE_CHUNK;
    return (size_t)(size - at < STORAGE_CHUNK ? size - at : STORAGE_CHUNK);
}

/* What a digest rests on, weakest first. The numbers are those of Source in shoal.proto. */
enum basis {
    BASIS_NONE = 0,        /* nothing is known */
    BASIS_ONE_MEMBER = 1,  /* the word of one member */
    BASIS_TWO_MEMBERS = 2, /* two members who say that it is from their own downloads */
    BASIS_ORIGIN = 3,      /* this node's own download */
    BASIS_MANIFEST = 4,    /* a published manifest */
};

/* One read of one chunk, for serving. The reader owns the struct until done is called. */
struct storage_read {
    struct object_key key;
    uint32_t chunk;
    uint8_t prio; /* 0 background, 1 prefetch, 2 demand, as in shoal.proto */
    /* Called once, on any thread, also before `read` returns. code 0: p has n bytes whose disk
     * checksum was verified; they stay as they are until release(r). ERR_NOTFOUND: not held any
     * more. ERR_DIGEST: the copy is damaged. With an error there is nothing to release. */
    void (*done)(struct storage_read *r, int code);
    const uint8_t *p;
    size_t n;
    void *user;    /* the reader's */
    void *private; /* the storage's */
};

/* One object that is coming in. */
struct storage_put; /* the storage's own */

struct storage_ops {
    /* Size of an object of the model, at least 1; false: the model has no such object. */
    bool (*size)(void *ctx, struct object_key k, uint64_t *size);

    /* ---- serving ---- */
    /* Whole and verified here (RAM or disk). */
    bool (*have)(void *ctx, struct object_key k);
    /* SHA-256s of chunks first .. first + n - 1, copied to sha[0..n). *b is what they rest on.
     * Returns false when they are not known: also for objects that are not held here, which is how
     * fetching learns the digests to expect. object (may be NULL) gets the object's digest. */
    bool (*digests)(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                    uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t object[SHA256_SIZE]);
    /* Start a read; `done` will be called. A full queue answers done with ERR_BUSY. */
    void (*read)(void *ctx, struct storage_read *r);
    void (*release)(void *ctx, struct storage_read *r);

    /* ---- fetching ---- */
    /* Room for an object that will come in chunk by chunk, in any order. *put is the storage's
     * until put_end. ERR_BUSY: no memory at the moment, ask again later. */
    int (*put_begin)(void *ctx, struct object_key k, uint64_t size, struct storage_put **put,
                     struct err *e);
    /* The bytes of a chunk, checked against `sha`. Valid during the call only. The same chunk may
     * come again with other bytes when what the first rested on has turned out to be false. */
    int (*put_chunk)(void *ctx, struct storage_put *put, uint32_t chunk, const uint8_t *p, size_t n,
                     const uint8_t sha[SHA256_SIZE], struct err *e);
    /* The last call for `put`. code 0: all chunks came; `b` is the weakest of what their digests
     * rest on, `object` their digest. Any other code: throw it away. Chunks that were put may not
     * be used before this call says 0. */
    int (*put_end)(void *ctx, struct storage_put *put, int code, enum basis b,
                   const uint8_t object[SHA256_SIZE], struct err *e);

    /* ---- words of members (peer/statement.h); each may be NULL ---- */
    /* The digest of the whole object, as signed statements or a manifest have it, and what that is
     * worth; BASIS_NONE: as many say one thing as another, so only the origin or a manifest can
     * tell. False: nothing is said. */
    bool (*expect)(void *ctx, struct object_key k, uint8_t object[SHA256_SIZE], enum basis *b);
    /* Before put_end(0) with a basis below BASIS_ORIGIN: the members whose word the digests are, at
     * most STORAGE_WORDS_MAX; none: it cannot be said. */
    void (*put_words)(void *ctx, struct storage_put *put, const uint8_t (*ids)[SHA256_SIZE],
                      size_t n);

    /* An object that is under way: another member holds it, or downloads it for all. Said before
     * put_begin or before the first chunk that shows it; may be said again. What has its only copy
     * here need not make room for such a one. May be NULL. */
    void (*put_second)(void *ctx, struct object_key k);
};
#define STORAGE_WORDS_MAX 4

#endif
