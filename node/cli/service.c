/* SPDX-License-Identifier: MIT
 * service.c: see service.h. */
#include "node/cli/service.h"

#include "node/api/api.h"
#include "node/api/oai.h"
#include "node/cli/plat.h"
#include "node/cli/states.h"
#include "node/cli/verify.h"
#include "node/daemon/node.h"
#include "proto/base/clock.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RETRY_S 30
#define SAY_S 30                               /* between notes while the model loads */
#define SHARE 20                               /* of the memory: 5 % each for states */
#define KEEP_DISK ((uint64_t)20 * 1000000000)  /* most bytes of kept states on disk */
#define VERIFY_WAIT_MS 30000                   /* for a model that loads */
#define VERIFY_NS ((uint64_t)600 * 1000000000) /* of a verifying run */

enum state { LOADING, READY, FAILED, STOPPING };

struct service {
    struct cli *c;
    struct cli_session *s;
    struct engine_opts eo; /* folder and model's name in it are those below */
    struct engine_tap tap;
    struct engine *g;
    struct oai *a;
    struct buf states, folder; /* BASE; BASE/states/NAME */
    int lock;                  /* of the folder; -1: no states on disk */
    char model[SERVICE_NAME];
    char *key;
    bool retry, brief;
    double started, said;
    pthread_t loader;
    bool loads;
    atomic_bool stop;

    pthread_mutex_t mu; /* guards what follows */
    pthread_cond_t cond;
    enum state state;
    struct err why; /* FAILED */
    unsigned users; /* of the engine, besides the API */
};

/* ---- small parts ---- */

