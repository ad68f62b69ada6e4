/* SPDX-License-Identifier: MIT
 * short.c: see short.h. */
#include "node/cli/short.h"

#include "node/cli/plat.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct shortage {
    struct store *st;
    struct pressure_watch w;
    pthread_mutex_t mu;
    pthread_cond_t cond;
    pthread_t thread;
    bool over;
};

static void *look(void *ctx)
{
    struct shortage *x = ctx;
    pthread_mutex_lock(&x->mu);
    while (!x->over) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec++;
        (void)pthread_cond_timedwait(&x->cond, &x->mu, &t);
        if (!x->over) {
            pthread_mutex_unlock(&x->mu);
            pressure_look(&x->w, x->st, plat_pressure());
            pthread_mutex_lock(&x->mu);
        }
    }
    pthread_mutex_unlock(&x->mu);
    return NULL;
}

void shortage_watch(struct store *st, uint64_t plan, struct shortage **out)
{
    struct shortage *x = plat_pressure() == PRESSURE_UNKNOWN ? NULL : calloc(1, sizeof *x);
    *out = NULL;
    if (!x) {
        return;
    }
    x->st = st;
    x->w.plan = plan;
    bool mu = !pthread_mutex_init(&x->mu, NULL), cond = mu && !pthread_cond_init(&x->cond, NULL);
    if (cond && !pthread_create(&x->thread, NULL, look, x)) {
        *out = x;
        return;
    }
    if (cond) {
        pthread_cond_destroy(&x->cond);
    }
    if (mu) {
        pthread_mutex_destroy(&x->mu);
    }
    free(x);
}

void shortage_end(struct shortage *x)
{
    if (!x) {
        return;
    }
    pthread_mutex_lock(&x->mu);
    x->over = true;
    pthread_cond_signal(&x->cond);
    pthread_mutex_unlock(&x->mu);
    pthread_join(x->thread, NULL);
    pthread_cond_destroy(&x->cond);
    pthread_mutex_destroy(&x->mu);
    free(x);
}
