/* SPDX-License-Identifier: MIT
 * bench.c: see bench.h. Rounds, medians, and what the library does with records alone. */
#include "peer/bench_int.h"
#include "peer/tls_suite.h"

#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { HASH_PIECES = 8, HASH_PIECE = 128 * 1024 };
/* Shares of a round's time: objects take the most, since theirs is the ratio that counts. */
#define SHARE_OBJECTS 0.30
#define SHARE_SMALL 0.10

static int make_data(struct bench_data *d, struct err *e)
{
    uint32_t n = storage_chunks(PEER_BENCH_OBJECT);
    struct sha256 all;
    d->large = malloc(PEER_BENCH_OBJECT);
    d->small = malloc(PEER_BENCH_SMALL);
    d->sha = malloc((size_t)n * sizeof *d->sha);
    if (!d->large || !d->small || !d->sha) {
        return err_set(e, ERR_NOMEM, "no memory for the benchmark's objects");
    }
    uint64_t x = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < PEER_BENCH_OBJECT; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        d->large[i] = (uint8_t)(x >> 32);
    }
    sha256_init(&all);
    for (uint32_t i = 0; i < n; i++) {
        sha256(d->large + (size_t)i * STORAGE_CHUNK, storage_chunk_len(PEER_BENCH_OBJECT, i),
               d->sha[i]);
        sha256_add(&all, d->sha[i], SHA256_SIZE);
    }
    sha256_done(&all, d->large_digest);
    memcpy(d->small, d->large, PEER_BENCH_SMALL);
    sha256(d->small, PEER_BENCH_SMALL, d->small_sha);
    sha256(d->small_sha, SHA256_SIZE, d->small_digest);
    return 0;
}

/* Bytes a second of SHA-256 on this thread: the best of short pieces, since a busy machine only
 * makes pieces slower. Called between rounds, so that some piece has a processor to itself. */
static double hash_rate(const struct bench_data *d, double best)
{
    uint8_t out[SHA256_SIZE];
    for (int i = 0; i < HASH_PIECES; i++) {
        double t = clock_s();
        sha256(d->large + (size_t)i * HASH_PIECE, HASH_PIECE, out);
        t = clock_s() - t;
        double rate = t > 0 ? HASH_PIECE / t : 0;
        best = rate > best ? rate : best;
    }
    return best;
}

