/* SPDX-License-Identifier: MIT
 * catalog.c: see catalog.h. */
#include "node/store/catalog.h"

#include "node/store/catalog_inner.h"
#include "node/store/catalog_rows.h"
#include "node/store/journal.h"
#include "node/store/layout.h"
#include "proto/base/file.h"
#include "proto/base/num.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* 1 had no SHA-256s of chunks, 2 no members and statements, 3 nothing of adopted folders. */
#define SCHEMA 4
#define BUSY_MS 20000

/* What schema 3 has more than 2. */
#define WORDS_SQL                                                                             \
    "CREATE TABLE IF NOT EXISTS members (no INTEGER PRIMARY KEY, id BLOB UNIQUE NOT NULL,"    \
    " void INTEGER NOT NULL DEFAULT 0, why TEXT NOT NULL DEFAULT '');"                        \
    "CREATE TABLE IF NOT EXISTS statements (model INTEGER NOT NULL, member INTEGER NOT NULL," \
    " seq INTEGER NOT NULL, blob BLOB NOT NULL, sum INTEGER NOT NULL,"                        \
    " PRIMARY KEY (model, member, seq));"
/* What schema 4 has more than 3. */
#define LOOKED_SQL                                                                               \
    "CREATE TABLE IF NOT EXISTS looked (model INTEGER NOT NULL, folder INTEGER NOT NULL,"        \
    " id INTEGER NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL, ino INTEGER NOT NULL," \
    " digest INTEGER NOT NULL, PRIMARY KEY (model, folder, id)) WITHOUT ROWID;"

static bool is_damage(int rc)
{
    rc &= 0xff;
    return rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB;
}

int catalog_sql_err(struct catalog *c, int rc, const char *what, struct err *e)
{
    int no = c->db && rc == SQLITE_IOERR ? sqlite3_system_errno(c->db) : 0;
    if (no == ENOSPC || no == EDQUOT) { /* what SQLite calls an I/O error */
        rc = SQLITE_FULL;
    }
    if (c->memory && rc == SQLITE_READONLY) {
        return err_set(e, ERR_FULL, "the catalog %s cannot be written now", c->path);
    }
    int code = rc == SQLITE_FULL    ? ERR_FULL
               : rc == SQLITE_BUSY  ? ERR_BUSY
               : rc == SQLITE_NOMEM ? ERR_NOMEM
               : is_damage(rc)      ? ERR_FORMAT
                                    : ERR_IO;
    return err_set(e, code, "the catalog %s: cannot %s: %s", c->path, what,
                   c->db && rc != SQLITE_FULL ? sqlite3_errmsg(c->db) : sqlite3_errstr(rc));
}

int catalog_run(struct catalog *c, const char *sql)
{
    return sqlite3_exec(c->db, sql, NULL, NULL, NULL);
}

/* ---- opening ---- */

