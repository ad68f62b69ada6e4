/* SPDX-License-Identifier: MIT
 * tls_internal.h: what tls_worker.c, tls_engine.c, tls_conn.c and listen.c share; for nobody else.
 *
 * A connection has three parts. `tls_conn` proper belongs to the loop thread. `tls_shared` is the
 * two-way mailbox, under the worker's lock. `tls_engine` belongs to the worker thread. Signals:
 * worker_ready puts a connection on its worker's list (wakes it), the worker puts it on its notify
 * list and wakes the loop by uv_async. */
#ifndef SHOAL_PEER_TLS_INTERNAL_H
#define SHOAL_PEER_TLS_INTERNAL_H

#include "peer/tls_conn.h"

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/pk.h>
#include <mbedtls/ssl.h>
#include <mbedtls/version.h>
#include <mbedtls/x509_crt.h>

enum {
    TLS_RECORD = 16384,           /* most plaintext bytes of one record */
    TLS_BLOCK = 4 * (16384 + 64), /* ciphertext block: four full records */
    TLS_READ = 64 * 1024,         /* one read from a socket */
    TLS_READ_EARLY = 16 * 1024, /* the same before the handshake is done, and what may wait then */
    TLS_WIRE_MAX = 512 * 1024,  /* ciphertext waiting in either direction */
    TLS_QUANTUM = 128 * 1024,   /* plaintext each way before the next connection's turn */
    TLS_FRAMES_MAX = 1024,      /* frames decrypted and not yet delivered */
    TLS_FLUSH_MS = 2000,
    TLS_SMALL = 8192, /* bytes that are not worth a change of thread */
};

/* Ciphertext on its way between loop and worker. */
struct tls_block {
    struct tls_block *next;
    size_t off, n, cap;
    uint8_t p[];
};

struct tls_blocks {
    struct tls_block *head, *tail;
};

/* A frame to send: head and body here, raw bytes at the owner's. */
struct tls_out {
    struct tls_out *next;
    struct tls_raw raw;
    size_t head_n, sent; /* bytes of `head`; bytes of head + raw that are encrypted */
    uint8_t head[];
};

struct tls_outs {
    struct tls_out *head, *tail;
};

struct tls_frames {
    struct frame *head, *tail;
};

struct tls_shared {
    /* loop to worker */
    struct tls_blocks in;
    struct tls_outs tx[TLS_PRIORITIES];
    bool eof, close, detach; /* the socket ended; finish after tx; let go of everything */
    bool promoted;           /* a guest became a member */
    /* worker to loop */
    struct tls_blocks out;
    struct tls_frames frames;
    struct tls_outs done;
    bool open, ended, detached;
    struct tls_peer peer; /* once open */
    struct tls_close why; /* once ended */
    uint64_t plain_in, plain_out;
    /* both */
    size_t in_bytes, out_bytes; /* blocks waiting for the worker; for the kernel: their capacity */
    size_t tx_bytes, rx_bytes;  /* plaintext waiting for the worker; for delivery */
    size_t rx_frames;
    bool in_stalled;             /* the loop stopped reading: tell it when there is room */
    bool rx_stalled, tx_stalled; /* the worker stopped for lack of room: wake it when there is */
    bool in_ready, in_notify;
    bool running; /* some thread is in tls_engine_step: the engine is its alone */
};

struct tls_engine {
    mbedtls_ssl_context ssl;
    bool set_up, open, ended, eof, closing, said_close;
    struct frame_reader reader;
    struct tls_blocks in, out;
    size_t in_used, out_new; /* capacity of blocks, not yet told to the loop */
    bool rx_stalled, tx_stalled;
    struct tls_frames frames;
    size_t frames_bytes, frames_n;
    struct tls_out *cur;
    struct tls_outs done;
    size_t done_bytes;
    uint8_t *stage; /* TLS_RECORD: where the parts of a frame meet in one record */
    uint8_t first[8];
    size_t first_n;  /* first bytes received: TLS or something else? */
    uint8_t last[7]; /* last bytes received before it opened: an alert in the clear? */
    uint64_t began_ns, plain_in, plain_out;
    int trust;
    bool wrong_id;
    struct tls_peer peer;
    struct tls_close why;
};

enum tls_state { TLS_CONNECTING, TLS_RUNNING, TLS_LINGER, TLS_CLOSING };

struct tls_conn {
    /* fixed at the start */
    struct tls_pool *pool;
    struct tls_worker *worker;
    bool server, has_expect;
    uint8_t expect[WIRE_ID];
    tls_trusted_fn trusted;
    void *trusted_ctx;
    char address[80];
    uint8_t addr_key[16]; /* what counts as one address */
    bool accepted;        /* by a listener: counted in the pool's limits */

    /* loop thread */
    enum tls_state state;
    struct tls_conn_cb cb;
    void *ctx;
    uv_tcp_t *tcp;
    uv_timer_t timer;
    uv_connect_t connect;
    uv_shutdown_t shutdown;
    int pending; /* close callbacks and the worker's goodbye still to come */
    bool reading, eof, paused, opened, user_closed, shut, tx_refused, replaced, write_failed;
    bool due;        /* small sends of this round of the loop wait for tls_flush */
    int io_error;    /* libuv's, of the socket */
    size_t received; /* ciphertext before open, then what is thrown away while lingering */
    struct tls_frames deliver;
    struct tls_close why;
    bool has_why;
    struct tls_conn *prev, *next; /* of the pool */

