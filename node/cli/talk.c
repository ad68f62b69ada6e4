/* SPDX-License-Identifier: MIT
 * talk.c: see talk.h: server-sent events by libcurl. */
#include "node/cli/talk.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LINE_MAX_BYTES ((size_t)16 << 20) /* of one event */
#define TEXT_MAX ((size_t)64 << 20)       /* of an answer */
#define BODY_MAX ((size_t)1 << 20)        /* of an answer that is no stream */
#define CONNECT_S 20L
#define LOOK_MS 100 /* between two questions whether to stop */

struct turn {
    const struct talk_hooks *k;
    struct talk_answer *a;
    CURL *h;
    struct buf line; /* what has come of a line; of a body that is no stream, all */
    int code;
    struct err err;
};

int talk_server_set(struct talk_server *s, const char *url, struct err *e)
{
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') {
        n--;
    }
    if (n > 3 && !strncmp(url + n - 3, "/v1", 3)) {
        n -= 3;
    }
    if ((strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) ||
        n >= sizeof s->url) {
        return err_set(e, ERR_ARG, "--url %.100s: it must be like http://127.0.0.1:8080", url);
    }
    memcpy(s->url, url, n);
    s->url[n] = 0;
    return 0;
}

/* ---- what comes ---- */

static int fail(struct turn *t, int code, const char *text)
{
    t->code = err_set(&t->err, code, "%s", text);
    return -1;
}

/* The sentence of an error in the form of the API, or NULL. */
static const char *sentence(const json_t *v)
{
    const json_t *e = json_object_get(v, "error");
    const char *s = json_string_value(json_object_get(e, "message"));
    return s ? s : json_string_value(e);
}

static int take_text(struct turn *t, const json_t *delta, const char *name, struct buf *to,
                     void (*tell)(void *ctx, const char *text, size_t n))
{
    const json_t *v = json_object_get(delta, name);
    size_t n = json_string_length(v);
    if (!n) {
        return 0;
    }
    if (buf_add(to, json_string_value(v), n)) {
        return fail(t, ERR_LIMIT, "the answer is too long");
    }
    if (tell) {
        tell(t->k->ctx, json_string_value(v), n);
    }
    return 0;
}

static int take_event(struct turn *t, const char *p, size_t n)
{
    struct talk_answer *a = t->a;
    if (n == 6 && !memcmp(p, "[DONE]", 6)) {
        a->done = true;
        return 0;
    }
    json_t *v = json_loadb(p, n, JSON_ALLOW_NUL, NULL);
    const char *wrong = sentence(v);
    const json_t *c = json_array_get(json_object_get(v, "choices"), 0);
    const json_t *delta = json_object_get(c, "delta"), *usage = json_object_get(v, "usage");
    const char *finish = json_string_value(json_object_get(c, "finish_reason"));
    int r = !v      ? fail(t, ERR_FORMAT, "the server sent an event that is no JSON")
            : wrong ? fail(t, ERR_IO, wrong)
                    : 0;
    r = r ? r : take_text(t, delta, "reasoning_content", &a->reasoning, t->k->reasoning);
    r = r ? r : take_text(t, delta, "content", &a->content, t->k->content);
    if (!r && finish) {
        snprintf(a->finish, sizeof a->finish, "%s", finish);
    }
    if (!r && json_is_object(usage)) {
        json_decref(a->usage);
        a->usage = json_incref((json_t *)usage);
    }
    json_decref(v);
    return r;
}

static int take_line(struct turn *t, const char *p, size_t n)
{
    if (n && p[n - 1] == '\r') {
        n--;
    }
    if (n > 1 && p[0] == ':') {
        char words[200];
        size_t skip = 1 + (p[1] == ' ');
        snprintf(words, sizeof words, "%.*s", (int)(n - skip < 190 ? n - skip : 190), p + skip);
        if (t->k->waiting) {
            t->k->waiting(t->k->ctx, words);
        }
        return 0;
    }
    if (n < 5 || memcmp(p, "data:", 5) != 0) {
        return 0; /* the name of an event, or the blank behind one */
    }
    size_t skip = 5 + (n > 5 && p[5] == ' ');
    return take_event(t, p + skip, n - skip);
}

