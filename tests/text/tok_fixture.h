/* SPDX-License-Identifier: MIT
 * tok_fixture.h: the demo model's tokenizer, opened from tests/text/data. */
#ifndef SHOAL_TESTS_TOK_FIXTURE_H
#define SHOAL_TESTS_TOK_FIXTURE_H

#include "node/text/tok.h"

#include "proto/base/file.h"

#include <stdio.h>
#include <stdlib.h>

static inline struct buf fixture_file(const char *name)
{
    char path[1024];
    struct buf b;
    struct err e = {0};
    snprintf(path, sizeof path, SHOAL_TEST_DIR "/text/data/%s", name);
    buf_init(&b, 1 << 26);
    if (file_read_all(path, &b, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(2);
    }
    return b;
}

static inline struct tok *fixture_tok(void)
{
    struct buf ranks = fixture_file("demo.tiktoken.model");
    struct buf config = fixture_file("demo.tokenizer_config.json");
    struct tok *t = NULL;
    struct err e = {0};
    if (tok_open(ranks.p, ranks.n, config.p, config.n, &t, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(2);
    }
    buf_free(&ranks);
    buf_free(&config);
    return t;
}

#endif