static int open_db(struct catalog *c, struct err *e)
{
    int rc = c->memory ? 0
                       : sqlite3_open_v2(c->path, &c->db,
                                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
                                             SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                                         NULL);
    if (!rc && !c->memory && sqlite3_db_readonly(c->db, "main") == 1) {
        rc = SQLITE_READONLY;
    }
    if (rc) {
        return catalog_sql_err(c, rc, "open it", e);
    }
    sqlite3_extended_result_codes(c->db, 0);
    sqlite3_busy_timeout(c->db, BUSY_MS);
    sqlite3_stmt *s = NULL;
    int version = 0;
    rc = sqlite3_prepare_v2(c->db, "PRAGMA user_version", -1, &s, NULL);
    if (!rc) {
        rc = sqlite3_step(s);
        version = rc == SQLITE_ROW ? sqlite3_column_int(s, 0) : 0;
        rc = rc == SQLITE_ROW ? 0 : rc;
        sqlite3_finalize(s);
    }
    if (rc) {
        return catalog_sql_err(c, rc, "read it", e);
    }
    c->was_empty = version == 0;
    if (version > SCHEMA) {
        return err_set(e, ERR_UNSUPPORTED,
                       "the catalog %s is of a newer version of this program (schema %d, known: "
                       "%d): use that version, or another cache folder",
                       c->path, version, SCHEMA);
    }
    catalog_run(c, "PRAGMA cache_size=-16384"); /* KiB; the default of 2 MB is for few rows */
    catalog_run(c,
                "PRAGMA journal_mode=WAL"); /* where the volume cannot, the old way does as well */
    /* the Mac's fsync leaves bytes in the drive: what a checkpoint overwrites must be beyond it */
    catalog_run(c, "PRAGMA checkpoint_fullfsync=1");
    rc = catalog_run(c, "PRAGMA synchronous=NORMAL");
    if (!rc && version == 1) {
        rc = catalog_run(c, "BEGIN IMMEDIATE;"
                            "ALTER TABLE objects ADD COLUMN shas BLOB;"
                            "PRAGMA user_version=2;"
                            "COMMIT");
        version = 2;
    }
    if (!rc && version == 2) {
        rc = catalog_run(
            c, "BEGIN IMMEDIATE;"
               "ALTER TABLE objects ADD COLUMN rests INTEGER NOT NULL DEFAULT 0;" WORDS_SQL
               "PRAGMA user_version=3;"
               "COMMIT");
        version = 3;
    }
    if (!rc && version == 3) {
        rc = catalog_run(c, "BEGIN IMMEDIATE;" LOOKED_SQL "PRAGMA user_version=4;"
                            "COMMIT");
    }
    if (!rc && version == 0) {
        rc = catalog_run(
            c,
            "BEGIN IMMEDIATE;"
            "CREATE TABLE IF NOT EXISTS models (no INTEGER PRIMARY KEY, root TEXT UNIQUE NOT "
            "NULL);"
            "CREATE TABLE IF NOT EXISTS objects (model INTEGER NOT NULL, id INTEGER NOT NULL,"
            " size INTEGER NOT NULL, source INTEGER NOT NULL, sha256 BLOB NOT NULL,"
            " chunks BLOB NOT NULL, sum INTEGER NOT NULL, last_use INTEGER NOT NULL,"
            " shas BLOB, rests INTEGER NOT NULL DEFAULT 0,"
            " PRIMARY KEY (model, id)) WITHOUT ROWID;" WORDS_SQL LOOKED_SQL "PRAGMA user_version=4;"
            "COMMIT");
    }
    return rc ? catalog_sql_err(c, rc, "prepare it", e) : 0;
}

sqlite3 *catalog_let_go(struct catalog *c)
{
    sqlite3_stmt **kept[] = {&c->begin, &c->commit, &c->get, &c->touch};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        sqlite3_finalize(*kept[i]);
        *kept[i] = NULL;
    }
    catalog_adder_close(&c->adder);
    sqlite3 *db = c->db;
    c->db = NULL;
    return db;
}

static void close_db(struct catalog *c)
{
    sqlite3_close(catalog_let_go(c));
}

static int model_no(struct catalog *c, const char *root, int64_t *no, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int rc =
        sqlite3_prepare_v2(c->db, "INSERT OR IGNORE INTO models (root) VALUES (?)", -1, &s, NULL);
    if (!rc) {
        sqlite3_bind_text(s, 1, root, -1, SQLITE_STATIC);
        rc = sqlite3_step(s);
        rc = rc == SQLITE_DONE ? 0 : rc;
        sqlite3_finalize(s);
    }
    if (!rc) {
        rc = sqlite3_prepare_v2(c->db, "SELECT no FROM models WHERE root=?", -1, &s, NULL);
    }
    if (!rc) {
        sqlite3_bind_text(s, 1, root, -1, SQLITE_STATIC);
        rc = sqlite3_step(s);
        if (rc == SQLITE_ROW) {
            *no = sqlite3_column_int64(s, 0);
            rc = 0;
        } else if (rc == SQLITE_DONE) {
            rc = SQLITE_CORRUPT;
        }
        sqlite3_finalize(s);
    }
    return rc ? catalog_sql_err(c, rc, "find the model", e) : 0;
}

/* ---- rebuilding from the journals ---- */

struct rebuild {
    struct catalog *c;
    struct catalog_adder a;
    int64_t model;
    int rc;
};

static int rebuild_row(void *ctx, uint32_t id, struct digest *d)
{
    struct rebuild *b = ctx;
    struct catalog_row w = {.id = id, .d = d};
    b->rc = d->source == DIGEST_TAKEN_BACK ? catalog_remove_row(b->c->db, b->model, id)
                                           : catalog_add_row(&b->a, b->model, &w);
    free(d);
    return b->rc ? ERR_IO : 0;
}

