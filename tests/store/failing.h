/* SPDX-License-Identifier: MIT
 * failing.h: system calls that fail on command, for what lies under one folder. Linked into a test
 * program its functions take the place of the C library's, for shared libraries (SQLite) too. */
#ifndef SHOAL_TESTS_STORE_FAILING_H
#define SHOAL_TESTS_STORE_FAILING_H

#include <stdint.h>

enum failing_call {
    FAILING_OPEN,    /* for writing or making */
    FAILING_READING, /* open for reading, and read */
    FAILING_MKDIR,
    FAILING_WRITE,
    FAILING_SYNC,
    FAILING_RENAME, /* link, too */
    FAILING_UNLINK, /* rmdir, too */
    FAILING_TRUNCATE,
    FAILING_CALLS
};

#define FAILING_SHORT (-1) /* in place of an errno: half of the bytes are written */

/* Folder whose files are meant (the beginning of their paths); before there are threads. */
void failing_under(const char *folder);
/* From now on calls are counted from 0 and those from..from+times-1 of this kind fail with `error`.
 * FAILING_CALLS: calls of all kinds, but READING. */
void failing_set(enum failing_call kind, uint64_t from, uint64_t times, int error);
void failing_off(void);
/* Calls of a kind since failing_set, and those that have failed. */
uint64_t failing_count(enum failing_call kind);
uint64_t failing_failed(void);
/* Files under the folder that are open. */
unsigned failing_open_files(void);
extern const char *const failing_name[FAILING_CALLS + 1];

#endif
