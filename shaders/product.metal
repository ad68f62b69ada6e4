// SPDX-License-Identifier: MIT
// product.metal: weight matrix times 1 to 8 rows of activations; more rows are more threadgroups.
//
// How dot32's 32 accumulators lie over threads, three ways, the same bits:
//
// quads, for one row of x (up to four for MXFP4): four neighbouring threads are a row of weights, thread k
// of them holds accumulators 8k to 8k+7. A thread's eight weights of a block of 32 lie together (16
// bytes of bf16), the four threads read the block without a gap, and all but two folds happen in
// registers. Four blocks are fetched while the four before them are used.
//
// tiles, for more rows of x: a lane an accumulator, of eight rows of weights times up to eight rows
// of x, so each weight and each activation that reaches a register is used eight times.
//
// any: a lane an accumulator, one row of weights; for columns not in multiples of 128 and for rows
// that are not aligned, which the others need.
#ifndef SHOAL_SHADERS_PRODUCT
#define SHOAL_SHADERS_PRODUCT

#include "prelude.metal"

#define SH_TILE 8 // rows of weights of a tile

// The value of an e2m1 nibble: 0 .5 1 1.5 2 3 4 6, then their negatives.
inline float sh_e2m1(uint n)
{
    uint m = n & 7u;
    float v = m < 2 ? (m == 0 ? 0.0f : 0.5f) : as_type<float>((m << 22) + 0x3f000000u);
    return as_type<float>(as_type<uint>(v) | (n & 8u) << 28);
}

// 2^(s - 127), NaN for 255, of byte i of a word. A weight times it is exact, or infinite above the
// binary32 range.
inline float sh_e8m0(uint word, uint i)
{
    uint u = (i < 3 ? word << (23 - 8 * i) : word >> 1) & 0x7f800000u;
    u = u > 0x00400000u ? u : 0x00400000u;
    return as_type<float>(u == 0x7f800000u ? 0x7fc00000u : u);
}

inline uint sh_row_bytes(int type, uint cols)
{
    return type == SH_F32 ? 4 * cols : type == SH_BF16 ? 2 * cols : type == SH_I8 ? cols : (cols + 1) / 2;
}

// Weight c of a row, for any shape.
inline float sh_weight(int type, device const uchar *row, device const uchar *scales, uint c)
{
    if (type == SH_F32) {
        return ((device const float *)row)[c];
    }
    if (type == SH_BF16) {
        return sh_bf16(((device const ushort *)row)[c]);
    }
    if (type == SH_I8) {
        return (float)((device const int8_t *)row)[c];
    }
    uint byte = row[c / 2];
    return sh_e2m1(c % 2 ? byte >> 4 : byte & 15u) * sh_e8m0(scales[c / 32], 0);
}

// A lane an accumulator, a SIMD group a row of weights, one row of x after the other.
#define SH_PRODUCT_ANY(NAME, TYPE)                                                                 \
    kernel void NAME(constant sh_product &a [[buffer(0)]], SH_POS,                                 \
                     device const uchar *w [[buffer(1)]], device const uchar *scale [[buffer(2)]], \
                     device const float *x [[buffer(3)]], device float *y [[buffer(4)]],           \
                     device const uint *xmap [[buffer(5)]],                                        \
                     device const uint *ymap [[buffer(6)]])                                        \
    {                                                                                              \
        uint row = group.x * SH_PRODUCT_GROUPS + sg;                                               \
        if (row >= a.rows) {                                                                       \
            return;                                                                                \
        }                                                                                          \
        device const uchar *wr = w + (ulong)row * sh_row_bytes(TYPE, a.cols);                      \
        device const uchar *sr = scale + (ulong)row * ((a.cols + 31) / 32);                        \
        for (uint t = 0; t < a.T; t++) {                                                           \
            device const float *xt = x + (ulong)(a.xmapped ? xmap[t] : t) * a.xstride;             \
            float acc = 0.0f;                                                                      \
            for (uint c = lane; c < a.cols; c += 32) {                                             \
                acc = sh_fma(sh_weight(TYPE, wr, sr, c), xt[c], acc);                              \
            }                                                                                      \
            float d = sh_fold32(acc);                                                              \
            if (lane == 0) {                                                                       \
                if (TYPE == SH_I8) {                                                               \
                    d = ((device const float *)scale)[row] * d;                                    \
                }                                                                                  \
                y[(ulong)(a.ymapped ? ymap[t] : t) * a.ystride + row] = sh_z(d);                   \
            }                                                                                      \
        }                                                                                          \
    }

