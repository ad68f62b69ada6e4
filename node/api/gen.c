/* SPDX-License-Identifier: MIT
 * gen.c: see gen.h. */
#include "node/api/gen.h"

#include "proto/base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/api/ids.h"
#include "node/api/sendback.h"

#define CALL_ID 40
#define PENDING_MAX 4096 /* tokens whose text has not gone out yet */

struct choice {
    struct gen *g;
    size_t index;
    _Atomic(struct engine_job *) job;
    struct parse *parse;      /* chat */
    struct tok_stream stream; /* raw */
    struct stops stops;
    struct parse_answer answer; /* chat: as it is, for keeping the state */
    struct gen_logprob *pending;
    size_t n_pending;
    char **call_ids;
    size_t n_calls;
    size_t tokens, reasoning;
    uint64_t began; /* clock_ns() when its prefill did */
    bool in_reasoning, stopped;
};

struct gen {
    struct gen_env env;
    struct web_req *req;
    struct gen_ask a;
    const struct gen_format *format;
    void *ctx;
    struct choice *c;
    atomic_size_t left; /* choices that are not over, and one while they are being submitted */
    struct gen_usage usage;
    enum store_rests rests; /* the weakest of all choices' */
    struct err err;         /* of the engine's thread */
    struct err late;        /* a submission that failed after others had begun */
    atomic_bool failed;     /* the others are of no use */
    atomic_uint refs;
};

void gen_ask_free(struct gen_ask *a)
{
    tok_ids_free(&a->prompt);
    free(a->bounds);
    free((void *)a->sampling.bias);
    for (size_t i = 0; i < a->n_stops; i++) {
        free(a->stops[i]);
    }
    grammar_free(a->grammar);
    free(a->own_request);
    memset(a, 0, sizeof *a);
}

static void gen_put(struct gen *g)
{
    if (atomic_fetch_sub(&g->refs, 1) != 1) {
        return;
    }
    web_on_gone(g->req, NULL, NULL); /* its client may be going just now */
    for (size_t i = 0; g->c && i < g->a.n; i++) {
        struct choice *c = &g->c[i];
        engine_release(c->job);
        parse_close(c->parse);
        parse_answer_free(&c->answer);
        stops_free(&c->stops);
        free(c->pending);
        for (size_t k = 0; k < c->n_calls; k++) {
            free(c->call_ids[k]);
        }
        free(c->call_ids);
    }
    free(g->c);
    gen_ask_free(&g->a);
    if (g->format->free) {
        g->format->free(g->ctx);
    }
    web_release(g->req);
    free(g);
}

struct web_req *gen_req(struct gen *g)
{
    return g->req;
}

static void tell(struct gen *g, struct gen_event ev)
{
    g->format->event(g->ctx, g, &ev);
}

/* ---- text ---- */

/* Text of the answer proper: through the stop strings. */
static void text_out(struct choice *c, const char *p, size_t n, bool flush)
{
    struct buf out;
    buf_init(&out, (size_t)1 << 26);
    if (flush ? stops_flush(&c->stops, &out) : stops_feed(&c->stops, p, n, &out)) {
        c->stopped = true;
    }
    if (out.n) {
        tell(c->g, (struct gen_event){.type = GEN_TEXT,
                                      .choice = c->index,
                                      .text = out.p,
                                      .text_n = out.n,
                                      .logprobs = c->pending,
                                      .n_logprobs = c->n_pending});
        c->n_pending = 0;
    }
    buf_free(&out);
}

static void call_out(struct choice *c, const struct parse_event *ev)
{
    char **ids = realloc(c->call_ids, (c->n_calls + 1) * sizeof *ids);
    char id[CALL_ID];
    if (!ids) {
        return;
    }
    c->call_ids = ids;
    ids_make("call_", 24, id, sizeof id);
    ids[c->n_calls] = strdup(id);
    if (!ids[c->n_calls]) {
        return;
    }
    tell(c->g, (struct gen_event){.type = GEN_CALL,
                                  .choice = c->index,
                                  .call = c->n_calls,
                                  .id = ids[c->n_calls],
                                  .name = ev->name,
                                  .text = ev->text,
                                  .text_n = ev->text_n});
    c->n_calls++;
}

