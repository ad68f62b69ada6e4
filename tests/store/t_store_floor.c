/* SPDX-License-Identifier: MIT
 * t_store_floor.c: the automatic floor at K3's size, on a volume of 400 GiB that has less free than
 * the floor: no expert leaves because a program was started; when others take more, as much leaves
 * as they have taken; once the whole floor was free, it holds. How full the volume is says this
 * file's statvfs, which takes the place of the C library's; the cache's files are sparse. */
#include "tests/store/faulty.h"
#include "tests/store/k3full.h"
#include "tests/store/k3rig.h"
#include "tests/store/util.h"

#include "node/store/budget.h"
#include "proto/base/clock.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)
#define VOLUME (400 * GIB)
#define STEP (17 * (uint64_t)K3_EXPERT_BYTES) /* what leaves at once, and a little */
#define WAIT_NS 120000000000u

static char experts[4096]; /* the folder of layer 1, which is the one that is there */
static uint64_t all;       /* bytes of its files at first */
static atomic_ullong room; /* bytes that were free then */

static uint64_t bytes_now(void)
{
    uint64_t n = 0;
    DIR *d = opendir(experts);
    struct dirent *x;
    while (d && (x = readdir(d))) {
        n += x->d_name[0] != '.' ? K3_EXPERT_BYTES : 0;
    }
    if (d) {
        closedir(d);
    }
    return n;
}

int statvfs(const char *path, struct statvfs *v)
{
    (void)path;
    memset(v, 0, sizeof *v);
    v->f_frsize = v->f_bsize = 4096;
    v->f_blocks = VOLUME / 4096;
    v->f_bavail = v->f_bfree =
        (fsblkcnt_t)((atomic_load(&room) + all - (all ? bytes_now() : 0)) / 4096);
    return 0;
}

static struct store_budget of(struct store *st)
{
    struct store_budget b;
    assert_int_equal(store_get_budget(st, &b, NULL), 0);
    return b;
}

static void await_trimmed(struct store *st, uint64_t bytes)
{
    uint64_t end = clock_ns() + WAIT_NS;
    while (of(st).trimmed < bytes && clock_ns() < end) {
        usleep(2000);
    }
    assert_true(of(st).trimmed >= bytes);
}

static void t_numbers(void **state)
{
    (void)state;
    uint64_t f = store_auto_floor(400 * GIB, 5 * GIB, 130 * GIB);
    assert_true(f == 20 * GIB);
    assert_true(store_soft_floor(f, 400 * GIB, 5 * GIB) == 5 * GIB);   /* what is free */
    assert_true(store_soft_floor(f, 400 * GIB, GIB / 2) == GIB);       /* the least, as ever */
    assert_true(store_soft_floor(f, 400 * GIB, 20 * GIB) == 20 * GIB); /* all of it */
    assert_true(store_soft_floor(f, 400 * GIB, 300 * GIB) == 20 * GIB);
    assert_true(store_soft_floor(4 << 20, 32 << 20, 1 << 20) == 4 << 20); /* a small volume */
}

static void t_floor(void **state)
{
    (void)state;
    char *tmp = util_tmpdir(), *dir = util_path("%s/k3", tmp), *cache = util_path("%s/c", tmp);
    assert_int_equal(k3_table() || k3_folder(dir), 0);
    struct faulty *f = k3_origin(dir);
    char *url = util_path("http://127.0.0.1:%d", faulty_port(f));
    struct store_opts o = {.model = url, .cache_dir = cache, .ram_budget = 1 << 20};
    struct store *st;
    struct err e = {0};
    atomic_store(&room, 5 * GIB);
    if (store_open(&o, &st, &e)) { /* metadata */
        fail_msg("%s", e.msg);
    }
    store_close(st);
    faulty_stop(f);
    struct model_source src;
    struct model *m = NULL;
    if (model_folder_open(dir, &src, &e) || model_open(&src, &m, &e)) {
        fail_msg("%s", e.msg);
    }
    uint64_t filled = k3_fill(cache, m, 1);
    assert_true(filled > 0);
    char *one = NULL;
    assert_int_equal(util_count_files(cache, "experts/001/000.mxfp4", &one), 1);
    *strrchr(one, '/') = 0;
    snprintf(experts, sizeof experts, "%s", one);
    all = bytes_now();
    assert_true(all == K3_EXPERTS * (uint64_t)K3_EXPERT_BYTES);
    o.offline = true;
    if (store_open(&o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    struct store_budget b = of(st);
    assert_true(b.used == filled && b.floor_from == STORE_AUTO);
    assert_true(b.floor == 20 * GIB && b.floor_now == 5 * GIB);
    /* others take a GiB: it is given back to the volume, and not the 15 that lack, too */
    atomic_store(&room, 4 * GIB);
    await_trimmed(st, GIB);
    b = of(st);
    assert_true(b.trimmed < GIB + STEP && b.floor_now == 5 * GIB);
    /* they leave: now the whole floor is there, and holds */
    atomic_store(&room, 25 * GIB);
    uint64_t end = clock_ns() + WAIT_NS, had = b.trimmed;
    while (of(st).floor_now != 20 * GIB && clock_ns() < end) {
        usleep(2000);
    }
    assert_true(of(st).floor_now == 20 * GIB && of(st).trimmed == had);
    atomic_store(&room, 17 * GIB); /* and what has left before */
    await_trimmed(st, had + GIB);
    store_close(st);
    /* the next start finds what is free then */
    uint64_t left = bytes_now();
    atomic_store(&room, 3 * GIB - (all - left));
    if (store_open(&o, &st, &e)) {
        fail_msg("%s", e.msg);
    }
    b = of(st);
    assert_true(b.floor == 20 * GIB && b.floor_now == 3 * GIB);
    /* a number that somebody has chosen holds at once */
    uint64_t given = 4 * GIB;
    assert_int_equal(store_set_budget(st, NULL, &given, &e), 0);
    await_trimmed(st, GIB);
    assert_true(of(st).floor == given && of(st).floor_now == given);
    store_close(st);
    model_close(m);
    model_folder_close(&src);
    util_rmtree(tmp);
    free(one);
    free(url);
    free(cache);
    free(dir);
    free(tmp);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_numbers), cmocka_unit_test(t_floor)};
    return cmocka_run_group_tests_name("store_floor", t, NULL, NULL);
}
