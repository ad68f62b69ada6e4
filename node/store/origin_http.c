/* SPDX-License-Identifier: MIT
 * origin_http.c: the HTTP transport of origin.h: one thread, one curl multi handle, a few
 * keep-alive connections.
 *
 * Redirects are followed here and not by curl: the token goes to the origin's own host only, and
 * where a redirect led is remembered per file, so that a hub is asked once per shard and not once
 * per range; when such a (signed) address stops working the hub is asked again. */
#include "node/store/http_net.h"
#include "node/store/origin_inner.h"

#include "proto/base/clock.h"
#include "proto/base/qos.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#define CONNECTIONS 4 /* one of them is kept for demand */
#define HOPS 8
#define STALL_MS 10000
#define ERROR_BODY_MAX (64u << 10) /* bytes of an error page read to keep the connection */
#define HEAD_MAX (256u << 10)      /* bytes of all heads of one attempt */
#define TOO_LARGE 100          /* CURLE_TOO_LARGE of newer libcurl: a head beyond its own limit */
#define SLOW_BYTES (16u << 10) /* less than that in SLOW_STALLS times stall_ms is a stall, too */
#define SLOW_STALLS 3

struct xfer {
    CURL *h;
    struct curl_slist *headers;
    struct origin *o;
    struct run *run; /* NULL: free */
    char *url;
    bool via_redirect; /* not at the model's own address */
    bool was_resolved; /* ... and that came from memory */
    int hops;
    struct http_head head;
    char linked[HTTP_ETAG_MAX]; /* X-Linked-ETag of a redirect on the way */
    int64_t asked_wall;         /* the clock of the server that redirected, or ours */
    size_t head_bytes;
    bool head_large;
    bool judged, body_ok;
    enum http_verdict verdict;
    struct err err;
    uint64_t discarded;
    uint64_t last;                /* clock_ns of the last byte or of the start */
    uint64_t slow_at, slow_bytes; /* beginning of the present period, and what came in it */
    struct cap rate;              /* of this connection */
    bool paused;
    char why[CURL_ERROR_SIZE];
};

struct http {
    CURLM *m;
    struct xfer x[CONNECTIONS];
    int turn; /* who goes on first, of those that wait for the rate */
};

int http_open(struct origin *o, struct http **out, struct err *e)
{
    http_net_start();
    (void)o;
    struct http *h = calloc(1, sizeof *h);
    if (!h || !(h->m = curl_multi_init())) {
        free(h);
        return err_set(e, ERR_NOMEM, "cannot start libcurl");
    }
    curl_multi_setopt(h->m, CURLMOPT_MAXCONNECTS, 16L);
    *out = h;
    return 0;
}

void http_free(struct http *h)
{
    if (!h) {
        return;
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        if (h->x[i].h) {
            curl_easy_cleanup(h->x[i].h);
        }
        curl_slist_free_all(h->x[i].headers);
        free(h->x[i].url);
    }
    curl_multi_cleanup(h->m);
    free(h);
}

void http_wake(struct http *h)
{
    curl_multi_wakeup(h->m);
}

/* ---- addresses ---- */

static char *file_url(struct origin *o, const char *name)
{
    char *esc = curl_easy_escape(NULL, name, 0);
    size_t n = esc ? strlen(o->url) + strlen(esc) + 2 : 0;
    char *u = esc ? malloc(n) : NULL;
    if (u) {
        snprintf(u, n, "%s/%s", o->url, esc);
    }
    curl_free(esc);
    return u;
}

/* ---- curl's callbacks ---- */

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    struct xfer *x = arg;
    (void)size;
    x->head_bytes += n;
    if (x->head_bytes > HEAD_MAX) {
        x->head_large = true;
        return 0;
    }
    http_head_line(&x->head, p, n, (int64_t)time(NULL));
    return n;
}

static int stop_with(struct xfer *x, enum http_verdict v)
{
    x->judged = true;
    x->body_ok = false;
    x->verdict = v;
    return 0;
}

