/* SPDX-License-Identifier: MIT
 * ops_v8.h: the operations of ops.h in eight lanes, one text for AVX2 and NEON; included once by
 * ops_avx2.c and once by ops_neon.c. Names and order follow ops_scalar.c; what differs is said. */
#ifndef SHOAL_KERNELS_OPS_V8_H
#define SHOAL_KERNELS_OPS_V8_H

#include "kernels/math_v8.h"
#include "kernels/ops.h"

#define INLINE static inline __attribute__((always_inline))

/* Eight weights from element i on; `type` is a constant wherever this is inlined. */
INLINE v8 load_w(const void *w, enum kern_type type, size_t i)
{
    switch (type) {
    case KERN_BF16:
        return v8_load_bf16((const uint16_t *)w + i);
    case KERN_I8:
        return v8_load_i8((const int8_t *)w + i);
    default:
        return v8_load((const float *)w + i);
    }
}

INLINE v8 load_w_n(const void *w, enum kern_type type, size_t i, size_t n)
{
    switch (type) {
    case KERN_BF16:
        return v8_load_bf16_n((const uint16_t *)w + i, n);
    case KERN_I8:
        return v8_load_i8_n((const int8_t *)w + i, n);
    default:
        return v8_load_n((const float *)w + i, n);
    }
}

/* y[i] = EXPR for i < n, eight at a time; LOAD(p) in EXPR reads the float array p at i, LOADW(w, t)
 * a weight array. The last few go through the partial forms. */
#define EACH(y, n, EXPR_FULL, EXPR_TAIL)         \
    do {                                         \
        size_t i = 0;                            \
        for (; i + 8 <= (n); i += 8) {           \
            v8_store((y) + i, (EXPR_FULL));      \
        }                                        \
        if (i < (n)) {                           \
            size_t m = (n)-i;                    \
            v8_store_n((y) + i, (EXPR_TAIL), m); \
        }                                        \
    } while (0)

/* Lane i mod 32 lies in acc[i / 8 mod 4]; a partial last group meets +0, which changes nothing. */
INLINE float dot32_w(const void *w, enum kern_type type, const float *x, size_t n)
{
    v8 a0 = v8_zero(), a1 = a0, a2 = a0, a3 = a0;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a0 = v8_fma(load_w(w, type, i), v8_load(x + i), a0);
        a1 = v8_fma(load_w(w, type, i + 8), v8_load(x + i + 8), a1);
        a2 = v8_fma(load_w(w, type, i + 16), v8_load(x + i + 16), a2);
        a3 = v8_fma(load_w(w, type, i + 24), v8_load(x + i + 24), a3);
    }
    v8 *const acc[4] = {&a0, &a1, &a2, &a3};
    for (size_t j = 0; i < n; j++, i += 8) {
        size_t m = n - i < 8 ? n - i : 8;
        *acc[j] = v8_fma(load_w_n(w, type, i, m), v8_load_n(x + i, m), *acc[j]);
    }
    return v32_fold(a0, a1, a2, a3);
}

static float dot32(const float *a, const float *b, size_t n)
{
    return dot32_w(a, KERN_F32, b, n);
}

static float sum32(const float *a, size_t n)
{
    v8 a0 = v8_zero(), a1 = a0, a2 = a0, a3 = a0;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a0 = v8_add(a0, v8_load(a + i));
        a1 = v8_add(a1, v8_load(a + i + 8));
        a2 = v8_add(a2, v8_load(a + i + 16));
        a3 = v8_add(a3, v8_load(a + i + 24));
    }
    v8 *const acc[4] = {&a0, &a1, &a2, &a3};
    for (size_t j = 0; i < n; j++, i += 8) {
        *acc[j] = v8_add(*acc[j], v8_load_n(a + i, n - i < 8 ? n - i : 8));
    }
    return v32_fold(a0, a1, a2, a3);
}

INLINE float rsq(float m)
{
    return 1.0f / sqrtf(m);
}

