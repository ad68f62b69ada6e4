/* SPDX-License-Identifier: MIT
 * t_mesh_life.c: a member that stops, dies in silence, comes back, sleeps; another process that
 * sits on the lock of a home; what an idle mesh costs. The other member is a process of its own:
 * this program again, with arguments. */
#include "tests/peer/mesh_kit.h"

#include "peer/home.h"
#include "peer/member.h"

#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
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

static const char *self;

/* ---- the other process ---- */

static volatile sig_atomic_t stop;

static void on_term(int sig)
{
    (void)sig;
    stop = 1;
}

/* HOME PORT PEER-PORT: a mesh until SIGTERM. Prints its port. */
static int child(char **argv)
{
    struct kit_mesh k;
    struct err e = {0};
    memset(&k, 0, sizeof k);
    pthread_mutex_init(&k.mu, NULL);
    signal(SIGTERM, on_term);
    k.home = argv[0];
    kit_store_open(&k.store, false);
    kit_opts_for(&k);
    k.o.listen_port = (int)strtol(argv[1], NULL, 10);
    int peer = (int)strtol(argv[2], NULL, 10);
    if (peer) {
        kit_static(&k, peer);
    }
    if (mesh_open(&k.o, &k.m, &e)) {
        fprintf(stderr, "child: %s\n", e.msg);
        return 1;
    }
    printf("%d\n", mesh_port(k.m));
    fflush(stdout);
    while (!stop) {
        usleep(10000);
    }
    kit_close(&k);
    kit_store_close(&k.store);
    free(k.log);
    return 0;
}

struct other {
    struct kit_mesh k; /* its home */
    pid_t pid;
    int port;
};

static void start(struct other *b, int peer_port)
{
    int p[2];
    char port[16], peer[16], line[32] = "";
    assert_int_equal(pipe(p), 0);
    snprintf(port, sizeof port, "%d", b->port);
    snprintf(peer, sizeof peer, "%d", peer_port);
    b->pid = fork();
    if (b->pid == 0) {
        dup2(p[1], 1);
        close(p[0]);
        close(p[1]);
        execl(self, self, "child", b->k.home, port, peer, (char *)NULL);
        _exit(127);
    }
    close(p[1]);
    ssize_t n = read(p[0], line, sizeof line - 1);
    close(p[0]);
    assert_true(n > 1);
    b->port = (int)strtol(line, NULL, 10);
}

static void end(struct other *b, int sig)
{
    int st;
    kill(b->pid, sig);
    assert_int_equal(waitpid(b->pid, &st, 0), b->pid);
    if (sig == SIGTERM) {
        assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 0);
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void pair(struct kit_mesh *a, struct other *b)
{
    kit_home(a, NULL);
    memset(b, 0, sizeof *b);
    kit_home(&b->k, a);
}

static void finish(struct kit_mesh *a, struct other *b)
{
    b->k.m = NULL;
    kit_free(&b->k);
    kit_free(a);
}

/* The longest that an address of the other row is left alone, in seconds; -1: no row. */
static double retry_in(struct kit_mesh *k)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, 8u << 20);
    ok(mesh_why(k->m, &b, &e));
    json_t *root = json_loadb(b.p, b.n, 0, NULL), *row, *addr;
    double worst = -1;
    size_t i, j;
    json_array_foreach(json_object_get(root, "peers"), i, row)
    {
        json_array_foreach(json_object_get(row, "addresses"), j, addr)
        {
            double s = json_number_value(json_object_get(addr, "retry_in_s"));
            worst = s > worst ? s : worst;
        }
    }
    json_decref(root);
    buf_free(&b);
    return worst;
}

/* When that time is over, by seconds(): somewhere between the two. */
struct span {
    double from, to;
};

static struct span due(struct kit_mesh *k)
{
    struct span s = {.from = seconds()};
    double in = retry_in(k);
    s.from += in;
    s.to = seconds() + in;
    return s;
}

/* It stands still, is taken for dead, is killed, and comes back under its address: it dials whom it
 * remembers, at once. No ghost is left meanwhile. */