static int rebuild_model(struct catalog *c, const char *key, uint64_t *rows, struct err *e)
{
    struct buf root;
    buf_init(&root, 128);
    char *rp = layout_path("%s/models/%s/root", c->cache_dir, key);
    char *jp = layout_path("%s/models/%s/digests.log", c->cache_dir, key);
    struct rebuild b = {.c = c};
    struct err e1 = {0};
    int r = 0;
    if (!rp || !jp) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    } else if (file_read_all(rp, &root, &e1) || root.n < 64) {
        r = 0; /* no model's folder; its files, if any, are fetched again when asked for */
    } else {
        root.p[64] = 0;
        r = model_no(c, root.p, &b.model, e);
        int rc = r ? 0 : catalog_adder_open(c->db, &b.a);
        uint64_t skipped;
        if (!r && rc) {
            r = catalog_sql_err(c, rc, "rebuild it", e);
        }
        if (!r) {
            r = journal_read(jp, rebuild_row, &b, &skipped, e);
            if (b.rc) {
                r = catalog_sql_err(c, b.rc, "rebuild it", e);
            }
        }
        catalog_adder_close(&b.a);
    }
    *rows += b.a.inserted;
    free(rp);
    free(jp);
    buf_free(&root);
    return r;
}

static int rebuild(struct catalog *c, uint64_t *rows, struct err *e)
{
    char *p = layout_path("%s/models", c->cache_dir);
    DIR *d = p ? opendir(p) : NULL;
    free(p);
    *rows = 0;
    if (!d) {
        return 0;
    }
    int r = 0;
    catalog_run(c, "BEGIN IMMEDIATE");
    struct dirent *x;
    while (!r && (x = readdir(d))) {
        if (x->d_name[0] != '.') {
            r = rebuild_model(c, x->d_name, rows, e);
        }
    }
    catalog_run(c, r ? "ROLLBACK" : "COMMIT");
    closedir(d);
    return r;
}

/* A database in memory: with what the file holds, or what the journals do. */
static int open_memory(struct catalog *c, bool empty, struct err *e)
{
    uint64_t rows;
    int r = catalog_memory(c, empty, e);
    r = r ? r : open_db(c, e);
    if (r == ERR_FORMAT && !empty) {
        close_db(c);
        return open_memory(c, true, e);
    }
    r = r || !c->was_empty ? r : rebuild(c, &rows, e);
    if (!r) {
        catalog_run(c, "PRAGMA query_only=1");
    }
    return r;
}

/* With the folder's lock: put the damaged files aside, begin anew. */
static int set_aside(struct catalog *c, const char *why, struct err *e)
{
    close_db(c);
    static const char *const tail[] = {"", "-wal", "-shm"};
    char *aside = layout_path("%s.damaged-%lld", c->path, (long long)time(NULL));
    for (int i = 0; aside && i < 3; i++) {
        char *from = layout_path("%s%s", c->path, tail[i]);
        char *to = layout_path("%s%s", aside, tail[i]);
        if (from && to && rename(from, to) != 0) {
            unlink(from);
        }
        free(from);
        free(to);
    }
    uint64_t rows = 0;
    int r = open_db(c, e);
    if (!r) {
        r = rebuild(c, &rows, e);
    }
    if (c->log) {
        char line[1200];
        snprintf(line, sizeof line,
                 "the catalog was damaged (%s): set aside as %s and rebuilt with %llu objects from "
                 "the digest journals",
                 why, aside ? aside : "?", (unsigned long long)rows);
        c->log(c->log_ctx, line);
    }
    free(aside);
    return r;
}

/* Repair in the middle of work, after `why`. Another process may have done it already: then the
 * fresh file is simply opened. With c->mu held. */
static int repair(struct catalog *c, struct err *e)
{
    char why[300];
    snprintf(why, sizeof why, "%s", sqlite3_errmsg(c->db));
    close_db(c);
    if (c->memory) {
        return open_memory(c, true, e);
    }
    int lock = layout_lock(c->cache_dir, e);
    if (lock < 0) {
        return e ? e->code : ERR_IO;
    }
    int r = open_db(c, e);
    if (!r) {
        sqlite3_stmt *s = NULL;
        int rc = sqlite3_prepare_v2(c->db, "PRAGMA quick_check(1)", -1, &s, NULL);
        bool good = !rc && sqlite3_step(s) == SQLITE_ROW &&
                    strcmp((const char *)sqlite3_column_text(s, 0), "ok") == 0;
        sqlite3_finalize(s);
        r = good ? 0 : ERR_FORMAT;
    }
    if (r) {
        r = set_aside(c, why, e);
    }
    layout_unlock(lock);
    return r;
}

