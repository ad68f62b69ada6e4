/* SPDX-License-Identifier: MIT
 * bench_model_arms.c: see bench_model.h: one run of the model, and its reads without it. */
#include "node/cli/bench_model.h"
#include "node/infer/receipt.h"
#include "node/infer/sample.h"
#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "out of memory");
}

/* ---- what the routers chose ---- */

static bool grow(void **p, size_t *cap, size_t want, size_t size)
{
    if (want <= *cap) {
        return true;
    }
    size_t n = 2 * want;
    void *q = realloc(*p, n * size);
    if (q) {
        *p = q;
        *cap = n;
    }
    return q != NULL;
}

static void chosen(void *ctx, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n)
{
    struct bench_arm *a = ctx;
    struct bench_routes *r = &a->routes;
    (void)rows;
    if (!r->on || r->lost) {
        return;
    }
    void *id = r->id, *turn = r->turn;
    r->lost = !grow(&id, &r->cap, r->n + n, sizeof *r->id) ||
              !grow(&turn, &r->cap_turns, r->n_turns + 1, sizeof *r->turn);
    r->id = id;
    r->turn = turn;
    if (r->lost) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        r->id[r->n++] = model_expert_id(a->m, layer, ids[i]);
    }
    r->turn[r->n_turns++] = (struct bench_turn){layer, r->n};
}

/* ---- opening ---- */

/* Spine objects that the open forward pass does not hold. */
static int find_spine(struct bench_arm *a, struct err *e)
{
    uint32_t layers = model_config(a->m)->n_layers, objects = model_object_count(a->m);
    a->spine = malloc((objects + 1) * sizeof *a->spine);
    a->spine_end = calloc(layers + 1, sizeof *a->spine_end);
    if (!a->spine || !a->spine_end) {
        return no_memory(e);
    }
    size_t n = 0;
    for (uint32_t l = 0; l <= layers; l++) {
        for (uint32_t r = 0; r < MODEL_ROLE_COUNT; r++) {
            bool global = r >= MODEL_GLOBAL_FIRST;
            uint32_t id = global != (l == layers) || r == MODEL_EMBED
                              ? MODEL_NONE
                              : model_spine_id(a->m, global ? MODEL_NONE : l, (enum model_role)r);
            bool unused = l == 0 && (r == MODEL_ATTN_RES_NORM || r == MODEL_ATTN_RES_PROJ);
            if (id != MODEL_NONE && !unused && store_where(a->st, id) != STORE_RAM) {
                a->spine[n++] = id;
            }
        }
        a->spine_end[l] = n;
    }
    return 0;
}

int bench_arm_fill(struct bench_arm *a, struct err *e)
{
    int r = 0;
    for (uint32_t id = 0; id < model_object_count(a->m) && !r && !cli_interrupted(); id++) {
        struct store_view v;
        if (store_where(a->st, id) == STORE_DISK) {
            continue;
        }
        r = store_get(a->st, id, STORE_DEMAND, 0, &v, e);
        if (!r) {
            store_release_drop(a->st, &v);
        }
    }
    return r;
}

int bench_arm_open(struct bench_arm *a, const struct bench_open *o, struct err *e)
{
    memset(a, 0, sizeof *a);
    struct store_opts so = {.model = o->source,
                            .cache_dir = o->cache,
                            .ram_budget = o->ram,
                            .past_cache = true,
                            .mem = infer_store_mem(o->be)};
    int r = store_open(&so, &a->st, e);
    if (r) {
        return r;
    }
    a->m = store_model(a->st);
    store_set_admit(a->st, infer_admit, (void *)(uintptr_t)a->m);
    r = o->cache ? bench_arm_fill(a, e) : 0;
    struct infer_opts io = {.st = a->st,
                            .be = o->be,
                            .spine_budget = o->spine,
                            .max_rows = o->max_rows,
                            .prefetch = o->prefetch,
                            .routed = chosen,
                            .routed_ctx = a};
    r = r ? r : infer_open(&io, &a->f, e);
    return r ? r : find_spine(a, e);
}

void bench_arm_close(struct bench_arm *a)
{
    infer_close(a->f);
    store_close(a->st);
    free(a->spine);
    free(a->spine_end);
    free(a->routes.id);
    free(a->routes.turn);
    memset(a, 0, sizeof *a);
}

/* ---- one run ---- */

static void less(struct infer_times *t, const struct infer_times *u)
{
    t->wall_ns -= u->wall_ns;
    t->compute_ns -= u->compute_ns;
    t->ram_ns -= u->ram_ns;
    t->disk_ns -= u->disk_ns;
    t->peers_ns -= u->peers_ns;
    t->origin_ns -= u->origin_ns;
    t->stall_ns -= u->stall_ns;
}

static uint64_t disk_bytes(struct store *st)
{
    struct store_stats s;
    store_get_stats(st, &s);
    return s.disk_bytes;
}

