// SPDX-License-Identifier: MIT
// prelude.metal: what all kernels share: numbers of NUMERICS.md sections 1 to 3, positions, memory.
//
// The coefficients are those of kernels/math.h as bit patterns. Three rules of this folder: every
// kernel takes its arguments, the positions (SH_POS), then its buffers; all 32 lanes of a SIMD group
// reach every shuffle; only kernels declare threadgroup memory (SH_SHARED) and helpers take it as
// SH_SHARED_PTR.
#ifndef SHOAL_SHADERS_PRELUDE
#define SHOAL_SHADERS_PRELUDE

#include <metal_stdlib>

#pragma METAL fp contract(off)

using namespace metal;

#include "args.h"

#ifdef __METAL_VERSION__
#define SH_SHARED(type, name, n) threadgroup type name[n]
#define SH_SHARED_PTR(type) threadgroup type *
#endif

#define SH_POS                                                                                     \
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],        \
        uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]

#define SH_F32 0
#define SH_BF16 1
#define SH_MXFP4 2
#define SH_I8 3

#define SH_BITS(u) as_type<float>(u)
#define SH_NAN SH_BITS(0x7fc00000u)
#define SH_INF SH_BITS(0x7f800000u)

inline float sh_fma(float a, float b, float c)
{
    return metal::fma(a, b, c);
}

inline float sh_abs(float v)
{
    return as_type<float>(as_type<uint>(v) & 0x7fffffffu);
}

// The small-number rule.
inline float sh_z(float v)
{
    return sh_abs(v) < SH_BITS(0x20800000u) ? 0.0f : v;
}

inline float sh_rsq(float m)
{
    return 1.0f / metal::precise::sqrt(m);
}

inline float sh_exp(float x)
{
    float t = sh_fma(x, SH_BITS(0x3fb8aa3bu), SH_BITS(0x4b400000u));
    float n = t - SH_BITS(0x4b400000u);
    float r = sh_fma(n, SH_BITS(0xbf317200u), x);
    r = sh_fma(n, SH_BITS(0xb5bfbe8eu), r);
    float q = sh_fma(SH_BITS(0x3ab6a8b4u), r, SH_BITS(0x3c091f26u));
    q = sh_fma(q, r, SH_BITS(0x3d2aaa72u));
    q = sh_fma(q, r, SH_BITS(0x3e2aaa45u));
    q = sh_fma(q, r, 0.5f);
    q = sh_fma(q, r, 1.0f);
    q = sh_fma(q, r, 1.0f);
    uint k = as_type<uint>(t) - 0x4b400000u;
    uint k1 = k >> 1 | (k & 0x80000000u);
    uint k2 = k - k1;
    float y = q * as_type<float>((k1 + 127u) << 23) * as_type<float>((k2 + 127u) << 23);
    y = x < -86.0f ? 0.0f : y;
    return x > SH_BITS(0x42b17217u) ? SH_INF : y;
}

inline float sh_sigmoid(float x)
{
    float e = sh_exp(-sh_abs(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

inline float sh_tanh(float x)
{
    float a = sh_abs(x);
    float y;
    if (a < SH_BITS(0x3f0ccccdu)) {
        float s = a * a;
        float p = sh_fma(SH_BITS(0xbbcac7a1u), s, SH_BITS(0x3cac214bu));
        p = sh_fma(p, s, SH_BITS(0xbd5c853eu));
        p = sh_fma(p, s, SH_BITS(0x3e088638u));
        p = sh_fma(p, s, SH_BITS(0xbeaaaaa4u));
        y = sh_fma(a * s, p, a);
    } else {
        y = 1.0f - 2.0f / (sh_exp(a + a) + 1.0f);
    }
    return as_type<float>((as_type<uint>(y) & 0x7fffffffu) | (as_type<uint>(x) & 0x80000000u));
}

// The folds of dot32 over the lanes of a SIMD group. Each step adds the same two numbers in both
// halves, so every lane ends with acc[0].
inline float sh_fold32(float v)
{
#pragma unroll
    for (ushort h = 16; h > 0; h /= 2) {
        v += simd_shuffle_xor(v, h);
    }
    return v;
}

// Thirty-two such folds at once: afterwards lane i holds the sum of accumulators v[i] of all lanes.
// A step sends the half that the other lane keeps; 31 shuffles instead of 160.
inline float sh_fold32x32(thread float *v, uint lane)
{
#pragma unroll
    for (ushort h = 16; h > 0; h /= 2) {
        bool low = (lane & h) == 0;
#pragma unroll
        for (ushort a = 0; a < h; a++) {
            float keep = low ? v[a] : v[a + h];
            float send = low ? v[a + h] : v[a];
            v[a] = keep + simd_shuffle_xor(send, h);
        }
    }
    return v[0];
}

// A lane's chain of dot32 over p and q in threadgroup memory; eight loads before the first fma.
inline float sh_chain(SH_SHARED_PTR(float) p, SH_SHARED_PTR(float) q, uint n, uint lane, float acc)
{
    uint i = lane;
    for (; i + 7 * 32 < n; i += 8 * 32) {
        float a[8], b[8];
#pragma unroll
        for (uint j = 0; j < 8; j++) {
            a[j] = p[i + j * 32];
            b[j] = q[i + j * 32];
        }
#pragma unroll
        for (uint j = 0; j < 8; j++) {
            acc = sh_fma(a[j], b[j], acc);
        }
    }
    for (; i < n; i += 32) {
        acc = sh_fma(p[i], q[i], acc);
    }
    return acc;
}

inline float sh_bf16(uint b)
{
    return as_type<float>(b << 16);
}

// Value i of a vector of binary32 (type 0) or bf16 (1).
inline float sh_vec(device const uchar *p, uint type, ulong i)
{
    if (type == SH_BF16) {
        return sh_bf16(((device const ushort *)p)[i]);
    }
    return ((device const float *)p)[i];
}

#endif
