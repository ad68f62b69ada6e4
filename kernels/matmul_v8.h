/* SPDX-License-Identifier: MIT
 * matmul_v8.h: the matrix products on eight lanes, compiled once per instruction set.
 *
 * The including file has defined, beside what simd.h defines:
 *   struct half: 32 weights as the upper 16 bits of floats; half_mxfp4 and half_bf16 load them,
 *   half_part gives the k-th v8 of four, in the order below;
 *   fold_mxfp4, fold_bf16: the folds 8, 4, 2, 1 of two v8 that fold 16 has left.
 *
 * dot32's 32 accumulators are four v8 whose lanes stand in the order in which the weights of a type
 * fall out of their decoding; x is brought into the same order once per product (prepare), so
 * nothing is shuffled per weight:
 *
 * - MXFP4: 0 4 8 12 1 5 9 13 | 2 6 10 14 3 7 11 15 | these two plus 16
 *
 * - BF16: 0 2 4 6 8 10 12 14 | 1 3 5 7 9 11 13 15 | these two plus 16
 *
 * - F32, I8: 0 .. 7 | 8 .. 15 | 16 .. 23 | 24 .. 31
 *
 * Up to six rows of x: the weights are decoded in registers, two of their rows at a time for one
 * row of x, one of them for two or three. More rows of x: matmul_tiled.h.
 */

#define LANES 32
#define PAIR 2 /* rows of weights at a time with one row of x */
#define INLINE static inline __attribute__((always_inline))

/* Before loops of a few known turns over arrays that are to live in registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

#define STRIDE 4   /* blocks between two prefetches */
#define AHEAD 1536 /* bytes that weights are asked for before their use */

/* Where the rows of a matrix lie. */
struct source {
    const uint8_t *data;
    const uint8_t *scale;
    size_t pitch, scale_pitch; /* bytes per row */
    size_t block;              /* bytes of 32 weights */
};

INLINE struct source source_of(const struct kern_matmul *m, enum kern_type type)
{
    struct source s = {m->data, m->scale, 0, 0, 0};
    switch (type) {
    case KERN_F32:
        s.pitch = (size_t)m->cols * 4;
        s.block = LANES * 4;
        break;
    case KERN_BF16:
        s.pitch = (size_t)m->cols * 2;
        s.block = LANES * 2;
        break;
    case KERN_I8:
        s.pitch = m->cols;
        s.block = LANES;
        break;
    case KERN_MXFP4:
        s.pitch = kern_mxfp4_pitch(m->cols);
        s.scale_pitch = kern_blocks(m->cols);
        s.block = LANES / 2;
        break;
    }
    return s;
}

INLINE size_t block_size(enum kern_type type)
{
    return type == KERN_MXFP4 ? 16 : type == KERN_I8 ? 32 : type == KERN_BF16 ? 64 : 128;
}

/* 32 weights: loaded, then taken eight at a time, so that few registers hold many rows. */
struct load {
    struct half h;
    const uint8_t *p;
};

INLINE struct load load(enum kern_type type, const uint8_t *p, const uint8_t *scale)
{
    struct load w;
    if (type == KERN_MXFP4)
        w.h = half_mxfp4(p, *scale);
    else if (type == KERN_BF16)
        w.h = half_bf16(p);
    w.p = p;
    return w;
}

INLINE v8 part(enum kern_type type, const struct load *w, int k)
{
    if (type == KERN_MXFP4 || type == KERN_BF16)
        return half_part(w->h, k);
    if (type == KERN_I8)
        return v8_load_i8((const int8_t *)w->p + 8 * k);
    return v8_load((const float *)(const void *)w->p + 8 * k);
}

/* The last n < 32 weights of a row, which end where the memory may end, as a whole block. */
INLINE const uint8_t *tail(enum kern_type type, const uint8_t *p, size_t n, uint8_t *whole)
{
    memset(whole, 0, LANES * 4);
    switch (type) {
    case KERN_F32:
        memcpy(whole, p, n * 4);
        break;
    case KERN_BF16:
        memcpy(whole, p, n * 2);
        break;
    case KERN_I8:
        memcpy(whole, p, n);
        break;
    case KERN_MXFP4:
        kern_mxfp4_tail(whole, p, n);
        break;
    }
    return whole;
}

/* The folds 16, 8, 4, 2, 1, and the row's scale of int8. */
INLINE float finish(const struct kern_matmul *m, enum kern_type type, size_t row, const v8 *acc)
{
    float v;
    if (type == KERN_MXFP4)
        v = fold_mxfp4(v8_add(acc[0], acc[2]), v8_add(acc[1], acc[3]));
    else if (type == KERN_BF16)
        v = fold_bf16(v8_add(acc[0], acc[2]), v8_add(acc[1], acc[3]));
    else
        v = v32_fold(acc[0], acc[1], acc[2], acc[3]);
    if (type == KERN_I8)
        v = ((const float *)m->scale)[row] * v;
    return kern_matmul_z(v);
}

