/* SPDX-License-Identifier: MIT
 * sleep_linux.c: see sleep.h. Linux tells of its sleep by the desktop's message bus alone, which
 * this program does not speak; discovery notices afterwards, by its clock. */
#include "node/daemon/sleep.h"

#include <stddef.h>

struct sleep_watch *sleep_watch(void (*event)(void *ctx, enum sleep_event ev), void *ctx)
{
    (void)event;
    (void)ctx;
    return NULL;
}

void sleep_unwatch(struct sleep_watch *w)
{
    (void)w;
}
