/* SPDX-License-Identifier: MIT
 * session.c: see session.h. */
#include "node/cli/session.h"

#include "node/cli/budget.h"
#include "node/cli/home.h"
#include "node/cli/plat.h"
#include "node/daemon/node.h"
#include "node/demo/where.h"
#include "node/routes/routes.h"
#include "node/store/address.h"
#include "node/store/at_rest.h"
#include "node/store/hub.h"
#include "node/store/upkeep.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define MEET_MS 1500
#define PATH_ROOM 4096

static bool is_url(const char *s)
{
    return !strncasecmp(s, "http://", 7) || !strncasecmp(s, "https://", 8);
}

/* ---- where model and cache lie ---- */

static int find_model(const char *exe, const char *model, struct buf *out, struct err *e)
{
    struct stat sb;
    if (!model) {
        return demo_model_find(exe, out, e);
    }
    struct hub_name name;
    bool folder = !is_url(model) && !stat(model, &sb) && S_ISDIR(sb.st_mode);
    if (!folder && hub_parse(model, cli_hub_site(), !is_url(model), &name)) {
        return hub_address(&name, name.revision, out) ? err_set(e, ERR_LIMIT, "--model is too long")
                                                      : 0;
    }
    if (!is_url(model) && strstr(model, "://")) {
        return err_set(e, ERR_ARG,
                       "--model %s: only http and https URLs, folders and a hub's "
                       "org/name[@revision] are known",
                       model);
    }
    if (!is_url(model) && stat(model, &sb)) {
        return err_sys(e, errno,
                       "--model must be a folder that holds config.json, an http(s) URL, or a "
                       "hub's org/name[@revision]; cannot open the folder %s",
                       model);
    }
    if (!is_url(model) && !S_ISDIR(sb.st_mode)) {
        return err_set(e, ERR_ARG, "--model %s is a file: give the folder that holds config.json",
                       model);
    }
    return buf_adds(out, model) ? err_set(e, ERR_LIMIT, "--model is too long") : 0;
}

int cli_model_source(const char *exe, const char *model, struct buf *out, struct err *e)
{
    int r = model ? address_check(model, e) : 0;
    r = r ? r : find_model(exe, model, out, e);
    return r ? r : address_check(out->p, e); /* a hub's address may have one, too */
}

int cli_model_hint(const char *source, struct err *e)
{
    struct stat sb;
    struct buf config;
    buf_init(&config, PATH_ROOM);
    if (!is_url(source) && e->code == ERR_NOTFOUND &&
        !buf_addf(&config, "%s/config.json", source) && stat(config.p, &sb)) {
        err_set(
            e, ERR_NOTFOUND,
            "--model %s: there is no config.json in this folder: give the folder, or the URL, of a "
            "K3 model",
            source);
    }
    buf_free(&config);
    return e->code;
}

/* The model of the node that runs in this home: what a guest without --model means. */
static bool find_running(struct cli_session *s, const char *home)
{
    json_t *ask = json_pack("{s:s}", "op", "status"), *a = NULL;
    int r = ask ? node_ask(home, ask, 0, &a, NULL) : ERR_NOMEM;
    const char *address =
        json_string_value(json_object_get(json_object_get(a, "model"), "address"));
    bool found = !r && address && !buf_adds(&s->source_buf, address);
    json_decref(a);
    json_decref(ask);
    return found;
}

static int find_source(struct cli_session *s, const struct model_opts *o, struct err *e)
{
    bool running = !o->model && o->home && !s->borrowed && find_running(s, o->home);
    int r = running ? 0 : cli_model_source(s->c->exe, o->model, &s->source_buf, e);
    s->source = s->source_buf.p;
    s->demo = !o->model && !running;
    return r;
}

static int find_cache(struct cli_session *s, const struct model_opts *o, struct err *e)
{
    if (!o->cache && !o->home && !is_url(s->source)) {
        return 0;
    }
    int r = cli_cache_find(o->cache, o->home, NULL, &s->cache_buf, e);
    s->cache = s->cache_buf.p;
    return r;
}

