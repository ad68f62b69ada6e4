/* SPDX-License-Identifier: MIT
 * ops_v8_seq.h: the second part of ops_v8.h: convolution, KDA and latent attention. Sums over time
 * or over keys stay sequential; lanes run over channels. */
#ifndef SHOAL_KERNELS_OPS_V8_SEQ_H
#define SHOAL_KERNELS_OPS_V8_SEQ_H

#include "kernels/ops_v8.h"

/* m <= 8 channels from c on. */
INLINE void conv8(const struct kern_conv_args *a, size_t c, size_t m)
{
    size_t past = a->K - 1;
    v8 w[KERN_CONV_TAPS];
    for (size_t j = 0; j < a->K; j++) { /* turn [channel][tap] */
        float t[8] = {0};
        for (size_t i = 0; i < m; i++) {
            t[i] = a->w[(c + i) * a->K + j];
        }
        w[j] = v8_load(t);
    }
    for (size_t t = 0; t < a->T; t++) {
        v8 acc = v8_zero();
        for (size_t j = 0; j < a->K; j++) {
            const float *u =
                t + j < past ? a->hist + (t + j) * a->C : a->x + (t + j - past) * a->xstride;
            acc = v8_fma(w[j], m == 8 ? v8_load(u + c) : v8_load_n(u + c, m), acc);
        }
        v8 y = v8_z(v8_silu(acc));
        if (m == 8) {
            v8_store(a->y + t * a->ystride + c, y);
        } else {
            v8_store_n(a->y + t * a->ystride + c, y, m);
        }
    }
    for (size_t j = 0; j < past; j++) { /* ascending: reads are never behind writes */
        size_t t = a->T + j;
        const float *u = t < past ? a->hist + t * a->C : a->x + (t - past) * a->xstride;
        memcpy(a->hist + j * a->C + c, u + c, m * sizeof *u);
    }
}

static void conv(const struct kern_conv_args *a, size_t c0, size_t c1)
{
    size_t c = c0;
    for (; c + 8 <= c1; c += 8) {
        conv8(a, c, 8);
    }
    if (c < c1) {
        conv8(a, c, c1 - c);
    }
}

/* G groups of eight values from v on (G constant), the last of m lanes. S is read twice instead of
 * keeping P = S * alpha: the product is the same both times. */
INLINE void kda_columns(const struct kern_kda_args *a, float *S, const float *q, const float *k,
                        const float *alpha, float beta, const float *v, float *o, const size_t G,
                        const size_t m)
{
    size_t D = a->D;
    v8 r[4], u[4], acc[4];
    for (size_t g = 0; g < G; g++) {
        r[g] = acc[g] = v8_zero();
    }
    for (size_t d = 0; d < D; d++) {
        v8 kd = v8_set1(k[d]), ad = v8_set1(alpha[d]);
        for (size_t g = 0; g < G; g++) {
            const float *s = S + d * D + 8 * g;
            r[g] = v8_fma(kd, v8_mul(m == 8 ? v8_load(s) : v8_load_n(s, m), ad), r[g]);
        }
    }
    for (size_t g = 0; g < G; g++) {
        v8 vg = m == 8 ? v8_load(v + 8 * g) : v8_load_n(v + 8 * g, m);
        u[g] = v8_z(v8_mul(v8_set1(beta), v8_sub(vg, r[g])));
    }
    for (size_t d = 0; d < D; d++) {
        v8 kd = v8_set1(k[d]), ad = v8_set1(alpha[d]), qd = v8_set1(q[d]);
        for (size_t g = 0; g < G; g++) {
            float *s = S + d * D + 8 * g;
            v8 P = v8_mul(m == 8 ? v8_load(s) : v8_load_n(s, m), ad);
            v8 n = v8_z(v8_fma(kd, u[g], P));
            if (m == 8) {
                v8_store(s, n);
            } else {
                v8_store_n(s, n, m);
            }
            acc[g] = v8_fma(qd, n, acc[g]);
        }
    }
    for (size_t g = 0; g < G; g++) {
        if (m == 8) {
            v8_store(o + 8 * g, v8_z(acc[g]));
        } else {
            v8_store_n(o + 8 * g, v8_z(acc[g]), m);
        }
    }
}

