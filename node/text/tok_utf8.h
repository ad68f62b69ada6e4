/* SPDX-License-Identifier: MIT
 * tok_utf8.h: reading UTF-8 one code point at a time, tolerant of invalid bytes. */
#ifndef SHOAL_TEXT_TOK_UTF8_H
#define SHOAL_TEXT_TOK_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xfffdu

/* Results of utf8_next: a code point, or one of these. */
#define UTF8_BAD (-1)   /* invalid: *len bytes form one maximal invalid subpart */
#define UTF8_SHORT (-2) /* valid so far, but the text ends within the character (*len bytes) */

/* Read the character at p[0..n), n > 0. *len is 1..4 and at most n. */
int32_t utf8_next(const uint8_t *p, size_t n, unsigned *len);
/* Write c (a Unicode scalar value) as UTF-8; returns the length, 1..4. */
unsigned utf8_put(uint32_t c, char *dst);

#endif
