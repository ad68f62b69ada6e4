/* SPDX-License-Identifier: MIT
 * t_store_closed.c: a cache that cannot be written: its volume is full when it is opened, or it may
 * only be read. What is there is read, what is missing comes into memory alone, nothing is written
 * and it is said once; as soon as it can be written, it is, without a restart. Small volumes are
 * mounted, which only root may. */
#include "tests/store/util.h"

#include "node/store/at_rest.h"
#include "node/store/budget.h"
#include "node/store/disk.h"
#include "node/store/engine.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#ifdef __linux__
#include <sys/mount.h>
#endif
#include <unistd.h>

#define DEADLINE_NS 60000000000u

struct vol {
    char *tmp, *mnt, *cache;
    struct util_log log;
};

static void vol_start(struct vol *v, bool mounted)
{
    v->tmp = util_tmpdir();
    v->mnt = util_path("%s/v", v->tmp);
    v->cache = util_path("%s/a cache #1?", v->mnt); /* a name that SQLite's form must not cut */
    util_log_init(&v->log);
    assert_int_equal(mkdir(v->mnt, 0755), 0);
#ifdef __linux__
    bool no = mounted && mount("tmpfs", v->mnt, "tmpfs", 0, "size=24m") != 0;
#else
    bool no = mounted;
#endif
    if (no) {
        print_message("skipped: a small volume can be mounted by root on Linux only\n");
        util_rmtree(v->tmp);
        skip();
    }
}

static void vol_end(struct vol *v)
{
#ifdef __linux__
    umount2(v->mnt, MNT_DETACH);
#endif
    util_rmtree(v->tmp);
    util_log_free(&v->log);
    free(v->tmp);
    free(v->mnt);
    free(v->cache);
}

static void fill(const struct vol *v)
{
    char *p = util_path("%s/fill", v->mnt), block[4096];
    int fd = open(p, O_WRONLY | O_CREAT | O_APPEND, 0600);
    memset(block, 1, sizeof block);
    assert_true(fd >= 0);
    while (write(fd, block, sizeof block) > 0) {
    }
    assert_int_equal(errno, ENOSPC);
    close(fd);
    free(p);
}

static void empty(const struct vol *v)
{
    char *p = util_path("%s/fill", v->mnt);
    assert_int_equal(unlink(p), 0);
    free(p);
}

static struct store *open_it(struct vol *v, bool offline)
{
    struct store_opts o = {.model = DEMO_MODEL,
                           .cache_dir = v->cache,
                           .offline = offline,
                           .disk_floor = 1,
                           .log = util_log_line,
                           .log_ctx = &v->log};
    struct store *st;
    struct err e = {0};
    v->log.n = 0;
    memset(v->log.text, 0, sizeof v->log.text);
    if (store_open(&o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    return st;
}

/* The first ones are of the spine, which never leaves for the floor; then experts. */
#define OLD 8
static uint32_t object(struct store *st, uint32_t i)
{
    const struct model *m = store_model(st);
    return i < OLD ? model_spine_id(m, i, MODEL_IN_NORM) : model_expert_id(m, 1, i);
}

static void get(struct store *st, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) {
        struct store_view w;
        struct err e = {0};
        if (store_get(st, object(st, i), STORE_DEMAND, 0, &w, &e)) {
            fail_msg("%s", e.msg);
        }
        assert_true(util_right(store_model(st), DEMO_MODEL, &w));
        store_release(st, &w);
    }
}

static bool on_disk(struct store *st, uint32_t i)
{
    return disk_has(st->disk, object(st, i));
}

static void await_disk(struct store *st, uint32_t i)
{
    for (uint64_t end = clock_ns() + DEADLINE_NS; !on_disk(st, i); usleep(1000)) {
        if (clock_ns() > end) {
            fail_msg("expert %u is not written", i);
        }
    }
}

static uint64_t from_origin(struct store *st)
{
    struct store_stats s;
    store_get_stats(st, &s);
    return s.origin_bytes;
}

/* In a process of its own, which is killed: its log of the catalog stays. */
static void child_gets(struct vol *v, uint32_t first, uint32_t n)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        struct store *st = open_it(v, false);
        get(st, first, n);
        for (uint32_t i = first; i < first + n; i++) {
            await_disk(st, i);
        }
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* Nothing is there yet, and the volume is full. */
static void t_full_new(void **state)
{
    struct vol v;
    (void)state;
    vol_start(&v, true);
    fill(&v);
    struct store *st = open_it(&v, false);
    struct err e = {0};
    assert_int_equal(store_closed(st, &e), ERR_FULL);
    assert_non_null(strstr(e.msg, "is full (0.0 of 25.2 MB are free)"));
    get(st, 0, 10);
    assert_false(on_disk(st, 0));
    assert_int_equal(util_count_files(v.mnt, ".mxfp4", NULL), 0);
    assert_int_equal(util_log_has(&v.log, "going on from memory"), 1);
    assert_int_equal(util_log_has(&v.log, "is full (0.0 of 25.2 MB are free)"), 1);
    assert_int_equal(util_log_has(&v.log, "No space left"), 0); /* no bare words of the system */
    empty(&v);                                                  /* no restart */
    get(st, 10, 5);
    await_disk(st, 14);
    assert_int_equal(store_closed(st, &e), 0);
    store_close(st);
    /* what was written is a cache like any other; the metadata come once more */
    st = open_it(&v, false);
    assert_int_equal(store_closed(st, &e), 0);
    assert_true(on_disk(st, 12) && !on_disk(st, 3));
    uint64_t before = from_origin(st);
    get(st, 10, 5);
    assert_true(from_origin(st) == before);
    assert_int_equal(util_log_has(&v.log, "damaged"), 0);
    store_close(st);
    vol_end(&v);
}

/* A cache whose last user was killed, so that rows are in SQLite's log alone. */
static void t_full_used(void **state)
{
    struct vol v;
    (void)state;
    vol_start(&v, true);
    child_gets(&v, 0, OLD);
    assert_int_equal(util_count_files(v.cache, "catalog.sqlite-wal", NULL), 1);
    fill(&v);
    struct store *st = open_it(&v, false);
    assert_true(on_disk(st, 0) && on_disk(st, OLD - 1));
    uint64_t before = from_origin(st);
    get(st, 0, OLD);
    assert_true(from_origin(st) == before);
    get(st, 10, 10);
    assert_false(on_disk(st, 10));
    empty(&v);
    get(st, 20, 4);
    await_disk(st, 23);
    store_close(st);
    /* the journal has lost nothing by it: without a catalog all is still known */
    char *cat = util_path("%s/catalog.sqlite", v.cache);
    assert_int_equal(unlink(cat), 0);
    free(cat);
    st = open_it(&v, true);
    before = from_origin(st);
    get(st, 0, OLD);
    get(st, 20, 4);
    assert_true(from_origin(st) == before);
    store_close(st);
    vol_end(&v);
}

/* A catalog that is damaged, on a full volume: the journals serve. */
static void t_full_damaged(void **state)
{
    struct vol v;
    (void)state;
    vol_start(&v, true);
    child_gets(&v, 0, OLD);
    char *cat = util_path("%s/catalog.sqlite", v.cache);
    int fd = open(cat, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, "not a database at all", 21, 0) == 21);
    close(fd);
    fill(&v);
    struct store *st = open_it(&v, true);
    uint64_t before = from_origin(st);
    get(st, 0, OLD);
    assert_true(from_origin(st) == before);
    store_close(st);
    free(cat);
    vol_end(&v);
}

