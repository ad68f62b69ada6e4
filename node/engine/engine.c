/* SPDX-License-Identifier: MIT
 * engine.c: see engine.h: requests, the fair queue, the thread. The work itself is in batch.c. */
#include "node/engine/engine_int.h"

#include "proto/base/clock.h"
#include "proto/base/qos.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void engine_log(struct engine *g, const char *fmt, ...)
{
    if (g->o.log) {
        char line[800];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(line, sizeof line, fmt, ap);
        va_end(ap);
        g->o.log(g->o.ctx, line);
    }
}

/* ---- clients; with mu ---- */

static struct engine_client *client_of(struct engine *g, const char *name)
{
    struct engine_client *c = g->clients;
    while (c && strncmp(c->name, name, sizeof c->name - 1) != 0) {
        c = c->next;
    }
    if (!c) {
        c = calloc(1, sizeof *c);
        if (c) {
            snprintf(c->name, sizeof c->name, "%s", name);
            c->next = g->clients;
            g->clients = c;
        }
    }
    if (c) {
        c->jobs++;
    }
    return c;
}

static void client_put(struct engine *g, struct engine_client *c)
{
    if (--c->jobs == 0) {
        struct engine_client **at = &g->clients;
        while (*at != c) {
            at = &(*at)->next;
        }
        *at = c->next;
        free(c);
    }
}

/* ---- jobs ---- */

static void job_free(struct engine_job *j)
{
    free((void *)j->a.prompt);
    free((void *)j->a.bounds);
    free((void *)j->a.stop);
    free((void *)j->a.script);
    free((void *)j->a.sampling.bias);
    free(j->ids);
    free(j->told);
    free(j);
}

void engine_release(struct engine_job *j)
{
    if (j && atomic_fetch_sub(&j->refs, 1) == 1) {
        job_free(j);
    }
}

static bool copy_of(const void **p, size_t n, size_t size)
{
    const void *from = *p;
    void *to = NULL;
    if (n) {
        to = malloc(n * size);
        if (to) {
            memcpy(to, from, n * size);
        }
    }
    *p = to;
    return to || !n;
}

static int check_ask(const struct engine *g, const struct engine_ask *a, struct err *e)
{
    if (!a->n_prompt || !a->max_new) {
        return err_set(e, ERR_ARG,
                       a->n_prompt ? "no new token is asked for"
                                   : "the prompt is empty: there is nothing to continue");
    }
    if (a->n_prompt > g->positions) {
        return err_set(e, ERR_LIMIT, "the prompt has %zu tokens; this model takes at most %u",
                       a->n_prompt, g->positions);
    }
    for (size_t i = 0; i < a->n_prompt; i++) {
        if (a->prompt[i] >= g->vocab) {
            return err_set(e, ERR_ARG, "token id %u is outside the vocabulary of %u", a->prompt[i],
                           g->vocab);
        }
    }
    for (size_t i = 0; i < a->n_script; i++) {
        if (a->script[i] >= g->vocab) {
            return err_set(e, ERR_ARG, "a scripted token is outside the vocabulary");
        }
    }
    if (a->n_stop > ENGINE_STOPS_MAX) {
        return err_set(e, ERR_LIMIT, "more than %d stop ids", ENGINE_STOPS_MAX);
    }
    if (a->grammar && !g->gv) {
        return err_set(e, ERR_UNSUPPORTED,
                       "the model has no tokenizer, so no form can be enforced");
    }
    return sampling_check(&a->sampling, g->vocab, e);
}

static struct engine_job *job_new(struct engine *g, const struct engine_ask *a)
{
    struct engine_job *j = calloc(1, sizeof *j);
    if (!j) {
        return NULL;
    }
    j->g = g;
    atomic_init(&j->refs, 2);
    j->a = *a;
    j->a.client = NULL;
    j->said_before = SIZE_MAX;
    bool ok = copy_of((const void **)&j->a.prompt, a->n_prompt, sizeof *a->prompt);
    ok = copy_of((const void **)&j->a.bounds, a->n_bounds, sizeof *a->bounds) && ok;
    ok = copy_of((const void **)&j->a.stop, a->n_stop, sizeof *a->stop) && ok;
    ok = copy_of((const void **)&j->a.script, a->n_script, sizeof *a->script) && ok;
    ok =
        copy_of((const void **)&j->a.sampling.bias, a->sampling.n_bias, sizeof *a->sampling.bias) &&
        ok;
    /* The last new token is not fed, so it needs no position. */
    uint32_t room = g->positions - (uint32_t)a->n_prompt + 1;
    j->a.max_new = a->max_new < room ? a->max_new : room;
    if (!ok) {
        job_free(j);
        return NULL;
    }
    return j;
}