static int on_parse(void *ctx, const struct parse_event *ev)
{
    struct choice *c = ctx;
    int r = parse_collect(&c->answer, ev);
    if (r || c->stopped) {
        return r;
    }
    switch (ev->type) {
    case PARSE_REASONING:
        c->in_reasoning = true;
        c->n_pending = 0;
        tell(c->g, (struct gen_event){.type = GEN_REASONING,
                                      .choice = c->index,
                                      .text = ev->text,
                                      .text_n = ev->text_n});
        break;
    case PARSE_CONTENT:
        c->in_reasoning = false;
        text_out(c, ev->text, ev->text_n, false);
        break;
    case PARSE_CALL_END:
        c->in_reasoning = false;
        text_out(c, NULL, 0, true); /* what was held back comes before the call */
        if (!c->stopped) {
            call_out(c, ev);
        }
        break;
    default:
        break;
    }
    return 0;
}

static void raw_text(struct choice *c, const struct engine_token *t)
{
    size_t n;
    const char *p = tok_bytes(c->g->env.tok, t->id, &n);
    if (!p || tok_is_special(c->g->env.tok, t->id)) {
        return;
    }
    char *room = malloc(TOK_STREAM_ROOM(n));
    if (room) {
        size_t k = tok_stream_push(&c->stream, p, n, room);
        text_out(c, room, k, false);
        free(room);
    }
}

static void note_logprob(struct choice *c, const struct engine_token *t)
{
    struct gen *g = c->g;
    if (!g->a.sampling.logprobs || c->n_pending == PENDING_MAX ||
        tok_is_special(g->env.tok, t->id) || (g->a.chat && !parse_in_content(c->parse))) {
        return; /* reasoning, calls and the names of tags are not the content */
    }
    struct gen_logprob *p = realloc(c->pending, (c->n_pending + 1) * sizeof *p);
    if (p) {
        c->pending = p;
        struct gen_logprob *l = &p[c->n_pending++];
        l->bytes = tok_bytes(g->env.tok, t->id, &l->n);
        l->t = *t;
    }
}

/* ---- hooks of the engine ---- */

static void on_waits(void *ctx, size_t before)
{
    struct choice *c = ctx;
    if (c->index == 0) {
        tell(c->g, (struct gen_event){.type = GEN_WAIT, .before = before});
    }
}

static void on_prefill(void *ctx, size_t done, size_t total, size_t reused)
{
    struct choice *c = ctx;
    struct engine_stats s;
    if (c->index == 0) {
        /* at the rate of those before it, then at its own */
        engine_get_stats(c->g->env.engine, &s);
        double rate = s.prefill_tok_s;
        uint64_t now = clock_ns();
        if (!c->began) {
            c->began = now;
        } else if (done > reused && now > c->began) {
            rate = (double)(done - reused) / ((double)(now - c->began) * 1e-9);
        }
        double left = rate > 0 ? (double)(total - done) / rate : 0;
        tell(c->g, (struct gen_event){.type = GEN_PREFILL,
                                      .done = done,
                                      .total = total,
                                      .reused = reused,
                                      .seconds = left});
    }
}

static void on_step(void *ctx, uint32_t layer, uint32_t n_layers)
{
    struct choice *c = ctx;
    if (c->index == 0) {
        tell(c->g, (struct gen_event){.type = GEN_STEP, .done = layer, .total = n_layers});
    }
}

static int on_token(void *ctx, const struct engine_token *t)
{
    struct choice *c = ctx;
    struct gen *g = c->g;
    struct err e = {0};
    bool thinking = c->in_reasoning;
    c->tokens++;
    note_logprob(c, t);
    if (g->a.chat) {
        if (parse_feed(c->parse, &t->id, 1, &e)) {
            g->err = e;
            return 1;
        }
    } else {
        raw_text(c, t);
    }
    c->reasoning += thinking && c->in_reasoning;
    return c->stopped;
}

static void finish_text(struct choice *c)
{
    struct err e = {0};
    if (c->g->a.chat) {
        parse_finish(c->parse, &e);
    } else if (!c->stopped) {
        char room[8];
        size_t n = tok_stream_flush(&c->stream, room);
        text_out(c, room, n, false);
    }
    if (!c->stopped) {
        text_out(c, NULL, 0, true);
    }
}

static void keep_state(struct choice *c, struct engine_job *job)
{
    struct gen *g = c->g;
    struct tok_ids all = {0};
    if (!g->a.chat || !g->a.request || c->stopped) {
        return;
    }
    if (!sendback_ids(g->env.tok, g->a.request, g->a.request_n, g->a.fallback, &c->answer,
                      (const char *const *)c->call_ids, c->n_calls, &all)) {
        engine_keep_answer(job, all.v, all.n);
    }
    tok_ids_free(&all);
}