/* The head is complete: is the body what was asked for? */
static void judge(struct xfer *x)
{
    struct origin *o = x->o;
    struct run *r = x->run;
    if (x->judged || (x->head.status >= 300 && x->head.status < 400)) {
        return;
    }
    uint64_t total = origin_size(o, r->file);
    bool whole = r->end == ORIGIN_UNKNOWN;
    x->judged = true;
    x->verdict =
        http_judge(&x->head, r->pos, whole ? HTTP_UNKNOWN : r->end - r->pos, total, &x->err);
    x->body_ok = x->verdict == HTTP_BODY;
    if (!x->body_ok) {
        return;
    }
    if (x->head.status == 206) {
        total = x->head.total;
    } else {
        total = x->head.length;
    }
    if (x->was_resolved && !far_same(o, r->file, x->head.etag)) {
        err_set(&x->err, ERR_NET, "another file is at the address that the server redirected to");
        stop_with(x, HTTP_REFUSED);
        return;
    }
    const char *etag = *x->linked ? x->linked : x->head.etag;
    if (run_learn(o, r, total, etag, &x->err)) {
        stop_with(x, HTTP_FATAL);
    } else if (whole && total != HTTP_UNKNOWN && total > 0) {
        r->end = total;
        r->head->size = total;
    }
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
    struct xfer *x = arg;
    struct origin *o = x->o;
    (void)size;
    judge(x);
    if (!x->body_ok) {
        /* a short error page is read to its end, so that the connection can be used again; a 200
         * with a whole shard behind it is not */
        x->discarded += n;
        cap_take(&o->cap, n, clock_ns());
        bool go_on = x->head.status != 200 && x->head.status != 206;
        return go_on && x->discarded <= ERROR_BODY_MAX ? n : 0;
    }
    uint64_t now = clock_ns();
    if (cap_wait(&o->cap, now) || cap_wait(&x->rate, now)) {
        x->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    cap_take(&o->cap, n, now);
    cap_take(&x->rate, n, now);
    x->slow_bytes += n;
    x->last = now;
    struct err e = {0};
    if (run_data(o, x->run, p, n, &e)) {
        if (x->run->cut) {
            return 0;
        }
        x->err = e;
        stop_with(x, HTTP_FATAL);
        if (e.code != ERR_CANCELLED) {
            x->verdict = HTTP_REFUSED;
        }
        return 0;
    }
    return n;
}

/* ---- one attempt ---- */

/* With a cap the kernel may not take in much more than it: what lies there has been sent. */
static int on_socket(void *arg, curl_socket_t fd, curlsocktype type)
{
    struct xfer *x = arg;
    uint64_t a = x->o->o.rate_limit, b = x->o->o.rate_conn;
    uint64_t least = !a || (b && b < a) ? b : a;
    if (type == CURLSOCKTYPE_IPCXN && least) {
        int n = (int)(least / 10 < 65536 ? 65536 : least / 10 > 4u << 20 ? 4u << 20 : least / 10);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &n, sizeof n); /* without it: a larger first burst */
    }
    return CURL_SOCKOPT_OK;
}

static int prepare(struct xfer *x)
{
    struct origin *o = x->o;
    struct run *r = x->run;
    uint64_t stall = o->o.stall_ms ? o->o.stall_ms : STALL_MS;
    curl_slist_free_all(x->headers);
    x->headers = curl_slist_append(NULL, "Accept-Encoding: identity");
    if (!x->headers) {
        return ERR_NOMEM;
    }
    if (o->token && http_same_site(x->url, o->url)) {
        size_t n = strlen(o->token) + 32;
        char *line = malloc(n);
        struct curl_slist *l = NULL;
        if (line) {
            snprintf(line, n, "Authorization: Bearer %s", o->token);
            l = curl_slist_append(x->headers, line);
        }
        free(line);
        if (!l) {
            return ERR_NOMEM;
        }
    }
    if (x->h) {
        curl_easy_reset(x->h);
    } else if (!(x->h = curl_easy_init())) {
        return ERR_NOMEM;
    }
    CURL *h = x->h;
    memset(&x->head, 0, sizeof x->head);
    memset(&x->err, 0, sizeof x->err);
    x->judged = x->body_ok = x->paused = x->head_large = false;
    x->head_bytes = 0;
    x->verdict = HTTP_RETRY;
    x->discarded = 0;
    x->why[0] = 0;
    x->last = x->slow_at = clock_ns();
    x->slow_bytes = 0;
    http_net(h, o->ca_file);
    if (!o->token) {
        http_net_login(h, x->url, o->url);
    }
    curl_easy_setopt(h, CURLOPT_URL, x->url);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, x->headers);
    uint64_t piece = cap_piece(&x->rate, 1 << 14, cap_piece(&o->cap, 1 << 14, 1 << 18));
    curl_easy_setopt(h, CURLOPT_BUFFERSIZE, (long)piece);
    curl_easy_setopt(h, CURLOPT_SOCKOPTFUNCTION, on_socket);
    curl_easy_setopt(h, CURLOPT_SOCKOPTDATA, x);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)stall);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, x->why);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(h, CURLOPT_PRIVATE, x);
    pthread_mutex_lock(&o->mu);
    uint64_t floor = o->floor;
    pthread_mutex_unlock(&o->mu);
    if (floor) { /* a mirror: the next source is quicker */
        curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, (long)floor);
        curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)(stall + 999) / 1000);
    }
    if (r->end != ORIGIN_UNKNOWN) {
        char range[64];
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)r->pos,
                 (unsigned long long)(r->end - 1));
        curl_easy_setopt(h, CURLOPT_RANGE, range);
    }
    return 0;
}

