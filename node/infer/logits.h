/* SPDX-License-Identifier: MIT
 * logits.h: the logits of every position of a sequence, a few rows at a time. */
#ifndef SHOAL_NODE_LOGITS_H
#define SHOAL_NODE_LOGITS_H

#include "node/infer/infer.h"

#define LOGITS_AGAIN_MAX 8 /* times that all of it is begun anew */

struct logits_opts {
    const uint32_t *ids;
    size_t n;     /* at least 1 */
    size_t chunk; /* rows held in memory at a time, at least 1 */
    /* Rows at .. at + n - 1 of the model's vocabulary each. Nonzero ends it with that error. */
    int (*rows)(void *ctx, size_t at, size_t n, const float *logits, struct err *e);
    /* Bytes of another member that the rows so far rest on have been taken back (`why`, a
     * sentence): all rows come once more. May be NULL. */
    void (*again)(void *ctx, const char *why);
    void *ctx;
};

struct logits_result {
    uint32_t again;           /* times that it was begun anew */
    struct store_since since; /* of what gave the rows */
};

/* Only when it returns 0 do the rows count: what they rest on is looked at once more at the end. */
int logits_all(struct infer *f, const struct model *m, const struct logits_opts *o,
               struct logits_result *out, struct err *e);

#endif
