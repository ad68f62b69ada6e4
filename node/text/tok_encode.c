/* SPDX-License-Identifier: MIT
 * tok_encode.c: text to ids. A text passes four cuts, each seeing only what the one before it left
 * together: slices (the length guards), special tokens (trusted text only), pieces (the
 * pre-tokeniser), merges. */
#include "node/text/tok_impl.h"
#include "node/text/tok_pretok.h"
#include "node/text/tok_utf8.h"
#include "node/text/unicode_class.h"

#include <stdlib.h>
#include <string.h>

/* The length guards of the released tokenizer, in code points. */
#define SLICE_MAX 400000
#define RUN_MAX 25000

void tok_ids_init(struct tok_ids *l)
{
    *l = (struct tok_ids){0};
}

void tok_ids_free(struct tok_ids *l)
{
    free(l->v);
    *l = (struct tok_ids){0};
}

int tok_ids_add(struct tok_ids *l, uint32_t id)
{
    if (l->max && l->n >= l->max) {
        return ERR_LIMIT;
    }
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        uint32_t *v = cap > SIZE_MAX / sizeof *v ? NULL : realloc(l->v, cap * sizeof *v);
        if (!v) {
            return ERR_NOMEM;
        }
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = id;
    return 0;
}

/* What one tok_encode works with. flags and off are those of one slice. */
struct encoder {
    const struct tok *t;
    const uint8_t *text;
    size_t text_n;
    bool trusted;
    uint8_t *flags;
    uint32_t *off;
    struct tok_merge merge;
    struct tok_ids *out;
};

/* Read the slice that begins at byte `at`: fill flags and off (from `at`), return its code points.
 * It ends after SLICE_MAX code points counted from `block`, the place where the text was last cut
 * by that rule, or before a code point that would be the (RUN_MAX + 1)-th of its kind in a row. */
static size_t read_slice(struct encoder *c, size_t at, size_t *block_left)
{
    size_t n = 0, run = 0, i = at;
    bool run_space = false;
    while (i < c->text_n && *block_left) {
        unsigned len;
        uint32_t cp = (uint32_t)utf8_next(c->text + i, c->text_n - i, &len); /* valid: see below */
        bool space = unicode_python_space(cp);
        run = n && space == run_space ? run + 1 : 1;
        if (run > RUN_MAX) {
            break;
        }
        run_space = space;
        c->flags[n] = unicode_class(cp);
        c->off[n++] = (uint32_t)(i - at);
        i += len;
        --*block_left;
    }
    c->off[n] = (uint32_t)(i - at);
    if (!*block_left) {
        *block_left = SLICE_MAX;
    }
    return n;
}

/* Ordinary text: code points [from, to) of the slice at p. */
static int encode_ordinary(struct encoder *c, const uint8_t *p, size_t from, size_t to)
{
    struct pretok pre = {.text = p, .flags = c->flags, .off = c->off, .n = to};
    while (from < to) {
        size_t end = pretok_next(&pre, from);
        int r =
            tok_merge_piece(c->t, &c->merge, p + c->off[from], c->off[end] - c->off[from], c->out);
        if (r) {
            return r;
        }
        from = end;
    }
    return 0;
}

static int encode_slice(struct encoder *c, const uint8_t *p, size_t n)
{
    if (!c->trusted) {
        return encode_ordinary(c, p, 0, n);
    }
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        uint32_t id;
        size_t len;
        const uint8_t *q = p + c->off[i];
        if (!c->t->first[*q] || !tok_special_at(c->t, q, c->off[n] - c->off[i], &id, &len)) {
            i++;
            continue;
        }
        int r = encode_ordinary(c, p, from, i);
        r = r ? r : tok_ids_add(c->out, id);
        if (r) {
            return r;
        }
        size_t end = c->off[i] + len; /* a spelling is whole characters: jansson takes no other */
        while (i < n && c->off[i] < end) {
            i++;
        }
        from = i;
    }
    return encode_ordinary(c, p, from, n);
}

static int encode_all(struct encoder *c)
{
    size_t room = c->text_n < SLICE_MAX ? c->text_n : SLICE_MAX; /* a code point has >= 1 byte */
    c->flags = malloc(room + 1);
    c->off = malloc((room + 1) * sizeof *c->off);
    int r = c->flags && c->off ? 0 : ERR_NOMEM;
    size_t block_left = SLICE_MAX;
    for (size_t at = 0; !r && at < c->text_n;) {
        size_t n = read_slice(c, at, &block_left);
        r = encode_slice(c, c->text + at, n);
        at += c->off[n];
    }
    free(c->flags);
    free(c->off);
    tok_merge_free(&c->merge);
    return r;
}

/* Where valid UTF-8 ends: n when all of it is. */
static size_t valid_prefix(const uint8_t *p, size_t n)
{
    unsigned len;
    size_t i = 0;
    for (; i < n && utf8_next(p + i, n - i, &len) >= 0; i += len) {
    }
    return i;
}

int tok_encode(const struct tok *t, const char *text, size_t n, bool trusted, struct tok_ids *out,
               struct err *e)
{
    if (n > TOK_MAX_TEXT) {
        return err_set(e, ERR_LIMIT, "the text has %zu bytes, more than %u: cut it up", n,
                       TOK_MAX_TEXT);
    }
    struct encoder c = {
        .t = t, .text = (const uint8_t *)text, .text_n = n, .trusted = trusted, .out = out};
    char *repaired = NULL;
    size_t before = out->n;
    int r = 0;
    if (n && valid_prefix(c.text, n) < n) {
        repaired = malloc(TOK_STREAM_ROOM(n) + 3);
        if (repaired) {
            struct tok_stream s = {0};
            size_t m = tok_stream_push(&s, text, n, repaired);
            m += tok_stream_flush(&s, repaired + m);
            c.text = (const uint8_t *)repaired;
            c.text_n = m;
        } else {
            r = ERR_NOMEM;
        }
    }
    if (!r && n) {
        r = encode_all(&c);
    }
    free(repaired);
    if (r) {
        out->n = before;
        return r == ERR_LIMIT
                   ? err_set(e, r, "there are more than %zu tokens: send less", out->max)
                   : err_set(e, r, "out of memory for the tokens of a text of %zu bytes", n);
    }
    return 0;
}
