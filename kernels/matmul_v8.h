/* SPDX-License-Identifier: MIT
 * matmul_v8.h: the matrix products on eight lanes, compiled once per instruction set.
 *
 * The including file has defined, beside simd.h, decode_mxfp4 and decode_bf16: 32 weights as four
 * v8 in the order below, exact. dot32's 32 accumulators are four v8 whose lanes stand in the order
 * in which the weights of a type fall out of their decoding; x is brought into the same order once
 * per product (prepare), so nothing is shuffled per weight: MXFP4: 0 4 8 12 1 5 9 13 | 2 6 10 14 3
 * 7 11 15 | 16 more than the first | than the second BF16:  0 2 4 6 8 10 12 14 | 1 3 5 7 9 11 13 15
 * | likewise F32, I8: 0 .. 7 | 8 .. 15 | 16 .. 23 | 24 .. 31
 *
 * One row of x: rows of weights two at a time, decoded in registers. More rows of x: a tile of rows
 * is decoded into L1, then multiplied with three rows of x at a time, one v8 of the four at a time.
 */

#define LANES 32
#define PAIR 2         /* rows of weights at a time with one row of x */
#define TILE_ROWS 8    /* rows of weights decoded together for several rows of x */
#define TILE_BLOCKS 16 /* blocks of a tile: 8 x 16 x 32 floats are 16 KiB */
#define TILE_TOKENS 16 /* rows of x that share one decoding */
#define INLINE static inline __attribute__((always_inline))

/* Bytes that the weights of one row are read ahead of their use. */
#define AHEAD 1024

struct v32 {
    v8 a, b, c, d;
};

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

INLINE struct v32 decode(enum kern_type type, const uint8_t *p, const uint8_t *scale)
{
    if (type == KERN_MXFP4)
        return decode_mxfp4(p, *scale);
    if (type == KERN_BF16)
        return decode_bf16(p);
    struct v32 w;
    if (type == KERN_I8) {
        const int8_t *q = (const int8_t *)p;
        w.a = v8_load_i8(q);
        w.b = v8_load_i8(q + 8);
        w.c = v8_load_i8(q + 16);
        w.d = v8_load_i8(q + 24);
    } else {
        const float *f = (const float *)(const void *)p;
        w.a = v8_load(f);
        w.b = v8_load(f + 8);
        w.c = v8_load(f + 16);
        w.d = v8_load(f + 24);
    }
    return w;
}

/* The last n < 32 weights of a row, which end where the memory may end. */
INLINE struct v32 decode_tail(enum kern_type type, const uint8_t *p, const uint8_t *scale, size_t n)
{
    uint8_t whole[LANES * 4];
    memset(whole, 0, sizeof whole);
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
    return decode(type, whole, scale);
}

INLINE struct v32 v32_zero(void)
{
    struct v32 r = {v8_zero(), v8_zero(), v8_zero(), v8_zero()};
    return r;
}

INLINE struct v32 v32_fma(struct v32 w, const float *x, struct v32 acc)
{
    acc.a = v8_fma(w.a, v8_load(x), acc.a);
    acc.b = v8_fma(w.b, v8_load(x + 8), acc.b);
    acc.c = v8_fma(w.c, v8_load(x + 16), acc.c);
    acc.d = v8_fma(w.d, v8_load(x + 24), acc.d);
    return acc;
}

/* The folds 16, 8, 4, 2, 1, and the row's scale of int8. */
INLINE float finish(const struct kern_matmul *m, enum kern_type type, size_t row, struct v32 acc)
{
    float v;
    if (type == KERN_MXFP4)
        v = fold_mxfp4(v8_add(acc.a, acc.c), v8_add(acc.b, acc.d));
    else if (type == KERN_BF16)
        v = fold_bf16(v8_add(acc.a, acc.c), v8_add(acc.b, acc.d));
    else
        v = v32_fold(acc.a, acc.b, acc.c, acc.d);
    if (type == KERN_I8)
        v = ((const float *)m->scale)[row] * v;
    return kern_matmul_z(v);
}

INLINE void prefetch(enum kern_type type, const uint8_t *p, size_t b)
{
    if (type != KERN_MXFP4)
        __builtin_prefetch(p + AHEAD);
    else if (b % 4 == 0)
        __builtin_prefetch(p + AHEAD);
    if (type == KERN_F32)
        __builtin_prefetch(p + AHEAD + 64);
}

