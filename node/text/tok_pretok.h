/* SPDX-License-Identifier: MIT
 * tok_pretok.h: the pre-tokeniser: cuts a text into the pieces that are merged one by one. */
#ifndef SHOAL_TEXT_TOK_PRETOK_H
#define SHOAL_TEXT_TOK_PRETOK_H

#include <stddef.h>
#include <stdint.h>

/* Code points of valid UTF-8: flags[i] is unicode_class of the i-th, which begins at
 * text + off[i]; off[n] is where the last one ends. The text ends at n: nothing behind is read. */
struct pretok {
    const uint8_t *text;
    const uint8_t *flags;
    const uint32_t *off;
    size_t n;
};

/* The end of the piece that begins at code point i < n; i < result <= n. */
size_t pretok_next(const struct pretok *p, size_t i);

#endif
