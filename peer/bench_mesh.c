/* SPDX-License-Identifier: MIT
 * bench_mesh.c: two meshes of one shoal on 127.0.0.1: one has objects in memory, the other fetches
 * them into memory and forgets them, so that they can be fetched again. Everything between is what
 * a node does: discovery's static peers, hellos, rosters, have-maps, the fetch engine, serving. */
#include "peer/bench_int.h"
#include "peer/home.h"
#include "peer/member.h"
#include "peer/mesh_int.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LARGE = 0, SMALL = 1, KEYS = 64, CONNECT_MS = 20000, WAIT_MS = 60000 };

struct sink_put {
    struct sink_put *next;
    uint64_t size;
    uint8_t *p;
};

struct bench_mesh {
    const struct bench_data *d;
    struct mesh *giver, *taker;
    struct sink_put *spare; /* LAN thread of the taker: rooms of large objects to use again */
    /* what the callers' thread waits for */
    pthread_mutex_t mu;
    pthread_cond_t cond;
    unsigned done;
    struct err bad;
    /* a run of objects: the next ones are asked for where one arrives */
    bool chain;
    double until;
    unsigned asked;
};

/* ---- both stores ---- */

static bool st_size(void *ctx, struct object_key k, uint64_t *size)
{
    (void)ctx;
    *size = k.layer == LARGE ? PEER_BENCH_OBJECT : PEER_BENCH_SMALL;
    return k.kind == 1 && k.layer <= SMALL && k.index < KEYS;
}

static bool giver_have(void *ctx, struct object_key k)
{
    uint64_t size;
    return st_size(ctx, k, &size);
}

static bool giver_digests(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                          uint8_t (*sha)[SHA256_SIZE], enum basis *basis,
                          uint8_t object[SHA256_SIZE])
{
    const struct bench_mesh *b = ctx;
    const bool large = k.layer == LARGE;
    *basis = BASIS_ORIGIN;
    memcpy(sha[0], large ? b->d->sha[first] : b->d->small_sha, (size_t)n * SHA256_SIZE);
    if (object) {
        memcpy(object, large ? b->d->large_digest : b->d->small_digest, SHA256_SIZE);
    }
    return true;
}

static void giver_read(void *ctx, struct storage_read *r)
{
    const struct bench_mesh *b = ctx;
    const bool large = r->key.layer == LARGE;
    r->p = large ? b->d->large + (size_t)r->chunk * STORAGE_CHUNK : b->d->small;
    r->n = storage_chunk_len(large ? PEER_BENCH_OBJECT : PEER_BENCH_SMALL, r->chunk);
    r->done(r, 0);
}

static void giver_release(void *ctx, struct storage_read *r)
{
    (void)ctx;
    (void)r;
}

static bool taker_have(void *ctx, struct object_key k)
{
    (void)ctx;
    (void)k;
    return false;
}

static bool taker_digests(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                          uint8_t (*sha)[SHA256_SIZE], enum basis *basis,
                          uint8_t object[SHA256_SIZE])
{
    (void)ctx;
    (void)k;
    (void)first;
    (void)n;
    (void)sha;
    (void)basis;
    (void)object;
    return false;
}

static void taker_read(void *ctx, struct storage_read *r)
{
    (void)ctx;
    r->done(r, ERR_NOTFOUND);
}

static int taker_begin(void *ctx, struct object_key k, uint64_t size, struct storage_put **put,
                       struct err *e)
{
    struct bench_mesh *b = ctx;
    struct sink_put *x = k.layer == LARGE ? b->spare : NULL;
    if (x) {
        b->spare = x->next;
    } else {
        x = calloc(1, sizeof *x);
        if (!x || !(x->p = malloc(size))) {
            free(x);
            return err_set(e, ERR_NOMEM, "no memory for an object");
        }
    }
    x->size = size;
    *put = (struct storage_put *)(void *)x;
    return 0;
}

static int taker_chunk(void *ctx, struct storage_put *put, uint32_t chunk, const uint8_t *p,
                       size_t n, const uint8_t sha[SHA256_SIZE], struct err *e)
{
    struct sink_put *x = (struct sink_put *)(void *)put;
    (void)ctx;
    (void)sha;
    (void)e;
    memcpy(x->p + (size_t)chunk * STORAGE_CHUNK, p, n);
    return 0;
}

static void fail(struct bench_mesh *b, int code, const char *text)
{
    pthread_mutex_lock(&b->mu);
    if (!b->bad.code) {
        err_set(&b->bad, code, "%s", text);
    }
    pthread_cond_signal(&b->cond);
    pthread_mutex_unlock(&b->mu);
}

