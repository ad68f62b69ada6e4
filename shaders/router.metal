// SPDX-License-Identifier: MIT
// router.metal: the k best of s + bias, a threadgroup a row.
//
// Instead of k searches in turn, every expert counts the experts that rank before it: a fixed
// number of steps without a barrier. The order is total (NaN after numbers, ties to the lower id),
// so exactly k experts count fewer than k.
#include "prelude.metal"

inline bool sh_before(float a, float b)
{
    return a > b || (a == a && b != b);
}

kernel void router(constant sh_router &a [[buffer(0)]], SH_POS,
                   device const float *logits [[buffer(1)]], device const float *bias [[buffer(2)]],
                   device uint *ids [[buffer(3)]], device float *w [[buffer(4)]])
{
    SH_SHARED(float, rank, SH_ROUTER_MAX_E);
    SH_SHARED(float, chosen, SH_ROUTER_MAX_E);
    SH_SHARED(uint, taken, SH_ROUTER_MAX_E / 32);
    logits += (ulong)group.x * a.E;
    ids += (ulong)group.x * a.k;
    w += (ulong)group.x * a.k;
    for (uint e = tid; e < a.E; e += SH_ROUTER_THREADS) {
        rank[e] = sh_sigmoid(logits[e]) + bias[e];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // e0 goes over whole SIMD groups, so that all lanes meet at the ballot.
    for (uint e0 = sg * 32; e0 < a.E; e0 += SH_ROUTER_THREADS) {
        uint e = e0 + lane, n = a.k;
        if (e < a.E) {
            float v = rank[e];
            n = 0;
            for (uint f = 0; f < e; f++) {
                n += sh_before(v, rank[f]) ? 0 : 1;
            }
            for (uint f = e + 1; f < a.E; f++) {
                n += sh_before(rank[f], v) ? 1 : 0;
            }
        }
        uint bit = n < a.k ? 1u << lane : 0u;
#pragma unroll
        for (ushort h = 16; h > 0; h /= 2) {
            bit |= simd_shuffle_xor(bit, h);
        }
        if (lane == 0) {
            taken[e0 / 32] = bit;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint e = tid; e < a.E; e += SH_ROUTER_THREADS) {
        uint word = taken[e / 32];
        if (word >> (e % 32) & 1u) {
            uint at = popcount(word & ((1u << (e % 32)) - 1u));
            for (uint i = 0; i < e / 32; i++) {
                at += popcount(taken[i]);
            }
            ids[at] = e;
            chosen[at] = sh_sigmoid(logits[e]);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float d = 0.0f;
    for (uint i = 0; i < a.k; i++) {
        d += chosen[i];
    }
    for (uint i = tid; i < a.k; i += SH_ROUTER_THREADS) {
        float s = chosen[i];
        w[i] = sh_z(a.renorm ? (s / (d + SH_BITS(0x1e3ce508u))) * a.scale : s * a.scale);
    }
}
