/* SPDX-License-Identifier: MIT
 * t_store_budget.c: how much of a disk the cache takes: numbers given, kept and automatic; coming
 * down to them while requests run and while others fill the volume; what is counted as ours; bytes
 * written by day. */
#include "tests/store/cache_rig.h"

#include "node/store/budget.h"
#include "node/store/kept.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/mount.h>
#endif
#include <unistd.h>

#define WAIT_NS (60 * 1000000000ull)

static struct store_budget of(struct store *st)
{
    struct store_budget b;
    struct err e = {0};
    assert_int_equal(store_get_budget(st, &b, &e), 0);
    return b;
}

static void await_used(struct store *st, uint64_t most)
{
    uint64_t end = clock_ns() + WAIT_NS;
    while (of(st).used > most) {
        if (clock_ns() > end) {
            fail_msg("%llu bytes stay on disk, wanted %llu", (unsigned long long)of(st).used,
                     (unsigned long long)most);
        }
        usleep(2000);
    }
}

static void set(struct store *st, uint64_t budget)
{
    struct err e = {0};
    if (store_set_budget(st, &budget, NULL, &e)) {
        fail_msg("%s", e.msg);
    }
}

/* Presence by the store's account, by its sum, and by the files must be the same. */
static void same_everywhere(struct rig *r)
{
    uint64_t sum = 0;
    int n = 0;
    char *first = NULL;
    for (uint32_t id = 0; id < r->n; id++) {
        enum store_tier t = store_where(r->st, id);
        if (t == STORE_DISK) {
            sum += model_object(r->m, id)->size;
            n += model_object(r->m, id)->kind == MODEL_EXPERT;
        }
    }
    assert_true(of(r->st).used == sum);
    assert_int_equal(util_count_files(r->cache, ".mxfp4", &first), n);
    free(first);
}

/* ---- the small files ---- */

static void t_parse(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t budget, floor;
    } cases[] = {
        {"", true, 0, 0},
        {"disk_budget 5\n", true, 5, 0},
        {"disk_budget 5\ndisk_floor 7\n", true, 5, 7},
        {"disk_floor 7", true, 0, 7},
        {"disk_floor 7\n\n", false, 0, 0},
        {"disk_budget 0\n", false, 0, 0},
        {"disk_budget \n", false, 0, 0},
        {"disk_budget -5\n", false, 0, 0},
        {"disk_budget 5 \n", false, 0, 0},
        {"disk_budget 9223372036854775807\n", true, INT64_MAX, 0},
        {"disk_budget 9223372036854775808\n", false, 0, 0},
        {"disk_budget 5\nram 6\n", false, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kept_budget b;
        assert_int_equal(kept_budget_parse(cases[i].text, strlen(cases[i].text), &b), cases[i].ok);
        assert_true(b.budget == cases[i].budget && b.floor == cases[i].floor);
        assert_int_equal(b.has_budget, cases[i].budget != 0);
        assert_int_equal(b.has_floor, cases[i].floor != 0);
    }
}

static void t_days(void **state)
{
    struct kept_day v[KEPT_DAYS];
    char date[KEPT_DATE];
    static const char text[] = "2026-11-30 5\nnonsense\n1970-01-01 1\n2026-11-30 6\n2024-02-29 7\n"
                               "2026-13-01 9\n2026-11-29 9223372036854775808\n2026-12-01 8";
    assert_int_equal(kept_written_parse(text, sizeof text - 1, v), 4);
    assert_int_equal(v[0].day, 0);
    assert_int_equal(v[1].day, 19782); /* 54 years of 365 days, 13 leap days, 31 + 28 */
    assert_true(v[2].bytes == 11 && v[3].bytes == 8);
    assert_int_equal(v[3].day, v[2].day + 1);
    /* there and back, over four hundred years */
    for (int32_t day = 0; day < 146097; day += 13) {
        char line[40];
        kept_date(day, date);
        int n = snprintf(line, sizeof line, "%s %d\n", date, (int)day);
        assert_int_equal(kept_written_parse(line, (size_t)n, v), 1);
        assert_int_equal(v[0].day, day);
    }
    /* more days than are kept: the last ones stay */
    char *tmp = util_tmpdir();
    struct err e = {0};
    for (int32_t day = 1000; day < 1050; day++) {
        assert_int_equal(kept_written_add(tmp, tmp, day, 1, &e), 0);
        assert_int_equal(kept_written_add(tmp, tmp, day, (uint64_t)day, &e), 0);
    }
    assert_int_equal(kept_written_load(tmp, v), KEPT_DAYS);
    assert_int_equal(v[0].day, 1050 - KEPT_DAYS);
    assert_int_equal(v[KEPT_DAYS - 1].day, 1049);
    assert_true(v[KEPT_DAYS - 1].bytes == 1050);
    assert_int_equal(kept_written_add(tmp, tmp, 3, 7, &e), 0); /* older than all: no place */
    assert_int_equal(kept_written_load(tmp, v), KEPT_DAYS);
    assert_int_equal(v[0].day, 1050 - KEPT_DAYS);
    util_rmtree(tmp);
    free(tmp);
}