INLINE v8 alpha8(v8 f, v8 dt, v8 A, v8 lower)
{
    return v8_exp(v8_mul(lower, v8_sigmoid(v8_mul(A, v8_add(f, dt)))));
}

static void kda(const struct kern_kda_args *a, size_t h, float *tmp)
{
    size_t D = a->D;
    float *q = tmp, *k = tmp + D, *alpha = tmp + 2 * D;
    float *S = a->S + h * D * D;
    v8 c = v8_set1(1.0f / sqrtf((float)D)), lower = v8_set1(a->lower);
    v8 A = v8_set1(kern_m_exp(a->a_log[h]));
    const float *dt = a->dt_bias + h * D;
    for (size_t t = 0; t < a->T; t++) {
        size_t at = (t * a->H + h) * D;
        const float *aq = a->q + at, *ak = a->k + at, *f = a->f + at;
        v8 rq = v8_set1(rsq(dot32(aq, aq, D) + a->eps));
        v8 rk = v8_set1(rsq(dot32(ak, ak, D) + a->eps));
        EACH(q, D, v8_mul(v8_mul(v8_load(aq + i), rq), c),
             v8_mul(v8_mul(v8_load_n(aq + i, m), rq), c));
        EACH(k, D, v8_mul(v8_load(ak + i), rk), v8_mul(v8_load_n(ak + i, m), rk));
        EACH(alpha, D, alpha8(v8_load(f + i), v8_load(dt + i), A, lower),
             alpha8(v8_load_n(f + i, m), v8_load_n(dt + i, m), A, lower));
        float beta = kern_m_sigmoid(a->b[t * a->H + h]);
        const float *v = a->v + at;
        float *o = a->o + at;
        size_t j = 0;
        for (; j + 32 <= D; j += 32) {
            kda_columns(a, S + j, q, k, alpha, beta, v + j, o + j, 4, 8);
        }
        for (; j + 8 <= D; j += 8) {
            kda_columns(a, S + j, q, k, alpha, beta, v + j, o + j, 1, 8);
        }
        if (j < D) {
            kda_columns(a, S + j, q, k, alpha, beta, v + j, o + j, 1, D - j);
        }
    }
}

/* G groups of eight channels from c on, the last of m lanes. */
INLINE void absorb_columns(float *qt, const struct kern_mla_mat *w, enum kern_type type,
                           size_t row0, const float *q, size_t nope, size_t c, const size_t G,
                           const size_t m)
{
    v8 acc[4];
    for (size_t g = 0; g < G; g++) {
        acc[g] = v8_zero();
    }
    for (size_t j = 0; j < nope; j++) {
        v8 b = v8_set1(type == KERN_I8 ? w->scale[row0 + j] * q[j] : q[j]);
        size_t at = (row0 + j) * w->rank + c;
        for (size_t g = 0; g < G; g++) {
            v8 e =
                m == 8 ? load_w(w->data, type, at + 8 * g) : load_w_n(w->data, type, at + 8 * g, m);
            acc[g] = v8_fma(e, b, acc[g]);
        }
    }
    for (size_t g = 0; g < G; g++) {
        if (m == 8) {
            v8_store(qt + c + 8 * g, v8_z(acc[g]));
        } else {
            v8_store_n(qt + c + 8 * g, v8_z(acc[g]), m);
        }
    }
}

INLINE void absorb_t(float *qt, const struct kern_mla_mat *w, enum kern_type type, size_t row0,
                     const float *q, size_t nope)
{
    size_t c = 0;
    for (; c + 32 <= w->rank; c += 32) {
        absorb_columns(qt, w, type, row0, q, nope, c, 4, 8);
    }
    for (; c + 8 <= w->rank; c += 8) {
        absorb_columns(qt, w, type, row0, q, nope, c, 1, 8);
    }
    if (c < w->rank) {
        absorb_columns(qt, w, type, row0, q, nope, c, 1, w->rank - c);
    }
}

