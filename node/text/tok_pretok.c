/* SPDX-License-Identifier: MIT
 * tok_pretok.c: the pattern of the released tokenizer by hand. Its eight alternatives are tried in
 * order and the first that matches wins, each with the backtracking a regular expression would do:
 *
 *   1  [\p{Han}]+
 *   2  [^\r\n\p{L}\p{N}]?[UPPER]*[LOWER]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
 *   3  [^\r\n\p{L}\p{N}]?[UPPER]+[LOWER]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
 *   4  \p{N}{1,3}
 *   5   ?[^\s\p{L}\p{N}]+[\r\n]*
 *   6  \s*[\r\n]+
 *   7  \s+(?!\S)
 *   8  \s+
 *
 * UPPER and LOWER are the flags of unicode_class.h; both hold Lm, Lo and M. Each function returns
 * the end of its match, or i itself when there is none. The work over a whole text is linear: no
 * code point is looked at by more than a fixed number of runs. */
#include "node/text/tok_pretok.h"

#include "node/text/unicode_class.h"

#include <stdbool.h>

/* The end of the run of code points from i that have one of the flags. */
static size_t run_of(const struct pretok *p, size_t i, uint8_t flags)
{
    while (i < p->n && p->flags[i] & flags) {
        i++;
    }
    return i;
}

/* The end of the run of code points from i that have none of the flags. */
static size_t run_without(const struct pretok *p, size_t i, uint8_t flags)
{
    while (i < p->n && !(p->flags[i] & flags)) {
        i++;
    }
    return i;
}

/* The code point at i when it is ASCII, in lower case; 's' for U+017F, which folds to it; else 0.
 */
static uint8_t folded(const struct pretok *p, size_t i)
{
    if (i >= p->n) {
        return 0;
    }
    const uint8_t *c = p->text + p->off[i];
    if (c[0] < 0x80) {
        return c[0] >= 'A' && c[0] <= 'Z' ? (uint8_t)(c[0] | 0x20) : c[0];
    }
    return c[0] == 0xc5 && c[1] == 0xbf ? 's' : 0;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)? from i: its end, or i. */
static size_t contraction(const struct pretok *p, size_t i)
{
    if (folded(p, i) != '\'') {
        return i;
    }
    uint8_t a = folded(p, i + 1);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return i + 2;
    }
    uint8_t b = a ? folded(p, i + 2) : 0;
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l')) {
        return i + 3;
    }
    return i;
}

/* [UPPER]*[LOWER]+ from s: its end, or s. */
static size_t upper_lower(const struct pretok *p, size_t s)
{
    size_t e = run_of(p, s, UC_UPPER);
    size_t end = run_of(p, e, UC_LOWER);
    if (end > e) {
        return end;
    }
    /* [UPPER]* gives back until it gives back one that is LOWER too. What follows that one in the
     * run is not LOWER, so [LOWER]+ ends right behind it. */
    while (e > s && !(p->flags[e - 1] & UC_LOWER)) {
        e--;
    }
    return e;
}

/* Alternatives 2 and 3. */
static size_t letters(const struct pretok *p, size_t i)
{
    bool prefix = !(p->flags[i] & (UC_CRLF | UC_LETTER | UC_NUMBER));
    size_t s = prefix ? i + 1 : i;
    size_t e = upper_lower(p, s);
    if (e == s && prefix) { /* without the prefix: matters when it is a mark, which is LOWER too */
        s = i;
        e = upper_lower(p, s);
    }
    if (e > s) {
        return contraction(p, e);
    }
    /* Alternative 3. Here no LOWER follows the run, or alternative 2 had matched. Without the
     * prefix it cannot match either: a mark in its place had matched alternative 2. */
    s = prefix ? i + 1 : i;
    e = run_of(p, s, UC_UPPER);
    return e > s ? contraction(p, e) : i;
}

/* Alternative 5. */
static size_t punctuation(const struct pretok *p, size_t i)
{
    size_t s = p->text[p->off[i]] == ' ' ? i + 1 : i;
    size_t e = run_without(p, s, UC_SPACE | UC_LETTER | UC_NUMBER);
    return e > s ? run_of(p, e, UC_CRLF) : i;
}

/* Alternatives 6, 7 and 8; the code point at i is white space. */
static size_t spaces(const struct pretok *p, size_t i)
{
    size_t end = run_of(p, i, UC_SPACE);
    for (size_t e = end; e > i; e--) {
        if (p->flags[e - 1] & UC_CRLF) {
            return e;
        }
    }
    return end < p->n && end - i > 1 ? end - 1 : end;
}

size_t pretok_next(const struct pretok *p, size_t i)
{
    uint8_t f = p->flags[i];
    if (f & UC_HAN) {
        return run_of(p, i, UC_HAN);
    }
    size_t e = letters(p, i);
    if (e > i) {
        return e;
    }
    if (f & UC_NUMBER) {
        size_t most = p->n - i < 3 ? p->n : i + 3;
        for (e = i + 1; e < most && p->flags[e] & UC_NUMBER; e++) {
        }
        return e;
    }
    e = punctuation(p, i);
    return e > i ? e : spaces(p, i);
}
