/* SPDX-License-Identifier: MIT
 * t_store_rm.c: a whole model removed from a cache: nothing of it stays, in no table of the
 * catalog, under no address by which it was used, as no commit that a branch is here; what is
 * another model's does. */
#include "tests/store/cache_rig.h"

#include "node/store/adopt_list.h"
#include "node/store/hub.h"
#include "node/store/rest_room.h"
#include "node/store/upkeep.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t rows(const char *cache, const char *sql)
{
    char *p = util_path("%s/catalog.sqlite", cache);
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_open(p, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    free(p);
    return n;
}

static void run(const char *cache, const char *sql)
{
    char *p = util_path("%s/catalog.sqlite", cache);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(p, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    free(p);
}

static void await_looked(struct rig *r)
{
    struct store_upkeep u;
    uint64_t end = clock_ns() + 120000000000u;
    do {
        store_get_upkeep(r->st, &u);
        usleep(1000);
    } while (u.to_look && clock_ns() < end);
    assert_int_equal(u.to_look, 0);
}

/* A record of which commit a branch is, as hub.c writes it; at that place. */
static void pin(const char *cache, const char *file, char digit, char commit[41])
{
    struct hub_name n;
    struct hub_pin p = {.since = 1700000000};
    struct buf b;
    struct err e;
    char *dir = util_path("%s/revisions", cache), *path = util_path("%s/revisions/%s", cache, file);
    memset(commit, digit, 40);
    commit[40] = 0;
    memcpy(p.commit, commit, 41);
    buf_init(&b, 8192);
    assert_true(hub_parse("o/m", HUB_SITE, true, &n));
    assert_int_equal(hub_pin_text(&n, &p, &b), 0);
    assert_true(mkdir(dir, 0700) == 0 || access(dir, F_OK) == 0);
    assert_int_equal(file_write_atomic(path, b.p, b.n, 0600, &e), 0);
    buf_free(&b);
    free(dir);
    free(path);
}

static void t_whole(void **state)
{
    (void)state;
    struct rig r;
    struct err e = {0};
    struct adopt_list l = {.n = 0};
    size_t changed;
    char mine[41], others[41];
    rig_start(&r);
    get_all(&r, 4);
    rig_close(&r);
    pin(r.cache, "0123456789abcdef", 'a', mine);
    pin(r.cache, "fedcba9876543210", 'b', others);
    /* a second address of the same model, such as a hub's with a commit in it; and an adopted
     * folder */
    char *second = util_path("%s/at-%s", r.tmp, mine), *folder = util_path("%s/f", r.tmp);
    util_copy_dir(DEMO_MODEL, second);
    util_copy_dir(DEMO_MODEL, folder);
    assert_int_equal(adopt_find(folder, &l, &e), 0);
    assert_int_equal(adopt_list_change(r.cache, &l, true, &changed, &e), 0);
    adopt_list_free(&l);
    r.o.model = second;
    rig_open(&r);
    await_looked(&r);
    rig_close(&r);
    run(r.cache, "INSERT INTO models (no, root) VALUES (77, 'another');"
                 "INSERT INTO looked VALUES (77, 1, 5, 1, 1, 1, 1);"
                 "INSERT INTO statements VALUES (77, 1, 1, x'00', 1)");
    run(r.cache, "INSERT INTO statements SELECT no, 1, 1, x'00', 1 FROM models WHERE no<>77");
    assert_true(rows(r.cache, "SELECT count(*) FROM looked WHERE model<>77") > 100);
    assert_true(rows(r.cache, "SELECT count(*) FROM objects") > 100);
    assert_int_equal(util_count_files(r.cache, "origin.txt", NULL), 2);
    struct rest_models models;
    assert_int_equal(rest_models(r.cache, &models, &e), 0);
    assert_int_equal(models.n, 1);
    struct rest_drop o = {.whole = true};
    struct rest_dropped d;
    if (rest_drop(r.cache, &models.v[0], &o, &d, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_true(d.objects > 0);
    assert_int_equal(rows(r.cache, "SELECT count(*) FROM models"), 1);
    assert_int_equal(rows(r.cache, "SELECT count(*) FROM objects"), 0);
    assert_int_equal(rows(r.cache, "SELECT count(*) FROM looked"), 1);
    assert_int_equal(rows(r.cache, "SELECT count(*) FROM statements"), 1);
    assert_int_equal(util_count_files(r.cache, "/models/", NULL), 0);
    assert_int_equal(util_count_files(r.cache, "/origins/", NULL), 0);
    assert_int_equal(util_count_files(r.cache, "/revisions/", NULL), 1);
    assert_int_equal(util_count_files(r.cache, "/revisions/fedcba9876543210", NULL), 1);
    assert_true(util_count_files(folder, "safetensors", NULL) > 0); /* that is nobody's to remove */
    rest_models_free(&models);
    r.o.model = DEMO_MODEL;
    rig_open(&r); /* as if it had never been there */
    get_all(&r, 50);
    rig_close(&r);
    free(second);
    free(folder);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_whole)};
    return cmocka_run_group_tests_name("store_rm", t, NULL, NULL);
}
