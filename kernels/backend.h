/* SPDX-License-Identifier: MIT
 * backend.h: the one door to arithmetic: buffers, commands, submit, fence.
 *
 * node/infer records commands over buffers and submits them; the CPU backend (cpu.h) runs them on a
 * worker pool, a GPU backend may run them elsewhere. Every command is defined bit for bit in
 * NUMERICS.md, so which backend, instruction set or thread count did the work can never be told
 * from the result. Commands of one submission take effect in order; a command sees all effects of
 * the earlier ones.
 *
 * Conventions: arrays are row-major and dense unless a stride (in elements) is given; T is the
 * number of token rows of a command; all float arrays are binary32. Output may not overlap input
 * except where a command says "in place" (then it is exactly that input, with the same stride).
 * Every float stored passes the small-number rule z() of NUMERICS.md. Counts and sizes are at least
 * 1 (mla's rope may be 0), a stride is at least its row; columns of one wider array do not overlap.
 *
 * Threads: one thread at a time uses a backend, but alloc and free, which any may call at any time;
 * buffers may be filled by others before submit. */
#ifndef SHOAL_KERNELS_BACKEND_H
#define SHOAL_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHOAL_NUMERICS_VERSION 1 /* raised by every change of any result */

/* ---- buffers: page-aligned memory that host and backend both see ---- */

struct kern_buf {
    void *host;  /* the bytes, readable and writable by the host between submissions */
    size_t size; /* bytes, as asked for */
    void *impl;  /* private to the backend */
};

struct kern_ref { /* a place in a buffer; buf NULL = none */
    const struct kern_buf *buf;
    size_t off; /* bytes; a multiple of the element size */
};

static inline struct kern_ref kern_at(const struct kern_buf *b, size_t byte_off)
{
    struct kern_ref r = {b, byte_off};
    return r;
}

/* ---- operands ---- */

enum kern_type {
    KERN_F32,
    KERN_BF16,
    KERN_MXFP4, /* data: rows of ceil(cols/2) bytes, low nibble = even column;
                   scale: rows of ceil(cols/32) e8m0 bytes */
    KERN_I8     /* data: int8 rows of cols bytes; scale: one float per row */
};

struct kern_mat { /* weights [rows][cols] */
    enum kern_type type;
    uint32_t rows, cols;
    struct kern_ref data, scale; /* scale: MXFP4 and I8 only */
};

struct kern_vec { /* weights [n], F32 or BF16; n is stated by the command */
    enum kern_type type;
    struct kern_ref data;
};

/* ---- commands ---- */

enum kern_op {
    KERN_MATMUL,
    KERN_WIDEN,
    KERN_MULVEC,
    KERN_ADD,
    KERN_RMSNORM,
    KERN_MIX,
    KERN_SITU,
    KERN_GATE,
    KERN_CONV,
    KERN_KDA,
    KERN_GATED_NORM,
    KERN_MLA_STORE,
    KERN_MLA,
    KERN_ROUTER,
    KERN_COMBINE,
    KERN_CHECK
};

