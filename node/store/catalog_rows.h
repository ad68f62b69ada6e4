/* SPDX-License-Identifier: MIT
 * catalog_rows.h: private to the catalog: a digest as a row with its own checksum. Functions return
 * SQLite's codes. */
#ifndef SHOAL_STORE_CATALOG_ROWS_H
#define SHOAL_STORE_CATALOG_ROWS_H

#include "node/store/catalog.h"

#include <sqlite3.h>

#define CATALOG_COLUMNS "id, size, source, sha256, chunks, sum, last_use, shas, rests"

/* Of a stepped statement with these columns; NULL: not good. */
struct digest *catalog_row_digest(sqlite3_stmt *s, uint32_t *id);

/* What adding rows takes. */
struct catalog_adder {
    sqlite3 *db;
    sqlite3_stmt *insert, *replace, *get;
    uint64_t inserted; /* rows that are new */
};
int catalog_adder_open(sqlite3 *db, struct catalog_adder *a);
void catalog_adder_close(struct catalog_adder *a);
/* Where a row was there already see whether it says the same; one that is beaten by the new one
 * and one that fails its own checksum is replaced. */
int catalog_add_row(struct catalog_adder *a, int64_t model, struct catalog_row *w);
/* Whatever is there is replaced. */
int catalog_put_row(struct catalog_adder *a, int64_t model, const struct catalog_row *w);
int catalog_remove_row(sqlite3 *db, int64_t model, uint32_t id);

#endif