/* With mu. May one more of this client wait? The more of its requests wait, the more places it must
 * leave to others: however many it sends, and however often, a client with nothing in the queue
 * finds a place. */
static int check_place(const struct engine *g, const struct engine_client *c, struct err *e)
{
    size_t own = c->jobs - 1 - c->running, left = g->o.queue - g->n_queue;
    return own < ENGINE_SHARE * left
               ? 0
               : err_set(e, ERR_BUSY,
                         "%zu requests wait already, %zu of them yours; try again later",
                         g->n_queue, own);
}

int engine_submit(struct engine *g, const struct engine_ask *a, struct engine_job **out,
                  size_t *waiting, struct err *e)
{
    *out = NULL;
    int r = check_ask(g, a, e);
    if (r) {
        pthread_mutex_lock(&g->mu);
        g->s.refused++;
        pthread_mutex_unlock(&g->mu);
        return r;
    }
    struct engine_job *j = job_new(g, a);
    if (!j) {
        return err_set(e, ERR_NOMEM, "out of memory for a request");
    }
    pthread_mutex_lock(&g->mu);
    if (waiting) {
        *waiting = g->n_queue;
    }
    if (g->stop) {
        r = err_set(e, ERR_CANCELLED, "the node is stopping");
    } else {
        j->client = client_of(g, a->client ? a->client : "");
        r = j->client ? check_place(g, j->client, e)
                      : err_set(e, ERR_NOMEM, "out of memory for a request");
    }
    if (r) {
        if (j->client) {
            client_put(g, j->client);
        }
        g->s.refused++;
        pthread_mutex_unlock(&g->mu);
        job_free(j);
        return r;
    }
    j->submitted = clock_ns();
    g->s.requests++;
    *g->queue_tail = j;
    g->queue_tail = &j->next;
    g->n_queue++;
    g->queue_changed = true;
    *out = j;
    pthread_cond_signal(&g->cond);
    pthread_mutex_unlock(&g->mu);
    return 0;
}

void engine_cancel(struct engine_job *j)
{
    struct engine *g = j->g;
    atomic_store(&j->cancelled, true);
    pthread_mutex_lock(&g->mu);
    pthread_cond_signal(&g->cond);
    pthread_mutex_unlock(&g->mu);
}

void engine_keep_answer(struct engine_job *j, const uint32_t *ids, size_t n)
{
    if (j->fed <= n && j->fed &&
        !memcmp(j->ids ? j->ids : j->a.prompt, ids, j->fed * sizeof *ids)) {
        j->keep_n = j->fed;
    }
}

/* ---- ends ---- */

static double seconds(uint64_t from, uint64_t to)
{
    return from && to > from ? (double)(to - from) * 1e-9 : 0;
}