static int find_net(struct cli_session *s, const struct model_opts *o, struct err *e)
{
    if (s->borrowed) {
        return 0;
    }
    int r = cli_net_open(&s->net, &o->net, o->offline, s->cache, &s->source_buf, e);
    s->source = s->source_buf.p;
    if (!r && s->net.said[0] && !s->c->brief && !s->c->quiet) {
        cli_note(s->c, "%s", s->net.said);
    }
    return r;
}

/* ---- tokenizer ---- */

static int read_model_file(struct cli_session *s, const char *name, struct buf *out, struct err *e)
{
    if (s->st) {
        return store_read_file(s->st, name, out, e);
    }
    struct buf path;
    buf_init(&path, PATH_ROOM);
    int r = buf_addf(&path, "%s/%s", s->source, name);
    r = r ? err_set(e, r, "the path of the model is too long") : file_read_all(path.p, out, e);
    buf_free(&path);
    return r;
}

static int open_tok(struct cli_session *s, struct err *e)
{
    struct buf ranks, config;
    buf_init(&ranks, TOK_MAX_FILE);
    buf_init(&config, TOK_MAX_CONFIG);
    int r = read_model_file(s, "tiktoken.model", &ranks, e);
    if (r == ERR_NOTFOUND && s->f_wanted) {
        /* A checkpoint without a tokenizer still computes: --ids need no text. */
        s->no_tok = *e;
        buf_free(&ranks);
        buf_free(&config);
        return 0;
    }
    if (!r) {
        r = read_model_file(s, "tokenizer_config.json", &config, e);
        r = r == ERR_NOTFOUND ? 0 : r; /* the 256 special tokens then have no names */
    }
    if (!r) {
        r = tok_open(ranks.p, ranks.n, config.p, config.n, &s->tok, e);
        if (r) {
            err_prefix(e, "%s/tiktoken.model", s->source);
        }
    }
    buf_free(&ranks);
    buf_free(&config);
    return r;
}

int cli_session_need_tok(const struct cli_session *s, struct err *e)
{
    if (s->tok) {
        return 0;
    }
    *e = s->no_tok;
    char why[sizeof e->msg];
    memcpy(why, e->msg, sizeof why);
    return err_set(e, ERR_NOTFOUND,
                   "this model has no tokenizer (%.400s): text cannot be read, only --ids", why);
}

/* ---- store, backend, inference ---- */

static void on_log(void *ctx, const char *line)
{
    struct cli_session *s = ctx;
    live_log(s->live, line);
}

