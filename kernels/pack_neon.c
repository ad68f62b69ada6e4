/* SPDX-License-Identifier: MIT
 * pack_neon.c: the decoder of packed bf16 for arm64. */
#include "kernels/isa.h"

#ifdef KERN_HAVE_NEON
#include <arm_neon.h>

typedef uint8x16_t v16;

static inline v16 v16_load(const void *p)
{
    return vld1q_u8(p);
}
static inline void v16_store(void *p, v16 a)
{
    vst1q_u8(p, a);
}
/* t[i] for i < 16, 0 for i >= 0x80 */
static inline v16 v16_shuffle(v16 t, v16 i)
{
    return vqtbl1q_u8(t, i);
}
/* Each half by itself: from[k]'s bytes by the indexes in s[k], which are below 8 or 0x80. */
static inline v16 v16_shuffle_halves(const uint64_t from[2], const uint64_t s[2])
{
    uint8x8_t a = vtbl1_u8(vcreate_u8(from[0]), vcreate_u8(s[0]));
    uint8x8_t b = vtbl1_u8(vcreate_u8(from[1]), vcreate_u8(s[1]));
    return vcombine_u8(a, b);
}
static inline v16 v16_or(v16 a, v16 b)
{
    return vorrq_u8(a, b);
}
static inline v16 v16_low_nibbles(v16 a)
{
    return vandq_u8(a, vdupq_n_u8(15));
}
static inline v16 v16_high_nibbles(v16 a)
{
    return vshrq_n_u8(a, 4);
}
static inline v16 v16_zip_lo8(v16 a, v16 b)
{
    return vzip1q_u8(a, b);
}
static inline v16 v16_zip_hi8(v16 a, v16 b)
{
    return vzip2q_u8(a, b);
}
static inline v16 v16_zip_lo16(v16 a, v16 b)
{
    return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
static inline v16 v16_zip_hi16(v16 a, v16 b)
{
    return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
/* Eight 16-bit numbers, each rotated right by one. */
static inline v16 v16_ror1_16(v16 a)
{
    uint16x8_t w = vreinterpretq_u16_u8(a);
    return vreinterpretq_u8_u16(vsriq_n_u16(vshlq_n_u16(w, 15), w, 1));
}

#include "kernels/pack_v16.h"

void pack_decode_neon(const struct pack_block *b, uint16_t *v)
{
    decode(b, v);
}
#endif
