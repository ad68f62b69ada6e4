/* SPDX-License-Identifier: MIT
 * internal.h: what the files of node/infer share. Not for others. */
#ifndef SHOAL_NODE_INFER_INTERNAL_H
#define SHOAL_NODE_INFER_INTERNAL_H

#include "node/infer/infer.h"
#include "node/store/used.h"

/* The spine tensors of one layer, pinned. A resident layer holds them for good, a streamed one from
 * layer_hold to layer_drop. */
struct layer {
    struct store_view v[MODEL_LAYER_ROLE_COUNT]; /* p NULL: no such tensor */
    bool resident, held;
};

struct cmds { /* a recording; grows, reused */
    struct kern_cmd *v;
    size_t n, cap;
    bool failed;          /* out of memory while recording; cmds_run reports it */
    struct kern_cmd lost; /* where a recording without memory writes */
};

/* An object that submitted commands use: it goes back to the store when they are done. */
#define LATER 8
struct later {
    struct store_view v;
    uint64_t fence; /* 0: its commands are recorded, not submitted */
};
/* Experts that are there are submitted so many at a time. */
#define TOGETHER (LATER / 2)
/* What the store gives back of its memory when the backend has none for its own. */
#define ROOM_BYTES ((uint64_t)256 << 20)

/* Per-step arrays, each [max_rows] rows wide; see scratch.c for the widths. */
#define SCRATCH(X) \
    X(p)           \
    X(bank)        \
    X(h)           \
    X(xn)          \
    X(a)           \
    X(site)        \
    X(raw)         \
    X(q)           \
    X(k)           \
    X(v)           \
    X(f)           \
    X(fa)          \
    X(b)           \
    X(gate)        \
    X(o)           \
    X(qa)          \
    X(ckv)         \
    X(up)          \
    X(down)        \
    X(mlp)         \
    X(rlogits)     \
    X(ids)         \
    X(rw)          \
    X(z)           \
    X(eg)          \
    X(eu)          \
    X(ey)          \
    X(u)           \
    X(maps)        \
    X(flag)        \
    X(emb)         \
    X(logits)      \
    X(gsite)       \
    X(gh)          \
    X(gxn)         \
    X(glogits)     \
    X(gids)        \
    X(grw)

struct scratch {
#define SCRATCH_FIELD(n) struct kern_buf *n;
    SCRATCH(SCRATCH_FIELD)
#undef SCRATCH_FIELD
};

/* ahead.c: experts of the next layer, guessed. */
#define AHEAD_ROWS 4  /* of a step with more, nearly all experts are wanted anyway */
#define AHEAD_PROBE 8 /* calls with, and calls without, that are compared */

struct guess {
    uint32_t id;
    float w; /* the weight that it would have */
};

struct ahead {
    enum infer_prefetch mode;
    bool room;             /* the RAM budget holds what is guessed beside what is in use */
    bool on;               /* this call */
    const char *why;       /* not */
    uint32_t layer;        /* what `b` is for; 0: none */
    struct store_batch *b; /* the guessed experts */
    uint32_t n;
    uint32_t *ids, *obj;           /* [AHEAD_ROWS * topk] experts, the surest first; objects */
    uint8_t *was;                  /* [..] enum store_tier when they were guessed */
    struct guess *guess;           /* [..] to sort them */
    struct infer_ahead s;          /* numbers */
    uint64_t call_waited;          /* of the present call */
    uint32_t calls;                /* since the last decision */
    uint64_t took[2][AHEAD_PROBE]; /* nanoseconds of calls without and with */
    uint64_t waited, spent;        /* of calls since the last decision */
    bool probing, pays;
};

struct infer {
    struct store *st;
    const struct model *m;
    const struct model_config *c;
    struct kern_backend *be;
    uint32_t max_rows, logit_rows;
    uint64_t shuffle, shuffled; /* see infer_opts; draws made so far */
    int (*progress)(void *ctx, const struct infer_progress *p);
    void *progress_ctx;
    void (*routed)(void *ctx, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n);
    void *routed_ctx;
    struct layer *layers; /* [n_layers] */
    struct store_view global[MODEL_ROLE_COUNT - MODEL_GLOBAL_FIRST];
    bool globals_resident, globals_held;
    struct store_view *pins; /* [n_pins]: what is not packed of units kept packed */
    size_t n_pins;
    struct infer_spine spine;
    uint64_t backs;    /* store_backs when weights_renew looked */
    uint32_t n_states; /* alive */
    bool dropping;     /* infer_drop was called since the last look */
    struct scratch s;
    struct kern_buf **fold; /* [kda layers] fold_weights of layers that are not resident, or NULL */
    struct cmds cmds;
    uint64_t fence; /* of the last submission */
    struct later later[LATER];
    uint32_t n_later;
    struct infer_times times;
    uint64_t called, seen; /* when the present call began, up to when its time is accounted for; 0:
                              there is none */
    struct ahead ahead;
    /* MoE bookkeeping of one layer */
    uint32_t *want;   /* [n_experts] object ids asked for */
    uint32_t *want_e; /* [n_experts] their expert ids */
    uint32_t *count;  /* [n_experts] rows per expert */
    uint32_t *start;  /* [n_experts] first entry in maps */
};

