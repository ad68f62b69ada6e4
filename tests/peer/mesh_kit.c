/* SPDX-License-Identifier: MIT
 * mesh_kit.c: see mesh_kit.h. */
#include "tests/peer/mesh_kit.h"

#include "peer/home.h"
#include "peer/member.h"

#include <jansson.h>
#include <stdatomic.h>
#include <time.h>

static _Atomic(int) ends;

/* gcc says by a macro that the thread sanitizer is in, clang by a feature. */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER
#endif
#endif

#ifdef THREAD_SANITIZER
/* libuv closes descriptors by the bare system call, which the thread sanitizer does not see: a
 * number that another thread's open gets next then looks as if it were used by two threads. These
 * are the library calls on descriptors; races in memory have none of them on top. */
const char *__tsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
    return "race:^open64$\nrace:^open$\nrace:^opendir$\nrace:^closedir$\nrace:^fopen\nrace:^fclose$"
           "\nrace:^close$\n";
}
#endif

/* ---- objects ---- */

struct object_key kit_key(unsigned layer, unsigned index)
{
    return (struct object_key){1, (uint16_t)layer, index};
}

uint64_t kit_size(struct object_key k)
{
    /* one chunk in layer 0, four and a bit in layer 1 */
    return k.layer ? 4 * STORAGE_CHUNK + 1000 + k.index : STORAGE_CHUNK / 2 + k.index;
}

static bool known(struct object_key k)
{
    return k.kind == 1 && k.layer < KIT_LAYERS && k.index < KIT_OBJECTS;
}

void kit_fill(struct object_key k, uint32_t chunk, uint8_t *p, size_t n)
{
    uint64_t x =
        ((uint64_t)k.layer << 40 | (uint64_t)k.index << 16 | chunk) * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < n; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(p + i, &x, n - i < 8 ? n - i : 8);
    }
}

static void chunk_sha(struct object_key k, uint32_t chunk, uint8_t sha[SHA256_SIZE])
{
    size_t n = storage_chunk_len(kit_size(k), chunk);
    uint8_t *p = malloc(n);
    assert_non_null(p);
    kit_fill(k, chunk, p, n);
    sha256(p, n, sha);
    free(p);
}

/* ---- the store ---- */

static bool st_size(void *ctx, struct object_key k, uint64_t *size)
{
    (void)ctx;
    *size = known(k) ? kit_size(k) : 0;
    return known(k);
}

bool kit_has(struct kit_store *s, struct object_key k)
{
    pthread_mutex_lock(&s->mu);
    bool r = known(k) && s->have[k.layer][k.index];
    pthread_mutex_unlock(&s->mu);
    return r;
}

static bool st_have(void *ctx, struct object_key k)
{
    return kit_has(ctx, k);
}

static bool st_digests(void *ctx, struct object_key k, uint32_t first, uint32_t n,
                       uint8_t (*sha)[SHA256_SIZE], enum basis *b, uint8_t object[SHA256_SIZE])
{
    struct sha256 all;
    uint8_t d[SHA256_SIZE];
    if (!kit_has(ctx, k)) {
        return false;
    }
    *b = BASIS_ORIGIN;
    sha256_init(&all);
    for (uint32_t i = 0; i < storage_chunks(kit_size(k)); i++) {
        chunk_sha(k, i, d);
        sha256_add(&all, d, sizeof d);
        if (i >= first && i < first + n) {
            memcpy(sha[i - first], d, sizeof d);
        }
    }
    sha256_done(&all, d);
    if (object) {
        memcpy(object, d, sizeof d);
    }
    return true;
}

static void answer(struct kit_store *s, struct storage_read *r)
{
    size_t n = storage_chunk_len(kit_size(r->key), r->chunk);
    pthread_mutex_lock(&s->mu);
    s->reads++;
    enum kit_lie lie = s->lie;
    pthread_mutex_unlock(&s->mu);
    uint8_t *p = kit_has(s, r->key) && lie != KIT_DAMAGED ? malloc(n) : NULL;
    if (!p) {
        r->done(r, lie == KIT_DAMAGED ? ERR_DIGEST : ERR_NOTFOUND);
        return;
    }
    kit_fill(r->key, r->chunk, p, n);
    if (lie == KIT_FLIP) {
        p[n / 2] ^= 1;
    } else if (lie == KIT_ZEROS) {
        memset(p, 0, n);
    }
    r->p = p;
    r->n = n;
    r->done(r, 0);
}

static void *reader(void *arg)
{
    struct kit_store *s = arg;
    pthread_mutex_lock(&s->mu);
    while (!s->stop || s->head) {
        struct storage_read *r = s->head;
        if (!r || (s->lie == KIT_SILENT && !s->stop)) {
            pthread_cond_wait(&s->cond, &s->mu);
            continue;
        }
        s->head = r->private;
        unsigned ms = s->read_ms;
        pthread_mutex_unlock(&s->mu);
        if (ms) {
            usleep(ms * 1000);
        }
        answer(s, r);
        pthread_mutex_lock(&s->mu);
    }
    pthread_mutex_unlock(&s->mu);
    return NULL;
}

