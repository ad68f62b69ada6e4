/* SPDX-License-Identifier: MIT
 * habits_linux.c: see habits.h. */
#include "node/cli/habits.h"

#include <sys/resource.h>
#include <sys/vfs.h>

#define NFS 0x6969
#define SMB 0x517b
#define CIFS 0xff534d42u
#define SMB2 0xfe534d42u

void habits_system(struct habits *h)
{
    struct statfs v;
    h->mac = false;
    h->lowered = getpriority(PRIO_PROCESS, 0) > 0 ? YES : NO;
    if (h->cache_there && !statfs(h->cache, &v)) {
        uint32_t t = (uint32_t)v.f_type;
        h->local = t == NFS || t == SMB || t == CIFS || t == SMB2 ? NO : YES;
    }
}
