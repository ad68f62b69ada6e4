/* SPDX-License-Identifier: MIT
 * sync.h: condition variables that wait against the monotonic clock of proto/base/clock.h. */
#ifndef SHOAL_STORE_SYNC_H
#define SHOAL_STORE_SYNC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* 0, or an errno value. Destroy with pthread_cond_destroy. */
int sync_cond_init(pthread_cond_t *c);
/* Wait with `m` held until signalled (or spuriously woken: returns true) or until clock_ns() has
 * reached deadline_ns (returns false). deadline_ns 0: no deadline. */
bool sync_wait(pthread_cond_t *c, pthread_mutex_t *m, uint64_t deadline_ns);

#endif