void engine_finish(struct engine *g, struct engine_job *j, enum engine_reason why,
                   const struct err *e)
{
    uint64_t now = clock_ns();
    struct engine_end end = {.job = j,
                             .reason = why,
                             .prompt = j->a.n_prompt,
                             .reused = j->reused,
                             .fresh = j->n_ids ? j->n_ids - j->a.n_prompt : 0,
                             .receipt = j->receipt,
                             .again = j->again};
    if (j->st) {
        end.since = infer_state_since(j->st);
    }
    if (e) {
        end.err = *e;
    }
    end.wait_s = seconds(j->submitted, j->admitted ? j->admitted : now);
    end.prefill_s = seconds(j->admitted, j->first_token ? j->first_token : now);
    end.decode_s = seconds(j->first_token, now);
    pthread_mutex_lock(&g->mu);
    for (size_t i = 0; i < g->n_run; i++) {
        if (g->run[i] == j) {
            g->run[i] = g->run[--g->n_run];
            j->client->running--;
            break;
        }
    }
    j->state = JOB_OVER;
    g->s.failed += why == ENGINE_ERROR && end.err.code != ERR_CANCELLED;
    g->s.cancelled += why == ENGINE_ERROR && end.err.code == ERR_CANCELLED;
    g->s.new_tokens += end.fresh;
    g->s.reused_tokens += end.reused;
    g->s.prompt_tokens += end.prompt;
    if (end.fresh > 8 && end.decode_s > 0) {
        double rate = (double)(end.fresh - 1) / end.decode_s;
        g->s.decode_tok_s = g->s.decode_tok_s > 0 ? 0.7 * g->s.decode_tok_s + 0.3 * rate : rate;
    }
    if (end.fresh && end.prompt - end.reused > 8 && end.prefill_s > 0) {
        double rate = (double)(end.prompt - end.reused) / end.prefill_s;
        g->s.prefill_tok_s = g->s.prefill_tok_s > 0 ? 0.7 * g->s.prefill_tok_s + 0.3 * rate : rate;
    }
    client_put(g, j->client);
    j->client = NULL;
    pthread_mutex_unlock(&g->mu);
    j->a.hooks.end(j->a.hooks.ctx, &end);
    if (j->keep_n && j->st && why != ENGINE_ERROR && !j->a.no_keep) {
        keep_put(g->keep, j->ids, j->keep_n, j->st);
    }
    infer_state_free(j->st);
    j->st = NULL;
    grammar_run_close(j->run);
    j->run = NULL;
    sampling_close(&j->sampling);
    engine_release(j);
}

/* ---- the queue; with mu ---- */

/* Is x to be taken before y? The client that has fewer running, then the one that was served longer
 * ago, then who came first. */
static bool before(const struct engine_job *x, const struct engine_job *y)
{
    const struct engine_client *a = x->client, *b = y->client;
    if (a == b) {
        return false; /* the list is in order of arrival */
    }
    return a->running != b->running ? a->running < b->running : a->served < b->served;
}

static void unlink_job(struct engine *g, struct engine_job *j)
{
    struct engine_job **at = &g->queue;
    while (*at != j) {
        at = &(*at)->next;
    }
    *at = j->next;
    if (g->queue_tail == &j->next) {
        g->queue_tail = at;
    }
    j->next = NULL;
    g->n_queue--;
    g->queue_changed = true;
}

static struct engine_job *best_waiting(struct engine *g)
{
    struct engine_job *best = g->queue;
    for (struct engine_job *j = best ? best->next : NULL; j; j = j->next) {
        if (before(j, best)) {
            best = j;
        }
    }
    return best;
}

static uint64_t state_bytes(const struct engine *g, const struct engine_job *j)
{
    return infer_state_bytes(g->o.f, (uint32_t)(j->a.n_prompt + j->a.max_new - 1));
}

static bool fits(const struct engine *g, const struct engine_job *j)
{
    uint64_t sum = state_bytes(g, j);
    if (g->n_run == 0) {
        return true;
    }
    for (size_t i = 0; i < g->n_run; i++) {
        sum += state_bytes(g, g->run[i]);
    }
    return g->n_run < g->o.batch && (!g->o.ram_states || sum <= g->o.ram_states);
}

/* A waiting job that is over before it began, taken out; *e says why. */
static struct engine_job *expired(struct engine *g, struct err *e)
{
    uint64_t now = clock_ns();
    for (struct engine_job *j = g->queue; j; j = j->next) {
        bool late = j->a.deadline_ns && now >= j->a.deadline_ns;
        if (atomic_load(&j->cancelled) || g->stop || late) {
            if (late && !atomic_load(&j->cancelled) && !g->stop) {
                err_set(e, ERR_TIMEOUT, "the request's deadline passed while it waited");
            } else {
                err_set(e, ERR_CANCELLED, g->stop ? "the node is stopping" : "cancelled");
            }
            unlink_job(g, j);
            return j;
        }
    }
    return NULL;
}

