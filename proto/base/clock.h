/* SPDX-License-Identifier: MIT
 * clock.h: monotonic time; every lease, timeout and rate uses it, never the wall clock. */
#ifndef SHOAL_BASE_CLOCK_H
#define SHOAL_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void); /* nanoseconds from an arbitrary start; never goes back */
double clock_s(void);    /* the same in seconds */
/* Of the processor, that the calling thread has used: what it costs, however busy the machine is.
 */
uint64_t clock_thread_ns(void);

#endif