static int taker_end(void *ctx, struct storage_put *put, int code, enum basis basis,
                     const uint8_t object[SHA256_SIZE], struct err *e)
{
    struct bench_mesh *b = ctx;
    struct sink_put *x = (struct sink_put *)(void *)put;
    bool large = x->size == PEER_BENCH_OBJECT;
    (void)basis;
    (void)e;
    if (!code && memcmp(object, large ? b->d->large_digest : b->d->small_digest, SHA256_SIZE)) {
        fail(b, ERR_DIGEST, "the mesh delivered wrong bytes");
    }
    if (large) {
        x->next = b->spare;
        b->spare = x;
    } else {
        free(x->p);
        free(x);
    }
    return 0;
}

static const struct storage_ops giver_ops = {st_size,       giver_have,  giver_digests, giver_read,
                                             giver_release, taker_begin, taker_chunk,   taker_end,
                                             NULL,          NULL,        NULL};
static const struct storage_ops taker_ops = {st_size,       taker_have,  taker_digests, taker_read,
                                             giver_release, taker_begin, taker_chunk,   taker_end,
                                             NULL,          NULL,        NULL};

/* ---- fetching ---- */

static void on_done(void *ctx, uint64_t id, const struct fetch_result *r);

static int ask(struct bench_mesh *b, uint16_t layer, uint32_t index, struct err *e)
{
    struct mesh_want w = {.prio = FETCH_DEMAND, .done = on_done, .ctx = b};
    struct object_key k = {1, layer, index % KEYS};
    return mesh_fetch(b->taker, k, &w, NULL, e);
}

static void on_done(void *ctx, uint64_t id, const struct fetch_result *r)
{
    struct bench_mesh *b = ctx;
    struct err e = {0};
    (void)id;
    if (r->code) {
        fail(b, r->code, r->err.msg);
        return;
    }
    pthread_mutex_lock(&b->mu);
    bool next = b->chain && clock_s() < b->until;
    unsigned index = b->asked;
    b->done++;
    b->asked += next;
    if (b->done == b->asked) {
        pthread_cond_signal(&b->cond);
    }
    pthread_mutex_unlock(&b->mu);
    if (next && ask(b, LARGE, index, &e)) {
        fail(b, e.code, e.msg);
    }
}

/* With the lock: until as many are done as were asked for. */
static int wait_all(struct bench_mesh *b, struct err *e)
{
    while (!b->bad.code && b->done < b->asked) {
        unsigned before = b->done;
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec += WAIT_MS / 1000;
        if (pthread_cond_timedwait(&b->cond, &b->mu, &t) && b->done == before) {
            return err_set(e, ERR_TIMEOUT, "the mesh delivered nothing for %d s", WAIT_MS / 1000);
        }
    }
    if (b->bad.code) {
        *e = b->bad;
    }
    return b->bad.code;
}

int bench_mesh_objects(struct bench_mesh *b, double seconds, struct bench_count *c, struct err *e)
{
    double t = clock_s();
    b->done = 0;
    b->asked = BENCH_AHEAD;
    b->until = t + seconds;
    b->chain = true;
    int r = 0;
    for (uint32_t i = 0; !r && i < BENCH_AHEAD; i++) {
        r = ask(b, LARGE, i, e);
    }
    pthread_mutex_lock(&b->mu);
    r = r ? r : wait_all(b, e);
    b->chain = false;
    *c = (struct bench_count){b->done, clock_s() - t};
    pthread_mutex_unlock(&b->mu);
    return r;
}

int bench_mesh_small(struct bench_mesh *b, unsigned batch, double seconds, struct bench_count *c,
                     struct err *e)
{
    double t = clock_s(), n = 0;
    int r = 0;
    do {
        b->done = 0;
        b->asked = batch;
        for (unsigned i = 0; !r && i < batch; i++) {
            r = ask(b, SMALL, i, e);
        }
        pthread_mutex_lock(&b->mu);
        r = r ? r : wait_all(b, e);
        pthread_mutex_unlock(&b->mu);
        n += batch;
    } while (!r && clock_s() - t < seconds);
    *c = (struct bench_count){n, clock_s() - t};
    return r;
}

/* ---- life ---- */

/* A home in `path`: a shoal of its own, or that of the keeper's home. */
static int make_home(const char *path, const char *keeper, struct err *e)
{
    struct identity me = {0}, km = {0};
    struct member m = {0}, kk = {0};
    uint64_t now = (uint64_t)time(NULL);
    int lock;
    int r = home_folder(path, "", e);
    r = r ? r : identity_open(path, NULL, &me, e);
    r = r ? r : member_open(path, &me, &m, e);
    if (!keeper) {
        r = r ? r : member_init(&m, now, e);
    } else {
        r = r ? r : identity_open(keeper, NULL, &km, e);
        r = r ? r : member_open(keeper, &km, &kk, e);
        r = r ? r : member_add(&kk, crypto_key_public(me.key), now, e);
        r = r ? r : home_lock(path, &lock, e);
        if (!r) {
            r = member_adopt(&m, &kk.group, kk.blob.p, kk.blob.n, e);
            home_unlock(lock);
        }
        member_close(&kk);
        identity_close(&km);
    }
    member_close(&m);
    identity_close(&me);
    return r;
}

