/* SPDX-License-Identifier: MIT
 * t_store_schema.c: catalogs of older programs (2 and 3; 1 is in t_store_share_old) are taken over
 * with every row, and those of newer ones are refused and left as they are, byte for byte. */
#include "node/store/at_rest.h"
#include "node/store/share.h"
#include "proto/base/file.h"
#include "proto/base/sha256.h"
#include "tests/store/cache_rig.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOW 4

static void sql(struct rig *r, const char *text)
{
    char *path = util_path("%s/catalog.sqlite", r->cache), *why = NULL;
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s: %s", text, why);
    }
    sqlite3_close(db);
    free(path);
}

static int number(struct rig *r, const char *query)
{
    char *path = util_path("%s/catalog.sqlite", r->cache);
    sqlite3 *db;
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, query, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    int v = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    free(path);
    return v;
}

/* Makes of the present catalog what the program of that schema had written. */
static void make_old(struct rig *r, int schema)
{
    sql(r, "DROP TABLE looked; PRAGMA user_version=3");
    if (schema == 2) {
        sql(r, "DROP TABLE members; DROP TABLE statements; ALTER TABLE objects DROP COLUMN rests;"
               "PRAGMA user_version=2");
    }
}

static void t_older(void **state)
{
    for (int schema = 2; schema < NOW; schema++) {
        struct rig r;
        (void)state;
        rig_start(&r);
        get_all(&r, 1);
        rig_close(&r);
        make_old(&r, schema);
        assert_int_equal(number(&r, "PRAGMA user_version"), schema);
        char *journal = file_of(&r, "digests.log"); /* nothing is to come from there */
        assert_int_equal(unlink(journal), 0);
        rig_open(&r);
        assert_int_equal(r.log.n, 0);
        assert_int_equal(number(&r, "PRAGMA user_version"), NOW);
        get_all(&r, 1);
        assert_int_equal(origin_bytes(&r), 0);
        struct store_basis b;
        store_get_basis(r.st, &b);
        assert_int_equal(b.objects[BASIS_ORIGIN], r.n);
        rig_close(&r);
        assert_int_equal(number(&r, "SELECT count(*) FROM objects WHERE rests = 0"), (int)r.n);
        assert_int_equal(number(&r, "SELECT count(*) FROM looked"), 0);
        free(journal);
        rig_end(&r);
    }
}

static void file_sha(const char *path, uint8_t sha[SHA256_SIZE])
{
    struct buf b;
    struct err e;
    buf_init(&b, 1 << 26);
    assert_int_equal(file_read_all(path, &b, &e), 0);
    sha256(b.p, b.n, sha);
    buf_free(&b);
}

static void ignore(void *ctx, uint32_t id, const char *line)
{
    (void)ctx;
    (void)id;
    (void)line;
}

static void t_newer(void **state)
{
    struct rig r;
    struct err e = {0};
    uint8_t before[SHA256_SIZE], after[SHA256_SIZE];
    (void)state;
    rig_start(&r);
    get_all(&r, 5);
    rig_close(&r);
    /* out of WAL mode, so that all of it is in one file */
    sql(&r, "PRAGMA journal_mode=DELETE; CREATE TABLE future (x); PRAGMA user_version=5");
    char *path = util_path("%s/catalog.sqlite", r.cache);
    file_sha(path, before);
    assert_int_equal(store_open(&r.o, &r.st, &e), ERR_UNSUPPORTED);
    r.st = NULL;
    assert_non_null(strstr(e.msg, "newer version of this program (schema 5, known: 4)"));
    assert_non_null(strstr(e.msg, "use that version, or another cache folder"));
    struct rest_models l;
    struct rest_verify v = {.deep = true, .found = ignore};
    struct rest_verified out;
    assert_int_equal(rest_models(r.cache, &l, &e), 0);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.v[0].address, DEMO_MODEL);
    assert_int_equal(rest_verify(r.cache, &l.v[0], &v, &out, &e), ERR_UNSUPPORTED);
    rest_models_free(&l);
    file_sha(path, after);
    assert_memory_equal(before, after, SHA256_SIZE);
    assert_int_equal(util_count_files(r.cache, ".damaged", NULL), 0);
    free(path);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(t_older), cmocka_unit_test(t_newer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
