/* SPDX-License-Identifier: MIT
 * t_store_failing.c: every call by which the store changes its folder fails in turn, once or for a
 * while, with ENOSPC, EIO, EINTR and short writes, while objects come and leave. Every object asked
 * for comes, and is right; when calls work again the cache is written again, without a restart;
 * afterwards catalog, files and bitmap agree, nothing is left over, and the cache serves what it
 * says it has. The same while the cache is moved to another folder. In the suite some calls of each
 * kind; `t_store_failing all [KIND]` has each of them, `t_store_failing moves [KIND]` those of the
 * moves. */
#include "tests/store/agree.h"
#include "tests/store/cache_rig.h"
#include "tests/store/failing.h"
#include "tests/store/share_rig.h"

#include "node/store/engine.h"
#include "node/store/rest_move.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OBJECTS 36 /* asked for in a round */
#define HELD 12    /* of their size fits on the disk */
#define FOR_A_WHILE 400

static struct {
    char *tmp, *cache;
    struct util_log log;
    struct rig giver; /* has everything, for rounds with a peer */
    bool all;
    const char *only; /* kind of call, or NULL */
    uint32_t rounds, fired;
    uint32_t whole, moves, moves_failed, moves_done; /* in spite of it */
    uint64_t calls[FAILING_CALLS + 1];               /* of the last move */
} g;

struct fault {
    enum failing_call kind;
    uint64_t from, times;
    int error;
    bool peer; /* objects come from a peer, else from the origin */
};

static void about(const struct fault *f, const char *what)
{
    print_message("%s: from %s, calls %llu..%llu of \"%s\" fail with %s\n%s", what,
                  f->peer ? "a peer" : "the origin", (unsigned long long)f->from,
                  (unsigned long long)(f->from + f->times - 1), failing_name[f->kind],
                  f->error == FAILING_SHORT ? "half of the bytes" : strerror(f->error), g.log.text);
}

static int open_store(struct store **st, struct err *e)
{
    struct store_opts o = {.model = DEMO_MODEL,
                           .cache_dir = g.cache,
                           .ram_budget = 1 << 18,
                           .disk_budget = HELD * 21000,
                           .disk_floor = 1,
                           .log = util_log_line,
                           .log_ctx = &g.log};
    return store_open(&o, st, e);
}

/* Experts of one layer after the other, and a few of the spine. */
static uint32_t object(const struct model *m, uint32_t i)
{
    if (i % 9 == 8) {
        return model_spine_id(m, i % 8, MODEL_IN_NORM);
    }
    return model_expert_id(m, 1 + i % 7, i * 5 % 40);
}

static void get(struct store *st, uint32_t id, const struct fault *f)
{
    struct store_view v;
    struct err e = {0};
    if (store_get(st, id, STORE_DEMAND, 0, &v, &e)) {
        about(f, "an object did not come");
        fail_msg("%s", e.msg);
    }
    if (!util_right(store_model(st), DEMO_MODEL, &v)) {
        about(f, "wrong bytes");
        fail_msg("object %u", id);
    }
    store_release(st, &v);
}

/* No publication is under way any more. */
static void quiet(struct store *st)
{
    for (;;) {
        bool busy = false;
        pthread_mutex_lock(&st->mu);
        for (uint32_t i = 0; i < st->n_ent; i++) {
            busy = busy || st->ent[i].publishing;
        }
        pthread_mutex_unlock(&st->mu);
        if (!busy) {
            return;
        }
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
}

/* Nothing fails any more: objects get to the disk again. */
static void recovers(struct store *st, const struct fault *f)
{
    const struct model *m = store_model(st);
    uint64_t end = clock_ns() + 60000000000u;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t id = model_expert_id(m, 2 + i, 39);
        quiet(st); /* what is being published takes of the small budget */
        get(st, id, f);
        while (!disk_has(st->disk, id)) {
            if (clock_ns() > end) {
                about(f, "the cache is not written again");
                fail_msg("object %u", id);
            }
            nanosleep(&(struct timespec){0, 500000}, NULL);
        }
    }
}

