/* SPDX-License-Identifier: MIT
 * t_store_share_old.c: a cache written by a program of schema 1, which kept no SHA-256s of chunks:
 * it is used as it is, and served once they have been computed. The old forms are written here by
 * hand. */
#include "tests/store/cache_rig.h"
#include "tests/store/share_rig.h"

#include "node/store/chunk.h"
#include "proto/base/num.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPS (&store_storage_ops)

static const char SCHEMA_1[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE models (no INTEGER PRIMARY KEY, root TEXT UNIQUE NOT NULL);"
    "CREATE TABLE objects (model INTEGER NOT NULL, id INTEGER NOT NULL,"
    " size INTEGER NOT NULL, source INTEGER NOT NULL, sha256 BLOB NOT NULL,"
    " chunks BLOB NOT NULL, sum INTEGER NOT NULL, last_use INTEGER NOT NULL,"
    " PRIMARY KEY (model, id)) WITHOUT ROWID;"
    "PRAGMA user_version=1;"
    "COMMIT";

/* Sums of one object as both forms have them: 8 bytes for each chunk behind the SHA-256. */
static uint8_t *sums(const struct model *m, uint32_t id, uint8_t sha[SHA256_SIZE], uint32_t *n)
{
    uint64_t size = model_object(m, id)->size;
    uint8_t *truth = util_truth(m, DEMO_MODEL, id), part[SHA256_SIZE];
    *n = chunk_count(size);
    uint8_t *x = malloc((size_t)*n * 8);
    struct sha256 h;
    sha256_init(&h);
    for (uint32_t i = 0; i < *n; i++) {
        const uint8_t *c = truth + (size_t)i * CHUNK_SIZE;
        sha256(c, chunk_len(size, i), part);
        sha256_add(&h, part, SHA256_SIZE);
        num_put_le64(x + 8 * (size_t)i, chunk_xxh(c, chunk_len(size, i)));
    }
    sha256_done(&h, sha);
    free(truth);
    return x;
}

static void write_old(struct rig *r)
{
    static const char *const tail[] = {"", "-wal", "-shm"};
    for (int k = 0; k < 3; k++) {
        char *c = util_path("%s/catalog.sqlite%s", r->cache, tail[k]);
        unlink(c);
        free(c);
    }
    char *path = util_path("%s/catalog.sqlite", r->cache), *log = file_of(r, "/digests.log");
    char hex[2 * SHA256_SIZE + 1];
    sha256_hex(model_root(r->m), hex);
    sqlite3 *db;
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, SCHEMA_1, NULL, NULL, NULL), SQLITE_OK);
    char *sql = util_path("INSERT INTO models VALUES (1, '%s')", hex);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    free(sql);
    assert_int_equal(sqlite3_exec(db, "BEGIN", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db, "INSERT INTO objects VALUES (1,?,?,1,?,?,?,0)", -1, &s, NULL),
        SQLITE_OK);
    FILE *f = fopen(log, "wb");
    assert_non_null(f);
    for (uint32_t id = 0; id < r->n; id++) {
        uint8_t sha[SHA256_SIZE], h[16 + SHA256_SIZE + 8];
        uint32_t n;
        uint8_t *x = sums(r->m, id, sha, &n);
        uint64_t size = model_object(r->m, id)->size;
        num_put_le32(h, id);
        num_put_le64(h + 4, size);
        num_put_le32(h + 12, 1);
        memcpy(h + 16, sha, SHA256_SIZE);
        num_put_le64(h + 48, chunk_xxh(x, (size_t)n * 8));
        if (id % 7) { /* some rows are lost: the journal has them */
            sqlite3_bind_int64(s, 1, id);
            sqlite3_bind_int64(s, 2, (int64_t)size);
            sqlite3_bind_blob(s, 3, sha, SHA256_SIZE, SQLITE_TRANSIENT);
            sqlite3_bind_blob(s, 4, x, (int)n * 8, SQLITE_TRANSIENT);
            sqlite3_bind_int64(s, 5, (int64_t)chunk_xxh(h, sizeof h));
            assert_int_equal(sqlite3_step(s), SQLITE_DONE);
            sqlite3_reset(s);
        }
        uint8_t rec[56 + 8 * 8 + 8];
        assert_true(n <= 8);
        num_put_le32(rec, 0x314a4853u);
        num_put_le32(rec + 4, id);
        num_put_le64(rec + 8, size);
        num_put_le32(rec + 16, 1);
        num_put_le32(rec + 20, n);
        memcpy(rec + 24, sha, SHA256_SIZE);
        memcpy(rec + 56, x, (size_t)n * 8);
        num_put_le64(rec + 56 + 8 * (size_t)n, chunk_xxh(rec, 56 + 8 * (size_t)n));
        assert_int_equal(fwrite(rec, 1, 64 + 8 * (size_t)n, f), 64 + 8 * (size_t)n);
        free(x);
    }
    fclose(f);
    sqlite3_finalize(s);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    free(path);
    free(log);
}

