/* SPDX-License-Identifier: MIT
 * pack_v16.h: the decoder of packed bf16 in vectors of sixteen bytes; compiled by pack_avx2.c and
 * pack_neon.c, which name the operations (v16_*) and the function.
 *
 * A first code is looked up two at a time: a nibble holds two of them, and two tables of sixteen
 * give the exponent of the lower and of the upper one, 0 where the code is 3. The exponents of the
 * second codes are unpacked beforehand into bytes one behind the other; eight of them at a time are
 * spread to the places where the first code is 3 (a table of 256 shuffles) and or'ed in. */
#include "kernels/pack_impl.h"

#include <string.h>

/* spread[m]: for each of eight places the number of set bits of m below it, 0x80 (a zero of the
 * shuffle) where its own bit is not set. */
#define P1(m, i) \
    ((m) >> (i)&1 ? (uint64_t)__builtin_popcount((m) & ((1u << (i)) - 1)) : (uint64_t)0x80)
#define P8(m)                                                                      \
    (P1(m, 0) | P1(m, 1) << 8 | P1(m, 2) << 16 | P1(m, 3) << 24 | P1(m, 4) << 32 | \
     P1(m, 5) << 40 | P1(m, 6) << 48 | P1(m, 7) << 56)
#define P4X(m) P8((m)), P8((m) + 1), P8((m) + 2), P8((m) + 3)
#define P16X(m) P4X(m), P4X((m) + 4), P4X((m) + 8), P4X((m) + 12)
#define P64X(m) P16X(m), P16X((m) + 16), P16X((m) + 32), P16X((m) + 48)
static const uint64_t spread[256] = {P64X(0u), P64X(64u), P64X(128u), P64X(192u)};

/* Eight times 3 bits to eight bytes. */
static inline uint64_t eight_codes(uint64_t w)
{
    w &= 0xffffff;
    w = (w | w << 20) & 0x00000fff00000fff;
    w = (w | w << 10) & 0x003f003f003f003f;
    return (w | w << 5) & 0x0707070707070707;
}

/* Exponents of the second codes, sixteen bytes of slack behind them. */
static void second_codes(const struct pack_block *b, uint8_t exps[KERN_PACK_BLOCK + 16])
{
    uint8_t table[16] = {0}, last[8] = {0};
    uint32_t bytes = (3 * b->others + 7) / 8, at = 0, i = 0;
    memcpy(table, b->next, 8);
    v16 t = v16_load(table);
    for (; i < b->others; i += 16, at += 6) {
        const uint8_t *from = b->second + at;
        if (bytes - at < 8) { /* the last ones, and nothing of what is behind them */
            memcpy(last, from, bytes - at);
            from = last;
        }
        uint64_t w;
        memcpy(&w, from, 8);
        uint64_t codes[2] = {eight_codes(w), eight_codes(w >> 24)};
        v16_store(exps + i, v16_shuffle(t, v16_load(codes)));
    }
    memset(exps + b->others, 0, 16);
}

/* One bit for each of eight codes: is it 3? */
static inline unsigned threes_of(unsigned codes)
{
    unsigned m = codes & codes >> 1 & 0x5555;
    m = (m | m >> 1) & 0x3333;
    m = (m | m >> 2) & 0x0f0f;
    return (m | m >> 4) & 0xff;
}

static void decode(const struct pack_block *b, uint16_t *v)
{
    uint8_t exps[KERN_PACK_BLOCK + 16], lo[16], hi[16];
    const uint8_t *e = exps;
    second_codes(b, exps);
    for (unsigned i = 0; i < 16; i++) {
        lo[i] = (i & 3) < 3 ? b->top[i & 3] : 0;
        hi[i] = i >> 2 < 3 ? b->top[i >> 2] : 0;
    }
    v16 tlo = v16_load(lo), thi = v16_load(hi);
    uint32_t i = 0;
    for (; i + 64 <= b->n; i += 64) {
        v16 f = v16_load(b->first + i / 4), f0 = v16_low_nibbles(f), f1 = v16_high_nibbles(f);
        v16 a = v16_shuffle(tlo, f0), c = v16_shuffle(thi, f0);
        v16 g = v16_shuffle(tlo, f1), h = v16_shuffle(thi, f1);
        v16 ac0 = v16_zip_lo8(a, c), ac1 = v16_zip_hi8(a, c);
        v16 gh0 = v16_zip_lo8(g, h), gh1 = v16_zip_hi8(g, h);
        v16 x[4] = {v16_zip_lo16(ac0, gh0), v16_zip_hi16(ac0, gh0), v16_zip_lo16(ac1, gh1),
                    v16_zip_hi16(ac1, gh1)};
        for (unsigned k = 0; k < 4; k++) {
            unsigned codes;
            memcpy(&codes, b->first + i / 4 + 4 * k, 4);
            unsigned m0 = threes_of(codes & 0xffff), m1 = threes_of(codes >> 16);
            uint64_t s[2] = {spread[m0], spread[m1]}, from[2];
            memcpy(&from[0], e, 8);
            e += __builtin_popcount(m0);
            memcpy(&from[1], e, 8);
            e += __builtin_popcount(m1);
            v16 y = v16_or(x[k], v16_shuffle_halves(from, s));
            v16 l = v16_load(b->low + i + 16 * k);
            v16_store(v + i + 16 * k, v16_ror1_16(v16_zip_lo8(l, y)));
            v16_store(v + i + 16 * k + 8, v16_ror1_16(v16_zip_hi8(l, y)));
        }
    }
    for (; i < b->n; i++) {
        unsigned c = b->first[i / 4] >> i % 4 * 2 & 3;
        uint32_t w = (uint32_t)(c < 3 ? b->top[c] : *e++) << 8 | b->low[i];
        v[i] = (uint16_t)(w >> 1 | w << 15);
    }
}