/* Tell those who wait how many are before them. Releases and retakes mu. */
static void tell_waiting(struct engine *g)
{
    g->queue_changed = false;
    for (bool again = true; again;) {
        again = false;
        size_t place = 0;
        for (struct engine_job *j = g->queue; j; j = j->next, place++) {
            /* in arrival order a client's own earlier ones count fully, others' as they interleave
             */
            size_t before_it = 0, own = 0;
            for (const struct engine_job *x = g->queue; x != j; x = x->next) {
                own += x->client == j->client;
            }
            for (const struct engine_client *c = g->clients; c; c = c->next) {
                size_t theirs = 0;
                for (const struct engine_job *x = g->queue; x; x = x->next) {
                    theirs += x->client == c;
                }
                size_t turns = own + (c != j->client && c->served < j->client->served);
                before_it += c == j->client ? own : theirs < turns ? theirs : turns;
            }
            if (before_it != j->said_before && j->a.hooks.waits) {
                j->said_before = before_it;
                j->said_at = clock_ns();
                atomic_fetch_add(&j->refs, 1);
                pthread_mutex_unlock(&g->mu);
                j->a.hooks.waits(j->a.hooks.ctx, before_it);
                engine_release(j);
                pthread_mutex_lock(&g->mu);
                again = true; /* the queue may be another */
                break;
            }
        }
    }
}

void engine_look_at_queue(struct engine *g)
{
    struct err e = {0};
    for (struct engine_job *j; (j = expired(g, &e));) {
        pthread_mutex_unlock(&g->mu);
        engine_finish(g, j, ENGINE_ERROR, &e);
        pthread_mutex_lock(&g->mu);
    }
    if (g->queue_changed) {
        tell_waiting(g);
    }
}

/* Move from the queue to the running ones. Releases and retakes mu. */
static void admit(struct engine *g)
{
    engine_look_at_queue(g);
    for (struct engine_job *j; (j = best_waiting(g)) && fits(g, j);) {
        unlink_job(g, j);
        j->state = JOB_RUNS;
        j->admitted = clock_ns();
        j->client->running++;
        j->turn = ++g->admissions;
        j->client->served = j->turn;
        g->run[g->n_run++] = j;
    }
    if (g->queue_changed) {
        tell_waiting(g);
    }
}

/* ---- the thread ---- */

static void wait_for_work(struct engine *g)
{
    /* deadlines of those who wait are looked at four times a second */
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 250000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    if (g->n_queue) {
        pthread_cond_timedwait(&g->cond, &g->mu, &t);
    } else {
        pthread_cond_wait(&g->cond, &g->mu);
    }
}

static void do_forget(struct engine *g)
{
    struct err e = {0};
    pthread_mutex_unlock(&g->mu);
    int r = keep_forget(g->keep, &e);
    pthread_mutex_lock(&g->mu);
    g->forget = false;
    g->forget_code = r;
    g->forgets++;
    pthread_cond_broadcast(&g->cond);
}

static void refresh_stats(struct engine *g)
{
    struct keep_stats k;
    keep_get_stats(g->keep, &k);
    g->s.kept_ram = k.ram;
    g->s.kept_disk = k.disk;
    g->s.kept_ram_bytes = k.ram_bytes;
    g->s.kept_disk_bytes = k.disk_bytes;
    g->s.keep_hits = k.hits;
}

static void *engine_main(void *arg)
{
    struct engine *g = arg;
    qos_self(QOS_ANSWER);
    pthread_mutex_lock(&g->mu);
    for (;;) {
        admit(g);
        if (g->forget) {
            do_forget(g);
        }
        refresh_stats(g);
        if (g->n_run) {
            pthread_mutex_unlock(&g->mu);
            if (g->o.busy) {
                g->o.busy(g->o.ctx, true);
            }
            engine_step(g);
            if (g->o.busy) {
                g->o.busy(g->o.ctx, false);
            }
            pthread_mutex_lock(&g->mu);
        } else if (g->stop && !g->queue) {
            break;
        } else if (!g->queue && !g->stop && !g->forget) {
            pthread_mutex_unlock(&g->mu);
            bool wrote = keep_write_one(g->keep);
            pthread_mutex_lock(&g->mu);
            if (!wrote && !g->queue && !g->stop && !g->forget) {
                wait_for_work(g);
            }
        } else if (!g->stop) {
            wait_for_work(g);
        }
    }
    pthread_mutex_unlock(&g->mu);
    keep_close(g->keep);
    g->keep = NULL;
    return NULL;
}

