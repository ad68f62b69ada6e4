/* SPDX-License-Identifier: MIT
 * vocab.h: private to node/grammar: a vocabulary sorted by bytes, so that what tokens share at
 * their beginning is read once. */
#ifndef SHOAL_GRAMMAR_VOCAB_H
#define SHOAL_GRAMMAR_VOCAB_H

#include "node/text/tok.h"

struct vocab_token {
    uint32_t id, off;   /* its bytes are text[off ..] */
    uint16_t len, same; /* `same`: bytes shared with the token before */
};

struct grammar_vocab {
    const struct tok *t;
    uint32_t ranks; /* the first special id */
    struct vocab_token *tok;
    uint32_t n;
    uint8_t *text;
};

#endif
