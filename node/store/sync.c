/* SPDX-License-Identifier: MIT
 * sync.c: see sync.h. */
#include "node/store/sync.h"

#include "proto/base/clock.h"

#include <errno.h>
#include <time.h>

int sync_cond_init(pthread_cond_t *c)
{
#ifdef __APPLE__
    return pthread_cond_init(c, NULL);
#else
    pthread_condattr_t a;
    int r = pthread_condattr_init(&a);
    if (r) {
        return r;
    }
    r = pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    if (!r) {
        r = pthread_cond_init(c, &a);
    }
    pthread_condattr_destroy(&a);
    return r;
#endif
}

bool sync_wait(pthread_cond_t *c, pthread_mutex_t *m, uint64_t deadline_ns)
{
    if (!deadline_ns) {
        pthread_cond_wait(c, m);
        return true;
    }
#ifdef __APPLE__
    uint64_t now = clock_ns();
    if (now >= deadline_ns) {
        return false;
    }
    struct timespec t = {(time_t)((deadline_ns - now) / 1000000000u),
                         (long)((deadline_ns - now) % 1000000000u)};
    return pthread_cond_timedwait_relative_np(c, m, &t) != ETIMEDOUT;
#else
    struct timespec t = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    return pthread_cond_timedwait(c, m, &t) != ETIMEDOUT;
#endif
}
