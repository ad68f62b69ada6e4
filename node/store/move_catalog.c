/* SPDX-License-Identifier: MIT
 * move_catalog.c: see move_files.h: the catalog of a cache that is moved, copied by SQLite. */
#include "node/store/move_files.h"

#include "node/store/layout.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int sql_copy(const char *from, const char *to)
{
    sqlite3 *a = NULL, *b = NULL;
    sqlite3_backup *k = NULL;
    int rc = sqlite3_open_v2(from, &a, SQLITE_OPEN_READWRITE | SQLITE_OPEN_PRIVATECACHE, NULL);
    rc = rc ? rc
            : sqlite3_open_v2(to, &b,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_PRIVATECACHE,
                              NULL);
    k = rc ? NULL : sqlite3_backup_init(b, "main", a, "main");
    if (k) {
        (void)sqlite3_backup_step(k, -1);
        rc = sqlite3_backup_finish(k);
    } else {
        rc = rc ? rc : sqlite3_errcode(b);
    }
    sqlite3_close(b);
    sqlite3_close(a);
    return rc & 0xff;
}

static int unlink_all(const char *path, struct err *e)
{
    static const char *const tails[] = {"", "-wal", "-shm", "-journal"};
    int r = 0;
    for (size_t i = 0; i < sizeof tails / sizeof *tails && !r; i++) {
        char *p = layout_path("%s%s", path, tails[i]);
        r = !p                             ? err_set(e, ERR_NOMEM, "out of memory")
            : unlink(p) && errno != ENOENT ? err_sys(e, errno, "cannot remove %s", p)
                                           : 0;
        free(p);
    }
    return r;
}

int move_catalog(struct move *m, struct err *e)
{
    struct stat sb;
    char *from = layout_path("%s/" MOVE_CATALOG, m->from),
         *to = layout_path("%s/" MOVE_CATALOG, m->to);
    char *tmp = layout_path("%s/" MOVE_CATALOG MOVE_PART, m->to);
    int r = from && to && tmp ? 0 : err_set(e, ERR_NOMEM, "out of memory"), fd = -1;
    r = r ? r : unlink_all(tmp, e);
    r = r ? r : unlink_all(to, e);
    int rc = r || stat(from, &sb) ? SQLITE_NOTADB : sql_copy(from, tmp);
    if (!r && rc && rc != SQLITE_NOTADB && rc != SQLITE_CORRUPT) {
        r = err_set(e, rc == SQLITE_FULL ? ERR_FULL : ERR_IO, "cannot copy the catalog to %s: %s",
                    tmp, sqlite3_errstr(rc));
    }
    if (!r && !rc) {
        fd = open(tmp, O_RDWR | O_CLOEXEC);
        r = fd < 0 ? err_sys(e, errno, "cannot open %s", tmp) : file_sync(fd, tmp, e);
        if (!r && rename(tmp, to)) {
            r = err_sys(e, errno, "cannot rename %s", tmp);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    if (r || rc) {
        struct err e1;
        unlink_all(tmp, &e1);
    }
    free(from);
    free(to);
    free(tmp);
    return r;
}
