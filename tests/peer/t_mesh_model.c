/* SPDX-License-Identifier: MIT
 * t_mesh_model.c: meshes that get their model while they run, in every order, beside older
 * programs; waiting for peers. */
#include "tests/peer/mesh_kit.h"

#include "discovery/bus.h"
#include "peer/b32.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static void pair(struct kit_mesh *a, struct kit_mesh *b)
{
    kit_home(a, NULL);
    kit_home(b, a);
}

static void connect_pair(struct kit_mesh *a, struct kit_mesh *b)
{
    kit_open(a);
    kit_static(b, mesh_port(a->m));
    kit_open(b);
    assert_int_equal(mesh_wait_peers(a->m, 1, 60000), 1);
    assert_int_equal(mesh_wait_peers(b->m, 1, 60000), 1);
}

static struct mesh_model model_of(struct kit_mesh *k)
{
    static const struct mesh_extent extents[] = {{1, 0, KIT_OBJECTS}, {1, 1, KIT_OBJECTS}};
    struct mesh_model a = {0};
    memcpy(a.root, k->o.model_root, SHA256_SIZE);
    a.numerics_version = k->o.numerics_version;
    a.storage = k->o.storage;
    a.storage_ctx = k->o.storage_ctx;
    a.extents = extents;
    a.n_extents = 2;
    a.ctx = k;
    return a;
}

static void set_model(struct kit_mesh *k)
{
    struct mesh_model a = model_of(k);
    struct object_key keys[KIT_LAYERS * KIT_OBJECTS];
    struct err e = {0};
    size_t n = 0;
    ok(mesh_set_model(k->m, &a, &e));
    for (unsigned l = 0; l < KIT_LAYERS; l++) {
        for (unsigned i = 0; i < KIT_OBJECTS; i++) {
            if (kit_has(&k->store, kit_key(l, i))) {
                keys[n++] = kit_key(l, i);
            }
        }
    }
    assert_int_equal(mesh_have_changed(k->m, keys, n, NULL, 0), 0);
}

/* Objects of layer 1 flow from A to B and others from B to A. */
static void flow(struct kit_mesh *a, struct kit_mesh *b)
{
    struct kit_fetch f[2];
    mesh_until(kit_holders(b, kit_key(1, 3)) == 1);
    mesh_until(kit_holders(a, kit_key(1, 103)) == 1);
    kit_fetch(b, &f[0], kit_key(1, 3), FETCH_DEMAND);
    kit_fetch(a, &f[1], kit_key(1, 103), FETCH_DEMAND);
    for (int i = 0; i < 2; i++) {
        kit_wait(&f[i]);
        if (f[i].r.code) {
            fail_msg("%s", f[i].r.err.msg);
        }
    }
    assert_int_equal(a->store.bad_puts + b->store.bad_puts, 0);
    assert_int_equal((int)kit_status(a, "peers.0.model_same"), 1);
    assert_int_equal((int)kit_status(b, "peers.0.model_same"), 1);
    kit_give(a, 0, 7, 1); /* news, by a delta */
    mesh_until(kit_holders(b, kit_key(0, 7)) == 1);
}

static void goods(struct kit_mesh *a, struct kit_mesh *b)
{
    kit_give(a, 1, 0, 4);
    kit_give(b, 1, 100, 4);
}

static void test_one_later(void **state)
{
    struct kit_mesh a, b;
    struct mesh_want w = {.prio = FETCH_DEMAND};
    struct err e = {0};
    pair(&a, &b);
    goods(&a, &b);
    b.o.has_model = false;
    connect_pair(&a, &b);
    assert_true(kit_said(&a, "one side has no model"));
    /* before: nothing to fetch, and what is told of objects is ignored */
    struct kit_fetch f;
    w.done = (mesh_done_fn)(void *)1; /* never called */
    fails(mesh_fetch(b.m, kit_key(1, 3), &w, NULL, &e), ERR_ARG, "no model");
    struct object_key early = kit_key(0, 55);
    assert_int_equal(mesh_have_changed(b.m, &early, 1, NULL, 0), 0);
    mesh_origin_state(b.m, false, 0, 0);
    set_model(&b);
    assert_int_equal((int)kit_status(&b, "coverage.of"), 2 * KIT_OBJECTS);
    flow(&a, &b);
    assert_int_equal(kit_holders(&a, early), 0);
    /* on the connection that was there */
    assert_false(kit_said(&a, "ends the connection"));
    assert_int_equal((int)kit_status(&a, "refused.protocol_faults"), 0);
    /* it ends without an origin, plainly */
    kit_fetch_with(&b, &f, kit_key(0, 250), (struct mesh_want){.peers_only = true});
    kit_wait(&f);
    assert_int_equal(f.r.code, ERR_NOTFOUND);
    /* once */
    struct mesh_model again = model_of(&b);
    fails(mesh_set_model(b.m, &again, &e), ERR_BUSY, "already");
    again.storage = NULL;
    fails(mesh_set_model(b.m, &again, &e), ERR_ARG, "complete");
    kit_free(&b);
    kit_free(&a);
}

