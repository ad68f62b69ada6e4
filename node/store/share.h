/* SPDX-License-Identifier: MIT
 * share.h: the store as one of many: what it offers to whoever shares objects with other machines,
 * and what it takes from there. node/daemon puts it together with peer/mesh.h; neither side knows
 * the other.
 *
 * Data flow: an object that is neither in RAM nor on disk is asked of the upstream (when there is
 * one) in place of the origin. The upstream brings it by storage_ops.put_* chunk by chunk, in any
 * order, each compared with its digest before; what no peer can give it takes from this store's
 * origin, by store_origin_get. Then store_upstream_done ends the request. From there on it is as
 * if the origin had given the object: written, synced, its digest recorded with what it rests on,
 * renamed, admitted.
 *
 * Keys: an expert is (0, layer, expert id), a spine object is (1, 0, object id): see store_key. */
#ifndef SHOAL_NODE_STORE_SHARE_H
#define SHOAL_NODE_STORE_SHARE_H

#include "node/store/store.h"
#include "peer/storage.h"

#define STORE_KEY_EXPERT 0
#define STORE_KEY_SPINE 1

struct object_key store_key(const struct store *st, uint32_t id);
/* MODEL_NONE: the model has no such object. */
uint32_t store_key_id(const struct store *st, struct object_key k);

/* ---- serving and receiving: ctx is the struct store ----
 *
 * Calls come on the LAN thread. Reads are done by threads of the store; bytes come from the disk
 * copy (or a RAM copy that is known to be the object's own bytes), checked against the checksum on
 * record; a damaged copy is removed as store_get would, and answered ERR_DIGEST. put_begin answers
 * ERR_BUSY while more than STORE_PUT_MAX bytes wait to be written, and ERR_NOTFOUND when this store
 * has not asked for the object. */
#define STORE_PUT_MAX ((uint64_t)256 << 20)
extern const struct storage_ops store_storage_ops;

/* ---- the upstream ---- */

struct store_upstream {
    void *ctx;
    /* The three below are called with the store's lock held: they may only leave a note, and call
     * nothing of the store. Each fetch is ended by exactly one store_upstream_done, also after
     * cancel (which is a hint: nobody waits any more). */
    void (*fetch)(void *ctx, uint32_t id, enum store_prio prio);
    void (*raise)(void *ctx, uint32_t id, enum store_prio prio);
    void (*cancel)(void *ctx, uint32_t id);
    /* Objects that can be served from now on, or not any more. Any thread, no lock held. May be
     * NULL. */
    void (*changed)(void *ctx, const uint32_t *added, size_t n_added, const uint32_t *removed,
                    size_t n_removed);
};
/* NULL: none, and none of its functions is being called any more when it returns. May be set at any
 * time (not from inside of them); requests that are under way end as they began, by
 * store_upstream_done, but cancel and raise are not called for them any more. The struct is copied.
 * Set it before store_share_list: what changes from then on is told by `changed`. Before
 * store_close nobody may be inside of put_*, read or done, nor come later. */
void store_set_upstream(struct store *st, const struct store_upstream *u);

struct store_upstream_result {
    /* 0: put_end said so, or another process has published it in the same cache.
     * ERR_OFFLINE: the upstream itself is gone; the store goes to its own origin if it has one.
     * Others: the request fails with this sentence. */
    int code;
    const struct err *err;             /* with a code */
    uint64_t peer_bytes, origin_bytes; /* for the statistics; the second only when another process
                                          took them (this store counts its own) */
};
/* Any thread but not from inside a callback of struct store_upstream. */
void store_upstream_done(struct store *st, uint32_t id, const struct store_upstream_result *r);

/* All that is on disk and can be served: *ids malloc'ed, ascending; the caller frees it. */
int store_share_list(struct store *st, uint32_t **ids, size_t *n, struct err *e);
/* A peer says that chunk `chunk` of our copy is bad: have it read and checked in the background; a
 * damaged copy is removed. Any thread. */
void store_share_check(struct store *st, uint32_t id, uint32_t chunk);

/* ---- the origin, for the upstream ---- */

