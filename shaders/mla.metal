// SPDX-License-Identifier: MIT
// mla.metal: absorbed latent attention in steps: absorb, scores, (softmax), context, out. Scratch:
// a [T][nh][rank + rope], scores [T][nh][L], ctx [T][nh][rank].
#include "prelude.metal"
#include "product.metal"

// Row `row` of kvb, value c.
template <int TYPE>
inline float sh_kvb(constant sh_mla &m, device const uchar *w, uint row, uint c)
{
    ulong i = (ulong)row * m.rank + c;
    if (TYPE == SH_I8) {
        return (float)((device const int8_t *)w)[i];
    }
    return sh_vec(w, TYPE, i);
}

// qt[c]: sixteen weights are fetched before the first is used; the type is fixed outside the loop.
template <int TYPE>
inline float sh_absorb(constant sh_mla &m, device const float *q, device const uchar *w,
                       device const float *scale, uint row0, uint c)
{
    float acc = 0.0f;
    uint j = 0;
    for (; j + 16 <= m.nope; j += 16) {
        float v[16];
#pragma unroll
        for (uint i = 0; i < 16; i++) {
            v[i] = sh_kvb<TYPE>(m, w, row0 + j + i, c);
        }
#pragma unroll
        for (uint i = 0; i < 16; i++) {
            float b = TYPE == SH_I8 ? scale[row0 + j + i] * q[j + i] : q[j + i];
            acc = sh_fma(v[i], b, acc);
        }
    }
    for (; j < m.nope; j++) {
        float b = TYPE == SH_I8 ? scale[row0 + j] * q[j] : q[j];
        acc = sh_fma(sh_kvb<TYPE>(m, w, row0 + j, c), b, acc);
    }
    return sh_z(acc);
}

// Threadgroup (channels, head, row), a thread a channel: a = [qt | q_pe].
kernel void mla_absorb(constant sh_mla &m [[buffer(0)]], SH_POS,
                       device const float *q [[buffer(1)]], device const uchar *w [[buffer(2)]],
                       device const float *scale [[buffer(3)]], device float *a [[buffer(4)]])
{
    uint c = group.x * SH_MLA_THREADS + tid, h = m.h0 + group.y;
    if (c >= m.rank + m.rope) {
        return;
    }
    q += ((ulong)group.z * m.H + h) * (m.nope + m.rope);
    a += ((ulong)group.z * m.nh + group.y) * (m.rank + m.rope);
    uint row0 = h * (m.nope + m.vdim);
    if (c >= m.rank) {
        a[c] = q[m.nope + (c - m.rank)];
    } else if (m.type == SH_BF16) {
        a[c] = sh_absorb<SH_BF16>(m, q, w, scale, row0, c);
    } else if (m.type == SH_I8) {
        a[c] = sh_absorb<SH_I8>(m, q, w, scale, row0, c);
    } else {
        a[c] = sh_absorb<SH_F32>(m, q, w, scale, row0, c);
    }
}

// A SIMD group takes eight heads at eight positions, a lane an accumulator of all 64 dot products:
// sixteen loads serve 64 fma. SIMD groups of a threadgroup share the positions.
kernel void mla_scores(constant sh_mla &m [[buffer(0)]], SH_POS,
                       device const float *a [[buffer(1)]], device const float *cache [[buffer(2)]],
                       device float *s [[buffer(3)]])
{
    uint h0 = (group.y * SH_SCORE_GROUPS + sg) * SH_SCORE_HEADS, i0 = group.x * SH_SCORE_ROWS;
    uint n = m.seen + group.z, w = m.rank + m.rope;
    if (h0 >= m.nh || i0 >= n) {
        return;
    }
    a += (ulong)group.z * m.nh * w;
    s += (ulong)group.z * m.nh * m.L;
    float acc[SH_SCORE_HEADS * SH_SCORE_ROWS];
#pragma unroll
    for (uint i = 0; i < SH_SCORE_HEADS * SH_SCORE_ROWS; i++) {
        acc[i] = 0.0f;
    }
    uint ao[SH_SCORE_HEADS];
    ulong co[SH_SCORE_ROWS];
#pragma unroll
    for (uint i = 0; i < SH_SCORE_HEADS; i++) {
        ao[i] = (h0 + i < m.nh ? h0 + i : m.nh - 1) * w;
    }
#pragma unroll
    for (uint i = 0; i < SH_SCORE_ROWS; i++) {
        co[i] = (ulong)(i0 + i < n ? i0 + i : n - 1) * w;
    }
    float nextv[SH_SCORE_ROWS];
#pragma unroll
    for (uint i = 0; i < SH_SCORE_ROWS; i++) {
        nextv[i] = lane < w ? cache[co[i] + lane] : 0.0f;
    }
    for (uint c = lane; c < w; c += 32) {
        float u[SH_SCORE_HEADS], v[SH_SCORE_ROWS];
#pragma unroll
        for (uint i = 0; i < SH_SCORE_HEADS; i++) {
            u[i] = a[ao[i] + c];
        }
#pragma unroll
        for (uint i = 0; i < SH_SCORE_ROWS; i++) {
            v[i] = nextv[i];
            nextv[i] = c + 32 < w ? cache[co[i] + c + 32] : 0.0f;
        }
#pragma unroll
        for (uint i = 0; i < SH_SCORE_HEADS; i++) {
#pragma unroll
            for (uint j = 0; j < SH_SCORE_ROWS; j++) {
                acc[i * SH_SCORE_ROWS + j] = sh_fma(u[i], v[j], acc[i * SH_SCORE_ROWS + j]);
            }
        }
    }
#pragma unroll
    for (uint half_ = 0; half_ < 2; half_++) {
        float d = sh_fold32x32(acc + 32 * half_, lane);
        uint h = h0 + 4 * half_ + lane / 8, i = i0 + lane % 8;
        if (h < m.nh && i < n) {
            s[(ulong)h * m.L + i] = sh_z(d * m.scale);
        }
    }
}

