/* SPDX-License-Identifier: MIT
 * infer.h: the forward pass of K3 over rows of (sequence, position), and the state of a sequence.
 *
 * All arithmetic goes through a kern_backend, all bytes through a store; how rows are grouped into
 * calls, in which order experts arrive and where they come from changes no bit of any logit
 * (kernels/NUMERICS.md). One thread at a time uses an infer and its states. */
#ifndef SHOAL_NODE_INFER_H
#define SHOAL_NODE_INFER_H

#include "kernels/backend.h"
#include "node/store/used.h"
#include "proto/base/err.h"

struct infer;       /* opaque: weights in use, scratch */
struct infer_state; /* opaque: one sequence: KDA states, convolution histories, latent caches */

/* What a forward call is doing, for progress lines and for cancelling between layers. */
struct infer_progress {
    uint32_t layer, n_layers;
    uint32_t experts_done, experts_total; /* of the present layer */
};

/* Experts of the next layer are guessed by its router applied to the present residual, and asked
 * for while this layer computes. A guess changes no result. AUTO measures, call by call, whether it
 * makes them shorter, and asks for what is on disk alone; ON also for what would come from peers or
 * the origin. */
enum infer_prefetch { INFER_PREFETCH_AUTO, INFER_PREFETCH_OFF, INFER_PREFETCH_ON };

struct infer_opts {
    struct store *st;        /* borrowed; must outlive the infer */
    struct kern_backend *be; /* borrowed; must outlive the infer */
    uint64_t spine_budget;   /* bytes of spine tensors kept resident; layers beyond it are streamed,
                                the next layer read ahead. UINT64_MAX: all of it */
    uint32_t max_rows;       /* rows of one internal step; 0 = 64. Larger calls are split */
    uint64_t shuffle; /* for proofs: nonzero asks for each layer's experts in an order drawn from
                         it; the result must not change */
    /* Called between layers and while experts are awaited; nonzero cancels (ERR_CANCELLED).
     * May be NULL. */
    int (*progress)(void *ctx, const struct infer_progress *p);
    void *progress_ctx;
    enum infer_prefetch prefetch;
    /* Told which experts a layer's router chose for the `rows` rows of a step: n distinct ones,
     * ascending. May be NULL. */
    void (*routed)(void *ctx, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n);
    void *routed_ctx;
};

/* Loads the resident spine (this can take long: the store's log and stats tell). */
int infer_open(const struct infer_opts *o, struct infer **out, struct err *e);
void infer_close(struct infer *f); /* no state may be left */
const struct model_config *infer_config(const struct infer *f);
struct store *infer_store(const struct infer *f);
/* The store_mem that puts objects into the backend's buffers, and the admission check that belongs
 * in store_opts.admit (ctx: the model, i.e. store_set_admit(st, infer_admit, (void
 * *)store_model(st))). It refuses, by name, an expert with a scale byte 255 or a weight outside
 * [2^-62, 2^62], a nonzero A_log beyond the head count, a NaN or infinity in the spine; spine
 * weights under 2^-62 become +0. */
struct store_mem infer_store_mem(struct kern_backend *be);
int infer_admit(void *model, uint32_t id, uint8_t *p, size_t n, struct err *e);

/* Where the spine is, decided by infer_open (weights.c); bytes. */
struct infer_spine {
    uint64_t resident;  /* in memory, as it is computed with */
    uint64_t kept;      /* in memory, packed (node/store/forms.h), unpacked anew for every call: */
    uint64_t kept_from; /* so many bytes of weights */
    uint64_t streamed;  /* weights that are read from the disk for every call: */
    uint64_t disk;      /* so many bytes there */
};
void infer_get_spine(const struct infer *f, struct infer_spine *out);

/* Since infer_open, over all forward calls. The parts add up to `wall`. The weights that were
 * loaded by infer_open are not in it. */
