/* SPDX-License-Identifier: MIT
 * share_rig.c: see share_rig.h. */
#include "tests/store/share_rig.h"

#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OPS (&store_storage_ops)

/* ---- one read, waited for ---- */

struct read_wait {
    struct storage_read r;
    pthread_mutex_t mu;
    pthread_cond_t cv;
    bool done;
    int code;
};

static void on_read(struct storage_read *r, int code)
{
    struct read_wait *w = r->user;
    pthread_mutex_lock(&w->mu);
    w->code = code;
    w->done = true;
    pthread_cond_signal(&w->cv);
    pthread_mutex_unlock(&w->mu);
}

int up_read(struct store *st, uint32_t id, uint32_t chunk, uint8_t prio, uint8_t **p, size_t *n)
{
    struct read_wait w = {
        .r = {.key = store_key(st, id), .chunk = chunk, .prio = prio, .done = on_read}};
    w.r.user = &w;
    pthread_mutex_init(&w.mu, NULL);
    pthread_cond_init(&w.cv, NULL);
    OPS->read(st, &w.r);
    pthread_mutex_lock(&w.mu);
    while (!w.done) {
        pthread_cond_wait(&w.cv, &w.mu);
    }
    pthread_mutex_unlock(&w.mu);
    *p = NULL;
    if (!w.code) {
        *p = malloc(w.r.n);
        *n = w.r.n;
        memcpy(*p, w.r.p, w.r.n);
        OPS->release(st, &w.r);
    }
    pthread_cond_destroy(&w.cv);
    pthread_mutex_destroy(&w.mu);
    return w.code;
}

/* ---- the callbacks ---- */

static void fetch(void *ctx, uint32_t id, enum store_prio prio)
{
    struct up *u = ctx;
    (void)prio;
    pthread_mutex_lock(&u->mu);
    if (u->n_q == u->cap_q) {
        u->cap_q = u->cap_q ? 2 * u->cap_q : 64;
        u->q = realloc(u->q, u->cap_q * sizeof *u->q);
    }
    u->q[u->n_q++] = id;
    u->cancelled[id] = 0;
    u->fetches++;
    pthread_cond_broadcast(&u->cv);
    pthread_mutex_unlock(&u->mu);
}

static void raise_prio(void *ctx, uint32_t id, enum store_prio prio)
{
    struct up *u = ctx;
    (void)id;
    (void)prio;
    pthread_mutex_lock(&u->mu);
    u->raises++;
    pthread_mutex_unlock(&u->mu);
}

static void cancel(void *ctx, uint32_t id)
{
    struct up *u = ctx;
    pthread_mutex_lock(&u->mu);
    u->cancels++;
    u->cancelled[id] = 1;
    pthread_cond_broadcast(&u->cv);
    pthread_mutex_unlock(&u->mu);
}

static void changed(void *ctx, const uint32_t *added, size_t n_added, const uint32_t *removed,
                    size_t n_removed)
{
    struct up *u = ctx;
    pthread_mutex_lock(&u->has_mu);
    for (size_t i = 0; i < n_added; i++) {
        u->has[added[i]] = 1;
    }
    for (size_t i = 0; i < n_removed; i++) {
        u->wrong_deltas += !u->has[removed[i]];
        u->has[removed[i]] = 0;
    }
    u->changes++;
    pthread_mutex_unlock(&u->has_mu);
}

static int origin_data(void *ctx, uint64_t id, uint32_t chunk, void *p, size_t n,
                       const uint8_t *sha)
{
    struct up *u = ctx;
    pthread_mutex_lock(&u->mu);
    if (id == 7 && chunk < 64 && !u->part[chunk]) {
        u->part[chunk] = p;
        u->part_n[chunk] = n;
        memcpy(u->part_sha[chunk], sha, SHA256_SIZE);
        u->parts++;
    } else {
        free(p);
    }
    pthread_cond_broadcast(&u->cv);
    pthread_mutex_unlock(&u->mu);
    return 0;
}

static void origin_fail(void *ctx, uint64_t id, uint64_t retry_ms, const struct err *e)
{
    struct up *u = ctx;
    (void)id;
    (void)retry_ms;
    pthread_mutex_lock(&u->mu);
    u->fails++;
    u->fail = *e;
    pthread_cond_broadcast(&u->cv);
    pthread_mutex_unlock(&u->mu);
}

/* ---- one object ---- */

static void sha_of(const uint8_t (*sha)[SHA256_SIZE], uint32_t n, uint8_t out[SHA256_SIZE])
{
    sha256(sha, (size_t)n * SHA256_SIZE, out);
}

/* All chunks of the object with their SHA-256s: from the other store, or from the receiver's own
 * origin. Nonzero: it cannot be had. */