static size_t on_bytes(char *p, size_t size, size_t n, void *ctx)
{
    struct turn *t = ctx;
    long status = 0;
    size_t all = size * n;
    curl_easy_getinfo(t->h, CURLINFO_RESPONSE_CODE, &status);
    if (buf_add(&t->line, p, all)) {
        fail(t, ERR_LIMIT, "the server's answer is too long");
        return 0;
    }
    if (status != 200) {
        return all; /* its sentence is read at the end */
    }
    size_t at = 0;
    for (char *nl; (nl = memchr(t->line.p + at, '\n', t->line.n - at));) {
        size_t len = (size_t)(nl - (t->line.p + at));
        if (take_line(t, t->line.p + at, len)) {
            return 0;
        }
        at += len + 1;
    }
    memmove(t->line.p, t->line.p + at, t->line.n - at);
    t->line.n -= at;
    return all;
}

/* ---- sending ---- */

static int open_handle(const struct talk_server *s, const char *path, struct curl_slist **list,
                       CURL **out, struct err *e)
{
    char url[600], head[700];
    CURL *h = curl_easy_init();
    *out = h;
    *list = NULL;
    if (!h) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    snprintf(url, sizeof url, "%s%s", s->url, path);
    *list = curl_slist_append(NULL, "Content-Type: application/json");
    if (s->key) {
        if (strlen(s->key) > 600) {
            return err_set(e, ERR_LIMIT, "the API key is too long");
        }
        snprintf(head, sizeof head, "Authorization: Bearer %s", s->key);
        struct curl_slist *l = curl_slist_append(*list, head);
        *list = l ? l : *list;
    }
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, *list);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_NOPROXY, s->direct ? "*" : "localhost,127.0.0.1,::1");
    return 0;
}

static int http_error(struct turn *t, const struct talk_server *s, long status, struct err *e)
{
    json_t *v = json_loadb(t->line.p ? t->line.p : "", t->line.n, 0, NULL);
    const char *said = sentence(v);
    int code = status == 401 || status == 403 ? ERR_REFUSED
               : status == 429                ? ERR_BUSY
               : status == 404                ? ERR_NOTFOUND
               : status == 503                ? ERR_OFFLINE
                                              : ERR_IO;
    /* what helps here, where the sentence is for the writer of a program */
    const char *hint =
        status == 401
            ? (s->key ? "; the key was taken from the environment variable SHOAL_API_KEY"
                      : "; shoal chat takes it from the environment variable SHOAL_API_KEY")
            : "";
    int r = said ? err_set(e, code, "%.400s%s", said, hint)
                 : err_set(e, code, "%s answered with HTTP status %ld%s", s->url, status, hint);
    json_decref(v);
    return r;
}

static bool stopped(const struct turn *t)
{
    return t->k->stop && t->k->stop(t->k->ctx);
}

/* Run the handle until it ends or `stop` says so. */
static int perform(struct turn *t, const struct talk_server *s, struct err *e)
{
    CURLM *m = curl_multi_init();
    int r = 0, running = 1, left;
    CURLcode result = CURLE_OK;
    if (!m || curl_multi_add_handle(m, t->h)) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    while (!r && running) {
        if (curl_multi_perform(m, &running)) {
            r = err_set(e, ERR_IO, "the connection to %s failed", s->url);
        } else if (running && stopped(t)) {
            r = err_set(e, ERR_CANCELLED, "stopped");
        } else if (running) {
            curl_multi_poll(m, NULL, 0, LOOK_MS, NULL);
        }
    }
    for (CURLMsg *x; m && (x = curl_multi_info_read(m, &left));) {
        result = x->msg == CURLMSG_DONE ? x->data.result : result;
    }
    if (m) {
        curl_multi_remove_handle(m, t->h); /* closes the connection of an answer given up */
        curl_multi_cleanup(m);
    }
    if (!r && t->code) {
        *e = t->err;
        r = t->code;
    } else if (!r && result) {
        bool none = result == CURLE_COULDNT_CONNECT || result == CURLE_COULDNT_RESOLVE_HOST;
        r = err_set(e, ERR_IO, "%s: %s%s", s->url, curl_easy_strerror(result),
                    none ? "; does shoal serve, or shoal up --api, run there?" : "");
    }
    return r;
}