/* Of all threads so far. */
static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, unsigned n)
{
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct run {
    const struct peer_bench_opts *o;
    struct bench_bare *bare;
    struct bench_mesh *mesh;
    double round_s;
    unsigned rounds;
};

enum { OBJECTS, CPU, ONE, BATCH, KINDS };
typedef double samples[KINDS][2][PEER_BENCH_ROUNDS + 1]; /* by side: 0 bare, 1 mesh */

static int one_side(struct run *r, int side, double v[KINDS], struct err *e)
{
    struct bench_count c;
    double cpu = cpu_s();
    int x = side ? bench_mesh_objects(r->mesh, r->round_s * SHARE_OBJECTS, &c, e)
                 : bench_bare_objects(r->bare, r->round_s * SHARE_OBJECTS, &c, e);
    if (x) {
        return x;
    }
    v[OBJECTS] = c.n * PEER_BENCH_OBJECT / c.seconds;
    v[CPU] = (cpu_s() - cpu) / (c.n * PEER_BENCH_OBJECT);
    return 0;
}

static int one_small(struct run *r, int side, double v[KINDS], struct err *e)
{
    static const struct {
        int kind;
        unsigned batch;
    } what[] = {{ONE, 1}, {BATCH, PEER_BENCH_BATCH}};
    for (int i = 0; i < 2; i++) {
        struct bench_count c;
        double s = r->round_s * SHARE_SMALL;
        int x = side ? bench_mesh_small(r->mesh, what[i].batch, s, &c, e)
                     : bench_bare_small(r->bare, what[i].batch, s, &c, e);
        if (x) {
            return x;
        }
        v[what[i].kind] = c.n / c.seconds;
    }
    return 0;
}

static int rounds(struct run *r, const struct bench_data *d, samples v, double *hash_s,
                  struct err *e)
{
    for (unsigned i = 0; i <= r->rounds; i++) {
        *hash_s = hash_rate(d, *hash_s);
        for (unsigned k = 0; k < 4; k++) {
            int side = (i + k) % 2;
            double got[KINDS] = {0};
            if (r->o->stop && r->o->stop(r->o->ctx)) {
                return err_set(e, ERR_CANCELLED, "the benchmark was ended");
            }
            int x = k < 2 ? one_side(r, side, got, e) : one_small(r, side, got, e);
            if (x) {
                return x;
            }
            for (int j = k < 2 ? OBJECTS : ONE; j <= (k < 2 ? CPU : BATCH); j++) {
                v[j][side][i] = got[j];
            }
        }
    }
    return 0;
}

/* The first sample of each warmed up. */
static void summary(samples v, unsigned n, struct peer_bench *out)
{
    double *const to[KINDS][3] = {
        {&out->bare.bytes_s, &out->mesh.bytes_s, &out->ratio.bytes_s},
        {&out->bare.cpu_s_byte, &out->mesh.cpu_s_byte, &out->ratio.cpu_s_byte},
        {&out->bare.one_s, &out->mesh.one_s, &out->ratio.one_s},
        {&out->bare.batch_s, &out->mesh.batch_s, &out->ratio.batch_s},
    };
    for (int k = 0; k < KINDS; k++) {
        double q[PEER_BENCH_ROUNDS];
        for (unsigned i = 0; i < n; i++) {
            q[i] = v[k][1][i + 1] / v[k][0][i + 1];
        }
        *to[k][2] = median(q, n);
        if (k == OBJECTS) { /* sorted by median() */
            out->ratio_min = q[0];
            out->ratio_max = q[n - 1];
        }
        *to[k][0] = median(&v[k][0][1], n);
        *to[k][1] = median(&v[k][1][1], n);
    }
    out->rounds = n;
}

static int measure(const struct peer_bench_opts *o, const struct bench_data *d, struct run *r,
                   struct peer_bench *out, struct err *e)
{
    samples v;
    int x = bench_bare_open(d, &r->bare, e);
    x = x ? x : bench_mesh_open(o->dir, o->software, d, &r->mesh, e);
    if (x) {
        return x;
    }
    bench_mesh_tls(r->mesh, out->version, out->suite, &out->mesh_threads);
    out->bare_threads = 2;
    if (strcmp(out->suite, bench_bare_suite(r->bare)) != 0 ||
        strcmp(out->version, bench_bare_version(r->bare)) != 0) {
        return err_set(e, ERR_UNSUPPORTED, "the two sides agreed on different suites: %s and %s",
                       out->suite, bench_bare_suite(r->bare));
    }
    const struct tls_speed *s = tls_suite_speed();
    out->seal_bytes_s = strstr(out->suite, "CHACHA") ? s->chacha20 : s->aes_gcm;
    x = rounds(r, d, v, &out->hash_bytes_s, e);
    if (x) {
        return x;
    }
    summary(v, r->rounds, out);
    double open_hash = 1 / out->seal_bytes_s + 1 / out->hash_bytes_s;
    out->bound_bytes_s = 1 / open_hash;
    out->crypto_share = (open_hash + 1 / out->seal_bytes_s) / out->bare.cpu_s_byte;
    return 0;
}

int peer_bench(const struct peer_bench_opts *o, struct peer_bench *out, struct err *e)
{
    struct bench_data d = {0};
    struct run r = {.o = o, .rounds = PEER_BENCH_ROUNDS};
    if (o->rounds && o->rounds < PEER_BENCH_ROUNDS) {
        r.rounds = o->rounds;
    }
    r.round_s = o->seconds / (r.rounds + 1);
    memset(out, 0, sizeof *out);
    int x = make_data(&d, e);
    x = x ? x : measure(o, &d, &r, out, e);
    bench_mesh_close(r.mesh);
    bench_bare_close(r.bare);
    free(d.large);
    free(d.small);
    free(d.sha);
    return x;
}
