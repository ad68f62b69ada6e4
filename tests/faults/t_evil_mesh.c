/* SPDX-License-Identifier: MIT
 * t_evil_mesh.c: an honest mesh B fetches from an evil peer and an honest one, then from an evil
 * peer and an origin, during every vice that there is: each object comes, and is right. */
#include "tests/faults/evil.h"
#include "tests/peer/mesh_kit.h"

#include "peer/codec.h"
#include "proto/base/clock.h"

#include <stdatomic.h>

enum { SMALL = 14, LARGE = 2, N = SMALL + LARGE, AT_ONCE = 4, AFTER = 3 };

/* ---- what the evil peer holds: all objects of the kit ---- */

static struct object_key keys[KIT_LAYERS * KIT_OBJECTS];
static uint8_t root[SHA256_SIZE];

static bool src_size(void *ctx, struct object_key k, uint64_t *size)
{
    (void)ctx;
    *size = k.kind == 1 && k.layer < KIT_LAYERS && k.index < KIT_OBJECTS ? kit_size(k) : 0;
    return *size > 0;
}

static void src_read(void *ctx, struct object_key k, uint32_t chunk, uint8_t *p, size_t n)
{
    (void)ctx;
    kit_fill(k, chunk, p, n);
}

static const struct evil_source source = {NULL,     root,    keys, KIT_LAYERS *KIT_OBJECTS,
                                          src_size, src_read};

/* ---- an origin of 80 MB/s, on the LAN thread ---- */

struct origin {
    struct kit_mesh *k;
    _Atomic(uint64_t) bytes;
};

static int origin_get(void *ctx, uint64_t id, struct object_key k, uint32_t first, uint32_t n,
                      enum fetch_prio prio, bool sure)
{
    (void)sure;
    struct origin *o = ctx;
    (void)prio;
    for (uint32_t i = first; i < first + n; i++) {
        size_t len = storage_chunk_len(kit_size(k), i);
        uint8_t *p = malloc(len);
        assert_non_null(p);
        kit_fill(k, i, p, len);
        usleep((useconds_t)(len / 80));
        atomic_fetch_add(&o->bytes, len);
        mesh_origin_data(o->k->m, id, i, p, len, NULL);
    }
    return 0;
}

static void origin_cancel(void *ctx, uint64_t id)
{
    (void)ctx;
    (void)id;
}

/* ---- one round ---- */

static struct object_key wanted(unsigned i)
{
    return i < SMALL ? kit_key(0, i * 3) : kit_key(1, (i - SMALL) * 5);
}

/* One shoal. */
static struct kit_mesh honest, b, bad_home;

/* How much longer everything may take than on a machine of its own. */
#ifndef SHOAL_PATIENCE
#define SHOAL_PATIENCE 1
#endif
static const unsigned patience = SHOAL_PATIENCE;

static void fresh(struct kit_mesh *k)
{
    kit_store_close(&k->store);
    kit_store_open(&k->store, false);
    free(k->log);
    k->log = NULL;
    k->log_n = 0;
    kit_opts_for(k);
}

/* One member against one, and no origin: nobody can tell who is right, so the object is refused. */
static bool contradicts(enum evil_vice v)
{
    return v == EVIL_DIGEST || v == EVIL_LIES;
}

