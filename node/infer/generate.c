/* SPDX-License-Identifier: MIT
 * generate.c: see generate.h. */
#include "node/infer/generate.h"

#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>

struct gen {
    struct infer *f;
    const struct generate_opts *o;
    struct infer_state *st;
    float *logits;
    void *scratch;
    struct infer_row *rows;
    uint32_t most; /* new tokens: max_new, or what the model's positions allow */
};

static int feed(struct gen *g, const uint32_t *ids, size_t n, bool logits, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        g->rows[i] = (struct infer_row){g->st, ids[i], logits && i + 1 == n};
    }
    return infer_forward(g->f, g->rows, n, g->logits, e);
}

static int prefill(struct gen *g, size_t chunk, struct err *e)
{
    const struct generate_opts *o = g->o;
    for (size_t at = 0; at < o->n_prompt; at += chunk) {
        size_t n = o->n_prompt - at < chunk ? o->n_prompt - at : chunk;
        if (o->on_prefill) {
            o->on_prefill(o->ctx, at, o->n_prompt);
        }
        int r = feed(g, o->prompt + at, n, at + n == o->n_prompt, e);
        if (r) {
            return r;
        }
    }
    if (o->on_prefill) {
        o->on_prefill(o->ctx, o->n_prompt, o->n_prompt);
    }
    return 0;
}

static int reload(struct gen *g, struct err *e)
{
    int r = infer_state_save(g->st, g->o->reload_path, e);
    if (r) {
        return r;
    }
    infer_state_free(g->st);
    g->st = NULL;
    return infer_state_load(g->f, g->o->reload_path, &g->st, e);
}

static bool is_stop(const struct generate_opts *o, uint32_t id)
{
    for (size_t i = 0; i < o->n_stop; i++) {
        if (o->stop[i] == id) {
            return true;
        }
    }
    return false;
}

static int decode(struct gen *g, uint32_t vocab, struct generate_result *out, struct err *e)
{
    const struct generate_opts *o = g->o;
    while (out->n < g->most) {
        uint32_t id = sample_pick(&o->sample, g->logits, vocab, out->n, g->scratch);
        receipt_add(&out->receipt, g->logits, vocab, id);
        out->ids[out->n++] = id;
        bool end = o->on_token && o->on_token(o->ctx, id);
        out->stopped = is_stop(o, id);
        if (end || out->stopped || out->n == g->most) {
            break;
        }
        int r = 0;
        if (o->reload_path && o->reload_after == out->n) {
            r = reload(g, e);
        }
        if (!r) {
            r = feed(g, &id, 1, true, e);
        }
        if (r) {
            return r;
        }
        out->decoded++;
    }
    return 0;
}

int generate(struct infer *f, const struct model *m, const struct generate_opts *o,
             struct generate_result *out, struct err *e)
{
    uint32_t vocab = infer_config(f)->vocab;
    memset(out, 0, sizeof *out);
    if (!o->n_prompt) {
        return err_set(e, ERR_ARG, "the prompt is empty: there is nothing to continue");
    }
    uint32_t positions = infer_config(f)->max_positions;
    if (o->n_prompt > positions) {
        return err_set(e, ERR_LIMIT, "the prompt has %zu tokens; this model takes at most %u",
                       o->n_prompt, positions);
    }
    int r = sample_check(&o->sample, e);
    if (r) {
        return r;
    }
    size_t chunk =
        o->prefill_chunk && o->prefill_chunk < o->n_prompt ? o->prefill_chunk : o->n_prompt;
    /* The last new token is not fed, so it needs no position. */
    uint32_t room = positions - (uint32_t)o->n_prompt + 1;
    struct gen g = {.f = f, .o = o, .most = o->max_new < room ? o->max_new : room};
    g.logits = malloc((size_t)vocab * sizeof *g.logits);
    g.scratch = malloc((size_t)vocab * 8);
    g.rows = malloc(chunk * sizeof *g.rows);
    out->ids = malloc((g.most ? g.most : 1) * sizeof *out->ids);
    if (!g.logits || !g.scratch || !g.rows || !out->ids) {
        r = err_set(e, ERR_NOMEM, "out of memory for %u tokens", g.most);
    }
    if (!r) {
        r = infer_state_new(f, &g.st, e);
    }
    receipt_begin(&out->receipt, model_root(m), "bf16", o->prompt, o->n_prompt);
    double t0 = clock_s();
    if (!r) {
        r = prefill(&g, chunk, e);
    }
    double t1 = clock_s();
    out->prefill_s = t1 - t0;
    if (!r) {
        r = decode(&g, vocab, out, e);
    }
    out->decode_s = clock_s() - t1;
    infer_state_free(g.st);
    free(g.logits);
    free(g.scratch);
    free(g.rows);
    return r;
}

void generate_result_free(struct generate_result *r)
{
    free(r->ids);
    r->ids = NULL;
}
