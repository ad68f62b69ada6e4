/* SPDX-License-Identifier: MIT
 * tok_driver.c: the tokenizer on standard input and output, for comparison with others.
 * usage: tok_driver RANKS [CONFIG]
 * A request is: one byte (1 = trusted), the length as 4 bytes little-endian, the text. The answer
 * is: the number of ids, then the ids, 4 bytes little-endian each. Ends at the end of input. */
#include "node/text/tok.h"

#include "proto/base/file.h"
#include "proto/base/num.h"

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what)
{
    fprintf(stderr, "tok_driver: %s\n", what);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        return fail("usage: tok_driver RANKS [CONFIG]");
    }
    struct err e = {0};
    struct buf ranks, config;
    buf_init(&ranks, TOK_MAX_FILE);
    buf_init(&config, TOK_MAX_CONFIG);
    struct tok *t;
    if (file_read_all(argv[1], &ranks, &e) || (argc > 2 && file_read_all(argv[2], &config, &e)) ||
        tok_open(ranks.p, ranks.n, argc > 2 ? config.p : NULL, config.n, &t, &e)) {
        return fail(e.msg);
    }
    buf_free(&ranks);
    buf_free(&config);
    struct tok_ids ids = {0};
    struct buf text, answer;
    buf_init(&text, TOK_MAX_TEXT);
    buf_init(&answer, TOK_MAX_TEXT);
    uint8_t head[5];
    while (fread(head, 1, sizeof head, stdin) == sizeof head) {
        size_t n = num_get_le32(head + 1);
        text.n = 0;
        if (buf_reserve(&text, n) || fread(text.p, 1, n, stdin) != n) {
            return fail("the input ends within a text");
        }
        ids.n = 0;
        if (tok_encode(t, text.p, n, head[0] == 1, &ids, &e)) {
            return fail(e.msg);
        }
        answer.n = 0;
        if (buf_reserve(&answer, 4 * (ids.n + 1))) {
            return fail("the answer is too long");
        }
        num_put_le32(answer.p, (uint32_t)ids.n);
        for (size_t i = 0; i < ids.n; i++) {
            num_put_le32(answer.p + 4 * (i + 1), ids.v[i]);
        }
        fwrite(answer.p, 4, ids.n + 1, stdout);
        if (fflush(stdout)) {
            return fail("cannot write the answer");
        }
    }
    tok_ids_free(&ids);
    buf_free(&text);
    buf_free(&answer);
    tok_close(t);
    return 0;
}