/* True when it was evil. */
static bool try_round(enum evil_vice vice, int arg, bool with_origin)
{
    struct evil_opts eo = {.home = bad_home.home,
                           .source = &source,
                           .vice = vice,
                           .after = vice == EVIL_CLOSE || evil_at_hello(vice) ? 0 : AFTER,
                           .arg = arg};
    struct evil *evil = evil_start(&eo);
    struct origin o = {.k = &b};
    struct mesh_origin mo = {.ctx = &o, .get = origin_get, .cancel = origin_cancel};
    struct kit_fetch f[N];
    struct evil_stats st;
    uint64_t began = clock_ns();
    kit_home(&b, &honest); /* a node that knows nothing yet: bans outlive a process */
    if (with_origin) {
        b.o.origin = &mo;
    } else {
        fresh(&honest);
        honest.o.out_bytes_s = 80u << 20; /* slower than the evil one's loopback */
        kit_give(&honest, 0, 0, KIT_OBJECTS);
        kit_give(&honest, 1, 0, KIT_OBJECTS);
        kit_open(&honest);
        kit_static(&b, mesh_port(honest.m));
    }
    kit_static(&b, evil_port(evil));
    kit_open(&b);
    if (with_origin) {
        mesh_origin_state(b.m, true, 80e6, 0.001);
    } else {
        mesh_until(mesh_peers(b.m) >= 1);
    }
    if (!evil_at_hello(vice) && vice != EVIL_CLOSE) {
        mesh_until(kit_holders(&b, wanted(N - 1)) == (with_origin ? 1 : 2));
    }
    unsigned failed = 0; /* so few at a time that the evil one is asked again and again */
    for (unsigned i = 0; i < N; i += AT_ONCE) {
        for (unsigned j = i; j < i + AT_ONCE; j++) {
            kit_fetch(&b, &f[j], wanted(j), j % 2 ? FETCH_DEMAND : FETCH_PREFETCH);
        }
        for (unsigned j = i; j < i + AT_ONCE; j++) {
            kit_wait(&f[j]);
            if (f[j].r.code && !(f[j].r.code == ERR_DIGEST && contradicts(vice) && !with_origin)) {
                fail_msg("%s %d: object %u: %s", evil_word(vice), arg, j, f[j].r.err.msg);
            }
            failed += f[j].r.code != 0;
        }
    }
    do { /* some vices come without being asked, but take their time */
        evil_get_stats(evil, &st);
        usleep(2000);
    } while (st.vices == 0 && evil_at_hello(vice) && clock_ns() - began < 8000000000u * patience);
    if (getenv("KIT_VERBOSE") || getenv("EVIL_LOG")) {
        print_message("%-9s %3d %s: %4.0f ms; evil: %u connections, %u gets, %u chunks, %u acts, "
                      "told %u; bad chunks %.0f\n",
                      evil_word(vice), arg, with_origin ? "origin" : "honest",
                      (double)(clock_ns() - began) / 1e6, (unsigned)st.conns, (unsigned)st.gets,
                      (unsigned)st.chunks, (unsigned)st.vices, (unsigned)st.told,
                      kit_status(&b, "fetch.bad_chunks"));
    }
    if (vice != EVIL_LIES) { /* bytes that agree with their digests: only a second opinion helps */
        assert_int_equal(b.store.bad_puts, 0);
    }
    assert_int_equal(b.store.puts, N - failed);
    uint64_t took = clock_ns() - began;
    if (vice == EVIL_ACCUSE &&
        st.vices) { /* it names thousands of copies: a line in five seconds */
        unsigned lines = 0;
        for (const char *p = b.log; (p = strstr(p, "says that our copy")) != NULL; p++) {
            lines++;
        }
        assert_in_range(lines, 1, 2 + took / 5000000000u);
    }
    kit_free(&b);
    evil_stop(evil);
    if (!with_origin) {
        kit_close(&honest);
    }
    return st.vices > 0 || vice == EVIL_HONEST || vice == EVIL_CLOSE;
}

/* On a busy machine the evil peer may be too slow to be asked once more: that says nothing. */
static void round_of(enum evil_vice vice, int arg, bool with_origin)
{
    for (int i = 0; i < 8; i++) {
        if (try_round(vice, arg, with_origin)) {
            return;
        }
    }
    fail_msg("%s %d: it was never evil", evil_word(vice), arg);
}

static void all(bool with_origin)
{
    for (enum evil_vice v = EVIL_HONEST; v < EVIL_COUNT; v++) {
        /* nobody asks for small files here */
        if (v != EVIL_CLOSE && v != EVIL_FILES &&
            (!getenv("EVIL_ONLY") || !strcmp(getenv("EVIL_ONLY"), evil_word(v)))) {
            round_of(v, 0, with_origin);
        }
    }
}

static void test_beside_honest(void **state)
{
    (void)state;
    all(false);
}

static void test_beside_origin(void **state)
{
    (void)state;
    all(true);
}

/* Closes after each kind of message, sent and received. */
static void test_close_after(void **state)
{
    static const int received[] = {SHOAL__FRAME__KIND_HELLO, SHOAL__FRAME__KIND_ROSTER,
                                   SHOAL__FRAME__KIND_HAVE,  SHOAL__FRAME__KIND_HAVE_DELTA,
                                   SHOAL__FRAME__KIND_GET,   SHOAL__FRAME__KIND_CREDIT};
    (void)state;
    for (int kind = 1; kind <= SHOAL__FRAME__KIND_BAD_CHUNK; kind++) {
        round_of(EVIL_CLOSE, kind, kind % 2);
    }
    for (size_t i = 0; i < sizeof received / sizeof *received; i++) {
        round_of(EVIL_CLOSE, -received[i], i % 2);
    }
}

static int setup(void **state)
{
    (void)state;
    size_t n = 0;
    memset(root, 7, sizeof root);
    for (unsigned l = 0; l < KIT_LAYERS; l++) {
        for (unsigned i = 0; i < KIT_OBJECTS; i++) {
            keys[n++] = kit_key(l, i);
        }
    }
    kit_home(&honest, NULL);
    kit_home(&bad_home, &honest);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kit_free(&bad_home);
    kit_free(&honest);
    return 0;
}

/* usage: t_evil_mesh honest|origin|close */
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const struct CMUnitTest beside_honest[] = {cmocka_unit_test(test_beside_honest)};
    const struct CMUnitTest beside_origin[] = {cmocka_unit_test(test_beside_origin)};
    const struct CMUnitTest close_after[] = {cmocka_unit_test(test_close_after)};
    if (strcmp(what, "honest") == 0) {
        return cmocka_run_group_tests(beside_honest, setup, teardown);
    }
    if (strcmp(what, "origin") == 0) {
        return cmocka_run_group_tests(beside_origin, setup, teardown);
    }
    return cmocka_run_group_tests(close_after, setup, teardown);
}