static void finish(struct xfer *x, enum http_verdict v, bool host_level, uint64_t wait_ms)
{
    struct run *r = x->run;
    x->run = NULL;
    run_end(x->o, r, v, host_level, wait_ms, &x->err);
}

static void launch(struct http *h, struct xfer *x)
{
    if (!x->url || prepare(x) || curl_multi_add_handle(h->m, x->h)) {
        err_set(&x->err, ERR_NOMEM, "out of memory");
        finish(x, HTTP_FATAL, false, 0);
    }
}

static void begin(struct http *h, struct xfer *x, struct origin *o, struct run *r)
{
    x->o = o;
    x->run = r;
    x->hops = 0;
    x->linked[0] = 0;
    free(x->url);
    x->url = far_take(o, r->file, x->linked, clock_ns());
    x->via_redirect = x->was_resolved = x->url != NULL;
    if (!x->url) {
        pthread_mutex_lock(&o->mu);
        x->url = file_url(o, o->files[r->file].name);
        pthread_mutex_unlock(&o->mu);
    }
    launch(h, x);
}

/* True: the same run has been sent on to where the answer points. */
static bool redirect(struct http *h, struct xfer *x)
{
    char *to = NULL;
    curl_easy_getinfo(x->h, CURLINFO_REDIRECT_URL, &to);
    x->verdict = HTTP_REFUSED;
    if (!to) {
        err_set(&x->err, ERR_NET, "the server answers %d without saying where to go",
                x->head.status);
        return false;
    }
    bool http = strncasecmp(to, "http://", 7) == 0, https = strncasecmp(to, "https://", 8) == 0;
    if (!http && !https) {
        err_set(&x->err, ERR_NET, "the server redirects to an address that is no http(s) URL");
        return false;
    }
    if (http && strncasecmp(x->url, "https://", 8) == 0) {
        err_set(&x->err, ERR_NET, "the server redirects from https to unprotected http: refused");
        return false;
    }
    if (++x->hops > HOPS) {
        err_set(&x->err, ERR_NET, "the server redirects in a circle");
        return false;
    }
    x->asked_wall = x->head.date ? x->head.date : (int64_t)time(NULL);
    if (x->head.linked) {
        snprintf(x->linked, sizeof x->linked, "%s", x->head.etag);
    }
    char *u = strdup(to); /* `to` belongs to the handle that is reset now */
    free(x->url);
    x->url = u;
    x->via_redirect = true;
    x->was_resolved = false;
    launch(h, x);
    return true;
}

/* The request has given what is wanted of it. */
static void end_cut(struct xfer *x)
{
    if (x->body_ok && x->via_redirect && !x->was_resolved) {
        far_learn(x->o, x->run->file, x->url, x->asked_wall, x->linked, x->head.etag, clock_ns());
    }
    finish(x, HTTP_BODY, false, 0);
}

