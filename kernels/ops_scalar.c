/* SPDX-License-Identifier: MIT
 * ops_scalar.c: the reference: NUMERICS.md as plain C, to be read beside it. Nothing is arranged
 * for speed; the SIMD files are tested bit for bit against this one. */
#include "kernels/math.h"
#include "kernels/ops.h"

/* The value of weight i of a row, widened exactly. */
static float weight(const void *w, enum kern_type type, size_t i)
{
    switch (type) {
    case KERN_BF16:
        return kern_from_bits((uint32_t)((const uint16_t *)w)[i] << 16);
    case KERN_I8:
        return (float)((const int8_t *)w)[i];
    default:
        return ((const float *)w)[i];
    }
}

static float fold32(float acc[32])
{
    for (size_t h = 16; h > 0; h /= 2) {
        for (size_t j = 0; j < h; j++) {
            acc[j] += acc[j + h];
        }
    }
    return acc[0];
}

static float dot32_weights(const void *w, enum kern_type type, const float *x, size_t n)
{
    float acc[32] = {0};
    for (size_t i = 0; i < n; i++) {
        acc[i % 32] = fmaf(weight(w, type, i), x[i], acc[i % 32]);
    }
    return fold32(acc);
}

static float dot32(const float *a, const float *b, size_t n)
{
    return dot32_weights(a, KERN_F32, b, n);
}

static float sum32(const float *a, size_t n)
{
    float acc[32] = {0};
    for (size_t i = 0; i < n; i++) {
        acc[i % 32] += a[i];
    }
    return fold32(acc);
}

static float rsq(float m)
{
    return 1.0f / sqrtf(m);
}

static void widen(float *y, const void *src, enum kern_type type, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = kern_z(weight(src, type, i));
    }
}

static void mulvec(float *y, const void *a, enum kern_type ta, const void *b, enum kern_type tb,
                   size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = kern_z(weight(a, ta, i) * weight(b, tb, i));
    }
}

static void add(float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = kern_z(a[i] + b[i]);
    }
}

static void situ(float *y, const float *g, const float *u, size_t n, float beta, float lbeta)
{
    for (size_t i = 0; i < n; i++) {
        float a = (beta * kern_m_tanh(g[i] / beta)) * kern_m_sigmoid(g[i]);
        float c = lbeta * kern_m_tanh(u[i] / lbeta);
        y[i] = kern_z(a * c);
    }
}

static void gate(float *y, const float *x, const float *g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = kern_z(x[i] * kern_m_sigmoid(g[i]));
    }
}

static void map(enum kern_fn fn, float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = fn == KERN_FN_EXP       ? kern_m_exp(x[i])
               : fn == KERN_FN_SIGMOID ? kern_m_sigmoid(x[i])
               : fn == KERN_FN_TANH    ? kern_m_tanh(x[i])
                                       : kern_m_silu(x[i]);
    }
}

