/* SPDX-License-Identifier: MIT
 * matmul_avx2.c: the matrix products for AVX2 and FMA; compiled with -mavx2 -mfma. */
#include "kernels/matmul_impl.h"

#ifdef KERN_HAVE_AVX2
#include "kernels/simd.h"

/* 32 weights as the upper 16 bits of floats, in pairs: even places in the lower half of 32 bits. */
struct half {
    __m256i v, w;
};

/* Two table look-ups give the two bytes of the 32 floats; the low nibbles (even columns) go through
 * the lower half, the high ones through the upper half. */
static inline struct half half_mxfp4(const uint8_t *p, unsigned s)
{
    const __m256i down = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    const __m128i *table = (const __m128i *)kern_mxfp4_bytes[s];
    __m256i hi = _mm256_broadcastsi128_si256(_mm_load_si128(table));
    __m256i lo = _mm256_broadcastsi128_si256(_mm_load_si128(table + 1));
    __m256i n = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    n = _mm256_and_si256(_mm256_srlv_epi32(n, down), _mm256_set1_epi8(15));
    hi = _mm256_shuffle_epi8(hi, n);
    lo = _mm256_shuffle_epi8(lo, n);
    struct half r = {_mm256_unpacklo_epi8(lo, hi), _mm256_unpackhi_epi8(lo, hi)};
    return r;
}

static inline struct half half_bf16(const uint8_t *p)
{
    struct half r = {_mm256_loadu_si256((const __m256i *)p),
                     _mm256_loadu_si256((const __m256i *)(p + 32))};
    return r;
}

static inline v8 half_part(struct half h, int k)
{
    __m256i v = k < 2 ? h.v : h.w;
    return _mm256_castsi256_ps(k % 2 ? _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u))
                                     : _mm256_slli_epi32(v, 16));
}

/* Lanes 0 4 8 12 1 5 9 13 and 2 6 10 14 3 7 11 15, after fold 16: folds 8, 4, 2, 1. */
static inline float fold_mxfp4(v8 v, v8 w)
{
    __m256d a = _mm256_castps_pd(v), b = _mm256_castps_pd(w);
    /* 0 4 2 6 1 5 3 7 + 8 12 10 14 9 13 11 15 */
    v8 s = v8_add(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)),
                  _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
    s = v8_add(s, _mm256_movehdup_ps(s));   /* 0 . 2 . 1 . 3 . */
    s = v8_add(s, _mm256_permute_ps(s, 2)); /* 0 . . . 1 . . . */
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

/* Lanes 0 2 4 6 8 10 12 14 and 1 3 5 7 9 11 13 15, likewise. */
static inline float fold_bf16(v8 v, v8 w)
{
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)); /* 0 2 4 6 */
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1)); /* 1 3 5 7 */
    a = _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));                      /* 0 2 1 3 */
    a = _mm_add_ps(a, _mm_movehdup_ps(a));                                         /* 0 . 1 . */
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehl_ps(a, a)));
}

#include "kernels/matmul_v8.h"

const struct kern_matmul_ops kern_matmul_avx2 = {scratch_size, prepare, rows, peak, 8 * CHAINS};
#endif
