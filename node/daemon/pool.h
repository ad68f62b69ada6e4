/* SPDX-License-Identifier: MIT
 * pool.h: a few threads that take jobs in the order in which they come.
 *
 * Threads: pool_add from any thread, also from inside a job. */
#ifndef SHOAL_NODE_DAEMON_POOL_H
#define SHOAL_NODE_DAEMON_POOL_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct pool; /* opaque */

struct pool_job {
    struct pool_job *next;
    void (*run)(struct pool_job *j); /* owns the job: frees it */
};

int pool_open(size_t threads, size_t jobs_max, struct pool **out, struct err *e);
/* False: the pool is stopping or has jobs_max waiting; the job stays the caller's. */
bool pool_add(struct pool *p, struct pool_job *j);
/* Runs what waits, takes nothing more. */
void pool_stop(struct pool *p);
void pool_free(struct pool *p); /* after pool_stop; NULL is fine */

#endif