/* n rows of weights (row[0] .. row[n-1]) times one row of x. */
INLINE void one_token(const struct kern_matmul *m, enum kern_type type, const float *x, float *y,
                      const size_t *row, size_t n)
{
    struct source s = source_of(m, type);
    const uint8_t *p[PAIR], *sc[PAIR];
    struct v32 acc[PAIR];
    for (size_t i = 0; i < n; i++) {
        p[i] = s.data + row[i] * s.pitch;
        sc[i] = s.scale + (type == KERN_MXFP4 ? row[i] * s.scale_pitch : 0);
        acc[i] = v32_zero();
    }
    size_t whole = m->cols / LANES, rest = m->cols % LANES;
    for (size_t b = 0; b < whole; b++) {
        for (size_t i = 0; i < n; i++) {
            prefetch(type, p[i] + b * s.block, b);
            acc[i] = v32_fma(decode(type, p[i] + b * s.block, sc[i] + b), x + b * LANES, acc[i]);
        }
    }
    if (rest)
        for (size_t i = 0; i < n; i++)
            acc[i] = v32_fma(decode_tail(type, p[i] + whole * s.block, sc[i] + whole, rest),
                             x + whole * LANES, acc[i]);
    for (size_t i = 0; i < n; i++)
        y[row[i]] = finish(m, type, row[i], acc[i]);
}

/* One row of x. The range is read as PAIR streams, far apart: more of the memory's width. */
INLINE void rows_one(const struct kern_matmul *m, enum kern_type type, const float *x, size_t row0,
                     size_t row1)
{
    float *y = kern_matmul_y(m, 0);
    size_t step = (row1 - row0) / PAIR;
    for (size_t r = row0; r < row0 + step; r++) {
        size_t row[PAIR];
        for (size_t i = 0; i < PAIR; i++)
            row[i] = r + i * step;
        one_token(m, type, x, y, row, PAIR);
    }
    for (size_t r = row0 + step * PAIR; r < row1; r++)
        one_token(m, type, x, y, &r, 1);
}

/* acc[i][j] (32 floats each) += w rows times x rows over n blocks, one v8 of the four at a time. */
INLINE void tile(const float *w, const float *x, size_t xpitch, float *acc, size_t n, size_t nr,
                 size_t nt)
{
    for (size_t g = 0; g < LANES; g += 8) {
        v8 s[4][3];
        for (size_t i = 0; i < nr; i++)
            for (size_t j = 0; j < nt; j++)
                s[i][j] = v8_load(acc + (i * TILE_TOKENS + j) * LANES + g);
        for (size_t b = 0; b < n; b++) {
            v8 xv[3];
            for (size_t j = 0; j < nt; j++)
                xv[j] = v8_load(x + j * xpitch + b * LANES + g);
            for (size_t i = 0; i < nr; i++) {
                v8 wv = v8_load(w + (i * TILE_BLOCKS + b) * LANES + g);
                for (size_t j = 0; j < nt; j++)
                    s[i][j] = v8_fma(wv, xv[j], s[i][j]);
            }
        }
        for (size_t i = 0; i < nr; i++)
            for (size_t j = 0; j < nt; j++)
                v8_store(acc + (i * TILE_TOKENS + j) * LANES + g, s[i][j]);
    }
}

INLINE void tile_tokens(const float *w, const float *x, size_t xpitch, float *acc, size_t n,
                        size_t nr, size_t nt)
{
    size_t j = 0;
    for (; nt - j > 4 || nt - j == 3; j += 3)
        tile(w, x + j * xpitch, xpitch, acc + j * LANES, n, nr, 3);
    for (; nt - j >= 2; j += 2)
        tile(w, x + j * xpitch, xpitch, acc + j * LANES, n, nr, 2);
    if (nt - j)
        tile(w, x + j * xpitch, xpitch, acc + j * LANES, n, nr, 1);
}