__attribute__((format(printf, 2, 3))) static void note(struct service *v, const char *fmt, ...)
{
    char line[1000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (v->s->c->quiet) {
        cli_note(v->c, "%s", line);
    } else {
        live_log(v->s->live, line); /* it knows of the progress line */
    }
}

static void on_log(void *ctx, const char *line)
{
    note(ctx, "%s", line);
}

static void on_busy(void *ctx, bool on)
{
    struct service *v = ctx;
    cli_session_computing(v->s, on ? 1 : -1);
}

static bool is_k3(const struct model_config *c)
{
    return c->n_layers == 93 && c->n_experts == 896 && c->topk == 16;
}

static void name_model(struct service *v, const struct service_setup *u)
{
    const char *from = v->s->source;
    size_t n = strlen(from);
    if (u->o->model_name) {
        snprintf(v->model, sizeof v->model, "%s", u->o->model_name);
        return;
    }
    if (u->demo || is_k3(model_config(v->s->m))) {
        snprintf(v->model, sizeof v->model, "%s", u->demo ? "k3-demo" : "kimi-k3");
        return;
    }
    while (n && from[n - 1] == '/') {
        n--;
    }
    size_t at = n;
    while (at && from[at - 1] != '/') {
        at--;
    }
    snprintf(v->model, sizeof v->model, "%.*s", (int)(n - at < 100 ? n - at : 100), from + at);
    for (char *p = v->model; *p; p++) {
        *p = (unsigned char)*p <= ' ' || *p == 0x7f ? '-' : *p;
    }
    if (!v->model[0]) {
        snprintf(v->model, sizeof v->model, "model");
    }
}

/* ---- where states are kept ---- */

static int plan_states(struct service *v, const struct service_setup *u, struct err *e)
{
    const struct plan *p = &v->s->plan;
    struct err e1 = {0};
    struct states_info have = {.n = 0};
    uint64_t memory = p->memory ? p->memory : 2 * p->half, room = 0;
    char a[CLI_NUM];
    v->eo.ram_states = memory / SHARE;
    v->eo.keep_ram = memory / SHARE;
    if (!u->states) {
        return 0;
    }
    int r = buf_adds(&v->states, u->states)
                ? err_set(e, ERR_LIMIT, "the path is too long")
                : states_folder(u->states, model_root(v->s->m), &v->folder, e);
    if (r || u->o->no_save_states) {
        return r;
    }
    r = states_lock(v->folder.p, &v->lock, &e1);
    if (r) {
        if (!v->brief) {
            note(v, "states of conversations stay in RAM: %s", e1.msg);
        }
        return 0;
    }
    /* a tenth of what would be free without them */
    (void)states_count(v->folder.p, &have.n, &have.bytes, &e1);
    if (!plat_disk_free(v->folder.p, &room, &e1)) {
        room = (room + have.bytes) / 10;
    }
    v->eo.keep_disk = room < KEEP_DISK ? room : KEEP_DISK;
    v->eo.keep_dir = v->folder.p;
    if (!v->brief) {
        note(v, "states of conversations are kept in %s, at most %s", v->folder.p,
             cli_bytes(v->eo.keep_disk, a));
    }
    return 0;
}

/* ---- the model ---- */

int service_progress(void *service, const struct infer_progress *p)
{
    struct service *v = service;
    char line[LIVE_LINE];
    if (v->tap.engine) {
        return engine_progress(&v->tap, p);
    }
    cli_session_progress(v->s, p);
    cli_session_compose(v->s, line, sizeof line);
    if (line[0]) {
        oai_loading(v->a, line);
    }
    double now = clock_s();
    if (line[0] && v->s->c->quiet && now - v->said > SAY_S) {
        v->said = now;
        note(v, "%s", line);
    }
    return atomic_load(&v->stop);
}

static int load(struct service *v, struct err *e)
{
    int r = v->s->f ? 0 : cli_session_load(v->s, e);
    if (r) {
        return r;
    }
    v->eo.f = v->s->f;
    r = engine_open(&v->eo, &v->g, e);
    if (r) {
        return r;
    }
    struct oai_model m = {.engine = v->g,
                          .m = v->s->m,
                          .tok = v->s->tok,
                          .id = v->model,
                          .created = (uint64_t)time(NULL),
                          .positions = infer_config(v->s->f)->max_positions};
    uint32_t stops[SESSION_STOPS];
    m.n_stop_ids = cli_session_stops(v->s, stops);
    m.n_stop_ids = m.n_stop_ids < OAI_STOP_IDS ? m.n_stop_ids : OAI_STOP_IDS;
    memcpy(m.stop_ids, stops, m.n_stop_ids * sizeof *stops);
    oai_ready(v->a, &m);
    return 0;
}

static void set_state(struct service *v, enum state st, const struct err *e)
{
    pthread_mutex_lock(&v->mu);
    if (v->state != STOPPING) {
        v->state = st;
        if (e) {
            v->why = *e;
        }
    }
    pthread_cond_broadcast(&v->cond);
    pthread_mutex_unlock(&v->mu);
}

/* With mu. False: the time is over. */
static bool wait_until(struct service *v, uint64_t end_ns)
{
    uint64_t now = clock_ns();
    struct timespec t;
    if (now >= end_ns) {
        return false;
    }
    clock_gettime(CLOCK_REALTIME, &t); /* a changed clock makes one wait longer or shorter */
    uint64_t left = end_ns - now < 1000000000 ? end_ns - now : 1000000000;
    t.tv_nsec += (long)left;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&v->cond, &v->mu, &t);
    return true;
}

static void *load_main(void *arg)
{
    struct service *v = arg;
    char took[CLI_NUM], text[180];
    for (;;) {
        struct err e = {0};
        int r = load(v, &e);
        if (!r) {
            if (!v->brief) {
                note(v, "the model is ready after %s: requests for %s are answered at %s",
                     cli_duration(clock_s() - v->started, took), v->model, oai_url(v->a));
            }
            set_state(v, READY, NULL);
            return NULL;
        }
        if (atomic_load(&v->stop)) {
            return NULL;
        }
        snprintf(text, sizeof text, "it could not be loaded: %.140s", e.msg);
        oai_loading(v->a, text);
        set_state(v, FAILED, &e);
        if (!v->retry) {
            return NULL;
        }
        note(v, "the model could not be loaded, which is tried again in %d s: %s", RETRY_S, e.msg);
        uint64_t end = clock_ns() + (uint64_t)RETRY_S * 1000000000;
        pthread_mutex_lock(&v->mu);
        while (v->state == FAILED && wait_until(v, end)) {
        }
        bool over = v->state == STOPPING;
        v->state = over ? STOPPING : LOADING;
        pthread_mutex_unlock(&v->mu);
        if (over) {
            return NULL;
        }
    }
}

