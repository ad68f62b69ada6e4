/* SPDX-License-Identifier: MIT
 * bench_int.h: what bench.c, bench_bare.c and bench_mesh.c share. */
#ifndef SHOAL_PEER_BENCH_INT_H
#define SHOAL_PEER_BENCH_INT_H

#include "peer/bench.h"
#include "peer/crypto.h"
#include "peer/storage.h"

enum { BENCH_AHEAD = 2, BENCH_RECORD = 16384 };

/* The bytes of all large objects and of all small ones, with their digests. */
struct bench_data {
    uint8_t *large, *small; /* owned */
    uint8_t (*sha)[SHA256_SIZE];
    uint8_t small_sha[SHA256_SIZE];
    uint8_t large_digest[SHA256_SIZE], small_digest[SHA256_SIZE];
};

struct bench_count {
    double n, seconds; /* objects that arrived, and the time from the first request to the last */
};

/* Every function moves whole objects for about `seconds` and fails with the sentence in *e. */
struct bench_bare;
int bench_bare_open(const struct bench_data *d, struct bench_bare **out, struct err *e);
const char *bench_bare_suite(const struct bench_bare *b);
const char *bench_bare_version(const struct bench_bare *b);
int bench_bare_objects(struct bench_bare *b, double seconds, struct bench_count *c, struct err *e);
/* `batch` at a time. */
int bench_bare_small(struct bench_bare *b, unsigned batch, double seconds, struct bench_count *c,
                     struct err *e);
void bench_bare_close(struct bench_bare *b);

struct bench_mesh;
int bench_mesh_open(const char *dir, const char *software, const struct bench_data *d,
                    struct bench_mesh **out, struct err *e);
/* Of its connection; threads: loops and TLS workers of both ends. */
void bench_mesh_tls(struct bench_mesh *b, char version[16], char suite[64], unsigned *threads);
int bench_mesh_objects(struct bench_mesh *b, double seconds, struct bench_count *c, struct err *e);
int bench_mesh_small(struct bench_mesh *b, unsigned batch, double seconds, struct bench_count *c,
                     struct err *e);
void bench_mesh_close(struct bench_mesh *b);

#endif
