/* SPDX-License-Identifier: MIT
 * bench_tok.c: seconds to tokenise the texts that make tokenizers slow.
 * usage: bench_tok [RANKS] (default: the demo model's; the released one may be given)
 * Seconds are of processor time: the work has one thread, and other programs may be running.
 * Exit 1 when a case takes a second or more. */
#include "node/text/tok.h"

#include "proto/base/file.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    const char *unit;
    size_t bytes; /* the unit is repeated to this many bytes, rounded down */
} cases[] = {
    {"one character", "a", 1000000},
    {"spaces", " ", 1000000},
    {"newlines", "\n", 1000000},
    {"combining marks", "\xcc\x81", 1000000},
    {"digits", "7", 1000000},
    {"punctuation", "!", 1000000},
    {"Han", "\xe4\xb8\xad", 1000000},
    {"CR LF", "\r\n", 1000000},
    {"25,000 letters of 4 bytes", "\xf0\x90\x90\x80", 100000},
    {"a piece of 400,000 code points", "\xf0\x9f\x98\x80\x1c", 1000000},
    {"beginnings of specials", "<|reserved_token_", 1000000},
    {"invalid bytes", "\xff\xc0", 1000000},
    {"English", "I thought I'd sail about a little and see the watery part of the world. ",
     1000000},
};

static double cpu_s(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct buf ranks;
    buf_init(&ranks, TOK_MAX_FILE);
    const char *path = argc > 1 ? argv[1] : SHOAL_TEST_DIR "/text/data/demo.tiktoken.model";
    struct tok *t;
    double t0 = cpu_s();
    if (file_read_all(path, &ranks, &e) || tok_open(ranks.p, ranks.n, NULL, 0, &t, &e)) {
        fprintf(stderr, "bench_tok: %s: %s\n", path, e.msg);
        return 2;
    }
    printf("%-32s %9u ids   %7.3f s\n", "opening", tok_vocab(t), cpu_s() - t0);
    buf_free(&ranks);
    int slow = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf text;
        buf_init(&text, cases[i].bytes);
        while (!buf_adds(&text, cases[i].unit)) {
        }
        struct tok_ids ids = {0};
        t0 = cpu_s();
        if (tok_encode(t, text.p, text.n, true, &ids, &e)) {
            fprintf(stderr, "bench_tok: %s: %s\n", cases[i].name, e.msg);
            return 2;
        }
        double s = cpu_s() - t0;
        printf("%-32s %9zu bytes %7.3f s %9zu ids%s\n", cases[i].name, text.n, s, ids.n,
               s >= 1 ? "  SLOW" : "");
        slow |= s >= 1;
        tok_ids_free(&ids);
        buf_free(&text);
    }
    tok_close(t);
    return slow;
}
