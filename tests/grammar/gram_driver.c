/* SPDX-License-Identifier: MIT
 * gram_driver.c: grammars for another program to judge. Reads one JSON request a line:
 *
 *   {"schema": S, "draw": N, "seed": K, "most": TOKENS, "call": bool, "fits": ["text", ...]}
 *
 * and answers one line: {"error": "..."} when the schema is refused, or {"drawn": [texts], "open":
 * how many did not end within `most` tokens, "fits": [bool, ...]}. Texts are drawn from masks
 * alone. With "call" the schema is that of a strict tool's arguments: whole answers are drawn, read
 * back by node/text/parse.h, and what comes out are the arguments. */
#include "tests/grammar/gram_kit.h"

#include "node/text/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES ((size_t)8 << 20)

static void die(const char *why)
{
    fprintf(stderr, "gram_driver: %s\n", why);
    exit(2);
}

static size_t number(const struct pyjson *v, const char *key, size_t otherwise)
{
    const struct pyjson *x = pyjson_get(v, key);
    return x && x->type == PYJSON_NUMBER ? strtoul(x->s, NULL, 10) : otherwise;
}

static void add(struct buf *out, const char *s)
{
    if (buf_adds(out, s)) {
        die("an answer of more than 64 MiB");
    }
}

static void add_string(struct buf *out, const char *s, size_t n)
{
    if (pyjson_write_string(s, n, out)) {
        die("an answer of more than 64 MiB");
    }
}

/* The arguments of the one call in an answer. */
static void read_call(const struct gram_kit *k, const struct tok_ids *ids, struct buf *out)
{
    struct parse *p;
    struct parse_answer a = {0};
    struct err e = {0};
    if (parse_open(k->t, false, parse_collect, &a, &p, &e) || parse_feed(p, ids->v, ids->n, &e) ||
        parse_finish(p, &e)) {
        die(e.msg);
    }
    parse_close(p);
    if (a.reason != PARSE_MESSAGE || a.ncalls != 1 || strcmp(a.calls[0].name, "f") != 0) {
        die("an answer of the grammar is not read back as one call");
    }
    add_string(out, a.calls[0].arguments, a.calls[0].arguments_n);
    parse_answer_free(&a);
}

static int make(const struct gram_kit *k, const struct pyjson *schema, bool call,
                struct grammar **g, struct err *e)
{
    struct grammar_tool tool = {"f", schema, true};
    struct grammar_answer a = {
        .calls = GRAMMAR_MUST_CALL, .one_call = true, .tools = &tool, .n_tools = 1};
    return call ? grammar_answer(&a, k->t, g, e) : grammar_json(schema, g, e);
}

static void serve(const struct gram_kit *k, const struct pyjson *q, struct buf *out)
{
    struct grammar *g;
    struct err e = {0};
    const struct pyjson *c = pyjson_get(q, "call"), *fits = pyjson_get(q, "fits");
    bool call = c && c->type == PYJSON_TRUE;
    if (make(k, pyjson_get(q, "schema"), call, &g, &e)) {
        add(out, "{\"error\": ");
        add_string(out, e.msg, strlen(e.msg));
        add(out, "}");
        return;
    }
    uint64_t seed = number(q, "seed", 1);
    size_t n = number(q, "draw", 0), most = number(q, "most", 200), open = 0, done = 0;
    add(out, "{\"drawn\": [");
    for (size_t i = 0; i < n; i++) {
        struct tok_ids ids = {0};
        struct buf text;
        buf_init(&text, LINE_MAX_BYTES);
        if (!gram_kit_draw(k, g, &seed, most, &ids)) {
            open++;
        } else {
            add(out, done++ ? ", " : "");
            if (call) {
                read_call(k, &ids, out);
            } else {
                gram_kit_text(k, &ids, &text);
                add_string(out, text.p ? text.p : "", text.n);
            }
        }
        tok_ids_free(&ids);
        buf_free(&text);
    }
    buf_addf(out, "], \"open\": %zu, \"fits\": [", open);
    for (size_t i = 0; fits && i < fits->count; i++) {
        const struct pyjson *t = fits->items[i];
        add(out, i ? ", " : "");
        add(out, gram_kit_fits(k, g, t->s, t->n) ? "true" : "false");
    }
    add(out, "]}");
    grammar_free(g);
}

int main(void)
{
    struct gram_kit k;
    char *line = malloc(LINE_MAX_BYTES);
    if (!line) {
        die("out of memory");
    }
    gram_kit_open(&k);
    while (fgets(line, LINE_MAX_BYTES, stdin)) {
        struct pyjson_doc *d;
        struct err e = {0};
        struct buf out;
        buf_init(&out, (size_t)64 << 20);
        if (pyjson_parse(line, strlen(line), false, &d, &e)) {
            die(e.msg);
        }
        serve(&k, pyjson_root(d), &out);
        puts(out.p);
        fflush(stdout);
        buf_free(&out);
        pyjson_free(d);
    }
    gram_kit_close(&k);
    free(line);
    return 0;
}