// Threadgroup (32 channels, 16 heads, row); a SIMD group takes eight of the heads, a thread a
// channel of these. The sum over positions is sequential: a long context cannot be divided, only
// heads and channels can, so what counts is that no step waits. 32 positions at a time: their
// weights lie in threadgroup memory, their values in registers, and the next 32 are on their way
// meanwhile.
kernel void mla_context(constant sh_mla &m [[buffer(0)]], SH_POS,
                        device const float *p [[buffer(1)]],
                        device const float *cache [[buffer(2)]], device float *ctx [[buffer(3)]])
{
    // [side][head][quarter of the positions]
    SH_SHARED(float4, weights, 2 * 2 * SH_CTX_HEADS * SH_CTX_ROWS / 4);
    uint n = m.seen + group.z, w = m.rank + m.rope, c = group.x * 32 + lane;
    uint h0 = group.y * 2 * SH_CTX_HEADS, at = c < m.rank ? c : m.rank - 1;
    p += (ulong)group.z * m.nh * m.L;
    // Thread tid brings eight weights of head tid / 4. Rows of scores are readable up to L, a
    // multiple of 32.
    uint mine = h0 + tid / 4 < m.nh ? h0 + tid / 4 : m.nh - 1;
    device const float4 *from = (device const float4 *)(p + (ulong)mine * m.L) + tid % 4 * 2;
    float acc[SH_CTX_HEADS], v[SH_CTX_ROWS], next[SH_CTX_ROWS];
#pragma unroll
    for (uint h = 0; h < SH_CTX_HEADS; h++) {
        acc[h] = 0.0f;
    }
    float4 load0 = from[0], load1 = from[1];
#pragma unroll
    for (uint j = 0; j < SH_CTX_ROWS; j++) {
        next[j] = cache[(ulong)(j < n ? j : n - 1) * w + at];
    }
    uint side = 0;
    for (uint i = 0; i < n; i += SH_CTX_ROWS) {
        SH_SHARED_PTR(float4) put = weights + side * 2 * SH_CTX_HEADS * SH_CTX_ROWS / 4;
        put[tid * 2] = load0;
        put[tid * 2 + 1] = load1;
#pragma unroll
        for (uint j = 0; j < SH_CTX_ROWS; j++) {
            v[j] = next[j];
        }
        if (i + SH_CTX_ROWS < n) {
            load0 = from[(i + SH_CTX_ROWS) / 4];
            load1 = from[(i + SH_CTX_ROWS) / 4 + 1];
#pragma unroll
            for (uint j = 0; j < SH_CTX_ROWS; j++) {
                uint k = i + SH_CTX_ROWS + j;
                next[j] = cache[(ulong)(k < n ? k : n - 1) * w + at];
            }
        }
        // One barrier is enough for two sides: who writes a side again has passed the barrier
        // that came after its last reading.
        threadgroup_barrier(mem_flags::mem_threadgroup);
        SH_SHARED_PTR(float4) q = put + sg * SH_CTX_HEADS * SH_CTX_ROWS / 4;
        if (i + SH_CTX_ROWS <= n) {
#pragma unroll
            for (uint j = 0; j < SH_CTX_ROWS; j += 4) {
#pragma unroll
                for (uint h = 0; h < SH_CTX_HEADS; h++) {
                    float4 f = q[(h * SH_CTX_ROWS + j) / 4];
                    acc[h] = sh_fma(f.x, v[j], acc[h]);
                    acc[h] = sh_fma(f.y, v[j + 1], acc[h]);
                    acc[h] = sh_fma(f.z, v[j + 2], acc[h]);
                    acc[h] = sh_fma(f.w, v[j + 3], acc[h]);
                }
            }
        } else { // the last step of most lengths
            uint left = n - i;
#pragma unroll
            for (uint j = 0; j < SH_CTX_ROWS; j += 4) {
#pragma unroll
                for (uint h = 0; h < SH_CTX_HEADS; h++) {
                    float4 f = q[(h * SH_CTX_ROWS + j) / 4];
                    float s = acc[h];
                    s = j < left ? sh_fma(f.x, v[j], s) : s;
                    s = j + 1 < left ? sh_fma(f.y, v[j + 1], s) : s;
                    s = j + 2 < left ? sh_fma(f.z, v[j + 2], s) : s;
                    acc[h] = j + 3 < left ? sh_fma(f.w, v[j + 3], s) : s;
                }
            }
        }
        side ^= 1;
    }
#pragma unroll
    for (uint h = 0; h < SH_CTX_HEADS; h++) {
        uint head = h0 + sg * SH_CTX_HEADS + h;
        if (head < m.nh && c < m.rank) {
            ctx[((ulong)group.z * m.nh + head) * m.rank + c] = sh_z(acc[h]);
        }
    }
}

