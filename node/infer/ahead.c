/* SPDX-License-Identifier: MIT
 * ahead.c: experts of the next layer, guessed while this one computes: its router (with the mix and
 * the norm before it) is applied to the residual as it is now, without what this layer's experts
 * and the next attention will add. What it names is asked for behind everything that is needed.
 * Once the real choice is known, what was guessed wrongly and has not begun is given up.
 *
 * A guess costs reads that may be of no use, and takes the place of what is in RAM. Whether it is
 * worth it depends on disk, RAM, routes and what else goes on, so it is measured: short calls with
 * and without it take turns, and the shorter median wins for a while. Nothing here changes a bit.
 */
#include "node/infer/internal.h"

#include <stdlib.h>
#include <string.h>

#define HOLD 256                         /* calls between two measurements */
#define WORTH_ASKING ((uint64_t)1 << 20) /* bytes of an expert */
#define WAITING 50 /* below one part in so many of waiting there is nothing to gain */
#define WORTH(x) ((x) - (x) / 50) /* it must save a fiftieth */

static uint64_t expert_size(const struct infer *f)
{
    uint32_t l = f->c->first_dense;
    return l < f->c->n_layers ? model_object(f->m, model_expert_id(f->m, l, 0))->size : 0;
}

int ahead_open(struct infer *f, enum infer_prefetch mode, struct err *e)
{
    struct ahead *a = &f->ahead;
    struct store_stats s;
    size_t most = (size_t)AHEAD_ROWS * f->c->topk;
    a->mode = mode;
    a->why = mode == INFER_PREFETCH_OFF ? "it was turned off" : "nothing has been waited for yet";
    a->ids = calloc(most, sizeof *a->ids);
    a->obj = calloc(most, sizeof *a->obj);
    a->was = calloc(most, 1);
    a->guess = calloc(most, sizeof *a->guess);
    if (!a->ids || !a->obj || !a->was || !a->guess) {
        return err_set(e, ERR_NOMEM, "no memory for guesses");
    }
    /* what a layer uses, and what is guessed for the next */
    store_get_stats(f->st, &s);
    a->room = s.ram_budget / 2 >= expert_size(f) * f->c->topk;
    if (!a->room && mode != INFER_PREFETCH_OFF) {
        a->why = "the RAM budget holds no two layers' experts";
    }
    if (mode == INFER_PREFETCH_AUTO && expert_size(f) < WORTH_ASKING) {
        a->room = false;
        a->why = "experts are so small that asking takes as long as reading";
    }
    return 0;
}

static void give_up(struct infer *f)
{
    struct ahead *a = &f->ahead;
    timed_end(f, a->b);
    a->b = NULL;
    a->layer = 0;
}

void ahead_close(struct infer *f)
{
    give_up(f);
    free(f->ahead.ids);
    free(f->ahead.obj);
    free(f->ahead.was);
    free(f->ahead.guess);
}

/* ---- is it worth it ---- */

void ahead_begin(struct infer *f, size_t n)
{
    struct ahead *a = &f->ahead;
    times_begin(f);
    a->call_waited = times_waited(f);
    bool can = a->mode != INFER_PREFETCH_OFF && a->room && n <= AHEAD_ROWS;
    bool want = a->mode == INFER_PREFETCH_ON || (a->probing ? (a->calls & 1) != 0 : a->pays);
    a->on = can && want;
}

static int by_size(const void *p, const void *q)
{
    uint64_t a = *(const uint64_t *)p, b = *(const uint64_t *)q;
    return (a > b) - (a < b);
}

/* Without and with took turns AHEAD_PROBE times each. */
static void decide(struct ahead *a)
{
    for (int i = 0; i < 2; i++) {
        qsort(a->took[i], AHEAD_PROBE, sizeof a->took[i][0], by_size);
    }
    a->pays = a->s.layers && a->took[1][AHEAD_PROBE / 2] < WORTH(a->took[0][AHEAD_PROBE / 2]);
    a->why = a->pays       ? NULL
             : a->s.layers ? "tokens do not come sooner with it"
                           : "the spine is streamed: the disk is busy, the next router not here";
    a->probing = false;
    a->calls = 0;
    a->waited = a->spent = 0;
}

void ahead_end(struct infer *f, size_t n)
{
    struct ahead *a = &f->ahead;
    give_up(f);
    uint64_t took = times_end(f);
    if (a->mode != INFER_PREFETCH_AUTO || !a->room || n > AHEAD_ROWS) {
        return;
    }
    a->waited += times_waited(f) - a->call_waited;
    a->spent += took;
    if (a->probing) {
        a->took[a->calls & 1][a->calls / 2] = took;
        if (++a->calls == 2 * AHEAD_PROBE) {
            decide(a);
        }
        return;
    }
    a->calls++;
    /* first after a few calls, then now and then: what is true of it changes */
    if (a->calls >= (a->s.layers || a->why == NULL ? HOLD : AHEAD_PROBE)) {
        bool waits = a->waited > a->spent / WAITING;
        a->probing = waits || a->pays;
        a->why = waits || a->pays ? a->why : "hardly anything is waited for";
        a->calls = 0;
        a->waited = a->spent = 0;
    }
}

