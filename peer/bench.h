/* SPDX-License-Identifier: MIT
 * bench.h: how fast two meshes of this machine move objects over loopback, beside the plainest
 * program that the same TLS library and cipher suite allow: one blocking client thread, one
 * blocking server thread, which hashes what it receives in the same way (SHA-256 of each chunk of
 * STORAGE_CHUNK bytes, record by record, and the object's digest over these).
 *
 * Four things are measured on each side, in turn, in several rounds of one run:
 *   objects   PEER_BENCH_OBJECT bytes each, two asked for at a time: bytes a second
 *   the processor time of all threads of both ends that it took, in seconds per byte
 *   one       objects of PEER_BENCH_SMALL bytes, one after the other, from a thread that waits for
 *             each as a caller of the mesh does: gets a second
 *   batch     the same, PEER_BENCH_BATCH asked for at once and waited for together
 * Who begins alternates. A ratio is the median of the quotients of single rounds, so that a busy
 * time of the machine, which hits both sides of a round, counts little. */
#ifndef SHOAL_PEER_BENCH_H
#define SHOAL_PEER_BENCH_H

#include "proto/base/err.h"

#include <stdint.h>

#define PEER_BENCH_OBJECT 17547264u /* an expert of Kimi K3 */
#define PEER_BENCH_SMALL 4096u
#define PEER_BENCH_BATCH 16
#define PEER_BENCH_ROUNDS 9 /* counted ones unless said, and at most; one more warms up */
#define PEER_BENCH_GOAL 0.9 /* ratio of the throughput of objects */

struct peer_bench_opts {
    const char *dir; /* an empty folder for the homes of two nodes; the caller's to remove */
    double seconds;  /* about how long in all; at least one object a round is moved */
    unsigned rounds; /* 0: PEER_BENCH_ROUNDS */
    const char *software;
    /* Between two measurements: stop? ERR_CANCELLED then. May be NULL. */
    int (*stop)(void *ctx);
    void *ctx;
};

/* Medians over the rounds. */
struct peer_bench_side {
    double bytes_s, cpu_s_byte, one_s, batch_s;
};

struct peer_bench {
    char version[16], suite[64]; /* of TLS, the same on both sides */
    unsigned rounds, mesh_threads, bare_threads;
    struct peer_bench_side bare, mesh, ratio; /* ratio: mesh / bare, round by round */
    double ratio_min, ratio_max;              /* of bytes_s */
    /* What one thread does with records of 16 KiB: sealing them with this suite, hashing them. */
    double seal_bytes_s, hash_bytes_s;
    double bound_bytes_s; /* one connection at most: its receiver opens and hashes every byte */
    double crypto_share;  /* of the bare side's processor time */
};

/* ERR_DIGEST when a byte arrived wrong. */
int peer_bench(const struct peer_bench_opts *o, struct peer_bench *out, struct err *e);

#endif
