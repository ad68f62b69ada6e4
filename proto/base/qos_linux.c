/* SPDX-License-Identifier: MIT
 * qos_linux.c: see qos.h. Priority by thread, and the idle class of the I/O scheduler where it has
 * one. */
#include "proto/base/qos.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_CLASS_IDLE_0 (3 << 13)
#define NICE 15

void qos_self(enum qos q)
{
    if (q == QOS_UPKEEP) {
        id_t me = (id_t)syscall(SYS_gettid);
        if (getpriority(PRIO_PROCESS, me) < NICE) { /* it may have been started lower */
            setpriority(PRIO_PROCESS, me, NICE);
        }
        syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE_0);
    }
}
