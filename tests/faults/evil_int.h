/* SPDX-License-Identifier: MIT
 * evil_int.h: between evil.c (life, the honest half of the protocol) and evil_vice.c. */
#ifndef SHOAL_TESTS_FAULTS_EVIL_INT_H
#define SHOAL_TESTS_FAULTS_EVIL_INT_H

#include "tests/faults/evil.h"
#include "tests/peer/bare_tls.h"

#include "peer/codec.h"
#include "peer/member.h"

#include <pthread.h>
#include <stdatomic.h>

struct evil_conn {
    struct evil_conn *next;
    struct evil *ev;
    pthread_t thread;
    int fd;
    bool server;
    struct bare *tls;
    bool dead; /* the socket is of no use any more */
    _Atomic(bool) over;
    bool up;      /* the other side has said hello */
    int port;     /* where that one listens */
    uint64_t seq; /* of deltas */
    unsigned turn;
    uint64_t began, pull_id, pull_bytes; /* PULL */
};

struct evil {
    struct evil_opts o;
    struct identity me;
    struct member member;
    struct kit_id id;
    int listen, port;
    pthread_t thread;
    pthread_mutex_t mu;
    struct evil_conn *conns;
    _Atomic(bool) stop, deaf, looping, armed; /* deaf: CUT or KILL has begun */
    _Atomic(int) peer_port;                   /* of the last that said hello */
    _Atomic(uint64_t) n_conns, gets, chunks, vices, told, pulled;
};

/* ---- evil.c ---- */
bool evil_time(const struct evil *v); /* has the time of the vice come? */
bool evil_late(struct evil *v);       /* the same, and counts an act */
void evil_wait_ms(struct evil *v, unsigned ms);
/* Write bytes of the stream as they are; a failure marks the connection as dead. */
void evil_write(struct evil_conn *c, const void *p, size_t n);
void evil_head(struct evil_conn *c, uint32_t body_n, uint32_t raw_n);
/* Packed without any check. */
void evil_send(struct evil_conn *c, const Shoal__Frame *f, const void *raw, size_t raw_n);
void evil_hello(struct evil_conn *c, uint32_t version, uint32_t version_min);
void evil_have(struct evil_conn *c, uint64_t seq, bool last);
void evil_roster(struct evil_conn *c);
/* SHA-256s of all chunks (malloc'ed) of an object, as the bytes of evil_bytes are. */
uint8_t *evil_digests(struct evil_conn *c, struct object_key k, uint64_t size, bool lie,
                      uint8_t object[SHA256_SIZE]);
uint8_t *evil_bytes(struct evil_conn *c, struct object_key k, uint32_t chunk,
                    size_t n); /* malloc */
void evil_send_digests(struct evil_conn *c, const Shoal__Get *g, bool lie);
void evil_send_data(struct evil_conn *c, const Shoal__Get *g, uint32_t chunk, bool last);
void evil_dial(struct evil *v, int port);

/* ---- evil_say.c ---- */
void evil_data(struct evil_conn *c, uint64_t id, uint32_t chunk, bool last, const void *p,
               size_t n);
void evil_refuse(struct evil_conn *c, uint64_t id, unsigned reason, uint32_t retry_ms);
/* Digests, all zero, of n chunks. */
void evil_state(struct evil_conn *c, uint64_t id, uint64_t size, uint32_t first, uint32_t n);
/* A message of any kind: `message` is what the frame's union holds. */
void evil_small(struct evil_conn *c, Shoal__Frame__KindCase kind, void *message);
/* A well-formed message of any kind; for a Get that is open, its real answer. */
void evil_any_kind(struct evil_conn *c, int kind, const Shoal__Get *g);

/* Statements about all that it holds. */
void evil_sign(struct evil_conn *c);

/* ---- evil_vice.c ---- */

/* A Get whose chunks are inside an object: answer it, well or badly. */
void evil_answer(struct evil_conn *c, const Shoal__Get *g, uint64_t size);
/* Anything that came, before it is looked at; may close. */
void evil_saw(struct evil_conn *c, const Shoal__Frame *f);
/* In place of the first Hello: true when it was sent. */
bool evil_greet(struct evil_conn *c);
/* FILES: answer a question for a small file. */
void evil_file(struct evil_conn *c, const Shoal__FileGet *g);
/* PULL: ask for as much as its rate allows. */
void evil_pull(struct evil_conn *c);
/* A moment without anything to read. */
void evil_idle(struct evil_conn *c);

#endif
