/* SPDX-License-Identifier: MIT
 * gram_kit.c: see gram_kit.h. */
#include "tests/grammar/gram_kit.h"

#include "tests/text/tok_fixture.h"

#include <string.h>

void gram_kit_open(struct gram_kit *k)
{
    struct err e = {0};
    k->t = fixture_tok();
    if (grammar_vocab_open(k->t, &k->v, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(2);
    }
}

void gram_kit_close(struct gram_kit *k)
{
    grammar_vocab_close(k->v);
    tok_close(k->t);
}

int gram_kit_schema(const char *schema, struct grammar **out, struct err *e)
{
    struct pyjson_doc *d = NULL;
    if (schema && pyjson_parse(schema, strlen(schema), false, &d, e)) {
        fprintf(stderr, "%s\n", e->msg);
        exit(2);
    }
    int r = grammar_json(d ? pyjson_root(d) : NULL, out, e);
    pyjson_free(d);
    return r;
}

static bool allowed(const uint32_t *mask, uint32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

bool gram_kit_fits(const struct gram_kit *k, const struct grammar *g, const char *text, size_t n)
{
    struct err e = {0};
    struct grammar_run *r;
    struct tok_ids ids = {0};
    if (grammar_run_open(g, k->v, &r, &e) || tok_encode(k->t, text, n, true, &ids, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(2);
    }
    bool fits = true;
    for (size_t i = 0; i < ids.n && fits; i++) {
        const uint32_t *mask = grammar_run_mask(r, &e);
        if (!mask) {
            fprintf(stderr, "%s\n", e.msg);
            exit(2);
        }
        bool may = allowed(mask, ids.v[i]);
        int rc = grammar_run_accept(r, ids.v[i], &e);
        if (may != (rc == 0)) {
            fprintf(stderr, "mask and accept differ on token %zu of `%s`\n", i, text);
            exit(2);
        }
        fits = may;
    }
    fits = fits && grammar_run_complete(r);
    grammar_run_close(r);
    tok_ids_free(&ids);
    return fits;
}

static uint64_t next(uint64_t *s)
{
    *s += 0x9e3779b97f4a7c15ull;
    uint64_t z = *s;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

bool gram_kit_draw(const struct gram_kit *k, const struct grammar *g, uint64_t *seed, size_t most,
                   struct tok_ids *ids)
{
    struct err e = {0};
    struct grammar_run *r;
    uint32_t vocab = tok_vocab(k->t);
    uint32_t *list = malloc(vocab * sizeof *list);
    bool ended = false;
    if (!list || grammar_run_open(g, k->v, &r, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(2);
    }
    for (size_t i = 0; i < most; i++) {
        if (grammar_run_complete(r) && next(seed) % most < i + 8) {
            ended = true;
            break;
        }
        const uint32_t *mask = grammar_run_mask(r, &e);
        if (!mask) {
            fprintf(stderr, "%s\n", e.msg);
            exit(2);
        }
        uint32_t n = 0, closers = 0;
        for (uint32_t id = 0; id < vocab; id++) {
            if (allowed(mask, id)) {
                list[n++] = id;
            }
        }
        if (!n) {
            ended = grammar_run_complete(r);
            break;
        }
        /* what closes something is drawn more and more often */
        if (next(seed) % most < 2 * i + 8) {
            for (uint32_t j = 0; j < n; j++) {
                size_t len;
                const char *p = tok_bytes(k->t, list[j], &len);
                if (tok_is_special(k->t, list[j]) || (len == 1 && strchr("\"}]", *p))) {
                    list[closers++] = list[j];
                }
            }
        }
        uint32_t id = list[next(seed) % (closers ? closers : n)];
        if (grammar_run_accept(r, id, &e) || tok_ids_add(ids, id)) {
            fprintf(stderr, "an allowed token is refused: %s\n", e.msg);
            exit(2);
        }
    }
    grammar_run_close(r);
    free(list);
    return ended;
}

void gram_kit_text(const struct gram_kit *k, const struct tok_ids *ids, struct buf *out)
{
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const char *p = tok_bytes(k->t, ids->v[i], &n);
        if (buf_add(out, p, n)) {
            exit(2);
        }
    }
}
