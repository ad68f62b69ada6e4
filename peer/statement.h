/* SPDX-License-Identifier: MIT
 * statement.h: a member's signed word: "these objects of this model have these digests, by my own
 * download from the origin". Pure functions on memory; those that sign and verify are in
 * statement_sign.c, so that who only reads needs no crypto library.
 *
 * The blob (integers little-endian; one encoding per content, anything else is refused):
 *   8   "shoalst1"
 *   65  the signer's public key; the signer's node id is its key_id
 *   32  model root
 *   8   number of the statement, from 1, rising per signer and model: of two that speak of one
 *       object the one with the higher number counts
 *   4   objects, 1..STATEMENT_OBJECTS_MAX
 *   per object, ascending by kind, layer, index: 1 kind, 2 layer, 4 index, 32 digest (storage.h)
 *   1   bytes of the signature, then an ECDSA signature (DER) over all before the length byte */
#ifndef SHOAL_PEER_STATEMENT_H
#define SHOAL_PEER_STATEMENT_H

#include "peer/storage.h"
#include "proto/base/buf.h"

#define STATEMENT_HEAD 117
#define STATEMENT_ENTRY 39
#define STATEMENT_SIG_MAX 72
#define STATEMENT_OBJECTS_MAX WIRE_STATEMENT_OBJECTS
#define STATEMENT_BLOB_MAX WIRE_STATEMENT_MAX
_Static_assert(STATEMENT_HEAD + STATEMENT_OBJECTS_MAX * STATEMENT_ENTRY + 1 + STATEMENT_SIG_MAX <=
                   STATEMENT_BLOB_MAX,
               "the largest statement fits");

struct statement_entry {
    struct object_key key;
    uint8_t digest[SHA256_SIZE];
};

/* A view into a blob, which outlives it. */
struct statement {
    const uint8_t *pub; /* CRYPTO_PUBLIC bytes */
    const uint8_t *root;
    uint64_t seq;
    uint32_t n;
    const uint8_t *entries; /* statement_get */
    size_t signed_n;        /* bytes that are signed, from the beginning of the blob */
    const uint8_t *sig;
    size_t sig_n;
};

/* ERR_FORMAT with a sentence. The signature is not looked at. */
int statement_parse(const void *blob, size_t n, struct statement *out, struct err *e);
void statement_get(const struct statement *s, uint32_t i, struct statement_entry *out);
/* Ascending order of keys. */
int statement_key_order(struct object_key a, struct object_key b);
/* Append what is to be signed. ERR_ARG: no objects, too many, or not ascending. */
int statement_body(const uint8_t *pub, const uint8_t root[SHA256_SIZE], uint64_t seq,
                   const struct statement_entry *v, size_t n, struct buf *out, struct err *e);

/* ---- statement_sign.c ---- */

struct crypto_key;
struct key_id;

/* Append a signed blob; `out` has nothing but it afterwards (it is emptied first). */
int statement_sign(struct crypto_key *k, const uint8_t root[SHA256_SIZE], uint64_t seq,
                   const struct statement_entry *v, size_t n, struct buf *out, struct err *e);
/* Parse and verify; *signer is whose word it is. ERR_FORMAT, or ERR_DIGEST: not signed by that
 * key. Some milliseconds, for a wrong signature as for a right one. */
int statement_open(const void *blob, size_t n, struct statement *out, struct key_id *signer,
                   struct err *e);

#endif