static void done(struct http *h, struct xfer *x, CURLcode rc)
{
    struct origin *o = x->o;
    struct run *r = x->run;
    curl_multi_remove_handle(h->m, x->h); /* in the middle of an answer this breaks it off */
    if (r->cut) {
        end_cut(x);
        return;
    }
    int status = x->head.status;
    bool large =
        x->head_large || (!x->judged && ((int)rc == TOO_LARGE || rc == CURLE_OUT_OF_MEMORY));
    if (large) {
        err_set(&x->err, ERR_NET,
                "the head of the server's answer is too large (more than %u KiB, "
                "or a line of more than 100)",
                HEAD_MAX >> 10);
        finish(x, HTTP_REFUSED, false, 0);
        return;
    }
    if ((rc == CURLE_OK || rc == CURLE_WRITE_ERROR) && status >= 300 && status < 400) {
        if (!redirect(h, x)) {
            finish(x, x->verdict, false, 0);
        }
        return;
    }
    if (rc == CURLE_OK || (x->judged && !x->body_ok)) {
        judge(x);
        if (!x->body_ok && x->via_redirect &&
            (status == 400 || status == 401 || status == 403 || status == 404 || status == 410)) {
            /* a signed address that is no longer good: ask the origin for a new one */
            if (x->was_resolved) {
                far_refused(o, r->file, clock_ns());
            }
            err_set(&x->err, ERR_NET,
                    "the address that the server redirects to has expired or refuses (status %d)",
                    status);
            finish(x, HTTP_REFUSED, false, x->was_resolved ? 1 : 0);
            return;
        }
        if (x->body_ok && x->via_redirect && !x->was_resolved) {
            far_learn(o, r->file, x->url, x->asked_wall, x->linked, x->head.etag, clock_ns());
        }
        if (x->body_ok && r->end != ORIGIN_UNKNOWN && r->pos < r->end) {
            err_set(&x->err, ERR_NET, "the answer ended early");
            x->verdict = HTTP_RETRY;
        }
        bool host = status == 429 || status == 503;
        finish(x, x->verdict, host, x->head.retry_after_ms);
        return;
    }
    if (x->via_redirect) { /* perhaps that host is gone */
        far_forget(o, r->file);
    }
    bool never = http_net_error(x->h, rc, x->url, x->why, &x->err);
    finish(x, never ? HTTP_FATAL : HTTP_RETRY,
           rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST ||
               rc == CURLE_COULDNT_RESOLVE_PROXY || !x->judged,
           0);
}

/* ---- the thread ---- */

/* Let those go on for which there is room, demand first, each in its turn. Returns after how many
 * ns the next may; UINT64_MAX: nobody waits. */
static uint64_t go_on(struct http *h, struct origin *o)
{
    uint64_t least = UINT64_MAX;
    h->turn = (h->turn + 1) % CONNECTIONS;
    for (int k = 0; k < 2 * CONNECTIONS; k++) {
        struct xfer *x = &h->x[(h->turn + k) % CONNECTIONS];
        if (!x->run || !x->paused || (x->run->prio != STORE_DEMAND && k < CONNECTIONS)) {
            continue;
        }
        uint64_t now = clock_ns(), a = cap_wait(&o->cap, now), b = cap_wait(&x->rate, now);
        if (!a && !b) {
            x->paused = false;
            x->last = x->slow_at = now;
            x->slow_bytes = 0;
            curl_easy_pause(x->h, CURLPAUSE_CONT); /* gives what it holds, and may pause again */
            now = clock_ns();
            a = cap_wait(&o->cap, now);
            b = cap_wait(&x->rate, now);
        }
        uint64_t wait = a > b ? a : b;
        if (x->paused && wait < least) {
            least = wait;
        }
    }
    return least;
}

/* A transfer that has given no byte for long is cut; what has come is kept. */
static void cut_stalled(struct http *h, struct origin *o, uint64_t now)
{
    uint64_t stall = (uint64_t)(o->o.stall_ms ? o->o.stall_ms : STALL_MS) * 1000000u;
    for (int i = 0; i < CONNECTIONS; i++) {
        struct xfer *x = &h->x[i];
        if (!x->run || x->paused) {
            continue;
        }
        bool silent = now > x->last + stall, trickle = false;
        if (now > x->slow_at + SLOW_STALLS * stall) {
            trickle = x->slow_bytes < SLOW_BYTES;
            if (trickle) {
                err_set(&x->err, ERR_NET, "only %llu bytes in %.1f s",
                        (unsigned long long)x->slow_bytes, (double)(now - x->slow_at) * 1e-9);
            }
            x->slow_at = now;
            x->slow_bytes = 0;
        }
        if (silent || trickle) {
            curl_multi_remove_handle(h->m, x->h);
            if (x->via_redirect) {
                far_forget(o, x->run->file);
            }
            if (silent) {
                err_set(&x->err, ERR_NET, "no bytes for %.1f s", (double)(now - x->last) * 1e-9);
            }
            finish(x, HTTP_RETRY, !x->judged, 0);
        }
    }
}

