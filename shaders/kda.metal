// SPDX-License-Identifier: MIT
// kda.metal: the short convolution and the recurrence of KDA.
#include "prelude.metal"

inline float sh_conv_input(constant sh_conv &a, device const float *x, device const float *hist,
                           uint c, uint t_plus_past)
{
    uint past = a.K - 1;
    return t_plus_past < past ? hist[(ulong)t_plus_past * a.C + c]
                              : x[(ulong)(t_plus_past - past) * a.xstride + c];
}

// A thread a channel, all rows; moves the channel's history on.
kernel void conv(constant sh_conv &a [[buffer(0)]], SH_POS, device const float *x [[buffer(1)]],
                 device const float *w [[buffer(2)]], device float *hist [[buffer(3)]],
                 device float *y [[buffer(4)]])
{
    uint c = group.x * SH_MAP_THREADS + tid;
    if (c >= a.C) {
        return;
    }
    for (uint t = 0; t < a.T; t++) {
        float acc = 0.0f;
        for (uint j = 0; j < a.K; j++) {
            acc = sh_fma(w[(ulong)c * a.K + j], sh_conv_input(a, x, hist, c, t + j), acc);
        }
        y[(ulong)t * a.ystride + c] = sh_z(acc * sh_sigmoid(acc));
    }
    for (uint j = 0; j + 1 < a.K; j++) {
        hist[(ulong)j * a.C + c] = sh_conv_input(a, x, hist, c, a.T + j);
    }
}

// Threadgroup (block of value columns, head), a thread a column, all rows in order. Sums over the
// key index are sequential, so a column cannot be divided; q, k and alpha are computed by every
// block anew, which is cheaper than another kernel. S is read twice and written once: the second
// reading finds it in the cache. Sixteen values are fetched before any is stored.
kernel void kda(constant sh_kda &a [[buffer(0)]], SH_POS, device const float *q [[buffer(1)]],
                device const float *k [[buffer(2)]], device const float *v [[buffer(3)]],
                device const float *f [[buffer(4)]], device const float *b [[buffer(5)]],
                device const float *a_log [[buffer(6)]], device const float *dt_bias [[buffer(7)]],
                device float *S [[buffer(8)]], device float *o [[buffer(9)]])
{
    SH_SHARED(float, sq, SH_KDA_MAX_D);
    SH_SHARED(float, sk, SH_KDA_MAX_D);
    SH_SHARED(float, alpha, SH_KDA_MAX_D);
    SH_SHARED(float, root, 2);
    uint h = group.y, D = a.D, col = group.x * SH_KDA_THREADS + tid;
    S += (ulong)h * D * D;
    float A = sh_exp(a_log[h]);
    for (uint t = 0; t < a.T; t++) {
        ulong at = ((ulong)t * a.H + h) * D;
        {
            device const float *p = sg == 0 ? q + at : k + at;
            float acc = 0.0f;
            for (uint i = lane; i < D; i += 32) {
                acc = sh_fma(p[i], p[i], acc);
            }
            float r = sh_rsq(sh_fold32(acc) + a.eps);
            if (lane == 0) {
                root[sg] = r;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint d = tid; d < D; d += SH_KDA_THREADS) {
            sq[d] = (q[at + d] * root[0]) * a.c;
            sk[d] = k[at + d] * root[1];
            float g = a.lower * sh_sigmoid(A * (f[at + d] + dt_bias[(ulong)h * D + d]));
            alpha[d] = sh_exp(g);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (col < D) {
            float beta = sh_sigmoid(b[(ulong)t * a.H + h]);
            float r = 0.0f, out = 0.0f;
            device float *s = S + col;
            uint d = 0;
            for (; d + 16 <= D; d += 16) {
                float c[16];
#pragma unroll
                for (uint i = 0; i < 16; i++) {
                    c[i] = s[(ulong)(d + i) * D];
                }
#pragma unroll
                for (uint i = 0; i < 16; i++) {
                    r = sh_fma(sk[d + i], c[i] * alpha[d + i], r);
                }
            }
            for (; d < D; d++) {
                r = sh_fma(sk[d], s[(ulong)d * D] * alpha[d], r);
            }
            float u = sh_z(beta * (v[at + col] - r));
            for (d = 0; d + 16 <= D; d += 16) {
                float c[16];
#pragma unroll
                for (uint i = 0; i < 16; i++) {
                    c[i] = s[(ulong)(d + i) * D];
                }
#pragma unroll
                for (uint i = 0; i < 16; i++) {
                    c[i] = sh_z(sh_fma(sk[d + i], u, c[i] * alpha[d + i]));
                    s[(ulong)(d + i) * D] = c[i];
                    out = sh_fma(sq[d + i], c[i], out);
                }
            }
            for (; d < D; d++) {
                float c = sh_z(sh_fma(sk[d], u, s[(ulong)d * D] * alpha[d]));
                s[(ulong)d * D] = c;
                out = sh_fma(sq[d], c, out);
            }
            o[at + col] = sh_z(out);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}
