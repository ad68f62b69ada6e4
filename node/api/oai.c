/* SPDX-License-Identifier: MIT
 * oai.c: see oai.h: routes, errors, what answers look like on the wire. */
#include "node/api/oai_int.h"

#include "kernels/backend.h"
#include "proto/base/sha256.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

int oai_status(const struct err *e)
{
    switch (e->code) {
    case ERR_ARG:
    case ERR_FORMAT:
    case ERR_LIMIT:
    case ERR_UNSUPPORTED:
        return 400;
    case ERR_NOTFOUND:
        return 404;
    case ERR_BUSY:
        return 429;
    case ERR_TIMEOUT:
        return 504;
    case ERR_CANCELLED:
        return 503;
    default:
        return 500;
    }
}

static const char *type_of(bool anthropic, int status)
{
    switch (status) {
    case 400:
    case 413:
        return "invalid_request_error";
    case 401:
        return anthropic ? "authentication_error" : "invalid_request_error";
    case 403:
        return anthropic ? "permission_error" : "invalid_request_error";
    case 404:
        return anthropic ? "not_found_error" : "invalid_request_error";
    case 405:
        return "invalid_request_error";
    case 429:
        return anthropic ? "rate_limit_error" : "rate_limit_exceeded";
    case 503:
        return anthropic ? "overloaded_error" : "server_error";
    default:
        return anthropic ? "api_error" : "server_error";
    }
}

/* The field that a sentence begins with: a name, perhaps with [2] and .parts, and ": ". */
static size_t param_of(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]$");
    return n && n < 200 && !strncmp(text + n, ": ", 2) && strncmp(text, "request:", 8) != 0 ? n : 0;
}

/* A sentence about what a client sent may be cut within a character, or repeat what is no text. */
json_t *oai_message(const char *text)
{
    struct tok_stream s = {{0}, 0};
    size_t n = strlen(text), k;
    char *fine = malloc(TOK_STREAM_ROOM(n) + 3);
    if (!fine) {
        return NULL;
    }
    k = tok_stream_push(&s, text, n, fine);
    k += tok_stream_flush(&s, fine + k);
    json_t *v = oai_text(fine, k);
    free(fine);
    return v;
}

json_t *oai_error_json(bool anthropic, int status, const char *code, const char *text)
{
    if (anthropic) {
        return json_pack("{s:s, s:{s:s, s:o}, s:n}", "type", "error", "error", "type",
                         type_of(true, status), "message", oai_message(text), "request_id");
    }
    size_t n = param_of(text);
    return json_pack("{s:{s:o, s:s, s:o, s:o}}", "error", "message", oai_message(text), "type",
                     type_of(false, status), "param", n ? json_stringn(text, n) : json_null(),
                     "code", code ? json_string(code) : json_null());
}

static void count(struct oai *a, int status)
{
    int i = status < 400                     ? 0
            : status == 404                  ? 3
            : status == 429                  ? 4
            : status >= 500                  ? 5
            : status == 401 || status == 403 ? 2
                                             : 1;
    atomic_fetch_add(&a->answers[i], 1);
}

static bool anthropic(const struct web_req *r)
{
    return !strncmp(web_path(r), "/v1/messages", 12);
}

void oai_reply(struct oai *a, struct web_req *r, int status, json_t *v)
{
    char *s = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    count(a, s ? status : 500);
    if (s) {
        web_answer(r, status, "application/json", s, strlen(s));
    } else {
        web_answer(r, 500, "text/plain", "out of memory\n", 14);
    }
    free(s);
}

void oai_fail(struct oai *a, struct web_req *r, int status, const char *code, const char *text)
{
    oai_reply(a, r, status, oai_error_json(anthropic(r), status, code, text));
}

/* ---- streams ---- */

bool oai_sse(struct web_req *r, const char *event, json_t *v)
{
    char *s = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    if (!s) {
        return false;
    }
    struct buf b;
    buf_init(&b, WEB_BODY_MAX);
    int rc = event ? buf_addf(&b, "event: %s\n", event) : 0;
    rc = rc ? rc : buf_adds(&b, "data: ");
    rc = rc ? rc : buf_adds(&b, s);
    rc = rc ? rc : buf_adds(&b, "\n\n");
    bool fine = !rc && web_write(r, b.p, b.n);
    buf_free(&b);
    free(s);
    return fine;
}

bool oai_sse_comment(struct web_req *r, const char *fmt, ...)
{
    char line[300] = ": ";
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line + 2, sizeof line - 6, fmt, ap);
    va_end(ap);
    size_t at = 2 + (n < 0 ? 0 : n < (int)sizeof line - 7 ? (size_t)n : sizeof line - 7);
    memcpy(line + at, "\n\n", 3);
    return web_write(r, line, at + 2);
}

