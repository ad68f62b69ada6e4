/* SPDX-License-Identifier: MIT
 * nobackup.h: keep backup programs and indexers out of the cache folder. */
#ifndef SHOAL_STORE_NOBACKUP_H
#define SHOAL_STORE_NOBACKUP_H

#include <stdbool.h>

/* Marks an existing folder: CACHEDIR.TAG, .metadata_never_index, and on the Mac the attribute that
 * excludes it from Time Machine. All of it is a courtesy: nothing fails when a mark cannot be set.
 * At each opening of a cache, since such marks get lost. */
void nobackup_mark(const char *dir);

struct nobackup_marks {
    bool tag, never_index;
    bool excluded; /* from Time Machine; on other systems false */
};
/* Which marks the folder has. */
void nobackup_look(const char *dir, struct nobackup_marks *out);

#endif
