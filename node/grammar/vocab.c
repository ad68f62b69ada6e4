/* SPDX-License-Identifier: MIT
 * vocab.c: see vocab.h. */
#include "node/grammar/vocab.h"

#include "node/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    const uint8_t *p;
    uint32_t id, len;
};

static int by_bytes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = memcmp(x->p, y->p, x->len < y->len ? x->len : y->len);
    return c ? c : x->len < y->len ? -1 : x->len > y->len;
}

int grammar_vocab_open(const struct tok *t, struct grammar_vocab **out, struct err *e)
{
    *out = NULL;
    uint32_t n = tok_ranks(t);
    size_t total = 0, at = 0;
    struct entry *s = malloc((n ? n : 1) * sizeof *s);
    struct grammar_vocab *v = calloc(1, sizeof *v);
    if (v) {
        v->tok = calloc(n ? n : 1, sizeof *v->tok);
    }
    for (uint32_t i = 0; s && i < n; i++) {
        size_t len;
        s[i].p = (const uint8_t *)tok_bytes(t, i, &len);
        s[i].id = i;
        s[i].len = (uint32_t)len; /* at most TOK_MAX_TOKEN */
        total += len;
    }
    if (v) {
        v->text = malloc(total ? total : 1);
    }
    if (!s || !v || !v->tok || !v->text) {
        free(s);
        grammar_vocab_close(v);
        return err_set(e, ERR_NOMEM, "out of memory for the vocabulary");
    }
    qsort(s, n, sizeof *s, by_bytes);
    v->t = t;
    v->ranks = n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = 0;
        while (i && same < s[i].len && same < s[i - 1].len && s[i].p[same] == s[i - 1].p[same]) {
            same++;
        }
        v->tok[v->n++] =
            (struct vocab_token){s[i].id, (uint32_t)at, (uint16_t)s[i].len, (uint16_t)same};
        memcpy(v->text + at, s[i].p, s[i].len);
        at += s[i].len;
    }
    free(s);
    *out = v;
    return 0;
}

void grammar_vocab_close(struct grammar_vocab *v)
{
    if (v) {
        free(v->tok);
        free(v->text);
        free(v);
    }
}