static void t_auto_floor(void **state)
{
    uint64_t gib = 1ull << 30;
    assert_true(store_auto_floor(400 * gib, 300 * gib, 0) == 20 * gib);    /* a twentieth */
    assert_true(store_auto_floor(4000 * gib, 900 * gib, 0) == 32 * gib);   /* the most */
    assert_true(store_auto_floor(400 * gib, 8 * gib, 4 * gib) == 6 * gib); /* half of what can be */
    assert_true(store_auto_floor(10 * gib, 9 * gib, 0) == gib);            /* the least */
    assert_true(store_auto_floor(32 << 20, 30 << 20, 0) == 4 << 20);       /* a small volume */
    assert_true(store_auto_floor(0, 0, 0) == gib);
    assert_true(store_auto_floor(UINT64_MAX, UINT64_MAX - 5, UINT64_MAX) == 32 * gib);
}

/* ---- budgets of a store ---- */

static void t_kept(void **state)
{
    struct rig r;
    rig_start(&r);
    r.o.disk_floor = 0;
    rig_close(&r);
    rig_open(&r);
    struct store_budget b = of(r.st);
    assert_true(b.budget == 0 && b.budget_from == STORE_AUTO && b.floor_from == STORE_AUTO);
    assert_true(b.floor >= 1ull << 30);
    assert_true(b.model == model_expert_bytes(r.m) + model_spine_bytes(r.m));
    uint64_t budget = 3 << 20, floor = 1;
    struct err e = {0};
    assert_int_equal(store_set_budget(r.st, &budget, &floor, &e), 0);
    b = of(r.st);
    assert_true(b.budget == budget && b.budget_from == STORE_KEPT);
    assert_true(b.floor == 1 && b.floor_from == STORE_KEPT);
    rig_close(&r);
    rig_open(&r); /* a later start has it, too */
    b = of(r.st);
    assert_true(b.budget == budget && b.floor == 1 && b.budget_from == STORE_KEPT);
    assert_true(b.may <= budget);
    rig_close(&r);
    r.o.disk_budget = 5 << 20; /* an option comes first, */
    rig_open(&r);
    b = of(r.st);
    assert_true(b.budget == 5 << 20 && b.budget_from == STORE_GIVEN);
    uint64_t none = 0; /* until it is changed */
    assert_int_equal(store_set_budget(r.st, &none, NULL, &e), 0);
    b = of(r.st);
    assert_true(b.budget == 0 && b.budget_from == STORE_AUTO && b.floor == 1);
    rig_close(&r);
    r.o.disk_budget = 0;
    rig_open(&r);
    /* what another process keeps is followed */
    budget = 4 << 20;
    assert_int_equal(store_keep_budget(r.cache, &budget, NULL, &e), 0);
    uint64_t end = clock_ns() + WAIT_NS;
    while (of(r.st).budget != budget && clock_ns() < end) {
        usleep(2000);
    }
    assert_true(of(r.st).budget == budget);
    rig_close(&r);
    uint64_t no_floor = UINT64_MAX;
    assert_int_equal(store_keep_budget(r.cache, &none, &no_floor, &e), 0);
    char *p = util_path("%s/budget", r.cache);
    assert_int_equal(access(p, F_OK), -1);
    free(p);
    rig_end(&r);
}

