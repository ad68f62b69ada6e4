/* SPDX-License-Identifier: MIT
 * json.c: rules.h: JSON's own forms (RFC 8259), and text as it stands in JSON or raw between tags.
 *
 * Blanks: none, one space, or a new line with at most 40 spaces or 10 tabs behind it: enough for
 * any usual indentation, and no way to go on with blanks for ever. */
#include "node/grammar/rules.h"

#include <stdio.h>
#include <string.h>

/* A rule made on first use. */
#define ONCE(b, field, first)                    \
    do {                                         \
        if ((b)->field == GRAM_NONE) {           \
            (b)->field = gram_rule_new(b);       \
            gram_rule_set(b, (b)->field, first); \
        }                                        \
    } while (0)

static uint32_t make_ws(struct gram_builder *b)
{
    uint32_t end = gram_ret(b), spaces = end, tabs = end;
    for (int i = 0; i < 40; i++) {
        spaces = gram_alt(b, gram_str(b, " ", spaces), end);
    }
    for (int i = 0; i < 10; i++) {
        tabs = gram_alt(b, gram_str(b, "\t", tabs), end);
    }
    uint32_t line = gram_str(b, "\n", gram_alt(b, spaces, tabs));
    return gram_alt(b, gram_alt(b, gram_str(b, " ", end), line), end);
}

uint32_t gram_ws(struct gram_builder *b, uint32_t next)
{
    ONCE(b, ws, make_ws(b));
    return gram_call(b, b->ws, next);
}

uint32_t gram_comma(struct gram_builder *b, uint32_t next)
{
    return gram_ws(b, gram_str(b, ",", gram_ws(b, next)));
}

static uint32_t hex(struct gram_builder *b, const char *digits, uint32_t next)
{
    return gram_one_of(b, digits ? digits : "0123456789abcdefABCDEF", next);
}

/* A character but quote, backslash and controls; or an escape. Of surrogates only pairs. */
static uint32_t make_string_char(struct gram_builder *b)
{
    uint32_t end = gram_ret(b);
    struct gram_set ascii = {{0}};
    for (unsigned c = 0x20; c < 0x80; c++) {
        if (c != '"' && c != '\\') {
            gram_set_add(&ascii, c);
        }
    }
    uint32_t raw = gram_alt(b, gram_bytes(b, &ascii, end), gram_points(b, 0x80, 0x10FFFF, end));
    uint32_t two = hex(b, NULL, hex(b, NULL, end)), three = hex(b, NULL, two);
    uint32_t plain =
        gram_alt(b, hex(b, "0123456789abcefABCEF", three), hex(b, "dD", hex(b, "01234567", two)));
    uint32_t low = gram_str(b, "\\u", hex(b, "dD", hex(b, "cdefCDEF", two)));
    uint32_t high = hex(b, "dD", hex(b, "89abAB", hex(b, NULL, hex(b, NULL, low))));
    uint32_t u = gram_str(b, "u", gram_alt(b, plain, high));
    return gram_alt(b, raw, gram_str(b, "\\", gram_alt(b, gram_one_of(b, "\"\\/bfnrt", end), u)));
}

uint32_t gram_string_char(struct gram_builder *b, uint32_t next)
{
    ONCE(b, string_char, make_string_char(b));
    return gram_call(b, b->string_char, next);
}

/* Characters up to the closing quote: the loop stands by itself, so that a string's state is one
 * and the same after each character. */
static uint32_t string_rest(struct gram_builder *b, uint32_t next)
{
    uint32_t loop = gram_hole(b);
    gram_fill(b, loop, gram_string_char(b, loop), gram_str(b, "\"", next));
    return loop;
}

uint32_t gram_string_any(struct gram_builder *b, uint32_t next)
{
    return gram_str(b, "\"", string_rest(b, next));
}

/* One to `max` digits. */
static uint32_t digits(struct gram_builder *b, int max, uint32_t next)
{
    uint32_t r = gram_range(b, '0', '9', next);
    for (int i = 1; i < max; i++) {
        r = gram_range(b, '0', '9', gram_alt(b, r, next));
    }
    return r;
}

/* At most 15 digits before the point, 16 behind it and two of exponent: exact in binary64, finite.
 */
uint32_t gram_number_any(struct gram_builder *b, bool integer, uint32_t next)
{
    uint32_t tail = next;
    if (!integer) {
        uint32_t exp = gram_one_of(
            b, "eE", gram_alt(b, gram_one_of(b, "+-", digits(b, 2, next)), digits(b, 2, next)));
        uint32_t after = gram_alt(b, exp, next);
        tail = gram_alt(b, gram_str(b, ".", digits(b, 16, after)), after);
    }
    uint32_t rest = gram_alt(b, digits(b, 14, tail), tail);
    uint32_t abs = gram_alt(b, gram_str(b, "0", tail), gram_range(b, '1', '9', rest));
    return gram_alt(b, abs, gram_str(b, "-", abs));
}

static uint32_t member_rule(struct gram_builder *b)
{
    uint32_t r = gram_rule_new(b);
    gram_rule_set(
        b, r,
        gram_string_any(b, gram_ws(b, gram_str(b, ":", gram_ws(b, gram_any(b, gram_ret(b)))))));
    return r;
}

