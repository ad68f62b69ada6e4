// SPDX-License-Identifier: MIT
// head.metal: the largest logit, compared with > from id 0, so ties go to the lower id and a NaN is
// taken only at id 0 (and then stays). The logits themselves are a product.
#include "prelude.metal"

// Threadgroup (chunk, row): the best of a chunk of x [T][n] into value and id [T][chunks]. Run
// again over these (with_ids, one chunk) it leaves one per row. Before the first comparison stands
// (-inf, no id): a chunk of NaN, or of NaN and -inf, yields its first -inf, or no id.
kernel void argmax(constant sh_argmax &a [[buffer(0)]], SH_POS,
                   device const float *x [[buffer(1)]], device const uint *xid [[buffer(2)]],
                   device float *value [[buffer(3)]], device uint *id [[buffer(4)]])
{
    SH_SHARED(float, values, SH_ARGMAX_THREADS / 32);
    SH_SHARED(uint, best, SH_ARGMAX_THREADS / 32);
    x += (ulong)group.y * a.n;
    xid += a.with_ids ? (ulong)group.y * a.n : 0;
    uint end = a.n - group.x * a.chunk < a.chunk ? a.n : (group.x + 1) * a.chunk;
    float m = -SH_INF;
    uint at = 0xffffffffu;
    for (uint i = group.x * a.chunk + tid; i < end; i += SH_ARGMAX_THREADS) {
        float v = x[i];
        uint e = a.with_ids ? xid[i] : i;
        if (v > m || (v == m && e < at)) {
            m = v;
            at = e;
        }
    }
#pragma unroll
    for (ushort h = 16; h > 0; h /= 2) {
        float v = simd_shuffle_xor(m, h);
        uint e = simd_shuffle_xor(at, h);
        if (v > m || (v == m && e < at)) {
            m = v;
            at = e;
        }
    }
    if (lane == 0) {
        values[sg] = m;
        best[sg] = at;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid == 0) {
        for (uint i = 1; i < SH_ARGMAX_THREADS / 32; i++) {
            if (values[i] > m || (values[i] == m && best[i] < at)) {
                m = values[i];
                at = best[i];
            }
        }
        float first = x[0];
        if (a.with_ids == 0 && group.x == 0 && first != first) {
            m = first;
            at = 0;
        }
        if (a.with_ids != 0 && (first != first || at == 0xffffffffu)) {
            at = 0;
        }
        ulong slot = (ulong)group.y * ((a.n - 1) / a.chunk + 1) + group.x;
        value[slot] = m;
        id[slot] = at;
    }
}