int talk_ask(const struct talk_server *s, json_t *request, const struct talk_hooks *k,
             struct talk_answer *a, struct err *e)
{
    struct turn t = {.k = k, .a = a};
    struct curl_slist *list = NULL;
    long status = 0;
    memset(a, 0, sizeof *a);
    buf_init(&a->content, TEXT_MAX);
    buf_init(&a->reasoning, TEXT_MAX);
    buf_init(&t.line, LINE_MAX_BYTES);
    json_object_set_new(request, "stream", json_true());
    json_object_set_new(request, "stream_options", json_pack("{s:b}", "include_usage", 1));
    char *body = json_dumps(request, JSON_COMPACT);
    int r = open_handle(s, "/v1/chat/completions", &list, &t.h, e);
    if (!r && !body) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    if (!r) {
        curl_easy_setopt(t.h, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(t.h, CURLOPT_WRITEFUNCTION, on_bytes);
        curl_easy_setopt(t.h, CURLOPT_WRITEDATA, &t);
        r = perform(&t, s, e);
        curl_easy_getinfo(t.h, CURLINFO_RESPONSE_CODE, &status);
    }
    if (!r && status != 200) {
        r = http_error(&t, s, status, e);
    } else if (!r && !a->done) {
        r = err_set(e, ERR_IO, "%s ended in the middle of an answer", s->url);
    }
    curl_slist_free_all(list);
    curl_easy_cleanup(t.h);
    buf_free(&t.line);
    free(body);
    return r;
}

void talk_free(struct talk_answer *a)
{
    buf_free(&a->content);
    buf_free(&a->reasoning);
    json_decref(a->usage);
    a->usage = NULL;
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    return buf_add(ctx, p, size * n) ? 0 : size * n;
}

int talk_model(const struct talk_server *s, char *name, size_t cap, struct err *e)
{
    struct turn t = {.k = &(const struct talk_hooks){.ctx = NULL}};
    struct curl_slist *list = NULL;
    long status = 0;
    buf_init(&t.line, BODY_MAX);
    int r = open_handle(s, "/v1/models", &list, &t.h, e);
    if (!r) {
        curl_easy_setopt(t.h, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(t.h, CURLOPT_WRITEDATA, &t.line);
        curl_easy_setopt(t.h, CURLOPT_TIMEOUT, CONNECT_S);
        r = perform(&t, s, e);
        curl_easy_getinfo(t.h, CURLINFO_RESPONSE_CODE, &status);
    }
    if (!r && status == 404) { /* every such API has this list */
        r = err_set(e, ERR_NOTFOUND,
                    "%s answers, but has no API at %s/v1: --url takes the address alone, such as "
                    "http://127.0.0.1:8080",
                    s->url, s->url);
    } else if (!r && status != 200) {
        r = http_error(&t, s, status, e);
    } else if (!r) {
        json_t *v = json_loadb(t.line.p ? t.line.p : "", t.line.n, 0, NULL);
        const char *id =
            json_string_value(json_object_get(json_array_get(json_object_get(v, "data"), 0), "id"));
        if (!id || strlen(id) >= cap) {
            r = err_set(e, ERR_FORMAT, "%s names no model: give --model-name", s->url);
        } else {
            snprintf(name, cap, "%s", id);
        }
        json_decref(v);
    }
    curl_slist_free_all(list);
    curl_easy_cleanup(t.h);
    buf_free(&t.line);
    return r;
}
