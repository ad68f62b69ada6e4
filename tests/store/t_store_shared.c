/* SPDX-License-Identifier: MIT
 * t_store_shared.c: one cache folder, several users: processes at the same time, and checkpoints
 * that look alike but are not. The origin is a folder. */
#include "tests/store/cache_rig.h"

#include "proto/base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int other_process(const char *cache, uint32_t from, uint32_t step)
{
    struct store_opts o = {
        .model = DEMO_MODEL, .cache_dir = cache, .ram_budget = 1 << 20, .disk_floor = 1};
    struct store *st;
    struct err e = {0};
    if (store_open(&o, &st, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 2;
    }
    uint32_t n = model_object_count(store_model(st));
    for (uint32_t i = 0; i < n; i++) {
        if (try_get(st, (from + i * step) % n)) {
            return 3;
        }
    }
    store_close(st);
    return 0;
}

static void t_two_processes(void **s)
{
    struct rig r;
    rig_start(&r);
    rig_close(&r);
    uint32_t n = r.n;
    fflush(NULL);
    pid_t p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = fork();
        if (p[i] == 0) { /* two forwards, one backwards */
            _exit(other_process(r.cache, i == 2 ? n - 1 : 0, i == 2 ? n - 1 : 1));
        }
    }
    for (int i = 0; i < 3; i++) {
        int status;
        waitpid(p[i], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    rig_open(&r);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), 0);
    assert_int_equal(r.log.n, 0);
    rig_close(&r);
    assert_int_equal(util_count_files(r.cache, "/tmp/s-", NULL), 0);
    rig_end(&r);
}

static void t_sees_the_other(void **s)
{
    /* what another process has published since is found without the origin */
    struct rig r;
    rig_start(&r);
    struct store *two;
    struct err e = {0};
    assert_int_equal(store_open(&r.o, &two, &e), 0);
    uint32_t id = model_expert_id(r.m, 5, 5);
    assert_int_equal(try_get(two, id), 0);
    uint64_t end = clock_ns() + 10000000000u;
    while (store_where(two, id) != STORE_DISK && clock_ns() < end) {
        struct store_view v; /* out of its RAM */
        for (uint32_t i = 0; i < 20; i++) {
            assert_int_equal(store_get(two, model_expert_id(r.m, 6, i), STORE_DEMAND, 0, &v, &e),
                             0);
            store_release(two, &v);
        }
    }
    get_right(&r, id);
    assert_int_equal(origin_bytes(&r), 0);
    store_close(two);
    rig_end(&r);
}

/* Another checkpoint with the same config and index: a bit of every 4 KiB is another one. */
static void change_weights(const char *dir)
{
    for (int i = 1; i <= 9; i++) {
        char *p = util_path("%s/model-%05d-of-000009.safetensors", dir, i);
        struct stat st;
        assert_int_equal(stat(p, &st), 0);
        for (long at = st.st_size - 1; at > 65536; at -= 4096) {
            poke(p, at, 0);
        }
        struct timespec t[2] = {{.tv_sec = st.st_mtime - 5}, {.tv_sec = st.st_mtime - 5}};
        assert_int_equal(utimensat(AT_FDCWD, p, t, 0), 0);
        free(p);
    }
}

static void refused(struct rig *r)
{
    struct err e = {0};
    struct store *st = NULL;
    assert_int_equal(store_open(&r->o, &st, &e), ERR_DIGEST);
    assert_non_null(strstr(e.msg, "other weights"));
    assert_non_null(strstr(e.msg, "safetensors"));
}

static void t_same_description(void **s)
{
    struct rig r;
    rig_start(&r);
    get_all(&r, 1);
    rig_close(&r);
    char *twin = util_path("%s/twin", r.tmp);
    util_copy_dir(DEMO_MODEL, twin);
    r.o.model = twin;
    rig_open(&r); /* a true copy elsewhere: nothing is fetched again, and this is found out once */
    assert_int_equal(util_log_has(&r.log, "comparing a sample"), 1);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), 0);
    rig_close(&r);
    rig_open(&r);
    assert_int_equal(r.log.n, 0);
    rig_close(&r);
    change_weights(twin); /* at the same place */
    refused(&r);
    refused(&r);
    char *other = util_path("%s/other", r.tmp); /* and at a new one */
    util_copy_dir(twin, other);
    r.o.model = other;
    refused(&r);
    r.o.model = DEMO_MODEL; /* the first one goes on as before */
    rig_open(&r);
    get_all(&r, 1);
    assert_int_equal(origin_bytes(&r), 0);
    assert_int_equal(r.log.n, 0);
    rig_close(&r);
    /* an empty folder takes either */
    util_rmtree(r.cache);
    r.o.model = other;
    rig_open(&r);
    struct store_view v;
    struct err e = {0};
    uint32_t id = model_expert_id(r.m, 4, 17);
    assert_int_equal(store_get(r.st, id, STORE_DEMAND, 0, &v, &e), 0);
    assert_true(util_right(r.m, other, &v));
    store_release(r.st, &v);
    rig_close(&r);
    r.o.model = DEMO_MODEL;
    refused(&r);
    free(twin);
    free(other);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(t_two_processes),
        cmocka_unit_test(t_sees_the_other),
        cmocka_unit_test(t_same_description),
    };
    return cmocka_run_group_tests_name("store_shared", t, NULL, NULL);
}
