/* SPDX-License-Identifier: MIT
 * catalog_looked.c: see catalog_looked.h. */
#include "node/store/catalog_looked.h"

#include "node/store/catalog_inner.h"

struct arg {
    int64_t model, folder;
    void (*each)(void *ctx, const struct looked *l);
    void *ctx;
    const struct looked *l;
    size_t n;
};

static int load_body(struct catalog *c, void *arg, struct err *e)
{
    const struct arg *a = arg;
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(c->db,
                                "SELECT id, size, mtime, ino, digest FROM looked WHERE model=? AND "
                                "folder=?",
                                -1, &s, NULL);
    if (!rc) {
        sqlite3_bind_int64(s, 1, a->model);
        sqlite3_bind_int64(s, 2, a->folder);
        while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
            int64_t id = sqlite3_column_int64(s, 0);
            struct looked l = {.id = (uint32_t)id,
                               .file = {(uint64_t)sqlite3_column_int64(s, 1),
                                        sqlite3_column_int64(s, 2),
                                        (uint64_t)sqlite3_column_int64(s, 3)},
                               .digest = (uint64_t)sqlite3_column_int64(s, 4)};
            if (id >= 0 && id < UINT32_MAX) {
                a->each(a->ctx, &l);
            }
        }
        rc = rc == SQLITE_DONE ? 0 : rc;
    }
    sqlite3_finalize(s);
    return rc ? catalog_sql_err(c, rc, "read what is known of adopted folders", e) : 0;
}

int catalog_looked(struct catalog *c, int64_t model, int64_t folder,
                   void (*each)(void *ctx, const struct looked *l), void *ctx, struct err *e)
{
    struct arg a = {.model = model, .folder = folder, .each = each, .ctx = ctx};
    return catalog_guarded(c, load_body, &a, e);
}

static int add_body(struct catalog *c, void *arg, struct err *e)
{
    const struct arg *a = arg;
    sqlite3_stmt *s = NULL;
    int rc =
        sqlite3_prepare_v2(c->db,
                           "INSERT OR REPLACE INTO looked (model, folder, id, size, mtime, ino,"
                           " digest) VALUES (?,?,?,?,?,?,?)",
                           -1, &s, NULL);
    rc = rc ? rc : catalog_run(c, "BEGIN IMMEDIATE");
    bool begun = !rc;
    for (size_t i = 0; i < a->n && !rc; i++) {
        const struct looked *l = &a->l[i];
        sqlite3_bind_int64(s, 1, a->model);
        sqlite3_bind_int64(s, 2, a->folder);
        sqlite3_bind_int64(s, 3, l->id);
        sqlite3_bind_int64(s, 4, (int64_t)l->file.size);
        sqlite3_bind_int64(s, 5, l->file.mtime);
        sqlite3_bind_int64(s, 6, (int64_t)l->file.ino);
        sqlite3_bind_int64(s, 7, (int64_t)l->digest);
        rc = sqlite3_step(s);
        rc = rc == SQLITE_DONE ? 0 : rc;
        sqlite3_reset(s);
    }
    rc = rc ? rc : catalog_run(c, "COMMIT");
    int r = rc ? catalog_sql_err(c, rc, "write what is known of adopted folders", e) : 0;
    if (rc && begun) {
        catalog_run(c, "ROLLBACK");
    }
    sqlite3_finalize(s);
    return r;
}

int catalog_looked_add(struct catalog *c, int64_t model, int64_t folder, const struct looked *l,
                       size_t n, struct err *e)
{
    struct arg a = {.model = model, .folder = folder, .l = l, .n = n};
    return catalog_guarded(c, add_body, &a, e);
}

static int drop_body(struct catalog *c, void *arg, struct err *e)
{
    const struct arg *a = arg;
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(c->db, "DELETE FROM looked WHERE folder=?", -1, &s, NULL);
    if (!rc) {
        sqlite3_bind_int64(s, 1, a->folder);
        rc = sqlite3_step(s);
        rc = rc == SQLITE_DONE ? 0 : rc;
    }
    sqlite3_finalize(s);
    return rc ? catalog_sql_err(c, rc, "forget an adopted folder", e) : 0;
}

int catalog_looked_drop(struct catalog *c, int64_t folder, struct err *e)
{
    struct arg a = {.folder = folder};
    return catalog_guarded(c, drop_body, &a, e);
}