// Threadgroup (value rows, head, row): the layout of product.metal with one row a thread.
template <int TYPE>
inline void sh_mla_out(constant sh_mla &m, uint3 group, uint lane, uint sg, device const uchar *w,
                       device const float *scale, device const float *ctx, device float *o,
                       SH_SHARED_PTR(float) lut)
{
    uint j = (group.x * SH_PRODUCT_GROUPS + sg) * 8 + (lane >> 2), h = m.h0 + group.y;
    uint row[1];
    ulong xo[1];
    float d[1];
    row[0] = h * (m.nope + m.vdim) + m.nope + (j < m.vdim ? j : m.vdim - 1);
    xo[0] = ((ulong)group.z * m.nh + group.y) * m.rank;
    sh_dots<TYPE, 1, 1, TYPE == SH_F32 ? 2 : 4>(d, w, w, row, m.rank, ctx, xo, lane, lut);
    if ((lane & 3u) == 0 && j < m.vdim) {
        float v = TYPE == SH_I8 ? d[0] * scale[row[0]] : d[0];
        o[((ulong)group.z * m.H + h) * m.vdim + j] = sh_z(v);
    }
}

#define SH_MLA_OUT(NAME, TYPE)                                                                     \
    kernel void NAME(constant sh_mla &m [[buffer(0)]], SH_POS,                                     \
                     device const uchar *w [[buffer(1)]], device const float *scale [[buffer(2)]], \
                     device const float *ctx [[buffer(3)]], device float *o [[buffer(4)]])         \
    {                                                                                              \
        SH_SHARED(float, lut, 1);                                                                  \
        sh_mla_out<TYPE>(m, group, lane, sg, w, scale, ctx, o, lut);                               \
    }

SH_MLA_OUT(mla_out_f32, SH_F32)
SH_MLA_OUT(mla_out_bf16, SH_BF16)
SH_MLA_OUT(mla_out_i8, SH_I8)

// Any shape: threadgroup (value rows, head, row), a SIMD group a value row.
kernel void mla_out_any(constant sh_mla &m [[buffer(0)]], SH_POS,
                        device const uchar *w [[buffer(1)]],
                        device const float *scale [[buffer(2)]],
                        device const float *ctx [[buffer(3)]], device float *o [[buffer(4)]])
{
    uint j = group.x * SH_PRODUCT_GROUPS + sg, h = m.h0 + group.y;
    if (j >= m.vdim) {
        return;
    }
    uint row = h * (m.nope + m.vdim) + m.nope + j;
    ctx += ((ulong)group.z * m.nh + group.y) * m.rank;
    float acc = 0.0f;
    for (uint c = lane; c < m.rank; c += 32) {
        float v = m.type == SH_I8     ? sh_kvb<SH_I8>(m, w, row, c)
                  : m.type == SH_BF16 ? sh_kvb<SH_BF16>(m, w, row, c)
                                      : sh_kvb<SH_F32>(m, w, row, c);
        acc = sh_fma(v, ctx[c], acc);
    }
    float d = sh_fold32(acc);
    if (lane == 0) {
        o[((ulong)group.z * m.H + h) * m.vdim + j] = sh_z(m.type == SH_I8 ? d * scale[row] : d);
    }
}