void oai_sse_waiting(struct web_req *r, const struct gen_event *ev)
{
    if (ev->type == GEN_WAIT) {
        oai_sse_comment(r, "queue: %zu before this request", ev->before);
    } else if (ev->type == GEN_STEP) {
        oai_sse_comment(r, "working: layer %zu of %zu", ev->done, ev->total);
    } else if (ev->type == GEN_PREFILL && ev->seconds > 0) {
        oai_sse_comment(r, "prefill: %zu of %zu tokens, %zu of them kept, about %.0f s left",
                        ev->done, ev->total, ev->reused, ev->seconds);
    } else if (ev->type == GEN_PREFILL) {
        oai_sse_comment(r, "prefill: %zu of %zu tokens, %zu of them kept", ev->done, ev->total,
                        ev->reused);
    }
}

json_t *oai_text(const char *s, size_t n)
{
    return json_stringn(s ? s : "", s ? n : 0);
}

/* ---- small endpoints ---- */

static json_t *model_json(struct oai *a)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:i, s:s}", "id", a->m.id, "object", "model", "created",
                     (json_int_t)a->m.created, "owned_by", "shoal", "context_length",
                     (int)a->m.positions, "system_fingerprint", a->fingerprint);
}

void oai_models(struct oai *a, struct web_req *r)
{
    const char *p = web_path(r) + strlen("/v1/models");
    if (!*p || !strcmp(p, "/")) {
        oai_reply(a, r, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(a)));
    } else if (!strcmp(p + 1, a->m.id)) {
        oai_reply(a, r, 200, model_json(a));
    } else {
        struct err e = {0};
        err_set(&e, ERR_NOTFOUND, "model: there is no `%.100s` here; this node has `%s`", p + 1,
                a->m.id);
        oai_fail_err(a, r, &e);
    }
}

static void reply_tokens(struct oai *a, struct web_req *r, const struct tok_ids *ids)
{
    json_t *l = json_array();
    for (size_t i = 0; l && i < ids->n; i++) {
        if (json_array_append_new(l, json_integer(ids->v[i]))) {
            json_decref(l);
            l = NULL;
        }
    }
    oai_reply(a, r, 200,
              l ? json_pack("{s:o, s:I}", "tokens", l, "count", (json_int_t)ids->n) : NULL);
}

void oai_tokenize(struct oai *a, struct web_req *r)
{
    struct pyjson_doc *d = NULL;
    struct err e = {0};
    struct tok_ids ids = {0};
    struct chat_prompt p;
    int rc = oai_body(r, &d, &e);
    const struct pyjson *root = rc ? NULL : pyjson_root(d);
    const struct pyjson *text = root ? pyjson_get(root, "prompt") : NULL;
    size_t n;
    const char *body = web_body(r, &n);
    rc = rc ? rc : oai_check_model(a, root, &e);
    if (!rc && text) {
        rc = text->type == PYJSON_STRING ? tok_encode(a->m.tok, text->s, text->n, false, &ids, &e)
                                         : err_set(&e, ERR_ARG, "prompt: it must be a string");
    } else if (!rc && pyjson_get(root, "messages")) {
        rc = chat_render(body, n, a->o.think, &p, &e);
        if (!rc) {
            rc = chat_prompt_ids(&p, a->m.tok, &ids, &e);
            chat_prompt_free(&p);
        }
    } else if (!rc) {
        rc = err_set(&e, ERR_ARG, "request: give `prompt` or `messages`");
    }
    if (rc) {
        oai_fail_err(a, r, &e);
    } else {
        reply_tokens(a, r, &ids);
    }
    tok_ids_free(&ids);
    pyjson_free(d);
}

static void health(struct oai *a, struct web_req *r)
{
    struct buf b;
    bool ready = atomic_load(&a->ready);
    buf_init(&b, 1 << 20);
    if (!a->o.health || a->o.health(a->o.ctx, &b, &ready)) {
        b.n = 0;
        buf_adds(&b, ready ? "{\"status\":\"ok\"}" : "{\"status\":\"loading\"}");
    }
    count(a, ready ? 200 : 503);
    web_answer(r, ready ? 200 : 503, "application/json", b.p ? b.p : "", b.n);
    buf_free(&b);
}

