// SPDX-License-Identifier: MIT
// softmax.metal: two passes and one division per value, in place; a threadgroup a row.
#include "prelude.metal"

kernel void softmax(constant sh_softmax &a [[buffer(0)]], SH_POS, device float *x [[buffer(1)]])
{
    SH_SHARED(float, stage, SH_STAGE);
    SH_SHARED(float, part, SH_SOFTMAX_THREADS / 32);
    SH_SHARED(float, total, 1);
    uint n = a.n + group.x / a.per;
    x += (ulong)group.x * a.stride;
    // "The largest, compared with >, from the first": a NaN counts only when it is the first.
    float first = x[0];
    float m = -SH_INF;
    for (uint i = tid; i < n; i += SH_SOFTMAX_THREADS) {
        float v = x[i];
        m = v > m ? v : m;
    }
#pragma unroll
    for (ushort h = 16; h > 0; h /= 2) {
        float o = simd_shuffle_xor(m, h);
        m = o > m ? o : m;
    }
    if (lane == 0) {
        part[sg] = m;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < SH_SOFTMAX_THREADS / 32; i++) {
        m = part[i] > m ? part[i] : m;
    }
    m = first == first ? m : first;
    float acc = 0.0f;
    for (uint c0 = 0; c0 < n; c0 += SH_STAGE) {
        uint len = n - c0 < SH_STAGE ? n - c0 : SH_STAGE;
        for (uint i = tid; i < len; i += SH_SOFTMAX_THREADS) {
            float e = sh_exp(x[c0 + i] - m);
            x[c0 + i] = e;
            stage[i] = e;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (sg == 0) {
            uint i = lane;
            for (; i + 7 * 32 < len; i += 8 * 32) {
                float e[8];
#pragma unroll
                for (uint j = 0; j < 8; j++) {
                    e[j] = stage[i + j * 32];
                }
#pragma unroll
                for (uint j = 0; j < 8; j++) {
                    acc += e[j];
                }
            }
            for (; i < len; i += 32) {
                acc += stage[i];
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (sg == 0) {
        float d = sh_fold32(acc);
        if (lane == 0) {
            total[0] = d;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float d = total[0];
    // SH_STAGE is a multiple of the threads, so a thread meets its own values again.
    for (uint i = tid; i < n; i += SH_SOFTMAX_THREADS) {
        x[i] = sh_z(x[i] / d);
    }
}
