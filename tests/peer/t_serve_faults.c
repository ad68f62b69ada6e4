/* SPDX-License-Identifier: MIT
 * t_serve_faults.c: what bad peers can do. They are child processes that are killed or
 * stopped, meshes with lying stores, and a bare connection that says what it likes. */
#include "tests/peer/bare_mesh.h"

#include <signal.h>
#include <stdatomic.h>

static const char *program;

static void pair(struct kit_mesh *a, struct kit_mesh *b)
{
    kit_home(a, NULL);
    kit_home(b, a);
}

static void test_liar(void **state)
{
    static const enum kit_lie lies[] = {KIT_FLIP, KIT_ZEROS, KIT_DAMAGED};
    for (size_t n = 0; n < 3; n++) {
        struct kit_mesh a, b, liar;
        pair(&a, &b);
        kit_home(&liar, &a);
        kit_give(&a, 1, 0, 8);
        kit_give(&liar, 1, 0, 8);
        liar.store.lie = lies[n];
        kit_open(&liar);
        kit_static(&a, mesh_port(liar.m));
        kit_open(&a);
        kit_static(&b, mesh_port(a.m));
        kit_static(&b, mesh_port(liar.m));
        kit_open(&b);
        mesh_until(kit_holders(&b, kit_key(1, 7)) == 2);
        struct kit_fetch f[8];
        for (unsigned i = 0; i < 8; i++) {
            kit_fetch(&b, &f[i], kit_key(1, i), FETCH_DEMAND);
        }
        for (unsigned i = 0; i < 8; i++) {
            kit_wait(&f[i]);
            if (f[i].r.code) {
                fail_msg("%s", f[i].r.err.msg);
            }
        }
        assert_int_equal(b.store.bad_puts, 0);
        assert_int_equal(b.store.puts, 8);
        if (lies[n] != KIT_DAMAGED && kit_status(&b, "fetch.bad_chunks") > 0) {
            mesh_until(kit_said(&liar, "is bad in chunk")); /* it is told */
        }
        kit_free(&liar);
        kit_free(&b);
        kit_free(&a);
    }
}

/* The child's part: a mesh that has everything, until its input ends. */
static int child(char **arg)
{
    struct kit_mesh k;
    char c, *end;
    memset(&k, 0, sizeof k);
    pthread_mutex_init(&k.mu, NULL);
    k.home = strdup(arg[0]);
    kit_store_open(&k.store, false);
    kit_give(&k, 0, 0, KIT_OBJECTS);
    kit_give(&k, 1, 0, KIT_OBJECTS);
    kit_opts_for(&k);
    k.o.out_bytes_s = strtoull(arg[1], &end, 10);
    assert_int_equal(*end, 0);
    kit_open(&k);
    printf("%d\n", mesh_port(k.m));
    fflush(stdout);
    while (read(0, &c, 1) > 0) {
    }
    kit_close(&k);
    kit_store_close(&k.store);
    free(k.log);
    free(k.home);
    return 0;
}

struct kid {
    pid_t pid;
    int in, port;
};