SH_PRODUCT_ANY(product_f32_any, SH_F32)
SH_PRODUCT_ANY(product_bf16_any, SH_BF16)
SH_PRODUCT_ANY(product_mxfp4_any, SH_MXFP4)
SH_PRODUCT_ANY(product_i8_any, SH_I8)

// Eight weights of a block as they lie in memory: part k of the block at `block`.
struct sh_raw {
    uint4 a, b;
};

inline uint4 sh_uint4(uint x, uint y, uint z, uint w)
{
    uint4 v;
    v.x = x;
    v.y = y;
    v.z = z;
    v.w = w;
    return v;
}

template <int TYPE> inline sh_raw sh_fetch(device const uchar *row, uint block, uint k)
{
    sh_raw r;
    r.a = sh_uint4(0, 0, 0, 0);
    r.b = r.a;
    if (TYPE == SH_F32) {
        device const uint4 *p = (device const uint4 *)(row + block * 128 + k * 32);
        r.a = p[0];
        r.b = p[1];
    } else if (TYPE == SH_BF16) {
        r.a = *(device const uint4 *)(row + block * 64 + k * 16);
    } else if (TYPE == SH_I8) {
        uint2 v = *(device const uint2 *)(row + block * 32 + k * 8);
        r.a.x = v.x;
        r.a.y = v.y;
    } else {
        r.a.x = *(device const uint *)(row + block * 16 + k * 4);
    }
    return r;
}

// Signed byte i of a word: with its sign turned it is the low bits of 2^23 + 128 + value.
inline float sh_byte(uint word, uint i)
{
    return as_type<float>(((word ^ 0x80808080u) >> (8 * i) & 255u) | 0x4b000000u) - 8388736.0f;
}

// The eight weights. lut: the values of the sixteen nibbles; s: the block's scale.
template <int TYPE>
inline void sh_decode(thread float *w, sh_raw r, SH_SHARED_PTR(float) lut, float s)
{
    if (TYPE == SH_F32) {
        w[0] = as_type<float>(r.a.x);
        w[1] = as_type<float>(r.a.y);
        w[2] = as_type<float>(r.a.z);
        w[3] = as_type<float>(r.a.w);
        w[4] = as_type<float>(r.b.x);
        w[5] = as_type<float>(r.b.y);
        w[6] = as_type<float>(r.b.z);
        w[7] = as_type<float>(r.b.w);
    } else if (TYPE == SH_BF16) {
        w[0] = as_type<float>(r.a.x << 16);
        w[1] = as_type<float>(r.a.x & 0xffff0000u);
        w[2] = as_type<float>(r.a.y << 16);
        w[3] = as_type<float>(r.a.y & 0xffff0000u);
        w[4] = as_type<float>(r.a.z << 16);
        w[5] = as_type<float>(r.a.z & 0xffff0000u);
        w[6] = as_type<float>(r.a.w << 16);
        w[7] = as_type<float>(r.a.w & 0xffff0000u);
    } else if (TYPE == SH_I8) {
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            w[i] = sh_byte(r.a.x, i);
            w[i + 4] = sh_byte(r.a.y, i);
        }
    } else {
#pragma unroll
        for (uint i = 0; i < 8; i++) {
            w[i] = lut[(r.a.x >> (4 * i)) & 15u] * s;
        }
    }
}

// F blocks of R rows, as they lie in memory, with their scales.
template <int TYPE, int R, int F>
inline void sh_fetch_all(thread sh_raw *raw, thread uint *scales, device const uchar *w,
                         device const uchar *scale, thread const uint *rows, uint cols, uint b,
                         uint k)
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        device const uchar *row = w + (ulong)rows[r] * sh_row_bytes(TYPE, cols);
#pragma unroll
        for (int i = 0; i < F; i++) {
            raw[r * F + i] = sh_fetch<TYPE>(row, b + i, k);
        }
        scales[r] = 0;
        if (TYPE == SH_MXFP4) {
            scales[r] = *(device const uint *)(scale + (ulong)rows[r] * (cols / 32) + b);
        }
    }
}

// Eight values of x of each of F blocks.
template <int F> inline void sh_fetch_x(thread float4 *to, device const float *x)
{
#pragma unroll
    for (int i = 0; i < F; i++) {
        to[2 * i] = ((device const float4 *)(x + i * 32))[0];
        to[2 * i + 1] = ((device const float4 *)(x + i * 32))[1];
    }
}

