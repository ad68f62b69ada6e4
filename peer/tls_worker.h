/* SPDX-License-Identifier: MIT
 * tls_worker.h: the pool of TLS worker threads of one node and what all its connections share.
 *
 * Socket I/O stays on the loop thread; handshakes, records and the SHA-256 of received raw bytes
 * are done by the workers, each with its own configuration, random generator, key and certificate
 * (no lock of the library is shared between them). A connection belongs to one worker.
 *
 * TLS 1.2 or newer (1.3 where the library is 3.6), ECDHE-ECDSA on P-256 with AES-GCM or
 * ChaCha20-Poly1305 only, both sides show a certificate. Who the other side is decides the SHA-256
 * of its public key alone: names, dates, issuers and signatures of certificates are not looked at.
 *
 * Threads: every function is called on the loop thread; `trusted` is called on worker threads. */
#ifndef SHOAL_PEER_TLS_WORKER_H
#define SHOAL_PEER_TLS_WORKER_H

#include "peer/tls_suite.h"
#include "proto/base/err.h"
#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* What `trusted` says about a key. */
enum tls_trust {
    TLS_REMOVED = -1, /* was a member: refused, and the peer is told so (alert 44) */
    TLS_STRANGER = 0, /* refused, the peer is told that it is not known (alert 48) */
    TLS_MEMBER = 1,
    TLS_GUEST =
        2, /* no member, but may speak: bodies up to WIRE_BODY_GUEST, no raw bytes (joining) */
};

/* Returns an enum tls_trust for the SHA-256 of a DER SubjectPublicKeyInfo. Any worker thread, at
 * the same time: it must not block for long, and what it reads must be safe to read. */
typedef int (*tls_trusted_fn)(void *ctx, const uint8_t spki_sha256[WIRE_ID]);

/* 0 in a number means the default that is written beside it. */
struct tls_opts {
    const void *key; /* P-256 private key: DER, or PEM with its NUL counted in key_n */
    size_t key_n;
    const void *cert; /* DER */
    size_t cert_n;
    tls_trusted_fn trusted;
    void *trusted_ctx;

    unsigned workers;        /* 2; at most TLS_WORKERS_MAX */
    unsigned connect_ms;     /* 5000: until TCP is connected */
    unsigned handshake_ms;   /* 10000: from then until TLS is done, however the bytes trickle */
    unsigned linger_ms;      /* 1000: until the other side has taken our last bytes */
    size_t handshake_bytes;  /* 64 KiB received before TLS is done */
    unsigned max_conns;      /* 256, in any state */
    unsigned max_handshakes; /* 64 accepted ones before TLS is done */
    unsigned max_handshakes_per_address; /* 8 (an IPv6 /64 counts as one address) */
    unsigned max_failures_per_address;   /* 32 failed handshakes in 10 s, then it is not answered */
    size_t send_max;        /* 8 MiB of frames waiting to be encrypted, per connection */
    size_t receive_max;     /* 4 MiB of frames decrypted and not yet delivered */
    uint64_t replace_bytes; /* 128e9 both ways, then on_replace */
    enum tls_family prefer; /* measured */
    bool only_tls12;        /* never 1.3 (tests) */
};

#define TLS_WORKERS_MAX 16

struct tls_stats {
    uint64_t accepted, connected; /* connections begun */
    uint64_t opened;              /* TLS done on this side */
    uint64_t failed;              /* accepted ones that never opened */
    uint64_t strangers;           /* of these: a key that is no member's, or none */
    uint64_t not_tls;             /* of these: something that is not TLS (HTTP, a port scan) */
    uint64_t over_limit;          /* closed at accept: too many, from one address or in all */
    unsigned conns, handshakes;   /* now */
    unsigned workers;
};

struct tls_pool;

/* Starts the workers, and ignores SIGPIPE where nobody handles it. Everything in *o is copied.
 * ERR_ARG when key and certificate cannot be read or do not belong together. */
int tls_pool_open(uv_loop_t *loop, const struct tls_opts *o, struct tls_pool **out, struct err *e);
/* Closes every connection at once (each gets its on_close), then the workers; `closed` (may be
 * NULL) is the last call, the pool is gone then. Listeners must be closed before. */
void tls_pool_close(struct tls_pool *p, void (*closed)(void *ctx), void *ctx);
void tls_pool_stats(const struct tls_pool *p, struct tls_stats *out);
/* Is somebody at the host of `a` (its port does not matter) shaking hands with a listener of ours?
 * Of a routed IPv6 address it is not known: false. */
bool tls_pool_shaking(const struct tls_pool *p, const struct sockaddr *a);

#endif