/* ---- /health and /metrics ---- */

static json_t *report_of(struct service *v)
{
    json_t *r = NULL;
    struct err e;
    struct store_stats s;
    if (v->s->node) {
        return node_status(v->s->node, &r, &e) ? NULL : r;
    }
    store_get_stats(v->s->st, &s);
    return json_pack("{s:f, s:o, s:{s:{s:I, s:I, s:I}, s:{s:I, s:I}, s:{s:I, s:I}, s:I}}",
                     "uptime_s", clock_s() - v->started, "compute", cli_compute_json(v->s->compute),
                     "tiers", "origin", "bytes", (json_int_t)s.origin_bytes, "fetches",
                     (json_int_t)s.origin_fetches, "retries", (json_int_t)s.retries, "disk",
                     "bytes_read", (json_int_t)s.disk_bytes, "hits", (json_int_t)s.disk_hits, "ram",
                     "hits", (json_int_t)s.ram_hits, "used", (json_int_t)s.ram_used, "bad_chunks",
                     (json_int_t)s.bad_chunks);
}

static int on_health(void *ctx, struct buf *out, bool *ready)
{
    static const char *const names[] = {"loading", "ok", "failed", "stopping"};
    struct service *v = ctx;
    char line[LIVE_LINE] = "";
    pthread_mutex_lock(&v->mu);
    enum state st = v->state;
    if (st == FAILED) {
        snprintf(line, sizeof line, "%.230s", v->why.msg);
    }
    pthread_mutex_unlock(&v->mu);
    if (st == LOADING) {
        cli_session_compose(v->s, line, sizeof line);
    }
    *ready = st == READY;
    json_t *report = report_of(v);
    int r = api_health(names[st], v->model, line[0] ? line : NULL, report, out);
    json_decref(report);
    return r;
}

static int on_metrics(void *ctx, struct buf *out)
{
    json_t *report = report_of(ctx);
    int r = report ? api_metrics(report, out) : 0;
    json_decref(report);
    return r;
}

static enum store_rests on_rests(void *ctx, const struct store_since *since)
{
    struct store_rest r;
    store_rest(((struct service *)ctx)->s->st, since, &r);
    return r.weakest;
}

/* ---- life ---- */

struct service *service_new(void)
{
    struct service *v = calloc(1, sizeof *v);
    if (v) {
        v->lock = -1;
        v->started = v->said = clock_s();
        pthread_mutex_init(&v->mu, NULL);
        pthread_cond_init(&v->cond, NULL);
        buf_init(&v->states, 4096);
        buf_init(&v->folder, 4200);
    }
    return v;
}

static int open_api(struct service *v, const struct service_setup *u, struct err *e)
{
    char host[64];
    uint16_t port;
    if (!opt_host_port(u->o->api, host, sizeof host, &port, true)) {
        return err_set(e, ERR_ARG, "--api %.100s: it must be HOST:PORT", u->o->api);
    }
    struct oai_opts o = {.http = {.host = host, .port = port, .key = v->key, .cors = u->o->cors},
                         .timeout_s = (double)u->o->timeout.v,
                         .health = on_health,
                         .metrics = on_metrics,
                         .rests = on_rests,
                         .ctx = v};
    if (u->o->think) {
        (void)chat_think_by_name(u->o->think, strlen(u->o->think), &o.think); /* was checked */
    }
    int r = oai_open(&o, &v->a, e);
    return r ? service_api_hint(e) : 0;
}