static void dies_in_silence_and_comes_back(void **state)
{
    struct kit_mesh a;
    struct other b;
    pair(&a, &b);
    kit_open(&a);
    start(&b, mesh_port(a.m));
    mesh_until(mesh_peers(a.m) == 1);
    mesh_until(home_has(b.k.home, "addresses"));
    kill(b.pid, SIGSTOP);
    mesh_until(mesh_peers(a.m) == 0);
    assert_true(kit_said(&a, "taken for dead"));
    assert_int_equal((int)kit_status(&a, "connected"), 0);
    end(&b, SIGKILL);
    double t = seconds();
    start(&b, 0); /* nobody tells it where A is */
    mesh_until(mesh_peers(a.m) == 1);
    t = seconds() - t;
    print_message("back after %.2f s\n", t);
    end(&b, SIGTERM);
    finish(&a, &b);
}

/* B cannot dial A: A dials it again soon after a goodbye. */
static void stopped_and_started_again(void **state)
{
    struct kit_mesh a;
    struct other b;
    pair(&a, &b);
    start(&b, 0);
    kit_static(&a, b.port);
    kit_open(&a);
    mesh_until(mesh_peers(a.m) == 1);
    end(&b, SIGTERM);
    mesh_until(mesh_peers(a.m) == 0);
    assert_true(kit_said(&a, "says goodbye"));
    mesh_until(retry_in(&a) > 5);
    assert_true(retry_in(&a) <= 10.1);
    unlink(at(b.k.home, "addresses")); /* it remembers nobody */
    double t = seconds();
    start(&b, 0);
    mesh_until(mesh_peers(a.m) == 1);
    t = seconds() - t;
    print_message("met again after %.2f s\n", t);
    end(&b, SIGTERM);
    finish(&a, &b);
}

static void asleep_is_left_alone(void **state)
{
    struct kit_mesh a, b;
    kit_home(&a, NULL);
    kit_home(&b, &a);
    kit_open(&b);
    kit_static(&a, mesh_port(b.m));
    kit_open(&a);
    mesh_until(mesh_peers(a.m) == 1 && mesh_peers(b.m) == 1);
    mesh_sleep(b.m);
    mesh_sleep(b.m);
    mesh_until(mesh_peers(a.m) == 0);
    mesh_until(retry_in(&a) > 250);
    for (int i = 0; i < 5; i++) { /* a storm of wakes is one */
        mesh_wake(b.m);
        mesh_network_changed(b.m);
    }
    /* in less than those 250 s */
    mesh_until(mesh_peers(a.m) == 1 && mesh_peers(b.m) == 1);
    kit_free(&b);
    kit_free(&a);
}

/* Back-off survives wakes: whoever fails for long is tried once at a wake, not from the start. */
static void waking_keeps_the_back_off(void **state)
{
    struct kit_mesh a;
    kit_home(&a, NULL);
    kit_static(&a, 1); /* nobody listens there */
    kit_open(&a);
    mesh_until(retry_in(&a) > 1.7); /* two failures */
    struct span before = due(&a);
    mesh_wake(a.m);
    usleep(100000);
    struct span after = due(&a);
    /* not at once, it was tried a moment ago: when it is due is as before, or that time has come */
    if (seconds() < before.from) {
        assert_true(after.from <= before.to + 0.1 && before.from <= after.to + 0.1);
    }
    kit_free(&a);
}

struct joining {
    const char *home, *token;
    struct err e;
    int r;
};

static void *join_thread(void *arg)
{
    struct joining *j = arg;
    j->r = mesh_join(j->home, j->token, 0, NULL, NULL, &j->e);
    return NULL;
}

/* Somebody sits on the lock of A's home: A's heartbeat, objects and answers go on, a roster and a
 * join that come meanwhile are taken later. */
