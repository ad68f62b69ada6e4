/* SPDX-License-Identifier: MIT
 * serve_int.h: what the files of serve share. A request is a `serve_job` until its last chunk is
 * under way; a chunk that is being read or sent is a `serve_piece`, which outlives its job and,
 * while its read is out, its peer. All on the loop thread but for serve.ready. */
#ifndef SHOAL_PEER_SERVE_INT_H
#define SHOAL_PEER_SERVE_INT_H

#include "peer/serve.h"

#include <pthread.h>

#define SERVE_MS_NS 1000000ull

struct serve_bucket { /* what may be sent; below zero: what is owed */
    double rate, have;
    uint64_t at;
};

/* A chunk in memory, for as many as want it. */
struct serve_block {
    struct serve_block *next; /* of those kept */
    struct serve *s;
    uint32_t refs;
    struct object_key key;
    uint32_t chunk;
    enum basis basis;
    uint8_t sha[SHA256_SIZE];
    size_t n;
    uint8_t p[];
};

/* A Get by lease some of whose chunks have not come here. */
struct serve_lease {
    struct serve_lease *next;
    uint64_t id, size, deadline;
    struct object_key key;
    uint32_t first, n, left;
    unsigned prio;
    bool digests;
    uint8_t come[]; /* bits: handed on, or about to be */
};

struct serve_job {
    struct serve_job *next;
    struct serve_block *block; /* of one chunk that is in memory, else NULL */
    bool tell;                 /* its digest goes before it */
    uint64_t id, size, deadline;
    struct object_key key;
    uint32_t at, end; /* next chunk; one past the last */
    unsigned prio;
    uint32_t source;
    bool begun;
};

struct serve_piece {
    struct storage_read rd;
    struct serve_piece *next, *prev; /* of the peer */
    struct serve_piece *ready;       /* list of finished reads */
    struct serve_block *block;       /* where its bytes are, NULL: in the storage's */
    struct serve *s;
    struct serve_peer *p; /* NULL: gone */
    uint64_t id;
    uint32_t source;
    unsigned prio;
    bool sent, cancelled;
    int code;
    size_t n;
};

struct serve_peer {
    struct serve_peer *next, *prev; /* ring of all peers */
    struct serve *s;
    struct tls_conn *c;
    struct serve_job *jobs[SERVE_PRIOS], **tail[SERVE_PRIOS];
    uint32_t n_jobs, in_pipe[SERVE_PRIOS];
    struct serve_lease *leases;
    uint32_t n_leases;
    bool takes_leases;
    void *user;
    struct serve_piece *pieces;
    struct serve_bucket limit;
    struct serve_peer_stats st;
};

struct serve {
    struct serve_opts o;
    uv_loop_t *loop;
    uv_async_t async;
    uv_timer_t timer;
    int handles;
    pthread_mutex_t mu; /* of ready */
    struct serve_piece *ready, **ready_tail;
    struct serve_peer *peers; /* one of the ring: whose turn it is */
    uint32_t n_pieces, n_lease_peers;
    struct serve_block *kept, **kept_tail; /* the latest chunks, oldest first */
    uint64_t block_bytes;                  /* of all blocks */
    uint64_t yield_until[SERVE_PRIOS];
    struct serve_bucket limit;
    struct serve_stats st;
    bool pumping, again, closing;
    void (*closed)(void *ctx);
    void *closed_ctx;
};

static inline enum tls_priority serve_tls_prio(unsigned prio)
{
    return prio == 2 ? TLS_DEMAND : prio == 1 ? TLS_PREFETCH : TLS_BACKGROUND;
}

/* serve.c: messages and requests. */
int serve_put(struct tls_conn *c, const Shoal__Frame *f, const struct tls_raw *raw,
              enum tls_priority pr);
/* With `late` chunks of it may be queued, which the refusal must not overtake. */
void serve_refuse_get(struct serve_peer *p, uint64_t id, int reason, uint32_t retry_ms,
                      unsigned prio, bool late);
bool serve_get_open(const struct serve_peer *p, uint64_t id); /* chunks of it are to start */
void serve_drop(struct serve_peer *p, uint64_t id);           /* its jobs, its lease */
void serve_job_end(struct serve_peer *p, struct serve_job *j);
/* A copy of x becomes the last of its queue. */
int serve_job_add(struct serve_peer *p, const struct serve_job *x);
int serve_send_digests(struct serve_peer *p, struct serve_job *j);
void serve_drop_pieces(struct serve_peer *p, uint64_t id); /* what is not sent yet is not sent */
void serve_close_if_idle(struct serve *s);                 /* frees it at last when it is closing */

/* serve_lease.c */
int serve_lease_add(struct serve_peer *p, const struct serve_job *x, bool digests);
bool serve_lease_open(const struct serve_peer *p, uint64_t id);
void serve_lease_drop(struct serve_peer *p, uint64_t id);
void serve_lease_drop_all(struct serve_peer *p);
void serve_block_unref(struct serve_block *b);
int serve_block_digest(struct serve_peer *p, const struct serve_job *j); /* Digests of it */
void serve_lease_close(struct serve *s);

/* serve_pump.c: chunks. */
/* `rate` in bytes/s, 0: no limit. */
void serve_bucket_set(struct serve_bucket *b, uint64_t rate, uint64_t now);
void serve_pump(struct serve *s);       /* start and send all that may be now */
void serve_take_ready(struct serve *s); /* the finished reads */
void serve_on_async(uv_async_t *a);

#endif
