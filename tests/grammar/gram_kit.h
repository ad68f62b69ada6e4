/* SPDX-License-Identifier: MIT
 * gram_kit.h: texts through a grammar, and texts drawn from it at random. */
#ifndef SHOAL_TESTS_GRAM_KIT_H
#define SHOAL_TESTS_GRAM_KIT_H

#include "node/grammar/grammar.h"

struct gram_kit {
    struct tok *t;
    struct grammar_vocab *v;
};
void gram_kit_open(struct gram_kit *k);
void gram_kit_close(struct gram_kit *k);

/* A schema in text; NULL: any object. Ends the program when it is no JSON. */
int gram_kit_schema(const char *schema, struct grammar **out, struct err *e);
/* Is the text a whole sentence? The mask is looked at before each token: what it forbids must be
 * refused by accept, and the other way round. */
bool gram_kit_fits(const struct gram_kit *k, const struct grammar *g, const char *text, size_t n);
/* Draw a sentence: tokens at random among the allowed ones, ends preferred more and more. Appends
 * to *ids. False when it did not end within `most` tokens. */
bool gram_kit_draw(const struct gram_kit *k, const struct grammar *g, uint64_t *seed, size_t most,
                   struct tok_ids *ids);
/* The bytes of ids, special tokens by their spelling. */
void gram_kit_text(const struct gram_kit *k, const struct tok_ids *ids, struct buf *out);

#endif