static struct kid spawn(const char *home, unsigned rate)
{
    struct kid k = {0};
    int in[2], out[2];
    char text[32], line[32] = "";
    snprintf(text, sizeof text, "%u", rate);
    assert_int_equal(pipe(in) | pipe(out), 0);
    k.pid = fork();
    assert_true(k.pid >= 0);
    if (k.pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execl(program, program, "child", home, text, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    for (size_t n = 0; n < sizeof line - 1 && read(out[0], line + n, 1) == 1 && line[n] != '\n';
         n++) {
    }
    close(out[0]);
    k.in = in[1];
    k.port = (int)strtol(line, NULL, 10);
    assert_true(k.port > 0 && k.port < 65536);
    return k;
}

static void reap(struct kid *k)
{
    close(k->in);
    waitpid(k->pid, NULL, 0);
}

static void test_killed_peer(void **state)
{
    struct kit_mesh a, b, home;
    pair(&a, &b);
    kit_home(&home, &a);
    kit_give(&a, 1, 0, 12);
    struct kid k = spawn(home.home, 6u << 20);
    kit_open(&a);
    kit_static(&b, mesh_port(a.m));
    kit_static(&b, k.port);
    kit_open(&b);
    mesh_until(kit_holders(&b, kit_key(1, 11)) == 2);
    struct kit_fetch f[12];
    for (unsigned i = 0; i < 12; i++) {
        kit_fetch(&b, &f[i], kit_key(1, i), FETCH_DEMAND);
    }
    kit_wait(&f[1]);
    kill(k.pid, SIGKILL);
    for (unsigned i = 0; i < 12; i++) {
        kit_wait(&f[i]);
        assert_int_equal(f[i].r.code, 0);
    }
    assert_int_equal(b.store.bad_puts, 0);
    mesh_until(mesh_peers(b.m) == 1); /* no ghost */
    reap(&k);
    /* started anew on the same home, under another port: it is a member still */
    k = spawn(home.home, 0);
    struct err e = {0};
    char text[64];
    snprintf(text, sizeof text, "127.0.0.1:%d", k.port);
    ok(mesh_add_static(b.m, text, &e));
    mesh_until(mesh_peers(b.m) == 2);
    /* stopped: connected, but silent; dead after three heartbeats, back when it runs again */
    kill(k.pid, SIGSTOP);
    mesh_until(mesh_peers(b.m) == 1);
    assert_true(kit_said(&b, "taken for dead"));
    kill(k.pid, SIGCONT);
    mesh_until(mesh_peers(b.m) == 2);
    reap(&k);
    mesh_until(mesh_peers(b.m) == 1);
    home.m = NULL;
    kit_free(&home);
    kit_free(&b);
    kit_free(&a);
}

/* ---- a bare connection ---- */

static void bare_have(struct bare *b, uint64_t seq, uint32_t first)
{
    Shoal__HaveRow row = SHOAL__HAVE_ROW__INIT, *rows[1] = {&row};
    Shoal__Have h = SHOAL__HAVE__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    uint8_t bits = 1;
    row.kind = 1;
    row.first = first;
    row.bits.data = &bits;
    row.bits.len = 1;
    h.seq = seq;
    h.last = true;
    h.n_rows = 1;
    h.rows = rows;
    f.kind_case = SHOAL__FRAME__KIND_HAVE;
    f.have = &h;
    bare_send(b, &f);
}

static void bare_delta(struct bare *b, uint64_t seq, uint32_t first)
{
    Shoal__HaveSpan span = SHOAL__HAVE_SPAN__INIT, *spans[1] = {&span};
    Shoal__HaveDelta d = SHOAL__HAVE_DELTA__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    span.kind = 1;
    span.first = first;
    span.count = 1;
    d.seq = seq;
    d.n_added = 1;
    d.added = spans;
    f.kind_case = SHOAL__FRAME__KIND_HAVE_DELTA;
    f.have_delta = &d;
    bare_send(b, &f);
}

/* A delta is lost: the mesh asks, and knows again after the snapshot. */
static void test_gap(void **state)
{
    struct kit_mesh a;
    struct bare b;
    kit_home(&a, NULL);
    bare_open(&b, &a);
    kit_open(&a);
    bare_connect(&b, mesh_port(a.m));
    bare_hello(&b);
    bare_until(&b, b.kinds[SHOAL__FRAME__KIND_HELLO] && b.kinds[SHOAL__FRAME__KIND_CREDIT]);
    bare_have(&b, 5, 8);
    bare_until(&b, kit_holders(&a, kit_key(0, 8)) == 1);
    bare_delta(&b, 6, 9);
    bare_until(&b, kit_holders(&a, kit_key(0, 9)) == 1);
    bare_delta(&b, 8, 11); /* 7 is missing */
    bare_until(&b, b.kinds[SHOAL__FRAME__KIND_HAVE_ASK] == 1);
    assert_int_equal(b.asked_seq, 6);
    assert_int_equal(kit_holders(&a, kit_key(0, 11)), 0);
    bare_delta(&b, 9, 12); /* not asked again for it */
    bare_have(&b, 9, 16);
    bare_until(&b, kit_holders(&a, kit_key(0, 16)) == 1);
    assert_int_equal(kit_holders(&a, kit_key(0, 8)), 0);
    bare_delta(&b, 10, 20);
    bare_until(&b, kit_holders(&a, kit_key(0, 20)) == 1);
    assert_int_equal(b.kinds[SHOAL__FRAME__KIND_HAVE_ASK], 1);
    bare_close(&b);
    mesh_until(kit_holders(&a, kit_key(0, 20)) == 0);
    kit_free(&a);
}

/* Claims everything and gives nothing; sends what it may not; is closed with a sentence. */
static void test_rude(void **state)
{
    struct kit_mesh a, c;
    struct bare b;
    pair(&a, &c);
    bare_open(&b, &a);
    kit_give(&c, 0, 0, 1);
    kit_open(&a);
    kit_static(&c, mesh_port(a.m));
    bare_connect(&b, mesh_port(a.m));
    bare_hello(&b);
    bare_until(&b, mesh_peers(a.m) == 1);
    bare_have(&b, 1, 0);
    bare_until(&b, kit_holders(&a, kit_key(0, 0)) == 1);
    kit_open(&c);
    bare_until(&b, kit_holders(&a, kit_key(0, 0)) == 2);
    struct kit_fetch f;
    kit_fetch(&a, &f, kit_key(0, 0), FETCH_DEMAND);
    bare_until(&b, atomic_load(&f.done));
    assert_int_equal(f.r.code, 0);
    assert_int_equal(a.store.bad_puts, 0);
    bare_hello(&b); /* again: nothing new */
    bare_have(&b, 2, 7);
    bare_until(&b, kit_holders(&a, kit_key(0, 7)) == 1);
    b.home.o.model_root[0] ^= 1;
    bare_hello(&b);
    b.home.o.model_root[0] ^= 1;
    bare_until(&b, b.log.closes);
    assert_int_equal(b.goodbye, SHOAL__GOODBYE_REASON__GOODBYE_PROTOCOL);
    assert_true(strstr(b.text, "Hello with another model"));
    mesh_until(mesh_peers(a.m) == 1);
    /* anything but Hello first */
    bare_connect(&b, mesh_port(a.m));
    bare_delta(&b, 1, 1);
    bare_until(&b, b.log.closes);
    assert_int_equal(b.goodbye, SHOAL__GOODBYE_REASON__GOODBYE_PROTOCOL);
    /* no hello at all: closed after a while */
    bare_connect(&b, mesh_port(a.m));
    bare_until(&b, b.log.closes);
    /* an id that is not its own */
    bare_connect(&b, mesh_port(a.m));
    b.me.id.b[0] ^= 1;
    bare_hello(&b);
    b.me.id.b[0] ^= 1;
    bare_until(&b, b.log.closes);
    assert_true(strstr(b.text, "not that of its key"));
    /* another shoal */
    bare_connect(&b, mesh_port(a.m));
    b.member.group.b[0] ^= 1;
    bare_hello(&b);
    b.member.group.b[0] ^= 1;
    bare_until(&b, b.log.closes);
    assert_int_equal(b.goodbye, SHOAL__GOODBYE_REASON__GOODBYE_GROUP);
    assert_int_equal(mesh_peers(a.m), 1);
    bare_close(&b);
    kit_free(&c);
    kit_free(&a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_liar),
        cmocka_unit_test(test_killed_peer),
        cmocka_unit_test(test_gap),
        cmocka_unit_test(test_rude),
    };
    program = argv[0];
    if (argc == 4 && strcmp(argv[1], "child") == 0) {
        return child(argv + 2);
    }
    if (getenv("KIT_ONLY")) {
        cmocka_set_test_filter(getenv("KIT_ONLY"));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
