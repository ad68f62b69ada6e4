/* SPDX-License-Identifier: MIT
 * uncached_linux.c: see uncached.h: O_DIRECT. */
#include "node/store/uncached.h"

#include <fcntl.h>

int uncached_flag(void)
{
    return O_DIRECT;
}

bool uncached_set(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

void uncached_forget(int fd)
{
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}