static void t_shrink(void **state)
{
    struct rig r;
    rig_start(&r);
    get_all(&r, 1);
    rig_close(&r); /* all are on disk */
    rig_open(&r);
    uint64_t spine = model_spine_bytes(r.m), x = model_expert_layout(r.m)->size;
    assert_true(of(r.st).used == sizes(&r, 1));
    same_everywhere(&r);
    /* the first expert of each layer is used again: it is not what leaves */
    for (uint32_t l = 1; l < model_config(r.m)->n_layers; l++) {
        get_right(&r, model_expert_id(r.m, l, 0));
    }
    set(r.st, spine + 20 * x);
    await_used(r.st, spine + 20 * x);
    assert_true(of(r.st).used == spine + 20 * x); /* and no more than needed */
    assert_true(of(r.st).trimmed == sizes(&r, 1) - spine - 20 * x);
    for (uint32_t l = 1; l < model_config(r.m)->n_layers && l <= 20; l++) {
        enum store_tier t = store_where(r.st, model_expert_id(r.m, l, 0));
        assert_true(t == STORE_DISK || t == STORE_RAM);
    }
    /* less than the spine: it stays, and that is said */
    set(r.st, 1);
    await_used(r.st, spine);
    uint64_t end = clock_ns() + WAIT_NS;
    while (!util_log_has(&r.log, "over its budget") && clock_ns() < end) {
        usleep(2000);
    }
    assert_int_equal(util_log_has(&r.log, "over its budget"), 1);
    assert_true(of(r.st).used == spine);
    set(r.st, 0);
    rig_close(&r); /* what is in RAM would not be written again */
    rig_open(&r);
    get_all(&r, 1);
    rig_close(&r);
    rig_open(&r);
    assert_true(of(r.st).used == sizes(&r, 1));
    same_everywhere(&r);
    rig_end(&r);
}

struct reader {
    struct rig *r;
    atomic_bool stop;
    atomic_uint wrong, got;
    uint32_t seed;
};

static void *read_on(void *arg)
{
    struct reader *x = arg;
    while (!atomic_load(&x->stop)) {
        x->seed = x->seed * 1664525u + 1013904223u;
        atomic_fetch_add(&x->wrong, (unsigned)try_get(x->r->st, (x->seed >> 8) % x->r->n));
        atomic_fetch_add(&x->got, 1);
    }
    return NULL;
}

/* The budget goes up and down below running requests: none fails, none is wrong. */
static void t_under_load(void **state)
{
    struct rig r;
    rig_start(&r);
    struct reader x[3] = {{&r, .seed = 1}, {&r, .seed = 2}, {&r, .seed = 3}};
    pthread_t t[3];
    uint64_t spine = model_spine_bytes(r.m), e1 = model_expert_layout(r.m)->size;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, read_on, &x[i]), 0);
    }
    for (uint32_t k = 0; k < 40; k++) {
        unsigned until = atomic_load(&x[0].got) + 8;
        set(r.st, k % 4 == 3 ? 0 : spine + (k * 7 % 60) * e1);
        while (atomic_load(&x[0].got) < until) {
            usleep(500);
        }
    }
    for (int i = 0; i < 3; i++) {
        atomic_store(&x[i].stop, true);
        pthread_join(t[i], NULL);
        assert_int_equal(atomic_load(&x[i].wrong), 0);
    }
    set(r.st, spine + 10 * e1);
    await_used(r.st, spine + 10 * e1);
    rig_close(&r);
    rig_open(&r);
    assert_true(of(r.st).used <= spine + 10 * e1);
    same_everywhere(&r);
    get_all(&r, 1);
    rig_end(&r);
}

static void put_file(const char *path, size_t n)
{
    char *dir = strdup(path);
    struct err e = {0};
    *strrchr(dir, '/') = 0;
    assert_int_equal(file_mkdirs(dir, &e), 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    char block[4096] = {1};
    for (size_t k = 0; k < n; k += sizeof block) {
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block) {
            break; /* the volume is full: as it is meant */
        }
    }
    close(fd);
    free(dir);
}