/* Asks for the 64-byte lines of STRIDE blocks, AHEAD bytes on. A hint: any address is allowed. */
INLINE void prefetch(const struct source *s, const uint8_t *p)
{
    for (size_t i = 0; i < STRIDE * s->block; i += 64)
        __builtin_prefetch(p + AHEAD + i);
}

/* ---- few rows of x: nr rows of weights times nt rows of x, nr * nt <= 3, all in registers ---- */

#define DIRECT 3     /* rows of x at a time */
#define DIRECT_MAX 6 /* up to here it is faster to decode the weights twice than to store them */

/* One block of it, at p[i], then p and sc move on. x rows are xpitch floats apart. */
INLINE void step(enum kern_type type, const struct source *s, const uint8_t **p, const uint8_t **sc,
                 const float *x, size_t xpitch, size_t nr, size_t nt, v8 (*acc)[DIRECT][4])
{
    struct load w[PAIR];
    UNROLL
    for (size_t i = 0; i < nr; i++) {
        w[i] = load(type, p[i], sc[i]);
        p[i] += s->block;
        sc[i] += type == KERN_MXFP4;
    }
    UNROLL
    for (int k = 0; k < 4; k++) {
        UNROLL
        for (size_t i = 0; i < nr; i++) {
            v8 wv = part(type, &w[i], k);
            UNROLL
            for (size_t j = 0; j < nt; j++)
                acc[i][j][k] = v8_fma(wv, v8_load(x + j * xpitch + 8 * k), acc[i][j][k]);
        }
    }
}

INLINE void direct(const struct kern_matmul *m, enum kern_type type, const float *x,
                   const size_t *row, size_t nr, uint32_t t0, size_t nt)
{
    struct source s = source_of(m, type);
    size_t xpitch = kern_blocks(m->cols) * LANES;
    const uint8_t *p[PAIR], *sc[PAIR];
    v8 acc[PAIR][DIRECT][4];
    x += t0 * xpitch;
    UNROLL
    for (size_t i = 0; i < nr; i++) {
        p[i] = s.data + row[i] * s.pitch;
        sc[i] = type == KERN_MXFP4 ? s.scale + row[i] * s.scale_pitch : s.data;
        UNROLL
        for (size_t j = 0; j < nt; j++) {
            UNROLL
            for (int k = 0; k < 4; k++)
                acc[i][j][k] = v8_zero();
        }
    }
    size_t b = 0, whole = m->cols / LANES, rest = m->cols % LANES;
    for (; b + STRIDE <= whole; b += STRIDE) {
        UNROLL
        for (size_t i = 0; i < nr; i++)
            prefetch(&s, p[i]);
        UNROLL
        for (size_t k = 0; k < STRIDE; k++)
            step(type, &s, p, sc, x + (b + k) * LANES, xpitch, nr, nt, acc);
    }
    for (; b < whole; b++)
        step(type, &s, p, sc, x + b * LANES, xpitch, nr, nt, acc);
    if (rest) {
        uint8_t last[PAIR][LANES * 4];
        UNROLL
        for (size_t i = 0; i < nr; i++)
            p[i] = tail(type, p[i], rest, last[i]);
        step(type, &s, p, sc, x + whole * LANES, xpitch, nr, nt, acc);
    }
    for (size_t j = 0; j < nt; j++) {
        float *y = kern_matmul_y(m, t0 + (uint32_t)j);
        for (size_t i = 0; i < nr; i++)
            y[row[i]] = finish(m, type, row[i], acc[i][j]);
    }
}

INLINE void rows_direct(const struct kern_matmul *m, enum kern_type type, const float *x,
                        size_t row0, size_t row1)
{
    if (m->T == 1) {
        /* The range as PAIR streams, far apart: more of the memory's width. */
        size_t step_rows = (row1 - row0) / PAIR;
        for (size_t r = row0; r < row0 + step_rows; r++) {
            size_t row[PAIR];
            for (size_t i = 0; i < PAIR; i++)
                row[i] = r + i * step_rows;
            direct(m, type, x, row, PAIR, 0, 1);
        }
        for (size_t r = row0 + step_rows * PAIR; r < row1; r++)
            direct(m, type, x, &r, 1, 0, 1);
        return;
    }
    for (size_t r = row0; r < row1; r++) {
        uint32_t t = 0;
        for (; m->T - t >= 5 || m->T - t == 3; t += 3)
            direct(m, type, x, &r, 1, t, 3);
        for (; m->T - t >= 2; t += 2)
            direct(m, type, x, &r, 1, t, 2);
    }
}

