/* SPDX-License-Identifier: MIT
 * t_store_kill_evict.c: kill -9 at random points of a process that fetches and evicts, changes its
 * budget, adopts a folder and gives it up, and moves its cache there and back. After each kill
 * catalog, files and bitmap agree, nothing is left over that a start does not clear away or take
 * up, and every object on disk is right. In the suite a few kills; `t_store_kill_evict N` makes N
 * of them. */
#include "tests/store/agree.h"
#include "tests/store/util.h"

#include "node/store/adopt_list.h"
#include "node/store/budget.h"
#include "node/store/engine.h"
#include "node/store/rest_move.h"
#include "node/store/upkeep.h"
#include "proto/base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILLS 20
#define AT_ONCE 24

static unsigned kills = KILLS;

static unsigned random_of(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 9;
}

/* The budget, or the list of adopted folders. */
static void change(struct store *st, const char *folder, unsigned *seed)
{
    struct err e = {0};
    int r;
    if (random_of(seed) % 2) {
        uint64_t budget = 2000000 + random_of(seed) % 8 * 500000;
        r = store_set_budget(st, &budget, NULL, &e);
    } else {
        struct adopt_list l = {.n = 0};
        size_t changed;
        r = adopt_find(folder, &l, &e);
        r = r ? r : adopt_list_change(st->cache_dir, &l, random_of(seed) % 2, &changed, &e);
        adopt_list_free(&l);
        store_adopt_look(st);
    }
    if (r) {
        fprintf(stderr, "%s\n", e.msg);
        _exit(6);
    }
}

static void fetch_some(struct store *st, unsigned *seed)
{
    struct store_batch *b;
    struct store_view v;
    struct err e = {0};
    uint32_t ids[AT_ONCE], n = model_object_count(store_model(st)), from = random_of(seed) % n;
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        ids[i] = (from + i * 61) % n;
    }
    if (store_batch_begin(st, ids, AT_ONCE, STORE_DEMAND, &b, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        _exit(3);
    }
    size_t which;
    int r;
    while ((r = store_batch_next(b, &which, &v, &e)) != ERR_NOTFOUND) {
        if (r) {
            fprintf(stderr, "%s\n", e.msg);
            _exit(4);
        }
        store_release(st, &v);
    }
    store_batch_end(b);
}

/* To the other folder, by copies or second names. An earlier one that was killed is gone on with.
 */
