/* SPDX-License-Identifier: MIT
 * fuzz_encode.c: any bytes as a text. The first byte chooses trust and where the stream is cut; ids
 * must decode to the text as the streaming decoder reads it, whatever the cuts. */
#include "text/tok_fixture.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

static size_t decode(const uint8_t *p, size_t n, size_t cut, char *dst)
{
    struct tok_stream s = {0};
    size_t out = 0;
    for (size_t i = 0; i < n; i += cut) {
        out += tok_stream_push(&s, p + i, cut < n - i ? cut : n - i, dst + out);
        check(s.n <= 3);
    }
    return out + tok_stream_flush(&s, dst + out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tok *t; /* opened once: libFuzzer calls this from one thread, many times */
    if (!t) {
        t = fixture_tok();
    }
    if (!size) {
        return 0;
    }
    uint8_t mode = *data++;
    size--;
    char *text = malloc(TOK_STREAM_ROOM(size) + 3);
    char *other = malloc(TOK_STREAM_ROOM(size) + 3 * size + 3);
    check(text && other);
    size_t n = decode(data, size, size ? size : 1, text);
    check(n == decode(data, size, 1 + (mode >> 1) % 16, other) && !memcmp(text, other, n));
    struct tok_ids ids = {0};
    check(!tok_encode(t, (const char *)data, size, mode & 1, &ids, NULL));
    size_t at = 0;
    for (size_t i = 0; i < ids.n; i++) {
        size_t len;
        const char *p = tok_bytes(t, ids.v[i], &len);
        check(p && len <= n - at && !memcmp(text + at, p, len));
        check(mode & 1 || !tok_is_special(t, ids.v[i]));
        at += len;
    }
    check(at == n);
    tok_ids_free(&ids);
    free(text);
    free(other);
    return 0;
}
