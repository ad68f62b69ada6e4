/* SPDX-License-Identifier: MIT
 * sleep.c: see sleep.h. What comes twice is done once, and what ends without having begun is
 * nothing: a Mac tells of some sleeps only that they are over. */
#include "node/daemon/sleep.h"

void sleeper_init(struct sleeper *s, void (*sleep)(void *ctx), void (*wake)(void *ctx), void *ctx)
{
    s->sleep = sleep;
    s->wake = wake;
    s->ctx = ctx;
    s->asleep = false;
    pthread_mutex_init(&s->mu, NULL);
}

void sleeper_free(struct sleeper *s)
{
    pthread_mutex_destroy(&s->mu);
}

void sleeper_event(void *sleeper, enum sleep_event ev)
{
    struct sleeper *s = sleeper;
    pthread_mutex_lock(&s->mu);
    if (ev == SLEEP_COMES && !s->asleep) {
        s->asleep = true;
        s->sleep(s->ctx);
    } else if ((ev == SLEEP_IS_OVER || ev == SLEEP_OFF) && s->asleep) {
        s->asleep = false;
        s->wake(s->ctx);
    }
    pthread_mutex_unlock(&s->mu);
}
