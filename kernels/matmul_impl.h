/* SPDX-License-Identifier: MIT
 * matmul_impl.h: what the files of the matrix products share; for kernels/matmul*.c only. */
#ifndef SHOAL_KERNELS_MATMUL_IMPL_H
#define SHOAL_KERNELS_MATMUL_IMPL_H

#include <string.h>

#include "kernels/isa.h"
#include "kernels/matmul.h"

/* One instruction set's products; the members are those of matmul.h. */
struct kern_matmul_ops {
    size_t (*scratch)(const struct kern_matmul *m);
    void (*prepare)(const struct kern_matmul *m, void *scratch, uint32_t t0, uint32_t t1);
    void (*rows)(const struct kern_matmul *m, const void *scratch, uint32_t row0, uint32_t row1);
    float (*peak)(size_t turns); /* NULL: not measured */
    unsigned per_turn;           /* fmas of one turn of it */
};

extern const struct kern_matmul_ops kern_matmul_scalar;
#ifdef KERN_HAVE_AVX2
extern const struct kern_matmul_ops kern_matmul_avx2;
#endif
#ifdef KERN_HAVE_NEON
extern const struct kern_matmul_ops kern_matmul_neon;
#endif

/* kern_mxfp4_bytes[s][n]: bits 24..31 of the float value(nibble n) * 2^(s-127); [s][16 + n]: bits
 * 16..23. The lower 16 bits are zero: a weight has two significant bits at most, subnormals
 * included. */
extern const uint8_t kern_mxfp4_bytes[256][32];

static inline const float *kern_matmul_x(const struct kern_matmul *m, uint32_t t)
{
    return m->x + (size_t)(m->xmap ? m->xmap[t] : t) * m->xstride;
}

static inline float *kern_matmul_y(const struct kern_matmul *m, uint32_t t)
{
    return m->y + (size_t)(m->ymap ? m->ymap[t] : t) * m->ystride;
}

/* The small-number rule of NUMERICS.md section 1. */
static inline float kern_matmul_z(float v)
{
    return __builtin_fabsf(v) < 0x1p-62f ? 0.0f : v;
}

/* The bytes and 32-blocks of a row of MXFP4. */
static inline size_t kern_mxfp4_pitch(uint32_t cols)
{
    return (size_t)cols / 2 + cols % 2;
}

static inline size_t kern_blocks(uint32_t cols)
{
    return (size_t)cols / 32 + (cols % 32 != 0);
}

/* The n < 32 values of a row's last block as a whole one: out is 16 bytes, missing weights zero. */
static inline void kern_mxfp4_tail(uint8_t *out, const uint8_t *packed, size_t n)
{
    memset(out, 0, 16);
    memcpy(out, packed, (n + 1) / 2);
    if (n % 2)
        out[n / 2] &= 0x0f;
}

#endif
