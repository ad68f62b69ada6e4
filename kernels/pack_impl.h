/* SPDX-License-Identifier: MIT
 * pack_impl.h: private to pack*.c: one packed block taken apart, and who unpacks it. */
#ifndef SHOAL_KERNELS_PACK_IMPL_H
#define SHOAL_KERNELS_PACK_IMPL_H

#include "kernels/isa.h"
#include "kernels/pack.h"

/* A block of mode 1 whose lengths are right: `others` is how many first codes are 3. */
struct pack_block {
    uint32_t n, others, patches;
    const uint8_t *top, *next;    /* 3 and 8 exponents */
    const uint8_t *low, *first;   /* n bytes; (n + 3) / 4 bytes */
    const uint8_t *second, *list; /* (3 * others + 7) / 8 bytes; 3 * patches bytes */
};

/* Writes v[0..n) but for the patches. */
typedef void pack_decode_fn(const struct pack_block *b, uint16_t *v);
pack_decode_fn pack_decode_scalar;
#ifdef KERN_HAVE_AVX2
pack_decode_fn pack_decode_avx2;
#endif
#ifdef KERN_HAVE_NEON
pack_decode_fn pack_decode_neon;
#endif

#endif