static void st_read(void *ctx, struct storage_read *r)
{
    struct kit_store *s = ctx;
    if (!s->threaded) {
        answer(s, r);
        return;
    }
    pthread_mutex_lock(&s->mu);
    r->private = NULL;
    if (s->head) {
        s->tail->private = r;
    } else {
        s->head = r;
    }
    s->tail = r;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->mu);
}

static void st_release(void *ctx, struct storage_read *r)
{
    (void)ctx;
    free((void *)(uintptr_t)r->p);
}

struct storage_put {
    struct object_key k;
    uint64_t size;
    uint8_t *p;
};

static int st_begin(void *ctx, struct object_key k, uint64_t size, struct storage_put **put,
                    struct err *e)
{
    struct storage_put *x = calloc(1, sizeof *x);
    (void)ctx;
    (void)e;
    assert_non_null(x);
    x->k = k;
    x->size = size;
    x->p = calloc(1, size);
    assert_non_null(x->p);
    *put = x;
    return 0;
}

static int st_chunk(void *ctx, struct storage_put *put, uint32_t chunk, const uint8_t *p, size_t n,
                    const uint8_t sha[SHA256_SIZE], struct err *e)
{
    (void)ctx;
    (void)sha;
    (void)e;
    assert_int_equal(n, storage_chunk_len(put->size, chunk));
    memcpy(put->p + (uint64_t)chunk * STORAGE_CHUNK, p, n);
    return 0;
}

static int st_end(void *ctx, struct storage_put *put, int code, enum basis b,
                  const uint8_t object[SHA256_SIZE], struct err *e)
{
    struct kit_store *s = ctx;
    bool good = put->size == kit_size(put->k);
    uint8_t *want = malloc(STORAGE_CHUNK);
    (void)b;
    (void)object;
    (void)e;
    assert_non_null(want);
    for (uint32_t i = 0; !code && i < storage_chunks(put->size); i++) {
        size_t n = storage_chunk_len(put->size, i);
        kit_fill(put->k, i, want, n);
        good &= memcmp(want, put->p + (uint64_t)i * STORAGE_CHUNK, n) == 0;
    }
    free(want);
    pthread_mutex_lock(&s->mu);
    if (!code) {
        s->puts++;
        s->bad_puts += !good;
        s->have[put->k.layer][put->k.index] = true;
    }
    pthread_mutex_unlock(&s->mu);
    free(put->p);
    free(put);
    return 0;
}

const struct storage_ops kit_storage = {st_size,    st_have,  st_digests, st_read,
                                        st_release, st_begin, st_chunk,   st_end,
                                        NULL,       NULL,     NULL};

void kit_store_open(struct kit_store *s, bool threaded)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->mu, NULL);
    pthread_cond_init(&s->cond, NULL);
    s->threaded = threaded;
    if (threaded) {
        assert_int_equal(pthread_create(&s->thread, NULL, reader, s), 0);
    }
}

/* Reads that are queued are answered, so that a mesh can close. */
static void store_stop(struct kit_store *s)
{
    pthread_mutex_lock(&s->mu);
    s->stop = true;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->mu);
}

void kit_store_close(struct kit_store *s)
{
    if (s->threaded) {
        store_stop(s);
        pthread_join(s->thread, NULL);
    }
    pthread_mutex_destroy(&s->mu);
    pthread_cond_destroy(&s->cond);
}

/* ---- meshes ---- */

static void log_line(void *ctx, const char *line)
{
    struct kit_mesh *k = ctx;
    size_t n = strlen(line);
    if (getenv("KIT_VERBOSE")) {
        fprintf(stderr, "%p %s\n", ctx, line);
    }
    pthread_mutex_lock(&k->mu);
    if (k->closed) {
        fprintf(stderr, "said after mesh_close: %s\n", line);
        abort();
    }
    char *p = realloc(k->log, k->log_n + n + 2);
    if (p) {
        memcpy(p + k->log_n, line, n);
        p[k->log_n + n] = '\n';
        p[k->log_n + n + 1] = 0;
        k->log = p;
        k->log_n += n + 1;
    }
    pthread_mutex_unlock(&k->mu);
}

bool kit_said(struct kit_mesh *k, const char *words)
{
    pthread_mutex_lock(&k->mu);
    bool r = k->log && strstr(k->log, words);
    pthread_mutex_unlock(&k->mu);
    return r;
}

void kit_home(struct kit_mesh *k, struct kit_mesh *keeper)
{
    struct err e = {0};
    struct identity me;
    struct member m;
    memset(k, 0, sizeof *k);
    pthread_mutex_init(&k->mu, NULL);
    k->home = temp_home();
    kit_store_open(&k->store, false);
    ok(identity_open(k->home, NULL, &me, &e));
    ok(member_open(k->home, &me, &m, &e));
    if (!keeper) {
        ok(member_init(&m, (uint64_t)time(NULL), &e));
    } else {
        struct identity km;
        struct member kk;
        int lock;
        ok(identity_open(keeper->home, NULL, &km, &e));
        ok(member_open(keeper->home, &km, &kk, &e));
        ok(member_add(&kk, crypto_key_public(me.key), (uint64_t)time(NULL), &e));
        ok(home_lock(k->home, &lock, &e));
        ok(member_adopt(&m, &kk.group, kk.blob.p, kk.blob.n, &e));
        home_unlock(lock);
        member_close(&kk);
        identity_close(&km);
    }
    member_close(&m);
    identity_close(&me);
    kit_opts_for(k);
}