static int open_one(struct bench_mesh *b, const char *home, const char *software, int peer_port,
                    struct mesh **out, struct err *e)
{
    struct mesh_opts o = {0};
    char text[32];
    const char *peers[] = {text};
    snprintf(text, sizeof text, "127.0.0.1:%d", peer_port);
    o.home = home;
    o.software = software;
    o.has_model = true;
    memset(o.model_root, 7, sizeof o.model_root);
    o.numerics_version = 1;
    o.storage = peer_port ? &taker_ops : &giver_ops;
    o.storage_ctx = b;
    o.listen_host = "127.0.0.1";
    o.no_bonjour = true;
    o.static_peers = peers;
    o.n_static = peer_port != 0;
    return mesh_open(&o, out, e);
}

int bench_mesh_open(const char *dir, const char *software, const struct bench_data *d,
                    struct bench_mesh **out, struct err *e)
{
    struct bench_mesh *b = calloc(1, sizeof *b);
    struct object_key have[2 * KEYS];
    char home[2][1024];
    *out = b;
    if (!b) {
        return err_set(e, ERR_NOMEM, "no memory for the benchmark");
    }
    b->d = d;
    pthread_mutex_init(&b->mu, NULL);
    pthread_cond_init(&b->cond, NULL);
    for (uint32_t i = 0; i < 2 * KEYS; i++) {
        have[i] = (struct object_key){1, i < KEYS ? LARGE : SMALL, i % KEYS};
    }
    int n = snprintf(home[0], sizeof home[0], "%s/giver", dir);
    if (n < 0 || (size_t)n >= sizeof home[0]) {
        return err_set(e, ERR_ARG, "the name of the folder is too long");
    }
    snprintf(home[1], sizeof home[1], "%s/taker", dir);
    int r = make_home(home[0], NULL, e);
    r = r ? r : make_home(home[1], home[0], e);
    r = r ? r : open_one(b, home[0], software, 0, &b->giver, e);
    r = r ? r
          : (mesh_have_changed(b->giver, have, 2 * KEYS, NULL, 0)
                 ? err_set(e, ERR_NOMEM, "no memory for the benchmark")
                 : 0);
    r = r ? r : open_one(b, home[1], software, mesh_port(b->giver), &b->taker, e);
    uint32_t holders = 0;
    double t = clock_s();
    while (!r && !(mesh_holders(b->taker, have[2 * KEYS - 1], &holders) == 0 && holders)) {
        struct timespec nap = {.tv_nsec = 5000000};
        if (clock_s() - t > CONNECT_MS / 1000.0) {
            r = err_set(e, ERR_TIMEOUT, "two nodes on 127.0.0.1 did not connect within %d s",
                        CONNECT_MS / 1000);
        }
        nanosleep(&nap, NULL);
    }
    return r;
}

struct tls_note {
    struct note n;
    struct tls_peer tls;
    unsigned workers;
};

static void note_tls(struct mesh *m, struct note *n)
{
    struct tls_note *x = (struct tls_note *)n;
    struct tls_stats st;
    for (const struct plink *l = m->links; l; l = l->next) {
        if (l->state == LINK_UP) {
            x->tls = l->tls;
        }
    }
    tls_pool_stats(m->pool, &st);
    x->workers = st.workers;
}

void bench_mesh_tls(struct bench_mesh *b, char version[16], char suite[64], unsigned *threads)
{
    struct tls_note x = {.n = {.run = note_tls, .sync = true}};
    mesh_post(b->taker, &x.n);
    memcpy(version, x.tls.version, sizeof x.tls.version);
    memcpy(suite, x.tls.suite, sizeof x.tls.suite);
    *threads = 2 * (1 + x.workers); /* a loop and the workers at each end */
}

void bench_mesh_close(struct bench_mesh *b)
{
    if (!b) {
        return;
    }
    mesh_close(b->taker);
    mesh_close(b->giver);
    while (b->spare) {
        struct sink_put *x = b->spare;
        b->spare = x->next;
        free(x->p);
        free(x);
    }
    pthread_mutex_destroy(&b->mu);
    pthread_cond_destroy(&b->cond);
    free(b);
}
