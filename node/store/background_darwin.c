/* SPDX-License-Identifier: MIT
 * background_darwin.c: see background.h. PRIO_DARWIN_BG lowers processor, disk and network. */
#include "node/store/background.h"

#include <sys/resource.h>

void background_self(void)
{
    setpriority(PRIO_DARWIN_THREAD, 0, PRIO_DARWIN_BG);
}