static size_t listed(struct store *st)
{
    uint32_t *ids;
    size_t n;
    struct err e = {0};
    assert_int_equal(store_share_list(st, &ids, &n, &e), 0);
    free(ids);
    return n;
}

static int version(struct rig *r)
{
    char *path = util_path("%s/catalog.sqlite", r->cache);
    sqlite3 *db;
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    int v = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    free(path);
    return v;
}

static void t_old(void **state)
{
    struct rig r;
    rig_start(&r);
    get_all(&r, 1);
    rig_close(&r);
    struct store_opts o = {.model = DEMO_MODEL};
    struct store *plain; /* for the model's sizes, while the cache is closed */
    struct err e = {0};
    assert_int_equal(store_open(&o, &plain, &e), 0);
    r.m = store_model(plain);
    write_old(&r);
    store_close(plain);
    assert_int_equal(version(&r), 1);
    rig_open(&r);
    assert_int_equal(r.log.n, 0); /* nothing was removed, nothing is wrong */
    assert_int_equal(version(&r), 4);
    get_all(&r, 3);
    assert_int_equal(origin_bytes(&r), 0);
    struct store_basis b;
    store_get_basis(r.st, &b);
    assert_int_equal(b.objects[BASIS_ORIGIN], r.n);
    assert_int_equal(listed(r.st), 0); /* not known well enough for peers */
    struct object_key k = store_key(r.st, 5);
    uint8_t sha[2][SHA256_SIZE], object[SHA256_SIZE], want[SHA256_SIZE];
    enum basis basis;
    assert_false(OPS->digests(r.st, k, 0, 1, sha, &basis, object));
    /* with somebody to share with it is made good, one after the other; damage is found on the way
     */
    char *f = file_of(&r, "experts/003/007.");
    uint32_t bad = model_expert_id(r.m, 3, 7);
    poke(f, 100, 1);
    struct up up;
    up_start(&up, r.st, NULL, UP_HOLD);
    for (int i = 0; i < 20000 && listed(r.st) < r.n - 1; i++) {
        usleep(1000);
    }
    assert_int_equal(listed(r.st), r.n - 1);
    assert_true(up_has_list(&up));
    assert_int_equal(access(f, F_OK), -1);
    assert_int_equal(util_log_has(&r.log, "is damaged"), 1);
    free(f);
    up_stop(&up);
    for (int again = 0; again < 3; again++) { /* then from the catalog, then from the journal */
        for (uint32_t id = 0; id < r.n; id += 5) {
            uint32_t n = chunk_count(model_object(r.m, id)->size), m;
            if (id == bad) {
                continue;
            }
            assert_true(OPS->digests(r.st, store_key(r.st, id), 0, n, sha, &basis, object));
            uint8_t *x = sums(r.m, id, want, &m);
            assert_memory_equal(object, want, SHA256_SIZE);
            sha256(sha, (size_t)n * SHA256_SIZE, want);
            assert_memory_equal(object, want, SHA256_SIZE);
            assert_int_equal(basis, BASIS_ORIGIN);
            free(x);
        }
        rig_close(&r);
        if (again == 1) {
            char *c = util_path("%s/catalog.sqlite", r.cache);
            unlink(c);
            free(c);
        }
        rig_open(&r);
        assert_int_equal(listed(r.st), r.n - 1);
    }
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_old)};
    return cmocka_run_group_tests_name("store_share_old", t, NULL, NULL);
}