/* What others have dropped meanwhile need not be waited for. */
static void cut_dropped(struct http *h, struct origin *o)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        struct xfer *x = &h->x[i];
        if (x->run && run_cut(o, x->run)) {
            curl_multi_remove_handle(h->m, x->h);
            end_cut(x);
        }
    }
}

/* Time in which this thread was busy (hashing, writing) and could not look at the sockets is no
 * silence of the server. */
static void forgive(struct http *h, uint64_t busy)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        h->x[i].last += h->x[i].run ? busy : 0;
        h->x[i].slow_at += h->x[i].run ? busy : 0;
    }
}

/* Fill free connections; returns when to look again. */
static uint64_t fill(struct http *h, struct origin *o, uint64_t now)
{
    uint64_t wake = UINT64_MAX;
    for (;;) {
        struct xfer *slot = NULL;
        int busy = 0;
        for (int i = 0; i < CONNECTIONS; i++) {
            if (h->x[i].run) {
                busy++;
            } else if (!slot) {
                slot = &h->x[i];
            }
        }
        if (!slot) {
            return wake;
        }
        pthread_mutex_lock(&o->mu);
        struct run *r = run_take(o, now, busy >= CONNECTIONS - 1, &wake);
        pthread_mutex_unlock(&o->mu);
        if (!r) {
            return wake;
        }
        begin(h, slot, o, r);
    }
}

void *http_main(void *origin)
{
    struct origin *o = origin;
    struct http *h = o->http;
    sigset_t pipe_only; /* a connection that the other side has closed is an error, not a signal */
    qos_self(QOS_ANSWER);
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, NULL);
    for (int i = 0; i < CONNECTIONS; i++) {
        cap_init(&h->x[i].rate, o->o.rate_conn, clock_ns());
    }
    uint64_t woke = clock_ns();
    for (;;) {
        uint64_t now = clock_ns();
        pthread_mutex_lock(&o->mu);
        bool stop = o->stop;
        pthread_mutex_unlock(&o->mu);
        if (stop) {
            break;
        }
        cut_dropped(h, o);
        go_on(h, o);
        uint64_t wake = fill(h, o, now);
        int running = 0, left;
        curl_multi_perform(h->m, &running);
        CURLMsg *m;
        bool any = false;
        while ((m = curl_multi_info_read(h->m, &left))) {
            if (m->msg == CURLMSG_DONE) {
                struct xfer *x = NULL;
                curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&x);
                done(h, x, m->data.result);
                any = true;
            }
        }
        cut_stalled(h, o, now); /* after what has arrived was taken */
        origin_tick(o, now);
        if (any) {
            continue;
        }
        uint64_t ms = 250, rest = go_on(h, o);
        now = clock_ns();
        pthread_mutex_lock(&o->mu);
        wake = o->cut_after > now && o->cut_after < wake ? o->cut_after : wake;
        pthread_mutex_unlock(&o->mu);
        if (wake != UINT64_MAX) {
            uint64_t until = wake > now ? (wake - now) / 1000000u + 1 : 0;
            ms = until < ms ? until : ms;
        }
        if (rest != UINT64_MAX) {
            ms = rest / 1000000u + 1 < ms ? rest / 1000000u + 1 : ms;
        }
        forgive(h, clock_ns() - woke);
        curl_multi_poll(h->m, NULL, 0, (int)ms, NULL);
        woke = clock_ns();
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        if (h->x[i].run) {
            curl_multi_remove_handle(h->m, h->x[i].h);
            err_set(&h->x[i].err, ERR_CANCELLED, "the store is being closed");
            finish(&h->x[i], HTTP_RETRY, false, 0);
        }
    }
    return NULL;
}
