/* SPDX-License-Identifier: MIT
 * t_store_move.c: a cache moved to another folder, further and back: by second names and by copies,
 * to places where it must not go, beside a process that uses it, with a damaged file in it, with
 * its volume away. Kills are in t_store_kill_evict, calls that fail in t_store_failing. */
#include "tests/store/agree.h"
#include "tests/store/cache_rig.h"

#include "node/store/adopt_list.h"
#include "node/store/budget.h"
#include "node/store/engine.h"
#include "node/store/rest_move.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP 5 /* every so many-th object is in the cache */

static struct rest_moved moved;
static char noted[2000];

static void note(void *ctx, const char *line)
{
    (void)ctx;
    snprintf(noted + strlen(noted), sizeof noted - strlen(noted), "%s\n", line);
}

static void must_move(const char *cache, const char *to, bool copy)
{
    struct err e = {0};
    struct rest_move o = {.cache = cache, .to = to, .copy = copy, .note = note};
    noted[0] = 0;
    if (rest_move(&o, &moved, &e)) {
        fail_msg("to %s: %s", to, e.msg);
    }
}

static void refused(const char *cache, const char *to, int code, const char *words)
{
    struct err e = {0};
    struct rest_moved out;
    struct rest_move o = {.cache = cache, .to = to};
    int r = rest_move(&o, &out, &e);
    if (r != code || !strstr(e.msg, words)) {
        fail_msg("to %s: %d %s", to, r, e.msg);
    }
}

static bool is(const char *dir, const char *name)
{
    char *p = util_path("%s/%s", dir, name);
    struct stat sb;
    bool there = !lstat(p, &sb);
    free(p);
    return there;
}

/* The mark that leads away is all that is left there. */
static void left(const char *dir)
{
    assert_int_equal(util_count_files(dir, "", NULL), 1);
    assert_true(is(dir, "moved"));
}

/* Opened by `r->cache`, it lies in `at` with all that it had. */
static void whole(struct rig *r, const char *at)
{
    rig_open(r);
    assert_string_equal(r->st->cache_dir, at);
    agree(r->st->disk, at, r->m);
    get_all(r, STEP);
    assert_true(origin_bytes(r) == 0);
    assert_int_equal(util_count_files(at, ".part", NULL) + util_count_files(at, ".tmp", NULL), 0);
    assert_false(is(at, "moving"));
    rig_close(r);
}

static void fill(struct rig *r)
{
    rig_start(r);
    get_all(r, STEP);
    rig_close(r);
}

static void t_there_and_back(void **state)
{
    (void)state;
    for (int copy = 0; copy < 2; copy++) {
        struct rig r;
        fill(&r);
        char *a = util_path("%s/deep/a", r.tmp), *b = util_path("%s/b", r.tmp);
        must_move(r.cache, a, copy);
        assert_string_equal(moved.from, r.cache);
        assert_string_equal(moved.to, a);
        assert_false(moved.resumed);
        assert_true(moved.bytes > 1000000);
        assert_true(copy ? moved.copied_bytes == moved.bytes : moved.copied_bytes == 0);
        left(r.cache);
        whole(&r, a);
        /* further: the folder that names it leads there at once, for the first may be far away */
        must_move(r.cache, b, copy);
        left(r.cache);
        left(a);
        whole(&r, b);
        char *gone = util_path("%s/gone", r.tmp);
        assert_int_equal(rename(a, gone), 0);
        whole(&r, b);
        assert_int_equal(rename(gone, a), 0);
        refused(r.cache, b, ERR_ARG, "already");
        must_move(r.cache, a, copy); /* where it once was */
        left(b);
        whole(&r, a);
        must_move(r.cache, r.cache, copy); /* home */
        assert_false(is(r.cache, "moved"));
        left(a);
        whole(&r, r.cache);
        char *real = r.cache;
        r.cache = a; /* who has that name for it finds it, too */
        r.o.cache_dir = a;
        whole(&r, real);
        r.cache = real;
        free(gone);
        free(a);
        free(b);
        rig_end(&r);
    }
}