// Quads: out[r * T + t] = dot32 of weight row `rows[r]` and x + xo[t], in all threads of the quad.
// F: blocks a fetch, a divisor of 4, and 4 for MXFP4, whose scales of four blocks are a word.
template <int TYPE, int T, int R, int F>
inline void sh_dots(thread float *out, device const uchar *w, device const uchar *scale,
                    thread const uint *rows, uint cols, device const float *x,
                    thread const ulong *xo, uint lane, SH_SHARED_PTR(float) lut)
{
    uint k = lane & 3u, blocks = cols / 32;
    float acc[R * T * 8];
    sh_raw raw[F * R], next[F * R];
    uint scales[R], next_scales[R];
    float4 ahead[T == 1 ? 2 * F : 1]; // one row of x is fetched with the weights
#pragma unroll
    for (int i = 0; i < R * T * 8; i++) {
        acc[i] = 0.0f;
    }
    sh_fetch_all<TYPE, R, F>(next, next_scales, w, scale, rows, cols, 0, k);
    if (T == 1) {
        sh_fetch_x<F>(ahead, x + xo[0] + k * 8);
    }
    for (uint b = 0; b < blocks; b += F) {
#pragma unroll
        for (int i = 0; i < F * R; i++) {
            raw[i] = next[i];
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            scales[r] = next_scales[r];
        }
        float4 now[T == 1 ? 2 * F : 1];
        if (T == 1) {
#pragma unroll
            for (int i = 0; i < 2 * F; i++) {
                now[i] = ahead[i];
            }
        }
        if (b + F < blocks) {
            sh_fetch_all<TYPE, R, F>(next, next_scales, w, scale, rows, cols, b + F, k);
            if (T == 1) {
                sh_fetch_x<F>(ahead, x + xo[0] + (b + F) * 32 + k * 8);
            }
        }
#pragma unroll
        for (int i = 0; i < F; i++) {
            float v[R * 8];
#pragma unroll
            for (int r = 0; r < R; r++) {
                float s = TYPE == SH_MXFP4 ? sh_e8m0(scales[r], i) : 0.0f;
                sh_decode<TYPE>(v + r * 8, raw[r * F + i], lut, s);
            }
#pragma unroll
            for (int t = 0; t < T; t++) {
                device const float4 *p =
                    (device const float4 *)(x + xo[t] + (b + i) * 32 + k * 8);
                float4 lo = T == 1 ? now[2 * i] : p[0], hi = T == 1 ? now[2 * i + 1] : p[1];
#pragma unroll
                for (int r = 0; r < R; r++) {
                    thread float *c = acc + (r * T + t) * 8;
                    thread const float *q = v + r * 8;
                    c[0] = sh_fma(q[0], lo.x, c[0]);
                    c[1] = sh_fma(q[1], lo.y, c[1]);
                    c[2] = sh_fma(q[2], lo.z, c[2]);
                    c[3] = sh_fma(q[3], lo.w, c[3]);
                    c[4] = sh_fma(q[4], hi.x, c[4]);
                    c[5] = sh_fma(q[5], hi.y, c[5]);
                    c[6] = sh_fma(q[6], hi.z, c[6]);
                    c[7] = sh_fma(q[7], hi.w, c[7]);
                }
            }
        }
    }
    // Accumulator 8k + i: +16 is two threads on, +8 one thread on, the rest is here.
#pragma unroll
    for (int n = 0; n < R * T; n++) {
        thread float *c = acc + n * 8;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            c[i] += simd_shuffle_xor(c[i], (ushort)2);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            c[i] += simd_shuffle_xor(c[i], (ushort)1);
        }
        c[0] += c[4];
        c[1] += c[5];
        c[2] += c[6];
        c[3] += c[7];
        c[0] += c[2];
        c[1] += c[3];
        out[n] = c[0] + c[1];
    }
}