INLINE void widen_t(float *y, const void *src, enum kern_type t, size_t n)
{
    EACH(y, n, v8_z(load_w(src, t, i)), v8_z(load_w_n(src, t, i, m)));
}

static void widen(float *y, const void *src, enum kern_type type, size_t n)
{
    if (type == KERN_BF16) {
        widen_t(y, src, KERN_BF16, n);
    } else {
        widen_t(y, src, KERN_F32, n);
    }
}

INLINE void mulvec_t(float *y, const void *a, enum kern_type ta, const void *b, enum kern_type tb,
                     size_t n)
{
    EACH(y, n, v8_z(v8_mul(load_w(a, ta, i), load_w(b, tb, i))),
         v8_z(v8_mul(load_w_n(a, ta, i, m), load_w_n(b, tb, i, m))));
}

static void mulvec(float *y, const void *a, enum kern_type ta, const void *b, enum kern_type tb,
                   size_t n)
{
    if (ta == KERN_F32 && tb == KERN_F32) {
        mulvec_t(y, a, KERN_F32, b, KERN_F32, n);
    } else if (ta == KERN_F32) {
        mulvec_t(y, a, KERN_F32, b, KERN_BF16, n);
    } else if (tb == KERN_F32) {
        mulvec_t(y, a, KERN_BF16, b, KERN_F32, n);
    } else {
        mulvec_t(y, a, KERN_BF16, b, KERN_BF16, n);
    }
}

static void add(float *y, const float *a, const float *b, size_t n)
{
    EACH(y, n, v8_z(v8_add(v8_load(a + i), v8_load(b + i))),
         v8_z(v8_add(v8_load_n(a + i, m), v8_load_n(b + i, m))));
}

INLINE v8 situ8(v8 g, v8 u, v8 beta, v8 lbeta)
{
    v8 a = v8_mul(v8_mul(beta, v8_tanh(v8_div(g, beta))), v8_sigmoid(g));
    v8 c = v8_mul(lbeta, v8_tanh(v8_div(u, lbeta)));
    return v8_z(v8_mul(a, c));
}

static void situ(float *y, const float *g, const float *u, size_t n, float beta, float lbeta)
{
    v8 b = v8_set1(beta), l = v8_set1(lbeta);
    EACH(y, n, situ8(v8_load(g + i), v8_load(u + i), b, l),
         situ8(v8_load_n(g + i, m), v8_load_n(u + i, m), b, l));
}

static void gate(float *y, const float *x, const float *g, size_t n)
{
    EACH(y, n, v8_z(v8_mul(v8_load(x + i), v8_sigmoid(v8_load(g + i)))),
         v8_z(v8_mul(v8_load_n(x + i, m), v8_sigmoid(v8_load_n(g + i, m)))));
}

static void map(enum kern_fn fn, float *y, const float *x, size_t n)
{
    switch (fn) {
    case KERN_FN_EXP:
        EACH(y, n, v8_exp(v8_load(x + i)), v8_exp(v8_load_n(x + i, m)));
        break;
    case KERN_FN_SIGMOID:
        EACH(y, n, v8_sigmoid(v8_load(x + i)), v8_sigmoid(v8_load_n(x + i, m)));
        break;
    case KERN_FN_TANH:
        EACH(y, n, v8_tanh(v8_load(x + i)), v8_tanh(v8_load_n(x + i, m)));
        break;
    case KERN_FN_SILU:
        EACH(y, n, v8_silu(v8_load(x + i)), v8_silu(v8_load_n(x + i, m)));
        break;
    }
}

INLINE void rmsnorm_t(float *y, const float *x, const void *w, enum kern_type t, size_t n,
                      float eps)
{
    v8 r = v8_set1(rsq(dot32(x, x, n) / (float)n + eps));
    EACH(y, n, v8_z(v8_mul(load_w(w, t, i), v8_mul(v8_load(x + i), r))),
         v8_z(v8_mul(load_w_n(w, t, i, m), v8_mul(v8_load_n(x + i, m), r))));
}