int catalog_open_file(struct catalog *c, struct err *e)
{
    int lock = layout_lock(c->cache_dir, e);
    if (lock < 0) {
        return e ? e->code : ERR_IO;
    }
    bool memory = c->memory;
    struct err e1 = {0};
    c->memory = false;
    int r = open_db(c, &e1);
    if (r == ERR_FORMAT) {
        r = set_aside(c, e1.msg, e);
    } else if (r && e) {
        *e = e1;
    } else if (!r && c->was_empty) {
        uint64_t rows = 0;
        r = rebuild(c, &rows, e);
        if (!r && rows && c->log) {
            char line[1200];
            snprintf(line, sizeof line,
                     "the catalog %s was missing or empty: rebuilt with %llu objects from the "
                     "digest journals",
                     c->path, (unsigned long long)rows);
            c->log(c->log_ctx, line);
        }
    }
    c->memory = memory;
    layout_unlock(lock);
    return r;
}

static int open_as(bool memory, const char *cache_dir, void (*log)(void *ctx, const char *line),
                   void *log_ctx, struct catalog **out, struct err *e)
{
    *out = NULL;
    struct catalog *c = calloc(1, sizeof *c);
    if (!c || pthread_mutex_init(&c->mu, NULL)) {
        free(c);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    c->memory = memory;
    c->log = log;
    c->log_ctx = log_ctx;
    c->cache_dir = strdup(cache_dir);
    c->path = layout_path("%s/catalog.sqlite", cache_dir);
    int r = !c->cache_dir || !c->path ? err_set(e, ERR_NOMEM, "out of memory")
            : memory                  ? open_memory(c, false, e)
                                      : catalog_open_file(c, e);
    if (r) {
        catalog_close(c);
        return r;
    }
    *out = c;
    return 0;
}

int catalog_open(const char *cache_dir, void (*log)(void *ctx, const char *line), void *log_ctx,
                 struct catalog **out, struct err *e)
{
    return open_as(false, cache_dir, log, log_ctx, out, e);
}

int catalog_open_copy(const char *cache_dir, void (*log)(void *ctx, const char *line),
                      void *log_ctx, struct catalog **out, struct err *e)
{
    return open_as(true, cache_dir, log, log_ctx, out, e);
}

void catalog_close(struct catalog *c)
{
    if (c) {
        close_db(c);
        pthread_mutex_destroy(&c->mu);
        free(c->cache_dir);
        free(c->path);
        free(c);
    }
}

/* Do `body` and, when it meets damage, repair and do it once more. */
int catalog_guarded(struct catalog *c, int (*body)(struct catalog *c, void *a, struct err *e),
                    void *a, struct err *e)
{
    struct err e1 = {0};
    pthread_mutex_lock(&c->mu);
    int r = c->db ? body(c, a, &e1) : err_set(&e1, ERR_IO, "the catalog %s is closed", c->path);
    if (r == ERR_FORMAT && c->db) {
        r = repair(c, &e1);
        if (!r) {
            r = body(c, a, &e1);
        }
    }
    pthread_mutex_unlock(&c->mu);
    if (r && e) {
        *e = e1;
    }
    return r;
}

/* ---- statements that are kept ---- */

static int kept(struct catalog *c, sqlite3_stmt **s, const char *sql)
{
    return *s ? 0 : sqlite3_prepare_v3(c->db, sql, -1, SQLITE_PREPARE_PERSISTENT, s, NULL);
}

/* One that gives no rows. */
static int run(sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);
    sqlite3_reset(s);
    return rc == SQLITE_DONE ? 0 : rc;
}

static int begin(struct catalog *c)
{
    int rc = kept(c, &c->begin, "BEGIN IMMEDIATE");
    return rc ? rc : run(c->begin);
}

/* Of what `begin` began, after `rc`. */
static int end(struct catalog *c, bool begun, int rc, struct err *e)
{
    if (!rc) {
        rc = kept(c, &c->commit, "COMMIT");
    }
    if (!rc) {
        rc = run(c->commit);
    }
    int r = rc ? catalog_sql_err(c, rc, "write it", e) : 0;
    if (rc && begun) {
        catalog_run(c, "ROLLBACK");
    }
    return r;
}

struct model_arg {
    const char *root;
    int64_t *no;
};

static int model_body(struct catalog *c, void *a, struct err *e)
{
    struct model_arg *m = a;
    if (c->memory) { /* this one row may be added to the copy */
        catalog_run(c, "PRAGMA query_only=0");
    }
    int r = model_no(c, m->root, m->no, e);
    if (c->memory) {
        catalog_run(c, "PRAGMA query_only=1");
    }
    return r;
}

int catalog_model(struct catalog *c, const char *root_hex, int64_t *model, struct err *e)
{
    struct model_arg a = {root_hex, model};
    return catalog_guarded(c, model_body, &a, e);
}

