/* SPDX-License-Identifier: MIT
 * nobackup.c: see nobackup.h. */
#include "node/store/nobackup.h"

#include "node/store/layout.h"
#include "proto/base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __APPLE__
#include <sys/xattr.h>

#define EXCLUDE "com.apple.metadata:com_apple_backup_excludeItem"

/* What `tmutil addexclusion` writes: a binary property list that holds one string. */
static void exclude(const char *dir)
{
    static const unsigned char plist[] = {
        'b', 'p', 'l', 'i', 's', 't', '0', '0', 95,  16,  17,  'c', 'o', 'm', '.', 'a',
        'p', 'p', 'l', 'e', '.', 'b', 'a', 'c', 'k', 'u', 'p', 'd', 8,   0,   0,   0,
        0,   0,   0,   1,   1,   0,   0,   0,   0,   0,   0,   0,   1,   0,   0,   0,
        0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   28};
    setxattr(dir, EXCLUDE, plist, sizeof plist, 0, 0);
}

static bool excluded(const char *dir)
{
    return getxattr(dir, EXCLUDE, NULL, 0, 0, 0) > 0;
}
#else
static void exclude(const char *dir)
{
    (void)dir;
}

static bool excluded(const char *dir)
{
    (void)dir;
    return false;
}
#endif

static void put(const char *dir, const char *name, const char *text)
{
    char *p = layout_path("%s/%s", dir, name);
    if (p && access(p, F_OK) != 0) {
        struct err e;
        file_write_atomic(p, text, strlen(text), 0644, &e);
    }
    free(p);
}

static bool has(const char *dir, const char *name)
{
    char *p = layout_path("%s/%s", dir, name);
    bool r = p && access(p, F_OK) == 0;
    free(p);
    return r;
}

void nobackup_mark(const char *dir)
{
    put(dir, "CACHEDIR.TAG",
        "Signature: 8a477f597d28d172789f06886806bc55\n"
        "# This folder is the cache of the program Shoal: all of it can be fetched again.\n");
    put(dir, ".metadata_never_index", "");
    exclude(dir);
}

void nobackup_look(const char *dir, struct nobackup_marks *out)
{
    out->tag = has(dir, "CACHEDIR.TAG");
    out->never_index = has(dir, ".metadata_never_index");
    out->excluded = excluded(dir);
}