/* Shaped like mesh_origin_data and mesh_origin_fail; ctx is theirs. */
struct store_origin_answers {
    void *ctx;
    int (*data)(void *ctx, uint64_t id, uint32_t chunk, void *p, size_t n, const uint8_t *sha256);
    void (*fail)(void *ctx, uint64_t id, uint64_t retry_ms, const struct err *e);
    /* It has asked to be left alone for so long (Retry-After): said at once, so that other nodes
     * can be told before they ask. May be NULL. */
    void (*busy)(void *ctx, uint64_t ms);
    /* An attempt has failed at the level of the host (no connection, no such name) right after
     * another such one, without a byte of the origin between. May be NULL. */
    void (*trouble)(void *ctx);
    /* What came of store_origin_spot: 0: the same bytes, ERR_DIGEST: others; else it could not be
     * found out, and the origin wants to be left alone for `retry_ms`. Also on the thread that
     * writes. May be NULL when that is never called. */
    void (*spot)(void *ctx, uint64_t id, int code, uint64_t retry_ms);
};
/* To be set before the first store_origin_get. NULL: nobody; nobody is being called any more when
 * it returns (so not from inside of data and fail), and what is still under way is given up. */
void store_origin_answer_to(struct store *st, const struct store_origin_answers *a);
/* As mesh_origin.get: n chunks from `first`; adjacent ones and adjacent objects share ranges of the
 * origin as ever. Answers come on the origin's thread, or a mirror's unless `sure` (SHA-256
 * computed there). The ids are the caller's and may be anything. Nonzero: there is no origin. */
int store_origin_get(struct store *st, uint64_t id, struct object_key k, uint32_t first, uint32_t n,
                     enum store_prio prio, bool sure);
/* Compares n bytes from `off` of an object that is being put, all of whose chunks have come, with
 * the origin's own (never a mirror's): the answer is `spot`. Nonzero: there is no origin. */
int store_origin_spot(struct store *st, uint64_t id, struct object_key k, uint64_t off, uint32_t n,
                      enum store_prio prio);
/* A chunk that is whole by now may still come. */
void store_origin_cancel(struct store *st, uint64_t id);
void store_origin_raise(struct store *st, uint64_t id, enum store_prio prio);
bool store_has_origin(const struct store *st);
/* How long the origin has asked to be left alone still (Retry-After), 0: it has not. */
uint64_t store_origin_asked_ms(struct store *st);
/* Another node heard that from it: begin nothing new there for so long. */
void store_origin_pause(struct store *st, uint64_t ms);
/* The origin as measured lately: is it answering, bytes a second, seconds to the first byte; 0: not
 * known. */
void store_origin_measured(struct store *st, bool *up, double *bytes_s, double *latency_s);

/* ---- room, for whoever knows what the copies here are worth to others ---- */

/* As disk_ranks: rank[] is by object id; an object that may come has one, too. Without a disk tier
 * nothing happens. */
int store_ranks(struct store *st, const uint8_t *rank, uint8_t most);
/* Of one object; is it on disk? */
bool store_rank(struct store *st, uint32_t id, uint8_t rank);
/* Of one that may come; nothing happens when it is on disk. */
void store_rank_coming(struct store *st, uint32_t id, uint8_t rank);
/* Experts on disk of that rank, not wanted now, longest unused first. */
size_t store_oldest(struct store *st, uint8_t rank, uint32_t *ids, size_t max);
struct store_space {
    uint64_t budget;        /* bytes of objects that may lie here */
    uint64_t used, experts; /* all; experts alone */
};
void store_get_space(struct store *st, struct store_space *out);

/* ---- metadata from peers ---- */

/* In store_opts.meta: asked for what the cache lacks, before the origin; called on the thread that
 * opens or reads. `name` "": the list of all metadata (origin.txt as text); else one of its names.
 * Bytes are compared with the list, a list with its own checksum. ERR_NOTFOUND: nobody has it (the
 * origin is asked then). */
struct store_meta_peers {
    void *ctx;
    int (*get)(void *ctx, const char *name, uint64_t max, struct buf *out, struct err *e);
    /* What get gave last is no good: whoever gave it is not to be asked again. Then get is called
     * once more. May be NULL. */
    void (*bad)(void *ctx);
};
/* What a peer that works on the same address asks us for, out of the cache: n bytes at `off` of
 * the file (fewer at its end), its whole size in *total. Reads the disk; any thread. `scope` is the
 * SHA-256 of the model's address without slashes at its end: ERR_NOTFOUND when it is not ours. */
int store_meta_serve(struct store *st, const uint8_t scope[SHA256_SIZE], const char *name,
                     uint64_t off, size_t n, struct buf *out, uint64_t *total, struct err *e);
/* The scope of an address. */
void store_meta_scope(const char *address, uint8_t scope[SHA256_SIZE]);

/* How objects on disk are vouched for, for status: counts by enum basis, experts and all. */
struct store_basis {
    uint64_t objects[BASIS_MANIFEST + 1], bytes[BASIS_MANIFEST + 1];
};
void store_get_basis(struct store *st, struct store_basis *out);

#endif
