/* SPDX-License-Identifier: MIT
 * cases.h: commands in Kimi K3's shapes over made-up operands, whole or with fewer rows and heads;
 * for the self-test of a GPU at its first start, and for the tests. Plain C. */
#ifndef SHOAL_SHADERS_CASES_H
#define SHOAL_SHADERS_CASES_H

#include "kernels/backend.h"

/* TAME: about 1. WIDE: zero or 2^-62 to 2^20, as stored activations may be. HOSTILE: anything:
 * subnormals, infinities, NaN, both zeros, extremes. */
enum case_mood { CASE_TAME, CASE_WIDE, CASE_HOSTILE };

struct case_out { /* bytes of the arena that the command writes, words */
    size_t off, size;
};

struct case_built {
    const char *name;
    struct kern_cmd cmd;
    struct case_out out[2];
    unsigned outs;
    size_t bytes;   /* that must travel from and to memory */
    size_t weights; /* bytes of the matrix at its place in the arena; 0 = none */
    double flop;
};

/* How much smaller than K3: rows of weights, heads and channels, positions. 1, 1, 1 is K3. */
struct case_scale {
    uint32_t rows, heads, positions;
};

size_t case_count(void);
const char *case_name(size_t i);
/* Bytes that the arena of case i must have. */
size_t case_arena(size_t i, const struct case_scale *s);
/* Fills arena->host (zero before, page-aligned, large enough) with operands and describes the
 * command over it. */
void case_build(size_t i, const struct case_scale *s, enum case_mood mood, struct kern_buf *arena,
                struct case_built *b);

/* The first difference of the outputs, any NaN equal to any NaN: byte offset, or SIZE_MAX. */
size_t case_compare(const struct case_built *b, const void *want, const void *got);

#endif
