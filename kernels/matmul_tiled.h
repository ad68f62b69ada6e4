/* SPDX-License-Identifier: MIT
 * matmul_tiled.h: products with more rows of x than matmul_v8.h, which includes it, takes directly.
 *
 * A tile of three rows of weights is decoded into L1, then multiplied with four rows of x at a
 * time, one v8 of the four at a time: 12 sums, 7 loads for 12 fmas. For that, x and the tile are
 * stored by chunks of TILE_BLOCKS blocks, in each x by groups of four rows, in each of these all
 * first v8, then all second ones, and so on, block after block: what a loop reads is contiguous,
 * and rows whose length is a multiple of 4 KiB do not meet in the same sets of an L1 cache. */

#define BAND 3         /* rows of weights decoded together */
#define TILE_BLOCKS 16 /* blocks of a tile: 3 x 16 x 32 floats are 6 KiB */
#define UNFOLD 4       /* of these in one turn: fewer jumps to be guessed wrong */
#define TILE_TOKENS 32 /* rows of x that share one decoding */

struct block {
    /* The tile in use and the next one: [v8][block][row][8]. */
    float w[2][BAND * TILE_BLOCKS * LANES];
    /* By group of rows of x: [v8][row][row of x][8]. */
    float acc[BAND * TILE_TOKENS * LANES];
} __attribute__((aligned(64)));

/* Rows of x are multiplied in groups of four; what four does not divide ends in threes and twos. */
INLINE size_t group(size_t left)
{
    return left >= 7 || left == 4 ? 4 : left >= 5 || left == 3 ? 3 : left;
}

/* The weights of nr rows and n blocks on their way into a tile. */
struct feed {
    const uint8_t *p, *sc;
    float *w;
    size_t n, whole, done; /* blocks; of these not cut off; decoded */
};

/* Decodes the next block of nr rows. */
INLINE void decode_block(const struct source *s, enum kern_type type, struct feed *f, size_t nr)
{
    UNROLL
    for (size_t i = 0; i < nr; i++) {
        const uint8_t *p = f->p + i * s->pitch;
        /* The same columns of the next rows, for the L2 cache. */
        UNROLL
        for (size_t c = 0; c < block_size(type); c += 64)
            __builtin_prefetch(p + nr * s->pitch + c, 0, 2);
        struct load l = load(type, p, f->sc + i * s->scale_pitch);
        UNROLL
        for (size_t k = 0; k < 4; k++)
            v8_store(f->w + (k * TILE_BLOCKS * nr + i) * 8, part(type, &l, (int)k));
    }
    f->p += block_size(type);
    f->sc += type == KERN_MXFP4;
    f->w += nr * 8;
    f->done++;
}

/* Decodes up to n blocks, of whole ones. Not inlined: among a tile's sums the compiler would keep
 * the constants of decoding in registers and the sums in memory. */
typedef void decode_fn(const struct source *s, struct feed *f, size_t n);
#define DECODE(name, type, nr)                                                                   \
    static __attribute__((noinline)) void name(const struct source *s, struct feed *f, size_t n) \
    {                                                                                            \
        struct feed g = *f;                                                                      \
        for (size_t i = 0; i < n && g.done < g.whole; i++)                                       \
            decode_block(s, type, &g, nr);                                                       \
        *f = g;                                                                                  \
    }
DECODE(decode_mxfp4_3, KERN_MXFP4, BAND)
DECODE(decode_mxfp4_1, KERN_MXFP4, 1)
DECODE(decode_bf16_3, KERN_BF16, BAND)
DECODE(decode_bf16_1, KERN_BF16, 1)
DECODE(decode_i8_3, KERN_I8, BAND)
DECODE(decode_i8_1, KERN_I8, 1)
DECODE(decode_f32_3, KERN_F32, BAND)
DECODE(decode_f32_1, KERN_F32, 1)
#undef DECODE

INLINE decode_fn *decode_of(enum kern_type type, size_t nr)
{
    bool three = nr == BAND;
    switch (type) {
    case KERN_MXFP4:
        return three ? decode_mxfp4_3 : decode_mxfp4_1;
    case KERN_BF16:
        return three ? decode_bf16_3 : decode_bf16_1;
    case KERN_I8:
        return three ? decode_i8_3 : decode_i8_1;
    case KERN_F32:
        break;
    }
    return three ? decode_f32_3 : decode_f32_1;
}