struct infer_times {
    uint64_t wall_ns;
    uint64_t compute_ns; /* the backend has worked, and what it takes to tell it what */
    /* Asking and giving back, objects that were in RAM; waited for one that came from disk, peers
     * or origin, whatever else came meanwhile; that failed, or was damaged where it was first. */
    uint64_t ram_ns, disk_ns, peers_ns, origin_ns, stall_ns;
};
struct infer_ahead {
    uint64_t layers;       /* for which experts were guessed, */
    uint64_t chosen;       /* how many their routers chose then, */
    uint64_t guessed;      /* how many had been guessed, */
    uint64_t right;        /* of these were chosen, */
    uint64_t moved;        /* of these were not in RAM and have been brought there in time; */
    uint64_t wasted_bytes; /* brought to RAM and not chosen */
    bool on;               /* at present */
    const char *why;       /* it is not */
};
void infer_get_times(const struct infer *f, struct infer_times *out);
void infer_get_ahead(const struct infer *f, struct infer_ahead *out);

/* ---- sequences ---- */

int infer_state_new(struct infer *f, struct infer_state **out, struct err *e);
void infer_state_free(struct infer_state *s);          /* NULL allowed */
uint32_t infer_state_pos(const struct infer_state *s); /* tokens taken in so far */
/* An equal state that lives on its own (and has no mark). */
int infer_state_copy(const struct infer_state *s, struct infer_state **out, struct err *e);
/* 0, or ERR_DIGEST in words: since its first row was computed the store has taken back bytes of an
 * object that was used (node/store/used.h), so the state may be wrong and is of no use. A state of
 * a file counts as of an earlier process until infer_state_set_since. */
int infer_state_spoilt(const struct infer_state *s, struct err *e);
struct store_since infer_state_since(const struct infer_state *s);
void infer_state_set_since(struct infer_state *s, struct store_since since);
/* A file (mode 0600, written whole or not at all) that holds the state exactly, with model root,
 * numerics version and a SHA-256; load refuses another model, version, or a damaged file. */
int infer_state_save(const struct infer_state *s, const char *path, struct err *e);
int infer_state_load(struct infer *f, const char *path, struct infer_state **out, struct err *e);
/* Bytes of a state at `pos` tokens (architecture note, 2.11): of this infer's model; of a model
 * that is known by its configuration alone. */
uint64_t infer_state_bytes(const struct infer *f, uint32_t pos);
uint64_t infer_shape_bytes(const struct model_config *c, uint32_t pos);

/* Memory that each row of max_rows takes, of work arrays. */
uint64_t infer_row_bytes(const struct model_config *c);

/* ---- rows that may be taken back ----
 *
 * infer_state_mark; forward calls that give the state at most `rows` rows more; infer_state_rewind.
 * Then every bit of the state is as if it had taken in the first `keep` of those rows only. The
 * latent caches just get shorter; of the KDA states and the convolution histories a copy is made at
 * the mark, and the rows that stay are folded into it again, from what each row gave to that fold:
 * no weight of the model is needed for it but a few small vectors. */

/* Room for `rows` (at least 1) is kept from mark to mark, in memory of the state's; it goes with
 * the state, or by infer_state_unmark. ERR_NOMEM: the state is as it was. A mark replaces the last
 * one. */
int infer_state_mark(struct infer_state *s, uint32_t rows, struct err *e);
/* ERR_ARG: no mark, or fewer rows came since. A state that an error or infer_drop has made unusable
 * comes back by keep = 0, and in no other way. On an error the state is unusable. The mark is used
 * up. */
int infer_state_rewind(struct infer_state *s, uint32_t keep, struct err *e);
void infer_state_unmark(struct infer_state *s);                  /* keep all rows; frees the room */
uint64_t infer_mark_bytes(const struct infer *f, uint32_t rows); /* that a mark takes */

/* ---- the forward pass ---- */

struct infer_row {
    struct infer_state *state; /* rows of one state must be neighbours, in order of position */
    uint32_t token;
    bool want_logits;
};

/* Extends each state by its rows. logits: one row of `vocab` floats per row with want_logits, in
 * order. On error the states of the call are unusable (every later use but free says so). */
int infer_forward(struct infer *f, const struct infer_row *rows, size_t n, float *logits,
                  struct err *e);
/* Inside infer_opts.progress only: the rows of this state are computed no further from the next
 * layer on and the state becomes unusable; the other rows of the call go on and get the bits they
 * would have got. The places of its logits are left as they are. A call all of whose states were
 * dropped ends with ERR_CANCELLED. */
void infer_drop(struct infer_state *s);
bool infer_dropped(const struct infer_state *s);

#endif
