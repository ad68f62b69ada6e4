/* SPDX-License-Identifier: MIT
 * batch.c: one step of the engine: which rows of whose sequence, one forward pass, one token each.
 *
 * A step has one row for each request that decodes; what is left of its rows goes to those that
 * still read their prompt, in order of admission, each cut at the next position where a state is to
 * be kept, or, where nobody reads, to drafts (drafts.c). Rows are computed independently, so
 * company changes no bit. */
#include "node/engine/engine_int.h"

#include "proto/base/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- during a step: leaving it, signs of life ---- */

static bool due(const struct engine *g, struct engine_job *j, uint64_t now)
{
    if (now - j->said_at < g->o.say_ms * 1000000ull) {
        return false;
    }
    j->said_at = now;
    return true;
}

/* A step can take minutes: who came meanwhile hears of its place, who left goes, and those who wait
 * hear that work goes on. */
static void say_waiting(struct engine *g, uint64_t now)
{
    struct engine_job *list[16];
    size_t before[16], n = 0;
    pthread_mutex_lock(&g->mu);
    engine_look_at_queue(g);
    for (struct engine_job *j = g->queue; j && n < 16; j = j->next) {
        if (j->a.hooks.waits && j->said_before != SIZE_MAX && due(g, j, now)) {
            before[n] = j->said_before;
            list[n++] = j;
            atomic_fetch_add(&j->refs, 1);
        }
    }
    pthread_mutex_unlock(&g->mu);
    for (size_t i = 0; i < n; i++) { /* only this thread ends jobs: they are still there */
        list[i]->a.hooks.waits(list[i]->a.hooks.ctx, before[i]);
        engine_release(list[i]);
    }
}

int engine_progress(void *tap, const struct infer_progress *p)
{
    struct engine *g = ((struct engine_tap *)tap)->engine;
    if (!g) {
        return 0;
    }
    uint64_t now = clock_ns();
    bool stop = atomic_load(&g->stopping);
    /* run[] changes on this thread only */
    for (size_t i = 0; i < g->n_run; i++) {
        struct engine_job *j = g->run[i];
        if (!j->rows || !j->st || infer_dropped(j->st)) {
            continue;
        }
        j->timed_out = j->a.deadline_ns && now >= j->a.deadline_ns;
        if (stop || j->timed_out || atomic_load(&j->cancelled)) {
            infer_drop(j->st);
        } else if (j->a.hooks.step && due(g, j, now)) {
            j->a.hooks.step(j->a.hooks.ctx, p->layer, p->n_layers);
        }
    }
    say_waiting(g, now);
    return 0;
}

static void end_early(struct engine *g, struct engine_job *j)
{
    struct err e = {0};
    if (j->timed_out) {
        err_set(&e, ERR_TIMEOUT, "the request's deadline has passed");
    } else {
        err_set(&e, ERR_CANCELLED,
                atomic_load(&g->stopping) ? "the node is stopping" : "cancelled");
    }
    engine_finish(g, j, ENGINE_ERROR, &e);
}

/* ---- beginning ---- */

static bool reserve(struct engine_job *j, size_t n)
{
    if (n > j->room) {
        size_t room = j->room ? j->room * 2 : j->a.n_prompt + 64;
        room = room < n ? n : room;
        uint32_t *p = realloc(j->ids, room * sizeof *p);
        if (!p) {
            return false;
        }
        j->ids = p;
        j->room = room;
    }
    return true;
}

static int begin(struct engine *g, struct engine_job *j, struct err *e)
{
    const struct engine_ask *a = &j->a;
    if (!reserve(j, a->n_prompt)) {
        return err_set(e, ERR_NOMEM, "out of memory for a request");
    }
    memcpy(j->ids, a->prompt, a->n_prompt * sizeof *j->ids);
    j->n_ids = a->n_prompt;
    int r = sampling_open(&j->sampling, &a->sampling, g->vocab, a->prompt, a->n_prompt, e);
    if (!r && a->grammar) {
        r = grammar_run_open(a->grammar, g->gv, &j->run, e);
    }
    if (!r && !a->no_keep) {
        j->st = keep_find(g->keep, j->ids, j->n_ids, &j->reused);
    }
    if (!r && !j->st) {
        j->reused = 0;
        r = infer_state_new(g->o.f, &j->st, e);
    }
    j->fed = j->reused;
    j->kept_at = j->said_at = clock_ns();
    while (j->next_bound < a->n_bounds && a->bounds[j->next_bound] <= j->fed) {
        j->next_bound++;
    }
    receipt_begin(&j->receipt, model_root(g->o.m), "bf16", a->prompt, a->n_prompt);
    if (!r && a->hooks.prefill) {
        a->hooks.prefill(a->hooks.ctx, j->fed, a->n_prompt, j->reused);
    }
    return r;
}

/* ---- rows ---- */