#include "kernels/matmul_tiled.h"

INLINE void rows_type(const struct kern_matmul *m, enum kern_type type, const float *x, size_t row0,
                      size_t row1)
{
    if (m->T <= DIRECT_MAX)
        rows_direct(m, type, x, row0, row1);
    else
        rows_tiled(m, type, x, row0, row1);
}

/* One function per type, so that the compiler unfolds each for itself. */
static void rows_mxfp4(const struct kern_matmul *m, const float *x, size_t row0, size_t row1)
{
    rows_type(m, KERN_MXFP4, x, row0, row1);
}

static void rows_bf16(const struct kern_matmul *m, const float *x, size_t row0, size_t row1)
{
    rows_type(m, KERN_BF16, x, row0, row1);
}

static void rows_i8(const struct kern_matmul *m, const float *x, size_t row0, size_t row1)
{
    rows_type(m, KERN_I8, x, row0, row1);
}

static void rows_f32(const struct kern_matmul *m, const float *x, size_t row0, size_t row1)
{
    rows_type(m, KERN_F32, x, row0, row1);
}

static void rows(const struct kern_matmul *m, const void *scratch, uint32_t row0, uint32_t row1)
{
    if (!m->T || row0 >= row1)
        return;
    switch (m->type) {
    case KERN_MXFP4:
        rows_mxfp4(m, scratch, row0, row1);
        break;
    case KERN_BF16:
        rows_bf16(m, scratch, row0, row1);
        break;
    case KERN_I8:
        rows_i8(m, scratch, row0, row1);
        break;
    case KERN_F32:
        rows_f32(m, scratch, row0, row1);
        break;
    }
}

#define CHAINS 12 /* as many as a tile has: enough to hide an fma behind the others */

static float peak(size_t turns)
{
    v8 a[CHAINS], m = v8_set1(0.5f), c = v8_set1(1);
    UNROLL
    for (int i = 0; i < 8; i++)
        a[i] = v8_set1((float)i);
    UNROLL
    for (int i = 8; i < CHAINS; i++)
        a[i] = v8_set1((float)i);
    for (size_t n = 0; n < turns; n++) {
        UNROLL
        for (int i = 0; i < 8; i++)
            a[i] = v8_fma(a[i], m, c);
        UNROLL
        for (int i = 8; i < CHAINS; i++)
            a[i] = v8_fma(a[i], m, c);
    }
    v8 sum = a[0];
    for (int i = 1; i < CHAINS; i++)
        sum = v8_add(sum, a[i]);
    float out[8];
    v8_store(out, sum);
    return out[0] + out[7];
}

static size_t scratch_size(const struct kern_matmul *m)
{
    size_t blocks = kern_blocks(m->cols);
    if (m->T > DIRECT_MAX)
        blocks = (blocks + TILE_BLOCKS - 1) / TILE_BLOCKS * TILE_BLOCKS;
    return m->T * blocks * LANES * sizeof(float);
}

/* 32 values of x in the order of the type, eight each to out, out + by, ... */
INLINE void permute(enum kern_type type, const float *x, float *out, size_t by)
{
    static const uint8_t mxfp4[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    static const uint8_t bf16[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};
    static const uint8_t plain[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint8_t *from = type == KERN_MXFP4 ? mxfp4 : type == KERN_BF16 ? bf16 : plain;
    for (size_t i = 0; i < 8; i++) {
        out[i] = x[from[i]];
        out[by + i] = x[from[8 + i]];
        out[2 * by + i] = x[16 + from[i]];
        out[3 * by + i] = x[16 + from[8 + i]];
    }
}

static void prepare(const struct kern_matmul *m, void *scratch, uint32_t t0, uint32_t t1)
{
    size_t whole = m->cols / LANES, rest = m->cols % LANES, blocks = kern_blocks(m->cols);
    bool direct = m->T <= DIRECT_MAX;
    size_t most = tile_tokens(m->T);
    for (uint32_t t = t0; t < t1; t++) {
        const float *x = kern_matmul_x(m, t);
        size_t first = t / most * most, nt = m->T - first < most ? m->T - first : most, size;
        size_t begin = place(t - first, nt, &size), in = t - first - begin;
        for (size_t b = 0; b < blocks; b++) {
            size_t c = b % TILE_BLOCKS;
            float *out = (float *)scratch;
            float last[LANES] = {0};
            const float *from = x + b * LANES;
            out += direct ? (t * blocks + b) * LANES
                          : ((b - c) * m->T + (first + begin) * TILE_BLOCKS) * LANES +
                                (c * size + in) * 8;
            if (b == whole) {
                memcpy(last, from, rest * sizeof *last);
                from = last;
            }
            permute(m->type, from, out, direct ? 8 : size * TILE_BLOCKS * 8);
        }
    }
}
