/* SPDX-License-Identifier: MIT
 * bench.h: how fast the matrix products run, next to how fast this machine's memory can be read.
 *
 * Speeds of one machine say little about another; the share of the memory read rate carries over.
 * So every sample of a product stands beside a sample of the read rate (four streams, huge pages
 * where the system has them, the same bytes, the same threads) taken just before it, and the
 * medians over at least nine such pairs are reported. Shapes are Kimi K3's: the 16 routed experts
 * of a token in one layer, and the large matrices of the spine. */
#ifndef SHOAL_KERNELS_BENCH_H
#define SHOAL_KERNELS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/backend.h"
#include "kernels/cpu.h"

struct kern_bench_opts {
    enum kern_isa isa; /* AUTO: the best of this machine */
    unsigned threads;  /* 0: one per performance core */
    double seconds;    /* about how long in all; at least nine samples are taken however small */
    size_t
        memory; /* bytes of weights at most, 0: 512 MiB; experts, then rows, are left out to fit */
    const char *only; /* names that start with this, NULL: all */
};

struct kern_bench_result {
    const char *name; /* "mxfp4 experts", ... */
    enum kern_type type;
    uint32_t rows,
        cols; /* of one matrix; for the experts those of w1 and w3 (w2 is the transpose) */
    uint32_t matrices;
    uint32_t T;   /* rows of activations */
    size_t bytes; /* packed weights of one pass */
    unsigned samples;
    double gbs;       /* packed weights, 1e9 bytes a second, median */
    double read_gbs;  /* memory read rate, median */
    double share;     /* median of the quotients of each pair */
    double fma_share; /* of the rate of fmas in registers, likewise; 0: not known */
};

/* Called for each result as soon as it is there. */
typedef void kern_bench_fn(void *ctx, const struct kern_bench_result *r);

/* Returns 0, KERN_ENOMEM, KERN_EINVAL (no product has such a name) or KERN_ENOTSUP (the instruction
 * set is not on this machine). */
int kern_bench_each(const struct kern_bench_opts *o, kern_bench_fn *fn, void *ctx);

/* The same, as a table for people, or as one JSON object. */
int kern_bench(FILE *out, bool json, const struct kern_bench_opts *o);

#endif
