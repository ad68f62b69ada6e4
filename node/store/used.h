/* SPDX-License-Identifier: MIT
 * used.h: what a computation has used, and what came of it: have bytes that it was given been taken
 * back since (words.h says why), and what do those that it was given rest on. Beside store.h.
 *
 * An object is used when its bytes are handed out in RAM (store_get, a batch, store_read). What
 * others use meanwhile is not told apart: it counts for all who compute at that time.
 *
 * Any thread. */
#ifndef SHOAL_NODE_STORE_USED_H
#define SHOAL_NODE_STORE_USED_H

#include "node/store/store.h"

/* Where a computation began. */
struct store_since {
    uint64_t use, back;
};
void store_since(struct store *st, struct store_since *out);
/* The same for what an earlier process computed and left on the disk. */
void store_since_before(struct store *st, struct store_since *out);
/* 0: what has been used since then counts still. ERR_DIGEST: bytes of an object have been taken
 * back; the sentence names the object, on whose word they rested, and why that counts no longer.
 * `e` may be NULL. */
int store_spoilt(struct store *st, const struct store_since *s, struct err *e);
/* Counts what has been taken back: while it stays the same, store_spoilt says what it said. */
uint64_t store_backs(struct store *st);
/* A view whose bytes have been taken back: to be released, and got anew. */
bool store_stale(struct store *st, const struct store_view *v);

/* ---- what it rests on ----
 *
 * By what the digest of each object rests on now, weakest first. UNVERIFIED: nobody vouches for the
 * bytes (a file whose record is lost, a folder's expert files). ONE_MEMBER: one member's word;
 * where an origin answers, it was used only after samples of what that member gave had equalled the
 * origin's. ORIGIN: this node's own download, or the model's own folder. */
enum store_rests {
    STORE_UNVERIFIED,
    STORE_ONE_MEMBER,
    STORE_TWO_MEMBERS,
    STORE_OWN,
    STORE_MANIFEST,
    STORE_BASES
};
struct store_rest {
    uint64_t objects[STORE_BASES]; /* used since then */
    enum store_rests weakest;      /* of them; STORE_MANIFEST when there are none */
};
void store_rest(struct store *st, const struct store_since *s, struct store_rest *out);
/* "unverified", "one_member", "two_members", "origin", "manifest" */
const char *store_rests_name(enum store_rests b);
/* From now on nothing that rests on less is handed out: ERR_REFUSED names the object and what it
 * rests on. What is fetched, kept and served stays as it was. */
void store_set_trust(struct store *st, enum store_rests least);

/* Another process that keeps this cache has taken these objects back (node/daemon's guests): they
 * leave RAM, and what is on record here is forgotten where the catalog has forgotten it. `why` is
 * the owner's sentence. */
void store_take_back(struct store *st, const uint32_t *ids, size_t n, const char *why);

#endif