static void choice_over(struct choice *c, const struct engine_end *end)
{
    struct gen *g = c->g;
    enum gen_finish why = end->reason == ENGINE_LENGTH ? GEN_LENGTH
                          : c->n_calls && !c->stopped  ? GEN_CALLS
                                                       : GEN_STOPPED;
    const char *stop = c->stopped && c->stops.hit ? c->stops.s[c->stops.hit - 1] : NULL;
    tell(g, (struct gen_event){.type = GEN_END, .choice = c->index, .finish = why, .stop = stop});
}

static void cancel_all(struct gen *g)
{
    for (size_t i = 0; i < g->a.n; i++) {
        struct engine_job *j = atomic_load(&g->c[i].job);
        if (j) {
            engine_cancel(j);
        }
    }
}

/* Before the answer, where it is sent as a whole; else in a comment of the stream, which clients
 * pass over: its headers are gone, and a field that a client's types do not know would be refused.
 */
static void tell_basis(struct gen *g)
{
    const char *name = store_rests_name(g->rests);
    char line[64];
    if (g->env.rests) {
        atomic_fetch_add(&g->env.by_basis[g->rests], 1);
        web_add_header(g->req, "X-Shoal-Basis", name);
        snprintf(line, sizeof line, ": basis %s\n\n", name);
        web_write(g->req, line, strlen(line));
    }
}

/* One choice less, or the submitting is through: who is last tells the end. */
static void one_less(struct gen *g)
{
    if (atomic_fetch_sub(&g->left, 1) != 1) {
        return;
    }
    const struct err *e = g->late.code ? &g->late : g->err.code ? &g->err : NULL;
    if (e) {
        tell(g, (struct gen_event){.type = GEN_FAIL, .err = e});
    } else {
        tell_basis(g);
        tell(g, (struct gen_event){.type = GEN_DONE, .usage = &g->usage});
    }
}

static void on_end(void *ctx, const struct engine_end *end)
{
    struct choice *c = ctx;
    struct gen *g = c->g;
    if (end->reason == ENGINE_ERROR && !g->err.code) {
        g->err = end->err;
    }
    g->usage.prompt = end->prompt;
    g->usage.cached = end->reused > g->usage.cached ? end->reused : g->usage.cached;
    g->usage.completion += c->tokens;
    g->usage.reasoning += c->reasoning;
    g->usage.wait_s = end->wait_s;
    g->usage.prefill_s = end->prefill_s;
    g->usage.decode_s = end->decode_s > g->usage.decode_s ? end->decode_s : g->usage.decode_s;
    if (!g->err.code) {
        if (g->env.rests) {
            enum store_rests b = g->env.rests(g->env.rests_ctx, &end->since);
            g->rests = b < g->rests ? b : g->rests;
        }
        finish_text(c);
        keep_state(c, end->job);
        choice_over(c, end);
    } else {
        atomic_store(&g->failed, true);
        cancel_all(g);
    }
    one_less(g);
    gen_put(g);
}

/* Nothing of it has gone out: as if no token had been told. */
static bool on_again(void *ctx, const char *why)
{
    struct choice *c = ctx;
    struct gen *g = c->g;
    struct parse *parse = NULL;
    struct err e;
    (void)why;
    if (!g->format->again ||
        (g->a.chat && parse_open(g->env.tok, g->a.thinking, on_parse, c, &parse, &e))) {
        return false;
    }
    if (!g->format->again(g->ctx, c->index)) {
        parse_close(parse);
        return false;
    }
    parse_close(c->parse);
    c->parse = parse;
    parse_answer_free(&c->answer);
    memset(&c->stream, 0, sizeof c->stream);
    c->stops.held.n = 0;
    c->stops.hit = 0;
    c->n_pending = 0;
    for (size_t k = 0; k < c->n_calls; k++) {
        free(c->call_ids[k]);
    }
    c->n_calls = 0;
    c->tokens = c->reasoning = 0;
    c->in_reasoning = g->a.thinking;
    c->stopped = false;
    return true;
}

static void on_gone(void *ctx)
{
    cancel_all(ctx);
}

/* ---- beginning ---- */

