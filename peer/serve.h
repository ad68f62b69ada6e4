/* SPDX-License-Identifier: MIT
 * serve.h: gives peers the chunks they ask for: which chunk is read and sent next, and when.
 *
 * Order: demand before prefetch before background, the peers of one priority in turn, the requests
 * of a peer in order of arrival. At most SERVE_PIPE chunks of a peer are being read or sent at each
 * priority and above, so that an urgent request waits for what has begun and no more. A chunk is
 * read only when the peer has credit for it and both rate limits allow it; a limit is an average:
 * a chunk may go whenever nothing is owed, and is owed then.
 *
 * Threads: the loop thread; storage_read.done may come from any. */
#ifndef SHOAL_PEER_SERVE_H
#define SHOAL_PEER_SERVE_H

#include "peer/codec.h"
#include "peer/storage.h"
#include "peer/tls_conn.h"

#define SERVE_PIPE 4
#define SERVE_GETS_MAX 256 /* open requests of one peer */
#define SERVE_PRIOS 3      /* 0 background, 1 prefetch, 2 demand */
#define SERVE_REASONS 11   /* of RefuseReason */

#define SERVE_BLOCKS_MAX (64u << 20) /* bytes of chunks kept for leases */

struct serve;
struct serve_peer;

struct serve_opts {
    const struct storage_ops *storage; /* lives longer */
    void *storage_ctx;
    uint64_t bytes_s, peer_bytes_s; /* 0: no limit */
    /* As mesh_opts.yield_ms; may be NULL. */
    unsigned (*yield_ms)(void *ctx, unsigned prio);
    void *ctx;
    /* A peer (by its user pointer) asks by Get.relay for what is not held. 0: it is being fetched,
     * serve_lease_* follow; else a RefuseReason, and *retry_ms. NULL: never. */
    uint32_t (*lease)(void *ctx, void *peer, struct object_key k, unsigned prio,
                      uint32_t *retry_ms);
    void *lease_ctx;
};

struct serve_stats {
    uint64_t bytes, chunks, gets;    /* sent, asked */
    uint64_t refused[SERVE_REASONS]; /* by RefuseReason */
    uint64_t yields;                 /* times that serving gave way */
    uint64_t limited;                /* times that it waited for a rate limit */
    uint32_t open, reading;          /* requests; chunks being read or sent */
    uint64_t bytes_s, peer_bytes_s;
};

struct serve_peer_stats {
    uint64_t bytes, chunks, gets, credit;
    uint32_t open, reading;
};

int serve_open(uv_loop_t *loop, const struct serve_opts *o, struct serve **out, struct err *e);
/* After every peer was removed. `closed` comes when the last read is back. */
void serve_close(struct serve *s, void (*closed)(void *ctx), void *ctx);
void serve_limits(struct serve *s, uint64_t bytes_s, uint64_t peer_bytes_s);
void serve_get_stats(const struct serve *s, struct serve_stats *out);

/* The connection is open and stays so until serve_peer_remove, which is called before its on_close
 * returns. */
struct serve_peer *serve_peer_add(struct serve *s, struct tls_conn *c);
/* It may ask by lease. */
void serve_peer_leases(struct serve_peer *p, void *user);
void serve_peer_remove(struct serve_peer *p);
void serve_peer_get_stats(const struct serve_peer *p, struct serve_peer_stats *out);

/* Messages of the peer, checked by codec_decode. ERR_FORMAT: it broke the protocol. */
int serve_on_get(struct serve_peer *p, const Shoal__Get *g, struct err *e);
void serve_on_cancel(struct serve_peer *p, uint64_t id);
int serve_on_credit(struct serve_peer *p, uint64_t bytes, struct err *e);
/* tls_conn_cb.on_drain */
void serve_on_drain(struct serve_peer *p);

/* ---- leases: chunks that are handed on while they come ---- */

/* A chunk has come (fetch_ops.chunk). It is copied once for all that wait for it; the latest ones
 * are kept for those that ask in a moment, SERVE_BLOCKS_MAX bytes in all. What does not fit is
 * given when the object is whole. */
void serve_lease_chunk(struct serve *s, struct object_key k, uint64_t size, uint32_t chunk,
                       const uint8_t *p, size_t n, const uint8_t sha[SHA256_SIZE], enum basis b);
/* The object is held now: what is still missing comes from the storage. */
void serve_lease_held(struct serve *s, struct object_key k);
/* It is not coming. */
void serve_lease_end(struct serve *s, struct object_key k, int reason, uint32_t retry_ms);
bool serve_lease_waits(const struct serve *s, struct object_key k);
/* Does this peer wait for anything? */
bool serve_peer_waits(const struct serve_peer *p);

/* Answer a Get with Refuse where nothing is served at all (another model root). */
int serve_refuse(struct tls_conn *c, uint64_t id, int reason, uint32_t retry_ms,
                 enum tls_priority pr);

#endif
