/* SPDX-License-Identifier: MIT
 * b32.c: see b32.h. */
#include "peer/b32.h"

#include <stdbool.h>
#include <string.h>

static const char alphabet[33] = "0123456789abcdefghjkmnpqrstvwxyz";

void b32_encode(const void *p, size_t n, char *out)
{
    const uint8_t *b = p;
    uint32_t acc = 0;
    int bits = 0;
    for (size_t i = 0; i < n; i++) {
        acc = (acc << 8 | b[i]) & 0xfff; /* at most 4 bits are left over from before */
        bits += 8;
        while (bits >= 5) {
            bits -= 5;
            *out++ = alphabet[acc >> bits & 31];
        }
    }
    if (bits) {
        *out++ = alphabet[acc << (5 - bits) & 31];
    }
    *out = 0;
}

int b32_value(char c)
{
    const char *at = c ? memchr(alphabet, c, 32) : NULL;
    return at ? (int)(at - alphabet) : -1;
}

int b32_decode(const char *s, size_t chars, void *out, size_t cap, size_t *n)
{
    uint8_t *b = out;
    uint32_t acc = 0;
    int bits = 0;
    size_t done = 0;
    for (size_t i = 0; i < chars; i++) {
        int v = b32_value(s[i]);
        if (v < 0) {
            return ERR_FORMAT;
        }
        acc = (acc << 5 | (uint32_t)v) & 0xfff;
        bits += 5;
        if (bits >= 8) {
            bits -= 8;
            if (done == cap) {
                return ERR_LIMIT;
            }
            b[done++] = (uint8_t)(acc >> bits);
        }
    }
    if (bits >= 5 || (acc & ((1u << bits) - 1))) {
        return ERR_FORMAT;
    }
    *n = done;
    return 0;
}

/* The code point at s and its bytes; malformed UTF-8 gives 0xfffd and one byte. */
static uint32_t code_point(const unsigned char *s, size_t n, size_t *len)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t k = s[0] < 0x80             ? 1
               : (s[0] & 0xe0) == 0xc0 ? 2
               : (s[0] & 0xf0) == 0xe0 ? 3
               : (s[0] & 0xf8) == 0xf0 ? 4
                                       : 0;
    *len = 1;
    if (k == 1) {
        return s[0];
    }
    if (!k || k > n) {
        return 0xfffd;
    }
    uint32_t c = s[0] & (0x7fu >> k);
    for (size_t i = 1; i < k; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0xfffd;
        }
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (c < least[k] || c > 0x10ffff) {
        return 0xfffd;
    }
    *len = k;
    return c;
}

static bool ignored(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0x09, 0x0d},     {0x20, 0x20},     {0x22, 0x22},     {0x27, 0x27},     {0x2d, 0x2d},
        {0x3c, 0x3c},     {0x3e, 0x3e},     {0x60, 0x60},     {0x85, 0x85},     {0xa0, 0xa0},
        {0xab, 0xab},     {0xad, 0xad},     {0xbb, 0xbb},     {0x61c, 0x61c},   {0x1680, 0x1680},
        {0x180e, 0x180e}, {0x2000, 0x2015}, {0x2018, 0x201f}, {0x2028, 0x202f}, {0x205f, 0x206f},
        {0x2212, 0x2212}, {0x3000, 0x3000}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (c >= ranges[i][0] && c <= ranges[i][1]) {
            return true;
        }
    }
    return false;
}

int b32_clean(const char *what, const char *s, size_t n, struct buf *out, struct err *e)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t place = 0;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t c = code_point(p + i, n - i, &len);
        place++;
        if (ignored(c)) {
            continue;
        }
        if (c >= 'A' && c <= 'Z') {
            c += 'a' - 'A';
        }
        c = c == 'o' ? '0' : c == 'i' || c == 'l' ? '1' : c;
        if (c >= 0x80 || b32_value((char)c) < 0) {
            if (c > 0x20 && c < 0x7f) {
                return err_set(e, ERR_FORMAT,
                               "character %zu ('%c') does not belong in %s: copy it again", place,
                               (int)c, what);
            }
            return err_set(e, ERR_FORMAT,
                           "character %zu (U+%04X) does not belong in %s: copy it again", place,
                           (unsigned)c, what);
        }
        char one = (char)c;
        int r = buf_add(out, &one, 1);
        if (r) {
            return err_set(e, r, "%s is shorter than that: copy it again, and nothing else", what);
        }
    }
    return 0;
}