    /* lists of the worker */
    struct tls_conn *ready_next, *notify_next;

    struct tls_shared sh; /* under worker->mu */
    struct tls_engine en; /* worker thread */
};

struct tls_worker {
    struct tls_pool *pool;
    uv_thread_t thread;
    uv_mutex_t mu;
    uv_cond_t wake;
    struct tls_conn *ready_head, *ready_tail, *notify_head, *notify_tail; /* under mu */
    bool stop;                                                            /* under mu */
    /* the worker's own */
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context rng;
    mbedtls_pk_context key;
    mbedtls_x509_crt cert;
    mbedtls_ssl_config client, server;
    unsigned load; /* loop thread: connections */
};

#define TLS_FAIL_SLOTS 64

/* Failed handshakes of an address lately. */
struct tls_failures {
    uint8_t key[16];
    unsigned n;
    uint64_t since_ns;
};

struct tls_pool {
    uv_loop_t *loop;
    uv_async_t async;
    uv_prepare_t prepare; /* before the loop waits: flushes */
    struct tls_opts o;
    unsigned n_workers, next_worker;
    struct tls_worker *workers;
    struct tls_conn *conns;
    struct tls_block *rbuf; /* where the next read of any connection goes */
    struct tls_stats st;
    struct tls_failures fails[TLS_FAIL_SLOTS];
    bool closing, in_async, due; /* due: some connection is */
    int handles;
    void (*closed)(void *ctx);
    void *closed_ctx;
};

/* ---- lists ---- */

static inline void tls_blocks_add(struct tls_blocks *l, struct tls_block *b)
{
    b->next = NULL;
    if (l->tail) {
        l->tail->next = b;
    } else {
        l->head = b;
    }
    l->tail = b;
}

/* Move all of `from` behind `to`. */
#define TLS_SPLICE(to, from)                     \
    do {                                         \
        if ((from)->head) {                      \
            if ((to)->tail) {                    \
                (to)->tail->next = (from)->head; \
            } else {                             \
                (to)->head = (from)->head;       \
            }                                    \
            (to)->tail = (from)->tail;           \
            (from)->head = (from)->tail = NULL;  \
        }                                        \
    } while (0)

struct tls_block *tls_block_new(size_t cap); /* NULL without memory */
void tls_blocks_free(struct tls_blocks *l);
void tls_frames_free(struct tls_frames *l);

/* ---- tls_engine.c, worker thread ---- */

/* Do what can be done now for one connection, at most one quantum each way. Returns true when
 * there is more to do without news from the loop. */
bool tls_engine_step(struct tls_conn *c, size_t out_room, size_t rx_room, size_t rx_frames_room);
void tls_engine_free(struct tls_engine *en);

/* ---- tls_worker.c ---- */

/* With the worker's lock held: the worker shall look at the connection; the loop shall. */
void tls_worker_ready(struct tls_conn *c);
void tls_worker_notify(struct tls_conn *c);
/* Out of the list of those whom the loop is to look at: nobody looks at it any more. */
void tls_worker_unnotify(struct tls_conn *c);
/* With the lock, on the loop thread: when the engine is idle and there is little to do, do it here
 * and now instead of waking the worker (two changes of thread cost more than a small record). Never
 * handshakes, never more than TLS_SMALL. False: not done, the worker must. After it the mailbox may
 * hold news. */
bool tls_worker_inline(struct tls_conn *c);
/* Loop thread: a connection went; the pool may be waiting for the last one. */
void tls_pool_forget(struct tls_conn *c);

/* ---- tls_conn.c, loop thread ---- */

void tls_release(struct tls_outs *l); /* sent or not: back to their owners */

void tls_conn_pump(struct tls_conn *c); /* the worker has news */
void tls_start_timer(struct tls_conn *c, unsigned ms);
/* Note the reason unless there is one, and close now. on_close comes later, from the loop. */
void tls_finish(struct tls_conn *c, enum tls_end end, int code, const char *text);
void tls_enter_closing(struct tls_conn *c);

static inline void tls_lock(struct tls_conn *c)
{
    uv_mutex_lock(&c->worker->mu);
}

static inline void tls_unlock(struct tls_conn *c)
{
    uv_mutex_unlock(&c->worker->mu);
}

/* ---- tls_io.c, loop thread ---- */

void tls_start_reading(struct tls_conn *c);
void tls_write_out(struct tls_conn *c, struct tls_blocks *l); /* takes all blocks */
/* What small sends made goes to the kernel in one call, before the loop waits: frames that answer
 * one another's neighbours, and those of a batch, cost one system call and one wake-up over there.
 */
void tls_flush(struct tls_conn *c);
void tls_write_due(struct tls_conn *c); /* its second half: gives nothing back to owners */
/* Lingering: once all is written, say so to the other side's kernel. */
void tls_maybe_shutdown(struct tls_conn *c);

/* ---- listen.c, loop thread ---- */

void tls_address_key(const struct sockaddr *a, uint8_t key[16]);
void tls_address_failed(struct tls_pool *p, const uint8_t key[16]);

#endif
