/* SPDX-License-Identifier: MIT
 * generate.c: see generate.h. A pass of decoding yields the token that its last right row chooses
 * and, before it, as much of the draft as the model chose by itself. */
#include "node/infer/generate.h"

#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>

struct gen {
    struct infer *f;
    const struct generate_opts *o;
    struct infer_state *st;
    float *logits; /* of the last fed token and of each token of the draft behind it */
    void *scratch;
    struct infer_row *rows;
    uint32_t *tokens; /* prompt and answer */
    uint32_t most;    /* new tokens: max_new, or what the model's positions allow */
    uint32_t vocab;
    struct spec spec;
    struct spec_luck luck;
    uint32_t draft[SPEC_MOST], drafted; /* in the last pass; how many */
    uint32_t guess;                     /* the next token as a draft had it that was not used */
    bool guessed;
    uint32_t *told; /* tokens that were told before all began anew */
    size_t n_told;
    struct err why; /* of that */
    bool hung_up;   /* on_token has ended it */
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
    struct store_since since = infer_state_since(g->st);
    infer_state_free(g->st);
    g->st = NULL;
    r = infer_state_load(g->f, g->o->reload_path, &g->st, e);
    if (!r) {
        infer_state_set_since(g->st, since);
    }
    return r;
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

/* ---- drafts ---- */

/* Ask for a draft behind the answer so far, and decide how much of it is worth it. */
static void plan(struct gen *g, size_t n)
{
    const struct generate_opts *o = g->o;
    size_t all = o->n_prompt + n, max = g->most - n - 1;
    g->drafted = 0;
    g->guessed = false;
    if (o->reload_path && n < o->reload_after && o->reload_after - n - 1 < max) {
        max = o->reload_after - n - 1; /* a pass ends where the state is to be saved */
    }
    struct spec_cand c = {.luck = &g->luck};
    c.have = spec_propose(&g->spec, g->tokens, all, g->vocab, o->stop, o->n_stop, max, g->draft);
    spec_choose(&g->spec, 1, &c, 1, SPEC_MOST);
    g->drafted = c.use;
    g->guessed = c.have && !c.use;
    g->guess = g->draft[0];
}

static int mark(struct gen *g, struct err *e)
{
    uint64_t t = clock_ns();
    int r = infer_state_mark(g->st, 1 + spec_most(&g->spec), e);
    spec_rest(&g->spec, clock_ns() - t);
    return r;
}

/* Of the last pass the first `keep` rows stay. */
static int rewind_to(struct gen *g, uint32_t keep, struct err *e)
{
    uint64_t t = clock_ns();
    int r = infer_state_rewind(g->st, keep, e);
    spec_rest(&g->spec, clock_ns() - t);
    return r;
}

/* A pass over the last token and the draft behind it. A draft may need what the answer does not,
 * experts that nobody has, say: if it fails, the pass is done again without it. */
static int pass(struct gen *g, size_t n, struct err *e)
{
    const uint32_t *last = g->tokens + g->o->n_prompt + n - 1;
    struct err e1 = {0};
    spec_begin(&g->spec);
    if (g->drafted && mark(g, &e1)) {
        g->drafted = 0; /* no memory: as good without */
        g->spec.o.mode = SPEC_OFF;
        g->spec.s.why = "there is no memory for drafts";
    }
    if (!g->drafted) {
        return feed(g, last, 1, true, e);
    }
    g->rows[0] = (struct infer_row){g->st, *last, true};
    for (uint32_t i = 0; i < g->drafted; i++) {
        g->rows[1 + i] = (struct infer_row){g->st, g->draft[i], true};
    }
    int r = infer_forward(g->f, g->rows, 1 + g->drafted, g->logits, e);
    if (r && r != ERR_CANCELLED && !rewind_to(g, 0, &e1)) {
        g->drafted = 0;
        g->spec.o.mode = SPEC_OFF;
        g->spec.s.failed++;
        g->spec.s.why = "a draft needed what could not be had";
        spec_begin(&g->spec);
        r = feed(g, last, 1, true, e);
    }
    return r;
}

/* ---- tokens ---- */

/* Choose the next token from a row of logits. True: the answer is over, or (*e) cannot go on. */
static bool take(struct gen *g, const float *logits, struct generate_result *out, struct err *e)
{
    const struct generate_opts *o = g->o;
    uint32_t id = sample_pick(&o->sample, logits, g->vocab, out->n, g->scratch);
    receipt_add(&out->receipt, logits, g->vocab, id);
    bool told = out->n < g->n_told;
    if (told && g->told[out->n] != id) {
        err_set(e, ERR_DIGEST,
                "the answer is wrong from its token %zu on, which has been given out already: "
                "%.400s. Ask again: the right bytes are here now",
                out->n + 1, g->why.msg);
        return true;
    }
    out->ids[out->n] = id;
    g->tokens[o->n_prompt + out->n++] = id;
    bool end = g->hung_up = !told && o->on_token && o->on_token(o->ctx, id);
    out->stopped = is_stop(o, id);
    return end || out->stopped || out->n == g->most;
}

/* The tokens that the logits of the last pass give: the draft's as far as it was right, and the one
 * that the model chooses in place of the first wrong one, or behind the last. */
static int take_all(struct gen *g, struct generate_result *out, bool *over, struct err *e)
{
    uint32_t right = 0;
    for (;;) {
        struct err e1 = {0};
        *over = take(g, g->logits + (size_t)right * g->vocab, out, &e1);
        if (e1.code) {
            *e = e1;
            return e1.code;
        }
        if (g->guessed) {
            spec_shadow(&g->spec, &g->luck, g->guess == out->ids[out->n - 1]);
            g->guessed = false;
        }
        if (*over || right == g->drafted || out->ids[out->n - 1] != g->draft[right]) {
            break;
        }
        right++;
    }
    if (!g->drafted) {
        return 0;
    }
    spec_result(&g->spec, &g->luck, g->drafted, right);
    return rewind_to(g, 1 + right, e);
}

static int decode(struct gen *g, struct generate_result *out, struct err *e)
{
    const struct generate_opts *o = g->o;
    bool over = g->most == 0, first = true;
    int r = 0;
    while (!over && !r) {
        if (!first) {
            plan(g, out->n);
            r = pass(g, out->n, e);
        }
        /* before a token is told that rests on it */
        r = r ? r : infer_state_spoilt(g->st, e);
        r = r ? r : take_all(g, out, &over, e);
        if (!r && !first) {
            spec_end(&g->spec, 1, g->drafted);
        }
        first = false;
        if (!r && !over && o->reload_path && o->reload_after == out->n) {
            r = reload(g, e);
        }
    }
    /* what was found out while the last tokens were told, before they count as the answer */
    return r || g->hung_up ? r : infer_state_spoilt(g->st, e);
}

/* One attempt, from the prompt on. */
static int attempt(struct gen *g, const struct model *m, size_t chunk, struct generate_result *out,
                   struct err *e)
{
    const struct generate_opts *o = g->o;
    out->n = 0;
    out->stopped = false;
    g->drafted = 0;
    g->guessed = false;
    receipt_begin(&out->receipt, model_root(m), "bf16", o->prompt, o->n_prompt);
    double t0 = clock_s();
    int r = infer_state_new(g->f, &g->st, e);
    r = r ? r : prefill(g, chunk, e);
    double t1 = clock_s();
    out->prefill_s += t1 - t0;
    r = r ? r : decode(g, out, e);
    out->decode_s += clock_s() - t1;
    return r;
}

/* What the state rests on has been taken back: true, if it is to be tried anew. */
static bool once_more(struct gen *g, struct generate_result *out, int r)
{
    if (!g->st || r == ERR_CANCELLED || g->hung_up || out->again == GENERATE_AGAIN_MAX ||
        !infer_state_spoilt(g->st, &g->why)) {
        return false;
    }
    out->again++;
    bool forgotten = g->o->on_again && g->o->on_again(g->o->ctx, g->why.msg);
    if (forgotten || !g->o->on_token) {
        g->n_told = 0;
    } else if (out->n > g->n_told) {
        memcpy(g->told, out->ids, out->n * sizeof *g->told);
        g->n_told = out->n;
    }
    infer_state_free(g->st);
    g->st = NULL;
    return true;
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
    struct gen g = {.f = f, .o = o, .most = o->max_new < room ? o->max_new : room, .vocab = vocab};
    spec_open(&g.spec, f, &o->spec);
    size_t rows = 1 + spec_most(&g.spec);
    g.logits = malloc(rows * vocab * sizeof *g.logits);
    g.scratch = malloc((size_t)vocab * 8);
    g.rows = malloc((chunk > rows ? chunk : rows) * sizeof *g.rows);
    g.tokens = malloc((o->n_prompt + g.most) * sizeof *g.tokens);
    g.told = malloc((g.most ? g.most : 1) * sizeof *g.told);
    out->ids = malloc((g.most ? g.most : 1) * sizeof *out->ids);
    if (!g.logits || !g.scratch || !g.rows || !g.tokens || !g.told || !out->ids) {
        r = err_set(e, ERR_NOMEM, "out of memory for %u tokens", g.most);
    }
    if (!r) {
        memcpy(g.tokens, o->prompt, o->n_prompt * sizeof *g.tokens);
        do {
            struct err e1 = {0};
            r = attempt(&g, m, chunk, out, &e1);
            if (r && e) {
                *e = e1;
            }
        } while (once_more(&g, out, r));
        out->decoded = out->n ? out->n - 1 : 0;
        spec_get_stats(&g.spec, &out->spec);
        if (g.st) {
            out->since = infer_state_since(g.st);
        }
    }
    infer_state_free(g.st);
    free(g.logits);
    free(g.scratch);
    free(g.rows);
    free(g.tokens);
    free(g.told);
    return r;
}

void generate_result_free(struct generate_result *r)
{
    free(r->ids);
    r->ids = NULL;
}
