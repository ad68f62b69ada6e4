/* SPDX-License-Identifier: MIT
 * lang.h: private to node/grammar: sets of texts that are met, joined and turned into their
 * opposite, which rules alone cannot: what patterns with look-ahead, or several conditions on one
 * string, need.
 *
 * A text is a list of code points. Sets are terms, by number; equal terms have equal numbers. What
 * is left of a set behind a character (Brzozowski, "Derivatives of regular expressions", 1964) is a
 * term again, and there are finitely many, so the terms that are met become the states of an
 * automaton, and this becomes rules.
 *
 * Failure (memory, too many terms) sticks: functions then give LANG_NOTHING, lang_rules says it. */
#ifndef SHOAL_GRAMMAR_LANG_H
#define SHOAL_GRAMMAR_LANG_H

#include "node/grammar/rules.h"

#define LANG_NOTHING 0u /* no text */
#define LANG_EMPTY 1u   /* the empty text */
#define LANG_ALL 2u     /* every text */

#define LANG_STATES_MAX 20000u
#define LANG_STEPS_MAX 10000000u /* of work for one grammar: a fraction of a second */

struct lang_range {
    uint32_t lo, hi; /* code points */
};

struct lang;
struct lang *lang_new(struct gram_builder *b); /* counts its work there. NULL: out of memory */
void lang_free(struct lang *l);

/* One character of ascending ranges that are apart. */
uint32_t lang_chars(struct lang *l, const struct lang_range *r, size_t n);
uint32_t lang_cat(struct lang *l, uint32_t a, uint32_t b);
uint32_t lang_or(struct lang *l, uint32_t a, uint32_t b);
uint32_t lang_and(struct lang *l, uint32_t a, uint32_t b);
uint32_t lang_not(struct lang *l, uint32_t a);
uint32_t lang_repeat(struct lang *l, uint32_t a, uint32_t min, uint32_t max); /* GRAM_NONE */

/* Rules for the texts of a. `chars` makes the node for one character of some ranges. 0 and *node;
 * ERR_NOTFOUND: there is no such text (nothing was made); ERR_LIMIT: too many states; ERR_NOMEM. */
typedef uint32_t lang_chars_fn(void *ctx, const struct lang_range *r, size_t n, uint32_t next);
int lang_rules(struct lang *l, uint32_t a, struct gram_builder *b, lang_chars_fn *chars, void *ctx,
               uint32_t next, uint32_t *node);

#endif
