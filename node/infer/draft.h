/* SPDX-License-Identifier: MIT
 * draft.h: where drafts come from: guesses at the next tokens, which one forward pass then checks
 * (speculate.h). What a source says changes how many passes an answer takes, never the answer. */
#ifndef SHOAL_NODE_DRAFT_H
#define SHOAL_NODE_DRAFT_H

#include <stddef.h>
#include <stdint.h>

struct draft_source {
    /* What may come behind tokens[0..n) (prompt and answer so far), at most `max` ids into `out`;
     * returns how many, 0 for no idea. Anything may be in it: what no token can be is left out
     * afterwards. Called by the thread that runs the model, so its time is the answer's. */
    size_t (*propose)(void *ctx, const uint32_t *tokens, size_t n, size_t max, uint32_t *out);
    void *ctx;
};

/* Prompt lookup: the longest end of the tokens (at least DRAFT_LEAST, at most DRAFT_LONGEST) that
 * stood somewhere before, the latest place of equals; the draft is what followed there. Where that
 * reaches the end of the tokens it goes on with what it has drafted, as in a loop. */
#define DRAFT_LEAST 2
#define DRAFT_LONGEST 16
extern const struct draft_source draft_lookup;

#endif
