/* SPDX-License-Identifier: MIT
 * roster.h: who belongs to a shoal: a list signed by the group's key. The list with the highest
 * version wins; a node that was removed stays removed. Pure functions on memory, no files.
 *
 * The blob (all integers little-endian; one encoding per content, anything else is refused):
 *   8   "shoalro1"
 *   65  the group's public key; the group id is its key_id
 *   8   version, from 1
 *   2   members, 2 removed, 4 zero
 *   per member, ascending by node id: 65 public key, 8 joined (seconds since 1970, as the clock of
 *       the inviter had it; 0: unknown), 1 flags (bit 0: keeper, may hold the signing key)
 *   per removed node, ascending: 32 node id, 8 when
 *   1   bytes of the signature, then an ECDSA signature (DER) over all before the length byte */
#ifndef SHOAL_PEER_ROSTER_H
#define SHOAL_PEER_ROSTER_H

#include "peer/crypto.h"
#include "proto/base/buf.h"

#define ROSTER_MEMBERS_MAX 256
#define ROSTER_REMOVED_MAX 1024
#define ROSTER_HEAD 89
#define ROSTER_BLOB_MAX \
    (ROSTER_HEAD + ROSTER_MEMBERS_MAX * 74 + ROSTER_REMOVED_MAX * 40 + 1 + CRYPTO_SIG_MAX)
#define ROSTER_KEEPER 1u

struct roster_member {
    struct key_id id; /* of pub */
    uint8_t pub[CRYPTO_PUBLIC];
    uint64_t joined;
    uint8_t flags;
};

struct roster_removed {
    struct key_id id;
    uint64_t when;
};

struct roster {
    uint8_t group_pub[CRYPTO_PUBLIC];
    struct key_id group;
    uint64_t version;
    struct roster_member *members; /* ascending by id; owned */
    size_t members_n;
    struct roster_removed *removed; /* ascending by id; owned */
    size_t removed_n;
};

/* An empty list of version 0, which cannot be encoded yet. */
void roster_init(struct roster *r, const uint8_t group_pub[CRYPTO_PUBLIC]);
void roster_free(struct roster *r);
int roster_copy(const struct roster *r, struct roster *out, struct err *e);

/* Take a blob apart, without a look at the signature or at the points of the curve (fuzzing; what a
 * file of one's own held). *out is initialised on success only. */
int roster_parse(const void *blob, size_t n, struct roster *out, struct err *e);
/* The same for a blob of this group from anywhere: signature and every key are checked too. */
int roster_open(const void *blob, size_t n, const struct key_id *group, struct roster *out,
                struct err *e);
/* Append the blob, signed by the group's key (which must be that of r->group_pub). */
int roster_sign(const struct roster *r, struct crypto_key *group_key, struct buf *out,
                struct err *e);

/* Of a blob that was parsed once. */
uint64_t roster_version_of(const void *blob, size_t n);

const struct roster_member *roster_find(const struct roster *r, const struct key_id *id);
bool roster_has_removed(const struct roster *r, const struct key_id *id);

/* Changes; the caller raises version once and signs. Adding a member again adds the flags.
 * A removed node is ERR_REFUSED, a full list ERR_LIMIT. */
int roster_add(struct roster *r, const uint8_t pub[CRYPTO_PUBLIC], uint64_t joined, uint8_t flags,
               struct err *e);
int roster_remove(struct roster *r, const struct key_id *id, uint64_t when, struct err *e);

enum roster_order {
    ROSTER_OLDER, /* theirs is older: send ours */
    ROSTER_EQUAL, /* the same content */
    ROSTER_NEWER, /* theirs is to replace ours */
};
/* Theirs against ours, of one group. Equal versions of different content (two keepers signed at
 * once) are ordered by the SHA-256 of the content, so that all nodes choose alike. */
enum roster_order roster_compare(const struct roster *ours, const struct roster *theirs);
/* For keepers: *out is both together (every member and every removal of either; removal wins over
 * membership, flags add up, the earliest dates stay), of a version above both; *changed says
 * whether it says more than the winner of the two does, so that it is worth signing. */
int roster_merge(const struct roster *a, const struct roster *b, struct roster *out, bool *changed,
                 struct err *e);

/* Does r say something that `than` does not: other members, removals, flags or dates? Versions do
 * not count. */
bool roster_differs(const struct roster *r, const struct roster *than);

enum roster_standing {
    STANDING_MEMBER,
    STANDING_REMOVED,
    STANDING_STRANGER,
};
/* What a node is to us. `theirs` is the roster the node itself showed, opened by roster_open, or
 * NULL: who was taken in by another keeper before we heard of it is a member by that roster,
 * unless ours says it was removed. */
enum roster_standing roster_standing(const struct roster *ours, const struct roster *theirs,
                                     const struct key_id *id);

#endif