// Threadgroup (rows, tile of T rows of x). Rows beyond the last are computed again and not stored.
template <int TYPE, int T, int R, int F>
inline void sh_product_rows(constant sh_product &a, uint3 group, uint lane, uint sg,
                            device const uchar *w, device const uchar *scale, device const float *x,
                            device float *y, device const uint *xmap, device const uint *ymap,
                            SH_SHARED_PTR(float) lut)
{
    uint first = (group.x * SH_PRODUCT_GROUPS + sg) * (8 * R) + (lane >> 2), t0 = group.y * T;
    uint rows[R];
    ulong xo[T];
    float out[R * T];
#pragma unroll
    for (int r = 0; r < R; r++) {
        rows[r] = first + 8 * r < a.rows ? first + 8 * r : a.rows - 1;
    }
#pragma unroll
    for (int t = 0; t < T; t++) {
        uint i = t0 + t < a.T ? t0 + t : a.T - 1;
        xo[t] = (ulong)(a.xmapped ? xmap[i] : i) * a.xstride;
    }
    sh_dots<TYPE, T, R, F>(out, w, scale, rows, a.cols, x, xo, lane, lut);
    if ((lane & 3u) == 0) {
#pragma unroll
        for (int r = 0; r < R; r++) {
            uint row = first + 8 * r;
#pragma unroll
            for (int t = 0; t < T; t++) {
                if (row < a.rows && t0 + t < a.T) {
                    float d = out[r * T + t];
                    if (TYPE == SH_I8) {
                        d = ((device const float *)scale)[row] * d;
                    }
                    uint i = a.ymapped ? ymap[t0 + t] : t0 + t;
                    y[(ulong)i * a.ystride + row] = sh_z(d);
                }
            }
        }
    }
}

// What lane `lane` needs of a block of a row, as it lies in memory.
template <int TYPE> inline uint sh_fetch_lane(device const uchar *row, uint block, uint lane)
{
    if (TYPE == SH_F32) {
        return ((device const uint *)row)[block * 32 + lane];
    }
    if (TYPE == SH_BF16) {
        return ((device const ushort *)row)[block * 32 + lane];
    }
    return TYPE == SH_I8 ? row[block * 32 + lane] : row[block * 16 + lane / 2];
}

template <int TYPE>
inline float sh_decode_lane(uint raw, uint lane, SH_SHARED_PTR(float) lut, float s)
{
    if (TYPE == SH_F32) {
        return as_type<float>(raw);
    }
    if (TYPE == SH_BF16) {
        return sh_bf16(raw);
    }
    if (TYPE == SH_I8) {
        return sh_byte(raw, 0);
    }
    return lut[(raw >> (lane % 2 * 4)) & 15u] * s;
}

