/* SPDX-License-Identifier: MIT
 * awake.c: see awake.h. */
#include "node/cli/awake.h"

void awake_open(struct awake *a)
{
    pthread_mutex_init(&a->mu, NULL);
    a->works = 0;
    a->held = false;
}

void awake_work(struct awake *a, int by)
{
    pthread_mutex_lock(&a->mu);
    a->works += by;
    if (a->works > 0 && !a->held) {
        a->held = awake_hold(&a->token);
    } else if (a->works <= 0 && a->held) {
        awake_let_go(a->token);
        a->held = false;
    }
    pthread_mutex_unlock(&a->mu);
}

void awake_close(struct awake *a)
{
    if (a->held) {
        awake_let_go(a->token);
    }
    pthread_mutex_destroy(&a->mu);
}
