/* SPDX-License-Identifier: MIT
 * chat_str.c: see chat_str.h. */
#include "node/text/chat_str.h"

#include <string.h>

bool chat_blank(const char *s, size_t n)
{
    static const char *const wide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80",
                                       "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF",
                                       "\xE2\x81\x9F", "\xE3\x80\x80"};
    for (size_t i = 0, step; i < n; i += step) {
        unsigned char c = (unsigned char)s[i];
        step = (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
        if (n - i >= 3 && !memcmp(s + i, "\xE2\x80", 2) && (unsigned char)s[i + 2] >= 0x80 &&
            (unsigned char)s[i + 2] <= 0x8A) {
            step = 3; /* U+2000..200A */
        }
        for (size_t k = 0; !step && k < sizeof wide / sizeof *wide; k++) {
            size_t len = strlen(wide[k]);
            step = n - i >= len && !memcmp(s + i, wide[k], len) ? len : 0;
        }
        if (!step) {
            return false;
        }
    }
    return true;
}

const char *chat_shown(const char *s, size_t n, char out[CHAT_SHOWN])
{
    size_t keep = n;
    if (n > 40) {
        keep = 40;
        while (keep && ((unsigned char)s[keep] & 0xC0) == 0x80) {
            keep--;
        }
    }
    for (size_t i = 0; i < keep; i++) {
        unsigned char c = (unsigned char)s[i];
        out[i] = c < 0x20 || c == 0x7F || c == '`' || c == '"' ? '?' : s[i];
    }
    memcpy(out + keep, keep < n ? "..." : "", keep < n ? 4 : 1);
    return out;
}
