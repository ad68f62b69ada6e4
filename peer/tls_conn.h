/* SPDX-License-Identifier: MIT
 * tls_conn.h: one mutually authenticated connection that carries frames (frame.h).
 *
 * Life: made by tls_conn_connect, tls_conn_attach or a listener (listen.h); on_open when this
 * side's handshake is done; frames both ways; on_close exactly once and last, also when it never
 * opened or was closed by its owner. The connection is freed when on_close returns; until then, and
 * in on_close itself, the pointer is valid.
 *
 * In TLS 1.3 a client's handshake is done before the server has looked at the client's key: a peer
 * counts as connected only after its first frame came. No byte of a frame leaves before this side
 * has accepted the other's key.
 *
 * Threads: everything on the loop thread, callbacks too. A callback may call anything here. */
#ifndef SHOAL_PEER_TLS_CONN_H
#define SHOAL_PEER_TLS_CONN_H

#include "peer/frame.h"
#include "peer/tls_worker.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct tls_conn;

/* Of the other side, when the handshake is done. */
struct tls_peer {
    uint8_t id[WIRE_ID];  /* SHA-256 of its public key (DER SubjectPublicKeyInfo) */
    uint8_t key[65];      /* the key: an uncompressed point of P-256 */
    enum tls_trust trust; /* TLS_MEMBER or TLS_GUEST */
    char version[16];     /* "TLSv1.2" */
    char suite[64];
    unsigned handshake_ms;
};

/* Why a connection ended. X(name, short text for counters) */
#define TLS_ENDS(X)                                                  \
    X(TLS_END_LOCAL, "closed here")                                  \
    X(TLS_END_PEER, "closed by the peer")                            \
    X(TLS_END_LOST, "connection lost")                               \
    X(TLS_END_CONNECT, "not reached")                                \
    X(TLS_END_TIMEOUT, "handshake took too long")                    \
    X(TLS_END_STRANGER, "the peer is not a member")                  \
    X(TLS_END_REMOVED, "the peer was removed")                       \
    X(TLS_END_NO_CERT, "the peer showed no key")                     \
    X(TLS_END_OTHER_ID, "another node than expected")                \
    X(TLS_END_REFUSED, "refused by the peer")                        \
    X(TLS_END_NOT_TLS, "the peer does not speak TLS")                \
    X(TLS_END_NO_COMMON, "no TLS version or cipher suite in common") \
    X(TLS_END_PROTOCOL, "the peer broke the protocol")               \
    X(TLS_END_LIMIT, "over a limit")                                 \
    X(TLS_END_INTERNAL, "failed on this side")

enum tls_end {
#define TLS_END_ENUM(n, t) n,
    TLS_ENDS(TLS_END_ENUM)
#undef TLS_END_ENUM
};

struct tls_close {
    enum tls_end end;
    struct err err; /* a sentence for people; code ERR_OK for TLS_END_LOCAL and TLS_END_PEER */
    int alert;      /* TLS alert number with TLS_END_REFUSED, else -1 */
    bool opened;    /* on_open was called */
    bool has_id;    /* `id` is the key the other side showed, refused or not */
    uint8_t id[WIRE_ID];
    uint64_t in, out; /* plaintext bytes */
};

struct tls_conn_cb {
    void (*on_open)(void *ctx, struct tls_conn *c, const struct tls_peer *p);
    /* The frame is the callee's, to free with frame_free. `raw_sha256` is already computed. */
    void (*on_frame)(void *ctx, struct tls_conn *c, struct frame *f);
    /* May be NULL. After tls_conn_send returned ERR_BUSY: half of send_max is free again. */
    void (*on_drain)(void *ctx, struct tls_conn *c);
    /* May be NULL. Once, after tls_opts.replace_bytes: open another and close this one. */
    void (*on_replace)(void *ctx, struct tls_conn *c);
    void (*on_close)(void *ctx, struct tls_conn *c, const struct tls_close *why);
};