/* a += eight columns of nr rows of w times those of nt rows of x. */
INLINE void multiply(const float *w, const float *x, size_t nr, size_t nt, v8 (*a)[4])
{
    v8 wv[BAND];
    UNROLL
    for (size_t i = 0; i < nr; i++)
        wv[i] = v8_load(w + i * 8);
    UNROLL
    for (size_t j = 0; j < nt; j++) {
        v8 xv = v8_load(x + j * 8);
        UNROLL
        for (size_t i = 0; i < nr; i++)
            a[i][j] = v8_fma(wv[i], xv, a[i][j]);
    }
}

/* acc += nr rows of w times nt rows of x over n blocks, one v8 of the four at a time. */
INLINE void tile(const float *w, const float *x, float *acc, size_t n, size_t nr, size_t nt)
{
    for (size_t k = 0; k < 4; k++) {
        const float *wp = w + k * nr * TILE_BLOCKS * 8, *xp = x + k * nt * TILE_BLOCKS * 8;
        v8 a[BAND][4];
        UNROLL
        for (size_t i = 0; i < nr; i++)
            UNROLL
        for (size_t j = 0; j < nt; j++)
            a[i][j] = v8_load(acc + (i * nt + j) * 8);
        size_t b = 0;
        for (; b + UNFOLD <= n; b += UNFOLD) {
            UNROLL
            for (size_t u = 0; u < UNFOLD; u++)
                multiply(wp + u * nr * 8, xp + u * nt * 8, nr, nt, a);
            wp += UNFOLD * nr * 8;
            xp += UNFOLD * nt * 8;
        }
        for (; b < n; b++) {
            multiply(wp, xp, nr, nt, a);
            wp += nr * 8;
            xp += nt * 8;
        }
        UNROLL
        for (size_t i = 0; i < nr; i++)
            UNROLL
        for (size_t j = 0; j < nt; j++)
            v8_store(acc + (i * nt + j) * 8, a[i][j]);
        acc += nr * nt * 8;
    }
}

/* Not inlined, so that each stands there once, for all types. */
typedef void tile_fn(const float *w, const float *x, float *acc, size_t n);
#define TILE(name, nr, nt)                                                                 \
    static __attribute__((noinline)) void name(const float *w, const float *x, float *acc, \
                                               size_t n)                                   \
    {                                                                                      \
        tile(w, x, acc, n, nr, nt);                                                        \
    }
TILE(tile_3x4, 3, 4)
TILE(tile_3x3, 3, 3)
TILE(tile_3x2, 3, 2)
TILE(tile_3x1, 3, 1)
TILE(tile_1x4, 1, 4)
TILE(tile_1x3, 1, 3)
TILE(tile_1x2, 1, 2)
TILE(tile_1x1, 1, 1)
#undef TILE

/* acc += a chunk of n blocks, at w, times all rows of x. After each group of them some blocks of
 * the next chunk are decoded: so the units that decode and those that multiply are busy at once,
 * and the lines asked for from memory come evenly. */
INLINE void tiles(const struct kern_matmul *m, enum kern_type type, struct block *k, const float *w,
                  const float *x, size_t n, struct feed *f, size_t nr, size_t nt)
{
    struct source s = source_of(m, type);
    static tile_fn *const fn[2][4] = {{tile_1x1, tile_1x2, tile_1x3, tile_1x4},
                                      {tile_3x1, tile_3x2, tile_3x3, tile_3x4}};
    size_t groups = (nt + 3) / 4, per = (f->n + groups - 1) / groups;
    float *acc = k->acc;
    for (size_t j = 0, gt; j < nt; j += gt) {
        gt = group(nt - j);
        fn[nr == BAND][gt - 1](w, x + j * TILE_BLOCKS * LANES, acc, n);
        acc += nr * gt * LANES;
        decode_of(type, nr)(&s, f, per);
    }
}

