/* SPDX-License-Identifier: MIT
 * nobackup.c: see nobackup.h. */
#include "node/store/nobackup.h"

#include "proto/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __APPLE__
/* <sys/xattr.h> in one line: SDKs for cross-building do not always bring that header. */
int setxattr(const char *path, const char *name, const void *value, size_t size, unsigned position,
             int options);

/* What `tmutil addexclusion` writes: a binary property list that holds one string. */
static void exclude(const char *dir)
{
    static const unsigned char plist[] = {
        'b', 'p', 'l', 'i', 's', 't', '0', '0', 95,  16,  17,  'c', 'o', 'm', '.', 'a',
        'p', 'p', 'l', 'e', '.', 'b', 'a', 'c', 'k', 'u', 'p', 'd', 8,   0,   0,   0,
        0,   0,   0,   1,   1,   0,   0,   0,   0,   0,   0,   0,   1,   0,   0,   0,
        0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   28};
    setxattr(dir, "com.apple.metadata:com_apple_backup_excludeItem", plist, sizeof plist, 0, 0);
}
#else
static void exclude(const char *dir)
{
    (void)dir;
}
#endif

static void put(const char *dir, const char *name, const char *text)
{
    size_t n = strlen(dir) + strlen(name) + 2;
    char *p = malloc(n);
    if (p) {
        snprintf(p, n, "%s/%s", dir, name);
        if (access(p, F_OK) != 0) {
            struct err e;
            file_write_atomic(p, text, strlen(text), 0644, &e);
        }
        free(p);
    }
}

void nobackup_mark(const char *dir)
{
    put(dir, "CACHEDIR.TAG",
        "Signature: 8a477f597d28d172789f06886806bc55\n"
        "# This folder is the cache of the program Shoal: all of it can be fetched again.\n");
    put(dir, ".metadata_never_index", "");
    exclude(dir);
}