/* mark.c: what it takes to go back to where the state was. */
struct mark {
    bool on;
    uint32_t pos;                /* of the state then */
    uint32_t rows, cap;          /* that may come, that there is room for */
    struct kern_buf *kda, *conv; /* the state's, as they were */
    /* What came since, row by row: [kda layers][3 streams][cap][heads*dim] before the convolution,
     * [kda layers][cap][heads*dim], [kda layers][cap][heads]. */
    struct kern_buf *raw, *f, *b;
};

struct infer_state {
    struct infer *f;
    uint32_t pos;
    struct store_since since; /* when its first row was computed */
    bool broken;
    bool dropped;             /* its rows leave the present step at the next layer */
    uint32_t cap;             /* rows of every latent cache */
    struct kern_buf *kda;     /* [kda layers][heads][dim][dim] */
    struct kern_buf *conv;    /* [kda layers][3 streams][conv-1][heads*dim]; NULL when conv = 1 */
    struct kern_buf **latent; /* [mla layers] of [cap][kv_rank + rope] */
    struct mark mark;
};

/* A stretch of rows of one state in the present step. */
struct run {
    struct infer_state *st;
    uint32_t first, n; /* rows first .. first+n-1 */
};

struct step {
    struct infer_row *rows; /* [max_rows] */
    uint32_t *slot; /* [max_rows] where the row's logits go, counted from the step's first */
    uint32_t T;
    uint32_t nb; /* rows in the bank */
    struct run *runs;
    uint32_t n_runs;
    uint32_t wanted; /* rows whose logits are wanted */
};

/* weights.c */
int weights_open(struct infer *f, uint64_t budget, struct err *e);
void weights_close(struct infer *f);
/* Resident weights whose bytes the store has taken back are got anew. */
int weights_renew(struct infer *f, struct err *e);
int layer_hold(struct infer *f, uint32_t l, struct err *e);
void layer_drop(struct infer *f, uint32_t l);
void layer_hint(struct infer *f, uint32_t l); /* l = n_layers: the globals */
int globals_hold(struct infer *f, struct err *e);
void globals_drop(struct infer *f);
struct kern_mat weight_mat(const struct infer *f, uint32_t l, enum model_role r);
struct kern_vec weight_vec(const struct infer *f, uint32_t l, enum model_role r);

/* scratch.c */
/* Of the backend; when it has no memory, the store gives back some of what nobody uses. NULL: none.
 */
struct kern_buf *infer_buf(struct infer *f, size_t size);
int scratch_open(struct infer *f, struct err *e);
void scratch_close(struct infer *f);

/* cmds.c: recording. */
struct kern_cmd *cmd_add(struct cmds *l, enum kern_op op);
struct kern_cmd *cmd_matmul(struct infer *f, struct kern_mat w, struct kern_ref x,
                            struct kern_ref y, uint32_t T); /* the command, to add maps to */
void cmd_rmsnorm(struct infer *f, struct kern_ref x, uint32_t xstride, struct kern_vec w,
                 struct kern_ref y, uint32_t n, uint32_t T, float eps);
void cmd_add_rows(struct infer *f, struct kern_ref a, struct kern_ref b, struct kern_ref y,
                  uint32_t n);
void cmd_situ(struct infer *f, struct kern_ref g, struct kern_ref u, struct kern_ref y, uint32_t n);
void cmd_gate(struct infer *f, struct kern_ref x, struct kern_ref g, struct kern_ref y, uint32_t n);
/* Layer l's router on T rows of x: its logits, the chosen ids [T][topk] and their weights. */
void cmd_router(struct infer *f, uint32_t l, struct kern_ref x, struct kern_buf *logits,
                struct kern_buf *ids, struct kern_buf *w, uint32_t T);
/* Submit what was recorded and start a new recording. What it reads and writes is the backend's
 * until cmds_run or cmds_settle: the host looks at no result and touches no operand before. */