int service_open(struct service *v, const struct service_setup *u, struct cli_session *s,
                 struct err *e)
{
    v->c = u->c;
    v->s = s;
    v->retry = u->retry;
    v->brief = u->brief;
    v->eo = (struct engine_opts){.tap = &v->tap,
                                 .m = s->m,
                                 .tok = s->tok,
                                 .chunk = s->chunk,
                                 .batch = (uint32_t)u->o->parallel.v,
                                 .queue = (uint32_t)u->o->queue.v,
                                 .busy = on_busy,
                                 .log = on_log,
                                 .ctx = v};
    name_model(v, u);
    int r = cli_speculate(u->o->speculate, &v->eo.spec, e);
    r = r ? r : cli_session_need_tok(s, e);
    if (!r && u->key) {
        v->key = strdup(u->key);
        r = v->key ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    } else if (!r && u->o->key_file) {
        bool others = false;
        r = service_read_key(u->o->key_file, &v->key, &others, e);
        if (!r && others) {
            note(v, "the API key in %s can be read by other users of this machine: chmod 600 %s",
                 u->o->key_file, u->o->key_file);
        }
    }
    r = r ? r : plan_states(v, u, e);
    r = r ? r : open_api(v, u, e);
    if (!r) {
        int t = pthread_create(&v->loader, NULL, load_main, v);
        r = t ? err_sys(e, t, "cannot start the thread that loads the model") : 0;
        v->loads = !t;
    }
    if (r) {
        service_stop(v);
    }
    return r;
}

void service_stop(struct service *v)
{
    if (!v || !v->s) {
        return;
    }
    if (v->a) {
        oai_quiet(v->a);
    }
    atomic_store(&v->stop, true);
    pthread_mutex_lock(&v->mu);
    v->state = STOPPING;
    pthread_cond_broadcast(&v->cond);
    pthread_mutex_unlock(&v->mu);
    store_interrupt(v->s->st);
    if (v->loads) {
        pthread_join(v->loader, NULL);
        v->loads = false;
    }
    /* Its end ends what others wait for in it; only then may it be freed. */
    engine_quit(v->g);
    pthread_mutex_lock(&v->mu);
    while (v->users) {
        pthread_cond_wait(&v->cond, &v->mu);
    }
    pthread_mutex_unlock(&v->mu);
    engine_close(v->g);
    oai_close(v->a);
    v->g = NULL;
    v->a = NULL;
    v->s = NULL;
    if (v->lock >= 0) {
        close(v->lock);
        v->lock = -1;
    }
}

void service_free(struct service *v)
{
    if (v) {
        service_stop(v);
        buf_free(&v->states);
        buf_free(&v->folder);
        free(v->key);
        pthread_cond_destroy(&v->cond);
        pthread_mutex_destroy(&v->mu);
        free(v);
    }
}

const char *service_url(const struct service *v)
{
    return oai_url(v->a);
}

const char *service_model(const struct service *v)
{
    return v->model;
}

bool service_failed(struct service *v, struct err *e)
{
    pthread_mutex_lock(&v->mu);
    bool r = v->state == FAILED && !v->retry;
    if (r) {
        *e = v->why;
    }
    pthread_mutex_unlock(&v->mu);
    return r;
}

/* With mu. */
static int wait_ready(struct service *v, uint64_t end_ns, struct err *e)
{
    while (v->state == LOADING && wait_until(v, end_ns)) {
    }
    switch (v->state) {
    case READY:
        return 0;
    case LOADING:
        return err_set(e, ERR_TIMEOUT, "the model is still being loaded: ask again later");
    case FAILED:
        *e = v->why;
        return e->code;
    default:
        return err_set(e, ERR_CANCELLED, "this node is stopping");
    }
}

int service_wait(struct service *v, unsigned ms, struct err *e)
{
    pthread_mutex_lock(&v->mu);
    int r = wait_ready(v, clock_ns() + (uint64_t)ms * 1000000, e);
    pthread_mutex_unlock(&v->mu);
    return r;
}

/* ---- what a node asks ---- */

