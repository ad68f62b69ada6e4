/* SPDX-License-Identifier: MIT
 * catalog_words.c: see catalog_words.h. */
#include "node/store/catalog_words.h"

#include "node/store/catalog_inner.h"
#include "node/store/catalog_rows.h"

#include <stdio.h>
#include <string.h>

static int done(int rc)
{
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* One statement with up to three numbers. */
static int exec(struct catalog *c, const char *sql, int64_t a, int64_t b, int64_t d)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(c->db, sql, -1, &s, NULL);
    if (!rc) {
        int n = sqlite3_bind_parameter_count(s);
        int64_t v[3] = {a, b, d};
        for (int i = 0; i < n && i < 3; i++) {
            sqlite3_bind_int64(s, i + 1, v[i]);
        }
        rc = done(sqlite3_step(s));
    }
    sqlite3_finalize(s);
    return rc;
}

/* ---- members ---- */

#define MEMBER_COLUMNS "no, id, void, why"

static bool member_of(sqlite3_stmt *s, struct catalog_member *m)
{
    int64_t no = sqlite3_column_int64(s, 0);
    const void *id = sqlite3_column_blob(s, 1);
    const unsigned char *why = sqlite3_column_text(s, 3);
    memset(m, 0, sizeof *m);
    if (no < 1 || no > CATALOG_MEMBERS_MAX || !id || sqlite3_column_bytes(s, 1) != SHA256_SIZE) {
        return false;
    }
    m->no = (uint32_t)no;
    memcpy(m->id, id, SHA256_SIZE);
    m->void_at = (uint64_t)sqlite3_column_int64(s, 2);
    snprintf(m->why, sizeof m->why, "%s", why ? (const char *)why : "");
    return true;
}

struct members_arg {
    int (*each)(void *ctx, const struct catalog_member *m);
    void *ctx;
};

static int members_body(struct catalog *c, void *arg, struct err *e)
{
    struct members_arg *a = arg;
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(c->db, "SELECT " MEMBER_COLUMNS " FROM members", -1, &s, NULL);
    int r = 0;
    while (!rc && !r && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        struct catalog_member m;
        rc = 0;
        r = member_of(s, &m) ? a->each(a->ctx, &m) : 0;
    }
    rc = done(rc);
    r = rc ? catalog_sql_err(c, rc, "read its members", e) : r;
    sqlite3_finalize(s);
    return r;
}

int catalog_members(struct catalog *c, int (*each)(void *ctx, const struct catalog_member *m),
                    void *ctx, struct err *e)
{
    struct members_arg a = {each, ctx};
    return catalog_guarded(c, members_body, &a, e);
}

struct member_arg {
    const uint8_t *id;
    struct catalog_member *out;
};

static int find_member(struct catalog *c, const struct member_arg *a, bool *found)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(c->db, "SELECT " MEMBER_COLUMNS " FROM members WHERE id=?", -1, &s,
                                NULL);
    *found = false;
    if (!rc) {
        sqlite3_bind_blob(s, 1, a->id, SHA256_SIZE, SQLITE_STATIC);
        rc = sqlite3_step(s);
        *found = rc == SQLITE_ROW && member_of(s, a->out);
        rc = done(rc);
    }
    sqlite3_finalize(s);
    return rc;
}

static int member_body(struct catalog *c, void *arg, struct err *e)
{
    struct member_arg *a = arg;
    bool found;
    int rc = find_member(c, a, &found);
    if (!rc && !found) {
        sqlite3_stmt *s = NULL;
        rc = sqlite3_prepare_v2(c->db, "INSERT OR IGNORE INTO members (id) VALUES (?)", -1, &s,
                                NULL);
        if (!rc) {
            sqlite3_bind_blob(s, 1, a->id, SHA256_SIZE, SQLITE_STATIC);
            rc = done(sqlite3_step(s));
        }
        sqlite3_finalize(s);
        rc = rc ? rc : find_member(c, a, &found);
    }
    if (rc) {
        return catalog_sql_err(c, rc, "note a member", e);
    }
    return found ? 0
                 : err_set(e, ERR_LIMIT, "the catalog %s knows %d members already", c->path,
                           CATALOG_MEMBERS_MAX);
}

int catalog_member(struct catalog *c, const uint8_t id[SHA256_SIZE], struct catalog_member *out,
                   struct err *e)
{
    struct member_arg a = {id, out};
    return catalog_guarded(c, member_body, &a, e);
}

static int void_body(struct catalog *c, void *arg, struct err *e)
{
    const struct catalog_member *m = arg;
    sqlite3_stmt *s = NULL;
    int rc = catalog_run(c, "BEGIN IMMEDIATE");
    bool begun = !rc;
    if (!rc) {
        rc = sqlite3_prepare_v2(c->db, "UPDATE members SET void=?, why=? WHERE no=?", -1, &s, NULL);
    }
    if (!rc) {
        sqlite3_bind_int64(s, 1, (int64_t)m->void_at);
        sqlite3_bind_text(s, 2, m->why, -1, SQLITE_STATIC);
        sqlite3_bind_int64(s, 3, m->no);
        rc = done(sqlite3_step(s));
    }
    sqlite3_finalize(s);
    if (!rc && m->void_at) {
        rc = exec(c, "DELETE FROM statements WHERE member=?", m->no, 0, 0);
    }
    rc = rc ? rc : catalog_run(c, "COMMIT");
    int r = rc ? catalog_sql_err(c, rc, "void a member's word", e) : 0;
    if (rc && begun) {
        catalog_run(c, "ROLLBACK");
    }
    return r;
}