static void t_places(void **state)
{
    (void)state;
    struct rig r;
    fill(&r);
    char *in = util_path("%s/models/x/y", r.cache), *up = util_path("%s/no/../cache/x", r.tmp),
         *full = util_path("%s/full", r.tmp), *file = util_path("%s/full/letter", r.tmp),
         *other = util_path("%s/other", r.tmp), *mine = util_path("%s/other/mine", r.tmp),
         *link = util_path("%s/link", r.tmp), *under = util_path("%s/link/x", r.tmp),
         *none = util_path("%s/none", r.tmp), *none_to = util_path("%s/none_to", r.tmp);
    refused(none, none_to, ERR_NOTFOUND, "there is no cache");
    refused(r.cache, in, ERR_ARG, "part of the cache itself");
    refused(r.cache, r.cache, ERR_ARG, "already");
    assert_int_equal(symlink(r.cache, link), 0);
    refused(r.cache, under, ERR_ARG, "part of the cache itself");
    refused(r.cache, up, ERR_ARG, "part of the cache itself");
    refused(link, none_to, ERR_ARG, "symbolic link");
    assert_int_equal(mkdir(full, 0700), 0);
    int fd = open(file, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    refused(r.cache, full, ERR_ARG, "letter");
    refused(r.cache, file, ERR_IO, "");
    refused(r.cache, r.tmp, ERR_ARG, "something else");
    struct rig b;
    fill(&b);
    refused(r.cache, b.cache, ERR_ARG, "another cache");
    must_move(b.cache, other, false);
    refused(r.cache, b.cache, ERR_ARG, "another cache"); /* its mark leads elsewhere */
    rig_end(&b);
    /* nothing is written in an adopted folder */
    util_rmtree(other);
    assert_int_equal(mkdir(other, 0700), 0);
    util_copy_dir(DEMO_MODEL, other);
    struct adopt_list l = {.n = 0};
    struct err e = {0};
    size_t changed;
    assert_int_equal(adopt_find(other, &l, &e), 0);
    assert_int_equal(adopt_list_change(r.cache, &l, true, &changed, &e), 0);
    refused(r.cache, mine, ERR_ARG, "adopted folder");
    assert_false(is(other, "mine"));
    assert_int_equal(adopt_list_change(r.cache, &l, false, &changed, &e), 0);
    adopt_list_free(&l);
    /* after all of that nothing has changed */
    whole(&r, r.cache);
    free(in);
    free(up);
    free(full);
    free(file);
    free(other);
    free(mine);
    free(link);
    free(under);
    free(none);
    free(none_to);
    rig_end(&r);
}

static void t_in_use(void **state)
{
    (void)state;
    struct rig r;
    fill(&r);
    char *a = util_path("%s/a", r.tmp), pid[64];
    int up[2], down[2];
    char c;
    assert_int_equal(pipe(up) | pipe(down), 0);
    pid_t child = fork();
    if (child == 0) {
        struct store *st;
        struct err e;
        close(down[1]);
        if (store_open(&r.o, &st, &e) || write(up[1], "o", 1) != 1) {
            _exit(1);
        }
        (void)!read(down[0], &c, 1);
        store_close(st);
        _exit(0);
    }
    close(down[0]);
    assert_int_equal(read(up[0], &c, 1), 1);
    snprintf(pid, sizeof pid, "process %ld uses this cache", (long)child);
    refused(r.cache, a, ERR_BUSY, pid);
    assert_false(is(r.tmp, "a"));
    close(down[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
    must_move(r.cache, a, false);
    whole(&r, a);
    close(up[0]);
    close(up[1]);
    free(a);
    rig_end(&r);
}

/* Its volume is away, or another one is in its place. */
static void t_away(void **state)
{
    (void)state;
    struct rig r;
    fill(&r);
    struct store *st;
    struct err e = {0};
    char *a = util_path("%s/a", r.tmp), *gone = util_path("%s/gone", r.tmp);
    must_move(r.cache, a, false);
    assert_int_equal(rename(a, gone), 0);
    assert_int_equal(store_open(&r.o, &st, &e), ERR_OFFLINE);
    assert_non_null(strstr(e.msg, "connect its volume"));
    assert_int_equal(mkdir(a, 0700), 0); /* as an empty mount point is */
    assert_int_equal(store_open(&r.o, &st, &e), ERR_OFFLINE);
    refused(r.cache, gone, ERR_OFFLINE, "connect its volume");
    assert_int_equal(util_count_files(a, "", NULL), 0);
    assert_int_equal(rmdir(a), 0);
    assert_int_equal(rename(gone, a), 0);
    whole(&r, a);
    free(a);
    free(gone);
    rig_end(&r);
}

/* Stopped in the middle; used there; the same call goes on with what has become of it. */
struct stopping {
    uint64_t at;
};
static bool stop(void *ctx, uint64_t done, uint64_t total)
{
    (void)total;
    return done >= ((struct stopping *)ctx)->at;
}

static void t_stopped(void **state)
{
    (void)state;
    struct rig r;
    fill(&r);
    char *a = util_path("%s/a", r.tmp), *b = util_path("%s/b", r.tmp);
    struct stopping s = {300000};
    struct rest_move o = {.cache = r.cache, .to = a, .copy = true, .progress = stop, .ctx = &s};
    struct err e = {0};
    assert_int_equal(rest_move(&o, &moved, &e), ERR_CANCELLED);
    uint64_t first = moved.copied_bytes;
    assert_true(first > 0);
    /* who opens the unfinished folder is told */
    struct store_opts so = r.o;
    struct store *st;
    so.cache_dir = a;
    assert_int_equal(store_open(&so, &st, &e), ERR_BUSY);
    assert_non_null(strstr(e.msg, "is not finished"));
    refused(a, b, ERR_BUSY, "is not finished");
    /* the old one is in use: one object comes, one goes */
    rig_open(&r);
    uint32_t come = model_expert_id(r.m, 3, 21), go = MODEL_NONE;
    while (come % STEP == 0) {
        come++;
    }
    get_right(&r, come);
    for (uint32_t id = 0; id < r.n && go == MODEL_NONE; id += STEP) {
        go = store_drop(r.st, id) ? id : MODEL_NONE;
    }
    assert_true(go != MODEL_NONE);
    rig_close(&r); /* what came is published then */
    o.progress = NULL;
    if (rest_move(&o, &moved, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_true(moved.resumed);
    assert_true(moved.copied_bytes < moved.bytes); /* what was there has not come twice */
    left(r.cache);
    rig_open(&r);
    agree(r.st->disk, a, r.m);
    assert_int_equal(store_where(r.st, come), STORE_DISK);
    assert_int_equal(store_where(r.st, go), STORE_ORIGIN);
    rig_close(&r);
    free(a);
    free(b);
    rig_end(&r);
}

static void t_damaged(void **state)
{
    (void)state;
    struct rig r;
    fill(&r);
    char *f = NULL, *a = util_path("%s/a", r.tmp);
    assert_true(util_count_files(r.cache, ".mxfp4", &f) > 10);
    poke(f, 1000, 3);
    must_move(r.cache, a, true);
    assert_true(moved.left_out == 1);
    assert_non_null(strstr(noted, "stays behind"));
    left(r.cache);
    rig_open(&r);
    agree(r.st->disk, a, r.m);
    get_all(&r, STEP);
    assert_true(origin_bytes(&r) > 0); /* that one, again */
    assert_int_equal(util_log_has(&r.log, "damaged"), 0);
    rig_close(&r);
    /* a lost catalog is no hindrance: it is made anew from the journals */
    char *cat = util_path("%s/catalog.sqlite", a), *b = util_path("%s/b", r.tmp);
    int fd = open(cat, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, "this is no catalog at all, but a text", 37), 37);
    close(fd);
    must_move(r.cache, b, true);
    whole(&r, b);
    free(f);
    free(a);
    free(b);
    free(cat);
    rig_end(&r);
}

/* A volume that is too small: said with both numbers, before anything is written. */
static void t_small(void **state)
{
    (void)state;
    struct rig r;
    fill(&r);
    char *mnt = util_path("%s/mnt", r.tmp), cmd[400], *a = util_path("%s/mnt/a", r.tmp);
    assert_int_equal(mkdir(mnt, 0700), 0);
    snprintf(cmd, sizeof cmd, "mount -t tmpfs -o size=1m tmpfs '%s' 2>/dev/null", mnt);
    if (system(cmd)) {
        print_message("no mount is allowed here: not tried\n");
    } else {
        refused(r.cache, a, ERR_FULL, "are needed and");
        assert_int_equal(util_count_files(mnt, "", NULL), 0);
        snprintf(cmd, sizeof cmd, "mount -o remount,size=64m '%s'", mnt);
        assert_int_equal(system(cmd), 0);
        must_move(r.cache, a, false); /* to another volume: no second names there */
        assert_true(moved.copied_bytes == moved.bytes);
        left(r.cache);
        whole(&r, a);
        must_move(r.cache, r.cache, false);
        whole(&r, r.cache);
        snprintf(cmd, sizeof cmd, "umount '%s'", mnt);
        assert_int_equal(system(cmd), 0);
    }
    free(mnt);
    free(a);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(t_there_and_back), cmocka_unit_test(t_places),
        cmocka_unit_test(t_in_use),         cmocka_unit_test(t_away),
        cmocka_unit_test(t_stopped),        cmocka_unit_test(t_damaged),
        cmocka_unit_test(t_small),
    };
    return cmocka_run_group_tests_name("store_move", t, NULL, NULL);
}
