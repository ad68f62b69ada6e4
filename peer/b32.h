/* SPDX-License-Identifier: MIT
 * b32.h: bytes as text that people read aloud, retype and paste: Crockford's base 32, lower case
 * (digits and letters without i, l, o, u). Reading takes either case, o for 0 and i or l for 1.
 * Pure functions. */
#ifndef SHOAL_PEER_B32_H
#define SHOAL_PEER_B32_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdint.h>

/* Characters for n bytes, without the NUL. */
#define B32_CHARS(n) (((n)*8 + 4) / 5)

/* B32_CHARS(n) characters and a NUL. */
void b32_encode(const void *p, size_t n, char *out);
/* The value 0..31 of one character of cleaned text, or -1. */
int b32_value(char c);
/* Exactly the bytes that encode to these `chars` characters: a character outside the alphabet, a
 * count no byte string encodes to or leftover bits that are not zero are ERR_FORMAT; more than
 * `cap` bytes are ERR_LIMIT. */
int b32_decode(const char *s, size_t chars, void *out, size_t cap, size_t *n);
/* Append to *out what is left of pasted text: white space and line breaks of any kind, zero-width
 * and direction marks, dashes, quotes and the marks of a quoted mail (">") are dropped, look-alikes
 * mapped, letters lowered. Anything else is ERR_FORMAT, and the sentence names the character and
 * its place; `what` is what the text should be ("an invite"). */
int b32_clean(const char *what, const char *s, size_t n, struct buf *out, struct err *e);

#endif
