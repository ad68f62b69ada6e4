// SPDX-License-Identifier: MIT
// norms.metal: RMSNorm (also of the latent cache) and the gated norm of KDA heads.
//
// dot32's chain of fma is sequential, so one SIMD group walks it, a lane an accumulator. For a long
// row it would wait for memory at every step: all threads bring the row into threadgroup memory.
#include "prelude.metal"

// Row group.x: y_i = z(w_i * (x_i * r)), then a.copied values behind it by z(). In place.
kernel void rmsnorm(constant sh_norm &a [[buffer(0)]], SH_POS, device const float *x [[buffer(1)]],
                    device const uchar *w [[buffer(2)]], device float *y [[buffer(3)]])
{
    SH_SHARED(float, stage, SH_NORM_STAGE);
    SH_SHARED(float, root, 1);
    x += (ulong)group.x * a.xstride;
    y += (ulong)group.x * a.ystride;
    float acc = 0.0f;
    for (uint c0 = 0; c0 < a.n; c0 += SH_NORM_STAGE) {
        uint n = a.n - c0 < SH_NORM_STAGE ? a.n - c0 : SH_NORM_STAGE;
        for (uint i = tid; i < n; i += SH_NORM_THREADS) {
            stage[i] = x[c0 + i];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (sg == 0) {
            acc = sh_chain(stage, stage, n, lane, acc);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (sg == 0) {
        float d = sh_fold32(acc);
        if (lane == 0) {
            root[0] = sh_rsq(d / (float)a.n + a.eps);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float r = root[0];
    for (uint i = tid; i < a.n; i += SH_NORM_THREADS) {
        y[i] = sh_z(sh_vec(w, a.wtype, i) * (x[i] * r));
    }
    for (uint i = tid; i < a.copied; i += SH_NORM_THREADS) {
        y[a.n + i] = sh_z(x[a.n + i]);
    }
}

// One SIMD group a head of a row. In place.
kernel void gated_norm(constant sh_gated_norm &a [[buffer(0)]], SH_POS,
                       device const float *o [[buffer(1)]], device const float *w [[buffer(2)]],
                       device const float *z [[buffer(3)]], device float *y [[buffer(4)]])
{
    uint head = group.x * SH_HEADS_GROUPS + sg;
    if (head >= a.heads) {
        return;
    }
    ulong at = (ulong)head * a.D;
    float acc = 0.0f;
    for (uint i = lane; i < a.D; i += 32) {
        acc = sh_fma(o[at + i], o[at + i], acc);
    }
    float r = sh_rsq(sh_fold32(acc) / (float)a.D + a.eps);
    for (uint i = lane; i < a.D; i += 32) {
        y[at + i] = sh_z((w[i] * (o[at + i] * r)) * sh_sigmoid(z[at + i]));
    }
}
