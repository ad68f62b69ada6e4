/* SPDX-License-Identifier: MIT
 * draft.c: prompt lookup. One pass from the end to the beginning: a million tokens take a
 * millisecond, and where they are that many a forward pass takes thousands. */
#include "node/infer/draft.h"

/* How many tokens before a and before b are the same, up to DRAFT_LONGEST; a < b. */
static size_t same_before(const uint32_t *t, size_t a, size_t b)
{
    size_t n = 0;
    while (n < a && n < DRAFT_LONGEST && t[a - 1 - n] == t[b - 1 - n]) {
        n++;
    }
    return n;
}

static size_t lookup(void *ctx, const uint32_t *tokens, size_t n, size_t max, uint32_t *out)
{
    size_t best = 0, at = 0;
    (void)ctx;
    for (size_t i = n; i-- > DRAFT_LEAST && best < DRAFT_LONGEST;) {
        if (tokens[i - 1] == tokens[n - 1]) {
            size_t k = same_before(tokens, i, n);
            if (k > best) {
                best = k;
                at = i;
            }
        }
    }
    if (best < DRAFT_LEAST) {
        return 0;
    }
    for (size_t k = 0; k < max; k++) {
        out[k] = at + k < n ? tokens[at + k] : out[at + k - n];
    }
    return max;
}

const struct draft_source draft_lookup = {lookup, NULL};
