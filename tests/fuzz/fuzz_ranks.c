/* SPDX-License-Identifier: MIT
 * fuzz_ranks.c: any bytes as a rank file and a tokenizer_config.json. The input is both, with one
 * zero byte between them (no zero byte: no config). What is accepted must work: every token has
 * bytes, encodes to its own id (its longest special in trusted text), and text comes back. */
#include "node/text/tok.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

static void encodes_to(const struct tok *t, uint32_t id)
{
    size_t n;
    const char *p = tok_bytes(t, id, &n);
    check(p && n);
    struct tok_ids ids = {0};
    check(!tok_encode(t, p, n, true, &ids, NULL));
    check(!tok_is_special(t, id) || (ids.n == 1 && ids.v[0] == id));
    tok_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t ranks_n = zero ? (size_t)(zero - data) : size;
    struct tok *t;
    struct err e = {0};
    int r = tok_open(data, ranks_n, zero ? (const char *)zero + 1 : NULL,
                     zero ? size - ranks_n - 1 : 0, &t, &e);
    if (r) {
        check(!t && e.code == r && e.msg[0]);
        return 0;
    }
    check(tok_vocab(t) == tok_ranks(t) + TOK_SPECIALS);
    for (uint32_t id = 0; id < tok_vocab(t); id++) {
        encodes_to(t, id);
    }
    size_t n;
    check(!tok_bytes(t, tok_vocab(t), &n));
    tok_close(t);
    return 0;
}