static void metrics(struct oai *a, struct web_req *r)
{
    struct buf b;
    buf_init(&b, 1 << 22);
    if ((a->o.metrics && a->o.metrics(a->o.ctx, &b)) || oai_metrics(a, &b)) {
        oai_fail(a, r, 500, "internal_error", "out of memory for the metrics");
    } else {
        count(a, 200);
        web_answer(r, 200, "text/plain; version=0.0.4", b.p ? b.p : "", b.n);
    }
    buf_free(&b);
}

struct sample {
    const char *name, *type, *help, *label; /* type NULL: as the one before */
    double v;
};

static int put_samples(struct buf *out, const struct sample *s, size_t n)
{
    int r = 0;
    for (size_t i = 0; i < n && !r; i++) {
        bool whole = s[i].v == (double)(uint64_t)s[i].v;
        r = s[i].type ? buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", s[i].name, s[i].help,
                                 s[i].name, s[i].type)
                      : 0;
        r = r ? r : buf_addf(out, "%s", s[i].name);
        r = !r && s[i].label ? buf_addf(out, "{%s}", s[i].label) : r;
        r = r ? r : buf_addf(out, whole ? " %.0f\n" : " %g\n", s[i].v);
    }
    return r;
}

int oai_metrics(struct oai *a, struct buf *out)
{
    static const char *const names[] = {"200", "400", "401", "404", "429", "500"};
    struct web_stats h;
    web_get_stats(a->http, &h);
    int r =
        buf_adds(out, "# HELP shoal_http_answers_total Answers by status: 401 with 403, 400 and "
                      "500 with all others of their hundred.\n"
                      "# TYPE shoal_http_answers_total counter\n");
    for (int i = 0; i < 6 && !r; i++) {
        r = buf_addf(out, "shoal_http_answers_total{status=\"%s\"} %llu\n", names[i],
                     (unsigned long long)atomic_load(&a->answers[i]));
    }
    if (!r && a->o.rests) {
        r = buf_adds(out, "# HELP shoal_basis_answers_total Answers by the weakest of what the "
                          "bytes they were computed of rest on.\n"
                          "# TYPE shoal_basis_answers_total counter\n");
        for (unsigned i = 0; i < STORE_BASES && !r; i++) {
            r = buf_addf(out, "shoal_basis_answers_total{on=\"%s\"} %llu\n",
                         store_rests_name((enum store_rests)i), atomic_load(&a->by_basis[i]));
        }
    }
    const struct sample http[] = {
        {"shoal_http_connections", "gauge", "Connections to the API.", NULL, h.connections},
        {"shoal_http_gone_total", "counter", "Answers whose client went away.", NULL,
         (double)h.gone},
        {"shoal_http_refused_total", "counter", "Connections and requests refused by a limit.",
         NULL, (double)h.refused},
    };
    r = r ? r : put_samples(out, http, sizeof http / sizeof *http);
    if (!r && atomic_load(&a->ready)) {
        struct engine_stats s;
        engine_get_stats(a->m.engine, &s);
        const struct sample engine[] = {
            {"shoal_requests_waiting", "gauge", "Requests in the queue.", NULL, (double)s.waiting},
            {"shoal_requests_running", "gauge", "Requests that are computed.", NULL,
             (double)s.running},
            {"shoal_requests_total", "counter", "Requests taken.", NULL, (double)s.requests},
            {"shoal_requests_cancelled_total", "counter", "Of these, given up by their clients.",
             NULL, (double)s.cancelled},
            {"shoal_requests_failed_total", "counter", "Of these, ended by an error.", NULL,
             (double)s.failed},
            {"shoal_prompt_tokens_total", "counter", "Tokens of prompts.", NULL,
             (double)s.prompt_tokens},
            {"shoal_prompt_tokens_kept_total", "counter",
             "Of these, not computed again because a state was kept.", NULL,
             (double)s.reused_tokens},
            {"shoal_new_tokens_total", "counter", "Tokens made.", NULL, (double)s.new_tokens},
            {"shoal_decode_passes_total", "counter", "Steps in which all requests decode.", NULL,
             (double)s.spec.passes},
            {"shoal_drafted_tokens_total", "counter", "Tokens guessed and checked in such steps.",
             NULL, (double)s.spec.drafted},
            {"shoal_accepted_tokens_total", "counter", "Of these, right ones: each saved a pass.",
             NULL, (double)s.spec.accepted},
            {"shoal_decode_tokens_per_second", "gauge", "Rate of new tokens.", NULL,
             s.decode_tok_s},
            {"shoal_kept_state_bytes", "gauge", "Kept states of conversations.", "tier=\"ram\"",
             (double)s.kept_ram_bytes},
            {"shoal_kept_state_bytes", NULL, NULL, "tier=\"disk\"", (double)s.kept_disk_bytes},
        };
        r = put_samples(out, engine, sizeof engine / sizeof *engine);
    }
    return r;
}

