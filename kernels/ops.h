/* SPDX-License-Identifier: MIT
 * ops.h: the operations of NUMERICS.md other than the matrix products, as one table of functions
 * per instruction set; inside kernels/.
 *
 * Each function does the part of a command that one thread takes: a row, a head, a range of
 * elements. Operands are trusted (check.c has looked at them). No allocation, no I/O, no state; the
 * floating-point environment is the caller's. Arrays are dense unless a stride in floats is given.
 * Where y may equal an input the comment says "in place". */
#ifndef SHOAL_KERNELS_OPS_H
#define SHOAL_KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/isa.h"

struct kern_conv_args {
    const float *x, *w; /* w [C][K] */
    float *y, *hist;    /* hist [K-1][C] */
    size_t xstride, ystride, C, K, T;
};

#define KERN_CONV_TAPS 64 /* the most taps */

struct kern_kda_args {
    const float *q, *k, *v, *f, *b, *a_log, *dt_bias;
    float *S, *o;
    size_t H, D, T;
    float lower, eps;
};

struct kern_mla_mat {    /* kvb; rows of `rank` values */
    enum kern_type type; /* F32, BF16 or I8 */
    const void *data;
    const float *scale; /* I8: one per row */
    size_t rank;
};

enum kern_fn { KERN_FN_EXP, KERN_FN_SIGMOID, KERN_FN_TANH, KERN_FN_SILU };

struct kern_ops {
    const char *name;

    /* elementwise over n values; in place where types allow */
    void (*widen)(float *y, const void *src, enum kern_type type, size_t n);
    void (*mulvec)(float *y, const void *a, enum kern_type ta, const void *b, enum kern_type tb,
                   size_t n);
    void (*add)(float *y, const float *a, const float *b, size_t n);
    void (*situ)(float *y, const float *g, const float *u, size_t n, float beta, float lbeta);
    void (*gate)(float *y, const float *x, const float *g, size_t n);
    void (*map)(enum kern_fn fn, float *y, const float *x, size_t n); /* the bare function, no z */

    float (*dot32)(const float *a, const float *b, size_t n);
    /* y = z(w * (x * rsq(dot32(x, x) / n + eps))); in place */
    void (*rmsnorm)(float *y, const float *x, const void *w, enum kern_type wt, size_t n,
                    float eps);
    void (*softmax)(float *p, const float *x, size_t n); /* in place */
    bool (*finite)(const float *x, size_t n);            /* no NaN, no infinity */

    /* one source of AttnRes: dot32(v, s) * rsq(dot32(v, v) / n + eps) */
    float (*mix_score)(const float *v, const float *s, size_t n, float eps);
    /* y[d] = z(seq over i < nb of fma(p[i], (bank + i*stride)[d], acc), then fma(p[nb], last[d],
     * acc)), d < n */
    void (*mix_sum)(float *y, const float *bank, size_t stride, size_t nb, const float *last,
                    const float *p, size_t n);
    /* y[i] = z(seq over j < k of fma(w[j], y[j*n + i], acc)), i0 <= i < i1 */
    void (*combine)(float *u, const float *y, const float *w, size_t n, size_t k, size_t i0,
                    size_t i1);

    /* channels c0 <= c < c1, all rows; moves their history on */
    void (*conv)(const struct kern_conv_args *a, size_t c0, size_t c1);
    /* one head, all rows; tmp: 3*D floats */
    void (*kda)(const struct kern_kda_args *a, size_t h, float *tmp);
    /* one head of one row; in place */
    void (*gated_norm)(float *y, const float *o, const float *w, const float *z, size_t D,
                       float eps);

    /* qt[c] = z(seq over j < nope of fma(W[row0 + j][c], q[j], acc)), c < rank */
    void (*mla_absorb)(float *qt, const struct kern_mla_mat *m, size_t row0, const float *q,
                       size_t nope);
    /* s[h*sstride + i] = z(dot32(a + h*w, cache + i*w) * scale), h < H, i0 <= i < i1 */
    void (*mla_scores)(float *s, size_t sstride, const float *a, size_t H, const float *cache,
                       size_t w, size_t i0, size_t i1, float scale);
    /* ctx[h*rank + c] = z(seq over i < n of fma(p[h*pstride + i], cache[i*w + c], acc)), h < H,
     * c0 <= c < c1 */
    void (*mla_context)(float *ctx, size_t rank, const float *p, size_t pstride, size_t H,
                        const float *cache, size_t w, size_t n, size_t c0, size_t c1);
    /* o[j] = z(dot32(W[row0 + j], ctx)), I8: z(scale * dot32), j < vdim */
    void (*mla_out)(float *o, const struct kern_mla_mat *m, size_t row0, const float *ctx,
                    size_t vdim);
};

extern const struct kern_ops kern_ops_scalar;
#ifdef KERN_HAVE_AVX2
extern const struct kern_ops kern_ops_avx2;
#endif
#ifdef KERN_HAVE_NEON
extern const struct kern_ops kern_ops_neon;
#endif

/* The table of an available set (not AUTO). */
const struct kern_ops *kern_ops_of(enum kern_isa isa);

/* The k best of s[e] + bias[e] in ascending id: scalar for all sets, it only compares and adds.
 * tmp: k floats. */
void kern_router_row(const float *s, const float *bias, size_t E, size_t k, bool renorm,
                     float scale, uint32_t *ids, float *w, float *tmp);

#endif