/* How many rows a job takes of at most `room`. */
static uint32_t share(const struct engine_job *j, uint32_t room)
{
    size_t n = j->n_ids - j->fed;
    if (j->next_bound < j->a.n_bounds && j->a.bounds[j->next_bound] > j->fed) {
        size_t to = j->a.bounds[j->next_bound] - j->fed;
        n = to < n ? to : n;
    }
    return n < room ? (uint32_t)n : room;
}

static bool decodes(const struct engine_job *j)
{
    return j->n_ids - j->fed == 1;
}

static uint32_t fill(struct engine *g, uint32_t n, struct engine_job *j)
{
    uint32_t k = share(j, g->o.chunk - n);
    for (uint32_t i = 0; i < k; i++) {
        size_t at = j->fed + i;
        g->rows[n + i] = (struct infer_row){j->st, j->ids[at], at + 1 == j->n_ids};
    }
    for (uint32_t i = 0; i < j->drafted; i++) {
        g->rows[n + k + i] = (struct infer_row){j->st, j->draft[i], true};
    }
    j->rows = k + j->drafted;
    return n + j->rows;
}

static uint32_t plan(struct engine *g, uint32_t *wanted)
{
    uint32_t n = 0, decode = 0;
    for (size_t i = 0; i < g->n_run; i++) {
        decode += decodes(g->run[i]);
    }
    engine_draft(g, decode, g->o.chunk);
    *wanted = 0;
    for (int prefill = 0; prefill < 2; prefill++) {
        /* admission order: run[] is permuted by leaving jobs */
        for (uint64_t last = 0;;) {
            struct engine_job *next = NULL;
            for (size_t i = 0; i < g->n_run; i++) {
                struct engine_job *j = g->run[i];
                if (decodes(j) == !prefill && j->turn > last && (!next || j->turn < next->turn)) {
                    next = j;
                }
            }
            if (!next) {
                break;
            }
            last = next->turn;
            next->slot = *wanted;
            uint32_t from = n;
            n = fill(g, n, next);
            for (; from < n; from++) {
                *wanted += g->rows[from].want_logits;
            }
        }
    }
    return n;
}

/* ---- after the pass ---- */

static bool is_stop(const struct engine_job *j, uint32_t id)
{
    for (size_t i = 0; i < j->a.n_stop; i++) {
        if (j->a.stop[i] == id) {
            return true;
        }
    }
    return false;
}

static int choose(struct engine *g, struct engine_job *j, const float *logits, uint32_t *id,
                  struct err *e)
{
    size_t count = j->n_ids - j->a.n_prompt;
    const uint32_t *mask = NULL;
    if (j->run) {
        mask = grammar_run_mask(j->run, e);
        if (!mask) {
            return e->code;
        }
    }
    int r = 0;
    if (count < j->a.n_script) {
        *id = j->a.script[count];
    } else {
        r = sampling_pick(&j->sampling, logits, mask, count, id, e);
    }
    if (!r && j->run) {
        r = grammar_run_accept(j->run, *id, e);
    }
    (void)g;
    return r;
}

/* How a request ended, if it did. */
struct outcome {
    bool over;
    enum engine_reason why;
    struct err err; /* with ENGINE_ERROR */
};

/* A row of logits: a token, or the end. */
static struct outcome take(struct engine *g, struct engine_job *j, const float *logits)
{
    struct outcome o = {.over = true, .why = ENGINE_ERROR};
    struct engine_token t = {0};
    if (!reserve(j, j->n_ids + 1)) {
        err_set(&o.err, ERR_NOMEM, "out of memory for a request");
    } else {
        choose(g, j, logits, &t.id, &o.err);
    }
    if (o.err.code) {
        return o;
    }
    if (!j->first_token) {
        j->first_token = clock_ns();
    }
    receipt_add(&j->receipt, logits, g->vocab, t.id);
    bool told = j->n_ids - j->a.n_prompt < j->n_told;
    if (told && engine_told(j, t.id, &o.err)) {
        return o;
    }
    j->ids[j->n_ids++] = t.id;
    sampling_took(&j->sampling, t.id);
    if (j->a.sampling.logprobs) {
        sampling_logprobs(&j->sampling, logits, &t);
    }
    int said = j->a.hooks.token && !told ? j->a.hooks.token(j->a.hooks.ctx, &t) : 0;
    bool stop = is_stop(j, t.id);
    o.over = stop || said || j->n_ids - j->a.n_prompt >= j->a.max_new;
    o.why = stop ? ENGINE_STOP : said ? ENGINE_HOOK : ENGINE_LENGTH;
    return o;
}

/* The job has logits of its last token, and of each token of its draft: the tokens that they give,
 * as long as the draft is what was chosen. Its state goes back to the last of these. */
