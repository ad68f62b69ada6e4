/* SPDX-License-Identifier: MIT
 * catalog_rows.c: see catalog_rows.h. */
#include "node/store/catalog_rows.h"

#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>

static void row_bytes(const struct digest *d, uint8_t *out)
{
    for (uint32_t i = 0; i < d->n; i++) {
        num_put_le64(out + 8 * (size_t)i, d->xxh[i]);
    }
}

static int64_t row_sum(uint32_t id, const struct digest *d, const uint8_t *xxh, size_t n)
{
    uint8_t h[16 + SHA256_SIZE + 24];
    size_t len = 16 + SHA256_SIZE + 8;
    num_put_le32(h, id);
    num_put_le64(h + 4, d->size);
    num_put_le32(h + 12, d->source);
    memcpy(h + 16, d->sha, SHA256_SIZE);
    num_put_le64(h + 16 + SHA256_SIZE, chunk_xxh(xxh, n));
    if (d->shas) {
        num_put_le64(h + len, chunk_xxh(d->shas, (size_t)d->n * SHA256_SIZE));
        len += 8;
    }
    if (d->rests) {
        num_put_le64(h + len, d->rests);
        len += 8;
    }
    return (int64_t)chunk_xxh(h, len);
}

struct digest *catalog_row_digest(sqlite3_stmt *s, uint32_t *id)
{
    int64_t rid = sqlite3_column_int64(s, 0), size = sqlite3_column_int64(s, 1);
    const uint8_t *sha = sqlite3_column_blob(s, 3);
    int nsha = sqlite3_column_bytes(s, 3);
    const uint8_t *xxh = sqlite3_column_blob(s, 4);
    int nx = sqlite3_column_bytes(s, 4);
    const uint8_t *shas = sqlite3_column_blob(s, 7);
    int ns = sqlite3_column_bytes(s, 7);
    if (rid < 0 || rid >= UINT32_MAX || size <= 0 || size > (int64_t)1 << 40 || !sha ||
        nsha != SHA256_SIZE || !xxh || (uint64_t)nx != 8ull * chunk_count((uint64_t)size) ||
        (shas && (uint64_t)ns != (uint64_t)SHA256_SIZE * chunk_count((uint64_t)size))) {
        return NULL;
    }
    struct digest *d = digest_alloc((uint64_t)size, shas != NULL);
    if (!d) {
        return NULL;
    }
    *id = (uint32_t)rid;
    d->source = (uint32_t)sqlite3_column_int64(s, 2);
    d->rests = (uint64_t)sqlite3_column_int64(s, 8);
    memcpy(d->sha, sha, SHA256_SIZE);
    for (uint32_t i = 0; i < d->n; i++) {
        d->xxh[i] = num_get_le64(xxh + 8 * (size_t)i);
    }
    if (shas) {
        memcpy(d->shas, shas, (size_t)ns);
    }
    if (row_sum(*id, d, xxh, (size_t)nx) != sqlite3_column_int64(s, 5)) {
        free(d);
        return NULL;
    }
    return d;
}

#define INSERT_ROW                                                                  \
    " INTO objects (model, id, size, source, sha256, chunks, sum, last_use, shas, " \
    "rests) VALUES (?,?,?,?,?,?,?,?,?,?)"

static int put_row(sqlite3_stmt *s, int64_t model, const struct catalog_row *w)
{
    const struct digest *d = w->d;
    size_t n = (size_t)d->n * 8;
    uint8_t *x = malloc(n ? n : 1);
    if (!x) {
        return SQLITE_NOMEM;
    }
    row_bytes(d, x);
    sqlite3_bind_int64(s, 1, model);
    sqlite3_bind_int64(s, 2, w->id);
    sqlite3_bind_int64(s, 3, (int64_t)d->size);
    sqlite3_bind_int64(s, 4, d->source);
    sqlite3_bind_blob(s, 5, d->sha, SHA256_SIZE, SQLITE_STATIC);
    sqlite3_bind_blob(s, 6, x, (int)n, SQLITE_STATIC);
    sqlite3_bind_int64(s, 7, row_sum(w->id, d, x, n));
    sqlite3_bind_int64(s, 8, (int64_t)w->last_use);
    if (d->shas) {
        sqlite3_bind_blob64(s, 9, d->shas, (sqlite3_uint64)d->n * SHA256_SIZE, SQLITE_STATIC);
    }
    sqlite3_bind_int64(s, 10, (int64_t)d->rests);
    int rc = sqlite3_step(s);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    free(x);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

void catalog_adder_close(struct catalog_adder *a)
{
    sqlite3_finalize(a->insert);
    sqlite3_finalize(a->replace);
    sqlite3_finalize(a->get);
    a->insert = a->replace = a->get = NULL;
}

int catalog_adder_open(sqlite3 *db, struct catalog_adder *a)
{
    memset(a, 0, sizeof *a);
    a->db = db;
    int rc = sqlite3_prepare_v2(db, "INSERT OR IGNORE" INSERT_ROW, -1, &a->insert, NULL);
    if (!rc) {
        rc = sqlite3_prepare_v2(db, "INSERT OR REPLACE" INSERT_ROW, -1, &a->replace, NULL);
    }
    if (!rc) {
        rc =
            sqlite3_prepare_v2(db, "SELECT " CATALOG_COLUMNS " FROM objects WHERE model=? AND id=?",
                               -1, &a->get, NULL);
    }
    if (rc) {
        catalog_adder_close(a);
    }
    return rc;
}

int catalog_add_row(struct catalog_adder *a, int64_t model, struct catalog_row *w)
{
    w->result = 0;
    int rc = put_row(a->insert, model, w);
    if (rc || sqlite3_changes(a->db) > 0) {
        a->inserted += !rc;
        return rc;
    }
    sqlite3_bind_int64(a->get, 1, model);
    sqlite3_bind_int64(a->get, 2, w->id);
    rc = sqlite3_step(a->get);
    struct digest *old = NULL;
    uint32_t id;
    if (rc == SQLITE_ROW) {
        old = catalog_row_digest(a->get, &id);
        rc = 0;
    }
    sqlite3_reset(a->get);
    if (rc) {
        return rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
    }
    if (!old || digest_beats(w->d, old)) {
        rc = put_row(a->replace, model, w);
    } else {
        w->result = digest_equal(old, w->d) ? 0 : ERR_DIGEST;
    }
    free(old);
    return rc;
}

int catalog_put_row(struct catalog_adder *a, int64_t model, const struct catalog_row *w)
{
    return put_row(a->replace, model, w);
}

int catalog_remove_row(sqlite3 *db, int64_t model, uint32_t id)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db, "DELETE FROM objects WHERE model=? AND id=?", -1, &s, NULL);
    if (!rc) {
        sqlite3_bind_int64(s, 1, model);
        sqlite3_bind_int64(s, 2, id);
        rc = sqlite3_step(s);
        rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
    }
    sqlite3_finalize(s);
    return rc;
}
