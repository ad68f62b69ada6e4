/* SPDX-License-Identifier: MIT
 * t_guest.c: two processes on one home: one owns it, the other reads through it, and by itself when
 * the owner has gone or works on something else. */
#include "tests/daemon/node_kit.h"

#include <signal.h>

static uint64_t guest_fetches(struct kit_node *owner)
{
    return (uint64_t)kit_status(owner, "guests.fetches");
}

/* A has all; B's guest gets it from A through B, nobody asks the origin. */
static void test_through_the_owner(void **state)
{
    char url[128];
    struct kit_node a, b, g, h;
    struct err e = {0};
    struct demo_server *origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_open(&a, url, NULL);
    kit_get_all(&a, 0, 1);
    kit_open(&b, url, &a);
    kit_second(&g, &b);
    kit_open(&g, url, NULL);
    assert_false(node_owner(g.n));
    assert_null(node_mesh(g.n));
    assert_int_equal(node_port(g.n), 0);
    until(kit_status(&b, "peers.0.objects") == kit_count(&a));
    until(kit_status(&b, "guests.connected") == 1);
    demo_server_stop(origin);
    kit_get_all(&g, 0, 1);
    assert_int_equal(kit_stats(&g).origin_bytes, 0);
    assert_int_equal(kit_stats(&g).peer_bytes, kit_bytes(&g, 0, 1));
    assert_int_equal(guest_fetches(&b), kit_count(&g));
    assert_int_equal(kit_stats(&b).ram_used, 0);       /* it came to the disk, no farther */
    assert_int_equal(kit_status(&g, "pid"), getpid()); /* the owner's report */
    assert_int_equal(kit_status(&g, "coverage.own.objects"), kit_count(&g));
    /* what is on disk already needs no owner */
    kit_get_all(&g, 0, 3);
    kit_get_all(&b, 0, 3);
    assert_int_equal(guest_fetches(&b), kit_count(&g));
    /* its decode counts for the owner's serving, until it goes */
    node_computing(g.n, 1);
    until(kit_status(&b, "limits.yield.computing") == 1);
    node_computing(g.n, 1);
    node_computing(g.n, -1);
    kit_close(&g);
    until(kit_status(&b, "limits.yield.computing") == 0);
    until(kit_status(&b, "guests.connected") == 0);
    kit_second(&h, &b);
    h.o = g.o;
    h.o.home = h.home;
    h.o.must_own = true;
    fails(node_open(&h.o, &h.n, &e), ERR_BUSY, "a node runs in");
    kit_end(&h);
    kit_end(&g);
    kit_end(&b);
    kit_end(&a);
}

/* The owner closes in the middle; later another owns the home. */
static void test_owner_leaves(void **state)
{
    char url[128];
    struct kit_node b, g;
    struct demo_server *origin = kit_origin(url);
    kit_lonely(&b);
    kit_open(&b, url, NULL);
    kit_second(&g, &b);
    kit_open(&g, url, NULL);
    until(kit_status(&b, "guests.connected") == 1);
    uint32_t n = kit_count(&g), i = 0;
    for (; i < n / 4; i++) {
        kit_get(&g, i);
    }
    uint64_t through = guest_fetches(&b);
    assert_int_equal(through, i);
    kit_close(&b);
    for (; i < n / 2; i++) {
        kit_get(&g, i);
    }
    kit_open(&b, url, NULL);
    /* a new owner is looked for once a second: the objects that are left must last for so long */
    while (guest_fetches(&b) == 0) {
        assert_true(i < n);
        kit_get(&g, i++);
        usleep(30000);
    }
    for (; i < n; i++) {
        kit_get(&g, i);
    }
    kit_close(&b);
    kit_end(&g);
    kit_end(&b);
    demo_server_stop(origin);
}

/* Four at once want everything: the origin is asked for each object once. */
static void *want_all(void *ctx)
{
    struct kit_node *g = ctx;
    uint32_t n = kit_count(g);
    for (uint32_t i = 0; i < n; i++) {
        kit_get(g, i);
    }
    return NULL;
}

static void test_many_guests(void **state)
{
    enum { N = 4 };
    char url[128];
    struct kit_node b, g[N];
    pthread_t t[N];
    struct demo_server *origin = kit_origin(url);
    kit_lonely(&b);
    kit_open(&b, url, NULL);
    for (int i = 0; i < N; i++) {
        kit_second(&g[i], &b);
        kit_open(&g[i], url, NULL);
    }
    until(kit_status(&b, "guests.connected") == N);
    uint64_t before = kit_origin_bytes(origin);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, want_all, &g[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(t[i], NULL);
    }
    assert_true(kit_origin_bytes(origin) - before < kit_bytes(&b, 0, 1) + (1u << 20));
    for (int i = 0; i < N; i++) {
        kit_end(&g[i]);
    }
    kit_end(&b);
    demo_server_stop(origin);
}

