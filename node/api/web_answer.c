/* SPDX-License-Identifier: MIT
 * web_answer.c: web.h: the life of a request, and its answer, whole or as a stream that is pulled
 * by the library and suspended while there is nothing. */
#include "node/api/web_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void web_hold(struct web_req *r)
{
    atomic_fetch_add(&r->refs, 1);
}

void web_release(struct web_req *r)
{
    if (atomic_fetch_sub(&r->refs, 1) != 1) {
        return;
    }
    struct web *h = r->h;
    pthread_mutex_lock(&h->mu);
    h->bodies -= r->counted;
    pthread_mutex_unlock(&h->mu);
    for (size_t i = 0; i < r->n_added; i++) {
        free(r->added[i].name);
        free(r->added[i].value);
    }
    buf_free(&r->body);
    buf_free(&r->out);
    pthread_mutex_destroy(&r->mu);
    pthread_mutex_destroy(&r->gone_mu);
    free(r);
}

void web_lose(struct web_req *r)
{
    pthread_mutex_lock(&r->gone_mu);
    pthread_mutex_lock(&r->mu);
    void (*f)(void *) = r->lost || r->ended ? NULL : r->on_gone;
    void *ctx = r->gone_ctx;
    bool first = !r->lost && !r->ended;
    r->lost = r->lost || first;
    pthread_mutex_unlock(&r->mu);
    if (first) {
        atomic_fetch_add(&r->h->gone, 1);
    }
    if (f) {
        f(ctx);
    }
    pthread_mutex_unlock(&r->gone_mu);
}

void web_on_gone(struct web_req *r, void (*gone)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&r->gone_mu);
    pthread_mutex_lock(&r->mu);
    bool now = r->lost && gone;
    r->on_gone = gone;
    r->gone_ctx = ctx;
    pthread_mutex_unlock(&r->mu);
    if (now) {
        gone(ctx);
    }
    pthread_mutex_unlock(&r->gone_mu);
}

/* With r->mu: let the library go on with the connection. */
static void wake(struct web_req *r)
{
    if (r->suspended && !r->over) {
        r->suspended = false;
        MHD_resume_connection(r->c);
    }
}

/* ---- answers ---- */

void web_add_header(struct web_req *r, const char *name, const char *value)
{
    pthread_mutex_lock(&r->mu);
    if (r->n_added < WEB_ADDED_MAX) {
        char *n = strdup(name), *v = strdup(value);
        if (n && v) {
            r->added[r->n_added].name = n;
            r->added[r->n_added++].value = v;
        } else {
            free(n);
            free(v);
        }
    }
    pthread_mutex_unlock(&r->mu);
}

void web_answer(struct web_req *r, int status, const char *type, const void *p, size_t n)
{
    pthread_mutex_lock(&r->mu);
    if (r->answer == NONE) {
        r->answer = WHOLE;
        r->status = status;
        snprintf(r->type, sizeof r->type, "%s", type);
        if (buf_add(&r->out, p, n)) {
            r->status = 500;
        }
        r->ended = true;
        wake(r);
    }
    pthread_mutex_unlock(&r->mu);
}

void web_stream(struct web_req *r, int status, const char *type)
{
    pthread_mutex_lock(&r->mu);
    if (r->answer == NONE) {
        r->answer = STREAM;
        r->status = status;
        snprintf(r->type, sizeof r->type, "%s", type);
        wake(r);
    }
    pthread_mutex_unlock(&r->mu);
}

bool web_write(struct web_req *r, const void *p, size_t n)
{
    bool slow = false;
    pthread_mutex_lock(&r->mu);
    bool fine = r->answer == STREAM && !r->ended && !r->lost;
    if (fine) {
        if (r->out_at && (r->out_at == r->out.n || r->out_at >= WEB_STREAM_MAX)) {
            /* what was read leaves, also when its reader is always a little behind */
            memmove(r->out.p, r->out.p + r->out_at, r->out.n - r->out_at);
            r->out.n -= r->out_at;
            r->out_at = 0;
        }
        slow = r->out.n - r->out_at + n > WEB_STREAM_MAX;
        fine = !slow && buf_add(&r->out, p, n) == 0;
        wake(r);
    }
    pthread_mutex_unlock(&r->mu);
    if (slow) {
        web_lose(r);
        pthread_mutex_lock(&r->mu);
        wake(r); /* to be ended */
        pthread_mutex_unlock(&r->mu);
    }
    return fine;
}

void web_end(struct web_req *r)
{
    pthread_mutex_lock(&r->mu);
    r->ended = true;
    wake(r);
    pthread_mutex_unlock(&r->mu);
}

static ssize_t pull(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct web_req *r = cls;
    ssize_t n = 0;
    (void)pos;
    pthread_mutex_lock(&r->mu);
    size_t have = r->out.n - r->out_at;
    if (have) {
        n = (ssize_t)(have < max ? have : max);
        memcpy(buf, r->out.p + r->out_at, (size_t)n);
        r->out_at += (size_t)n;
        atomic_fetch_add(&r->h->bytes_out, (uint64_t)n);
    } else if (r->lost) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (r->ended) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        r->suspended = true;
        MHD_suspend_connection(r->c);
    }
    pthread_mutex_unlock(&r->mu);
    return n;
}

static void pull_done(void *cls)
{
    web_release(cls);
}

enum MHD_Result web_queue(struct web_req *r)
{
    struct MHD_Response *m;
    const char *cors = r->h->cors;
    if (r->answer == STREAM) {
        web_hold(r);
        m = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, WEB_BLOCK, pull, r, pull_done);
        if (!m) {
            web_release(r);
        }
    } else {
        m = MHD_create_response_from_buffer(r->out.n, r->out.n ? r->out.p : "",
                                            MHD_RESPMEM_MUST_COPY);
        atomic_fetch_add(&r->h->bytes_out, r->out.n);
    }
    if (!m) {
        return MHD_NO;
    }
    MHD_add_response_header(m, MHD_HTTP_HEADER_CONTENT_TYPE, r->type);
    MHD_add_response_header(m, "X-Content-Type-Options", "nosniff");
    if (r->answer == STREAM) {
        MHD_add_response_header(m, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
        MHD_add_response_header(m, "X-Accel-Buffering", "no");
    }
    if (cors) {
        MHD_add_response_header(m, "Access-Control-Allow-Origin", cors);
        MHD_add_response_header(m, "Vary", "Origin");
        MHD_add_response_header(m, "Access-Control-Allow-Headers",
                                "authorization, content-type, x-api-key, anthropic-version");
        MHD_add_response_header(m, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        MHD_add_response_header(m, "Access-Control-Expose-Headers", "X-Shoal-Basis");
    }
    for (size_t i = 0; i < r->n_added; i++) {
        MHD_add_response_header(m, r->added[i].name, r->added[i].value);
    }
    enum MHD_Result rc = MHD_queue_response(r->c, (unsigned)r->status, m);
    MHD_destroy_response(m);
    return rc;
}
