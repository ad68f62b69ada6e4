/* SPDX-License-Identifier: MIT
 * generate.h: prompt ids in, tokens out: prefill in chunks, then decode, with sampling, stop ids
 * and the receipt. What the CLI runs; one sequence. */
#ifndef SHOAL_NODE_GENERATE_H
#define SHOAL_NODE_GENERATE_H

#include "node/infer/infer.h"
#include "node/infer/receipt.h"
#include "node/infer/sample.h"
#include "node/infer/speculate.h"

struct generate_opts {
    const uint32_t *prompt; /* ids; at least one */
    size_t n_prompt;
    uint32_t max_new; /* the end of the model's positions ends it, too */
    struct sample_opts sample;
    const uint32_t *stop;   /* ids that end the run (the stop id is chosen, and counted in ids) */
    size_t n_stop;          /* 0: only max_new ends it (--ignore-eos) */
    uint32_t prefill_chunk; /* rows a call; 0 = all that fit */
    struct spec_opts spec;  /* drafts; ids and receipt are the same with any */
    /* For proofs: after this many new tokens save the state to the file, drop it, load it again. */
    const char *reload_path;
    uint32_t reload_after;
    /* Called for each new token as it is chosen; nonzero ends the run (not an error). */
    int (*on_token)(void *ctx, uint32_t id);
    /* The store has taken back bytes that the answer so far rests on, and all begins anew; `why` is
     * a sentence. True: nobody has seen the tokens that were told, and they are forgotten. Else,
     * and with NULL, those that come first must be the same ones, and are not told again: if one
     * differs, the run ends with ERR_DIGEST. */
    bool (*on_again)(void *ctx, const char *why);
    /* Called before each prefill call with the tokens done so far. All of these may be NULL. */
    void (*on_prefill)(void *ctx, size_t done, size_t total);
    void *ctx;
};

struct generate_result {
    uint32_t *ids; /* malloc'ed; free with generate_result_free */
    size_t n;
    bool stopped; /* by a stop id */
    struct receipt receipt;
    double prefill_s, decode_s;
    size_t decoded; /* tokens that decode_s paid for */
    struct spec_stats spec;
    uint32_t again;           /* times that it was begun anew */
    struct store_since since; /* of the state that gave the answer */
};
#define GENERATE_AGAIN_MAX 8

int generate(struct infer *f, const struct model *m, const struct generate_opts *o,
             struct generate_result *out, struct err *e);
void generate_result_free(struct generate_result *r);

#endif
