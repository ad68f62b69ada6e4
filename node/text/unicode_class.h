/* SPDX-License-Identifier: MIT
 * unicode_class.h: what the pre-tokeniser asks about a code point, by Unicode 16.0.0. */
#ifndef SHOAL_TEXT_UNICODE_CLASS_H
#define SHOAL_TEXT_UNICODE_CLASS_H

#include <stdbool.h>
#include <stdint.h>

#define UNICODE_VERSION "16.0.0"

/* Flags of a code point. gen/unicode_tables.mjs reads these numbers. */
#define UC_UPPER 0x01  /* Lu, Lt, Lm, Lo or M, and not of the script Han */
#define UC_LOWER 0x02  /* Ll, Lm, Lo or M, and not of the script Han */
#define UC_LETTER 0x04 /* L */
#define UC_NUMBER 0x08 /* N */
#define UC_HAN 0x10    /* Script=Han */
#define UC_SPACE 0x20  /* White_Space, the \s of regular expressions */
#define UC_CRLF 0x40   /* U+000A and U+000D */

/* Private to unicode_class: class number -> flags, block of 64 -> place, place -> class number. */
extern const uint8_t unicode_flags[];
extern const uint16_t unicode_index[];
extern const uint8_t unicode_block[];

/* The flags of c <= U+10FFFF. */
static inline uint8_t unicode_class(uint32_t c)
{
    return unicode_flags[unicode_block[(uint32_t)unicode_index[c >> 6] << 6 | (c & 63)]];
}

/* Python's str.isspace for one character: White_Space and the four separators U+001C..001F. */
static inline bool unicode_python_space(uint32_t c)
{
    return unicode_class(c) & UC_SPACE || (c >= 0x1c && c <= 0x1f);
}

#endif
