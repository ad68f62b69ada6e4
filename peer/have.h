/* SPDX-License-Identifier: MIT
 * have.h: the set of objects that this node can serve, as peers are told of it: a snapshot after
 * hello, then numbered deltas; and the bookkeeping of the other end that notices a gap. What a peer
 * has is kept by the fetch engine (fetch_on_have_*); this is only the order of messages.
 *
 * One thread. Memory: a bit for each index up to the highest held one of each kind and layer. */
#ifndef SHOAL_PEER_HAVE_H
#define SHOAL_PEER_HAVE_H

#include "peer/codec.h"
#include "peer/storage.h"

/* ---- this node's set ---- */

struct held;

struct held *held_new(void); /* NULL: no memory */
void held_free(struct held *h);
/* ERR_ARG for a key beyond the limits of the wire, ERR_NOMEM. What changes nothing is no change. */
int held_add(struct held *h, struct object_key k);
int held_remove(struct held *h, struct object_key k);
bool held_has(const struct held *h, struct object_key k);
uint64_t held_count(const struct held *h);
/* Of the last delta that was made; a snapshot made now carries it. */
uint64_t held_seq(const struct held *h);
/* Are there changes that no delta told of yet? */
bool held_dirty(const struct held *h);
/* Append the body of the next HaveDelta; each takes the next seq. Returns 0; *more: call again.
 * Changes that are too many for deltas are dropped: *snapshot says that every peer needs one. */
int held_delta(struct held *h, struct buf *body, bool *more, bool *snapshot, struct err *e);
/* The set as one or more Have bodies, in order; emit's failure ends it and is returned. Changes not
 * told of yet are in it, so deltas that follow may repeat them, which is harmless. */
int held_snapshot(const struct held *h, int (*emit)(void *ctx, const void *body, size_t n),
                  void *ctx, struct err *e);

/* ---- what arrives from a peer ---- */

struct held_rx {
    uint64_t seq;  /* of the last message that was taken */
    uint32_t part; /* next part of the snapshot under way */
    bool synced;   /* the set is complete as of seq */
    bool asked;    /* a HaveAsk is out */
};

enum held_verdict {
    HELD_TAKE,  /* apply the rows or spans */
    HELD_RESET, /* forget what was known, then apply */
    HELD_SKIP,  /* nothing to do */
    HELD_ASK,   /* something is missing: send HaveAsk with rx->seq */
};
enum held_verdict held_rx_have(struct held_rx *rx, uint64_t seq, uint32_t part, bool last);
enum held_verdict held_rx_delta(struct held_rx *rx, uint64_t seq);

#endif
