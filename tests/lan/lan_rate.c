/* SPDX-License-Identifier: MIT
 * lan_rate.c: what a mesh carries over a wire, against bare TLS over the same wire in the same run.
 *   lan_rate homes DIR N                    DIR/1 .. DIR/N become nodes of one shoal
 *   lan_rate serve HOME PORT                a mesh that has every object on PORT, bare TLS on PORT
 * + 1; "ready" on standard output, until it is ended lan_rate fetch HOME ROUNDS HOST:PORT... one
 * object per peer and round from the first peer, then from all together, each time bare and by the
 * mesh in turn fetch prints "PEERS bare B mesh M ratio R" for one peer and for all: medians of the
 * rounds in MB/s (the first round is not counted). Objects have K3's 17,547,264 bytes in chunks of
 * 1 MiB; both sides take the SHA-256 of every chunk and compare it. */
#include "tests/peer/bare_tls.h"

#include "peer/home.h"
#include "peer/member.h"
#include "peer/mesh.h"
#include "proto/base/clock.h"
#include "proto/base/num.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define OBJECT 17547264u
#define OBJECTS 4096u
enum { PEERS_MAX = 4, ROUNDS_MAX = 50, CHUNKS = (OBJECT + STORAGE_CHUNK - 1) / STORAGE_CHUNK };

static uint8_t *object; /* the bytes of every object */
static uint8_t sums[CHUNKS][SHA256_SIZE], digest[SHA256_SIZE];

static void check(bool good, const char *what, const struct err *e)
{
    if (!good) {
        fprintf(stderr, "lan_rate: %s%s%s\n", what, e && e->msg[0] ? ": " : "", e ? e->msg : "");
        exit(1);
    }
}

static long number(const char *s, long max)
{
    char *end;
    long v = strtol(s, &end, 10);
    check(end != s && !*end && v > 0 && v <= max, s, NULL);
    return v;
}

static void make_object(void)
{
    struct sha256 all;
    object = malloc(OBJECT);
    check(object != NULL, "no memory", NULL);
    for (size_t i = 0; i < OBJECT; i++) {
        object[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    sha256_init(&all);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        sha256(object + (size_t)i * STORAGE_CHUNK, storage_chunk_len(OBJECT, i), sums[i]);
        sha256_add(&all, sums[i], SHA256_SIZE);
    }
    sha256_done(&all, digest);
}

/* ---- the store of a mesh: all objects or none ---- */

static bool st_size(void *ctx, struct object_key k, uint64_t *size)
{
    *size = OBJECT;
    return k.kind == 1 && k.layer == 0 && k.index < OBJECTS;
}

static bool st_have(void *ctx, struct object_key k)
{
    return *(const bool *)ctx && k.kind == 1 && k.layer == 0 && k.index < OBJECTS;
}

static bool st_digests(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                       uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t out[SHA256_SIZE])
{
    if (!st_have(ctx, k) || first > CHUNKS || n > CHUNKS - first) {
        return false;
    }
    memcpy(sha, sums[first], (size_t)n * SHA256_SIZE);
    *b = BASIS_ORIGIN;
    if (out) {
        memcpy(out, digest, SHA256_SIZE);
    }
    return true;
}

static void st_read(void *ctx, struct storage_read *r)
{
    if (!st_have(ctx, r->key) || r->chunk >= CHUNKS) {
        r->done(r, ERR_NOTFOUND);
        return;
    }
    r->p = object + (size_t)r->chunk * STORAGE_CHUNK;
    r->n = storage_chunk_len(OBJECT, r->chunk);
    r->done(r, 0);
}

static void st_release(void *ctx, struct storage_read *r)
{
}

struct storage_put {
    uint64_t got;
    bool bad;
};

static int st_begin(void *ctx, struct object_key k, uint64_t size, struct storage_put **put,
                    struct err *e)
{
    *put = calloc(1, sizeof **put);
    return *put ? 0 : err_set(e, ERR_NOMEM, "no memory");
}

static int st_chunk(void *ctx, struct storage_put *put, uint32_t chunk, const uint8_t *p, size_t n,
                    const uint8_t sha[SHA256_SIZE], struct err *e)
{
    put->bad |= chunk >= CHUNKS || memcmp(sha, sums[chunk], SHA256_SIZE) != 0;
    put->got += n;
    return 0;
}

static int st_end(void *ctx, struct storage_put *put, int code, enum basis b,
                  const uint8_t sum[SHA256_SIZE], struct err *e)
{
    bool good = code || (!put->bad && put->got >= OBJECT && !memcmp(sum, digest, SHA256_SIZE));
    free(put);
    return good ? 0 : err_set(e, ERR_DIGEST, "wrong bytes");
}

static const struct storage_ops storage = {st_size,    st_have,  st_digests, st_read,
                                           st_release, st_begin, st_chunk,   st_end,
                                           NULL,       NULL,     NULL};

static void say(void *ctx, const char *line)
{
    fprintf(stderr, "%s\n", line);
}

static struct mesh *open_mesh(const char *home, int port, bool *all, const char *const *peers,
                              size_t n)
{
    static const struct mesh_extent extent = {1, 0, OBJECTS};
    struct mesh_opts o = {0};
    struct mesh *m;
    struct err e = {0};
    o.home = home;
    o.software = "lan_rate";
    o.has_model = true;
    memset(o.model_root, 7, sizeof o.model_root);
    o.numerics_version = 1;
    o.storage = &storage;
    o.storage_ctx = all;
    o.extents = &extent;
    o.n_extents = 1;
    o.listen_host = "0.0.0.0";
    o.listen_port = port;
    o.static_peers = peers;
    o.n_static = n;
    o.no_bonjour = true;
    o.log = say;
    check(mesh_open(&o, &m, &e) == 0, "mesh_open", &e);
    struct object_key *keys = malloc(OBJECTS * sizeof *keys);
    check(keys != NULL, "no memory", NULL);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        keys[i] = (struct object_key){1, 0, i};
    }
    check(mesh_have_changed(m, keys, *all ? OBJECTS : 0, NULL, 0) == 0, "mesh_have_changed", NULL);
    free(keys);
    return m;
}

