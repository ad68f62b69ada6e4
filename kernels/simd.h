/* SPDX-License-Identifier: MIT
 * simd.h: eight binary32 lanes, the same names for AVX2+FMA and NEON.
 *
 * An operation written with these is compiled once per instruction set (AVX2 files with -mavx2
 * -mfma). Each function is the IEEE operation of its name in every lane, correctly rounded; nothing
 * here approximates. Where neither set is enabled KERN_SIMD stays undefined and the file is empty.
 *
 * "_n" forms touch only the first n lanes in memory, 0 <= n <= 8; lanes beyond load as +0. */
#ifndef SHOAL_KERNELS_SIMD_H
#define SHOAL_KERNELS_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__) && defined(__FMA__)
#define KERN_SIMD "avx2"
#include <immintrin.h>

typedef __m256 v8;   /* eight floats */
typedef __m256 v8m;  /* eight masks, all ones or all zeros */
typedef __m256i v8i; /* eight 32-bit integers, wrapping */

static inline v8 v8_set1(float x)
{
    return _mm256_set1_ps(x);
}

static inline v8 v8_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void v8_store(float *p, v8 a)
{
    _mm256_storeu_ps(p, a);
}

static inline __m256i v8_first_n(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline v8 v8_load_n(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, v8_first_n(n));
}

static inline void v8_store_n(float *p, v8 a, size_t n)
{
    _mm256_maskstore_ps(p, v8_first_n(n), a);
}

static inline v8 v8_add(v8 a, v8 b)
{
    return _mm256_add_ps(a, b);
}

static inline v8 v8_sub(v8 a, v8 b)
{
    return _mm256_sub_ps(a, b);
}

static inline v8 v8_mul(v8 a, v8 b)
{
    return _mm256_mul_ps(a, b);
}

static inline v8 v8_div(v8 a, v8 b)
{
    return _mm256_div_ps(a, b);
}

/* a * b + c, rounded once */
static inline v8 v8_fma(v8 a, v8 b, v8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline v8 v8_abs(v8 a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

/* The sign bit of each lane, other bits zero. */
static inline v8 v8_signbit(v8 a)
{
    return _mm256_and_ps(_mm256_set1_ps(-0.0f), a);
}

/* Exclusive or of the bits. */
static inline v8 v8_xor(v8 a, v8 b)
{
    return _mm256_xor_ps(a, b);
}

/* Ordered comparisons: false for NaN. */
static inline v8m v8_lt(v8 a, v8 b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}

static inline v8m v8_gt(v8 a, v8 b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}

static inline v8 v8_sel(v8m m, v8 yes, v8 no)
{
    return _mm256_blendv_ps(no, yes, m);
}

static inline int v8_all(v8m m)
{
    return _mm256_movemask_ps(m) == 255;
}

/* acc[j] += acc[j + h] for h = 4, 2, 1; returns acc[0]. */
static inline float v8_fold(v8 a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

static inline v8 v8_load_bf16(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}

static inline v8 v8_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

static inline v8i v8i_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}

static inline v8i v8_bits(v8 a)
{
    return _mm256_castps_si256(a);
}

static inline v8 v8_from_bits(v8i a)
{
    return _mm256_castsi256_ps(a);
}

static inline v8i v8i_add(v8i a, v8i b)
{
    return _mm256_add_epi32(a, b);
}

static inline v8i v8i_sub(v8i a, v8i b)
{
    return _mm256_sub_epi32(a, b);
}

static inline v8i v8i_sra1(v8i a) /* arithmetic shift right by one */
{
    return _mm256_srai_epi32(a, 1);
}

static inline v8i v8i_shl23(v8i a)
{
    return _mm256_slli_epi32(a, 23);
}

#elif defined(__aarch64__) && defined(__ARM_NEON)
#define KERN_SIMD "neon"
#include <arm_neon.h>

typedef struct {
    float32x4_t l, h; /* lanes 0..3, 4..7 */
} v8;
typedef struct {
    uint32x4_t l, h;
} v8m;
typedef struct {
    int32x4_t l, h;
} v8i;

static inline v8 v8_set1(float x)
{
    v8 r = {vdupq_n_f32(x), vdupq_n_f32(x)};
    return r;
}

static inline v8 v8_load(const float *p)
{
    v8 r = {vld1q_f32(p), vld1q_f32(p + 4)};
    return r;
}

static inline void v8_store(float *p, v8 a)
{
    vst1q_f32(p, a.l);
    vst1q_f32(p + 4, a.h);
}

static inline v8 v8_load_n(const float *p, size_t n)
{
    float t[8] = {0};
    memcpy(t, p, n * sizeof *t);
    return v8_load(t);
}

static inline void v8_store_n(float *p, v8 a, size_t n)
{
    float t[8];
    v8_store(t, a);
    memcpy(p, t, n * sizeof *t);
}

static inline v8 v8_add(v8 a, v8 b)
{
    v8 r = {vaddq_f32(a.l, b.l), vaddq_f32(a.h, b.h)};
    return r;
}

static inline v8 v8_sub(v8 a, v8 b)
{
    v8 r = {vsubq_f32(a.l, b.l), vsubq_f32(a.h, b.h)};
    return r;
}

static inline v8 v8_mul(v8 a, v8 b)
{
    v8 r = {vmulq_f32(a.l, b.l), vmulq_f32(a.h, b.h)};
    return r;
}

static inline v8 v8_div(v8 a, v8 b)
{
    v8 r = {vdivq_f32(a.l, b.l), vdivq_f32(a.h, b.h)};
    return r;
}

/* a * b + c, rounded once */
static inline v8 v8_fma(v8 a, v8 b, v8 c)
{
    v8 r = {vfmaq_f32(c.l, a.l, b.l), vfmaq_f32(c.h, a.h, b.h)};
    return r;
}

static inline v8 v8_abs(v8 a)
{
    v8 r = {vabsq_f32(a.l), vabsq_f32(a.h)};
    return r;
}

/* The sign bit of each lane, other bits zero. */
static inline v8 v8_signbit(v8 a)
{
    uint32x4_t s = vdupq_n_u32(0x80000000u);
    v8 r = {vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a.l), s)),
            vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a.h), s))};
    return r;
}

