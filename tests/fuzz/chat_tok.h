/* SPDX-License-Identifier: MIT
 * chat_tok.h: the smallest tokenizer with K3's structure: 256 byte tokens and the special ids, for
 * the fuzz targets of the chat form. */
#ifndef SHOAL_TESTS_FUZZ_CHAT_TOK_H
#define SHOAL_TESTS_FUZZ_CHAT_TOK_H

#include "node/text/tok.h"

#include "proto/base/buf.h"

#include <stdio.h>
#include <stdlib.h>

static inline struct tok *chat_tok(void)
{
    static const char b64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char *const names[] = {"[BOS]",    "[EOS]",     "<|end_of_msg|>",
                                        "<|open|>", "<|close|>", "<|sep|>"};
    struct buf ranks, config;
    struct tok *t = NULL;
    struct err e = {0};
    buf_init(&ranks, 1 << 16);
    buf_init(&config, 1 << 16);
    for (int i = 0; i < 256; i++) {
        buf_addf(&ranks, "%c%c== %d\n", b64[i >> 2], b64[(i & 3) << 4], i);
    }
    buf_adds(&config, "{\"added_tokens_decoder\":{");
    for (int i = 0; i < 6; i++) {
        buf_addf(&config, "%s\"%d\":{\"content\":\"%s\",\"special\":%s}", i ? "," : "", 256 + i,
                 names[i], i < 3 ? "true" : "false");
    }
    buf_adds(&config, "}}");
    if (tok_open(ranks.p, ranks.n, config.p, config.n, &t, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(2);
    }
    buf_free(&ranks);
    buf_free(&config);
    return t;
}

#endif
