/* SPDX-License-Identifier: MIT
 * t_mesh.c: meshes among each other: finding, objects, members coming and going. */
#include "tests/peer/mesh_kit.h"

#include "discovery/bus.h"
#include "peer/member.h"

#include <time.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SLOWER 20 /* what watching memory costs */
#else
#define SLOWER 1
#endif

/* ---- finding and fetching ---- */

static void three(struct kit_mesh k[3])
{
    kit_home(&k[0], NULL);
    kit_home(&k[1], &k[0]);
    kit_home(&k[2], &k[0]);
}

static void connect_three(struct kit_mesh k[3])
{
    kit_open(&k[0]);
    kit_static(&k[1], mesh_port(k[0].m));
    kit_open(&k[1]);
    kit_static(&k[2], mesh_port(k[0].m));
    kit_static(&k[2], mesh_port(k[1].m));
    kit_open(&k[2]);
    for (int i = 0; i < 3; i++) {
        mesh_until(mesh_peers(k[i].m) == 2);
    }
}

static void test_objects_flow(void **state)
{
    struct kit_mesh k[3];
    three(k);
    kit_give(&k[0], 0, 0, 100);
    kit_give(&k[0], 1, 0, 6);
    kit_give(&k[1], 1, 0, 4);
    connect_three(k); /* the second was taken in before the third: it hears of it by roster */
    mesh_until(kit_holders(&k[2], kit_key(1, 0)) == 2);
    mesh_until(kit_holders(&k[2], kit_key(0, 99)) == 1);
    struct kit_fetch f[20];
    for (unsigned i = 0; i < 6; i++) {
        kit_fetch(&k[2], &f[i], kit_key(1, i), FETCH_DEMAND);
    }
    for (unsigned i = 6; i < 20; i++) {
        kit_fetch(&k[2], &f[i], kit_key(0, i), i % 2 ? FETCH_PREFETCH : FETCH_BACKGROUND);
    }
    for (int i = 0; i < 20; i++) {
        kit_wait(&f[i]);
        if (f[i].r.code) {
            fail_msg("%d: %s", i, f[i].r.err.msg);
        }
        assert_true(kit_has(&k[2].store, f[i].key));
        assert_int_equal(f[i].r.origin_chunks, 0);
        uint64_t bytes = 0;
        for (uint32_t j = 0; j < f[i].r.n_from; j++) {
            bytes += f[i].r.from[j].bytes;
        }
        assert_int_equal(bytes, kit_size(f[i].key));
    }
    assert_int_equal(k[2].store.puts, 20);
    assert_int_equal(k[2].store.bad_puts, 0);
    /* news travels by deltas, and what is gone is gone */
    kit_give(&k[1], 0, 200, 3);
    mesh_until(kit_holders(&k[0], kit_key(0, 202)) == 1 &&
               kit_holders(&k[2], kit_key(0, 200)) == 1);
    struct object_key gone = kit_key(0, 201);
    assert_int_equal(mesh_have_changed(k[1].m, NULL, 0, &gone, 1), 0);
    mesh_until(kit_holders(&k[0], gone) == 0);
    assert_int_equal(kit_holders(&k[0], kit_key(0, 202)), 1);
    /* nobody has it, no origin: a plain answer */
    kit_fetch_with(&k[2], &f[0], kit_key(0, 250), (struct mesh_want){.peers_only = true});
    kit_wait(&f[0]);
    assert_int_equal(f[0].r.code, ERR_NOTFOUND);
    for (int i = 0; i < 3; i++) {
        assert_int_equal((int)kit_status(&k[i], "connected"), 2);
    }
    for (int i = 0; i < 3; i++) {
        kit_free(&k[i]);
    }
}

static void test_in_memory_discovery(void **state)
{
    static const char *const host[3] = {"a", "b", "c"};
    struct kit_mesh k[3];
    struct err e = {0};
    uv_loop_t loop;
    three(k);
    assert_int_equal(uv_loop_init(&loop), 0);
    struct disco_bus *bus = disco_bus_new();
    assert_non_null(bus);
    kit_give(&k[0], 1, 0, 3);
    for (int i = 0; i < 3; i++) {
        ok(disco_bus_addr(bus, host[i], 1, "en0", 1, "127.0.0.1", 8, &e));
        k[i].o.loop = &loop;
        k[i].o.bus = bus;
        k[i].o.bus_host = host[i];
        k[i].o.no_bonjour = false;
        kit_open(&k[i]);
    }
    uint64_t end = uv_hrtime() + 60ull * 1000000000u;
    while (mesh_peers(k[0].m) + mesh_peers(k[1].m) + mesh_peers(k[2].m) < 6 && uv_hrtime() < end) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    assert_int_equal(mesh_peers(k[0].m) + mesh_peers(k[1].m) + mesh_peers(k[2].m), 6);
    struct kit_fetch f[3];
    while (kit_holders(&k[1], kit_key(1, 2)) < 1) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    for (unsigned i = 0; i < 3; i++) {
        kit_fetch(&k[1], &f[i], kit_key(1, i), FETCH_DEMAND);
    }
    while (!f[0].done || !f[1].done || !f[2].done) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    assert_int_equal(f[0].r.code | f[1].r.code | f[2].r.code, 0);
    assert_int_equal(k[1].store.bad_puts, 0);
    for (int i = 0; i < 3; i++) {
        kit_free(&k[i]);
    }
    while (uv_loop_alive(&loop)) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    disco_bus_free(bus);
    assert_int_equal(uv_loop_close(&loop), 0);
}

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
    mesh_until(mesh_peers(a->m) == 1 && mesh_peers(b->m) == 1);
}