/* Counted are objects, also of other models in the folder, and nothing else that lies about. */
static void t_own(void **state)
{
    struct rig r;
    rig_start(&r);
    get_all(&r, 3);
    rig_close(&r);
    char *other = util_path("%s/models/0123456789abcdef/experts/001/002.mxfp4", r.cache);
    char *junk = util_path("%s/holiday.mov", r.cache);
    put_file(other, 1 << 20);
    put_file(junk, 3 << 20);
    rig_open(&r);
    uint64_t end = clock_ns() + WAIT_NS;
    while (of(r.st).others == 0 && clock_ns() < end) {
        usleep(2000);
    }
    struct store_budget b = of(r.st);
    assert_true(b.others == 1 << 20);
    assert_true(b.used == sizes(&r, 3));
    uint64_t whole = b.used + b.others;
    set(r.st, whole); /* it fits exactly */
    assert_true(of(r.st).used == sizes(&r, 3));
    uint64_t x = model_expert_layout(r.m)->size;
    set(r.st, whole - 1);
    await_used(r.st, sizes(&r, 3) - x);
    assert_true(of(r.st).used == sizes(&r, 3) - x); /* one, so none had left before */
    assert_true(of(r.st).others == 1 << 20);
    struct stat sb;
    assert_int_equal(stat(other, &sb), 0);
    assert_int_equal(stat(junk, &sb), 0);
    free(other);
    free(junk);
    rig_end(&r);
}

static void t_written(void **state)
{
    struct rig r;
    rig_start(&r);
    get_all(&r, 4);
    uint64_t all = sizes(&r, 4);
    rig_close(&r);
    rig_open(&r);
    struct store_budget b = of(r.st);
    assert_true(b.written == 0);
    /* each byte once, with records of 56 bytes a chunk and the journal beside them */
    assert_true(b.written_today >= all && b.written_today < all + all / 10 + (1 << 20));
    uint64_t before = b.written_today;
    get_all(&r, 4); /* from disk: nothing is written */
    assert_true(of(r.st).written_today == before);
    get_right(&r, model_expert_id(r.m, 1, 1));
    rig_close(&r);
    rig_open(&r);
    assert_true(of(r.st).written_today > before);
    rig_end(&r);
}

/* Somebody else fills the volume: the cache gives way; then it takes its room again. */
static void t_volume(void **state)
{
#ifdef __linux__
    char *mnt = util_tmpdir();
    if (mount("tmpfs", mnt, "tmpfs", 0, "size=48m") != 0) {
        print_message("skipped: a small volume can be mounted by root only\n");
        rmdir(mnt);
        free(mnt);
        skip();
    }
    struct rig r;
    rig_start(&r);
    rig_close(&r);
    char *junk = util_path("%s/junk", mnt), *own = r.cache;
    r.cache = util_path("%s/cache", mnt);
    r.o.cache_dir = r.cache;
    r.o.disk_floor = 4 << 20;
    rig_open(&r);
    get_all(&r, 1);
    rig_close(&r);
    rig_open(&r);
    uint64_t all = sizes(&r, 1), spine = model_spine_bytes(r.m);
    assert_true(of(r.st).used == all);
    put_file(junk, 64 << 20); /* to the last byte */
    await_used(r.st, all - (3 << 20));
    struct store_budget b = of(r.st);
    assert_true(b.used >= spine && b.floor == 4 << 20);
    /* requests go on, from memory where the disk cannot take them */
    get_all(&r, 1);
    assert_int_equal(unlink(junk), 0);
    uint64_t end = clock_ns() + WAIT_NS;
    while (of(r.st).used < all - (1 << 20) && clock_ns() < end) {
        get_all(&r, 1); /* without a restart; the few that are in RAM are not written */
    }
    rig_close(&r);
    rig_open(&r);
    get_all(&r, 1);
    rig_close(&r);
    rig_open(&r);
    assert_true(of(r.st).used == all);
    same_everywhere(&r);
    rig_close(&r);
    umount2(mnt, MNT_DETACH);
    rmdir(mnt);
    free(r.cache);
    free(mnt);
    free(junk);
    r.cache = own;
    rig_end(&r);
#else
    print_message("skipped: small volumes are made on Linux only\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_parse), cmocka_unit_test(t_days),    cmocka_unit_test(t_auto_floor),
        cmocka_unit_test(t_kept),  cmocka_unit_test(t_shrink),  cmocka_unit_test(t_under_load),
        cmocka_unit_test(t_own),   cmocka_unit_test(t_written), cmocka_unit_test(t_volume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