/* ---- routes ---- */

struct route {
    const char *method, *path;
    bool prefix, model; /* path is a beginning; it needs the model */
    void (*go)(struct oai *a, struct web_req *r);
};

static const struct route routes[] = {
    {"GET", "/health", false, false, health},
    {"GET", "/metrics", false, false, metrics},
    {"GET", "/v1/models", true, true, oai_models},
    {"POST", "/v1/chat/completions", false, true, oai_chat},
    {"POST", "/v1/completions", false, true, oai_completions},
    {"POST", "/v1/responses", false, true, oai_responses},
    {"POST", "/v1/messages", false, true, oai_messages},
    {"POST", "/v1/messages/count_tokens", false, true, oai_messages},
    {"POST", "/tokenize", false, true, oai_tokenize},
};

static bool is_path(const struct route *t, const char *path)
{
    size_t n = strlen(t->path);
    return t->prefix ? !strncmp(path, t->path, n) && (!path[n] || path[n] == '/')
                     : !strcmp(path, t->path);
}

static void handle(void *ctx, struct web_req *r)
{
    struct oai *a = ctx;
    const char *path = web_path(r), *allow = NULL;
    char text[300];
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const struct route *t = &routes[i];
        if (!is_path(t, path)) {
            continue;
        }
        if (strcmp(web_method(r), t->method) != 0 &&
            !(!strcmp(t->method, "GET") && !strcmp(web_method(r), "HEAD"))) {
            allow = t->method;
            continue;
        }
        if (t->model && !atomic_load(&a->ready)) {
            pthread_mutex_lock(&a->mu);
            snprintf(text, sizeof text, "the model is not ready yet: %s", a->loading);
            pthread_mutex_unlock(&a->mu);
            web_add_header(r, "Retry-After", "5");
            oai_fail(a, r, 503, "loading", text);
            return;
        }
        t->go(a, r);
        return;
    }
    if (allow) {
        web_add_header(r, "Allow", allow);
        snprintf(text, sizeof text, "%.100s takes %s", path, allow);
        oai_fail(a, r, 405, "method_not_allowed", text);
        return;
    }
    snprintf(text, sizeof text,
             "there is nothing at %.100s; paths are like /v1/chat/completions and /v1/messages: is "
             "/v1 missing in the client's base URL, or there twice?",
             path);
    oai_fail(a, r, 404, "unknown_url", text);
}

static void refuse(void *ctx, struct web_req *r, int status, const char *code, const char *text)
{
    oai_fail(ctx, r, status, code, text);
}

/* ---- life ---- */

int oai_open(const struct oai_opts *o, struct oai **out, struct err *e)
{
    struct oai *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a) {
        return err_set(e, ERR_NOMEM, "out of memory for the API");
    }
    pthread_mutex_init(&a->mu, NULL);
    a->o = *o;
    a->o.http.ctx = a;
    a->o.http.handle = handle;
    a->o.http.refuse = refuse;
    snprintf(a->loading, sizeof a->loading, "the node has just started");
    int r = web_open(&a->o.http, &a->http, e);
    if (r) {
        pthread_mutex_destroy(&a->mu);
        free(a);
        return r;
    }
    *out = a;
    return 0;
}

void oai_loading(struct oai *a, const char *text)
{
    pthread_mutex_lock(&a->mu);
    snprintf(a->loading, sizeof a->loading, "%s", text);
    pthread_mutex_unlock(&a->mu);
}

void oai_ready(struct oai *a, const struct oai_model *m)
{
    char root[2 * SHA256_SIZE + 1];
    a->m = *m;
    a->env = (struct gen_env){m->engine,     m->tok,     a->m.stop_ids, m->n_stop_ids, a->o.script,
                              a->o.n_script, a->o.rests, a->o.ctx,      a->by_basis};
    sha256_hex(model_root(m->m), root);
    snprintf(a->fingerprint, sizeof a->fingerprint, "fp_%.16s_n%d_bf16", root,
             SHOAL_NUMERICS_VERSION);
    atomic_store(&a->ready, true);
}

void oai_quiet(struct oai *a)
{
    web_quiet(a->http);
}

void oai_close(struct oai *a)
{
    if (a) {
        web_close(a->http);
        pthread_mutex_destroy(&a->mu);
        free(a);
    }
}

const char *oai_url(const struct oai *a)
{
    return web_url(a->http);
}