/* ---- homes ---- */

static int make_homes(const char *dir, long n)
{
    struct identity *me = calloc((size_t)n, sizeof *me);
    struct member *m = calloc((size_t)n, sizeof *m);
    struct err e = {0};
    int lock;
    check(me && m, "no memory", NULL);
    for (long i = 0; i < n; i++) {
        char home[1000];
        snprintf(home, sizeof home, "%s/%ld", dir, i + 1);
        check(identity_open(home, NULL, &me[i], &e) == 0, home, &e);
        check(member_open(home, &me[i], &m[i], &e) == 0, home, &e);
        uint64_t now = (uint64_t)time(NULL);
        check(i ? member_add(&m[0], crypto_key_public(me[i].key), now, &e) == 0
                : member_init(&m[0], now, &e) == 0,
              home, &e);
    }
    for (long i = 1; i < n; i++) {
        check(home_lock(m[i].home, &lock, &e) == 0 &&
                  member_adopt(&m[i], &m[0].group, m[0].blob.p, m[0].blob.n, &e) == 0,
              "adopt", &e);
        home_unlock(lock);
    }
    for (long i = 0; i < n; i++) {
        member_close(&m[i]);
        identity_close(&me[i]);
    }
    free(me);
    free(m);
    return 0;
}

/* ---- bare TLS: a request is one byte, the answer the chunks of one object ---- */

static struct kit_id bare_id;

static void *bare_serve_one(void *arg)
{
    struct bare *b = bare_new(*(int *)arg, true, &bare_id, TLS_FASTEST);
    uint8_t ask, head[WIRE_HEAD];
    free(arg);
    if (bare_handshake(b) == 0) {
        while (bare_read(b, &ask, 1) == 0) {
            int r = 0;
            for (uint32_t i = 0; i < CHUNKS && !r; i++) {
                size_t n = storage_chunk_len(OBJECT, i);
                frame_head(head, 1, n);
                r = bare_write(b, head, sizeof head);
                r = r ? r : bare_write(b, object + (size_t)i * STORAGE_CHUNK, n);
            }
            if (r) {
                break;
            }
        }
    }
    bare_free(b, false);
    return NULL;
}

static void *bare_server(void *arg)
{
    int fd = *(int *)arg;
    for (;;) {
        pthread_t t;
        int *c = malloc(sizeof *c);
        check(c != NULL, "no memory", NULL);
        *c = accept(fd, NULL, NULL);
        check(*c >= 0, "bare accept", NULL);
        check(pthread_create(&t, NULL, bare_serve_one, c) == 0, "thread", NULL);
        pthread_detach(t);
    }
    return NULL;
}

static int serve(const char *home, int port)
{
    static bool all = true;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(port + 1))};
    pthread_t t;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 8), "listen", NULL);
    kit_id_make(&bare_id);
    open_mesh(home, port, &all, NULL, 0);
    check(pthread_create(&t, NULL, bare_server, &fd) == 0, "thread", NULL);
    puts("ready");
    fflush(stdout);
    pthread_join(t, NULL);
    return 0;
}

struct bare_client {
    struct bare *b;
    pthread_t thread;
    bool good;
};

static void bare_open(struct bare_client *c, const char *peer)
{
    char host[64];
    const char *colon = strrchr(peer, ':');
    struct sockaddr_in a = {.sin_family = AF_INET};
    struct timeval tv = {.tv_sec = 120};
    check(colon && (size_t)(colon - peer) < sizeof host, peer, NULL);
    snprintf(host, sizeof host, "%.*s", (int)(colon - peer), peer);
    a.sin_port = htons((uint16_t)(number(colon + 1, 65534) + 1));
    check(inet_pton(AF_INET, host, &a.sin_addr) == 1, peer, NULL);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof a), "bare connect", NULL);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    c->b = bare_new(fd, false, &bare_id, TLS_FASTEST);
    check(bare_handshake(c->b) == 0, "bare handshake", NULL);
}

