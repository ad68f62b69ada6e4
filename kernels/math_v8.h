/* SPDX-License-Identifier: MIT
 * math_v8.h: the functions of math.h in eight lanes, branches replaced by selection. The bits are
 * those of the scalar forms. */
#ifndef SHOAL_KERNELS_MATH_V8_H
#define SHOAL_KERNELS_MATH_V8_H

#include "kernels/math.h"
#include "kernels/simd.h"

#ifdef KERN_SIMD

static inline v8 v8_exp(v8 x)
{
    v8 t = v8_fma(x, v8_set1(KERN_LOG2E), v8_set1(KERN_ROUND));
    v8 n = v8_sub(t, v8_set1(KERN_ROUND));
    v8 r = v8_fma(n, v8_set1(-KERN_LN2_HI), x);
    r = v8_fma(n, v8_set1(-KERN_LN2_LO), r);
    v8 q = v8_fma(v8_set1(KERN_EXP_C4), r, v8_set1(KERN_EXP_C3));
    q = v8_fma(q, r, v8_set1(KERN_EXP_C2));
    q = v8_fma(q, r, v8_set1(KERN_EXP_C1));
    q = v8_fma(q, r, v8_set1(KERN_EXP_C0));
    q = v8_fma(q, r, v8_set1(1.0f));
    q = v8_fma(q, r, v8_set1(1.0f));
    v8i k = v8i_sub(v8_bits(t), v8i_set1(KERN_ROUND_BITS));
    v8i k1 = v8i_sra1(k), k2 = v8i_sub(k, k1);
    v8i bias = v8i_set1(127);
    q = v8_mul(v8_mul(q, v8_from_bits(v8i_shl23(v8i_add(k1, bias)))),
               v8_from_bits(v8i_shl23(v8i_add(k2, bias))));
    q = v8_sel(v8_lt(x, v8_set1(KERN_EXP_LO)), v8_zero(), q);
    return v8_sel(v8_gt(x, v8_set1(KERN_EXP_HI)), v8_set1(INFINITY), q);
}

static inline v8 v8_sigmoid(v8 x)
{
    v8 e = v8_exp(v8_xor(v8_abs(x), v8_set1(-0.0f)));
    v8 one = v8_set1(1.0f);
    return v8_div(v8_sel(v8_lt(x, v8_zero()), e, one), v8_add(one, e));
}

static inline v8 v8_silu(v8 x)
{
    return v8_mul(x, v8_sigmoid(x));
}

static inline v8 v8_tanh(v8 x)
{
    v8 a = v8_abs(x);
    v8 s = v8_mul(a, a);
    v8 p = v8_fma(v8_set1(KERN_TANH_C4), s, v8_set1(KERN_TANH_C3));
    p = v8_fma(p, s, v8_set1(KERN_TANH_C2));
    p = v8_fma(p, s, v8_set1(KERN_TANH_C1));
    p = v8_fma(p, s, v8_set1(KERN_TANH_C0));
    v8 lo = v8_fma(v8_mul(a, s), p, a);
    v8 one = v8_set1(1.0f);
    v8 hi = v8_sub(one, v8_div(v8_set1(2.0f), v8_add(v8_exp(v8_add(a, a)), one)));
    return v8_xor(v8_sel(v8_lt(a, v8_set1(KERN_TANH_MID)), lo, hi), v8_signbit(x));
}

#endif
#endif
