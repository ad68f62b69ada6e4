/* SPDX-License-Identifier: MIT
 * number.c: rules.h: numbers within bounds, digit by digit. Whole parts have at most 15 digits, so
 * that each is exact in binary64; fractions at most 16; no exponents. */
#include "node/grammar/rules.h"

#include <stdio.h>
#include <string.h>

#define WHOLE_MAX 999999999999999ll

/* Decimal numbers of the same length, from lo to hi. */
static uint32_t span(struct gram_builder *b, const char *lo, const char *hi, size_t n, bool low,
                     bool high, uint32_t next)
{
    if (n == 0) {
        return next;
    }
    unsigned l = low ? (unsigned char)*lo : '0', h = high ? (unsigned char)*hi : '9';
    if (!low && !high) {
        for (size_t i = 0; i < n; i++) {
            next = gram_range(b, '0', '9', next);
        }
        return next;
    }
    if (l == h && low && high) {
        return gram_range(b, l, l, span(b, lo + 1, hi + 1, n - 1, true, true, next));
    }
    uint32_t r = GRAM_NONE;
    unsigned a = l + (low ? 1u : 0), z = h - (high ? 1u : 0);
    if (a <= z) {
        r = gram_range(b, a, z, span(b, lo + 1, hi + 1, n - 1, false, false, next));
    }
    if (low) {
        uint32_t x = gram_range(b, l, l, span(b, lo + 1, hi + 1, n - 1, true, false, next));
        r = r == GRAM_NONE ? x : gram_alt(b, r, x);
    }
    if (high) {
        uint32_t x = gram_range(b, h, h, span(b, lo + 1, hi + 1, n - 1, false, true, next));
        r = r == GRAM_NONE ? x : gram_alt(b, r, x);
    }
    return r;
}

/* Whole numbers a..z, neither below 0; GRAM_NONE when there are none. */
static uint32_t whole(struct gram_builder *b, int64_t a, int64_t z, uint32_t next)
{
    uint32_t r = GRAM_NONE;
    int64_t least = 0, most = 9;
    for (int len = 1; len <= 15 && a <= z; len++) {
        int64_t lo = a > least ? a : least, hi = z < most ? z : most;
        if (lo <= hi) {
            char x[24], y[24];
            snprintf(x, sizeof x, "%lld", (long long)lo);
            snprintf(y, sizeof y, "%lld", (long long)hi);
            uint32_t s = span(b, x, y, (size_t)len, true, true, next);
            r = r == GRAM_NONE ? s : gram_alt(b, r, s);
        }
        least = most + 1;
        most = most * 10 + 9;
    }
    return r;
}

static uint32_t either(struct gram_builder *b, uint32_t x, uint32_t y)
{
    return x == GRAM_NONE ? y : y == GRAM_NONE ? x : gram_alt(b, x, y);
}

static uint32_t none_fits(struct gram_builder *b, uint32_t r)
{
    if (r == GRAM_NONE) {
        gram_fail(b, ERR_UNSUPPORTED,
                  "schema: no number of at most 15 digits lies within minimum and maximum");
        return 0;
    }
    return r;
}

uint32_t gram_integers(struct gram_builder *b, bool has_lo, int64_t lo, bool has_hi, int64_t hi,
                       uint32_t next)
{
    lo = has_lo && lo > -WHOLE_MAX ? lo : -WHOLE_MAX;
    hi = has_hi && hi < WHOLE_MAX ? hi : WHOLE_MAX;
    uint32_t r = whole(b, lo > 0 ? lo : 0, hi, next);
    if (lo < 0) {
        uint32_t n = whole(b, hi < 0 ? -hi : 1, -lo, next);
        r = either(b, r, n == GRAM_NONE ? n : gram_str(b, "-", n));
    }
    return none_fits(b, r);
}

static uint32_t some(struct gram_builder *b, unsigned lo, unsigned hi, int max, uint32_t next)
{
    uint32_t r = next;
    for (int i = 0; i < max; i++) {
        r = gram_range(b, lo, hi, i ? gram_alt(b, r, next) : next);
    }
    return r;
}

/* How many digits may stand behind the point of a number with this whole part, so that it has at
 * most 15 in all: such numbers differ as binary64 too, so that what is below a bound in decimal is
 * below it when read. */
static int room(int64_t whole_part)
{
    int n = 14;
    for (; whole_part > 9; whole_part /= 10) {
        n--;
    }
    return n;
}

/* A point and one to `max` digits, not all of them 0; GRAM_NONE when there is no room. */
static uint32_t above_zero(struct gram_builder *b, int max, uint32_t next)
{
    uint32_t r = GRAM_NONE;
    for (int left = 0; left < max; left++) { /* digits that may stand behind the first non-zero */
        uint32_t rest = left ? gram_alt(b, some(b, '0', '9', left, next), next) : next;
        uint32_t digit = gram_range(b, '1', '9', rest);
        r = r == GRAM_NONE ? digit : gram_alt(b, digit, gram_str(b, "0", r));
    }
    return r == GRAM_NONE ? r : gram_str(b, ".", r);
}

/* Magnitudes from a to z. */
static uint32_t magnitude(struct gram_builder *b, int64_t a, bool a_open, int64_t z, bool z_open,
                          uint32_t next)
{
    if (a > z || (a == z && (a_open || z_open))) {
        return GRAM_NONE;
    }
    uint32_t zeros = gram_alt(b, gram_str(b, ".", some(b, '0', '0', 16, next)), next);
    uint32_t r = z_open ? GRAM_NONE : whole(b, z, z, zeros);
    if (a == z) {
        return r;
    }
    /* next to an open bound fewer digits, else as many as in any number */
    uint32_t frac = gram_alt(b, gram_str(b, ".", some(b, '0', '9', 16, next)), next);
    int near_a = room(a), near_z = room(z), both = near_a < near_z ? near_a : near_z;
    uint32_t below =
        near_z ? gram_alt(b, gram_str(b, ".", some(b, '0', '9', near_z, next)), next) : next;
    bool last = z_open && a == z - 1;
    uint32_t first = a_open ? above_zero(b,
                                         last         ? both
                                         : near_a < 8 ? near_a
                                                      : 8,
                                         next)
                            : (last ? below : frac);
    r = first == GRAM_NONE ? r : either(b, r, whole(b, a, a, first));
    if (z_open && a < z - 1) {
        r = either(b, r, whole(b, z - 1, z - 1, below));
    }
    return either(b, r, whole(b, a + 1, z - (z_open ? 2 : 1), frac));
}

uint32_t gram_numbers(struct gram_builder *b, bool has_lo, int64_t lo, bool lo_open, bool has_hi,
                      int64_t hi, bool hi_open, uint32_t next)
{
    lo_open = lo_open && has_lo;
    hi_open = hi_open && has_hi;
    lo = has_lo && lo > -WHOLE_MAX ? lo : -WHOLE_MAX;
    hi = has_hi && hi < WHOLE_MAX ? hi : WHOLE_MAX;
    uint32_t r = lo > 0    ? magnitude(b, lo, lo_open, hi, hi_open, next)
                 : hi >= 0 ? magnitude(b, 0, lo == 0 && lo_open, hi, hi_open, next)
                           : GRAM_NONE;
    if (lo < 0) {
        uint32_t n = hi < 0 ? magnitude(b, -hi, hi_open, -lo, lo_open, next)
                            : magnitude(b, 0, true, -lo, lo_open, next);
        r = either(b, r, n == GRAM_NONE ? n : gram_str(b, "-", n));
    }
    return none_fits(b, r);
}