static void t_read_only(void **state)
{
    struct vol v;
    struct err e = {0};
    (void)state;
    vol_start(&v, true);
    child_gets(&v, 0, OLD);
#ifdef __linux__
    assert_int_equal(mount(NULL, v.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
#endif
    struct store *st = open_it(&v, false);
    assert_int_equal(store_closed(st, &e), ERR_REFUSED);
    assert_non_null(strstr(e.msg, "cannot be written (Read-only file system)"));
    uint64_t before = from_origin(st);
    get(st, 0, OLD);
    assert_true(from_origin(st) == before);
    get(st, 10, 10);
    assert_false(on_disk(st, 10));
    assert_int_equal(util_log_has(&v.log, "it is only read"), 1);
    assert_int_equal(util_log_has(&v.log, "annot"), 1); /* that is all that is said */
    assert_int_equal(rest_writable(v.cache, "this", &e), ERR_REFUSED);
#ifdef __linux__
    assert_int_equal(mount(NULL, v.mnt, NULL, MS_REMOUNT, NULL), 0);
#endif
    assert_int_equal(rest_writable(v.cache, "this", &e), 0);
    get(st, 20, 4);
    await_disk(st, 23);
    store_close(st);
    st = open_it(&v, true);
    assert_true(on_disk(st, 0) && on_disk(st, 23));
    store_close(st);
    vol_end(&v);
}

/* Another user, who may read and not write, beside one who writes. */
static void t_no_permission(void **state)
{
    struct vol v;
    int go[2], status;
    (void)state;
    if (geteuid()) {
        print_message("skipped: only root can be two users\n");
        skip();
    }
    vol_start(&v, false);
    chmod(v.tmp, 0755);
    child_gets(&v, 0, OLD);
    char *cmd = util_path("chmod -R a+rX '%s'", v.mnt);
    assert_int_equal(system(cmd), 0);
    free(cmd);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        char c;
        char *shard = util_path("%s/config.json", DEMO_MODEL);
        if (setgid(65534) || setuid(65534) || access(shard, R_OK) || access(v.cache, R_OK)) {
            _exit(77); /* the sources are where others may not look */
        }
        struct store *st = open_it(&v, false);
        struct err e = {0};
        bool ok = store_closed(st, &e) == ERR_REFUSED && strstr(e.msg, "Permission denied");
        uint64_t before = from_origin(st);
        get(st, 0, OLD);
        ok = ok && from_origin(st) == before;
        ok = ok && read(go[0], &c, 1) == 1; /* the other one has written meanwhile */
        get(st, OLD, 12);
        store_close(st);
        _exit(ok ? 0 : 1);
    }
    mode_t was = umask(022);
    struct store *st = open_it(&v, false);
    get(st, OLD, 7);
    for (uint32_t i = OLD; i < 15; i++) {
        await_disk(st, i);
    }
    assert_int_equal(write(go[1], "x", 1), 1);
    get(st, 15, 10);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    umask(was);
    store_close(st);
    close(go[0]);
    close(go[1]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: another user cannot read %s\n", DEMO_MODEL);
    } else if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fail_msg("the reader ended with %x", (unsigned)status);
    }
    vol_end(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_full_new),      cmocka_unit_test(t_full_used),
        cmocka_unit_test(t_full_damaged),  cmocka_unit_test(t_read_only),
        cmocka_unit_test(t_no_permission),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