static void *set_thread(void *arg)
{
    set_model(arg);
    return NULL;
}

/* Both are without; who is first does not matter, nor whether anybody is. */
static void test_both_later(void **state)
{
    for (int order = 0; order < 3; order++) {
        struct kit_mesh a, b;
        pair(&a, &b);
        goods(&a, &b);
        a.o.has_model = b.o.has_model = false;
        connect_pair(&a, &b);
        if (order == 2) {
            pthread_t t;
            assert_int_equal(pthread_create(&t, NULL, set_thread, &a), 0);
            set_model(&b);
            pthread_join(t, NULL);
        } else {
            set_model(order ? &b : &a);
            set_model(order ? &a : &b);
        }
        flow(&a, &b);
        assert_int_equal((int)kit_status(&a, "refused.protocol_faults"), 0);
        assert_int_equal((int)kit_status(&b, "refused.protocol_faults"), 0);
        kit_free(&b);
        kit_free(&a);
    }
}

/* While the connection comes about: sometimes before the hellos, between or after them. */
static void test_while_connecting(void **state)
{
    for (unsigned i = 0; i < 6; i++) {
        struct kit_mesh a, b;
        pair(&a, &b);
        goods(&a, &b);
        b.o.has_model = false;
        a.o.has_model = i % 3 != 0;
        kit_open(&a);
        kit_static(&b, mesh_port(a.m));
        kit_open(&b);
        usleep(i * 800);
        set_model(&b);
        if (!a.o.has_model) {
            set_model(&a);
        }
        flow(&a, &b);
        assert_int_equal((int)kit_status(&a, "refused.protocol_faults"), 0);
        assert_int_equal((int)kit_status(&b, "refused.protocol_faults"), 0);
        kit_free(&b);
        kit_free(&a);
    }
}

/* The other side is an older program, which takes no further Hello: a fresh connection. Whoever
 * dialled, and whoever is the older. */
static void test_older_peer(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct kit_mesh k[2];
        pair(&k[0], &k[1]);
        goods(&k[0], &k[1]);
        struct kit_mesh *late = &k[i & 1], *other = &k[!(i & 1)];
        late->o.has_model = false;
        (i & 2 ? late : other)->o.no_features = true;
        connect_pair(&k[0], &k[1]);
        uint64_t t = clock_ns();
        set_model(late);
        flow(&k[0], &k[1]);
        print_message("fresh connection and objects after %.0f ms\n",
                      (double)(clock_ns() - t) / 1e6);
        assert_int_equal((int)kit_status(other, "refused.protocol_faults"), 0);
        assert_int_equal((int)kit_status(late, "refused.protocol_faults"), 0);
        kit_free(&k[1]);
        kit_free(&k[0]);
    }
}

static void test_another_model(void **state)
{
    struct kit_mesh a, b;
    pair(&a, &b);
    goods(&a, &b);
    b.o.has_model = false;
    b.o.model_root[5] ^= 1;
    connect_pair(&a, &b);
    set_model(&b);
    usleep(100000);
    assert_int_equal(kit_holders(&b, kit_key(1, 3)), 0);
    assert_int_equal((int)kit_status(&a, "peers.0.model_same"), 0);
    assert_int_equal((int)kit_status(&b, "peers.0.model_same"), 0);
    assert_int_equal(mesh_peers(a.m), 1);
    kit_free(&b);
    kit_free(&a);
}

/* Setting it, and at once the end; members come and go meanwhile. */
static void test_and_close(void **state)
{
    for (unsigned i = 0; i < 4; i++) {
        struct kit_mesh a, b;
        pair(&a, &b);
        goods(&a, &b);
        a.o.has_model = b.o.has_model = false;
        kit_open(&a);
        kit_static(&b, mesh_port(a.m));
        kit_open(&b);
        usleep(i * 1400);
        set_model(&a);
        if (i & 1) {
            kit_close(&a);
        }
        set_model(&b);
        kit_free(&b);
        kit_free(&a);
    }
}