static int collect(struct up *u, uint32_t id, unsigned mode, uint32_t n, uint8_t **c, size_t *len,
                   uint8_t (*sha)[SHA256_SIZE])
{
    if (mode & UP_ORIGIN) {
        pthread_mutex_lock(&u->mu);
        u->parts = u->fails = 0;
        memset(u->part, 0, sizeof u->part);
        pthread_mutex_unlock(&u->mu);
        if (store_origin_get(u->to, 7, store_key(u->to, id), 0, n, STORE_DEMAND, false)) {
            return ERR_OFFLINE;
        }
        pthread_mutex_lock(&u->mu);
        while (u->parts < n && !u->fails) {
            pthread_cond_wait(&u->cv, &u->mu);
        }
        int r = u->fails ? ERR_NET : 0;
        for (uint32_t i = 0; i < n; i++) {
            c[i] = u->part[i];
            len[i] = u->part_n[i];
            memcpy(sha[i], u->part_sha[i], SHA256_SIZE);
        }
        pthread_mutex_unlock(&u->mu);
        return r;
    }
    enum basis b;
    uint8_t whole[SHA256_SIZE], want[SHA256_SIZE];
    struct object_key k = store_key(u->to, id);
    if (!u->from || !OPS->have(u->from, k) || !OPS->digests(u->from, k, 0, n, sha, &b, whole)) {
        return ERR_NOTFOUND;
    }
    sha_of((const uint8_t(*)[SHA256_SIZE])sha, n, want);
    int r = memcmp(want, whole, SHA256_SIZE) ? ERR_DIGEST : 0;
    for (uint32_t i = 0; i < n && !r; i++) {
        uint8_t is[SHA256_SIZE];
        r = up_read(u->from, id, i, (uint8_t)(id % 3), &c[i], &len[i]);
        if (!r) {
            sha256(c[i], len[i], is);
            r = memcmp(is, sha[i], SHA256_SIZE) ? ERR_DIGEST : 0;
        }
    }
    return r;
}