INLINE struct feed feed(const struct kern_matmul *m, enum kern_type type, float *w, size_t row0,
                        size_t b0)
{
    struct source s = source_of(m, type);
    size_t left = kern_blocks(m->cols) - b0, whole = m->cols / LANES - b0;
    struct feed f = {.p = s.data + row0 * s.pitch + b0 * s.block,
                     .sc = type == KERN_MXFP4 ? s.scale + row0 * s.scale_pitch + b0 : s.data,
                     .w = w,
                     .n = left < TILE_BLOCKS ? left : TILE_BLOCKS};
    f.whole = whole < f.n ? whole : f.n;
    return f;
}

/* Decodes what tiles has left, also the cut block at the end of the rows. */
INLINE void drain(const struct kern_matmul *m, enum kern_type type, struct feed *f, size_t nr)
{
    struct source s = source_of(m, type);
    decode_of(type, nr)(&s, f, f->n);
    if (f->done == f->n)
        return;
    for (size_t i = 0; i < nr; i++) {
        uint8_t last[LANES * 4];
        struct load l = load(type, tail(type, f->p + i * s.pitch, m->cols % LANES, last),
                             f->sc + i * s.scale_pitch);
        for (size_t k = 0; k < 4; k++)
            v8_store(f->w + (k * TILE_BLOCKS * nr + i) * 8, part(type, &l, (int)k));
    }
}

static void store(const struct kern_matmul *m, const float *acc, size_t row0, size_t nr,
                  uint32_t t0, size_t nt)
{
    for (size_t j = 0, gt; j < nt; j += gt) {
        gt = group(nt - j);
        size_t by = nr * gt * 8;
        for (size_t jj = 0; jj < gt; jj++) {
            float *y = kern_matmul_y(m, t0 + (uint32_t)(j + jj)) + row0;
            for (size_t i = 0; i < nr; i++) {
                const float *a = acc + (i * gt + jj) * 8;
                v8 v[4] = {v8_load(a), v8_load(a + by), v8_load(a + 2 * by), v8_load(a + 3 * by)};
                y[i] = finish(m, m->type, row0 + i, v);
            }
        }
        acc += nr * gt * LANES;
    }
}

/* Rows of x of one tile: as many as share a decoding, divided evenly, by fours. */
INLINE size_t tile_tokens(uint32_t T)
{
    size_t n = ((size_t)T + TILE_TOKENS - 1) / TILE_TOKENS;
    return ((T + n - 1) / n + 3) / 4 * 4;
}

INLINE void rows_band(const struct kern_matmul *m, enum kern_type type, const float *x, size_t row,
                      size_t nr)
{
    struct block k;
    size_t blocks = kern_blocks(m->cols), most = tile_tokens(m->T);
    for (uint32_t t = 0; t < m->T; t += (uint32_t)most) {
        size_t nt = m->T - t < most ? m->T - t : most;
        memset(k.acc, 0, nr * nt * LANES * sizeof *k.acc);
        struct feed f = feed(m, type, k.w[0], row, 0);
        drain(m, type, &f, nr);
        for (size_t b = 0, n = f.n, odd = 0; b < blocks; b += n, n = f.n, odd ^= 1) {
            size_t next = b + n;
            f = feed(m, type, k.w[!odd], row, next);
            tiles(m, type, &k, k.w[odd], x + (b * m->T + t * TILE_BLOCKS) * LANES, n, &f, nr, nt);
            drain(m, type, &f, nr);
        }
        store(m, k.acc, row, nr, t, nt);
    }
}

INLINE void rows_tiled(const struct kern_matmul *m, enum kern_type type, const float *x,
                       size_t row0, size_t row1)
{
    size_t r = row0;
    for (; r + BAND <= row1; r += BAND)
        rows_band(m, type, x, r, BAND);
    /* The last rows again in a band of three, if there are three: the same results once more. */
    if (r < row1 && row1 - row0 >= BAND)
        rows_band(m, type, x, row1 - BAND, BAND);
    else
        for (; r < row1; r++)
            rows_band(m, type, x, r, 1);
}

/* Of row t of a tile of nt rows of x: where its group begins, and the size of that. */
INLINE size_t place(size_t t, size_t nt, size_t *size)
{
    size_t j = 0;
    *size = group(nt);
    while (t - j >= *size) {
        j += *size;
        *size = group(nt - j);
    }
    return j;
}
