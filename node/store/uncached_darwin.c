/* SPDX-License-Identifier: MIT
 * uncached_darwin.c: see uncached.h: F_NOCACHE, which asks for nothing of memory and lengths. What
 * is read ahead of such a read is thrown away again, so F_RDAHEAD goes off with it: experts are
 * read whole, by requests as large as they are. */
#include "node/store/uncached.h"

#include <fcntl.h>

int uncached_flag(void)
{
    return UNCACHED_NO_FLAG;
}

bool uncached_set(int fd, bool on)
{
    (void)fcntl(fd, F_RDAHEAD, on ? 0 : 1);
    return fcntl(fd, F_NOCACHE, on ? 1 : 0) == 0;
}

void uncached_forget(int fd)
{
    (void)fd; /* pages that nobody uses are the first to go */
}
