/* SPDX-License-Identifier: MIT
 * matmul.h: products of a weight matrix (MXFP4, bf16, int8, fp32) with T rows of activations.
 *
 * y[t][r] = z(dot32(w[r], x[t])), for int8 z(scale[r] * dot32(w[r], x[t])): NUMERICS.md sections 1
 * and 2. Every instruction set gives the same bits for any input, also infinities, NaN, subnormals
 * and any scale byte (255 makes the block's weights NaN; a weight above the binary32 range is
 * infinite); any NaN equals any NaN.
 *
 * A product runs in two steps, each of which may be split over threads: prepare brings the rows of
 * x into the order in which the weights are decoded, rows computes rows of the result. The order
 * depends only on (type, cols, T, x, xstride, xmap, isa), so matrices that share these may share
 * one prepared scratch.
 *
 * No allocation, no I/O, no state. The floating-point environment (nearest, no flushing) is the
 * caller's. Operands are trusted to be as large as stated: whoever builds the struct checks them.
 */
#ifndef SHOAL_KERNELS_MATMUL_H
#define SHOAL_KERNELS_MATMUL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/cpu.h"

struct kern_matmul {
    enum kern_type type;
    uint32_t rows, cols; /* of the weights; cols may be any number, also 0 */
    uint32_t T;          /* rows of x and y */
    /* F32, BF16: rows of cols values, aligned to a value. I8: rows of cols bytes. MXFP4: rows of
     * ceil(cols/2) bytes, the low nibble is the even column; the high nibble after an odd last
     * column is ignored. */
    const void *data;
    const void *scale;    /* I8: a float per row; MXFP4: rows of ceil(cols/32) bytes; else unused */
    const float *x;       /* row t is x + (xmap ? xmap[t] : t) * xstride, cols values */
    size_t xstride;       /* in floats */
    const uint32_t *xmap; /* [T] or NULL */
    float *y;             /* row t is y + (ymap ? ymap[t] : t) * ystride, rows values */
    size_t ystride;
    const uint32_t *ymap; /* [T] without duplicates, or NULL */
};

/* Bytes of scratch that prepare fills and rows reads; may be 0. The scratch is 64-byte aligned. */
size_t kern_matmul_scratch(const struct kern_matmul *m, enum kern_isa isa);

/* Prepares rows t0 <= t < t1 of x. Disjoint ranges may run at the same time. */
void kern_matmul_prepare(const struct kern_matmul *m, enum kern_isa isa, void *scratch, uint32_t t0,
                         uint32_t t1);

/* Writes y[t][r] for row0 <= r < row1 and all t, after all rows of x are prepared. Disjoint ranges
 * may run at the same time; the result does not depend on the split. Ranges of 32 rows and more let
 * the memory streams run at their best. isa is one that kern_isa_available() accepts, not AUTO.
 * Needs up to 32 KiB of stack. */
void kern_matmul_rows(const struct kern_matmul *m, enum kern_isa isa, const void *scratch,
                      uint32_t row0, uint32_t row1);

/* For a benchmark: independent fmas in registers, `turns` times a few. Returns how many were done,
 * 0 where the instruction set has no such loop; *sink keeps the compiler from leaving them out. */
size_t kern_matmul_peak(enum kern_isa isa, size_t turns, float *sink);

#endif