static void mla_absorb(float *qt, const struct kern_mla_mat *m, size_t row0, const float *q,
                       size_t nope)
{
    if (m->type == KERN_BF16) {
        absorb_t(qt, m, KERN_BF16, row0, q, nope);
    } else if (m->type == KERN_I8) {
        absorb_t(qt, m, KERN_I8, row0, q, nope);
    } else {
        absorb_t(qt, m, KERN_F32, row0, q, nope);
    }
}

/* NH heads with NP positions (constants): the eight lanes of group g of dot32 at a time, so that
 * all NH * NP accumulators stay in registers and every load serves several of them. */
INLINE void scores_block(float *s, size_t sstride, const float *a, const float *cache, size_t w,
                         float scale, const size_t NH, const size_t NP)
{
    v8 part[4][8];
    for (size_t g = 0; g < 4; g++) {
        v8 acc[8];
        for (size_t j = 0; j < NH * NP; j++) {
            acc[j] = v8_zero();
        }
        size_t i = 8 * g;
        for (; i + 8 <= w; i += 32) {
            for (size_t p = 0; p < NP; p++) {
                v8 e = v8_load(cache + p * w + i);
                for (size_t h = 0; h < NH; h++) {
                    acc[p * NH + h] = v8_fma(v8_load(a + h * w + i), e, acc[p * NH + h]);
                }
            }
        }
        if (i < w) {
            for (size_t p = 0; p < NP; p++) {
                v8 e = v8_load_n(cache + p * w + i, w - i);
                for (size_t h = 0; h < NH; h++) {
                    acc[p * NH + h] = v8_fma(v8_load_n(a + h * w + i, w - i), e, acc[p * NH + h]);
                }
            }
        }
        for (size_t j = 0; j < NH * NP; j++) {
            part[g][j] = acc[j];
        }
    }
    for (size_t p = 0; p < NP; p++) {
        for (size_t h = 0; h < NH; h++) {
            size_t j = p * NH + h;
            float d = v32_fold(part[0][j], part[1][j], part[2][j], part[3][j]) * scale;
            s[h * sstride + p] = kern_z(d);
        }
    }
}

static void mla_scores(float *s, size_t sstride, const float *a, size_t H, const float *cache,
                       size_t w, size_t i0, size_t i1, float scale)
{
    size_t h = 0;
    for (; h + 4 <= H; h += 4) {
        size_t i = i0;
        for (; i + 2 <= i1; i += 2) {
            scores_block(s + h * sstride + i, sstride, a + h * w, cache + i * w, w, scale, 4, 2);
        }
        for (; i < i1; i++) {
            scores_block(s + h * sstride + i, sstride, a + h * w, cache + i * w, w, scale, 4, 1);
        }
    }
    for (; h < H; h++) {
        for (size_t i = i0; i < i1; i++) {
            scores_block(s + h * sstride + i, sstride, a + h * w, cache + i * w, w, scale, 1, 1);
        }
    }
}

/* Positions [i0, i1) of NH heads and G groups of channels, the last of m lanes; the sums so far lie
 * in ctx. */