/* Both dial each other: one connection stays, and it carries objects. */
static void test_one_connection(void **state)
{
    struct kit_mesh a, b;
    struct err e = {0};
    char text[64];
    pair(&a, &b);
    kit_give(&a, 1, 0, 8);
    kit_open(&a);
    kit_open(&b);
    snprintf(text, sizeof text, "127.0.0.1:%d", mesh_port(b.m));
    ok(mesh_add_static(a.m, text, &e));
    snprintf(text, sizeof text, "127.0.0.1:%d", mesh_port(a.m));
    ok(mesh_add_static(b.m, text, &e));
    mesh_until(mesh_peers(a.m) == 1 && mesh_peers(b.m) == 1);
    struct kit_fetch f[8];
    for (unsigned i = 0; i < 8; i++) {
        kit_fetch(&b, &f[i], kit_key(1, i), FETCH_DEMAND);
    }
    for (unsigned i = 0; i < 8; i++) {
        kit_wait(&f[i]);
        assert_int_equal(f[i].r.code, 0);
    }
    assert_int_equal(mesh_peers(a.m), 1);
    assert_int_equal(mesh_peers(b.m), 1);
    assert_int_equal(b.store.bad_puts, 0);
    kit_free(&b);
    kit_free(&a);
}

/* The keys are worn out after 12 MB: fresh connections take over under way. */
static void test_replaced_connection(void **state)
{
    struct kit_mesh a, b;
    pair(&a, &b);
    kit_give(&a, 1, 0, 16);
    a.o.replace_bytes = b.o.replace_bytes = 12u << 20;
    connect_pair(&a, &b);
    struct kit_fetch f[16];
    for (unsigned i = 0; i < 16; i++) {
        kit_fetch(&b, &f[i], kit_key(1, i), FETCH_DEMAND);
    }
    for (unsigned i = 0; i < 16; i++) {
        kit_wait(&f[i]);
        assert_int_equal(f[i].r.code, 0);
    }
    assert_int_equal(b.store.bad_puts, 0);
    mesh_until(mesh_peers(a.m) == 1 && mesh_peers(b.m) == 1);
    assert_true(kit_status(&a, "serve.bytes") > 64e6);
    assert_true(kit_status(&a, "peers.0.bytes_out") < 32e6); /* of the present connection */
    kit_free(&b);
    kit_free(&a);
}

/* Another model root: members, but no objects. None at all: the same. */
static void test_other_model(void **state)
{
    struct kit_mesh k[3];
    three(k);
    kit_give(&k[0], 0, 0, 10);
    k[1].o.model_root[0] ^= 1;
    k[2].o.has_model = false;
    connect_three(k);
    assert_int_equal(kit_holders(&k[1], kit_key(0, 0)), 0);
    struct kit_fetch f;
    kit_fetch_with(&k[1], &f, kit_key(0, 0), (struct mesh_want){.peers_only = true});
    kit_wait(&f);
    assert_int_equal(f.r.code, ERR_NOTFOUND);
    assert_true(kit_said(&k[0], "another model"));
    for (int i = 0; i < 3; i++) {
        kit_free(&k[i]);
    }
}

/* ---- coming and going ---- */

static void test_goodbye_and_restart(void **state)
{
    struct kit_mesh a, b;
    pair(&a, &b);
    connect_pair(&a, &b);
    for (int i = 0; i < 2; i++) {
        kit_close(&b);
        mesh_until(mesh_peers(a.m) == 0);
        assert_true(kit_said(&a, "says goodbye"));
        kit_open(&b);
        mesh_until(mesh_peers(a.m) == 1 && mesh_peers(b.m) == 1);
        assert_int_equal((int)kit_status(&a, "members"), 2);
        assert_int_equal((int)kit_status(&a, "connected"), 1);
    }
    /* the other way: the one that was dialled goes, and dials when it is back, elsewhere */
    kit_close(&a);
    mesh_until(mesh_peers(b.m) == 0);
    kit_open(&a);
    mesh_until(mesh_peers(a.m) == 1 && mesh_peers(b.m) == 1);
    kit_free(&b);
    kit_free(&a);
}