uint32_t gram_any_object(struct gram_builder *b, bool some_member, uint32_t next)
{
    uint32_t close = gram_ws(b, gram_str(b, "}", next));
    uint32_t some = gram_ws(b, gram_repeat(b, member_rule(b), 1, GRAM_NONE, ",", close));
    uint32_t none = some_member ? GRAM_NONE : gram_ws(b, gram_str(b, "}", next));
    return gram_str(b, "{", none == GRAM_NONE ? some : gram_alt(b, some, none));
}

uint32_t gram_any_array(struct gram_builder *b, uint32_t next)
{
    uint32_t item = gram_rule_new(b);
    gram_rule_set(b, item, gram_any(b, gram_ret(b)));
    uint32_t close = gram_ws(b, gram_str(b, "]", next));
    uint32_t some = gram_ws(b, gram_repeat(b, item, 1, GRAM_NONE, ",", close));
    return gram_str(b, "[", gram_alt(b, some, gram_ws(b, gram_str(b, "]", next))));
}

uint32_t gram_any(struct gram_builder *b, uint32_t next)
{
    if (b->any_value == GRAM_NONE) {
        b->any_value = gram_rule_new(b); /* known before it is built: values hold values */
        uint32_t end = gram_ret(b), r = gram_string_any(b, end);
        r = gram_alt(b, r, gram_number_any(b, false, end));
        r = gram_alt(b, r, gram_str(b, "true", end));
        r = gram_alt(b, r, gram_str(b, "false", end));
        r = gram_alt(b, r, gram_str(b, "null", end));
        r = gram_alt(b, r, gram_any_object(b, false, end));
        r = gram_alt(b, r, gram_any_array(b, end));
        gram_rule_set(b, b->any_value, r);
    }
    return gram_call(b, b->any_value, next);
}

/* ---- text ---- */

uint32_t gram_text(struct gram_builder *b, const char *s, size_t n, bool raw, uint32_t next)
{
    while (n--) {
        unsigned char c = (unsigned char)s[n];
        if (!raw && (c == '"' || c == '\\')) {
            next = gram_str(b, "\\", gram_range(b, c, c, next));
        } else if (!raw && c < 0x20) {
            static const char named[] = "\b\f\n\r\t", letters[] = "bfnrt";
            const char *at = c ? strchr(named, c) : NULL;
            char esc[8];
            snprintf(esc, sizeof esc, "\\u%04x", c);
            if (at) {
                snprintf(esc, sizeof esc, "\\%c", letters[at - named]);
            }
            next = gram_str(b, esc, next);
        } else {
            next = gram_range(b, c, c, next);
        }
    }
    return next;
}

uint32_t gram_raw_char(struct gram_builder *b, uint32_t next)
{
    ONCE(b, raw_char, gram_points(b, 0, 0x10FFFF, gram_ret(b)));
    return gram_call(b, b->raw_char, next);
}

uint32_t gram_raw_any(struct gram_builder *b, uint32_t next)
{
    uint32_t loop = gram_hole(b);
    gram_fill(b, loop, gram_raw_char(b, loop), next);
    return loop;
}

/* ---- keys ---- */

/* Names of which at least `at` bytes are read and equal; the next byte decides. */
static uint32_t other_key(struct gram_builder *b, const struct pyjson *const *names, size_t n,
                          size_t at, uint32_t rest, uint32_t end)
{
    bool whole = false;
    uint32_t r = GRAM_NONE;
    struct gram_set free_ascii = {{0}}, next = {{0}};
    for (size_t i = 0; i < n; i++) {
        if (names[i]->key_n == at) {
            whole = true;
        } else {
            gram_set_add(&next, (unsigned char)names[i]->key[at]);
        }
    }
    /* After a lead byte of a name only plain characters branch off; a name in another script shares
     * its first bytes with many words, which are then not offered: narrower, never wrong. */
    for (unsigned c = 0x20; c < 0x80; c++) {
        if (c != '"' && c != '\\' && !gram_set_has(&next, c)) {
            gram_set_add(&free_ascii, c);
        }
    }
    r = gram_bytes(b, &free_ascii, rest);
    if (!whole) {
        r = gram_alt(b, r, gram_str(b, "\"", end));
    }
    for (unsigned c = 0x20; c < 256 && !b->err.code; c++) {
        if (!gram_set_has(&next, c) || c == '"' || c == '\\') {
            continue;
        }
        const struct pyjson *sub[64];
        size_t k = 0;
        for (size_t i = 0; i < n; i++) {
            if (names[i]->key_n > at && (unsigned char)names[i]->key[at] == c) {
                if (k == 64) {
                    gram_fail(b, ERR_LIMIT, "schema: more than 64 properties that begin alike");
                    return 0;
                }
                sub[k++] = names[i];
            }
        }
        if (c < 0x80) {
            r = gram_alt(b, r, gram_range(b, c, c, other_key(b, sub, k, at + 1, rest, end)));
        }
    }
    return r;
}

uint32_t gram_other_key(struct gram_builder *b, const struct pyjson *const *names, size_t n,
                        uint32_t next)
{
    /* without escapes, by which a forbidden name could be spelled otherwise */
    uint32_t end = next, loop = gram_hole(b);
    struct gram_set ascii = {{0}};
    for (unsigned c = 0x20; c < 0x80; c++) {
        if (c != '"' && c != '\\') {
            gram_set_add(&ascii, c);
        }
    }
    uint32_t one = gram_alt(b, gram_bytes(b, &ascii, loop), gram_points(b, 0x80, 0x10FFFF, loop));
    gram_fill(b, loop, one, gram_str(b, "\"", end));
    return gram_str(b, "\"", other_key(b, names, n, 0, loop, end));
}
