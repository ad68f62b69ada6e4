/* SPDX-License-Identifier: MIT
 * rate.h: estimators for one source of bytes: its rate while it is busy, its latency, and a
 * percentile of times. Pure arithmetic on what the caller measured: no clock, no threads.
 * All times are nanoseconds. */
#ifndef SHOAL_PEER_RATE_H
#define SHOAL_PEER_RATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RATE_MEMORY_NS 500000000.0 /* busy time after which an observation counts half */
#define PCT_SAMPLES 64             /* a percentile looks at this many latest times */
#define PCT_MIN 8                  /* with fewer there is no percentile */

/* Bytes over busy time, the past fading: both sums shrink by 1 / (1 + dt / RATE_MEMORY_NS) before
 * an observation of dt is added, so a source that slows down is known after one observation. */
struct rate {
    double bytes, ns;
};
void rate_init(struct rate *r);
/* `bytes` came during `ns` of a time in which the source had something to send. */
void rate_add(struct rate *r, uint64_t bytes, uint64_t ns);
/* As if `per_s` had been seen for RATE_MEMORY_NS; 0: nothing known. */
void rate_set(struct rate *r, double per_s);
bool rate_known(const struct rate *r);
/* Bytes per second; `otherwise` when nothing is known. */
double rate_get(const struct rate *r, double otherwise);
/* What the rate can be at most when the next `bytes` have not come for `waited` ns: the smaller of
 * rate_get and bytes / waited. */
double rate_at_most(const struct rate *r, double otherwise, uint64_t bytes, uint64_t waited);

/* Mean of about the last eight, and the least of them (it fades upwards by an eighth). */
struct latency {
    double mean, least;
    bool known;
};
void latency_add(struct latency *l, uint64_t ns);
uint64_t latency_get(const struct latency *l, uint64_t otherwise);
uint64_t latency_least(const struct latency *l, uint64_t otherwise);

/* The latest PCT_SAMPLES times, exactly: nearest-rank percentile of them. */
struct pct {
    uint64_t v[PCT_SAMPLES];
    uint32_t n, next;
    uint32_t cached_for; /* percentile of `cached`, 0: none */
    uint64_t cached;
};
void pct_init(struct pct *p);
void pct_add(struct pct *p, uint64_t ns);
/* The smallest of the samples that at least `percent` % (1..100) of them do not exceed;
 * `otherwise` when there are fewer than PCT_MIN. */
uint64_t pct_get(struct pct *p, uint32_t percent, uint64_t otherwise);

#endif