struct pass {
    struct infer_state *s;
    struct infer_row *rows;
    float *logits;
    struct receipt k;
};

static int pass(struct bench_arm *a, struct pass *p, uint32_t warm, uint32_t tokens, uint32_t rows,
                struct bench_took *out, struct err *e)
{
    uint32_t vocab = model_config(a->m)->vocab, all = warm + tokens;
    struct infer_times t0 = {0};
    double begin = clock_s();
    int r = 0;
    for (uint32_t at = 0; at < all && !r;) {
        uint32_t left = at < warm ? warm - at : all - at, n = left < rows ? left : rows;
        if (at == warm) {
            infer_get_times(a->f, &t0);
            out->read = disk_bytes(a->st);
            a->routes.on = true;
            begin = clock_s();
        }
        for (uint32_t i = 0; i < n; i++) {
            uint32_t token = (uint32_t)((at + i + 1) * UINT64_C(2654435761) % vocab);
            p->rows[i] =
                (struct infer_row){p->s, token, i + 1 == n && (rows == 1 || at + n == all)};
        }
        r = cli_interrupted() ? err_set(e, ERR_CANCELLED, "interrupted")
                              : infer_forward(a->f, p->rows, n, p->logits, e);
        at += n;
        if (!r && p->rows[n - 1].want_logits) {
            receipt_add(&p->k, p->logits, vocab, sample_argmax(p->logits, vocab));
        }
    }
    a->routes.on = false;
    out->s = clock_s() - begin;
    out->read = disk_bytes(a->st) - out->read;
    infer_get_times(a->f, &out->t);
    less(&out->t, &t0);
    receipt_hex(&p->k, out->receipt);
    return r ? r : a->routes.lost ? no_memory(e) : 0;
}

int bench_arm_run(struct bench_arm *a, uint32_t warm, uint32_t tokens, uint32_t rows,
                  struct bench_took *out, struct err *e)
{
    struct pass p = {.rows = malloc(rows * sizeof *p.rows),
                     .logits = malloc(model_config(a->m)->vocab * sizeof *p.logits)};
    memset(out, 0, sizeof *out);
    a->routes.n = a->routes.n_turns = 0;
    receipt_begin(&p.k, model_root(a->m), "bf16", NULL, 0);
    int r = p.rows && p.logits ? infer_state_new(a->f, &p.s, e) : no_memory(e);
    r = r ? r : pass(a, &p, warm, tokens, rows, out, e);
    infer_state_free(p.s);
    free(p.rows);
    free(p.logits);
    return r;
}

/* ---- the reads alone ---- */

static int read_all(struct bench_arm *a, const uint32_t *ids, size_t n, bool drop, struct err *e)
{
    struct store_batch *b;
    struct store_view v;
    size_t which;
    if (!n) {
        return 0;
    }
    int r = store_batch_begin(a->st, ids, n, STORE_DEMAND, &b, e);
    for (size_t i = 0; i < n && !r; i++) {
        r = store_batch_next(b, &which, &v, e);
        if (!r) {
            (drop ? store_release_drop : store_release)(a->st, &v);
        }
    }
    store_batch_end(r && !b ? NULL : b);
    return r;
}

/* A layer's spine, the next one's hinted as it is hinted when computing. */
static int read_spine(struct bench_arm *a, uint32_t l, struct err *e)
{
    uint32_t layers = model_config(a->m)->n_layers;
    size_t from = l ? a->spine_end[l - 1] : 0, to = a->spine_end[l];
    size_t next = l < layers ? a->spine_end[l + 1] : a->spine_end[0];
    size_t next_from = l < layers ? to : 0;
    store_hint(a->st, a->spine + next_from, next - next_from);
    return read_all(a, a->spine + from, to - from, true, e);
}

int bench_arm_read(struct bench_arm *a, double *seconds, uint64_t *bytes, struct err *e)
{
    const struct bench_routes *k = &a->routes;
    uint32_t layers = model_config(a->m)->n_layers, at = 0;
    size_t from = 0;
    int r = 0;
    *bytes = disk_bytes(a->st);
    *seconds = clock_s();
    for (size_t i = 0; i < k->n_turns && !r; i++) {
        for (bool again = k->turn[i].layer < at; again && at <= layers && !r; at++) {
            r = read_spine(a, at, e);
        }
        at = k->turn[i].layer < at ? 0 : at;
        for (; at <= k->turn[i].layer && !r; at++) {
            r = read_spine(a, at, e);
        }
        r = r ? r : read_all(a, k->id + from, k->turn[i].end - from, false, e);
        from = k->turn[i].end;
    }
    for (; at <= layers && !r; at++) {
        r = read_spine(a, at, e);
    }
    *seconds = clock_s() - *seconds;
    *bytes = disk_bytes(a->st) - *bytes;
    return r;
}
