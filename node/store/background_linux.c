/* SPDX-License-Identifier: MIT
 * background_linux.c: see background.h. Priority by thread, and the idle class of the I/O scheduler
 * where it has one. */
#include "node/store/background.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_CLASS_IDLE_0 (3 << 13)

void background_self(void)
{
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 15);
    syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE_0);
}
