/* SPDX-License-Identifier: MIT
 * evil.h: a member of a shoal that holds a valid identity and real objects, speaks the protocol
 * well enough to be asked, and misbehaves in one way, from its n-th chunk on. It is as plain as can
 * be (bare_tls.h: blocking sockets, a thread per connection), and checks nothing of what it sends.
 *
 * Threads: functions are for the thread that started it; numbers may be read at any time. */
#ifndef SHOAL_TESTS_FAULTS_EVIL_H
#define SHOAL_TESTS_FAULTS_EVIL_H

#include "peer/storage.h"

/* X(name, word, what it does once its time has come) */
#define EVIL_VICES(X)                                                                      \
    X(HONEST, "honest", "nothing wrong: proves that the others are wrong by purpose")      \
    X(KILL, "kill", "half a chunk, then the process (or the listener) is gone")            \
    X(CUT, "cut", "reads and writes no more, the connection stays")                        \
    X(SLOW, "slow", "1 KB/s")                                                              \
    X(FLIP, "flip", "one bit of each chunk is wrong")                                      \
    X(ZEROS, "zeros", "chunks of zeros")                                                   \
    X(SILENT, "silent", "claims everything, answers no Get")                               \
    X(REFUSE, "refuse", "refuses every Get, each reason in turn")                          \
    X(CLOSE, "close", "closes after a message of kind `arg`; below 0: received")           \
    X(FRAME0, "frame0", "a frame whose body has 0 bytes")                                  \
    X(FRAME1, "frame1", "a frame whose body is one byte")                                  \
    X(FRAMEMAX, "framemax", "a frame of 2^32-1 bytes, and of as many raw ones")            \
    X(OLDER, "older", "protocol version 0")                                                \
    X(NEWER, "newer", "speaks only a protocol version of the future")                      \
    X(BOTH, "both", "a future version that can speak version 1, and unknown messages")     \
    X(FEATURE, "feature", "requires a feature that nobody knows")                          \
    X(ROOT, "root", "another model root")                                                  \
    X(DIGEST, "digest", "right bytes, wrong digests")                                      \
    X(LIES, "lies", "wrong bytes with their right digests")                                \
    X(SIZE, "size", "wrong object sizes, chunks of other lengths")                         \
    X(UNASKED, "unasked", "answers to what nobody asked, for ids and chunks beyond all")   \
    X(TWICE, "twice", "every answer twice")                                                \
    X(GAPS, "gaps", "deltas with gaps, snapshots that never end")                          \
    X(HUGE, "huge", "bitmaps of the largest size, many of them")                           \
    X(PINGS, "pings", "thousands of pings between the answers")                            \
    X(HALF, "half", "half a chunk, then silence")                                          \
    X(ORDER, "order", "chunks before digests, the last first")                             \
    X(EARLY, "early", "everything before Hello")                                           \
    X(LOOP, "loop", "closes and connects again, without end")                              \
    X(ACCUSE, "accuse", "says of everything that the other's copy is bad")                 \
    X(ROSTER, "roster", "rosters of noise")                                                \
    X(NOISE, "noise", "random bytes within TLS")                                           \
    X(PLAIN, "plain", "random bytes past TLS")                                             \
    X(FILES, "files", "small files of noise, too long, not at all; the objects are right") \
    X(PULL, "pull", "takes `arg` KB a second and gives nothing")                           \
    X(CREDIT, "credit", "more credit than there can be, Gets for everything")

enum evil_vice {
#define EVIL_ENUM(n, w, t) EVIL_##n,
    EVIL_VICES(EVIL_ENUM)
#undef EVIL_ENUM
        EVIL_COUNT
};
const char *evil_word(enum evil_vice v);
bool evil_at_hello(enum evil_vice v); /* does it begin in the first words of a connection? */
enum evil_vice evil_by_word(const char *word); /* EVIL_COUNT: there is none */

/* What it holds. All of it is called from several threads at once. */
struct evil_source {
    void *ctx;
    const uint8_t *root; /* SHA256_SIZE bytes */
    const struct object_key *keys;
    size_t n;
    bool (*size)(void *ctx, struct object_key k, uint64_t *size);
    void (*read)(void *ctx, struct object_key k, uint32_t chunk, uint8_t *p, size_t n);
};

struct evil_opts {
    const char *home;                 /* of a member; not changed */
    const struct evil_source *source; /* lives longer */
    enum evil_vice vice;
    unsigned after; /* chunks given rightly before the vice begins */
    bool armed;     /* and not before evil_arm */
    int arg;        /* CLOSE: the field number of a kind in shoal.proto */
    /* Signs statements about all that it holds when somebody says hello: true ones (BADLY: with
     * wrong signatures), or false ones, which are the digests that LIES states. */
    enum { EVIL_SIGNS_NOT, EVIL_SIGNS_TRULY, EVIL_SIGNS_FALSELY, EVIL_SIGNS_BADLY } signs;
    int only; /* not 0: evil to the member that listens at this port alone */
    bool die; /* KILL ends the process by SIGKILL */
};

struct evil_stats {
    uint64_t conns; /* handshakes done */
    uint64_t gets;  /* Gets received */
    uint64_t
        chunks;     /* whole Data sent before the vice began, or with a vice that sends good ones */
    uint64_t vices; /* times that it misbehaved */
    uint64_t told;  /* BadChunk and Goodbye received */
    uint64_t pulled; /* bytes of Data received */
};

struct evil;
/* Listens on a free port of 127.0.0.1. A failure ends the process with a sentence. */
struct evil *evil_start(const struct evil_opts *o);
int evil_port(const struct evil *v);
void evil_get_stats(struct evil *v, struct evil_stats *out);
/* The vice may begin. Those that lie in the first words end every connection and dial anew. */
void evil_arm(struct evil *v);
void evil_stop(struct evil *v);

#endif