/* Dead addresses and a live peer: nothing is done in a loop. */
static void test_idle(void **state)
{
    struct kit_mesh a, b;
    pair(&a, &b);
    kit_static(&b, 1); /* nobody listens there */
    kit_static(&b, 2);
    kit_static(&b, 3);
    a.o.heartbeat_ms = b.o.heartbeat_ms = 0; /* as in use */
    a.o.look_ms = b.o.look_ms = 0;
    connect_pair(&a, &b);
    sleep(1);
    clock_t t = clock();
    sleep(3);
    double used = (double)(clock() - t) / CLOCKS_PER_SEC / 3 / 2; /* of a core, each mesh */
    print_message("idle: %.3f %% of a core\n", used * 100);
    assert_true(used < 0.1 * SLOWER); /* a bound for loops */
    kit_free(&b);
    kit_free(&a);
}

static void test_sleep_and_wake(void **state)
{
    struct kit_mesh a, b;
    pair(&a, &b);
    connect_pair(&a, &b);
    mesh_sleep(b.m);
    mesh_until(mesh_peers(a.m) == 0 && mesh_peers(b.m) == 0);
    usleep(300000);
    assert_int_equal(mesh_peers(a.m), 0);
    mesh_wake(b.m);
    mesh_until(mesh_peers(a.m) == 1 && mesh_peers(b.m) == 1);
    kit_free(&b);
    kit_free(&a);
}

static void test_removed_member(void **state)
{
    struct kit_mesh k[3];
    struct err e = {0};
    struct identity me;
    struct member m;
    struct key_id id;
    char s[ID_TEXT];
    three(k);
    connect_three(k);
    /* another process, as `shoal remove` does */
    ok(identity_open(k[0].home, NULL, &me, &e));
    ok(member_open(k[0].home, &me, &m, &e));
    id_text(mesh_id(k[2].m), s);
    ok(member_remove(&m, s, false, (uint64_t)time(NULL), &id, &e));
    member_close(&m);
    identity_close(&me);
    mesh_until(mesh_peers(k[2].m) == 0);
    mesh_until(mesh_peers(k[0].m) == 1 && mesh_peers(k[1].m) == 1);
    mesh_until(kit_said(&k[0], "is no member any more"));
    mesh_until(kit_said(&k[1], "is no member any more")); /* by roster */
    mesh_until(kit_said(&k[2], "removed from the shoal"));
    assert_int_equal((int)kit_status(&k[2], "removed"), 1);
    /* it comes again: refused by TLS, said at both ends */
    kit_close(&k[2]);
    kit_open(&k[2]);
    mesh_until(kit_said(&k[2], "has removed this node") || kit_said(&k[2], "was removed"));
    mesh_until(kit_status(&k[0], "refused.strangers") + kit_status(&k[1], "refused.strangers") > 0);
    assert_true(kit_said(&k[0], "removed") || kit_said(&k[1], "removed"));
    assert_int_equal(mesh_peers(k[2].m), 0);
    for (int i = 0; i < 3; i++) {
        kit_free(&k[i]);
    }
}

static void test_join_by_token(void **state)
{
    struct kit_mesh a, b, c;
    struct err e = {0};
    char token[TOKEN_TEXT_MAX];
    pair(&a, &b);
    connect_pair(&a, &b);
    memset(&c, 0, sizeof c);
    pthread_mutex_init(&c.mu, NULL);
    c.home = temp_home();
    kit_store_open(&c.store, false);
    kit_opts_for(&c);
    kit_static(&c, mesh_port(b.m));
    kit_open(&c); /* no shoal yet */
    assert_int_equal((int)kit_status(&c, "connected"), 0);
    fails(mesh_invite(b.m, 1, 60, token, &e), ERR_REFUSED, "keeper");
    /* no invite is open: the door is shut to strangers */
    struct token t;
    ok(mesh_invite(a.m, 1, 60, token, &e));
    ok(token_parse(token, strlen(token), &t, &e));
    t.secret[0] ^= 1;
    char wrong[TOKEN_TEXT_MAX];
    token_text(&t, wrong);
    fails(mesh_join(c.home, wrong, 0, NULL, NULL, &e), ERR_REFUSED, "not joined: ");
    assert_non_null(strstr(e.msg, "not taken in"));
    ok(mesh_join(c.home, token, 0, NULL, NULL, &e));
    char who[ID_SHORT], line[80];
    id_short(mesh_id(c.m), who);
    snprintf(line, sizeof line, "node %s joined the shoal by an invite", who);
    mesh_until(kit_said(&a, line));
    /* the running mesh notices, and B has heard of C by roster */
    mesh_until(mesh_peers(c.m) >= 1);
    mesh_until(mesh_peers(b.m) == 2);
    assert_int_equal((int)kit_status(&b, "members"), 3);
    kit_give(&b, 1, 0, 1);
    mesh_until(kit_holders(&c, kit_key(1, 0)) == 1);
    struct kit_fetch f;
    kit_fetch(&c, &f, kit_key(1, 0), FETCH_DEMAND);
    kit_wait(&f);
    assert_int_equal(f.r.code, 0);
    /* used up for anybody else */
    char *other = temp_home();
    memset(&e, 0, sizeof e);
    assert_int_not_equal(mesh_join(other, token, 5000, NULL, NULL, &e), 0);
    if (!strstr(e.msg, "used before")) {
        fail_msg("%s", e.msg);
    }
    drop_home(other);
    kit_free(&c);
    kit_free(&b);
    kit_free(&a);
}