static void a_lock_that_is_held(void **state)
{
    struct kit_mesh a, b, c;
    struct err e = {0};
    char token[TOKEN_TEXT_MAX];
    int lock;
    kit_home(&a, NULL);
    kit_home(&b, &a);
    kit_open(&a);
    kit_static(&b, mesh_port(a.m));
    kit_open(&b);
    mesh_until(mesh_peers(a.m) == 1 && mesh_peers(b.m) == 1);
    kit_give(&a, 0, 0, 40);
    memset(&c, 0, sizeof c);
    c.home = temp_home();
    ok(mesh_invite(a.m, 1, 60, token, &e));
    struct joining j = {.home = c.home, .token = token};
    pthread_t thread;
    /* on B: the roster that A sends after the join waits */
    ok(home_lock(b.home, &lock, &e));
    ok(mesh_join(c.home, token, 0, NULL, NULL, &e));
    mesh_until((int)kit_status(&a, "members") == 3);
    double t = seconds(), quick = 1e9;
    for (unsigned i = 0; seconds() - t < 1.5; i = (i + 1) % 40) {
        struct kit_fetch f;
        double t0 = seconds();
        kit_fetch(&b, &f, kit_key(0, i), FETCH_DEMAND);
        kit_wait(&f);
        assert_int_equal(f.r.code, 0);
        assert_int_equal((int)kit_status(&b, "members"), 2);
        t0 = seconds() - t0;
        quick = t0 < quick ? t0 : quick;
    }
    /* nothing waits for the lock, not even for a while; the quickest, since the machine may be busy
     */
    assert_true(quick < 0.5 * SLOWER);
    assert_int_equal(mesh_peers(b.m), 1);
    home_unlock(lock);
    mesh_until((int)kit_status(&b, "members") == 3);
    /* on A: a join waits, and the keeper answers meanwhile */
    struct kit_mesh d;
    memset(&d, 0, sizeof d);
    d.home = temp_home();
    ok(mesh_invite(a.m, 1, 60, token, &e));
    j.home = d.home;
    ok(home_lock(a.home, &lock, &e));
    assert_int_equal(pthread_create(&thread, NULL, join_thread, &j), 0);
    for (t = seconds(), quick = 1e9; seconds() - t < 1.5;) {
        double t0 = seconds();
        assert_int_equal((int)kit_status(&a, "members"), 3);
        t0 = seconds() - t0;
        quick = t0 < quick ? t0 : quick;
        usleep(20000);
    }
    assert_true(quick < 0.5 * SLOWER);
    assert_int_equal(mesh_peers(a.m), 1);
    home_unlock(lock);
    pthread_join(thread, NULL);
    if (j.r) {
        fail_msg("%s", j.e.msg);
    }
    mesh_until((int)kit_status(&b, "members") == 4);
    drop_home(d.home);
    drop_home(c.home);
    kit_free(&b);
    kit_free(&a);
}

/* Dead, refusing and sleeping peers, and one that lives: as in use, with known networks. */
static void idle_with_dead_peers(void **state)
{
    struct kit_mesh a;
    struct other b;
    struct rusage r0, r1;
    pair(&a, &b);
    for (int i = 1; i < 4; i++) {
        kit_static(&a, i);
    }
    a.o.heartbeat_ms = a.o.look_ms = 0;
    a.o.known_networks = true;
    kit_open(&a);
    start(&b, mesh_port(a.m));
    mesh_until(mesh_peers(a.m) == 1);
    kill(b.pid, SIGSTOP); /* silent from here on */
    sleep(1);
    getrusage(RUSAGE_SELF, &r0);
    double t = seconds();
    sleep(3);
    t = seconds() - t;
    getrusage(RUSAGE_SELF, &r1);
    double used = (double)(r1.ru_utime.tv_sec - r0.ru_utime.tv_sec) +
                  (double)(r1.ru_stime.tv_sec - r0.ru_stime.tv_sec) +
                  (double)(r1.ru_utime.tv_usec - r0.ru_utime.tv_usec) / 1e6 +
                  (double)(r1.ru_stime.tv_usec - r0.ru_stime.tv_usec) / 1e6;
    print_message("idle: %.3f %% of a core\n", used / t * 100);
    assert_true(used / t < 0.1 * SLOWER); /* 0.3 % on a quiet machine; a loop takes all */
    kill(b.pid, SIGCONT);
    end(&b, SIGTERM);
    finish(&a, &b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dies_in_silence_and_comes_back),
        cmocka_unit_test(stopped_and_started_again),
        cmocka_unit_test(asleep_is_left_alone),
        cmocka_unit_test(waking_keeps_the_back_off),
        cmocka_unit_test(a_lock_that_is_held),
        cmocka_unit_test(idle_with_dead_peers),
    };
    self = argv[0];
    if (argc == 5 && strcmp(argv[1], "child") == 0) {
        return child(argv + 2);
    }
    if (getenv("KIT_ONLY")) {
        cmocka_set_test_filter(getenv("KIT_ONLY"));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
