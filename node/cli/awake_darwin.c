/* SPDX-License-Identifier: MIT
 * awake_darwin.c: see awake.h: a power assertion of the kind that `caffeinate -i` makes.
 *
 * Source: IOKit/pwr_mgt/IOPMLib.h of the SDK. */
#include "node/cli/awake.h"

#include <IOKit/pwr_mgt/IOPMLib.h>

bool awake_hold(uint32_t *token)
{
    IOPMAssertionID id = 0;
    bool held =
        IOPMAssertionCreateWithName(
            kIOPMAssertionTypePreventUserIdleSystemSleep, kIOPMAssertionLevelOn,
            CFSTR("Shoal is computing an answer or fetching a model"), &id) == kIOReturnSuccess;
    *token = id;
    return held;
}

void awake_let_go(uint32_t token)
{
    (void)IOPMAssertionRelease(token);
}
