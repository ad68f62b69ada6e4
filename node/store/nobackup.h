/* SPDX-License-Identifier: MIT
 * nobackup.h: keep backup programs and indexers out of the cache folder. */
#ifndef SHOAL_STORE_NOBACKUP_H
#define SHOAL_STORE_NOBACKUP_H

/* Marks an existing folder: CACHEDIR.TAG, .metadata_never_index, and on the Mac the attribute that
 * excludes it from Time Machine. All of it is a courtesy: nothing fails when a mark cannot be set.
 */
void nobackup_mark(const char *dir);

#endif
