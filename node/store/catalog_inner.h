/* SPDX-License-Identifier: MIT
 * catalog_inner.h: what catalog.c and catalog_words.c share. */
#ifndef SHOAL_STORE_CATALOG_INNER_H
#define SHOAL_STORE_CATALOG_INNER_H

#include "node/store/catalog.h"
#include "node/store/catalog_rows.h"

#include <pthread.h>
#include <sqlite3.h>

struct catalog {
    char *cache_dir, *path;
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
    pthread_mutex_t mu;
    sqlite3 *db;
    bool was_empty; /* as found by the last opening */
    bool memory;    /* db is a copy in memory, which is not written */
    /* Prepared when first needed, kept until db is closed. */
    struct catalog_adder adder;
    sqlite3_stmt *begin, *commit, *get, *touch;
};

/* A sentence for SQLite's code. */
int catalog_sql_err(struct catalog *c, int rc, const char *what, struct err *e);
int catalog_run(struct catalog *c, const char *sql); /* SQLite's code */
/* With mu, or nobody knows it yet. A new database in memory with what the file holds, unless
 * `empty`; the file, with the folder's lock and repaired; db given up by the catalog, NULL: none.
 */
int catalog_memory(struct catalog *c, bool empty, struct err *e);
/* What the file of a cache folder holds, in memory; NULL: it cannot be read. */
sqlite3 *catalog_copy(const char *cache_dir);
int catalog_open_file(struct catalog *c, struct err *e);
sqlite3 *catalog_let_go(struct catalog *c);
/* Do `body` under the catalog's mutex and, when it meets damage, repair and do it once more. */
int catalog_guarded(struct catalog *c, int (*body)(struct catalog *c, void *a, struct err *e),
                    void *a, struct err *e);

#endif