static int take(struct service *v, unsigned wait_ms, struct err *e)
{
    pthread_mutex_lock(&v->mu);
    int r = wait_ready(v, clock_ns() + (uint64_t)wait_ms * 1000000, e);
    v->users += !r;
    pthread_mutex_unlock(&v->mu);
    return r;
}

static void give(struct service *v)
{
    pthread_mutex_lock(&v->mu);
    v->users--;
    pthread_cond_broadcast(&v->cond);
    pthread_mutex_unlock(&v->mu);
}

struct question {
    struct service *v;
    struct mesh_verify_answer *out;
    bool over; /* with the service's mu */
    int code;
    struct err err;
};

static int on_token(void *ctx, const struct engine_token *t)
{
    struct question *q = ctx;
    if (q->out->n_ids < MESH_VERIFY_NEW) {
        q->out->ids[q->out->n_ids++] = t->id;
    }
    return 0;
}

static void on_end(void *ctx, const struct engine_end *end)
{
    struct question *q = ctx;
    memcpy(q->out->receipt, end->receipt.h, SHA256_SIZE);
    if (end->reason == ENGINE_ERROR) {
        q->code = end->err.code;
        q->err = end->err;
    }
    pthread_mutex_lock(&q->v->mu);
    q->over = true;
    pthread_cond_broadcast(&q->v->cond);
    pthread_mutex_unlock(&q->v->mu);
}

static int answer(struct service *v, const struct mesh_verify_ask *ask,
                  struct mesh_verify_answer *out, struct err *e)
{
    struct tok_ids ids = {0};
    struct question q = {.v = v, .out = out};
    struct engine_job *j = NULL;
    int r = verify_prompt(v->s, ask->prompt, &ids, e);
    if (!r) {
        struct engine_ask a = {.prompt = ids.v,
                               .n_prompt = ids.n,
                               .max_new = ask->max_new ? ask->max_new : VERIFY_NEW,
                               .sampling = {.base = {.top_p = 1}},
                               .deadline_ns = clock_ns() + VERIFY_NS,
                               .client = "verify",
                               .no_keep = true,
                               .hooks = {.ctx = &q, .token = on_token, .end = on_end}};
        a.max_new = a.max_new < MESH_VERIFY_NEW ? a.max_new : MESH_VERIFY_NEW;
        r = engine_submit(v->g, &a, &j, NULL, e);
    }
    if (!r) {
        pthread_mutex_lock(&v->mu);
        while (!q.over) {
            pthread_cond_wait(&v->cond, &v->mu);
        }
        pthread_mutex_unlock(&v->mu);
        engine_release(j);
        r = q.code;
        if (r) {
            *e = q.err;
        }
    }
    tok_ids_free(&ids);
    return r;
}

int service_verify(struct service *v, const struct mesh_verify_ask *ask,
                   struct mesh_verify_answer *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    int r = take(v, VERIFY_WAIT_MS, e);
    if (r) {
        return r == ERR_TIMEOUT ? err_set(e, ERR_BUSY, "the model is still being loaded") : r;
    }
    r = answer(v, ask, out, e);
    if (!r) {
        memcpy(out->model_root, model_root(v->s->m), SHA256_SIZE);
        out->numerics_version = SHOAL_NUMERICS_VERSION;
    }
    give(v);
    return r;
}

int service_forget(struct service *v, size_t *n, uint64_t *bytes, struct err *e)
{
    struct err e1;
    int r = take(v, VERIFY_WAIT_MS, e);
    *n = 0;
    *bytes = 0;
    if (r) {
        return r;
    }
    if (v->folder.n && v->lock >= 0) {
        (void)states_count(v->folder.p, n, bytes, &e1);
    }
    r = engine_forget(v->g, e);
    give(v);
    if (!r && v->states.n) {
        /* without the lock another process has this folder, too */
        r = states_clear(v->states.p, v->lock >= 0 ? strrchr(v->folder.p, '/') + 1 : NULL, n, bytes,
                         e);
    }
    return r;
}
