/* SPDX-License-Identifier: MIT
 * matmul_scalar.c: the matrix products in plain C, the reference for the other instruction sets.
 *
 * It follows NUMERICS.md section 2 word by word: 32 lanes, fma in increasing column, folds of 16,
 * 8, 4, 2, 1. x is read where it lies, so there is nothing to prepare. */
#include <math.h>

#include "kernels/matmul_impl.h"

#define LANES 32
#define TOKENS 8 /* rows of x that share one decoding of a row of weights */

/* A binary32 fma where the processor has none is a function call per weight; with the instruction
 * the compiler also sees that the lanes are independent. The bits are the same. */
#if defined(__x86_64__) && !defined(__FMA__)
#define CLONE 1
#define WITH_FMA __attribute__((target("fma")))
#endif
#define INLINE static inline __attribute__((always_inline))

/* value(nibble) * 2^(s-127): exact in binary64, so rounded once at the end (to infinity above the
 * binary32 range, else exactly). */
INLINE float mxfp4_weight(unsigned nibble, unsigned s)
{
    static const double value[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    if (s == 255)
        return NAN;
    uint64_t bits = (uint64_t)(s + 1023 - 127) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    double w = value[nibble & 7] * scale;
    return (float)(nibble & 8 ? -w : w);
}

/* The weights of row r at columns c0 .. c0+31; +0 beyond the last column. */
INLINE void decode(const struct kern_matmul *m, size_t r, size_t c0, float *w)
{
    size_t n = m->cols - c0 < LANES ? m->cols - c0 : LANES;
    for (size_t i = n; i < LANES; i++)
        w[i] = 0.0f;
    switch (m->type) {
    case KERN_F32: {
        memcpy(w, (const float *)m->data + r * m->cols + c0, n * sizeof *w);
        break;
    }
    case KERN_BF16: {
        const uint16_t *p = (const uint16_t *)m->data + r * m->cols + c0;
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)p[i] << 16;
            memcpy(&w[i], &bits, sizeof bits);
        }
        break;
    }
    case KERN_I8: {
        const int8_t *p = (const int8_t *)m->data + r * m->cols + c0;
        for (size_t i = 0; i < n; i++)
            w[i] = (float)p[i];
        break;
    }
    case KERN_MXFP4: {
        const uint8_t *p = (const uint8_t *)m->data + r * kern_mxfp4_pitch(m->cols) + c0 / 2;
        unsigned s = ((const uint8_t *)m->scale)[r * kern_blocks(m->cols) + c0 / 32];
        for (size_t i = 0; i < n; i++)
            w[i] = mxfp4_weight(i % 2 ? p[i / 2] >> 4 : p[i / 2] & 15, s);
        break;
    }
    }
}

INLINE void body(const struct kern_matmul *m, uint32_t row0, uint32_t row1)
{
    for (uint32_t t0 = 0; t0 < m->T; t0 += TOKENS) {
        uint32_t nt = m->T - t0 < TOKENS ? m->T - t0 : TOKENS;
        for (uint32_t r = row0; r < row1; r++) {
            float acc[TOKENS][LANES] = {{0}};
            for (size_t c = 0; c < m->cols; c += LANES) {
                float w[LANES];
                decode(m, r, c, w);
                size_t n = m->cols - c < LANES ? m->cols - c : LANES;
                for (uint32_t t = 0; t < nt; t++) {
                    const float *x = kern_matmul_x(m, t0 + t) + c;
                    if (n == LANES)
                        for (size_t i = 0; i < LANES; i++)
                            acc[t][i] = fmaf(w[i], x[i], acc[t][i]);
                    else
                        for (size_t i = 0; i < n; i++)
                            acc[t][i] = fmaf(w[i], x[i], acc[t][i]);
                }
            }
            for (uint32_t t = 0; t < nt; t++) {
                for (size_t h = LANES / 2; h; h /= 2)
                    for (size_t j = 0; j < h; j++)
                        acc[t][j] += acc[t][j + h];
                float v = acc[t][0];
                if (m->type == KERN_I8)
                    v = ((const float *)m->scale)[r] * v;
                kern_matmul_y(m, t0 + t)[r] = kern_matmul_z(v);
            }
        }
    }
}

#ifdef CLONE
static WITH_FMA void rows_fma(const struct kern_matmul *m, uint32_t row0, uint32_t row1)
{
    body(m, row0, row1);
}
#endif

static void rows(const struct kern_matmul *m, const void *scratch, uint32_t row0, uint32_t row1)
{
#ifdef CLONE
    if (__builtin_cpu_supports("fma")) {
        rows_fma(m, row0, row1);
        return;
    }
#endif
    body(m, row0, row1);
}

static size_t scratch_size(const struct kern_matmul *m)
{
    return 0;
}

static void prepare(const struct kern_matmul *m, void *scratch, uint32_t t0, uint32_t t1)
{
}

const struct kern_matmul_ops kern_matmul_scalar = {scratch_size, prepare, rows, NULL, 0};
