/* SPDX-License-Identifier: MIT
 * ids.h: names for answers and calls, and keys, that nobody else gives. */
#ifndef SHOAL_API_IDS_H
#define SHOAL_API_IDS_H

#include <stddef.h>

/* prefix and n random characters of 0-9 A-Z a-z. */
void ids_make(const char *prefix, size_t n, char *out, size_t room);

#endif
