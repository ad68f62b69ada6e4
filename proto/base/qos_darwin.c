/* SPDX-License-Identifier: MIT
 * qos_darwin.c: see qos.h. The class of background work lowers the disk's order and the network's,
 * too, and keeps to the efficient cores.
 *
 * Source: pthread/qos.h of the SDK. */
#include "proto/base/qos.h"

#include <pthread.h>
#include <pthread/qos.h>

void qos_self(enum qos q)
{
    static const qos_class_t class_of[] = {[QOS_ANSWER] = QOS_CLASS_USER_INITIATED,
                                           [QOS_SERVE] = QOS_CLASS_UTILITY,
                                           [QOS_UPKEEP] = QOS_CLASS_BACKGROUND};
    (void)pthread_set_qos_class_self_np(class_of[q], 0);
}
