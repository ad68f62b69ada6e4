/* SPDX-License-Identifier: MIT
 * math.h: exp, sigmoid, tanh and silu as fixed sequences of binary32 operations.
 *
 * The coefficients stand here once, for every instruction set; below them the scalar forms, which
 * are the definition (NUMERICS.md section 3). math_v8.h is the same in eight lanes. The only calls
 * are fmaf and sqrtf, which C requires to be correctly rounded. */
#ifndef SHOAL_KERNELS_MATH_H
#define SHOAL_KERNELS_MATH_H

#include <math.h> /* fmaf, sqrtf */
#include <stdint.h>
#include <string.h>

#define KERN_SMALL 0x1p-62f

/* exp: x = n*ln2 + r, |r| <= ln2/2, e^r = 1 + r*(1 + r*q(r)), q of degree 4 fitted to the relative
 * error. LN2_HI has 14 bits, so n*LN2_HI is exact. Adding 1.5*2^23 rounds to an integer, which is
 * then the low bits of the sum. */
#define KERN_EXP_LO (-86.0f)
#define KERN_EXP_HI 0x1.62e42ep6f /* the largest x whose exp is finite */
#define KERN_LOG2E 0x1.715476p+0f
#define KERN_LN2_HI 0x1.62e4p-1f
#define KERN_LN2_LO 0x1.7f7d1cp-20f
#define KERN_ROUND 0x1.8p23f
#define KERN_ROUND_BITS 0x4b400000
#define KERN_EXP_C0 0x1p-1f
#define KERN_EXP_C1 0x1.55548ap-3f
#define KERN_EXP_C2 0x1.5554e4p-5f
#define KERN_EXP_C3 0x1.123e4cp-7f
#define KERN_EXP_C4 0x1.6d5168p-10f

/* tanh: x + x^3*P(x^2) below TANH_MID, else 1 - 2/(e^(2|x|) + 1) with the sign of x. */
#define KERN_TANH_MID 0.55f
#define KERN_TANH_C0 (-0x1.555548p-2f)
#define KERN_TANH_C1 0x1.110c7p-3f
#define KERN_TANH_C2 (-0x1.b90a7cp-5f)
#define KERN_TANH_C3 0x1.584296p-6f
#define KERN_TANH_C4 (-0x1.958f42p-8f)

static inline uint32_t kern_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float kern_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The small-number rule. */
static inline float kern_z(float v)
{
    return fabsf(v) < KERN_SMALL ? 0.0f : v;
}

static inline float kern_m_exp(float x)
{
    if (x < KERN_EXP_LO) {
        return 0.0f;
    }
    if (x > KERN_EXP_HI) {
        return INFINITY;
    }
    float t = fmaf(x, KERN_LOG2E, KERN_ROUND);
    float n = t - KERN_ROUND;
    float r = fmaf(n, -KERN_LN2_HI, x);
    r = fmaf(n, -KERN_LN2_LO, r);
    float q = fmaf(KERN_EXP_C4, r, KERN_EXP_C3);
    q = fmaf(q, r, KERN_EXP_C2);
    q = fmaf(q, r, KERN_EXP_C1);
    q = fmaf(q, r, KERN_EXP_C0);
    q = fmaf(q, r, 1.0f);
    q = fmaf(q, r, 1.0f);
    /* times 2^n in two exact steps, since 2^128 is no binary32 number */
    uint32_t k = kern_bits(t) - KERN_ROUND_BITS;
    uint32_t k1 = k >> 1 | (k & 0x80000000u);
    uint32_t k2 = k - k1;
    return q * kern_from_bits((k1 + 127u) << 23) * kern_from_bits((k2 + 127u) << 23);
}

static inline float kern_m_sigmoid(float x)
{
    float e = kern_m_exp(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

static inline float kern_m_silu(float x)
{
    return x * kern_m_sigmoid(x);
}

static inline float kern_m_tanh(float x)
{
    float a = fabsf(x);
    float y;
    if (a < KERN_TANH_MID) {
        float s = a * a;
        float p = fmaf(KERN_TANH_C4, s, KERN_TANH_C3);
        p = fmaf(p, s, KERN_TANH_C2);
        p = fmaf(p, s, KERN_TANH_C1);
        p = fmaf(p, s, KERN_TANH_C0);
        y = fmaf(a * s, p, a);
    } else {
        y = 1.0f - 2.0f / (kern_m_exp(a + a) + 1.0f);
    }
    return copysignf(y, x);
}

#endif
