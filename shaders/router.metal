// SPDX-License-Identifier: MIT
// router.metal: the k best of s + bias, a threadgroup a row.
//
// Instead of k searches in turn, every expert counts the experts that rank before it: a fixed
// number of steps without a barrier. The order is total (NaN after numbers, ties to the lower id),
// so exactly k experts count fewer than k.
#include "prelude.metal"

// Numbers as integers in the same order: both zeros alike, any NaN below all.
inline uint sh_key(float v)
{
    uint u = as_type<uint>(v == 0.0f ? 0.0f : v);
    return v != v ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
}

kernel void router(constant sh_router &a [[buffer(0)]], SH_POS,
                   device const float *logits [[buffer(1)]], device const float *bias [[buffer(2)]],
                   device uint *ids [[buffer(3)]], device float *w [[buffer(4)]])
{
    SH_SHARED(uint4, keys, SH_ROUTER_MAX_E / 4);
    SH_SHARED(float, chosen, SH_ROUTER_MAX_E);
    SH_SHARED(uint, taken, SH_ROUTER_MAX_E / 32);
    logits += (ulong)group.x * a.E;
    ids += (ulong)group.x * a.k;
    w += (ulong)group.x * a.k;
    uint quads = (a.E + 3) / 4;
    for (uint f = tid; f < quads; f += SH_ROUTER_THREADS) {
        uint4 k;
        k.x = sh_key(sh_sigmoid(logits[4 * f]) + bias[4 * f]);
        k.y = k.z = k.w = 0; // beyond the last: ranks before nobody
        if (4 * f + 1 < a.E) {
            k.y = sh_key(sh_sigmoid(logits[4 * f + 1]) + bias[4 * f + 1]);
        }
        if (4 * f + 2 < a.E) {
            k.z = sh_key(sh_sigmoid(logits[4 * f + 2]) + bias[4 * f + 2]);
        }
        if (4 * f + 3 < a.E) {
            k.w = sh_key(sh_sigmoid(logits[4 * f + 3]) + bias[4 * f + 3]);
        }
        keys[f] = k;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // e0 goes over whole SIMD groups, so that all lanes meet at the ballot.
    for (uint e0 = sg * 32; e0 < a.E; e0 += SH_ROUTER_THREADS) {
        uint e = e0 + lane, n = a.k;
        if (e < a.E) {
            uint4 own = keys[e / 4];
            uint k = e % 4 == 0 ? own.x : e % 4 == 1 ? own.y : e % 4 == 2 ? own.z : own.w;
            n = 0;
            for (uint f = 0; f < e / 4; f++) { // earlier ids win ties
                uint4 o = keys[f];
                n += (o.x >= k) + (o.y >= k) + (o.z >= k) + (o.w >= k);
            }
            n += (e % 4 > 0 && own.x >= k) + (e % 4 > 1 && own.y >= k) + (e % 4 > 2 && own.z >= k);
            n += (e % 4 < 1 && own.y > k) + (e % 4 < 2 && own.z > k) + (e % 4 < 3 && own.w > k);
            for (uint f = e / 4 + 1; f < quads; f++) {
                uint4 o = keys[f];
                n += (o.x > k) + (o.y > k) + (o.z > k) + (o.w > k);
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
