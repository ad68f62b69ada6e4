/* SPDX-License-Identifier: MIT
 * manifest.h: a published manifest: the digest of every object of one model, with the SHA-256s of
 * the whole shards that they were computed from. It is the strongest that a digest can rest on.
 *
 * The file (integers little-endian; one encoding per content, anything else is refused):
 *   8   "shoalmf1"
 *   32  model root (node/model)
 *   4   objects, 1..MANIFEST_OBJECTS_MAX; 4 shards, at most MANIFEST_SHARDS_MAX
 *   per shard: 1 bytes of its name, the name, 8 size, 32 SHA-256 of the whole file, 1 what that was
 *       compared with (enum manifest_checked); name ascending
 *   per object, by the model's numbers: 8 size, 32 digest (peer/storage.h), all zero: not known
 *   1   0: not signed; 1: then 65 public key, 1 bytes of the signature, an ECDSA signature (DER)
 *       over all before this byte
 *   32  SHA-256 of all before
 * Whoever takes one in trusts its signer, or knows the SHA-256 of the file from elsewhere. */
#ifndef SHOAL_STORE_MANIFEST_H
#define SHOAL_STORE_MANIFEST_H

#include "proto/base/buf.h"
#include "proto/base/err.h"
#include "proto/base/sha256.h"

#include <stdbool.h>
#include <stdint.h>

#define MANIFEST_OBJECTS_MAX (1u << 20)
#define MANIFEST_SHARDS_MAX 4096
#define MANIFEST_NAME_MAX 255
#define MANIFEST_MAX ((size_t)64 << 20)
#define MANIFEST_PUBLIC 65
#define MANIFEST_SIG_MAX 72

enum manifest_checked {
    MANIFEST_NOT_COMPARED = 0,
    MANIFEST_HUB = 1, /* equal to the SHA-256 that the hub states for the file */
};

struct manifest_shard {
    char name[MANIFEST_NAME_MAX + 1];
    uint64_t size;
    uint8_t sha256[SHA256_SIZE];
    uint8_t checked;
};

/* A view into the bytes, which outlive it. */
struct manifest {
    const uint8_t *root;
    uint32_t n, known, n_shards; /* known: objects with a digest */
    const uint8_t *shards, *objects;
    size_t signed_n;    /* what a signature is over, from the beginning */
    const uint8_t *pub; /* NULL: not signed */
    const uint8_t *sig;
    size_t sig_n;
};

/* ERR_FORMAT with a sentence. The signature is not looked at. */
int manifest_parse(const void *p, size_t n, struct manifest *out, struct err *e);
uint64_t manifest_size(const struct manifest *m, uint32_t id);
/* NULL: not known. */
const uint8_t *manifest_digest(const struct manifest *m, uint32_t id);
/* The shard after the one at *at (begin with 0); false: that was all. */
bool manifest_shard(const struct manifest *m, size_t *at, struct manifest_shard *out);

/* Writing: begin, the shards in order of names, the objects in order, then end. */
int manifest_begin(struct buf *out, const uint8_t root[SHA256_SIZE], uint32_t objects,
                   uint32_t shards);
int manifest_add_shard(struct buf *out, const struct manifest_shard *s);
int manifest_add_object(struct buf *out, uint64_t size, const uint8_t *digest); /* NULL: none */
/* pub NULL: not signed. */
int manifest_end(struct buf *out, const uint8_t *pub, const uint8_t *sig, size_t sig_n);

#endif