/* Of one connection; NULL is all defaults. Copied. */
struct tls_conn_opts {
    const uint8_t *expect;  /* WIRE_ID bytes: any other key ends it (TLS_END_OTHER_ID), or NULL */
    tls_trusted_fn trusted; /* instead of the pool's, or NULL */
    void *trusted_ctx;
};

/* Connect to `addr` (with scope id for link-local IPv6) and start TLS as client. Failures later
 * than the call come by on_close. ERR_LIMIT when the pool is full. */
int tls_conn_connect(struct tls_pool *p, const struct sockaddr *addr, const struct tls_conn_opts *o,
                     const struct tls_conn_cb *cb, void *ctx, struct tls_conn **out, struct err *e);
/* The same with a socket that is connected: `tcp` is malloc'ed, initialised on the pool's loop, its
 * `data` unused. It becomes the connection's; on failure it stays the caller's. */
int tls_conn_attach(struct tls_pool *p, uv_tcp_t *tcp, bool server, const struct tls_conn_opts *o,
                    const struct tls_conn_cb *cb, void *ctx, struct tls_conn **out, struct err *e);

/* Which frame goes first when several wait: the lowest number, in order within one. A frame that
 * has begun is finished first, and up to 512 KiB are already encrypted. */
enum tls_priority { TLS_CONTROL, TLS_DEMAND, TLS_PREFETCH, TLS_BACKGROUND, TLS_PRIORITIES };

/* Raw bytes of a frame: not copied, kept unchanged by the owner until `release`, which is called
 * once on the loop thread, sent or not, before on_close at the latest. */
struct tls_raw {
    const uint8_t *p;
    size_t n;
    void (*release)(void *ctx, const uint8_t *p); /* may be NULL */
    void *ctx;
};

/* Queue a frame; the body is copied, `raw` may be NULL. ERR_BUSY when send_max would be passed
 * (wait for on_drain; control frames may go a quarter over it), ERR_CANCELLED when the connection
 * is not open or closing, ERR_LIMIT for lengths that frames cannot have, ERR_NOMEM. On failure
 * `raw` stays the caller's and `release` is not called. */
int tls_conn_send(struct tls_conn *c, const void *body, size_t body_n, const struct tls_raw *raw,
                  enum tls_priority pr);
/* Bytes of frames that wait here: to be encrypted, and encrypted but not taken by the kernel. */
size_t tls_conn_queued(struct tls_conn *c);
/* A guest has proved to be a member (it brought a newer roster, it joined): frames of full size
 * from the next one on. Tell it only after this call. */
void tls_conn_promote(struct tls_conn *c);
/* Stop and go on delivering frames. While paused no more than receive_max and 1 MiB pile up here,
 * then the sender stalls. A peer's end is noticed after resume. */
void tls_conn_pause(struct tls_conn *c);
void tls_conn_resume(struct tls_conn *c);
/* Send what is queued (2 s at most), say goodbye to TLS, close. No more frames are delivered. */
void tls_conn_close(struct tls_conn *c);
/* Close at once, what is queued is lost. */
void tls_conn_abort(struct tls_conn *c);

/* Other callbacks (NULL: the same) and another ctx from now on; also from within a callback. */
void tls_conn_set_owner(struct tls_conn *c, const struct tls_conn_cb *cb, void *ctx);
void *tls_conn_ctx(const struct tls_conn *c);
bool tls_conn_is_server(const struct tls_conn *c);
/* "192.0.2.7:4711" or "[fe80::1%en0]:4711": the other side. Valid as long as the connection. */
const char *tls_conn_address(const struct tls_conn *c);
/* Plaintext bytes so far. */
void tls_conn_bytes(struct tls_conn *c, uint64_t *in, uint64_t *out);

const char *tls_end_text(enum tls_end end);
/* What a TLS alert of the other side means to a person, e.g. for 48 "the peer does not know us:
 * join first". Static memory. */
const char *tls_alert_text(int alert);

#endif