static void move_over(const char *cache, const char *beside, unsigned *seed)
{
    struct buf at;
    struct err e = {0};
    struct rest_moved m;
    buf_init(&at, PLACE_PATH_MAX);
    if (place_find(cache, &at, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        _exit(7);
    }
    struct rest_move o = {.cache = cache,
                          .to = strcmp(at.p, cache) ? cache : beside,
                          .copy = random_of(seed) % 4 != 0};
    if (rest_move(&o, &m, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        _exit(8);
    }
    buf_free(&at);
}

/* Until it is killed; from a pipe's other end it is seen when it has been opened. */
static void child(const char *cache, const char *beside, const char *folder, unsigned seed,
                  int opened)
{
    struct store_opts o = {
        .model = DEMO_MODEL, .cache_dir = cache, .ram_budget = 1 << 18, .disk_floor = 1};
    struct store *st;
    struct err e = {0};
    bool told = random_of(&seed) % 8 != 0; /* sometimes it is killed while it opens */
    if (!told && write(opened, "o", 1) != 1) {
        _exit(5);
    }
    if (random_of(&seed) % 3 == 0) {
        if (told && write(opened, "o", 1) != 1) {
            _exit(5);
        }
        told = false;
        move_over(cache, beside, &seed);
    }
    if (store_open(&o, &st, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        _exit(2);
    }
    if (told && write(opened, "o", 1) != 1) {
        _exit(5);
    }
    for (unsigned i = 0;; i++) {
        fetch_some(st, &seed);
        if (random_of(&seed) % 3 == 0) {
            change(st, folder, &seed);
        }
        if (i % 16 == 15) { /* an orderly end, and a move, too */
            store_close(st);
            move_over(cache, beside, &seed);
            if (store_open(&o, &st, &e)) {
                fprintf(stderr, "%s\n", e.msg);
                _exit(2);
            }
        }
    }
}

/* Returns the number of objects on disk. */
static uint32_t look(const char *named, uint32_t *partial)
{
    struct buf at;
    struct util_log log;
    struct store_opts o = {.model = DEMO_MODEL,
                           .cache_dir = named,
                           .disk_budget = UINT64_MAX / 4,
                           .disk_floor = 1,
                           .log = util_log_line};
    struct store *st;
    struct err e = {0};
    util_log_init(&log);
    o.log_ctx = &log;
    buf_init(&at, PLACE_PATH_MAX);
    if (store_open(&o, &st, &e) || place_find(named, &at, &e)) {
        fail_msg("%s", e.msg);
    }
    const char *cache = at.p; /* which of the two it is now */
    struct store_upkeep u;    /* what a folder offers is read once, in the background */
    uint64_t end = clock_ns() + 120000000000u;
    do {
        store_get_upkeep(st, &u);
        usleep(1000);
    } while (u.to_look && clock_ns() < end);
    assert_int_equal(u.to_look, 0);
    uint32_t files = agree(st->disk, cache, st->m);
    for (uint32_t id = 0; id < st->n_ent; id++) {
        *partial += disk_has_partial(st->disk, id);
        if (disk_has(st->disk, id)) {
            uint64_t n = model_object(st->m, id)->size;
            uint8_t *have = malloc(n), *want = util_truth(st->m, DEMO_MODEL, id);
            if (disk_read(st->disk, id, have, &e)) {
                fail_msg("%s", e.msg);
            }
            assert_memory_equal(have, want, n);
            free(have);
            free(want);
        }
    }
    assert_int_equal(agree_orphans(st->disk, cache, st->m), 0);
    assert_int_equal(agree_cut_off(cache), 0);
    static const char *const bad[] = {"damaged", "missing", "digest", "cannot", "wrong"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(util_log_has(&log, bad[i]), 0);
    }
    store_close(st);
    util_log_free(&log);
    buf_free(&at);
    return files;
}

static bool is_moving(const char *dir)
{
    char *p = util_path("%s/moving", dir);
    bool is = access(p, F_OK) == 0;
    free(p);
    return is;
}

static void t_kill_evict(void **state)
{
    (void)state;
    char *tmp = util_tmpdir(), *cache = util_path("%s/c", tmp), *folder = util_path("%s/f", tmp);
    char *beside = util_path("%s/b", tmp);
    util_copy_dir(DEMO_MODEL, folder);
    static const unsigned away[] = {1, 4, 5, 9}; /* it holds a part */
    for (size_t i = 0; i < sizeof away / sizeof *away; i++) {
        char *p = util_path("%s/model-0000%u-of-000009.safetensors", folder, away[i]);
        assert_int_equal(unlink(p), 0);
        free(p);
    }
    unsigned seed = (unsigned)time(NULL) ^ (unsigned)getpid();
    uint32_t partial = 0, files = 0, moving = 0;
    print_message("seed %u\n", seed);
    look(cache, &partial); /* makes it */
    for (unsigned k = 0; k < kills; k++) {
        int p[2];
        char c;
        assert_int_equal(pipe(p), 0);
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            close(p[0]);
            child(cache, beside, folder, random_of(&seed) + k, p[1]);
        }
        close(p[1]);
        assert_int_equal(read(p[0], &c, 1), 1);
        /* some live long enough for a whole move on a slow disk */
        usleep((useconds_t)(random_of(&seed) % (k % 4 ? 50000 : 900000)));
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        moving += is_moving(cache) || is_moving(beside);
        close(p[0]);
        files += look(cache, &partial);
    }
    /* what was begun and not finished is finished or gone in the end */
    struct store_opts o = {
        .model = DEMO_MODEL, .cache_dir = cache, .disk_budget = UINT64_MAX / 4, .disk_floor = 1};
    struct store *st;
    struct err e = {0};
    move_over(cache, beside, &seed);
    move_over(cache, beside, &seed); /* there and back, or back and there */
    struct buf at;
    buf_init(&at, PLACE_PATH_MAX);
    assert_int_equal(place_find(cache, &at, &e), 0);
    if (strcmp(at.p, cache) != 0) {
        move_over(cache, beside, &seed);
    }
    buf_free(&at);
    assert_int_equal(util_count_files(beside, "", NULL), 1); /* the mark that leads away */
    assert_int_equal(store_open(&o, &st, &e), 0);
    for (uint32_t id = 0; id < st->n_ent; id++) {
        struct store_view v;
        if (store_get(st, id, STORE_DEMAND, 0, &v, &e)) {
            fail_msg("%s", e.msg);
        }
        assert_true(util_right(st->m, DEMO_MODEL, &v));
        store_release(st, &v);
    }
    store_close(st);
    assert_int_equal(agree_orphans(NULL, cache, NULL), 0);
    assert_int_equal(util_count_files(cache, "/tmp/s-", NULL), 0);
    print_message(
        "%u kills, %u of them in a move; objects on disk after one: %u; unfinished: %u in "
        "all\n",
        kills, moving, files / kills, partial);
    util_rmtree(tmp);
    free(tmp);
    free(cache);
    free(beside);
    free(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_kill_evict)};
    if (argc > 1 && strtoul(argv[1], NULL, 10) > 0) {
        kills = (unsigned)strtoul(argv[1], NULL, 10);
    }
    return cmocka_run_group_tests_name("store_kill_evict", t, NULL, NULL);
}
