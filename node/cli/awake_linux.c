/* SPDX-License-Identifier: MIT
 * awake_linux.c: see awake.h. Whether a Linux machine suspends when idle is its desktop's affair,
 * which is asked by D-Bus; servers do not. */
#include "node/cli/awake.h"

bool awake_hold(uint32_t *token)
{
    *token = 0;
    return false;
}

void awake_let_go(uint32_t token)
{
    (void)token;
}
