/* SPDX-License-Identifier: MIT
 * bench_model.h: `shoal bench decode` and `shoal bench prefill`, a part of cmd_bench.c: tokens of a
 * model that is read past the page cache, beside the time that its reads alone, and its arithmetic
 * alone, take. */
#ifndef SHOAL_NODE_CLI_BENCH_MODEL_H
#define SHOAL_NODE_CLI_BENCH_MODEL_H

#include "node/cli/cli.h"
#include "node/cli/session.h"

#define BENCH_ROUNDS_MAX 99
#define BENCH_TOKENS_MAX 4096
#define BENCH_WARM 4 /* tokens of decoding before the clock starts */

struct bench_model_opts {
    const char *model, *home, *cache; /* model NULL: the demo model */
    struct compute_opts compute;
    bool prefill;        /* else decode */
    uint32_t tokens;     /* 0: 12 of decode, 128 of prefill */
    uint32_t rounds;     /* 0: 5 */
    const char *receipt; /* that every run must have; NULL: that of the first */
    const char *plot;    /* NULL: none */
};
int cli_bench_model(struct cli *c, const struct bench_model_opts *o);

/* ---- the arms (bench_model_arms.c) ---- */

/* What the routers of one pass over the tokens chose, in order. */
struct bench_routes {
    uint32_t *id; /* objects */
    size_t n, cap;
    struct bench_turn {
        uint32_t layer;
        size_t end; /* in id */
    } * turn;
    size_t n_turns, cap_turns;
    bool on, lost; /* lost: no memory */
};

struct bench_arm { /* a store with a forward pass over it */
    struct store *st;
    struct infer *f;
    const struct model *m;
    uint32_t *spine;   /* objects that are not in memory between calls, layer by layer, */
    size_t *spine_end; /* [n_layers + 1], the head last: where each ends */
    struct bench_routes routes;
};

struct bench_open {
    const char *source, *cache; /* cache NULL: the folder is read in place */
    struct kern_backend *be;
    uint64_t ram, spine;
    uint32_t max_rows;
    enum infer_prefetch prefetch;
};

struct bench_took {
    double s; /* by a clock outside */
    struct infer_times t;
    uint64_t read; /* bytes from the disk */
    char receipt[2 * SHA256_SIZE + 1];
};

int bench_arm_open(struct bench_arm *a, const struct bench_open *o, struct err *e);
/* Before bench_arm_spine: everything onto the disk tier. */
int bench_arm_fill(struct bench_arm *a, struct err *e);
void bench_arm_close(struct bench_arm *a);
/* A new sequence of made-up tokens: `warm` before the clock starts, then `tokens`, `rows` a call.
 */
int bench_arm_run(struct bench_arm *a, uint32_t warm, uint32_t tokens, uint32_t rows,
                  struct bench_took *out, struct err *e);
/* The same reads as the last run, in the same order, each layer's when the one before is here, and
 * nothing computed. */
int bench_arm_read(struct bench_arm *a, double *seconds, uint64_t *bytes, struct err *e);

#endif
