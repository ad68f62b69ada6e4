/* SPDX-License-Identifier: MIT
 * sample.h: from logits to a token, the same on every machine. Pure functions. */
#ifndef SHOAL_NODE_SAMPLE_H
#define SHOAL_NODE_SAMPLE_H

#include "proto/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct sample_opts {
    float temperature; /* 0 = greedy */
    float top_p;       /* 1 = off; in (0, 1] */
    float min_p;       /* 0 = off; keep p >= min_p * largest */
    uint32_t top_k;    /* 0 = off */
    uint64_t seed;
};

/* Refuses values out of range by name. */
int sample_check(const struct sample_opts *o, struct err *e);

/* Largest logit, lower id on ties. */
uint32_t sample_argmax(const float *logits, uint32_t n);

/* The token for the sampled position number `counter` (0 for the first new token): argmax when
 * temperature is 0, else one draw. The random number is a function of (seed, counter) alone
 * (Philox4x32-10). Order of the filters: temperature, top-k, top-p, min-p, all on probabilities in
 * descending order (ties: lower id). scratch: n * 8 bytes. The arithmetic is binary32 by kern_exp.
 */
uint32_t sample_pick(const struct sample_opts *o, const float *logits, uint32_t n, uint64_t counter,
                     void *scratch);

/* Philox4x32-10 (Salmon et al., SC 2011), for tests against its published vectors. */
void sample_philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

#endif