INLINE void context_block(float *ctx, size_t rank, const float *p, size_t pstride,
                          const float *cache, size_t w, size_t i0, size_t i1, const size_t NH,
                          const size_t G, const size_t m)
{
    v8 acc[2][4];
    for (size_t h = 0; h < NH; h++) {
        for (size_t g = 0; g < G; g++) {
            const float *c = ctx + h * rank + 8 * g;
            acc[h][g] = m == 8 ? v8_load(c) : v8_load_n(c, m);
        }
    }
    for (size_t i = i0; i < i1; i++) {
        for (size_t g = 0; g < G; g++) {
            const float *c = cache + i * w + 8 * g;
            v8 e = m == 8 ? v8_load(c) : v8_load_n(c, m);
            for (size_t h = 0; h < NH; h++) {
                acc[h][g] = v8_fma(v8_set1(p[h * pstride + i]), e, acc[h][g]);
            }
        }
    }
    for (size_t h = 0; h < NH; h++) {
        for (size_t g = 0; g < G; g++) {
            float *c = ctx + h * rank + 8 * g;
            if (m == 8) {
                v8_store(c, acc[h][g]);
            } else {
                v8_store_n(c, acc[h][g], m);
            }
        }
    }
}

/* The cache goes by in blocks that stay near while all heads and channels of the unit use them. */
#define CONTEXT_ROWS 64

static void mla_context(float *ctx, size_t rank, const float *p, size_t pstride, size_t H,
                        const float *cache, size_t w, size_t n, size_t c0, size_t c1)
{
    for (size_t h = 0; h < H; h++) {
        memset(ctx + h * rank + c0, 0, (c1 - c0) * sizeof *ctx);
    }
    for (size_t i0 = 0; i0 < n; i0 += CONTEXT_ROWS) {
        size_t i1 = n - i0 < CONTEXT_ROWS ? n : i0 + CONTEXT_ROWS;
        size_t c = c0;
        for (; c + 32 <= c1; c += 32) {
            size_t h = 0;
            for (; h + 2 <= H; h += 2) {
                context_block(ctx + h * rank + c, rank, p + h * pstride, pstride, cache + c, w, i0,
                              i1, 2, 4, 8);
            }
            if (h < H) {
                context_block(ctx + h * rank + c, rank, p + h * pstride, pstride, cache + c, w, i0,
                              i1, 1, 4, 8);
            }
        }
        for (; c < c1; c += 8) {
            size_t m = c1 - c < 8 ? c1 - c : 8;
            for (size_t h = 0; h < H; h++) {
                context_block(ctx + h * rank + c, rank, p + h * pstride, pstride, cache + c, w, i0,
                              i1, 1, 1, m);
            }
        }
    }
    for (size_t h = 0; h < H; h++) {
        widen_t(ctx + h * rank + c0, ctx + h * rank + c0, KERN_F32, c1 - c0);
    }
}

INLINE void out_t(float *o, const struct kern_mla_mat *m, enum kern_type type, size_t size,
                  size_t row0, const float *ctx, size_t vdim)
{
    for (size_t j = 0; j < vdim; j++) {
        const char *row = (const char *)m->data + (row0 + j) * m->rank * size;
        float d = dot32_w(row, type, ctx, m->rank);
        o[j] = kern_z(type == KERN_I8 ? d * m->scale[row0 + j] : d);
    }
}

static void mla_out(float *o, const struct kern_mla_mat *m, size_t row0, const float *ctx,
                    size_t vdim)
{
    if (m->type == KERN_BF16) {
        out_t(o, m, KERN_BF16, 2, row0, ctx, vdim);
    } else if (m->type == KERN_I8) {
        out_t(o, m, KERN_I8, 1, row0, ctx, vdim);
    } else {
        out_t(o, m, KERN_F32, 4, row0, ctx, vdim);
    }
}

#define KERN_OPS_V8                                                                           \
    {                                                                                         \
        .name = KERN_SIMD, .widen = widen, .mulvec = mulvec, .add = add, .situ = situ,        \
        .gate = gate, .map = map, .dot32 = dot32, .rmsnorm = rmsnorm, .softmax = softmax,     \
        .finite = finite_all, .mix_score = mix_score, .mix_sum = mix_sum, .combine = combine, \
        .conv = conv, .kda = kda, .gated_norm = gated_norm, .mla_absorb = mla_absorb,         \
        .mla_scores = mla_scores, .mla_context = mla_context, .mla_out = mla_out,             \
    }

#endif
