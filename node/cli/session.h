/* SPDX-License-Identifier: MIT
 * session.h: a model made ready by command-line options: where it lies, what memory it may take
 * (the plan, printed at start), the store, the backend, the forward pass, the tokenizer, and the
 * progress line that tells what all of them are doing.
 *
 * One thread at a time uses a session. */
#ifndef SHOAL_NODE_CLI_SESSION_H
#define SHOAL_NODE_CLI_SESSION_H

#include "node/cli/awake.h"
#include "node/cli/cli.h"
#include "node/cli/live.h"
#include "node/cli/net.h"
#include "node/cli/short.h"
#include "node/compute/compute.h"
#include "node/infer/infer.h"
#include "node/infer/speculate.h"
#include "node/store/store.h"
#include "node/text/tok.h"

#include <pthread.h>

/* ---- options ---- */

struct node;

/* A node that is open already: the session uses its store and leaves it open. The memory of what
 * computes (infer_store_mem) is the store's. */
struct session_over {
    struct node *node;
    struct compute *compute;
};

struct model_opts {
    const char *model, *home, *cache;
    bool offline;
    struct opt_texts mirrors;
    struct opt_count rate_limit, mirror_rate, disk_budget, disk_floor;
    struct opt_choice trust; /* in the order of enum store_rests */
    struct net_opts net;
    const struct session_over *over; /* NULL: open what is needed; no option */
    /* Hears of the forward pass's progress in place of the session; no option. */
    int (*progress)(void *ctx, const struct infer_progress *p);
    void *progress_ctx;
    const char
        *record_routes; /* a file for what the routers choose (node/routes), or NULL; no option */
};
/* What can be told without opening anything is wrong usage: ERR_ARG. */
int model_opts_check(const struct model_opts *o, struct err *e);
extern const struct opt_group model_group; /* at 0: copy and set `at` */

struct compute_opts {
    struct opt_count threads, ram, spine_ram, chunk;
    struct opt_choice backend, isa, prefetch;
    bool flush_subnormals;
};
extern const struct opt_group compute_group;

/* Tables of the two groups, for commands that list them with their own offsets. */
extern const struct opt model_opts_table[], compute_opts_table[];
extern const char *const cli_trust_names[]; /* in the order of enum store_rests */
#define CLI_TRUST_HELP                                                                          \
    "what the bytes that are computed with must rest on, else they are refused by name: any "   \
    "(the default), member (one member's word, compared by samples where the origin answers), " \
    "two (members that say the same), origin (this node's own download) or manifest"
extern const char *const cli_isa_names[]; /* in the order of enum kern_isa, NULL-terminated */
#define MODEL_OPTS_COUNT (10 + NET_OPTS_COUNT)
#define COMPUTE_OPTS_COUNT 9

/* ---- the plan (plan.c) ---- */

/* What memory goes where, and what bound each number: a sentence's end such as "given by --ram". */
struct plan {
    uint64_t memory; /* of the machine or container; 0 = unknown */
    uint64_t half;   /* what Shoal takes of it by default */
    uint64_t spine_bytes, spine_budget;
    uint64_t expert_bytes, expert_size, ram_budget; /* all experts, one, kept in RAM */
    uint64_t state_fixed, state_per_token;          /* bytes; filled once infer is open */
    uint32_t chunk;                                 /* prompt tokens that are computed together */
    uint64_t chunk_bytes;                           /* memory that this takes */
    char spine_why[96], ram_why[96], chunk_why[96];
};
/* Fill all but the state. Never fails. */
void plan_make(struct plan *p, const struct model *m, const struct compute_opts *o,
               uint64_t memory);
/* Bound to the memory that a GPU may use, 0: there is no such bound. Experts give way first, as far
 * as half of it. */
void plan_limit(struct plan *p, uint64_t limit);
/* How many prompt tokens together, once the rest is known; row_bytes: what each of them takes. A
 * chunk reads each layer of the spine that is not in memory, and each expert that one of its tokens
 * chooses, once: the more tokens, the fewer bytes for each. */
#define PLAN_CHUNK_LEAST 64
#define PLAN_CHUNK_MOST 1024
void plan_chunk(struct plan *p, const struct compute_opts *o, uint64_t row_bytes);
json_t *plan_json(const struct plan *p);

/* What is measured of the machine, and of the model: bytes, bytes a second. */
struct spine_facts {
    double bytes;  /* of the spine that a token reads: all but the embedding */
    double ram;    /* of memory for it */
    double ratio;  /* packed bytes by bytes */
    double disk;   /* rate of reading files */
    double unpack; /* of bytes that come out, one core */
    double read;   /* of memory, one core */
    double cores;
};
/* Seconds that a token needs for the spine in one form and the other: the longer of reading and
 * computing, since they overlap; unpacking takes the cores from computing. */
void plan_spine(const struct spine_facts *f, double *bf16, double *packed);

/* ---- the session ---- */

enum phase {
    PHASE_IDLE,
    PHASE_OPEN,
    PHASE_FETCH,
    PHASE_SPINE,
    PHASE_PREFILL,
    PHASE_DECODE,
    PHASE_QUIET
};