int cmds_submit(struct infer *f, struct err *e);
/* The same, and wait for all that was ever submitted. */
int cmds_run(struct infer *f, struct err *e);
bool cmds_done(const struct infer *f); /* is all that was submitted done? */
/* timed_release when the commands that were recorded up to now are done; *v is taken over, also on
 * an error. At most LATER are held: the caller submits and waits before it blocks for another. */
int cmds_release(struct infer *f, struct store_view *v, struct err *e);
/* After an error: forget what is recorded, wait for what is submitted, release what is held. */
void cmds_settle(struct infer *f);

/* attention.c, ffn.c: one layer's halves over the rows of a step; x = s.xn, result in s.a. */
void attention(struct infer *f, uint32_t l, const struct step *s);
int ffn(struct infer *f, uint32_t l, const struct step *s, struct err *e);

/* The weights by which rows are folded into the state of KDA layer l. */
struct fold_weights {
    struct kern_ref conv[3]; /* [heads*dim][conv] */
    struct kern_ref a_log, dt_bias;
};
struct fold_weights fold_weights(const struct infer *f, uint32_t l); /* the layer is held */
/* n rows of one state: x before the convolution, y after it. */
void fold_conv(struct infer *f, uint32_t l, const struct infer_state *st, uint32_t stream,
               struct kern_ref w, struct kern_ref x, struct kern_ref y, uint32_t n);
struct fold_rows {
    struct kern_ref q, k, v, f, b, o;
};
void fold_kda(struct infer *f, uint32_t l, const struct infer_state *st,
              const struct fold_weights *w, const struct fold_rows *r, uint32_t n);

/* mark.c: record what the rows of a run give to a fold; for states without a mark nothing. */
void mark_raw(struct infer *f, uint32_t l, const struct run *r, uint32_t stream);
void mark_gates(struct infer *f, uint32_t l, const struct run *r);
void mark_weights(struct infer *f, uint32_t l, const struct step *s);
void mark_close(struct infer *f);

/* forward.c */
/* After a wait: did a layer, or the head, give a NaN or an infinity? */
int verdict(const struct infer *f, struct err *e);
/* h = mix of nb rows of the bank and of p, weighed by norm * proj (site: H floats). */
void mix_rows(struct infer *f, struct kern_vec norm, struct kern_vec proj, uint32_t nb, uint32_t T,
              struct kern_buf *site, struct kern_buf *h);

/* times.c */
/* Around a forward call; how long it took. */
void times_begin(struct infer *f);
uint64_t times_end(struct infer *f);
/* All since the last call of one of these functions was computing. */
void times_computed(struct infer *f);
/* As the store's functions of these names, the time on record. */
int timed_next(struct infer *f, struct store_batch *b, size_t *which, struct store_view *v,
               struct err *e);
int timed_begin(struct infer *f, const uint32_t *ids, size_t n, enum store_prio prio,
                struct store_batch **b, struct err *e);
void timed_end(struct infer *f, struct store_batch *b);
void timed_release(struct infer *f, struct store_view *v, bool drop);
int timed_read(struct infer *f, uint32_t id, uint64_t off, void *p, size_t n, struct err *e);
/* As store_where, on record. */
enum store_tier timed_where(struct infer *f, uint32_t id);
uint64_t times_waited(const struct infer *f);

/* ahead.c */
int ahead_open(struct infer *f, enum infer_prefetch mode, struct err *e);
void ahead_close(struct infer *f);
/* Around a forward call of n rows. */
void ahead_begin(struct infer *f, size_t n);
void ahead_end(struct infer *f, size_t n);
/* Before the commands of layer l that need no experts are run: may record the guess for l + 1. */
bool ahead_record(struct infer *f, uint32_t l, const struct step *s);
/* After they were run: asks for it. */
void ahead_ask(struct infer *f, uint32_t l, uint32_t T);
/* Layer l's n experts are known (f->count) and asked for: the losers are given up. */
void ahead_settle(struct infer *f, uint32_t l, size_t n);

/* state.c */
int state_reserve(struct infer_state *s, uint32_t rows, struct err *e);
/* Index of layer l among the KDA (or MLA) layers. */
uint32_t state_slot(const struct infer *f, uint32_t l);
uint32_t state_count(const struct infer *f, enum model_attn kind);
size_t state_kda_floats(const struct infer *f);  /* of one KDA layer */
size_t state_conv_floats(const struct infer *f); /* of one KDA layer, three streams */
uint32_t state_latent_width(const struct infer *f);

#endif
