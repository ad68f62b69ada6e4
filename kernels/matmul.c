/* SPDX-License-Identifier: MIT
 * matmul.c: which instruction set's product runs, and the MXFP4 table that all of them share. */
#include "kernels/matmul_impl.h"

/* value(n) * 2^(s-127) has the binary32 exponent field s + E(n), E(1) = -1 (0.5), E(2, 3) = 0 (1,
 * 1.5), E(4, 5) = 1 (2, 3), E(6, 7) = 2 (4, 6), and its one fraction bit is the nibble's lowest
 * except in 0.5. UPPER gives the upper 16 bits of the magnitude: NaN for s = 255, infinity above
 * the range, a shifted fraction where the field would be 0 or -1. */
/* clang-format off */
#define FIELD(s, n) ((s) + ((n) & 7) / 2 - 1)
#define FRACTION(n) (((n) & 7) == 1 ? 0 : (n) & 1)
#define UPPER(s, n)                                                \
    ((s) == 255           ? 0x7fc0                                 \
     : ((n) & 7) == 0     ? 0                                      \
     : FIELD(s, n) >= 255 ? 0x7f80                                 \
     : FIELD(s, n) >= 1   ? FIELD(s, n) * 0x80 + FRACTION(n) * 0x40 \
     : FIELD(s, n) == 0   ? 0x40 + FRACTION(n) * 0x20              \
                          : 0x20)
#define HI(s, n) (uint8_t)((UPPER(s, n) >> 8) + ((n) & 8) * 0x10)
#define LO(s, n) (uint8_t)(UPPER(s, n) & 0xff)
#define FOUR(f, s, n) f(s, n), f(s, n + 1), f(s, n + 2), f(s, n + 3)
#define SIXTEEN(f, s) FOUR(f, s, 0), FOUR(f, s, 4), FOUR(f, s, 8), FOUR(f, s, 12)
#define ROW(s) {SIXTEEN(HI, s), SIXTEEN(LO, s)}
#define ROWS4(s) ROW(s), ROW(s + 1), ROW(s + 2), ROW(s + 3)
#define ROWS16(s) ROWS4(s), ROWS4(s + 4), ROWS4(s + 8), ROWS4(s + 12)
#define ROWS64(s) ROWS16(s), ROWS16(s + 16), ROWS16(s + 32), ROWS16(s + 48)

const uint8_t kern_mxfp4_bytes[256][32] __attribute__((aligned(64))) = {
    ROWS64(0), ROWS64(64), ROWS64(128), ROWS64(192)};
/* clang-format on */

static const struct kern_matmul_ops *ops(enum kern_isa isa)
{
#ifdef KERN_HAVE_AVX2
    if (isa == KERN_ISA_AVX2)
        return &kern_matmul_avx2;
#endif
#ifdef KERN_HAVE_NEON
    if (isa == KERN_ISA_NEON)
        return &kern_matmul_neon;
#endif
    return &kern_matmul_scalar;
}

size_t kern_matmul_scratch(const struct kern_matmul *m, enum kern_isa isa)
{
    return ops(isa)->scratch(m);
}

void kern_matmul_prepare(const struct kern_matmul *m, enum kern_isa isa, void *scratch, uint32_t t0,
                         uint32_t t1)
{
    ops(isa)->prepare(m, scratch, t0, t1);
}

void kern_matmul_rows(const struct kern_matmul *m, enum kern_isa isa, const void *scratch,
                      uint32_t row0, uint32_t row1)
{
    ops(isa)->rows(m, scratch, row0, row1);
}

size_t kern_matmul_peak(enum kern_isa isa, size_t turns, float *sink)
{
    const struct kern_matmul_ops *o = ops(isa);
    if (!o->peak)
        return 0;
    *sink = o->peak(turns);
    return turns * o->per_turn;
}
