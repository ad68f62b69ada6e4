/* SPDX-License-Identifier: MIT
 * kt.h: the rig of the kernel tests: one command over made-up operands, run by many backends. */
#ifndef SHOAL_TESTS_KERNELS_KT_H
#define SHOAL_TESTS_KERNELS_KT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu.h"

/* TAME: 2^-4 to 2^1 in size. WIDE: zero or 2^-62 to 2^20, as stored activations may be. HOSTILE:
 * anything: subnormals, infinities, NaN, both zeros, extremes. */
enum kt_mood { KT_TAME, KT_WIDE, KT_HOSTILE };

struct kt_out {                    /* rows of floats (or ids) that a command may write */
    size_t off, row, stride, rows; /* bytes */
};

#define KT_ARENA ((size_t)1 << 20)
#define KT_OUTS 4

struct kt {
    uint64_t rng;
    enum kt_mood mood;
    uint8_t *master; /* the operands before the command */
    size_t used;
    struct kern_buf buf; /* what the command's operands point into; host changes from run to run */
    struct kt_out out[KT_OUTS];
    size_t outs;
    struct kern_cmd cmd;
    uint32_t T; /* rows of the command, 0 = it has none */
    const char *what;
    uint8_t *expect; /* the arena after the first run */
    bool expected;
};

struct kt_config {
    enum kern_isa isa;
    unsigned threads;
    bool flush, small;
    struct kern_backend *b;
    struct kern_buf *arena;
};

/* Backends of every available instruction set with 1, 2, 3, 8 threads, flushing off and on; the
 * first is the scalar reference in one thread. */
#define KT_CONFIGS 32
size_t kt_open(struct kt_config c[KT_CONFIGS]);
void kt_close(struct kt_config *c, size_t n);

void kt_begin(struct kt *k, const char *what, enum kt_mood mood, uint64_t seed);
void kt_end(struct kt *k);

uint32_t kt_rnd(struct kt *k);
uint32_t kt_below(struct kt *k, uint32_t n);
float kt_value(struct kt *k);

/* Operands of n values from the mood; guard bytes stand around each. */
struct kern_ref kt_floats(struct kt *k, size_t n);
struct kern_ref kt_bf16(struct kt *k, size_t n);
struct kern_ref kt_raw(struct kt *k, size_t n, size_t align); /* random bytes */
struct kern_ref kt_scales(struct kt *k, size_t n);            /* e8m0, within the mood */
struct kern_vec kt_vec(struct kt *k, enum kern_type type, size_t n);
struct kern_mat kt_mat(struct kt *k, enum kern_type type, uint32_t rows, uint32_t cols);
/* A place for rows of `row` floats that holds garbage before. */
struct kern_ref kt_room(struct kt *k, size_t rows, size_t row, size_t stride);
/* Declares r as written by the command. */
void kt_writes(struct kt *k, struct kern_ref r, size_t rows, size_t row, size_t stride);

/* Where r lies in the present arena. */
float *kt_f(const struct kt *k, struct kern_ref r);

/* Runs k->cmd whole (chunk 0) or `chunk` rows at a time, in the arena of c. Nothing outside the
 * declared outputs may change. */
void kt_run(struct kt *k, struct kt_config *c, uint32_t chunk);
/* Runs it in all configurations and row splits; all outputs must be those of the first, any NaN
 * equal to any NaN; flushing is left out of HOSTILE. Adds the outputs to *digest. */
void kt_run_all(struct kt *k, struct kt_config *c, size_t n, uint64_t *digest);

/* Rows [t0, t0 + n) of a command. */
struct kern_cmd kt_slice(const struct kern_cmd *c, uint32_t t0, uint32_t n);

#endif