/* nr rows of weights times nt rows of x from token t0 on. */
INLINE void block_rows(const struct kern_matmul *m, enum kern_type type, const float *x,
                       size_t row0, size_t nr, uint32_t t0, size_t nt)
{
    float w[TILE_ROWS * TILE_BLOCKS * LANES] __attribute__((aligned(64)));
    float acc[TILE_ROWS * TILE_TOKENS * LANES] __attribute__((aligned(64)));
    struct source s = source_of(m, type);
    size_t blocks = kern_blocks(m->cols), whole = m->cols / LANES, rest = m->cols % LANES;
    size_t xpitch = blocks * LANES;

    for (size_t i = 0; i < nr; i++)
        memset(acc + i * TILE_TOKENS * LANES, 0, nt * LANES * sizeof *acc);
    for (size_t b0 = 0; b0 < blocks; b0 += TILE_BLOCKS) {
        size_t n = blocks - b0 < TILE_BLOCKS ? blocks - b0 : TILE_BLOCKS;
        for (size_t i = 0; i < nr; i++) {
            const uint8_t *p = s.data + (row0 + i) * s.pitch + b0 * s.block;
            const uint8_t *sc = s.scale;
            if (type == KERN_MXFP4)
                sc += (row0 + i) * s.scale_pitch + b0;
            for (size_t b = 0; b < n; b++) {
                float *out = w + (i * TILE_BLOCKS + b) * LANES;
                struct v32 d;
                if (b0 + b < whole) {
                    prefetch(type, p + b * s.block, b);
                    d = decode(type, p + b * s.block, sc + b);
                } else {
                    d = decode_tail(type, p + b * s.block, sc + b, rest);
                }
                v8_store(out, d.a);
                v8_store(out + 8, d.b);
                v8_store(out + 16, d.c);
                v8_store(out + 24, d.d);
            }
        }
        const float *xb = x + t0 * xpitch + b0 * LANES;
        size_t i = 0;
        for (; i + 4 <= nr; i += 4)
            tile_tokens(w + i * TILE_BLOCKS * LANES, xb, xpitch, acc + i * TILE_TOKENS * LANES, n,
                        4, nt);
        for (; i < nr; i++)
            tile_tokens(w + i * TILE_BLOCKS * LANES, xb, xpitch, acc + i * TILE_TOKENS * LANES, n,
                        1, nt);
    }
    for (size_t j = 0; j < nt; j++) {
        float *y = kern_matmul_y(m, t0 + (uint32_t)j);
        for (size_t i = 0; i < nr; i++) {
            const float *a = acc + (i * TILE_TOKENS + j) * LANES;
            struct v32 v = {v8_load(a), v8_load(a + 8), v8_load(a + 16), v8_load(a + 24)};
            y[row0 + i] = finish(m, type, row0 + i, v);
        }
    }
}

INLINE void rows_type(const struct kern_matmul *m, enum kern_type type, const float *x, size_t row0,
                      size_t row1)
{
    if (m->T == 1) {
        rows_one(m, type, x, row0, row1);
        return;
    }
    for (size_t r = row0; r < row1; r += TILE_ROWS) {
        size_t nr = row1 - r < TILE_ROWS ? row1 - r : TILE_ROWS;
        for (uint32_t t = 0; t < m->T; t += TILE_TOKENS) {
            size_t nt = m->T - t < TILE_TOKENS ? m->T - t : TILE_TOKENS;
            block_rows(m, type, x, r, nr, t, nt);
        }
    }
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

static size_t scratch_size(const struct kern_matmul *m)
{
    return m->T * kern_blocks(m->cols) * LANES * sizeof(float);
}

/* 32 values of x in the order of the type. */
INLINE void permute(enum kern_type type, const float *x, float *out)
{
    static const uint8_t mxfp4[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    static const uint8_t bf16[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};
    if (type == KERN_F32 || type == KERN_I8) {
        memcpy(out, x, LANES * sizeof *out);
        return;
    }
    const uint8_t *from = type == KERN_MXFP4 ? mxfp4 : bf16;
    for (size_t i = 0; i < 16; i++) {
        out[i] = x[from[i]];
        out[16 + i] = x[16 + from[i]];
    }
}

static void prepare(const struct kern_matmul *m, void *scratch, uint32_t t0, uint32_t t1)
{
    size_t whole = m->cols / LANES, rest = m->cols % LANES;
    for (uint32_t t = t0; t < t1; t++) {
        const float *x = kern_matmul_x(m, t);
        float *out = (float *)scratch + t * kern_blocks(m->cols) * LANES;
        for (size_t b = 0; b < whole; b++)
            permute(m->type, x + b * LANES, out + b * LANES);
        if (rest) {
            float last[LANES] = {0};
            memcpy(last, x + whole * LANES, rest * sizeof *last);
            permute(m->type, last, out + whole * LANES);
        }
    }
}