static void no_orphans(struct store *st, const struct fault *f)
{
    int n = agree_orphans(st->disk, g.cache, st->m);
    if (n) {
        about(f, "unfinished objects that nobody knows of");
        fail_msg("%d files", n);
    }
}

/* Returns the number of objects on disk. */
static uint32_t check_after(const struct fault *f, const char *at)
{
    struct store *st;
    struct err e = {0};
    if (open_store(&st, &e)) {
        about(f, "cannot be opened afterwards");
        fail_msg("%s", e.msg);
    }
    no_orphans(st, f);
    uint32_t files = agree(st->disk, st->cache_dir, st->m);
    if (at && strcmp(st->cache_dir, at) != 0) {
        about(f, "the cache lies elsewhere");
        fail_msg("in %s, not %s", st->cache_dir, at);
    }
    for (uint32_t id = 0; id < st->n_ent; id++) {
        if (disk_has(st->disk, id)) {
            uint8_t *have = malloc(model_object(st->m, id)->size);
            uint8_t *want = util_truth(st->m, DEMO_MODEL, id);
            if (disk_read(st->disk, id, have, &e)) {
                about(f, "cannot be read afterwards");
                fail_msg("%s", e.msg);
            }
            assert_memory_equal(have, want, model_object(st->m, id)->size);
            free(have);
            free(want);
        }
    }
    store_close(st);
    return files;
}

static void one_round(const struct fault *f)
{
    struct store *st;
    struct up up;
    struct err e = {0};
    g.log.n = 0;
    memset(g.log.text, 0, sizeof g.log.text);
    util_rmtree(g.cache);
    failing_set(f->kind, f->from, f->times, f->error);
    if (open_store(&st, &e)) { /* it may be refused, then with a sentence */
        assert_true(e.code && e.msg[0]);
        failing_off();
        if (open_store(&st, &e)) {
            about(f, "cannot be opened a second time");
            fail_msg("%s", e.msg);
        }
    }
    if (f->peer) {
        up_start(&up, st, g.giver.st, g.rounds % 3 ? UP_REVERSE : 0);
    }
    for (uint32_t i = 0; i < OBJECTS; i++) {
        get(st, object(st->m, i), f);
    }
    for (uint32_t i = 0; i < OBJECTS; i += 3) { /* some are on disk, some are not */
        get(st, object(st->m, i), f);
    }
    g.fired += failing_failed() != 0;
    g.rounds++;
    if (g.rounds % 2) { /* else it may also fail while the store is closed */
        failing_off();
        recovers(st, f);
        quiet(st);
        if (f->peer && !up_has_list(&up)) {
            about(f, "the peers were told something else than what is there");
            fail();
        }
    }
    if (f->peer) {
        up_stop(&up);
    }
    if (g.rounds % 2) {
        quiet(st);
        agree(st->disk, g.cache, st->m);
        no_orphans(st, f);
    }
    store_close(st);
    failing_off();
    assert_int_equal(failing_open_files(), 0);
    check_after(f, NULL);
}

static const struct {
    enum failing_call kind;
    int error;
} faults[] = {
    {FAILING_OPEN, ENOSPC},
    {FAILING_OPEN, EIO},
    {FAILING_OPEN, EINTR},
    {FAILING_READING, EIO},
    {FAILING_READING, EINTR},
    {FAILING_MKDIR, ENOSPC},
    {FAILING_MKDIR, EIO},
    {FAILING_WRITE, ENOSPC},
    {FAILING_WRITE, EIO},
    {FAILING_WRITE, EINTR},
    {FAILING_WRITE, FAILING_SHORT},
    {FAILING_SYNC, ENOSPC},
    {FAILING_SYNC, EIO},
    {FAILING_SYNC, EINTR},
    {FAILING_RENAME, ENOSPC},
    {FAILING_RENAME, EIO},
    {FAILING_UNLINK, EIO},
    {FAILING_UNLINK, EINTR},
    {FAILING_TRUNCATE, EIO},
    {FAILING_TRUNCATE, EINTR},
    {FAILING_CALLS, ENOSPC},
    {FAILING_CALLS, EIO},
};