static void rmsnorm(float *y, const float *x, const void *w, enum kern_type wt, size_t n, float eps)
{
    float r = rsq(dot32(x, x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++) {
        y[i] = kern_z(weight(w, wt, i) * (x[i] * r));
    }
}

static void softmax(float *p, const float *x, size_t n)
{
    float m = x[0];
    for (size_t i = 1; i < n; i++) {
        if (x[i] > m) {
            m = x[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        p[i] = kern_m_exp(x[i] - m);
    }
    float d = sum32(p, n);
    for (size_t i = 0; i < n; i++) {
        p[i] = kern_z(p[i] / d);
    }
}

static bool finite_all(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((kern_bits(x[i]) & 0x7f800000u) == 0x7f800000u) {
            return false;
        }
    }
    return true;
}

static float mix_score(const float *v, const float *s, size_t n, float eps)
{
    float r = rsq(dot32(v, v, n) / (float)n + eps);
    return dot32(v, s, n) * r;
}

static void mix_sum(float *y, const float *bank, size_t stride, size_t nb, const float *last,
                    const float *p, size_t n)
{
    for (size_t d = 0; d < n; d++) {
        float acc = 0.0f;
        for (size_t i = 0; i < nb; i++) {
            acc = fmaf(p[i], bank[i * stride + d], acc);
        }
        y[d] = kern_z(fmaf(p[nb], last[d], acc));
    }
}

static void combine(float *u, const float *y, const float *w, size_t n, size_t k, size_t i0,
                    size_t i1)
{
    for (size_t i = i0; i < i1; i++) {
        float acc = 0.0f;
        for (size_t j = 0; j < k; j++) {
            acc = fmaf(w[j], y[j * n + i], acc);
        }
        u[i] = kern_z(acc);
    }
}

/* The raw input of channel c at row t; rows before the first come from the history. */
static float conv_input(const struct kern_conv_args *a, size_t c, size_t t_plus_past)
{
    size_t past = a->K - 1;
    return t_plus_past < past ? a->hist[t_plus_past * a->C + c]
                              : a->x[(t_plus_past - past) * a->xstride + c];
}

static void conv(const struct kern_conv_args *a, size_t c0, size_t c1)
{
    for (size_t c = c0; c < c1; c++) {
        for (size_t t = 0; t < a->T; t++) {
            float acc = 0.0f;
            for (size_t j = 0; j < a->K; j++) {
                acc = fmaf(a->w[c * a->K + j], conv_input(a, c, t + j), acc);
            }
            a->y[t * a->ystride + c] = kern_z(kern_m_silu(acc));
        }
        for (size_t j = 0; j + 1 < a->K; j++) { /* ascending: reads are never behind writes */
            a->hist[j * a->C + c] = conv_input(a, c, a->T + j);
        }
    }
}

static void kda(const struct kern_kda_args *a, size_t h, float *tmp)
{
    size_t D = a->D;
    float *q = tmp, *k = tmp + D, *alpha = tmp + 2 * D;
    float *S = a->S + h * D * D;
    float c = 1.0f / sqrtf((float)D);
    float A = kern_m_exp(a->a_log[h]);
    for (size_t t = 0; t < a->T; t++) {
        size_t at = (t * a->H + h) * D;
        float rq = rsq(dot32(a->q + at, a->q + at, D) + a->eps);
        float rk = rsq(dot32(a->k + at, a->k + at, D) + a->eps);
        for (size_t d = 0; d < D; d++) {
            q[d] = (a->q[at + d] * rq) * c;
            k[d] = a->k[at + d] * rk;
            float g = a->lower * kern_m_sigmoid(A * (a->f[at + d] + a->dt_bias[h * D + d]));
            alpha[d] = kern_m_exp(g);
        }
        float beta = kern_m_sigmoid(a->b[t * a->H + h]);
        for (size_t v = 0; v < D; v++) {
            float r = 0.0f;
            for (size_t d = 0; d < D; d++) {
                r = fmaf(k[d], S[d * D + v] * alpha[d], r);
            }
            float u = kern_z(beta * (a->v[at + v] - r));
            float o = 0.0f;
            for (size_t d = 0; d < D; d++) {
                float P = S[d * D + v] * alpha[d];
                S[d * D + v] = kern_z(fmaf(k[d], u, P));
                o = fmaf(q[d], S[d * D + v], o);
            }
            a->o[at + v] = kern_z(o);
        }
    }
}

static void gated_norm(float *y, const float *o, const float *w, const float *z, size_t D,
                       float eps)
{
    float r = rsq(dot32(o, o, D) / (float)D + eps);
    for (size_t i = 0; i < D; i++) {
        y[i] = kern_z((w[i] * (o[i] * r)) * kern_m_sigmoid(z[i]));
    }
}

static const void *mla_row(const struct kern_mla_mat *m, size_t row)
{
    size_t size = m->type == KERN_F32 ? 4 : m->type == KERN_BF16 ? 2 : 1;
    return (const char *)m->data + row * m->rank * size;
}

static void mla_absorb(float *qt, const struct kern_mla_mat *m, size_t row0, const float *q,
                       size_t nope)
{
    for (size_t c = 0; c < m->rank; c++) {
        float acc = 0.0f;
        for (size_t j = 0; j < nope; j++) {
            float b = m->type == KERN_I8 ? m->scale[row0 + j] * q[j] : q[j];
            acc = fmaf(weight(mla_row(m, row0 + j), m->type, c), b, acc);
        }
        qt[c] = kern_z(acc);
    }
}

static void mla_scores(float *s, size_t sstride, const float *a, size_t H, const float *cache,
                       size_t w, size_t i0, size_t i1, float scale)
{
    for (size_t h = 0; h < H; h++) {
        for (size_t i = i0; i < i1; i++) {
            s[h * sstride + i] = kern_z(dot32(a + h * w, cache + i * w, w) * scale);
        }
    }
}

static void mla_context(float *ctx, size_t rank, const float *p, size_t pstride, size_t H,
                        const float *cache, size_t w, size_t n, size_t c0, size_t c1)
{
    for (size_t h = 0; h < H; h++) {
        for (size_t c = c0; c < c1; c++) {
            float acc = 0.0f;
            for (size_t i = 0; i < n; i++) {
                acc = fmaf(p[h * pstride + i], cache[i * w + c], acc);
            }
            ctx[h * rank + c] = kern_z(acc);
        }
    }
}

static void mla_out(float *o, const struct kern_mla_mat *m, size_t row0, const float *ctx,
                    size_t vdim)
{
    for (size_t j = 0; j < vdim; j++) {
        float d = dot32_weights(mla_row(m, row0 + j), m->type, ctx, m->rank);
        o[j] = kern_z(m->type == KERN_I8 ? d * m->scale[row0 + j] : d);
    }
}

const struct kern_ops kern_ops_scalar = {
    .name = "scalar",
    .widen = widen,
    .mulvec = mulvec,
    .add = add,
    .situ = situ,
    .gate = gate,
    .map = map,
    .dot32 = dot32,
    .rmsnorm = rmsnorm,
    .softmax = softmax,
    .finite = finite_all,
    .mix_score = mix_score,
    .mix_sum = mix_sum,
    .combine = combine,
    .conv = conv,
    .kda = kda,
    .gated_norm = gated_norm,
    .mla_absorb = mla_absorb,
    .mla_scores = mla_scores,
    .mla_context = mla_context,
    .mla_out = mla_out,
};