void kit_opts_for(struct kit_mesh *k)
{
    memset(&k->o, 0, sizeof k->o);
    k->o.home = k->home;
    k->o.software = "kit 1";
    k->o.has_model = true;
    memset(k->o.model_root, 7, SHA256_SIZE);
    k->o.numerics_version = 1;
    k->o.storage = &kit_storage;
    k->o.storage_ctx = &k->store;
    k->o.listen_host = "127.0.0.1";
    k->o.no_bonjour = true;
    k->o.heartbeat_ms = 400;
    k->o.look_ms = 50;
    k->o.log = log_line;
    k->o.ctx = k;
    k->o.static_peers = k->static_list;
    k->o.tls_workers = 1;
}

void kit_static(struct kit_mesh *k, int port)
{
    snprintf(k->statics[k->o.n_static], sizeof k->statics[0], "127.0.0.1:%d", port);
    k->static_list[k->o.n_static] = k->statics[k->o.n_static];
    k->o.n_static++;
}

void kit_open(struct kit_mesh *k)
{
    struct err e = {0};
    struct object_key keys[KIT_LAYERS * KIT_OBJECTS];
    size_t n = 0;
    k->closed = false;
    ok(mesh_open(&k->o, &k->m, &e));
    for (unsigned l = 0; l < KIT_LAYERS; l++) {
        for (unsigned i = 0; i < KIT_OBJECTS; i++) {
            if (kit_has(&k->store, kit_key(l, i))) {
                keys[n++] = kit_key(l, i);
            }
        }
    }
    if (k->o.has_model) {
        ok(mesh_have_changed(k->m, keys, n, NULL, 0));
    }
}

void kit_close(struct kit_mesh *k)
{
    if (k->store.threaded) {
        store_stop(&k->store);
    }
    mesh_close(k->m);
    pthread_mutex_lock(&k->mu);
    k->closed = true;
    pthread_mutex_unlock(&k->mu);
    k->m = NULL;
}

void kit_free(struct kit_mesh *k)
{
    kit_close(k);
    kit_store_close(&k->store);
    drop_home(k->home);
    free(k->log);
    pthread_mutex_destroy(&k->mu);
}

void kit_give(struct kit_mesh *k, unsigned layer, unsigned first, unsigned n)
{
    struct object_key keys[KIT_OBJECTS];
    pthread_mutex_lock(&k->store.mu);
    for (unsigned i = 0; i < n; i++) {
        keys[i] = kit_key(layer, first + i);
        k->store.have[layer][first + i] = true;
    }
    pthread_mutex_unlock(&k->store.mu);
    if (k->m) {
        assert_int_equal(mesh_have_changed(k->m, keys, n, NULL, 0), 0);
    }
}

/* ---- fetching ---- */

static void on_done(void *ctx, uint64_t id, const struct fetch_result *r)
{
    struct kit_fetch *f = ctx;
    (void)id;
    f->r = *r;
    f->order = atomic_fetch_add(&ends, 1) + 1;
    atomic_store(&f->done, 1);
}

void kit_fetch_with(struct kit_mesh *k, struct kit_fetch *f, struct object_key key,
                    struct mesh_want w)
{
    struct err e = {0};
    memset(f, 0, sizeof *f);
    f->key = key;
    w.done = on_done;
    w.ctx = f;
    ok(mesh_fetch(k->m, key, &w, &f->id, &e));
}

void kit_fetch(struct kit_mesh *k, struct kit_fetch *f, struct object_key key, enum fetch_prio prio)
{
    kit_fetch_with(k, f, key, (struct mesh_want){.prio = prio});
}

void kit_wait(struct kit_fetch *f)
{
    mesh_until(atomic_load(&f->done));
}

uint32_t kit_holders(struct kit_mesh *k, struct object_key key)
{
    uint32_t n = 0;
    mesh_holders(k->m, key, &n);
    return n;
}

double kit_status(struct kit_mesh *k, const char *path)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, 8u << 20);
    ok(mesh_status(k->m, &b, &e));
    json_t *root = json_loadb(b.p, b.n, 0, NULL), *j = root;
    assert_non_null(root);
    char part[64];
    while (*path && j) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        if (json_is_array(j)) {
            char *end;
            size_t i = strtoul(part, &end, 10);
            assert_true(end != part && !*end);
            j = json_array_get(j, i);
        } else {
            j = json_object_get(j, part);
        }
        path += n + (path[n] == '.');
    }
    double v = j && json_is_number(j)    ? json_number_value(j)
               : j && json_is_boolean(j) ? json_is_true(j)
                                         : -1;
    json_decref(root);
    buf_free(&b);
    return v;
}
