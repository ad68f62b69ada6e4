// SPDX-License-Identifier: MIT
// mix.metal: AttnRes: scores of the sources, then (after softmax) the weighted sum.
#include "prelude.metal"

// Threadgroup (source, row). The two chains, v*v and v*s, run in two SIMD groups.
kernel void mix_score(constant sh_mix &a [[buffer(0)]], SH_POS,
                      device const float *bank [[buffer(1)]], device const float *p [[buffer(2)]],
                      device const float *s [[buffer(3)]], device float *score [[buffer(4)]])
{
    SH_SHARED(float, stage, SH_MIX_STAGE);
    SH_SHARED(float, site, SH_MIX_STAGE);
    SH_SHARED(float, sums, 2);
    device const float *v = group.x < a.nb ? bank + group.x * a.bank_stride : p;
    v += (ulong)group.y * a.n;
    float acc = 0.0f;
    for (uint c0 = 0; c0 < a.n; c0 += SH_MIX_STAGE) {
        uint n = a.n - c0 < SH_MIX_STAGE ? a.n - c0 : SH_MIX_STAGE;
        for (uint i = tid; i < n; i += SH_MIX_THREADS) {
            stage[i] = v[c0 + i];
            site[i] = s[c0 + i];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (sg < 2) {
            acc = sg == 0 ? sh_chain(stage, stage, n, lane, acc)
                          : sh_chain(stage, site, n, lane, acc);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (sg < 2) {
        float d = sh_fold32(acc);
        if (lane == 0) {
            sums[sg] = d;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid == 0) {
        float r = sh_rsq(sums[0] / (float)a.n + a.eps);
        score[(ulong)group.y * (a.nb + 1) + group.x] = sums[1] * r;
    }
}

// Row group.y; weights [T][nb + 1]; the bank first.
kernel void mix_sum(constant sh_mix &a [[buffer(0)]], SH_POS,
                    device const float *bank [[buffer(1)]], device const float *p [[buffer(2)]],
                    device const float *weights [[buffer(3)]], device float *y [[buffer(4)]])
{
    uint d = group.x * SH_MIX_THREADS + tid;
    if (d >= a.n) {
        return;
    }
    ulong at = (ulong)group.y * a.n + d;
    weights += (ulong)group.y * (a.nb + 1);
    float acc = 0.0f;
    for (uint i = 0; i < a.nb; i++) {
        acc = sh_fma(weights[i], bank[i * a.bank_stride + at], acc);
    }
    y[at] = sh_z(sh_fma(weights[a.nb], p[at], acc));
}
