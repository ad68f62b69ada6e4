// SPDX-License-Identifier: MIT
// mla.metal: absorbed latent attention in steps: absorb, scores, (softmax), context, out. Scratch:
// a [T][nh][rank + rope], scores [T][nh][L], ctx [T][nh][rank].
#include "prelude.metal"
#include "product.metal"

// Row `row` of kvb, value c.
inline float sh_kvb(constant sh_mla &m, device const uchar *w, uint row, uint c)
{
    ulong i = (ulong)row * m.rank + c;
    if (m.type == SH_I8) {
        return (float)((device const int8_t *)w)[i];
    }
    return sh_vec(w, m.type, i);
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
    if (c >= m.rank) {
        a[c] = q[m.nope + (c - m.rank)];
        return;
    }
    uint row0 = h * (m.nope + m.vdim);
    float acc = 0.0f;
#pragma unroll 8
    for (uint j = 0; j < m.nope; j++) {
        float b = m.type == SH_I8 ? scale[row0 + j] * q[j] : q[j];
        acc = sh_fma(sh_kvb(m, w, row0 + j, c), b, acc);
    }
    a[c] = sh_z(acc);
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
    for (uint c = lane; c < w; c += 32) {
        float u[SH_SCORE_HEADS], v[SH_SCORE_ROWS];
#pragma unroll
        for (uint i = 0; i < SH_SCORE_HEADS; i++) {
            u[i] = a[ao[i] + c];
        }
#pragma unroll
        for (uint i = 0; i < SH_SCORE_ROWS; i++) {
            v[i] = cache[co[i] + c];
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

// Threadgroup (channels, heads, row): a thread a channel of eight heads, over all positions in
// order: the sum is sequential, so a long context cannot be divided, only heads and channels can.
kernel void mla_context(constant sh_mla &m [[buffer(0)]], SH_POS,
                        device const float *p [[buffer(1)]],
                        device const float *cache [[buffer(2)]], device float *ctx [[buffer(3)]])
{
    uint c = group.x * SH_MLA_THREADS + tid, h0 = group.y * SH_CTX_HEADS;
    uint n = m.seen + group.z, w = m.rank + m.rope;
    if (c >= m.rank) {
        return;
    }
    p += (ulong)group.z * m.nh * m.L;
    ulong po[SH_CTX_HEADS];
    float acc[SH_CTX_HEADS];
#pragma unroll
    for (uint h = 0; h < SH_CTX_HEADS; h++) {
        po[h] = (ulong)(h0 + h < m.nh ? h0 + h : m.nh - 1) * m.L;
        acc[h] = 0.0f;
    }
    uint i = 0;
    // L is a multiple of 16 and scratch is aligned, so four weights come at once.
    for (; i + 4 <= n; i += 4) {
        float v[4];
#pragma unroll
        for (uint j = 0; j < 4; j++) {
            v[j] = cache[(ulong)(i + j) * w + c];
        }
#pragma unroll
        for (uint h = 0; h < SH_CTX_HEADS; h++) {
            float4 q = *(device const float4 *)(p + po[h] + i);
            acc[h] = sh_fma(q.x, v[0], acc[h]);
            acc[h] = sh_fma(q.y, v[1], acc[h]);
            acc[h] = sh_fma(q.z, v[2], acc[h]);
            acc[h] = sh_fma(q.w, v[3], acc[h]);
        }
    }
    for (; i < n; i++) {
        float v = cache[(ulong)i * w + c];
#pragma unroll
        for (uint h = 0; h < SH_CTX_HEADS; h++) {
            acc[h] = sh_fma(p[po[h] + i], v, acc[h]);
        }
    }
#pragma unroll
    for (uint h = 0; h < SH_CTX_HEADS; h++) {
        if (h0 + h < m.nh) {
            ctx[((ulong)group.z * m.nh + h0 + h) * m.rank + c] = sh_z(acc[h]);
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
    sh_dots<TYPE, 1, 1>(d, w, w, row, m.rank, ctx, xo, lane, lut);
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
        acc = sh_fma(sh_kvb(m, w, row, c), ctx[c], acc);
    }
    float d = sh_fold32(acc);
    if (lane == 0) {
        o[((ulong)group.z * m.H + h) * m.vdim + j] = sh_z(m.type == SH_I8 ? d * scale[row] : d);
    }
}
