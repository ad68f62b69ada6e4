/* SPDX-License-Identifier: MIT
 * catalog_copy.c: see catalog.h: a catalog where SQLite cannot write: a copy in memory. The file is
 * read beside its log when it has one (the index of the log is then made in memory, too), else as a
 * file that nobody changes; what cannot be read so comes from the journals. A change under the
 * reader's feet cannot do harm: rows have checksums, and damage ends in the journals as ever. */
#include "node/store/catalog_inner.h"
#include "node/store/layout.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SQLite's form of a path with a question behind it. */
static char *uri_of(const char *path, const char *how)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = strlen(path);
    char *enc = malloc(3 * n + 1), *at = enc, *out = NULL;
    for (size_t i = 0; enc && i < n; i++) {
        unsigned char c = (unsigned char)path[i];
        if (isalnum(c) || strchr("/-_.~", c)) {
            *at++ = (char)c;
        } else {
            *at++ = '%';
            *at++ = hex[c >> 4];
            *at++ = hex[c & 15];
        }
    }
    if (enc) {
        *at = 0;
        out = layout_path("file:%s%s?%s", *path == '/' ? "//" : "", enc, how);
    }
    free(enc);
    return out;
}

/* The whole file into the database in memory; SQLite's code. */
static int copy_from(sqlite3 *to, const char *path, const char *how)
{
    sqlite3 *from = NULL;
    char *uri = uri_of(path, how);
    int rc = uri ? sqlite3_open_v2(uri, &from,
                                   SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX |
                                       SQLITE_OPEN_PRIVATECACHE,
                                   NULL)
                 : SQLITE_NOMEM;
    sqlite3_backup *b = rc ? NULL : sqlite3_backup_init(to, "main", from, "main");
    if (b) {
        rc = sqlite3_backup_step(b, -1);
        int end = sqlite3_backup_finish(b);
        rc = rc == SQLITE_DONE ? end : rc;
    } else {
        rc = rc ? rc : sqlite3_errcode(to);
    }
    sqlite3_close(from);
    free(uri);
    return rc & 0xff;
}

int catalog_memory(struct catalog *c, bool empty, struct err *e)
{
    static const char *const how[] = {"mode=ro&readonly_shm=1", "immutable=1"};
    int rc = SQLITE_CANTOPEN;
    for (size_t i = 0; i < 3 && rc; i++) { /* the last time: without the file */
        sqlite3_close(c->db);
        c->db = NULL;
        rc = sqlite3_open_v2(":memory:", &c->db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                                 SQLITE_OPEN_PRIVATECACHE,
                             NULL);
        if (!rc && i < 2) {
            rc = empty ? SQLITE_CANTOPEN : copy_from(c->db, c->path, how[i]);
        }
    }
    return rc ? catalog_sql_err(c, rc, "copy it into memory", e) : 0;
}

sqlite3 *catalog_copy(const char *cache_dir)
{
    struct catalog c = {.memory = true, .path = layout_path("%s/catalog.sqlite", cache_dir)};
    int r = c.path ? catalog_memory(&c, false, NULL) : ERR_NOMEM;
    free(c.path);
    return r ? NULL : c.db;
}

/* ---- back to the file ---- */

/* The same models have the same numbers there. */
static bool same_models(sqlite3 *mem, sqlite3 *file)
{
    sqlite3_stmt *all = NULL, *put = NULL, *get = NULL;
    bool same = !sqlite3_prepare_v2(mem, "SELECT no, root FROM models", -1, &all, NULL) &&
                !sqlite3_prepare_v2(file, "INSERT OR IGNORE INTO models (no, root) VALUES (?,?)",
                                    -1, &put, NULL) &&
                !sqlite3_prepare_v2(file, "SELECT no FROM models WHERE root=?", -1, &get, NULL);
    while (same && sqlite3_step(all) == SQLITE_ROW) {
        sqlite3_int64 no = sqlite3_column_int64(all, 0);
        const char *root = (const char *)sqlite3_column_text(all, 1);
        sqlite3_bind_int64(put, 1, no);
        sqlite3_bind_text(put, 2, root, -1, SQLITE_STATIC);
        sqlite3_bind_text(get, 1, root, -1, SQLITE_STATIC);
        same = sqlite3_step(put) == SQLITE_DONE && sqlite3_step(get) == SQLITE_ROW &&
               sqlite3_column_int64(get, 0) == no;
        sqlite3_reset(put);
        sqlite3_reset(get);
    }
    sqlite3_finalize(all);
    sqlite3_finalize(put);
    sqlite3_finalize(get);
    return same;
}

int catalog_reopen(struct catalog *c, struct err *e)
{
    int r = 0;
    pthread_mutex_lock(&c->mu);
    if (c->memory) {
        sqlite3 *mem = catalog_let_go(c);
        r = catalog_open_file(c, e);
        if (!r && !same_models(mem, c->db)) {
            r = err_set(e, ERR_BUSY, "the catalog %s was made anew by another process", c->path);
        }
        if (r) {
            sqlite3_close(catalog_let_go(c));
            c->db = mem;
        } else {
            sqlite3_close(mem);
            c->memory = false;
        }
    }
    pthread_mutex_unlock(&c->mu);
    return r;
}