/* ---- life ---- */

static int start(struct engine *g, struct err *e)
{
    struct keep_opts k = {.f = g->o.f,
                          .ram = g->o.keep_ram,
                          .disk = g->o.keep_disk,
                          .dir = g->keep_dir,
                          .log = g->o.log,
                          .log_ctx = g->o.ctx};
    int r = keep_open(&k, &g->keep, e);
    if (!r && g->o.tok) {
        r = grammar_vocab_open(g->o.tok, &g->gv, e);
    }
    g->rows = malloc(g->o.chunk * sizeof *g->rows);
    if (!r && !g->rows) {
        r = err_set(e, ERR_NOMEM, "out of memory for the engine");
    }
    if (!r && g->o.tap) {
        g->o.tap->engine = g;
    }
    if (!r) {
        int t = pthread_create(&g->thread, NULL, engine_main, g);
        r = t ? err_sys(e, t, "cannot start the engine's thread") : 0;
        g->started = !r;
    }
    return r;
}

int engine_open(const struct engine_opts *o, struct engine **out, struct err *e)
{
    struct engine *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g || pthread_mutex_init(&g->mu, NULL)) {
        free(g);
        return err_set(e, ERR_NOMEM, "out of memory for the engine");
    }
    pthread_cond_init(&g->cond, NULL);
    g->o = *o;
    g->o.batch = o->batch ? o->batch : ENGINE_BATCH_DEFAULT;
    g->o.batch = g->o.batch > ENGINE_BATCH_MAX ? ENGINE_BATCH_MAX : g->o.batch;
    g->o.queue = o->queue ? o->queue : ENGINE_QUEUE_DEFAULT;
    g->o.chunk = o->chunk ? o->chunk : 64;
    g->o.say_ms = o->say_ms ? o->say_ms : ENGINE_SAY_MS;
    g->o.keep_ms = o->keep_ms ? o->keep_ms : ENGINE_KEEP_MS;
    g->o.chunk = g->o.chunk < g->o.batch ? g->o.batch : g->o.chunk;
    g->vocab = infer_config(o->f)->vocab;
    g->positions = infer_config(o->f)->max_positions;
    g->queue_tail = &g->queue;
    spec_open(&g->spec, o->f, &o->spec);
    int r = 0;
    if (o->keep_dir) {
        g->keep_dir = strdup(o->keep_dir);
        r = g->keep_dir ? 0 : err_set(e, ERR_NOMEM, "out of memory for the engine");
    }
    r = r ? r : start(g, e);
    if (r) {
        engine_close(g);
        return r;
    }
    *out = g;
    return 0;
}

void engine_quit(struct engine *g)
{
    if (g && g->started) {
        pthread_mutex_lock(&g->mu);
        g->stop = true;
        atomic_store(&g->stopping, true);
        pthread_cond_broadcast(&g->cond);
        pthread_mutex_unlock(&g->mu);
        pthread_join(g->thread, NULL);
        g->started = false;
    }
}

void engine_close(struct engine *g)
{
    if (!g) {
        return;
    }
    engine_quit(g);
    keep_close(g->keep); /* of a start that failed */
    if (g->o.tap) {
        g->o.tap->engine = NULL;
    }
    grammar_vocab_close(g->gv);
    pthread_cond_destroy(&g->cond);
    pthread_mutex_destroy(&g->mu);
    free(g->keep_dir);
    free(g->rows);
    free(g->logits);
    free(g);
}

void engine_get_stats(struct engine *g, struct engine_stats *out)
{
    pthread_mutex_lock(&g->mu);
    *out = g->s;
    out->waiting = g->n_queue;
    out->running = g->n_run;
    pthread_mutex_unlock(&g->mu);
}

int engine_forget(struct engine *g, struct err *e)
{
    pthread_mutex_lock(&g->mu);
    uint64_t now = g->forgets;
    g->forget = true;
    pthread_cond_broadcast(&g->cond);
    while (g->forgets == now && !g->stop) {
        pthread_cond_wait(&g->cond, &g->mu);
    }
    int r = g->forgets == now ? ERR_CANCELLED : g->forget_code;
    pthread_mutex_unlock(&g->mu);
    return r ? err_set(e, r, "not all kept states could be deleted") : 0;
}
