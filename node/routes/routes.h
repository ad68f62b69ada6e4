/* SPDX-License-Identifier: MIT
 * routes.h: which experts a model's routers chose, step after step, as a file.
 *
 * The file is text, so that people and scripts can read it:
 *   shoal-routes 1
 *   model ROOT layers N experts N topk N bytes N     (ROOT: 64 hex digits; bytes of one expert)
 *   step ROWS                                        (ROWS tokens computed together)
 *   LAYER EXPERT EXPERT ...                          (the distinct experts of that layer,
 * ascending) It tells nothing of the words, but something of what was spoken of: treat it as
 * private. */
#ifndef SHOAL_NODE_ROUTES_H
#define SHOAL_NODE_ROUTES_H

#include "proto/base/buf.h"
#include "proto/base/err.h"
#include "proto/base/sha256.h"

#include <stdint.h>
#include <stdio.h>

#define ROUTES_FILE_MAX ((size_t)1 << 30)
#define ROUTES_LAYERS_MAX 4096
#define ROUTES_EXPERTS_MAX 65536
#define ROUTES_ROWS_MAX 65536 /* of a step */

struct routes_head {
    uint8_t root[SHA256_SIZE];
    uint32_t layers, experts, topk; /* layers: as in the model, dense ones included */
    uint64_t expert_bytes;
};

/* ---- writing; one thread ---- */

struct routes_out;
/* Makes the file (mode 0600), replacing one that is there. */
int routes_create(const char *path, const struct routes_head *h, struct routes_out **out,
                  struct err *e);
/* One layer of one step. A layer that is not above the last one begins a new step. `ids`: n
 * distinct experts, any order. Errors are kept for routes_finish. */
void routes_add(struct routes_out *w, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n);
/* Writes what is left and frees `w` (NULL is fine). An error names the file; it is incomplete then.
 */
int routes_finish(struct routes_out *w, struct err *e);

/* ---- reading ---- */

/* One expert of one layer of one step, in the order of the file. */
struct routes_use {
    uint32_t object; /* layer * experts + expert */
    uint32_t step;
};
struct routes {
    struct routes_head head;
    struct routes_use *use; /* [n] */
    size_t n;
    uint32_t steps;
    uint64_t rows; /* of all steps: tokens */
};
/* ERR_FORMAT: the sentence names the line. Free with routes_free, also after an error. */
int routes_parse(const char *text, size_t n, struct routes *out, struct err *e);
int routes_read(const char *path, struct routes *out, struct err *e);
/* Made up: `tokens` steps of one token at Kimi K3's shape, whose routers prefer nothing: each layer
 * chooses its 16 of 896 experts at random. What a cache can do for such a model is the least. */
int routes_flat(uint32_t tokens, struct routes *out, struct err *e);
void routes_free(struct routes *r);

#endif