/* B never hears of C from A; C, which knows B as a member, is dialled by B and shows the roster. */
static void test_roster_by_the_new_member(void **state)
{
    struct kit_mesh a, b, c;
    pair(&a, &b);
    kit_home(&c, &a); /* B's disk is a version behind */
    kit_open(&c);
    kit_static(&b, mesh_port(c.m));
    kit_open(&b);
    mesh_until(mesh_peers(b.m) == 1 && mesh_peers(c.m) == 1);
    assert_int_equal((int)kit_status(&b, "members"), 3);
    kit_free(&c);
    kit_free(&b);
    a.m = NULL;
    kit_free(&a);
}

static void test_cloned_home(void **state)
{
    struct kit_mesh a, b, copy;
    pair(&a, &b);
    b.o.machine_id = "machine one";
    connect_pair(&a, &b);
    memset(&copy, 0, sizeof copy);
    pthread_mutex_init(&copy.mu, NULL);
    copy.home = temp_home();
    assert_int_equal(shell("cp -a '%s/.' '%s/'", b.home, copy.home), 0);
    kit_store_open(&copy.store, false);
    kit_opts_for(&copy);
    copy.o.machine_id = "machine two";
    kit_static(&copy, mesh_port(a.m));
    kit_open(&copy);
    mesh_until(kit_said(&copy, "already here with your key"));
    mesh_until(kit_said(&b, "second machine has just come with your key"));
    mesh_until(kit_said(&a, "is running twice"));
    /* the copy may have been up for the moment that it took to find out */
    mesh_until(mesh_peers(copy.m) == 0 && mesh_peers(a.m) == 1 && mesh_peers(b.m) == 1);
    /* face to face */
    struct err e = {0};
    char text[64];
    snprintf(text, sizeof text, "127.0.0.1:%d", mesh_port(b.m));
    ok(mesh_add_static(copy.m, text, &e));
    mesh_until(kit_said(&copy, "another machine runs with this node's key"));
    mesh_until(kit_said(&b, "another machine runs with this node's key"));
    kit_free(&copy);
    kit_free(&b);
    kit_free(&a);
}

/* ---- protocol versions ---- */

static void test_versions(void **state)
{
    struct kit_mesh a, b;
    pair(&a, &b);
    b.o.version = 9;
    b.o.version_min = 1; /* a newer one that still speaks ours */
    kit_give(&a, 0, 0, 1);
    connect_pair(&a, &b);
    struct kit_fetch f;
    mesh_until(kit_holders(&b, kit_key(0, 0)) == 1);
    kit_fetch(&b, &f, kit_key(0, 0), FETCH_DEMAND);
    kit_wait(&f);
    assert_int_equal(f.r.code, 0);
    kit_close(&b);
    b.o.version_min = 9; /* and one that does not */
    kit_open(&b);
    mesh_until(kit_said(&a, "version"));
    mesh_until(kit_said(&b, "version"));
    mesh_until(mesh_peers(a.m) == 0);
    kit_free(&b);
    kit_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects_flow),
        cmocka_unit_test(test_in_memory_discovery),
        cmocka_unit_test(test_one_connection),
        cmocka_unit_test(test_replaced_connection),
        cmocka_unit_test(test_other_model),
        cmocka_unit_test(test_goodbye_and_restart),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_sleep_and_wake),
        cmocka_unit_test(test_removed_member),
        cmocka_unit_test(test_join_by_token),
        cmocka_unit_test(test_roster_by_the_new_member),
        cmocka_unit_test(test_cloned_home),
        cmocka_unit_test(test_versions),
    };
    if (getenv("KIT_ONLY")) {
        cmocka_set_test_filter(getenv("KIT_ONLY"));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
