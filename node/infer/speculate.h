/* SPDX-License-Identifier: MIT
 * speculate.h: when a draft is worth its rows. A pass checks the last chosen token and a draft
 * behind it; as far as the draft says what the model chooses, each of its tokens saves a pass.
 * Whether that pays is measured while running: what a plain pass costs, what each draft row costs
 * on top (computing, and experts and spine from RAM, disk, net), and how often drafts are right.
 * Nothing here can change a token: rows are computed independently, each token is chosen from its
 * own logits as without drafts, and what was guessed wrongly is taken back (infer_state_rewind).
 *
 * One thread at a time, that of the infer. */
#ifndef SHOAL_NODE_SPECULATE_H
#define SHOAL_NODE_SPECULATE_H

#include "node/infer/draft.h"
#include "node/infer/infer.h"

#define SPEC_MOST 63 /* drafted tokens of one sequence in one pass */
#define SPEC_AUTO 15 /* the same where measurements decide: 16 rows decode each weight once */

enum spec_mode {
    SPEC_OFF,
    SPEC_MEASURED, /* as many as pay */
    SPEC_ALWAYS    /* whatever is proposed, up to `most` */
};

struct spec_opts {
    enum spec_mode mode;
    uint32_t most;                     /* 0: SPEC_AUTO; at most SPEC_MOST */
    const struct draft_source *source; /* NULL: draft_lookup */
};
/* "auto", "off" or a number from 1 to SPEC_MOST (0 is off); NULL: auto. False: none of these. */
bool spec_parse(const char *s, struct spec_opts *out);

/* How drafts of one sequence fared lately. Zero is a new one. */
struct spec_luck {
    double tried, right;
};
/* Of a draft the first `tried` tokens were looked at, and `right` of these were right. */
void spec_luck_add(struct spec_luck *l, uint32_t tried, uint32_t right);
double spec_luck_share(const struct spec_luck *l);

struct spec_stats {
    uint64_t passes;            /* that chose tokens by decoding, with draft or not */
    uint64_t with_draft;        /* of these with one */
    uint64_t drafted, accepted; /* tokens */
    uint64_t failed;            /* passes that were done again without their draft */
    double pass_s, row_s;       /* a plain pass of one row; a draft row on top; 0: not measured */
    double row_wait_s;          /* of row_s waiting for disk and net */
    double share;               /* of looked at tokens that were right, lately; of any sequence */
    const char *why;            /* at present nothing is drafted: a half-sentence, or NULL */
};

enum spec_part { SPEC_COMPUTE, SPEC_RAM, SPEC_DISK, SPEC_NET, SPEC_REST, SPEC_PARTS };

/* The measurements, of all sequences of an infer. */
struct spec {
    struct spec_opts o;
    struct infer *f;
    bool looked, here; /* it was looked, once, whether all experts are on this machine */
    struct {
        double part[SPEC_PARTS]; /* seconds */
        uint32_t n;
    } plain[64], row; /* a plain pass by rows (the last: that many or more); a draft row */
    uint32_t no_net;  /* passes in a row without a byte over the net */
    uint32_t since_plain, idle, hold;
    struct infer_times t0;
    uint64_t rest_ns; /* of the present pass, outside of forward calls */
    struct spec_luck luck;
    struct spec_stats s;
};

void spec_open(struct spec *s, struct infer *f, const struct spec_opts *o);
uint32_t spec_most(const struct spec *s); /* drafted tokens of one sequence in a pass; 0: off */

/* A draft of `n` tokens behind tokens[0..n_tokens): what the source says, cut at the first id that
 * is no token of the model, and before the first stop id: nobody would look behind it. max: what
 * the sequence may still take in. */
uint32_t spec_propose(const struct spec *s, const uint32_t *tokens, size_t n_tokens, uint32_t vocab,
                      const uint32_t *stop, size_t n_stop, size_t max, uint32_t out[SPEC_MOST]);

/* One sequence that has a draft. */
struct spec_cand {
    const struct spec_luck *luck;
    uint32_t have; /* tokens of its draft */
    uint32_t use;  /* out: how many of them are worth a row */
};
/* Before a pass of `rows` plain rows, with at most `room` draft rows. */
void spec_choose(struct spec *s, uint32_t rows, struct spec_cand *c, size_t n, uint32_t room);

/* Around a pass: of `rows` plain rows and `drafted` more. */
void spec_begin(struct spec *s);
void spec_rest(struct spec *s,
               uint64_t ns); /* time that the pass took outside of its forward call */
void spec_end(struct spec *s, uint32_t rows, uint32_t drafted);
/* What a pass cost, in place of spec_begin and spec_end: for those with a clock of their own. */
void spec_cost(struct spec *s, uint32_t rows, uint32_t drafted, const double part[SPEC_PARTS]);
/* One sequence's result, for the numbers and for its own luck. */
void spec_result(struct spec *s, struct spec_luck *l, uint32_t drafted, uint32_t accepted);
/* A draft that was not used began with the token that was then chosen, or not. */
void spec_shadow(struct spec *s, struct spec_luck *l, bool right);
void spec_get_stats(const struct spec *s, struct spec_stats *out);

#endif