static int put_begin(struct up *u, uint32_t id, unsigned mode, struct storage_put **put,
                     struct err *e)
{
    struct object_key k = store_key(u->to, id);
    uint64_t size;
    int r = OPS->size(u->to, k, &size) ? 0 : ERR_NOTFOUND;
    *put = NULL;
    if (mode & UP_SECOND) {
        OPS->put_second(u->to, k);
    }
    while (!r && (r = OPS->put_begin(u->to, k, size, put, e)) == ERR_BUSY) {
        r = 0;
        u->busy++;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return r;
}

static int put_all(struct up *u, struct storage_put *put, uint32_t id, unsigned mode, uint32_t n,
                   uint8_t **c, size_t *len, uint8_t (*sha)[SHA256_SIZE], struct err *e)
{
    uint8_t whole[SHA256_SIZE];
    int r = put ? 0 : put_begin(u, id, mode, &put, e);
    for (uint32_t j = 0; j < n && !r; j++) {
        uint32_t i = mode & UP_REVERSE ? n - 1 - j : j;
        if (mode & UP_REPEAT) {
            uint8_t *other = malloc(len[i]), os[SHA256_SIZE];
            memset(other, (int)i + 1, len[i]);
            sha256(other, len[i], os);
            r = OPS->put_chunk(u->to, put, i, other, len[i], os, e);
            free(other);
        }
        if (!r) {
            r = OPS->put_chunk(u->to, put, i, c[i], len[i], sha[i], e);
        }
        if (mode & UP_THROW) {
            OPS->put_end(u->to, put, ERR_NET, BASIS_NONE, whole, e);
            return put_all(u, NULL, id, mode & ~(unsigned)UP_THROW, n, c, len, sha, e);
        }
    }
    if (!put) {
        return r;
    }
    sha_of((const uint8_t(*)[SHA256_SIZE])sha, n, whole);
    int r2 = OPS->put_end(u->to, put, r, r ? BASIS_NONE : u->basis, whole, e);
    return r ? r : r2;
}

static void serve(struct up *u, uint32_t id, unsigned mode, int code)
{
    uint32_t n = storage_chunks(model_object(store_model(u->to), id)->size);
    uint8_t **c = calloc(n, sizeof *c);
    size_t *len = calloc(n, sizeof *len);
    uint8_t(*sha)[SHA256_SIZE] = calloc(n, SHA256_SIZE);
    struct err e = {0};
    struct store_upstream_result res = {.code = code, .err = &e};
    if (mode & UP_FAIL) {
        err_set(&e, code, "no machine has it");
    } else if (mode & UP_ELSEWHERE) {
        struct store_view v;
        if (u->other && !store_get(u->other, id, STORE_DEMAND, 0, &v, &e)) {
            store_release(u->other, &v);
        }
        res.peer_bytes = u->other ? 5 : 0;
        for (int i = 0; u->other && i < 5000 && !OPS->have(u->other, store_key(u->to, id)); i++) {
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
    } else {
        struct storage_put *put = NULL; /* before the origin is asked, as the LAN does it */
        int r = mode & UP_ORIGIN ? put_begin(u, id, mode, &put, &e) : 0;
        r = r ? r : collect(u, id, mode, n, c, len, sha);
        if (r && put) {
            OPS->put_end(u->to, put, r, BASIS_NONE, (const uint8_t[SHA256_SIZE]){0}, &e);
        }
        for (uint32_t i = 0; !r && mode & UP_FALSE && i < n; i++) {
            c[i][len[i] - 1] ^= 1;
            sha256(c[i], len[i], sha[i]);
        }
        res.code = r ? err_set(&e, r, "it could not be had (%s)", err_text(r))
                     : put_all(u, put, id, mode, n, c, len, sha, &e);
        res.peer_bytes =
            res.code || mode & UP_ORIGIN ? 0 : model_object(store_model(u->to), id)->size;
    }
    for (uint32_t i = 0; i < n; i++) {
        free(c[i]);
    }
    free(c);
    free(len);
    free(sha);
    store_upstream_done(u->to, id, &res);
}

static void *up_main(void *arg)
{
    struct up *u = arg;
    pthread_mutex_lock(&u->mu);
    while (!u->stop) {
        size_t i = 0; /* the first that is not held back */
        while (i < u->n_q && u->mode & UP_HOLD && !u->cancelled[u->q[i]]) {
            i++;
        }
        if (i == u->n_q) {
            pthread_cond_wait(&u->cv, &u->mu);
            continue;
        }
        uint32_t id = u->q[i];
        memmove(u->q + i, u->q + i + 1, (--u->n_q - i) * sizeof *u->q);
        unsigned mode = u->cancelled[id] ? UP_FAIL : u->mode;
        int code = u->cancelled[id] ? ERR_CANCELLED : u->code;
        pthread_mutex_unlock(&u->mu);
        serve(u, id, mode, code);
        pthread_mutex_lock(&u->mu);
    }
    pthread_mutex_unlock(&u->mu);
    return NULL;
}

void up_start(struct up *u, struct store *to, struct store *from, unsigned mode)
{
    memset(u, 0, sizeof *u);
    u->to = to;
    u->from = from;
    u->mode = mode;
    u->basis = BASIS_ONE_MEMBER;
    u->u = (struct store_upstream){u, fetch, raise_prio, cancel, changed};
    uint32_t n = model_object_count(store_model(to));
    u->has = calloc(n, 1);
    u->cancelled = calloc(n, 1);
    pthread_mutex_init(&u->mu, NULL);
    pthread_mutex_init(&u->has_mu, NULL);
    pthread_cond_init(&u->cv, NULL);
    struct store_origin_answers a = {u, origin_data, origin_fail, NULL, NULL, NULL};
    store_origin_answer_to(to, &a);
    assert_int_equal(pthread_create(&u->thread, NULL, up_main, u), 0);
    pthread_mutex_lock(&u->has_mu); /* what changes from here on waits until the list is noted */
    store_set_upstream(to, &u->u);
    uint32_t *ids;
    size_t k;
    struct err e = {0};
    assert_int_equal(store_share_list(to, &ids, &k, &e), 0);
    for (size_t i = 0; i < k; i++) {
        u->has[ids[i]] = 1;
    }
    pthread_mutex_unlock(&u->has_mu);
    free(ids);
}

void up_stop(struct up *u)
{
    store_set_upstream(u->to, NULL);
    store_origin_answer_to(u->to, NULL);
    pthread_mutex_lock(&u->mu);
    u->stop = true;
    pthread_cond_broadcast(&u->cv);
    pthread_mutex_unlock(&u->mu);
    pthread_join(u->thread, NULL);
    pthread_cond_destroy(&u->cv);
    pthread_mutex_destroy(&u->mu);
    pthread_mutex_destroy(&u->has_mu);
    free(u->q);
    free(u->has);
    free(u->cancelled);
}

void up_mode(struct up *u, unsigned mode, int code)
{
    pthread_mutex_lock(&u->mu);
    u->mode = mode;
    u->code = code;
    pthread_cond_broadcast(&u->cv);
    pthread_mutex_unlock(&u->mu);
}

bool up_wait(struct up *u, const uint32_t *v, uint32_t n)
{
    uint64_t end = clock_ns() + 60000000000u;
    pthread_mutex_lock(&u->mu);
    while (*v < n && clock_ns() < end) {
        pthread_mutex_unlock(&u->mu);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        pthread_mutex_lock(&u->mu);
    }
    bool r = *v >= n;
    pthread_mutex_unlock(&u->mu);
    return r;
}

bool up_has_list(struct up *u)
{
    uint32_t n = model_object_count(store_model(u->to));
    uint64_t end = clock_ns() + 60000000000u;
    bool same = false;
    while (!same && clock_ns() < end) {
        uint32_t *ids;
        size_t k, at = 0;
        struct err e = {0};
        assert_int_equal(store_share_list(u->to, &ids, &k, &e), 0);
        pthread_mutex_lock(&u->has_mu);
        same = u->wrong_deltas == 0;
        for (uint32_t id = 0; id < n && same; id++) {
            bool listed = at < k && ids[at] == id;
            at += listed;
            same = u->has[id] == listed;
        }
        pthread_mutex_unlock(&u->has_mu);
        free(ids);
        if (!same) {
            nanosleep(&(struct timespec){0, 2000000}, NULL);
        }
    }
    return same;
}
