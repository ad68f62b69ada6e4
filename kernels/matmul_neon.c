/* SPDX-License-Identifier: MIT
 * matmul_neon.c: the matrix products for arm64 NEON. */
#include "kernels/matmul_impl.h"

#ifdef KERN_HAVE_NEON
#include "kernels/simd.h"

/* 32 weights as the upper 16 bits of floats, in pairs: even places in the lower half of 32 bits. */
struct half {
    uint8x16_t v0, v1, w0, w1;
};

/* Two table look-ups give the two bytes of the floats of 16 nibbles. */
static inline struct half half_mxfp4(const uint8_t *p, unsigned s)
{
    uint8x16_t hi = vld1q_u8(kern_mxfp4_bytes[s]), lo = vld1q_u8(kern_mxfp4_bytes[s] + 16);
    uint8x16_t n = vld1q_u8(p);
    uint8x16_t even = vandq_u8(n, vdupq_n_u8(15)), odd = vshrq_n_u8(n, 4);
    uint8x16_t eh = vqtbl1q_u8(hi, even), el = vqtbl1q_u8(lo, even);
    uint8x16_t oh = vqtbl1q_u8(hi, odd), ol = vqtbl1q_u8(lo, odd);
    struct half r = {vzip1q_u8(el, eh), vzip1q_u8(ol, oh), vzip2q_u8(el, eh), vzip2q_u8(ol, oh)};
    return r;
}

static inline struct half half_bf16(const uint8_t *p)
{
    struct half r = {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
    return r;
}

static inline float32x4_t four(uint8x16_t v, int odd)
{
    uint32x4_t u = vreinterpretq_u32_u8(v);
    return vreinterpretq_f32_u32(odd ? vandq_u32(u, vdupq_n_u32(0xffff0000u)) : vshlq_n_u32(u, 16));
}

static inline v8 half_part(struct half h, int k)
{
    v8 r = {four(k < 2 ? h.v0 : h.w0, k % 2), four(k < 2 ? h.v1 : h.w1, k % 2)};
    return r;
}

/* Lanes 0 4 8 12 1 5 9 13 and 2 6 10 14 3 7 11 15, after fold 16: folds 8, 4, 2, 1. */
static inline float fold_mxfp4(v8 v, v8 w)
{
    float32x2_t a = vadd_f32(vget_low_f32(v.l), vget_high_f32(v.l)); /* 0 4 */
    float32x2_t b = vadd_f32(vget_low_f32(v.h), vget_high_f32(v.h)); /* 1 5 */
    float32x2_t c = vadd_f32(vget_low_f32(w.l), vget_high_f32(w.l)); /* 2 6 */
    float32x2_t d = vadd_f32(vget_low_f32(w.h), vget_high_f32(w.h)); /* 3 7 */
    return vpadds_f32(vadd_f32(vpadd_f32(a, b), vpadd_f32(c, d)));
}

/* Lanes 0 2 4 6 8 10 12 14 and 1 3 5 7 9 11 13 15, likewise. */
static inline float fold_bf16(v8 v, v8 w)
{
    float32x4_t a = vaddq_f32(v.l, v.h), b = vaddq_f32(w.l, w.h); /* 0 2 4 6, 1 3 5 7 */
    float32x2_t c = vadd_f32(vget_low_f32(a), vget_high_f32(a));  /* 0 2 */
    float32x2_t d = vadd_f32(vget_low_f32(b), vget_high_f32(b));  /* 1 3 */
    return vpadds_f32(vpadd_f32(c, d));
}

#include "kernels/matmul_v8.h"

const struct kern_matmul_ops kern_matmul_neon = {scratch_size, prepare, rows, peak, 8 * CHAINS};
#endif