/* Exclusive or of the bits. */
static inline v8 v8_xor(v8 a, v8 b)
{
    v8 r = {
        vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(a.l), vreinterpretq_u32_f32(b.l))),
        vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(a.h), vreinterpretq_u32_f32(b.h)))};
    return r;
}

/* Ordered comparisons: false for NaN. */
static inline v8m v8_lt(v8 a, v8 b)
{
    v8m r = {vcltq_f32(a.l, b.l), vcltq_f32(a.h, b.h)};
    return r;
}

static inline v8m v8_gt(v8 a, v8 b)
{
    v8m r = {vcgtq_f32(a.l, b.l), vcgtq_f32(a.h, b.h)};
    return r;
}

static inline v8 v8_sel(v8m m, v8 yes, v8 no)
{
    v8 r = {vbslq_f32(m.l, yes.l, no.l), vbslq_f32(m.h, yes.h, no.h)};
    return r;
}

static inline int v8_all(v8m m)
{
    return vminvq_u32(vandq_u32(m.l, m.h)) != 0;
}

/* acc[j] += acc[j + h] for h = 4, 2, 1; returns acc[0]. */
static inline float v8_fold(v8 a)
{
    float32x4_t s = vaddq_f32(a.l, a.h);
    return vpadds_f32(vadd_f32(vget_low_f32(s), vget_high_f32(s)));
}

static inline v8 v8_load_bf16(const uint16_t *p)
{
    uint16x8_t w = vld1q_u16(p);
    v8 r = {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(w), 16)),
            vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(w), 16))};
    return r;
}

static inline v8 v8_load_i8(const int8_t *p)
{
    int16x8_t w = vmovl_s8(vld1_s8(p));
    v8 r = {vcvtq_f32_s32(vmovl_s16(vget_low_s16(w))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(w)))};
    return r;
}

static inline v8i v8i_set1(int32_t x)
{
    v8i r = {vdupq_n_s32(x), vdupq_n_s32(x)};
    return r;
}

static inline v8i v8_bits(v8 a)
{
    v8i r = {vreinterpretq_s32_f32(a.l), vreinterpretq_s32_f32(a.h)};
    return r;
}

static inline v8 v8_from_bits(v8i a)
{
    v8 r = {vreinterpretq_f32_s32(a.l), vreinterpretq_f32_s32(a.h)};
    return r;
}

static inline v8i v8i_add(v8i a, v8i b)
{
    v8i r = {vaddq_s32(a.l, b.l), vaddq_s32(a.h, b.h)};
    return r;
}

static inline v8i v8i_sub(v8i a, v8i b)
{
    v8i r = {vsubq_s32(a.l, b.l), vsubq_s32(a.h, b.h)};
    return r;
}

static inline v8i v8i_sra1(v8i a) /* arithmetic shift right by one */
{
    v8i r = {vshrq_n_s32(a.l, 1), vshrq_n_s32(a.h, 1)};
    return r;
}

static inline v8i v8i_shl23(v8i a)
{
    v8i r = {vshlq_n_s32(a.l, 23), vshlq_n_s32(a.h, 23)};
    return r;
}

#endif

#ifdef KERN_SIMD

static inline v8 v8_zero(void)
{
    return v8_set1(0.0f);
}

/* The small-number rule of NUMERICS.md section 1. */
static inline v8 v8_z(v8 a)
{
    return v8_sel(v8_lt(v8_abs(a), v8_set1(0x1p-62f)), v8_zero(), a);
}

static inline v8 v8_load_bf16_n(const uint16_t *p, size_t n)
{
    uint16_t t[8] = {0};
    memcpy(t, p, n * sizeof *t);
    return v8_load_bf16(t);
}

static inline v8 v8_load_i8_n(const int8_t *p, size_t n)
{
    int8_t t[8] = {0};
    memcpy(t, p, n);
    return v8_load_i8(t);
}

/* The fold of dot32 over its 32 lanes, lane j in a[j / 8]: h = 16, 8, 4, 2, 1. */
static inline float v32_fold(v8 a0, v8 a1, v8 a2, v8 a3)
{
    return v8_fold(v8_add(v8_add(a0, a2), v8_add(a1, a3)));
}

#endif
#endif