/* Same home, another model: said, and it works by itself. */
static void test_another_model(void **state)
{
    char url[128];
    struct kit_node b, g;
    struct demo_server *origin = kit_origin(url);
    kit_lonely(&b);
    kit_open(&b, url, NULL);
    char *other = util_tmpdir(), *config = util_path("%s/config.json", other);
    util_copy_dir(DEMO_MODEL, other);
    FILE *f = fopen(config, "ab");
    assert_non_null(f);
    assert_true(fputs("\n", f) >= 0 && fclose(f) == 0);
    kit_second(&g, &b);
    kit_open(&g, other, NULL);
    until(util_log_has(&g.log, "another model"));
    for (uint32_t i = 0; i < 20; i++) {
        kit_get(&g, i);
    }
    assert_int_equal(kit_status(&b, "guests.connected"), 0);
    assert_int_equal(guest_fetches(&b), 0);
    assert_int_equal(util_log_has(&g.log, "another model"), 1);
    kit_end(&g);
    kit_end(&b);
    util_rmtree(other);
    free(other);
    free(config);
    demo_server_stop(origin);
}

/* A disk tier that holds next to nothing: right all the same. */
static void test_small_disk(void **state)
{
    char url[128];
    struct kit_node b, g;
    struct demo_server *origin = kit_origin(url);
    kit_lonely(&b);
    b.o.store.disk_budget = 2 << 20;
    kit_open(&b, url, NULL);
    kit_second(&g, &b);
    g.o.store.disk_budget = 2 << 20;
    kit_open(&g, url, NULL);
    until(kit_status(&b, "guests.connected") == 1);
    kit_get_all(&g, 0, 3);
    kit_end(&g);
    kit_end(&b);
    demo_server_stop(origin);
}

/* ---- a process of its own ---- */

static char *self;

static pid_t owner_process(const char *home, const char *url)
{
    int p[2];
    char c;
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        close(p[0]);
        dup2(p[1], 3);
        execl(self, self, "owner", home, url, (char *)NULL);
        _exit(127);
    }
    close(p[1]);
    assert_int_equal(read(p[0], &c, 1), 1);
    close(p[0]);
    return pid;
}

static int run_owner(char *home, const char *url)
{
    struct node *n;
    struct err e = {0};
    struct node_opts o = {.home = home,
                          .store = {.model = url, .ram_budget = 8 << 20, .disk_floor = 1 << 20},
                          .listen_host = "127.0.0.1",
                          .no_bonjour = true};
    if (node_open(&o, &n, &e) || write(3, "r", 1) != 1) {
        return 1;
    }
    for (;;) {
        pause();
    }
}

static void test_owner_killed(void **state)
{
    char url[128];
    struct kit_node home, g;
    int st;
    struct demo_server *origin = kit_origin(url);
    kit_lonely(&home);
    pid_t pid = owner_process(home.home, url);
    kit_second(&g, &home);
    kit_open(&g, url, NULL);
    assert_false(node_owner(g.n));
    until(kit_status(&g, "guests.connected") == 1);
    assert_int_equal(kit_status(&g, "pid"), pid);
    uint32_t n = kit_count(&g), ids[64];
    for (uint32_t i = 0; i < n / 3; i++) {
        kit_get(&g, i);
    }
    assert_int_equal(kit_stats(&g).experts_fetched, 0); /* the owner brought what came */
    for (uint32_t i = 0; i < 64; i++) {
        ids[i] = n / 3 + i;
    }
    store_hint(g.st, ids, 64); /* requests are under way when it dies */
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &st, 0), pid);
    for (uint32_t i = n / 3; i < n; i++) {
        kit_get(&g, i);
    }
    /* the next owner finds nothing in its way and the cache whole */
    kit_close(&g); /* what it fetched itself is published then */
    uint64_t before = kit_origin_bytes(origin);
    kit_open(&home, url, NULL);
    assert_true(node_owner(home.n));
    kit_get_all(&home, 0, 1);
    assert_true(kit_origin_bytes(origin) == before);
    kit_end(&g);
    kit_end(&home);
    demo_server_stop(origin);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_through_the_owner), cmocka_unit_test(test_owner_leaves),
        cmocka_unit_test(test_many_guests),       cmocka_unit_test(test_another_model),
        cmocka_unit_test(test_small_disk),        cmocka_unit_test(test_owner_killed),
    };
    self = argv[0];
    if (argc == 4 && !strcmp(argv[1], "owner")) {
        return run_owner(argv[2], argv[3]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