static int choice_open(struct gen *g, size_t i, struct err *e)
{
    struct choice *c = &g->c[i];
    c->g = g;
    c->index = i;
    c->in_reasoning = g->a.thinking;
    stops_init(&c->stops);
    for (size_t k = 0; k < g->a.n_stops; k++) {
        if (stops_add(&c->stops, g->a.stops[k], strlen(g->a.stops[k]))) {
            return err_set(e, ERR_LIMIT, "stop: at most %d strings of 1 to %d bytes", STOPS_MAX,
                           STOP_BYTES_MAX);
        }
    }
    return g->a.chat ? parse_open(g->env.tok, g->a.thinking, on_parse, c, &c->parse, e) : 0;
}

static int submit(struct gen *g, size_t i, size_t *waiting, struct err *e)
{
    struct choice *c = &g->c[i];
    struct engine_ask a = {
        .prompt = g->a.prompt.v,
        .n_prompt = g->a.prompt.n,
        .bounds = g->a.bounds,
        .n_bounds = g->a.n_bounds,
        .max_new = g->a.max_new ? g->a.max_new : GEN_MAX_TOKENS,
        .stop = g->env.stop_ids,
        /* a form that is kept has an end, and nothing can follow it */
        .n_stop = g->a.ignore_stop_ids && !g->a.grammar ? 0 : g->env.n_stop_ids,
        .sampling = g->a.sampling,
        .grammar = g->a.grammar,
        .script = g->env.script,
        .n_script = g->env.n_script,
        .client = web_client(g->req),
        .hooks = {c, on_waits, on_step, on_prefill, on_token, on_end, on_again},
    };
    a.sampling.base.seed += i;
    if (g->a.timeout_s > 0) {
        a.deadline_ns = clock_ns() + (uint64_t)(g->a.timeout_s * 1e9);
    }
    struct engine_job *job;
    int r = engine_submit(g->env.engine, &a, &job, waiting, e);
    atomic_store(&c->job, job);
    return r;
}

/* The engine may run, and end, a job before engine_submit has returned it: hence the atomics, and
 * `left`, which counts the submitter as well. */
static int submit_all(struct gen *g, size_t *waiting, struct err *e)
{
    for (size_t i = 0; i < g->a.n; i++) {
        atomic_fetch_add(&g->refs, 1);
        atomic_fetch_add(&g->left, 1);
        struct err e1 = {0};
        if (submit(g, i, waiting, &e1)) {
            atomic_fetch_sub(&g->left, 1);
            atomic_fetch_sub(&g->refs, 1);
            if (i == 0) {
                if (e) {
                    *e = e1;
                }
                return e1.code;
            }
            g->late = e1;
            atomic_store(&g->failed, true);
            break;
        }
    }
    if (atomic_load(&g->failed)) {
        cancel_all(g);
    }
    return 0;
}

int gen_start(const struct gen_env *env, struct web_req *req, struct gen_ask *a,
              const struct gen_format *format, void *ctx, size_t *waiting, struct err *e)
{
    struct gen *g = calloc(1, sizeof *g);
    if (g) {
        g->c = calloc(a->n ? a->n : 1, sizeof *g->c);
    }
    if (!g || !g->c || a->n < 1 || a->n > GEN_CHOICES_MAX) {
        bool memory = !g || !g->c;
        if (g) {
            free(g->c);
        }
        free(g);
        return memory ? err_set(e, ERR_NOMEM, "out of memory for a request")
                      : err_set(e, ERR_ARG, "n: it must be 1 to %d", GEN_CHOICES_MAX);
    }
    static const struct gen_format silent = {0};
    web_hold(req);
    g->env = *env;
    g->req = req;
    g->a = *a;
    g->format = format;
    g->ctx = ctx;
    g->rests = STORE_MANIFEST;
    atomic_init(&g->refs, 1);
    atomic_init(&g->left, 1);
    int r = 0;
    for (size_t i = 0; i < a->n && !r; i++) {
        r = choice_open(g, i, e);
    }
    r = r ? r : submit_all(g, waiting, e);
    if (r) { /* the ask and the context are still the caller's */
        memset(&g->a, 0, sizeof g->a);
        g->a.n = a->n;
        g->format = &silent;
        gen_put(g);
        return r;
    }
    memset(a, 0, sizeof *a);
    web_on_gone(req, on_gone, g);
    one_less(g);
    gen_put(g);
    return 0;
}