static void advance(struct engine *g, struct engine_job *j)
{
    uint32_t right = 0;
    struct outcome o;
    for (;;) {
        o = take(g, j, g->logits + (size_t)(j->slot + right) * g->vocab);
        if (j->guessed && !o.err.code) {
            spec_shadow(&g->spec, &j->luck, j->guess == j->ids[j->n_ids - 1]);
        }
        if (o.over || right == j->drafted || j->ids[j->n_ids - 1] != j->draft[right] ||
            atomic_load(&j->cancelled)) {
            break;
        }
        right++;
        j->fed++;
    }
    if (g->drafted) {
        struct err e = {0};
        if (j->drafted) {
            spec_result(&g->spec, &j->luck, j->drafted, right);
        }
        if (engine_rewind(g, j, 1 + right, &e) && !o.over) {
            o = (struct outcome){true, ENGINE_ERROR, e};
        }
    }
    /* what was found out while the last tokens were told, before they count as the answer */
    bool whole = o.over && o.why != ENGINE_ERROR && o.why != ENGINE_HOOK;
    if (o.over && !(whole && engine_again(g, j))) {
        engine_finish(g, j, o.why, o.err.code ? &o.err : NULL);
    }
}

static void took_rows(struct engine *g, struct engine_job *j)
{
    bool prompt = j->fed < j->a.n_prompt;
    j->fed += j->rows - j->drafted;
    if (j->next_bound < j->a.n_bounds && j->fed == j->a.bounds[j->next_bound]) {
        j->next_bound++;
        if (!j->a.no_keep) {
            keep_put(g->keep, j->ids, j->fed, j->st);
            j->kept_at = clock_ns();
        }
    }
    if (prompt && j->fed < j->a.n_prompt && !j->a.no_keep &&
        clock_ns() - j->kept_at >= g->o.keep_ms * 1000000ull) {
        /* a copy costs a fraction of a second, and the next one makes this one superfluous */
        keep_put(g->keep, j->ids, j->fed, j->st);
        j->kept_at = clock_ns();
    }
    if (prompt && j->a.hooks.prefill) {
        j->a.hooks.prefill(j->a.hooks.ctx, j->fed, j->a.n_prompt, j->reused);
    }
}

void engine_step(struct engine *g)
{
    struct engine_job *jobs[ENGINE_BATCH_MAX];
    struct err e = {0};
    size_t n_jobs = g->n_run;
    memcpy(jobs, g->run, n_jobs * sizeof *jobs);
    for (size_t i = 0; i < n_jobs; i++) {
        struct engine_job *j = jobs[i];
        int r = 0;
        j->timed_out = j->a.deadline_ns && clock_ns() >= j->a.deadline_ns;
        j->rows = 0;
        if (atomic_load(&j->cancelled) || atomic_load(&g->stopping) || j->timed_out) {
            end_early(g, j);
        } else if (!j->st && (r = begin(g, j, &e))) {
            engine_finish(g, j, ENGINE_ERROR, &e);
        }
    }
    uint32_t wanted, n = plan(g, &wanted);
    if (!n) {
        return;
    }
    if (wanted > g->logit_room) {
        float *p = realloc(g->logits, (size_t)wanted * g->vocab * sizeof *p);
        if (p) {
            g->logits = p;
            g->logit_room = wanted;
        }
    }
    bool decoding = wanted == n && n - g->drafted == g->n_run; /* nobody reads a prompt */
    uint32_t plain = (uint32_t)g->n_run;
    spec_begin(&g->spec);
    if (g->drafted && !engine_mark(g)) {
        return; /* the next step is laid out without */
    }
    int r = wanted > g->logit_room
                ? err_set(&e, ERR_NOMEM, "out of memory for the logits of %u requests", wanted)
                : infer_forward(g->o.f, g->rows, n, g->logits, &e);
    bool again = r && engine_undo(g);
    n_jobs = g->n_run;
    memcpy(jobs, g->run, n_jobs * sizeof *jobs);
    pthread_mutex_lock(&g->mu);
    g->s.steps++;
    g->s.rows += n;
    pthread_mutex_unlock(&g->mu);
    for (size_t i = 0; i < n_jobs; i++) {
        struct engine_job *j = jobs[i];
        if (!j->rows) {
            continue;
        }
        if (infer_dropped(j->st)) {
            end_early(g, j);
            continue;
        }
        if (engine_again(g, j) || again) {
            continue;
        }
        if (r) {
            engine_finish(g, j, ENGINE_ERROR, &e);
            continue;
        }
        took_rows(g, j);
        if (j->fed == j->n_ids) {
            advance(g, j);
        }
    }
    if (decoding && !r) {
        spec_end(&g->spec, plain, g->drafted);
    }
    pthread_mutex_lock(&g->mu);
    spec_get_stats(&g->spec, &g->s.spec);
    pthread_mutex_unlock(&g->mu);
}