/* Announced by discovery, too; and a loop of the caller's. */
static void test_announced(void **state)
{
    struct kit_mesh k[2];
    struct err e = {0};
    static const char *const host[2] = {"a", "b"};
    uv_loop_t loop;
    pair(&k[0], &k[1]);
    goods(&k[0], &k[1]);
    assert_int_equal(uv_loop_init(&loop), 0);
    struct disco_bus *bus = disco_bus_new();
    assert_non_null(bus);
    for (int i = 0; i < 2; i++) {
        ok(disco_bus_addr(bus, host[i], 1, "en0", 1, "127.0.0.1", 8, &e));
        k[i].o.loop = &loop;
        k[i].o.bus = bus;
        k[i].o.bus_host = host[i];
        k[i].o.no_bonjour = k[i].o.has_model = false;
        kit_open(&k[i]);
    }
    uint64_t end = clock_ns() + 60ull * 1000000000u;
    while (mesh_peers(k[0].m) + mesh_peers(k[1].m) < 2 && clock_ns() < end) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    set_model(&k[1]);
    set_model(&k[0]);
    bool announced = false;
    while ((!announced || kit_holders(&k[0], kit_key(1, 103)) < 1 ||
            kit_holders(&k[1], kit_key(1, 3)) < 1) &&
           clock_ns() < end) {
        struct buf b;
        uv_run(&loop, UV_RUN_ONCE);
        buf_init(&b, 8u << 20);
        ok(mesh_why(k[0].m, &b, &e));
        char root[MESH_SHORT + 60];
        b32_encode(k[1].o.model_root, SHA256_SIZE, root);
        root[MESH_SHORT - 1] = 0;
        json_t *j = json_loadb(b.p, b.n, 0, NULL), *p;
        size_t i;
        json_array_foreach(json_object_get(j, "peers"), i, p)
        {
            const char *model = json_string_value(json_object_get(p, "model"));
            announced |= model && strcmp(model, root) == 0;
        }
        json_decref(j);
        buf_free(&b);
    }
    assert_true(announced);
    assert_int_equal(kit_holders(&k[0], kit_key(1, 103)), 1);
    for (int i = 0; i < 2; i++) {
        kit_free(&k[i]);
    }
    while (uv_loop_alive(&loop)) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    disco_bus_free(bus);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void *opener(void *arg)
{
    usleep(200000);
    kit_open(arg);
    return NULL;
}

static void *closer(void *arg)
{
    usleep(200000);
    kit_close(arg);
    return NULL;
}

/* Is the other end of that connection still there? What it has said is read. */
static bool there(int s)
{
    char some[4096];
    ssize_t n;
    do {
        n = recv(s, some, sizeof some, MSG_DONTWAIT);
    } while (n > 0);
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* A host that takes the connection and says nothing is no sign of a member, though it is still
 * being tried; nor is one where nobody listens. */
static void test_in_sight(void **state)
{
    struct kit_mesh a, b;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM, 0), c = -1;
    assert_true(s >= 0);
    assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&at, &len), 0);
    pair(&a, &b);
    kit_static(&a, ntohs(at.sin_port));
    kit_open(&a);
    mesh_until(!mesh_in_sight(a.m));
    assert_int_equal(listen(s, 4), 0);
    bool silent = false;
    for (int i = 0; i < 20 && !silent; i++) { /* a machine that is busy may see it given up */
        c = accept(s, NULL, NULL);
        assert_true(c >= 0);
        mesh_until(!mesh_in_sight(a.m));
        silent = there(c);
        if (!silent) {
            close(c);
        }
    }
    assert_true(silent);
    assert_int_equal(mesh_peers(a.m), 0);
    close(c);
    close(s);
    kit_free(&a);
    kit_free(&b);
}

static void test_wait_peers(void **state)
{
    struct kit_mesh a, b, lone, none;
    pthread_t t;
    pair(&a, &b);
    /* alone in a shoal, and in none: there is nobody to wait for */
    kit_home(&lone, NULL);
    kit_open(&lone);
    assert_int_equal(mesh_wait_peers(lone.m, 1, 60000), 0);
    kit_free(&lone);
    memset(&none, 0, sizeof none);
    pthread_mutex_init(&none.mu, NULL);
    none.home = temp_home();
    kit_store_open(&none.store, false);
    kit_opts_for(&none);
    kit_open(&none);
    assert_int_equal(mesh_wait_peers(none.m, 1, 60000), 0);
    kit_free(&none);
    /* nobody comes */
    kit_open(&a);
    uint64_t t0 = clock_ns();
    assert_int_equal(mesh_wait_peers(a.m, 1, 100), 0);
    uint64_t ms = (clock_ns() - t0) / 1000000;
    assert_true(ms >= 100 && ms < 20000);
    assert_int_equal(mesh_wait_peers(a.m, 0, 60000), 0);
    /* somebody does */
    kit_static(&b, mesh_port(a.m));
    assert_int_equal(pthread_create(&t, NULL, opener, &b), 0);
    assert_int_equal(mesh_wait_peers(a.m, 1, 60000), 1);
    pthread_join(t, NULL);
    /* and the end of the mesh ends it */
    struct mesh *m = a.m;
    assert_int_equal(pthread_create(&t, NULL, closer, &a), 0);
    t0 = clock_ns();
    mesh_wait_peers(m, 2, 60000);
    assert_true((clock_ns() - t0) / 1000000 < 30000);
    pthread_join(t, NULL);
    kit_free(&b);
    kit_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_later),        cmocka_unit_test(test_both_later),
        cmocka_unit_test(test_while_connecting), cmocka_unit_test(test_older_peer),
        cmocka_unit_test(test_another_model),    cmocka_unit_test(test_and_close),
        cmocka_unit_test(test_announced),        cmocka_unit_test(test_in_sight),
        cmocka_unit_test(test_wait_peers),
    };
    if (getenv("KIT_ONLY")) {
        cmocka_set_test_filter(getenv("KIT_ONLY"));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