/* ---- while the cache is moved ---- */

#define N_FAULTS (2 * sizeof faults / sizeof *faults)

/* Opened by its name, the cache has what it had; but what could not be read stayed behind, and one
 * expert may have made room for the switch on a full volume. */
static void check_moved(const struct fault *f, const char *at)
{
    g.log.n = 0;
    memset(g.log.text, 0, sizeof g.log.text);
    uint32_t files = check_after(f, at), may_lack = f->kind == FAILING_READING ? g.whole
                                                    : f->error == ENOSPC       ? 1
                                                                               : 0;
    if (files > g.whole || files + may_lack < g.whole) {
        about(f, "objects were lost in a move");
        fail_msg("%u of %u", files, g.whole);
    }
    /* a catalog that could not be read is made anew, and says so */
    if (f->kind != FAILING_READING &&
        (strstr(g.log.text, "damaged") || strstr(g.log.text, "missing"))) {
        about(f, "damage after a move");
        fail();
    }
}

static void move_round(const struct fault *f, bool copy)
{
    char *to = util_path("%s/to", g.tmp), cmd[3000];
    struct err e = {0};
    struct rest_moved m;
    struct rest_move o = {.cache = g.cache, .to = to, .copy = copy};
    util_rmtree(g.cache);
    util_rmtree(to);
    snprintf(cmd, sizeof cmd, "cp -a '%s/whole' '%s'", g.tmp, g.cache);
    assert_int_equal(system(cmd), 0);
    failing_set(f->kind, f->from, f->times, f->error);
    int r = rest_move(&o, &m, &e);
    bool failed = failing_failed() != 0;
    failing_off();
    for (int k = 0; k <= FAILING_CALLS; k++) {
        g.calls[k] = failing_count((enum failing_call)k);
    }
    assert_int_equal(failing_open_files(), 0);
    assert_true(!r || (e.code && e.msg[0]));
    g.moves++;
    g.moves_failed += failed;
    g.moves_done += failed && !r;
    check_moved(f, r ? NULL : to);
    if (r && rest_move(&o, &m, &e) && !strstr(e.msg, "already")) {
        about(f, "the move is not gone on with");
        fail_msg("%s", e.msg);
    }
    check_moved(f, to);
    if (util_count_files(g.cache, "", NULL) != 1) {
        about(f, "files are left in the old folder");
        fail();
    }
    if (util_count_files(to, ".part", NULL) || util_count_files(to, "moving", NULL)) {
        about(f, "files are left in the new folder");
        fail();
    }
    free(to);
}

static void t_move(void **state)
{
    (void)state;
    struct store *st;
    struct err e = {0};
    char *whole = util_path("%s/whole", g.tmp), *cache = g.cache;
    g.cache = whole;
    if (open_store(&st, &e)) {
        fail_msg("%s", e.msg);
    }
    struct fault none = {.kind = FAILING_CALLS};
    for (uint32_t i = 0; i < OBJECTS; i++) {
        get(st, object(st->m, i), &none);
    }
    store_close(st);
    g.whole = check_after(&none, whole);
    g.cache = cache;
    char under[1024];
    snprintf(under, sizeof under, "%s/", g.tmp);
    failing_under(under);
    for (int copy = 0; copy < 2; copy++) {
        uint64_t calls[FAILING_CALLS + 1];
        move_round(&none, copy); /* nothing happens to it */
        memcpy(calls, g.calls, sizeof calls);
        for (size_t i = 0; i < N_FAULTS / 2; i++) {
            struct fault f = {.kind = faults[i].kind, .error = faults[i].error};
            if (g.only && strcmp(g.only, failing_name[f.kind]) != 0) {
                continue;
            }
            uint64_t n = calls[f.kind], step = g.all ? 1 : n / 2 + 1;
            for (f.from = g.all ? 0 : (i * 7 + 3) % step; f.from < n; f.from += step) {
                f.times = 1;
                move_round(&f, copy);
                f.times = FOR_A_WHILE;
                if (f.error != EINTR && (g.all ? f.from % 4 == 0 : i % 5 == 0)) {
                    move_round(&f, copy);
                }
            }
        }
        print_message("%s: calls of a move:", copy ? "copies" : "second names");
        for (int k = 0; k <= FAILING_CALLS; k++) {
            print_message(" %s %llu", failing_name[k], (unsigned long long)calls[k]);
        }
        print_message("\n");
    }
    print_message("%u moves, in %u of them calls failed, %u of these were made all the same\n",
                  g.moves, g.moves_failed, g.moves_done);
    failing_under(g.cache);
    util_rmtree(whole);
    free(whole);
}