struct kern_cmd {
    enum kern_op op;
    union {
        /* y[t][r] = dot32(w[r], x[t]) (I8: scale[r] * dot32), t < T. Row t of x is x + xi*xstride
         * with xi = xmap ? xmap[t] : t; likewise y with ymap. The maps are uint32 [T]; ymap has no
         * duplicates; no command of the same submission may write them. */
        struct {
            struct kern_mat w;
            struct kern_ref x, y;
            uint32_t xstride, ystride, T;
            struct kern_ref xmap, ymap;
        } matmul;
        /* y[i] = z(float(src[i])), i < n; src F32 or BF16. */
        struct {
            struct kern_vec src;
            struct kern_ref y;
            uint32_t n;
        } widen;
        /* y[i] = z(a[i] * b[i]), i < n: the AttnRes site vector norm.weight * proj.weight. */
        struct {
            struct kern_vec a, b;
            struct kern_ref y;
            uint32_t n;
        } mulvec;
        /* y[i] = z(a[i] + b[i]), i < n; in place allowed. */
        struct {
            struct kern_ref a, b, y;
            uint32_t n;
        } add;
        /* y[t] = w * (x[t] / sqrt(mean(x[t]^2) + eps)) over n values; in place allowed. */
        struct {
            struct kern_ref x, y;
            struct kern_vec w;
            uint32_t xstride, ystride, n, T;
            float eps;
        } rmsnorm;
        /* AttnRes: sources V_0..V_{nb-1} = bank [nb][bank_stride floats apart][T][n], V_nb = p
         * [T][n]; score_i = dot32(V_i, s) / sqrt(mean(V_i^2) + eps), softmax, y[t] = sum_i w_i V_i.
         * nb >= 1. */
        struct {
            struct kern_ref bank, p, s, y;
            size_t bank_stride;
            uint32_t nb, n, T;
            float eps;
        } mix;
        /* y[i] = beta*tanh(g/beta)*sigmoid(g) * (lbeta*tanh(u/lbeta)), i < n; in place allowed. */
        struct {
            struct kern_ref g, u, y;
            uint32_t n;
            float beta, lbeta;
        } situ;
        /* y[i] = x[i] * sigmoid(g[i]), i < n; in place allowed. */
        struct {
            struct kern_ref x, g, y;
            uint32_t n;
        } gate;
        /* Depthwise causal convolution with K taps, then SiLU, over channels C for T rows of one
         * sequence. w [C][K] floats, tap K-1 multiplies the present input. hist [K-1][C] holds the
         * raw inputs before the first row, oldest first, and is moved on by T rows; none for K = 1.
         * 1 <= K <= 64. */
        struct {
            struct kern_ref x, y, w, hist;
            uint32_t xstride, ystride, C, K, T;
        } conv;
        /* KDA recurrence for T rows of one sequence, H heads, D = key = value width. q k v f o:
         * [T][H*D]; b [T][H]; a_log [H]; dt_bias [H*D]; S [H][D key][D value] in and out. q, k are
         * L2-normalised here (eps inside the root), q also scaled by D^-1/2; alpha = exp(lower *
         * sigmoid(exp(a_log) * (f + dt_bias))). */
        struct {
            struct kern_ref q, k, v, f, b, a_log, dt_bias, S, o;
            uint32_t H, D, T;
            float lower, eps;
        } kda;
        /* y = (w * (o / sqrt(mean(o^2) + eps))) * sigmoid(z), per head of D values; w [D] floats,
         * o z y [T][H*D]; in place allowed. */
        struct {
            struct kern_ref o, w, z, y;
            uint32_t H, D, T;
            float eps;
        } gated_norm;
        /* Cache rows pos0 .. pos0+T-1 of [rank + rope] floats from c [T][cstride]: the first rank
         * values RMS-normalised with w, the rest copied. */
        struct {
            struct kern_ref c, cache;
            struct kern_vec w;
            uint32_t cstride, rank, rope, T, pos0;
            float eps;
        } mla_store;
        /* Absorbed latent attention for T rows of one sequence; row t sees cache rows 0 .. pos0+t.
         * q [T][H*(nope+rope)], kvb [H*(nope+vdim)][rank] (F32, BF16 or I8), o [T][H*vdim]. */
        struct {
            struct kern_ref q, cache, o;
            struct kern_mat kvb;
            uint32_t H, nope, rope, vdim, rank, T, pos0;
        } mla;
        /* s = sigmoid(logits [T][E]); the k largest of s + bias (ties: lower id), written in
         * ascending id: ids uint32 [T][k], w [T][k] = s / (sum + 1e-20) * scale (renorm) or s *
         * scale. */
        struct {
            struct kern_ref logits, bias, ids, w;
            uint32_t E, k, T;
            bool renorm;
            float scale;
        } router;
        /* u[t] = sum over j < k, in ascending j by fma, of w[t][j] * y[t][j]; y [T][k][n]. */
        struct {
            struct kern_ref y, w, u;
            uint32_t n, k, T;
        } combine;
        /* When any of x[0..n) is NaN or infinite and the uint32 at flag is 0, it becomes `tag`. */
        struct {
            struct kern_ref x, flag;
            size_t n;
            uint32_t tag;
        } check;
    } u;
};

/* ---- the backend ---- */

struct kern_backend {
    /* Zeroed, page-aligned, never moved; NULL without memory. What is freed may be in use by
     * commands that were submitted; what is filled anew may not. */
    struct kern_buf *(*alloc)(struct kern_backend *b, size_t size);
    void (*free)(struct kern_backend *b, struct kern_buf *buf); /* buf may be NULL */
    /* Start commands in order; *fence is passed to wait. The commands are copied. Returns 0, or
     * KERN_ENOMEM / KERN_EINVAL (nothing was started). The CPU backend has done the work when this
     * returns; callers must not count on it. */
    int (*submit)(struct kern_backend *b, const struct kern_cmd *cmds, size_t n, uint64_t *fence);
    /* Returns when everything up to `fence` is visible to the host. An error of submit (but for
     * KERN_ENOMEM) or wait may mean that hardware failed: the results of all that was not waited
     * for are lost, nothing is under way any more, and what is submitted next starts afresh. */
    int (*wait)(struct kern_backend *b, uint64_t fence);
    /* The last fence up to which nothing uses any buffer any more. */
    uint64_t (*done)(struct kern_backend *b);
    void (*close)(struct kern_backend *b);
    const char *name; /* "cpu/avx2", ... for people */
    unsigned threads; /* workers, 1 for a GPU */
    void *impl;       /* private */
};

#define KERN_EINVAL (-1) /* a command whose operands cannot be right */
#define KERN_ENOMEM (-2)
#define KERN_ENOTSUP (-3) /* this instruction set is not on this machine */

#endif