struct load_arg {
    int64_t model, id; /* id -1: all */
    int (*each)(void *ctx, uint32_t id, struct digest *d, uint64_t last_use);
    void *ctx;
    uint64_t bad;
};

static int load_row(struct load_arg *l, sqlite3_stmt *s)
{
    uint32_t id;
    struct digest *d = catalog_row_digest(s, &id);
    if (!d) {
        l->bad++;
        return 0;
    }
    return l->each(l->ctx, id, d, (uint64_t)sqlite3_column_int64(s, 6));
}

static int load_body(struct catalog *c, void *a, struct err *e)
{
    struct load_arg *l = a;
    l->bad = 0;
    sqlite3_stmt *all = NULL;
    bool one = l->id >= 0;
    int rc =
        one ? kept(c, &c->get, "SELECT " CATALOG_COLUMNS " FROM objects WHERE model=? AND id=?")
            : sqlite3_prepare_v2(c->db, "SELECT " CATALOG_COLUMNS " FROM objects WHERE model=?", -1,
                                 &all, NULL);
    if (rc) {
        return catalog_sql_err(c, rc, "read it", e);
    }
    sqlite3_stmt *s = one ? c->get : all;
    sqlite3_bind_int64(s, 1, l->model);
    if (one) {
        sqlite3_bind_int64(s, 2, l->id);
    }
    int r = 0;
    while (!r && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        r = load_row(l, s);
    }
    if (!r && rc != SQLITE_DONE) {
        r = catalog_sql_err(c, rc, "read it", e);
    }
    sqlite3_reset(s);
    sqlite3_finalize(all);
    return r;
}

int catalog_load(struct catalog *c, int64_t model,
                 int (*each)(void *ctx, uint32_t id, struct digest *d, uint64_t last_use),
                 void *ctx, uint64_t *bad, struct err *e)
{
    struct load_arg a = {.model = model, .id = -1, .each = each, .ctx = ctx};
    int r = catalog_guarded(c, load_body, &a, e);
    *bad = a.bad;
    return r;
}

static int take_one(void *ctx, uint32_t id, struct digest *d, uint64_t last_use)
{
    struct digest **out = ctx;
    (void)id;
    (void)last_use;
    free(*out);
    *out = d;
    return 0;
}

int catalog_get(struct catalog *c, int64_t model, uint32_t id, struct digest **out, struct err *e)
{
    *out = NULL;
    struct load_arg a = {.model = model, .id = id, .each = take_one, .ctx = out};
    int r = catalog_guarded(c, load_body, &a, e);
    if (!r && !*out) {
        r = err_set(e, ERR_NOTFOUND, "not in the catalog");
    }
    return r;
}

struct add_arg {
    int64_t model;
    struct catalog_row *rows;
    size_t n;
};

static int add_body(struct catalog *c, void *arg, struct err *e)
{
    struct add_arg *a = arg;
    int rc = c->adder.get ? 0 : catalog_adder_open(c->db, &c->adder);
    if (!rc) {
        rc = begin(c);
    }
    bool begun = !rc;
    for (size_t i = 0; i < a->n && !rc; i++) {
        rc = catalog_add_row(&c->adder, a->model, &a->rows[i]);
    }
    return end(c, begun, rc, e);
}

int catalog_add(struct catalog *c, int64_t model, struct catalog_row *rows, size_t n, struct err *e)
{
    struct add_arg a = {model, rows, n};
    return catalog_guarded(c, add_body, &a, e);
}

struct touch_arg {
    int64_t model;
    const uint32_t *ids;
    const uint64_t *use;
    size_t n;
};

static int touch_body(struct catalog *c, void *arg, struct err *e)
{
    struct touch_arg *a = arg;
    int rc = kept(c, &c->touch, "UPDATE objects SET last_use=? WHERE model=? AND id=?");
    if (!rc) {
        rc = begin(c);
    }
    bool begun = !rc;
    for (size_t i = 0; i < a->n && !rc; i++) {
        sqlite3_bind_int64(c->touch, 1, (int64_t)a->use[i]);
        sqlite3_bind_int64(c->touch, 2, a->model);
        sqlite3_bind_int64(c->touch, 3, a->ids[i]);
        rc = run(c->touch);
    }
    return end(c, begun, rc, e);
}

int catalog_touch(struct catalog *c, int64_t model, const uint32_t *ids, const uint64_t *last_use,
                  size_t n, struct err *e)
{
    struct touch_arg a = {model, ids, last_use, n};
    return catalog_guarded(c, touch_body, &a, e);
}