__attribute__((format(printf, 2, 3))) static void note(struct cli_session *s, const char *fmt, ...)
{
    char line[1000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    live_log(s->live, line);
}

static int open_store(struct cli_session *s, const struct model_opts *o,
                      const struct compute_opts *k, struct err *e)
{
    struct store_opts so = {.model = s->source,
                            .cache_dir = s->cache,
                            .offline = s->net.offline,
                            .disk_budget = o->disk_budget.v,
                            .disk_floor = o->disk_floor.v,
                            .token = cli_net_token(&s->net),
                            .ca_file = cli_net_ca(&s->net),
                            .rate_limit = o->rate_limit.v,
                            .mirror_rate = o->mirror_rate.v,
                            .rate_conn = o->net.rate_conn.v,
                            .mirrors = o->mirrors.v,
                            .n_mirrors = o->mirrors.n,
                            .log = on_log,
                            .log_ctx = s};
    int r = 0;
    struct err why = {0};
    if (s->compute) {
        so.mem = infer_store_mem(compute_backend(s->compute));
    }
    if (!s->borrowed && o->home) {
        struct node_opts no = {.home = o->home, .store = so, .brief = true};
        r = node_open(&no, &s->node, e);
        if (r && r != ERR_ARG &&
            rest_can_write(o->home, &why)) { /* what the cache has can be used */
            note(s, "peers   not asked, since no node can run here: %s", why.msg);
            r = store_open(&so, &s->st, e);
        }
        if (!r && s->node && node_owner(s->node)) {
            /* What a peer has should not come from the origin only because it was asked first. */
            mesh_wait_peers(node_mesh(s->node), 1, MEET_MS);
        }
    } else if (!s->borrowed) {
        r = store_open(&so, &s->st, e);
    }
    if (r) {
        return cli_model_hint(s->source, e);
    }
    s->st = s->node ? node_store(s->node) : s->st;
    s->m = store_model(s->st);
    if (o->trust.set) {
        store_set_trust(s->st, (enum store_rests)o->trust.v);
    }
    pthread_mutex_lock(&s->lock);
    s->store_ready = true;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static void routed(void *ctx, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n)
{
    routes_add(ctx, layer, rows, ids, n);
}

static int open_routes(struct cli_session *s, struct err *e)
{
    const struct model_config *c = model_config(s->m);
    struct routes_head h = {.layers = c->n_layers,
                            .experts = c->n_experts,
                            .topk = c->topk,
                            .expert_bytes = model_expert_layout(s->m)->size};
    memcpy(h.root, model_root(s->m), SHA256_SIZE);
    return routes_create(s->record_routes, &h, &s->routes, e);
}

/* Where it came to lie, when that is not plainly in memory or on the disk. */
static void say_spine(struct cli_session *s)
{
    struct infer_spine w;
    char a[CLI_NUM], b[CLI_NUM], d[CLI_NUM], g[CLI_NUM];
    infer_get_spine(s->f, &w);
    if (w.kept || w.streamed != w.disk) {
        note(s, "spine   in memory: %s as it is, %s packed in %s; read for every token: %s",
             cli_bytes(w.resident, a), cli_bytes(w.kept_from, b), cli_bytes(w.kept, d),
             cli_bytes(w.disk, g));
    }
}

int cli_session_load(struct cli_session *s, struct err *e)
{
    struct infer_opts io = {.st = s->st,
                            .be = compute_backend(s->compute),
                            .spine_budget = s->plan.spine_budget,
                            .prefetch = s->prefetch,
                            /* passes of drafts and of many requests are not cut by a small chunk */
                            .max_rows = s->chunk < PLAN_CHUNK_LEAST ? PLAN_CHUNK_LEAST : s->chunk,
                            .progress = s->progress,
                            .progress_ctx = s->progress_ctx};
    if (s->record_routes && !s->routes) {
        int r = open_routes(s, e);
        if (r) {
            return r;
        }
    }
    io.routed = s->routes ? routed : NULL;
    io.routed_ctx = s->routes;
    store_set_admit(s->st, infer_admit, (void *)(uintptr_t)s->m);
    uint64_t resident =
        s->plan.spine_budget < s->plan.spine_bytes ? s->plan.spine_budget : s->plan.spine_bytes;
    cli_session_phase(s, PHASE_SPINE, 0, resident);
    int r = infer_open(&io, &s->f, e);
    cli_session_phase(s, PHASE_QUIET, 0, 0);
    if (r) {
        return r;
    }
    say_spine(s);
    s->plan.state_fixed = infer_state_bytes(s->f, 0);
    s->plan.state_per_token = (infer_state_bytes(s->f, 65536) - s->plan.state_fixed) / 65536;
    if (!s->c->brief) {
        char a[CLI_NUM], b[CLI_NUM];
        note(s, "state   %s for each conversation and %s more for each token",
             cli_bytes(s->plan.state_fixed, a), cli_bytes(s->plan.state_per_token, b));
    }
    return 0;
}

/* ---- the plan on the screen ---- */

static void say_plan(struct cli_session *s)
{
    const struct plan *p = &s->plan;
    const struct model_config *c = model_config(s->m);
    char a[CLI_NUM], b[CLI_NUM], d[CLI_NUM];
    note(s, "model   %s%s: %u layers, %u experts a layer, %u used", s->source,
         s->demo ? " (the demo model; --model names another)" : "", c->n_layers, c->n_experts,
         c->topk);
    if (p->memory) {
        note(s, "memory  %s, of which Shoal takes at most half unless options say otherwise",
             cli_bytes(p->memory, a));
    } else {
        note(s, "memory  of unknown size: %s are assumed to be free", cli_bytes(p->half, a));
    }
    if (p->spine_budget >= p->spine_bytes) {
        note(s, "spine   %s, all resident (%s)", cli_bytes(p->spine_bytes, a), p->spine_why);
    } else {
        note(s, "spine   %s of %s in memory (%s); what does not fit is read anew for every token",
             cli_bytes(p->spine_budget, a), cli_bytes(p->spine_bytes, b), p->spine_why);
    }
    char how[600];
    cli_compute_words(s->compute, how, sizeof how);
    note(s, "compute %s", how);
    note(s, "experts at most %s in RAM of %s, %s each (%s)", cli_bytes(p->ram_budget, a),
         cli_bytes(p->expert_bytes, b), cli_bytes(p->expert_size, d), p->ram_why);
    note(s, "prompt  %u tokens at a time, which takes %s (%s)", p->chunk,
         cli_bytes(p->chunk_bytes, a), p->chunk_why);
}

/* Who of the shoal is there, when this process is its node or the guest of one. */
static void say_shoal(struct cli_session *s)
{
    json_t *v = NULL;
    struct err e;
    if (!node_status(s->node, &v, &e)) {
        long long others = json_integer_value(json_object_get(v, "members")) - 1;
        s->shared = json_is_string(json_object_get(v, "group"));
        if (s->shared && others > 0) {
            note(s, "peers   %lld of %lld other members connected (shoal peers)",
                 (long long)json_integer_value(json_object_get(v, "connected")), others);
        } else if (s->shared) {
            note(s, "peers   this machine is the only member of its shoal");
        }
    }
    json_decref(v);
}

/* What has to come from the origin before or during the first tokens. */
static void say_cache(struct cli_session *s)
{
    uint64_t spine = 0, experts = 0, have = 0;
    char a[CLI_NUM], b[CLI_NUM];
    if (!s->cache) {
        note(s, "cache   none: the folder is read in place");
        return;
    }
    uint32_t n = model_object_count(s->m);
    for (uint32_t i = 0; i < n; i++) {
        const struct model_object *o = model_object(s->m, i);
        enum store_tier t = store_where(s->st, i);
        bool here = t == STORE_DISK || t == STORE_RAM;
        if (o->kind == MODEL_EXPERT) {
            experts++;
            have += here;
        } else if (!here) {
            spine += o->size;
        }
    }
    struct store_budget sb;
    char disk[CLI_BUDGET];
    if (!store_get_budget(s->st, &sb, NULL)) {
        note(s, "disk    %s", cli_budget_words(&sb, disk));
    }
    const struct model_config *c = model_config(s->m);
    uint64_t token = (uint64_t)(c->n_layers - c->first_dense) * c->topk * s->plan.expert_size;
    note(s,
         "cache   %s: %llu of %llu experts; at most %s of the spine still to fetch, then at most "
         "%s a token",
         s->cache, (unsigned long long)have, (unsigned long long)experts, cli_bytes(spine, a),
         cli_bytes(have == experts ? 0 : token, b));
}

/* ---- open, close ---- */

int cli_session_open(struct cli_session *s, struct cli *c, const struct model_opts *o,
                     const struct compute_opts *k, enum cli_session_depth depth, struct err *e)
{
    memset(s, 0, sizeof *s);
    s->c = c;
    s->prefetch = k ? (enum infer_prefetch)k->prefetch.v : INFER_PREFETCH_AUTO;
    s->phase_start = clock_s();
    s->progress = o->progress ? o->progress : cli_session_progress;
    s->progress_ctx = o->progress ? o->progress_ctx : s;
    s->record_routes = o->record_routes;
    if (o->over) {
        s->node = o->over->node;
        s->compute = o->over->compute;
        s->borrowed = true;
    }
    buf_init(&s->source_buf, PATH_ROOM);
    buf_init(&s->cache_buf, PATH_ROOM);
    if (pthread_mutex_init(&s->lock, NULL)) {
        return err_set(e, ERR_NOMEM, "cannot make a lock");
    }
    awake_open(&s->awake);
    int r = model_opts_check(o, e);
    r = r ? r : find_source(s, o, e);
    r = r ? r : find_cache(s, o, e);
    r = r ? r : find_net(s, o, e);
    if (!r) {
        s->phase = PHASE_OPEN;
        r = live_start(c->quiet, cli_session_compose, s, &s->live, e);
    }
    /* A folder's tokenizer can be read without the rest of the model. */
    bool store = depth > SESSION_TEXT || is_url(s->source ? s->source : "") || s->borrowed;
    if (!r && depth >= SESSION_PLAN && !s->borrowed) {
        r = cli_compute_open(c, k, o->home, on_log, s, &s->compute, e);
    }
    if (!r && store) {
        r = open_store(s, o, k, e);
    }
    if (!r && depth >= SESSION_PLAN) {
        plan_make(&s->plan, s->m, k, plat_memory());
        plan_limit(&s->plan, compute_limit(s->compute));
        plan_chunk(&s->plan, k, infer_row_bytes(model_config(s->m)));
        s->chunk = s->plan.chunk;
        store_set_ram_budget(s->st, s->plan.ram_budget);
        shortage_watch(s->st, s->plan.ram_budget, &s->shortage);
        cli_session_phase(s, PHASE_QUIET, 0, 0);
        if (!c->brief) {
            say_plan(s);
            say_cache(s);
        }
        if (!c->brief && s->node && !s->borrowed) {
            say_shoal(s);
        }
    }
    s->f_wanted = depth >= SESSION_FETCH;
    r = r ? r : open_tok(s, e);
    if (!r && depth == SESSION_INFER) {
        r = cli_session_load(s, e);
    }
    if (r) {
        cli_session_close(s);
        return r;
    }
    cli_session_phase(s, PHASE_QUIET, 0, 0);
    return 0;
}

void cli_session_close(struct cli_session *s)
{
    struct err routes = {0};
    shortage_end(s->shortage);
    s->shortage = NULL;
    infer_close(s->f);
    if (routes_finish(s->routes, &routes)) {
        note(s, "%s", routes.msg);
    }
    tok_close(s->tok);
    pthread_mutex_lock(&s->lock);
    s->store_ready = false;
    pthread_mutex_unlock(&s->lock);
    if (!s->borrowed) { /* its threads may log until here */
        if (s->node) {
            node_close(s->node);
        } else {
            store_close(s->st);
        }
    }
    live_stop(s->live);
    if (!s->borrowed) {
        compute_close(s->compute);
    }
    buf_free(&s->source_buf);
    cli_net_close(&s->net);
    buf_free(&s->cache_buf);
    awake_close(&s->awake);
    pthread_mutex_destroy(&s->lock);
}

void cli_session_computing(struct cli_session *s, int by)
{
    awake_work(&s->awake, by);
    if (s->node) {
        node_computing(s->node, by);
    } else if (s->st) {
        store_computing(s->st, by);
    }
}

/* ---- small helpers of the commands ---- */

size_t cli_session_stops(const struct cli_session *s, uint32_t out[SESSION_STOPS])
{
    static const char *const names[] = {"[EOS]", "<|end_of_msg|>"};
    size_t n = 0;
    out[n++] = model_config(s->m)->eos;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint32_t id;
        if (s->tok && tok_special_id(s->tok, names[i], &id) && id != out[0]) {
            out[n++] = id;
        }
    }
    return n;
}

int cli_session_parse_ids(const char *s, struct tok_ids *out, struct err *e)
{
    const char *p = s;
    for (;;) {
        uint64_t v = 0;
        size_t digits = 0;
        p += strspn(p, " \t\n");
        const char *begin = p;
        for (; *p >= '0' && *p <= '9' && v <= UINT32_MAX; p++, digits++) {
            v = v * 10 + (uint64_t)(*p - '0');
        }
        p += strspn(p, " \t\n");
        if (!digits || v > UINT32_MAX || (*p && *p != ',')) {
            return err_set(e, ERR_ARG, "--ids: \"%.20s\" is not a token id; give 1,2,3", begin);
        }
        if (tok_ids_add(out, (uint32_t)v)) {
            return err_set(e, ERR_NOMEM, "no memory for the token ids");
        }
        if (!*p) {
            return 0;
        }
        p++;
    }
}

int cli_session_check_ids(const struct cli_session *s, const struct tok_ids *l, struct err *e)
{
    uint32_t vocab = model_config(s->m)->vocab;
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i] >= vocab) {
            return err_set(e, ERR_ARG, "token id %u at position %zu: this model has ids 0 to %u",
                           l->v[i], i, vocab - 1);
        }
    }
    return 0;
}