static void rmsnorm(float *y, const float *x, const void *w, enum kern_type wt, size_t n, float eps)
{
    if (wt == KERN_BF16) {
        rmsnorm_t(y, x, w, KERN_BF16, n, eps);
    } else {
        rmsnorm_t(y, x, w, KERN_F32, n, eps);
    }
}

/* The largest may be sought in lanes: an equal value of the other zero gives the same differences,
 * and with a NaN anywhere in x every output is NaN, whichever maximum was taken. */
static void softmax(float *p, const float *x, size_t n)
{
    float top = x[0];
    size_t k = 0;
    if (n >= 8) {
        v8 t = v8_load(x);
        for (k = 8; k + 8 <= n; k += 8) {
            v8 e = v8_load(x + k);
            t = v8_sel(v8_gt(e, t), e, t);
        }
        float lanes[8];
        v8_store(lanes, t);
        top = lanes[0];
        for (size_t j = 1; j < 8; j++) {
            top = lanes[j] > top ? lanes[j] : top;
        }
    }
    for (; k < n; k++) {
        top = x[k] > top ? x[k] : top;
    }
    v8 t = v8_set1(top);
    EACH(p, n, v8_exp(v8_sub(v8_load(x + i), t)), v8_exp(v8_sub(v8_load_n(x + i, m), t)));
    v8 d = v8_set1(sum32(p, n));
    EACH(p, n, v8_z(v8_div(v8_load(p + i), d)), v8_z(v8_div(v8_load_n(p + i, m), d)));
}

static bool finite_all(const float *x, size_t n)
{
    v8 inf = v8_set1(INFINITY);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        if (!v8_all(v8_lt(v8_abs(v8_load(x + i)), inf))) {
            return false;
        }
    }
    return i == n || v8_all(v8_lt(v8_abs(v8_load_n(x + i, n - i)), inf));
}

static float mix_score(const float *v, const float *s, size_t n, float eps)
{
    float r = rsq(dot32(v, v, n) / (float)n + eps);
    return dot32(v, s, n) * r;
}

INLINE v8 mix8(const float *bank, size_t stride, size_t nb, const float *last, const float *p,
               size_t n)
{
    v8 acc = v8_zero();
    for (size_t i = 0; i < nb; i++) {
        acc = v8_fma(v8_set1(p[i]),
                     n == 8 ? v8_load(bank + i * stride) : v8_load_n(bank + i * stride, n), acc);
    }
    return v8_z(v8_fma(v8_set1(p[nb]), n == 8 ? v8_load(last) : v8_load_n(last, n), acc));
}

static void mix_sum(float *y, const float *bank, size_t stride, size_t nb, const float *last,
                    const float *p, size_t n)
{
    EACH(y, n, mix8(bank + i, stride, nb, last + i, p, 8),
         mix8(bank + i, stride, nb, last + i, p, m));
}

INLINE v8 combine8(const float *y, const float *w, size_t n, size_t k, size_t m)
{
    v8 acc = v8_zero();
    for (size_t j = 0; j < k; j++) {
        acc = v8_fma(v8_set1(w[j]), m == 8 ? v8_load(y + j * n) : v8_load_n(y + j * n, m), acc);
    }
    return v8_z(acc);
}

static void combine(float *u, const float *y, const float *w, size_t n, size_t k, size_t i0,
                    size_t i1)
{
    u += i0;
    y += i0;
    EACH(u, i1 - i0, combine8(y + i, w, n, k, 8), combine8(y + i, w, n, k, m));
}

static void gated_norm(float *y, const float *o, const float *w, const float *z, size_t D,
                       float eps)
{
    v8 r = v8_set1(rsq(dot32(o, o, D) / (float)D + eps));
    EACH(
        y, D,
        v8_z(v8_mul(v8_mul(v8_load(w + i), v8_mul(v8_load(o + i), r)), v8_sigmoid(v8_load(z + i)))),
        v8_z(v8_mul(v8_mul(v8_load_n(w + i, m), v8_mul(v8_load_n(o + i, m), r)),
                    v8_sigmoid(v8_load_n(z + i, m)))));
}

#endif