/* ---- one layer ---- */

bool ahead_record(struct infer *f, uint32_t l, const struct step *s)
{
    const struct model_config *c = f->c;
    uint32_t next = l + 1, T = s->T;
    /* The next layer's router must be at hand. A streamed spine keeps the disk busy by itself. */
    if (!f->ahead.on || T > AHEAD_ROWS || next >= c->n_layers || next < c->first_dense ||
        !f->layers[next].resident) {
        return false;
    }
    mix_rows(f, weight_vec(f, next, MODEL_MLP_RES_NORM), weight_vec(f, next, MODEL_MLP_RES_PROJ),
             s->nb, T, f->s.gsite, f->s.gh);
    cmd_rmsnorm(f, kern_at(f->s.gh, 0), c->hidden, weight_vec(f, next, MODEL_POST_NORM),
                kern_at(f->s.gxn, 0), c->hidden, T, c->rms_eps);
    cmd_router(f, next, kern_at(f->s.gxn, 0), f->s.glogits, f->s.gids, f->s.grw, T);
    return true;
}

/* The surest first: what is asked for last is perhaps not begun before it is known to be wrong. */
static int by_weight(const void *p, const void *q)
{
    const struct guess *a = p, *b = q;
    return a->w != b->w ? (a->w < b->w) - (a->w > b->w) : (a->id > b->id) - (a->id < b->id);
}

/* Into a->ids, each once; how many. */
static uint32_t distinct(struct infer *f, uint32_t uses)
{
    struct ahead *a = &f->ahead;
    const uint32_t *ids = f->s.gids->host;
    const float *w = f->s.grw->host;
    uint32_t n = 0;
    for (uint32_t i = 0; i < uses; i++) {
        a->guess[i] = (struct guess){ids[i], w[i]};
    }
    qsort(a->guess, uses, sizeof *a->guess, by_weight);
    for (uint32_t i = 0; i < uses; i++) {
        bool again = false;
        for (uint32_t k = 0; k < n && !again; k++) {
            again = a->ids[k] == a->guess[i].id;
        }
        if (!again) {
            a->ids[n++] = a->guess[i].id;
        }
    }
    return n;
}

void ahead_ask(struct infer *f, uint32_t l, uint32_t T)
{
    struct ahead *a = &f->ahead;
    give_up(f);
    uint32_t all = distinct(f, T * f->c->topk), n = 0;
    for (uint32_t i = 0; i < all; i++) {
        uint32_t obj = model_expert_id(f->m, l + 1, a->ids[i]);
        enum store_tier at = timed_where(f, obj);
        /* A wrong guess from the disk costs a read. From the net it costs bytes that somebody pays
         * for, and the time of those that are needed: only who asks for it gets that. */
        if (at == STORE_RAM || at == STORE_DISK || a->mode == INFER_PREFETCH_ON) {
            a->ids[n] = a->ids[i];
            a->obj[n] = obj;
            a->was[n++] = (uint8_t)at;
        }
    }
    if (timed_begin(f, a->obj, n, STORE_PREFETCH, &a->b, NULL)) {
        a->b = NULL; /* no memory: a guess less */
        return;
    }
    a->layer = l + 1;
    a->n = n;
    a->s.layers++;
    a->s.guessed += n;
}

void ahead_settle(struct infer *f, uint32_t l, size_t n)
{
    struct ahead *a = &f->ahead;
    if (!a->b || a->layer != l) {
        give_up(f);
        return;
    }
    a->s.chosen += n;
    for (uint32_t i = 0; i < a->n; i++) {
        bool right = f->count[a->ids[i]] > 0;
        bool came = a->was[i] != STORE_RAM && timed_where(f, a->obj[i]) == STORE_RAM;
        a->s.right += right;
        a->s.moved += right && came;
        a->s.wasted_bytes += !right && came ? model_object(f->m, a->obj[i])->size : 0;
    }
    give_up(f);
}

void infer_get_ahead(const struct infer *f, struct infer_ahead *out)
{
    const struct ahead *a = &f->ahead;
    *out = a->s;
    out->on =
        a->room && (a->mode == INFER_PREFETCH_ON || (a->mode == INFER_PREFETCH_AUTO && a->pays));
    out->why = out->on ? NULL : a->why;
}
