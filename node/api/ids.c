/* SPDX-License-Identifier: MIT
 * ids.c: see ids.h. */
#include "node/api/ids.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

void ids_make(const char *prefix, size_t n, char *out, size_t room)
{
    static const char chars[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    unsigned char r[64] = {0};
    size_t at = strlen(prefix);
    n = n < sizeof r ? n : sizeof r;
    if (room == 0 || at + n + 1 > room || getentropy(r, n) != 0) {
        n = 0;
    }
    at = at < room ? at : 0;
    memcpy(out, prefix, at);
    for (size_t i = 0; i < n; i++) {
        out[at++] = chars[r[i] % 62];
    }
    if (room) {
        out[at] = 0;
    }
}