int catalog_member_void(struct catalog *c, const struct catalog_member *m, struct err *e)
{
    struct catalog_member copy = *m;
    return catalog_guarded(c, void_body, &copy, e);
}

/* ---- statements ---- */

struct statements_arg {
    int64_t model;
    int (*each)(void *ctx, uint32_t member, const void *blob, size_t n);
    void *ctx;
};

static int statements_body(struct catalog *c, void *arg, struct err *e)
{
    struct statements_arg *a = arg;
    sqlite3_stmt *s = NULL;
    int r = 0, rc = sqlite3_prepare_v2(c->db,
                                       "SELECT member, blob, sum FROM statements WHERE model=? "
                                       "ORDER BY member, seq",
                                       -1, &s, NULL);
    if (!rc) {
        sqlite3_bind_int64(s, 1, a->model);
    }
    while (!rc && !r && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        const void *p = sqlite3_column_blob(s, 1);
        int n = sqlite3_column_bytes(s, 1);
        int64_t no = sqlite3_column_int64(s, 0);
        rc = 0;
        if (p && n > 0 && no > 0 && no <= CATALOG_MEMBERS_MAX &&
            (int64_t)chunk_xxh(p, (size_t)n) == sqlite3_column_int64(s, 2)) {
            r = a->each(a->ctx, (uint32_t)no, p, (size_t)n);
        }
    }
    rc = done(rc);
    r = rc ? catalog_sql_err(c, rc, "read its statements", e) : r;
    sqlite3_finalize(s);
    return r;
}

int catalog_statements(struct catalog *c, int64_t model,
                       int (*each)(void *ctx, uint32_t member, const void *blob, size_t n),
                       void *ctx, struct err *e)
{
    struct statements_arg a = {model, each, ctx};
    return catalog_guarded(c, statements_body, &a, e);
}

struct statement_arg {
    int64_t model;
    uint32_t member;
    uint64_t seq;
    const void *blob;
    size_t n;
};

static int add_statement_body(struct catalog *c, void *arg, struct err *e)
{
    const struct statement_arg *a = arg;
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(c->db,
                                "INSERT OR REPLACE INTO statements (model, member, seq, blob, sum) "
                                "VALUES (?,?,?,?,?)",
                                -1, &s, NULL);
    if (!rc) {
        sqlite3_bind_int64(s, 1, a->model);
        sqlite3_bind_int64(s, 2, a->member);
        sqlite3_bind_int64(s, 3, (int64_t)a->seq);
        sqlite3_bind_blob64(s, 4, a->blob, a->n, SQLITE_STATIC);
        sqlite3_bind_int64(s, 5, (int64_t)chunk_xxh(a->blob, a->n));
        rc = done(sqlite3_step(s));
    }
    sqlite3_finalize(s);
    return rc ? catalog_sql_err(c, rc, "keep a statement", e) : 0;
}

int catalog_statement_add(struct catalog *c, int64_t model, uint32_t member, uint64_t seq,
                          const void *blob, size_t n, struct err *e)
{
    struct statement_arg a = {model, member, seq, blob, n};
    return catalog_guarded(c, add_statement_body, &a, e);
}

static int drop_body(struct catalog *c, void *arg, struct err *e)
{
    const struct statement_arg *a = arg;
    int rc = a->seq      ? exec(c, "DELETE FROM statements WHERE model=? AND member=? AND seq=?",
                                a->model, a->member, (int64_t)a->seq)
             : a->member ? exec(c, "DELETE FROM statements WHERE model=? AND member=?", a->model,
                                a->member, 0)
                         : exec(c, "DELETE FROM statements WHERE model=?", a->model, 0, 0);
    return rc ? catalog_sql_err(c, rc, "drop a statement", e) : 0;
}

int catalog_statement_drop(struct catalog *c, int64_t model, uint32_t member, uint64_t seq,
                           struct err *e)
{
    struct statement_arg a = {.model = model, .member = member, .seq = seq};
    return catalog_guarded(c, drop_body, &a, e);
}

int catalog_statements_drop(struct catalog *c, int64_t model, uint32_t member, struct err *e)
{
    struct statement_arg a = {.model = model, .member = member};
    return catalog_guarded(c, drop_body, &a, e);
}

/* ---- rows ---- */

struct settle_arg {
    int64_t model;
    const struct catalog_row *rows;
    size_t n;
};

static int settle_body(struct catalog *c, void *arg, struct err *e)
{
    const struct settle_arg *a = arg;
    struct catalog_adder ad;
    int rc = catalog_adder_open(c->db, &ad);
    rc = rc ? rc : catalog_run(c, "BEGIN IMMEDIATE");
    bool begun = !rc;
    for (size_t i = 0; i < a->n && !rc; i++) {
        rc = a->rows[i].d ? catalog_put_row(&ad, a->model, &a->rows[i])
                          : catalog_remove_row(c->db, a->model, a->rows[i].id);
    }
    rc = rc ? rc : catalog_run(c, "COMMIT");
    int r = rc ? catalog_sql_err(c, rc, "write it", e) : 0;
    if (rc && begun) {
        catalog_run(c, "ROLLBACK");
    }
    catalog_adder_close(&ad);
    return r;
}

int catalog_settle(struct catalog *c, int64_t model, const struct catalog_row *rows, size_t n,
                   struct err *e)
{
    struct settle_arg a = {model, rows, n};
    return catalog_guarded(c, settle_body, &a, e);
}
