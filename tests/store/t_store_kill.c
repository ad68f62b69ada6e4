/* SPDX-License-Identifier: MIT
 * t_store_kill.c: kill -9 at 50 random points of a process that fetches; then a run that fetches
 * exactly what is missing, counted by the server, and finds every object right. */
#include "tests/store/faulty.h"
#include "tests/store/util.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 5
#define KILLS 10

/* The server is a process of its own, so that this one has no threads where it forks. */
struct server {
    pid_t pid;
    int to, from, port;
};

static void server_main(int in, int out)
{
    struct faulty *f = faulty_start(DEMO_MODEL);
    faulty_slow(f, 4000);
    int port = faulty_port(f);
    if (write(out, &port, sizeof port) != sizeof port) {
        _exit(1);
    }
    char c;
    while (read(in, &c, 1) == 1 && c != 'q') {
        struct faulty_numbers n;
        faulty_get(f, &n);
        if (c == 'z') {
            faulty_zero(f);
        } else if (c == 'f') {
            faulty_slow(f, 0);
        } else if (c == 's') {
            faulty_slow(f, 4000);
        }
        if (write(out, &n, sizeof n) != sizeof n) {
            break;
        }
    }
    _exit(0);
}

static void server_start(struct server *s)
{
    int a[2], b[2];
    assert_int_equal(pipe(a), 0);
    assert_int_equal(pipe(b), 0);
    fflush(NULL);
    s->pid = fork();
    if (s->pid == 0) {
        close(a[1]);
        close(b[0]);
        server_main(a[0], b[1]);
    }
    close(a[0]);
    close(b[1]);
    s->to = a[1];
    s->from = b[0];
    assert_int_equal(read(s->from, &s->port, sizeof s->port), sizeof s->port);
}

static struct faulty_numbers ask(struct server *s, char c)
{
    struct faulty_numbers n;
    assert_int_equal(write(s->to, &c, 1), 1);
    assert_int_equal(read(s->from, &n, sizeof n), sizeof n);
    return n;
}

static void child(const char *url, const char *cache, unsigned seed)
{
    struct store_opts o = {
        .model = url, .cache_dir = cache, .ram_budget = 1 << 18, .disk_floor = 1};
    struct store *st;
    struct err e = {0};
    if (store_open(&o, &st, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        _exit(2);
    }
    uint32_t n = model_object_count(store_model(st)), *ids = malloc(n * sizeof *ids);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = (i * 7919u + seed) % n;
    }
    struct store_batch *b;
    if (n % 7919u == 0 || store_batch_begin(st, ids, n, STORE_DEMAND, &b, &e)) {
        _exit(3);
    }
    size_t which;
    struct store_view v;
    int r;
    while ((r = store_batch_next(b, &which, &v, &e)) != ERR_NOTFOUND) {
        if (r) {
            fprintf(stderr, "%s\n", e.msg);
            _exit(4);
        }
        store_release(st, &v);
    }
    store_batch_end(b);
    store_close(st);
    _exit(0);
}

static unsigned random_of(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 9;
}

static void t_kill(void **state)
{
    struct server sv;
    server_start(&sv);
    char *url = util_path("http://127.0.0.1:%d", sv.port);
    unsigned seed = (unsigned)time(NULL) ^ (unsigned)getpid();
    print_message("seed %u\n", seed);
    int killed = 0, resumed = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char *tmp = util_tmpdir(), *cache = util_path("%s/c", tmp);
        if (round) { /* the first round dies among the metadata, the others among the objects */
            ask(&sv, 'f');
            struct store_opts first = {.model = url, .cache_dir = cache, .disk_floor = 1};
            struct store *st1;
            assert_int_equal(store_open(&first, &st1, NULL), 0);
            store_close(st1);
        }
        ask(&sv, 's');
        for (int k = 0; k < KILLS; k++) {
            fflush(NULL);
            pid_t p = fork();
            if (p == 0) {
                child(url, cache, random_of(&seed));
            }
            usleep((useconds_t)(random_of(&seed) % (round ? 70000 : 30000)));
            kill(p, SIGKILL);
            int status;
            assert_int_equal(waitpid(p, &status, 0), p);
            if (WIFSIGNALED(status)) {
                killed++;
            } else {
                assert_int_equal(WEXITSTATUS(status), 0);
            }
        }
        ask(&sv, 'f');
        struct util_log log;
        util_log_init(&log);
        struct store_opts o = {.model = url,
                               .cache_dir = cache,
                               .ram_budget = 1 << 18,
                               .disk_floor = 1,
                               .log = util_log_line,
                               .log_ctx = &log};
        int parts = util_count_files(cache, ".part", NULL);
        struct store *st;
        struct err e = {0};
        if (store_open(&o, &st, &e)) {
            fail_msg("%s", e.msg);
        }
        const struct model *m = store_model(st);
        uint32_t n = model_object_count(m);
        /* what there is: finished files, and chunks on record of unfinished ones */
        uint64_t missing = 0, spare = 0;
        for (uint32_t id = 0; id < n; id++) {
            if (store_where(st, id) != STORE_DISK) {
                uint64_t size = model_object(m, id)->size;
                missing += size;
                char *rec = util_path("/%u.rec", id), *at;
                struct stat sb;
                if (util_count_files(cache, rec, &at) == 1 && stat(at, &sb) == 0 &&
                    sb.st_size >= 56) {
                    uint64_t have = (uint64_t)(sb.st_size / 56) << 20;
                    spare += have < size ? have : size;
                    resumed++;
                }
                free(at);
                free(rec);
            }
        }
        ask(&sv, 'z');
        for (uint32_t id = 0; id < n; id++) {
            struct store_view v;
            if (store_get(st, id, STORE_DEMAND, 0, &v, &e)) {
                fail_msg("%s", e.msg);
            }
            assert_true(util_right(m, DEMO_MODEL, &v));
            store_release(st, &v);
        }
        struct faulty_numbers k = ask(&sv, 'g');
        print_message("round %d: missing %llu, of that unfinished %llu (%d files); fetched %llu\n",
                      round, (unsigned long long)missing, (unsigned long long)spare, parts,
                      (unsigned long long)k.shard_bytes);
        assert_int_equal(k.shard_bytes, missing - spare);
        store_close(st);
        assert_int_equal(log.n, 0); /* nothing damaged, nothing to complain about */
        assert_int_equal(util_count_files(cache, "/tmp/s-", NULL), 0); /* orphans swept */
        /* and now nothing is missing */
        assert_int_equal(store_open(&o, &st, &e), 0);
        for (uint32_t id = 0; id < n; id++) {
            assert_int_equal(store_where(st, id), STORE_DISK);
        }
        store_close(st);
        util_log_free(&log);
        util_rmtree(tmp);
        free(tmp);
        free(cache);
    }
    print_message("%d of %d killed in the middle, %d objects resumed\n", killed, ROUNDS * KILLS,
                  resumed);
    assert_true(killed > ROUNDS * KILLS / 2);
    char q = 'q';
    assert_int_equal(write(sv.to, &q, 1), 1);
    waitpid(sv.pid, NULL, 0);
    close(sv.to);
    close(sv.from);
    free(url);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_kill)};
    return cmocka_run_group_tests_name("store_kill", t, NULL, NULL);
}