static void t_each(void **state)
{
    (void)state;
    uint64_t calls[FAILING_CALLS + 1];
    struct fault none = {.kind = FAILING_CALLS};
    one_round(&none);
    for (int k = 0; k <= FAILING_CALLS; k++) {
        calls[k] = failing_count((enum failing_call)k);
    }
    for (size_t i = 0; i < 2 * sizeof faults / sizeof *faults; i++) {
        struct fault f = {.kind = faults[i / 2].kind, .error = faults[i / 2].error, .peer = i % 2};
        if (g.only && strcmp(g.only, failing_name[f.kind]) != 0) {
            continue;
        }
        uint64_t n = calls[f.kind], step = g.all ? 1 : n / 2 + 1;
        for (f.from = g.all ? 0 : i * 7 % step; f.from < n; f.from += step) {
            f.times = 1;
            one_round(&f);
            f.times = FOR_A_WHILE; /* signals do not come for ever */
            if (f.error != EINTR && (g.all ? f.from % 4 == 0 : i % 3 == 0)) {
                one_round(&f);
            }
        }
    }
    print_message("%u rounds, in %u of them calls failed; calls of a round:", g.rounds, g.fired);
    for (int k = 0; k <= FAILING_CALLS; k++) {
        print_message(" %s %llu", failing_name[k], (unsigned long long)calls[k]);
    }
    print_message("\n");
    assert_true(g.fired > 0);
}

/* One fault again, as a failure has named it: KIND FROM TIMES ERRNO PEER, twenty times. */
static struct fault again;

static void t_again(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        one_round(&again);
    }
}

static bool read_fault(char **argv)
{
    for (int k = 0; k <= FAILING_CALLS; k++) {
        if (strcmp(argv[0], failing_name[k]) == 0) {
            again = (struct fault){.kind = (enum failing_call)k,
                                   .from = strtoul(argv[1], NULL, 10),
                                   .times = strtoul(argv[2], NULL, 10),
                                   .error = (int)strtol(argv[3], NULL, 10),
                                   .peer = *argv[4] == '1'};
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest each[] = {cmocka_unit_test(t_move), cmocka_unit_test(t_each)};
    const struct CMUnitTest one[] = {cmocka_unit_test(t_again)};
    bool only = argc == 6 && read_fault(argv + 1);
    bool moves = argc > 1 && strcmp(argv[1], "moves") == 0;
    g.all = moves || (argc > 1 && strcmp(argv[1], "all") == 0);
    g.only = argc == 3 ? argv[2] : NULL;
    g.tmp = util_tmpdir();
    g.cache = util_path("%s/cache", g.tmp);
    util_log_init(&g.log);
    rig_start(&g.giver);
    get_all(&g.giver, 1);
    rig_close(&g.giver); /* all is published */
    rig_open(&g.giver);
    failing_under(g.cache);
    if (moves) {
        cmocka_set_test_filter("t_move");
    }
    int r = only ? cmocka_run_group_tests_name("store_failing", one, NULL, NULL)
                 : cmocka_run_group_tests_name("store_failing", each, NULL, NULL);
    rig_end(&g.giver);
    util_rmtree(g.tmp);
    util_log_free(&g.log);
    free(g.cache);
    free(g.tmp);
    return r;
}
