/* SPDX-License-Identifier: MIT
 * fuzz_schema.c: any bytes as a JSON schema, then a walk through its grammar: the first byte of the
 * input says which tokens. Masks and accept agree, no mask is a dead end, what is refused says why
 * and where, and a walk that ends gives JSON. */
#include "chat_tok.h"
#include "node/grammar/grammar.h"
#include "node/text/pyjson.h"

#include <stdint.h>
#include <string.h>

#define STEPS 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

static bool allowed(const uint32_t *mask, uint32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

/* Up to STEPS tokens; what is chosen is the first allowed one from a point that moves on. */
static void walk(const struct grammar *g, const struct tok *t, const struct grammar_vocab *v,
                 uint32_t seed, bool json)
{
    struct grammar_run *r;
    struct err e = {0};
    struct buf text;
    uint32_t vocab = tok_vocab(t);
    buf_init(&text, 1 << 12);
    if (grammar_run_open(g, v, &r, &e)) {
        require(e.code && e.msg[0]);
        return;
    }
    bool over = false;
    for (int i = 0; i < STEPS && !over; i++) {
        const uint32_t *mask = grammar_run_mask(r, &e);
        if (!mask) {
            require((e.code == ERR_LIMIT || e.code == ERR_NOMEM) && e.msg[0]);
            break;
        }
        seed = seed * 1664525u + 1013904223u;
        uint32_t at = (seed >> 8) % vocab, k = 0;
        while (k < vocab && !allowed(mask, (at + k) % vocab)) {
            k++;
        }
        over = k == vocab;
        require(!over || grammar_run_complete(r)); /* no dead end */
        uint32_t id = (at + k) % vocab, no = (at + 7) % vocab;
        if (!over && !allowed(mask, no)) {
            struct err refused = {0};
            require(grammar_run_accept(r, no, &refused) && refused.msg[0]);
            require(grammar_run_mask(r, &e) != NULL); /* as it was */
        }
        if (!over) {
            size_t n;
            const char *p = tok_bytes(t, id, &n);
            require(!grammar_run_accept(r, id, &e) && !buf_add(&text, p, n));
        }
    }
    if (json && text.n && grammar_run_complete(r)) {
        struct pyjson_doc *d;
        require(!pyjson_parse(text.p, text.n, false, &d, &e));
        pyjson_free(d);
    }
    grammar_run_close(r);
    buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tok *t;
    static struct grammar_vocab *v;
    struct pyjson_doc *d;
    struct grammar *g;
    struct err e = {0};
    if (!t) {
        t = chat_tok();
        require(!grammar_vocab_open(t, &v, &e));
    }
    if (size < 2 || pyjson_parse((const char *)data + 1, size - 1, false, &d, &e)) {
        return 0;
    }
    const struct pyjson *s = pyjson_root(d);
    if (grammar_json(s, &g, &e)) {
        require(e.code && (strstr(e.msg, "schema") || strstr(e.msg, "memory")));
    } else {
        for (uint32_t i = 0; i < 3; i++) {
            walk(g, t, v, data[0] + i * 1000, true);
        }
        grammar_free(g);
    }
    struct grammar_tool tool = {"f", s, true};
    struct grammar_answer a = {.thinking = data[0] & 1,
                               .json = data[0] & 2,
                               .schema = s,
                               .calls = data[0] & 4 ? GRAMMAR_MUST_CALL : GRAMMAR_MAY_CALL,
                               .one_call = true,
                               .tools = &tool,
                               .n_tools = 1};
    memset(&e, 0, sizeof e);
    if (grammar_answer(&a, t, &g, &e)) {
        require(e.code && e.msg[0]);
    } else {
        walk(g, t, v, data[0], false);
        grammar_free(g);
    }
    pyjson_free(d);
    return 0;
}