struct cli_session {
    struct cli *c;
    const char *source; /* the folder or URL in use */
    bool demo;          /* it is the demo model, since no --model was given */
    struct buf source_buf, cache_buf;
    struct cli_net net; /* what it takes to reach the origin */
    const char *cache;  /* NULL: read in place */
    struct plan plan;
    struct awake awake; /* the machine's, while something is computed or set up */
    struct compute *compute;
    struct shortage *shortage; /* lets experts give way where memory is short */
    struct node *node;         /* with --home: the store is its */
    bool shared;               /* that node is in a shoal */
    struct store *st;
    const struct model *m;
    struct infer *f;
    struct tok *tok;   /* NULL when the model has none (SESSION_PLAN): cli_session_need_tok */
    struct err no_tok; /* why there is none */
    bool f_wanted;     /* SESSION_FETCH and more: the tokenizer may be missing */
    uint32_t chunk;    /* rows of one prefill call */
    enum infer_prefetch prefetch;
    struct live *live;
    bool borrowed; /* node and compute are another's: left open */
    int (*progress)(void *ctx, const struct infer_progress *p);
    void *progress_ctx;
    const char *record_routes;
    struct routes_out *routes; /* open while s->f is, with record_routes */

    pthread_mutex_t lock; /* guards what follows: written by the worker, read by the live thread */
    enum phase phase;
    double phase_start;
    uint64_t done, total; /* prompt tokens, new tokens, or bytes on disk */
    double rate;          /* PHASE_FETCH: bytes a second, 0: not known yet */
    struct infer_progress layer;
    bool store_ready; /* st may be asked for numbers */
};

/* What a command needs, in growing order. */
enum cli_session_depth {
    SESSION_TEXT,  /* tok only; a folder needs just its tokenizer files */
    SESSION_STORE, /* st, m and tok */
    SESSION_FETCH, /* the same, but the model may have no tokenizer */
    SESSION_PLAN,  /* compute and plan too: all but f, which cli_session_load makes */
    SESSION_INFER  /* all */
};

/* Fill *s. `o` and `k` (k may be NULL for less than SESSION_INFER) must outlive it. Prints the plan
 * with SESSION_PLAN and more. On failure everything is closed again and e says why. */
int cli_session_open(struct cli_session *s, struct cli *c, const struct model_opts *o,
                     const struct compute_opts *k, enum cli_session_depth depth, struct err *e);
/* Bring the spine into memory: may take long, on any one thread. May be tried again. */
int cli_session_load(struct cli_session *s, struct err *e);
void cli_session_close(struct cli_session *s);
/* A decode has begun (+1) or ended (-1): the node serves peers a little later meanwhile. */
void cli_session_computing(struct cli_session *s, int by);
/* Append what --model means: the folder or URL (for a hub's org/name[@revision] its address, whose
 * branch cli_net_open makes a commit), or the demo model's folder when it is NULL, checked
 * as far as it can be without opening it. */
int cli_model_source(const char *exe, const char *model, struct buf *out, struct err *e);
/* Why a model could not be opened, in plainer words when its folder holds none. Returns e->code. */
int cli_model_hint(const char *source, struct err *e);
/* ERR_NOTFOUND with a sentence when the model came without a tokenizer. */
int cli_session_need_tok(const struct cli_session *s, struct err *e);
/* Say what the worker is doing now (progress.c); total may be 0. */
void cli_session_phase(struct cli_session *s, enum phase p, uint64_t done, uint64_t total);
/* PHASE_FETCH: how much of what is to be on disk is there. */
void cli_session_fetching(struct cli_session *s, uint64_t done, uint64_t total, double rate);
/* The compose function of the live line, and the progress hook of infer. */
void cli_session_compose(void *ctx, char *line, size_t n);
int cli_session_progress(void *ctx, const struct infer_progress *p);

/* The ids that end an answer: the config's, [EOS] and <|end_of_msg|>. At most SESSION_STOPS. */
#define SESSION_STOPS 4
size_t cli_session_stops(const struct cli_session *s, uint32_t out[SESSION_STOPS]);
/* The state of the tiers as JSON: the `stats` of a run without its times. */
/* Two lines for people: parts of the time of forward calls; what was guessed ahead. */
void cli_session_say_times(struct cli_session *s);
json_t *cli_session_stats_json(const struct cli_session *s, const struct store_stats *v);

/* What the objects that an answer used rest on: {"weakest", "objects": {by basis}}; a line. */
json_t *cli_basis_json(struct store *st, const struct store_since *since);
void cli_say_basis(struct cli *c, struct store *st, const struct store_since *since);

/* ---- drafts ---- */

#define CLI_SPECULATE_HELP                                                                        \
    "check guesses at the next tokens, taken from the prompt and the answer so far, in one pass " \
    "with the last one: auto (default) where it is measured to pay, off, or N: up to N each "     \
    "time, "                                                                                      \
    "also where experts come over the net; the answer is the same"
/* --speculate's value, NULL: not given; ERR_ARG quotes it. */
int cli_speculate(const char *value, struct spec_opts *out, struct err *e);
json_t *cli_speculate_json(const struct spec_stats *s);
void cli_say_speculate(struct cli *c, const struct spec_stats *s); /* a line for people */

/* ---- what computes (arith.c) ---- */

/* As the options say. `home` (NULL: the standard place) is where what a GPU's self-test found is
 * kept. say: lines about it. */
int cli_compute_open(const struct cli *c, const struct compute_opts *k, const char *home,
                     void (*say)(void *ctx, const char *line), void *ctx, struct compute **out,
                     struct err *e);
/* {"backend", "gpu", "why_not", ...}; a line for people. */
json_t *cli_compute_json(const struct compute *c);
void cli_compute_words(const struct compute *c, char *out, size_t n);

/* "1,2,3" to ids; ERR_ARG quotes the offender. Blanks around numbers are fine. */
int cli_session_parse_ids(const char *s, struct tok_ids *out, struct err *e);
/* Every id below the vocabulary size, or an error that names the first that is not. */
int cli_session_check_ids(const struct cli_session *s, const struct tok_ids *l, struct err *e);

#endif
