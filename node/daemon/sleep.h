/* SPDX-License-Identifier: MIT
 * sleep.h: the machine's sleep, as far as the node has to know of it: before it, peers are told and
 * the service is withdrawn; after it, both are there again. sleep.c decides, in plain C; the
 * system's part (sleep_darwin.c, sleep_linux.c) only tells what comes and lets it go on. */
#ifndef SHOAL_NODE_DAEMON_SLEEP_H
#define SHOAL_NODE_DAEMON_SLEEP_H

#include <pthread.h>
#include <stdbool.h>

enum sleep_event {
    SLEEP_ASKED,  /* nobody has used the machine for a while: may it sleep? */
    SLEEP_COMES,  /* it will, whatever is answered */
    SLEEP_OFF,    /* somebody else said no: it stays awake */
    SLEEP_ENDS,   /* it begins to wake: networks and disks may not be there yet */
    SLEEP_IS_OVER /* all is there */
};

/* ---- sleep.c ---- */

struct sleeper {
    void (*sleep)(void *ctx); /* both return when it is done; at most some seconds */
    void (*wake)(void *ctx);
    void *ctx;
    pthread_mutex_t mu;
    bool asleep;
};

void sleeper_init(struct sleeper *s, void (*sleep)(void *ctx), void (*wake)(void *ctx), void *ctx);
void sleeper_free(struct sleeper *s);
/* Any thread, one after the other. `sleeper` is a struct sleeper. When it returns the system may go
 * on. Never refuses: while there is work, awake.h keeps the system from asking. */
void sleeper_event(void *sleeper, enum sleep_event ev);

/* ---- the system ---- */

struct sleep_watch; /* opaque */
/* Calls `event` on a thread of its own. NULL: this system does not tell (then a clock that jumped
 * is how discovery knows). */
struct sleep_watch *sleep_watch(void (*event)(void *ctx, enum sleep_event ev), void *ctx);
/* No call is under way when this returns, and none comes any more. NULL is fine. */
void sleep_unwatch(struct sleep_watch *w);

#endif