// Tiles: threadgroup (rows, tile of T rows of x), a SIMD group eight rows of weights. Rows beyond
// the last are computed again and not stored.
template <int TYPE, int T>
inline void sh_product_tile(constant sh_product &a, uint3 group, uint lane, uint sg,
                            device const uchar *w, device const uchar *scale, device const float *x,
                            device float *y, device const uint *xmap, device const uint *ymap,
                            SH_SHARED_PTR(float) lut)
{
    uint first = (group.x * SH_PRODUCT_GROUPS + sg) * SH_TILE, t0 = group.y * T;
    uint blocks = a.cols / 32;
    ulong row[SH_TILE], xo[T];
    float acc[64];
    uint raw[2 * SH_TILE], next[2 * SH_TILE], scales[SH_TILE], next_scales[SH_TILE];
#pragma unroll
    for (int r = 0; r < SH_TILE; r++) {
        row[r] = first + r < a.rows ? first + r : a.rows - 1;
    }
#pragma unroll
    for (int t = 0; t < T; t++) {
        uint i = t0 + t < a.T ? t0 + t : a.T - 1;
        xo[t] = (ulong)(a.xmapped ? xmap[i] : i) * a.xstride + lane;
    }
#pragma unroll
    for (int i = 0; i < 64; i++) {
        acc[i] = 0.0f;
    }
#pragma unroll
    for (int r = 0; r < SH_TILE; r++) {
        device const uchar *p = w + row[r] * sh_row_bytes(TYPE, a.cols);
        next[2 * r] = sh_fetch_lane<TYPE>(p, 0, lane);
        next[2 * r + 1] = sh_fetch_lane<TYPE>(p, 1, lane);
        next_scales[r] =
            TYPE == SH_MXFP4 ? *(device const ushort *)(scale + row[r] * blocks) : 0;
    }
    for (uint b = 0; b < blocks; b += 2) {
#pragma unroll
        for (int i = 0; i < 2 * SH_TILE; i++) {
            raw[i] = next[i];
        }
#pragma unroll
        for (int r = 0; r < SH_TILE; r++) {
            scales[r] = next_scales[r];
        }
        if (b + 2 < blocks) {
#pragma unroll
            for (int r = 0; r < SH_TILE; r++) {
                device const uchar *p = w + row[r] * sh_row_bytes(TYPE, a.cols);
                next[2 * r] = sh_fetch_lane<TYPE>(p, b + 2, lane);
                next[2 * r + 1] = sh_fetch_lane<TYPE>(p, b + 3, lane);
                next_scales[r] =
                    TYPE == SH_MXFP4 ? *(device const ushort *)(scale + row[r] * blocks + b + 2)
                                     : 0;
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float v[T];
#pragma unroll
            for (int t = 0; t < T; t++) {
                v[t] = x[xo[t] + (b + i) * 32];
            }
#pragma unroll
            for (int r = 0; r < SH_TILE; r++) {
                float s = TYPE == SH_MXFP4 ? sh_e8m0(scales[r], i) : 0.0f;
                float q = sh_decode_lane<TYPE>(raw[2 * r + i], lane, lut, s);
#pragma unroll
                for (int t = 0; t < T; t++) {
                    acc[t * SH_TILE + r] = sh_fma(q, v[t], acc[t * SH_TILE + r]);
                }
            }
        }
    }
    // Lane i of half h then holds row i % 8 of x row 4h + i / 8.
#pragma unroll
    for (uint h = 0; h < (T + 3) / 4; h++) {
        float d = sh_fold32x32(acc + 32 * h, lane);
        uint r = first + lane % SH_TILE, t = 4 * h + lane / SH_TILE;
        if (r < a.rows && t < T && t0 + t < a.T) {
            if (TYPE == SH_I8) {
                d = ((device const float *)scale)[r] * d;
            }
            uint i = a.ymapped ? ymap[t0 + t] : t0 + t;
            y[(ulong)i * a.ystride + r] = sh_z(d);
        }
    }
}

#define SH_PRODUCT(NAME, TYPE, CALL)                                                                 \
    kernel void NAME(constant sh_product &a [[buffer(0)]], SH_POS,                                 \
                     device const uchar *w [[buffer(1)]], device const uchar *scale [[buffer(2)]], \
                     device const float *x [[buffer(3)]], device float *y [[buffer(4)]],           \
                     device const uint *xmap [[buffer(5)]],                                        \
                     device const uint *ymap [[buffer(6)]])                                        \
    {                                                                                              \
        SH_SHARED(float, lut, 16);                                                                 \
        if (TYPE == SH_MXFP4) {                                                                    \
            if (tid < 16) {                                                                        \
                lut[tid] = sh_e2m1(tid);                                                           \
            }                                                                                      \
            threadgroup_barrier(mem_flags::mem_threadgroup);                                       \
        }                                                                                          \
        CALL(a, group, lane, sg, w, scale, x, y, xmap, ymap, lut);                                 \
    }

SH_PRODUCT(product_f32_1, SH_F32, (sh_product_rows<SH_F32, 1, 1, 2>))
SH_PRODUCT(product_f32_2, SH_F32, (sh_product_tile<SH_F32, 2>))
SH_PRODUCT(product_f32_4, SH_F32, (sh_product_tile<SH_F32, 4>))
SH_PRODUCT(product_f32_8, SH_F32, (sh_product_tile<SH_F32, 8>))
SH_PRODUCT(product_bf16_1, SH_BF16, (sh_product_rows<SH_BF16, 1, 1, 4>))
SH_PRODUCT(product_bf16_2, SH_BF16, (sh_product_tile<SH_BF16, 2>))
SH_PRODUCT(product_bf16_4, SH_BF16, (sh_product_tile<SH_BF16, 4>))
SH_PRODUCT(product_bf16_8, SH_BF16, (sh_product_tile<SH_BF16, 8>))
SH_PRODUCT(product_mxfp4_1, SH_MXFP4, (sh_product_rows<SH_MXFP4, 1, 2, 4>))
SH_PRODUCT(product_mxfp4_2, SH_MXFP4, (sh_product_rows<SH_MXFP4, 2, 2, 4>))
SH_PRODUCT(product_mxfp4_4, SH_MXFP4, (sh_product_rows<SH_MXFP4, 4, 2, 4>))
SH_PRODUCT(product_mxfp4_8, SH_MXFP4, (sh_product_tile<SH_MXFP4, 8>))
SH_PRODUCT(product_i8_1, SH_I8, (sh_product_rows<SH_I8, 1, 1, 4>))
SH_PRODUCT(product_i8_2, SH_I8, (sh_product_tile<SH_I8, 2>))
SH_PRODUCT(product_i8_4, SH_I8, (sh_product_tile<SH_I8, 4>))
SH_PRODUCT(product_i8_8, SH_I8, (sh_product_tile<SH_I8, 8>))

#endif
