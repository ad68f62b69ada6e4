/* SPDX-License-Identifier: MIT
 * args.h: the arguments of the kernels: the same bytes for C and for Metal, [[buffer(0)]].
 *
 * Numbers of 32 bits and floats, so that both languages lay them out alike; eight-byte members come
 * first. Strides are in floats. */
#ifndef SHOAL_SHADERS_ARGS_H
#define SHOAL_SHADERS_ARGS_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

/* product.metal; row t of x is x + (xmapped ? xmap[t] : t) * xstride. */
struct sh_product {
    uint32_t rows, cols, T, xstride, ystride, xmapped, ymapped;
};

/* elementwise.metal; ta, tb: 0 = binary32, 1 = bf16. */
struct sh_map {
    uint32_t n, ta, tb;
    float beta, lbeta;
};

struct sh_combine {
    uint32_t n, k;
};

struct sh_check {
    uint64_t n;
    uint32_t tag;
};

/* norms.metal; `copied` values behind each row's n are taken over by z(). */
struct sh_norm {
    uint32_t n, xstride, ystride, wtype, copied;
    float eps;
};

struct sh_gated_norm {
    uint32_t D, heads; /* heads of all rows */
    float eps;
};

/* mix.metal */
struct sh_mix {
    uint64_t bank_stride;
    uint32_t n, nb, T;
    float eps;
};

/* softmax.metal: row r has n + r / per values. */
struct sh_softmax {
    uint32_t stride, n, per;
};

/* kda.metal */
struct sh_conv {
    uint32_t C, K, T, xstride, ystride;
};

struct sh_kda {
    uint32_t H, D, T;
    float lower, eps, c; /* c = 1 / sqrt((float)D) */
};

/* mla.metal: heads h0 .. h0+nh-1 of T rows; row t sees seen + t positions; scores lie L apart. */
struct sh_mla {
    uint32_t H, h0, nh, T, nope, rope, vdim, rank, L, seen, type;
    float scale;
};

/* router.metal */
struct sh_router {
    uint32_t E, k, renorm;
    float scale;
};

/* head.metal: the largest of n values, `chunk` values a threadgroup; with_ids: of n candidates. */
struct sh_argmax {
    uint32_t n, chunk, with_ids;
};

/* Sizes that the kernels and whoever launches them must agree on. */
#define SH_MAP_THREADS 256
#define SH_PRODUCT_GROUPS 2 /* SIMD groups of a threadgroup of a product */
#define SH_NORM_THREADS 512
#define SH_STAGE 4096      /* floats of a row of softmax held in threadgroup memory */
#define SH_NORM_STAGE 7168 /* the same of a norm */
#define SH_MIX_THREADS 512
#define SH_MIX_STAGE 3584
#define SH_SOFTMAX_THREADS 256
#define SH_HEADS_GROUPS 4 /* heads of a threadgroup of the gated norm */
#define SH_KDA_THREADS 64
#define SH_KDA_MAX_D 512
#define SH_MLA_THREADS 64
#define SH_SCORE_HEADS 8 /* heads and */
#define SH_SCORE_ROWS 8  /* positions of a SIMD group of the scores */
#define SH_SCORE_GROUPS 4
#define SH_CTX_HEADS 8 /* heads of a SIMD group, */
#define SH_CTX_ROWS 32 /* positions of a step of the context */
#define SH_ROUTER_THREADS 1024
#define SH_ROUTER_MAX_E 2048
#define SH_ARGMAX_THREADS 256
#define SH_ARGMAX_CHUNK 4096

#endif