static void *bare_get(void *arg)
{
    struct bare_client *c = arg;
    uint8_t head[WIRE_HEAD], sum[SHA256_SIZE], *chunk = malloc(STORAGE_CHUNK);
    c->good = chunk && bare_write(c->b, "o", 1) == 0;
    for (uint32_t i = 0; i < CHUNKS && c->good; i++) {
        size_t n = storage_chunk_len(OBJECT, i), at = 0;
        struct sha256 s;
        c->good = bare_read(c->b, head, sizeof head) == 0 && num_get_le32(head + 4) == n;
        sha256_init(&s);
        while (at < n && c->good) { /* a record at a time, hashed while in the cache */
            size_t k = n - at < 16384 ? n - at : 16384;
            c->good = bare_read(c->b, chunk + at, k) == 0;
            sha256_add(&s, chunk + at, k);
            at += k;
        }
        sha256_done(&s, sum);
        c->good = c->good && memcmp(sum, sums[i], SHA256_SIZE) == 0;
    }
    free(chunk);
    return NULL;
}

/* ---- one round each ---- */

static double bare_round(struct bare_client *c, size_t n)
{
    double t = clock_s();
    for (size_t i = 0; i < n; i++) {
        check(pthread_create(&c[i].thread, NULL, bare_get, &c[i]) == 0, "thread", NULL);
    }
    for (size_t i = 0; i < n; i++) {
        pthread_join(c[i].thread, NULL);
        check(c[i].good, "bare TLS failed", NULL);
    }
    return (double)n * OBJECT / (clock_s() - t) / 1e6;
}

static struct {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    size_t done;
    struct err err;
} got = {.mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void on_done(void *ctx, uint64_t id, const struct fetch_result *r)
{
    pthread_mutex_lock(&got.mu);
    got.done++;
    if (r->code) {
        got.err = r->err;
        got.err.code = r->code;
    }
    pthread_cond_signal(&got.cond);
    pthread_mutex_unlock(&got.mu);
}

static double mesh_round(struct mesh *m, size_t n)
{
    static uint32_t next;
    struct mesh_want w = {.prio = FETCH_DEMAND, .done = on_done};
    struct err e = {0};
    uint64_t id;
    double t = clock_s();
    got.done = 0;
    for (size_t i = 0; i < n; i++) {
        struct object_key k = {1, 0, next++ % OBJECTS};
        check(mesh_fetch(m, k, &w, &id, &e) == 0, "mesh_fetch", &e);
    }
    pthread_mutex_lock(&got.mu);
    while (got.done < n) {
        pthread_cond_wait(&got.cond, &got.mu);
    }
    pthread_mutex_unlock(&got.mu);
    check(!got.err.code, "fetch failed", &got.err);
    return (double)n * OBJECT / (clock_s() - t) / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, long n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void measure(struct bare_client *c, struct mesh *m, size_t peers, long rounds)
{
    double v[2][ROUNDS_MAX];
    uint32_t holders = 0;
    for (int i = 0; i < 12000 && holders < peers; i++) {
        mesh_holders(m, (struct object_key){1, 0, OBJECTS - 1}, &holders);
        usleep(10000);
    }
    check(holders == peers, "peers are missing", NULL);
    for (long i = -1; i < rounds; i++) {
        long at = i < 0 ? 0 : i;
        v[0][at] = bare_round(c, peers);
        v[1][at] = mesh_round(m, peers);
        fprintf(stderr, "round %ld: bare %.2f mesh %.2f MB/s\n", i + 1, v[0][at], v[1][at]);
    }
    double bare = median(v[0], rounds), ours = median(v[1], rounds);
    printf("%zu bare %.2f mesh %.2f ratio %.3f\n", peers, bare, ours, ours / bare);
    fflush(stdout);
}

static int fetch(const char *home, long rounds, const char *const *peers, size_t n)
{
    static bool none;
    struct bare_client c[PEERS_MAX];
    struct err e = {0};
    kit_id_make(&bare_id);
    for (size_t i = 0; i < n; i++) {
        bare_open(&c[i], peers[i]);
    }
    struct mesh *m = open_mesh(home, 0, &none, peers, 1);
    measure(c, m, 1, rounds);
    for (size_t i = 1; i < n; i++) {
        check(mesh_add_static(m, peers[i], &e) == 0, peers[i], &e);
    }
    if (n > 1) {
        measure(c, m, n, rounds);
    }
    mesh_close(m);
    for (size_t i = 0; i < n; i++) {
        bare_free(c[i].b, true);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int r = 2;
    make_object();
    if (argc == 4 && !strcmp(argv[1], "homes")) {
        r = make_homes(argv[2], number(argv[3], 64));
    } else if (argc == 4 && !strcmp(argv[1], "serve")) {
        r = serve(argv[2], (int)number(argv[3], 65534));
    } else if (argc >= 5 && argc <= 4 + PEERS_MAX && !strcmp(argv[1], "fetch")) {
        r = fetch(argv[2], number(argv[3], ROUNDS_MAX), (const char *const *)argv + 4,
                  (size_t)argc - 4);
    } else {
        fprintf(stderr, "usage: see the head of lan_rate.c\n");
    }
    free(object);
    return r;
}
