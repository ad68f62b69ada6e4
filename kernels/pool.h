/* SPDX-License-Identifier: MIT
 * pool.h: persistent threads that run ranges of units; inside kernels/.
 *
 * A run covers [0, n) with disjoint ranges, each given to exactly one thread; nothing is ever
 * summed across ranges, so results cannot depend on the split. One caller at a time; the caller
 * works too. */
#ifndef SHOAL_KERNELS_POOL_H
#define SHOAL_KERNELS_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct kern_pool;

#define KERN_POOL_MAX 64 /* threads */

/* `threads` counts the caller: 1..KERN_POOL_MAX, 0 = kern_pool_cores(). `flush`: the workers run
 * with subnormals flushed (fpenv.h). NULL without memory or when a thread cannot be started. */
struct kern_pool *kern_pool_open(unsigned threads, bool flush);
void kern_pool_close(struct kern_pool *p); /* p may be NULL */
unsigned kern_pool_threads(const struct kern_pool *p);
unsigned kern_pool_cores(void); /* performance cores this process may use, 1..KERN_POOL_MAX */

/* fn works on units [begin, end); worker < threads names the thread, for its own scratch. */
typedef void kern_range_fn(void *ctx, size_t begin, size_t end, unsigned worker);

/* Returns when all units are done; their effects are visible to the caller. A range has at least
 * `grain` units (the last may have fewer), so work of at most `grain` units wakes nobody. */
void kern_pool_run(struct kern_pool *p, size_t n, size_t grain, kern_range_fn *fn, void *ctx);

#endif
