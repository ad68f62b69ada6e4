/* SPDX-License-Identifier: MIT
 * pack_avx2.c: the decoder of packed bf16 for machines with AVX2; compiled with -mavx2. */
#include "kernels/isa.h"

#ifdef KERN_HAVE_AVX2
#include <immintrin.h>

typedef __m128i v16;

static inline v16 v16_load(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
static inline void v16_store(void *p, v16 a)
{
    _mm_storeu_si128((__m128i *)p, a);
}
/* t[i] for i < 16, 0 for i >= 0x80 */
static inline v16 v16_shuffle(v16 t, v16 i)
{
    return _mm_shuffle_epi8(t, i);
}
/* Each half by itself: from[k]'s bytes by the indexes in s[k], which are below 8 or 0x80. */
static inline v16 v16_shuffle_halves(const uint64_t from[2], const uint64_t s[2])
{
    const __m128i up = _mm_set_epi64x(0x0808080808080808, 0);
    __m128i f = _mm_set_epi64x((long long)from[1], (long long)from[0]);
    return _mm_shuffle_epi8(f, _mm_or_si128(_mm_set_epi64x((long long)s[1], (long long)s[0]), up));
}
static inline v16 v16_or(v16 a, v16 b)
{
    return _mm_or_si128(a, b);
}
static inline v16 v16_low_nibbles(v16 a)
{
    return _mm_and_si128(a, _mm_set1_epi8(15));
}
static inline v16 v16_high_nibbles(v16 a)
{
    return _mm_and_si128(_mm_srli_epi16(a, 4), _mm_set1_epi8(15));
}
static inline v16 v16_zip_lo8(v16 a, v16 b)
{
    return _mm_unpacklo_epi8(a, b);
}
static inline v16 v16_zip_hi8(v16 a, v16 b)
{
    return _mm_unpackhi_epi8(a, b);
}
static inline v16 v16_zip_lo16(v16 a, v16 b)
{
    return _mm_unpacklo_epi16(a, b);
}
static inline v16 v16_zip_hi16(v16 a, v16 b)
{
    return _mm_unpackhi_epi16(a, b);
}
/* Eight 16-bit numbers, each rotated right by one. */
static inline v16 v16_ror1_16(v16 a)
{
    return _mm_or_si128(_mm_srli_epi16(a, 1), _mm_slli_epi16(a, 15));
}

#include "kernels/pack_v16.h"

void pack_decode_avx2(const struct pack_block *b, uint16_t *v)
{
    decode(b, v);
}
#endif
