/* SPDX-License-Identifier: MIT
 * tok_utf8.c: UTF-8 by table 3-7 of the Unicode standard, and the streaming decoder of tok.h. */
#include "node/text/tok_utf8.h"

#include "node/text/tok.h"

#include <string.h>

int32_t utf8_next(const uint8_t *p, size_t n, unsigned *len)
{
    uint8_t b = p[0];
    *len = 1;
    if (b < 0x80) {
        return b;
    }
    unsigned more;
    uint8_t lo = 0x80, hi = 0xbf; /* bounds of the second byte; later ones are always 80..BF */
    int32_t c;
    if (b >= 0xc2 && b <= 0xdf) {
        more = 1;
        c = b & 0x1f;
    } else if (b >= 0xe0 && b <= 0xef) {
        more = 2;
        c = b & 0x0f;
        lo = b == 0xe0 ? 0xa0 : lo; /* no overlong form */
        hi = b == 0xed ? 0x9f : hi; /* no surrogate */
    } else if (b >= 0xf0 && b <= 0xf4) {
        more = 3;
        c = b & 0x07;
        lo = b == 0xf0 ? 0x90 : lo;
        hi = b == 0xf4 ? 0x8f : hi; /* nothing over U+10FFFF */
    } else {
        return UTF8_BAD;
    }
    for (unsigned i = 1; i <= more; i++) {
        if (i == n) {
            return UTF8_SHORT;
        }
        if (p[i] < lo || p[i] > hi) {
            return UTF8_BAD; /* the bytes before this one are the maximal subpart */
        }
        c = c << 6 | (p[i] & 0x3f);
        *len = i + 1;
        lo = 0x80;
        hi = 0xbf;
    }
    return c;
}

unsigned utf8_put(uint32_t c, char *dst)
{
    if (c < 0x80) {
        dst[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        dst[0] = (char)(0xc0 | c >> 6);
        dst[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        dst[0] = (char)(0xe0 | c >> 12);
        dst[1] = (char)(0x80 | (c >> 6 & 0x3f));
        dst[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    dst[0] = (char)(0xf0 | c >> 18);
    dst[1] = (char)(0x80 | (c >> 12 & 0x3f));
    dst[2] = (char)(0x80 | (c >> 6 & 0x3f));
    dst[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Decode p[0..n) to dst; returns how many input bytes were used: all but an unfinished end. */
static size_t decode(const uint8_t *p, size_t n, char *dst, size_t *out)
{
    size_t i = 0;
    while (i < n) {
        unsigned len;
        int32_t c = utf8_next(p + i, n - i, &len);
        if (c == UTF8_SHORT) {
            break;
        }
        if (c == UTF8_BAD) {
            *out += utf8_put(UTF8_REPLACEMENT, dst + *out);
        } else {
            memcpy(dst + *out, p + i, len);
            *out += len;
        }
        i += len;
    }
    return i;
}

size_t tok_stream_push(struct tok_stream *s, const void *p, size_t n, char *dst)
{
    const uint8_t *b = p;
    size_t out = 0, i = 0;
    while (s->n && i < n) { /* complete what is held, one byte at a time: at most 3 rounds */
        s->held[s->n++] = b[i++];
        size_t used = decode(s->held, s->n, dst, &out);
        memmove(s->held, s->held + used, s->n - used);
        s->n = (uint8_t)(s->n - used);
    }
    i += decode(b + i, n - i, dst, &out);
    while (i < n) {
        s->held[s->n++] = b[i++];
    }
    return out;
}

size_t tok_stream_flush(struct tok_stream *s, char *dst)
{
    if (!s->n) {
        return 0;
    }
    s->n = 0;
    return utf8_put(UTF8_REPLACEMENT, dst);
}
