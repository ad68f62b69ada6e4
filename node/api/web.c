/* SPDX-License-Identifier: MIT
 * web.c: see web.h.
 *
 * libmicrohttpd reads and writes on its own threads. While an answer is awaited the connection is
 * suspended, and then the library does not see its client go: so a thread of ours looks at the
 * sockets of all requests under way. A client that has closed its sending half counts as gone: no
 * client of these interfaces does so while it wants an answer. */
#include "node/api/web_int.h"
#include "node/api/web_rules.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct web_req *req_new(struct web *h, struct MHD_Connection *c, const char *path,
                               const char *method)
{
    struct web_req *r = calloc(1, sizeof *r);
    if (!r) {
        return NULL;
    }
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    r->fd = i ? i->connect_fd : -1;
    i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    r->conn = i ? i->socket_context : NULL;
    i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (i && i->client_addr) {
        getnameinfo(i->client_addr,
                    i->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                          : sizeof(struct sockaddr_in),
                    r->client, sizeof r->client, NULL, 0, NI_NUMERICHOST);
    }
    r->h = h;
    r->c = c;
    atomic_init(&r->refs, 1);
    snprintf(r->method, sizeof r->method, "%s", method);
    snprintf(r->path, sizeof r->path, "%s", path);
    buf_init(&r->body, WEB_BODY_MAX);
    buf_init(&r->out, WEB_BODY_MAX);
    pthread_mutex_init(&r->mu, NULL);
    pthread_mutex_init(&r->gone_mu, NULL);
    pthread_mutex_lock(&h->mu);
    r->next = h->list;
    if (r->next) {
        r->next->prev = r;
    }
    h->list = r;
    pthread_cond_signal(&h->cond);
    pthread_mutex_unlock(&h->mu);
    atomic_fetch_add(&h->requests, 1);
    return r;
}

/* ---- requests ---- */

static void refuse_with(struct web_req *r, int status, const char *code, const char *text)
{
    r->refuse = status;
    r->refuse_code = code;
    r->refuse_text = text;
}

struct framing {
    unsigned hosts, lengths, encodings;
    bool odd;
};

static enum MHD_Result see_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    struct framing *f = cls;
    (void)kind;
    f->hosts += !strcasecmp(name, "Host");
    f->lengths += !strcasecmp(name, "Content-Length");
    if (!strcasecmp(name, "Transfer-Encoding")) {
        f->encodings++;
        f->odd = f->odd || !value || strcasecmp(value, "chunked") != 0;
    }
    return MHD_YES;
}

/* Where the body ends must not be a matter of opinion: somebody between might have another. */
static bool framing_fine(const struct web_req *r)
{
    struct framing f = {0};
    MHD_get_connection_values(r->c, MHD_HEADER_KIND, see_header, &f);
    return f.hosts <= 1 && f.lengths + f.encodings <= 1 && !f.odd;
}

/* What can be told from the headers alone. */
static void check_headers(struct web_req *r)
{
    struct web *h = r->h;
    const char *why = NULL;
    if (!framing_fine(r)) {
        refuse_with(r, 400, "bad_headers",
                    "of Host, Content-Length and Transfer-Encoding there must be one of each kind "
                    "at most, not the last two together, and no encoding but chunked");
    } else if (atomic_load(&h->quiet)) {
        refuse_with(r, 503, "stopping", "the node is stopping");
    } else if (!web_host_fine(web_header(r, "Host"), h->key != NULL)) {
        refuse_with(r, 403, "host_not_allowed",
                    "the Host header names no address of this machine; start the node with an API "
                    "key to be reached under other names");
    } else if (!web_origin_fine(web_header(r, "Origin"), h->cors)) {
        refuse_with(r, 403, "origin_not_allowed",
                    "requests of web pages are refused; allow the page's origin with --cors");
    } else if (strcmp(r->method, "OPTIONS") != 0 &&
               !web_key_fine(h->key, web_header(r, "Authorization"), web_header(r, "x-api-key"),
                             &why)) {
        refuse_with(r, 401, "invalid_api_key", why);
    } else if (!web_length_fine(web_header(r, "Content-Length"), WEB_BODY_MAX)) {
        refuse_with(r, 413, "request_too_large", "the body is larger than 64 MiB");
    }
}

static void take_body(struct web_req *r, const char *p, size_t n)
{
    struct web *h = r->h;
    if (r->refuse) {
        r->thrown += n;
        return;
    }
    pthread_mutex_lock(&h->mu);
    bool room = h->bodies + n <= WEB_BODIES_MAX;
    if (room) {
        h->bodies += n;
        r->counted += n;
    }
    pthread_mutex_unlock(&h->mu);
    if (!room) {
        refuse_with(r, 503, "overloaded", "too many large requests at once; try again");
    } else if (buf_add(&r->body, p, n)) {
        refuse_with(r, 413, "request_too_large", "the body is larger than 64 MiB");
    }
}

/* The library takes its answer's lock before ours when it reads a stream, so ours is not held here;
 * what an answer begins with is fixed once there is one. */
static enum MHD_Result queue_once(struct web_req *r)
{
    pthread_mutex_lock(&r->mu);
    bool first = !r->queued;
    r->queued = true;
    pthread_mutex_unlock(&r->mu);
    return first ? web_queue(r) : MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n, void **con)
{
    struct web *h = cls;
    struct web_req *r = *con;
    (void)version;
    if (!r) {
        *con = r = req_new(h, c, url, method);
        if (!r) {
            return MHD_NO;
        }
        web_conn_at(r, WEB_BODY, 0);
        check_headers(r);
        if (r->refuse == 400 || r->refuse == 413 ||
            r->refuse == 401) { /* do not wait for what is not wanted */
            r->handled = true;
            web_conn_at(r, WEB_ANSWER, 0);
            web_dispatch(r, 1);
            return queue_once(r);
        }
        return MHD_YES;
    }
    if (*n) {
        web_conn_at(r, WEB_BODY, *n);
        take_body(r, data, *n);
        *n = 0;
        return r->thrown > WEB_BODY_MAX ? MHD_NO : MHD_YES;
    }
    if (!r->handled) {
        r->handled = true;
        web_conn_at(r, WEB_ANSWER, 0);
        if (web_work_take(r)) {
            return MHD_YES;
        }
        web_dispatch(r, 1);
    }
    pthread_mutex_lock(&r->mu);
    bool none = r->answer == NONE;
    if (none) {
        r->suspended = true;
        MHD_suspend_connection(c);
    }
    pthread_mutex_unlock(&r->mu);
    return none ? MHD_YES : queue_once(r);
}

static void on_completed(void *cls, struct MHD_Connection *c, void **con,
                         enum MHD_RequestTerminationCode why)
{
    struct web *h = cls;
    struct web_req *r = *con;
    (void)c;
    if (!r) {
        return;
    }
    *con = NULL;
    web_conn_at(r, WEB_HEAD, 0);
    if (why != MHD_REQUEST_TERMINATED_COMPLETED_OK) {
        web_lose(r);
    }
    pthread_mutex_lock(&r->mu);
    r->over = true;
    pthread_mutex_unlock(&r->mu);
    pthread_mutex_lock(&h->mu);
    if (r->prev) {
        r->prev->next = r->next;
    } else {
        h->list = r->next;
    }
    if (r->next) {
        r->next->prev = r->prev;
    }
    pthread_mutex_unlock(&h->mu);
    web_release(r);
}

/* ---- clients that go ---- */

static bool is_gone(int fd)
{
    char c;
#ifdef POLLRDHUP /* sees the end behind bytes that nobody has read yet */
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) == 1) {
        return true;
    }
#endif
    ssize_t n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static void look(struct web *h)
{
    struct web_req *gone[64];
    size_t n = 0;
    pthread_mutex_lock(&h->mu);
    for (struct web_req *r = h->list; r && n < 64; r = r->next) {
        pthread_mutex_lock(&r->mu);
        /* only while it is suspended: else the library looks itself, and fd may be another's */
        bool watch = r->suspended && !r->over && !r->lost && !r->ended;
        if (watch && is_gone(r->fd)) {
            web_hold(r);
            gone[n++] = r;
        }
        pthread_mutex_unlock(&r->mu);
    }
    pthread_mutex_unlock(&h->mu);
    for (size_t i = 0; i < n; i++) {
        web_lose(gone[i]);
        web_release(gone[i]);
    }
}

static void *watch_main(void *arg)
{
    struct web *h = arg;
    pthread_mutex_lock(&h->mu);
    while (!h->stop) {
        if (!h->conns && !h->list) {
            pthread_cond_wait(&h->cond, &h->mu);
            continue;
        }
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += (h->list ? WEB_WATCH_MS : WEB_LIMITS_MS) * 1000000l;
        t.tv_sec += t.tv_nsec / 1000000000;
        t.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&h->cond, &h->mu, &t);
        web_conn_look(h);
        pthread_mutex_unlock(&h->mu);
        look(h);
        pthread_mutex_lock(&h->mu);
    }
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

/* ---- what a request says ---- */

const char *web_method(const struct web_req *r)
{
    return r->method;
}

const char *web_path(const struct web_req *r)
{
    return r->path;
}

const char *web_header(const struct web_req *r, const char *name)
{
    return MHD_lookup_connection_value(r->c, MHD_HEADER_KIND, name);
}

const char *web_body(const struct web_req *r, size_t *n)
{
    *n = r->body.n;
    return r->body.p ? r->body.p : "";
}

const char *web_client(const struct web_req *r)
{
    return r->client;
}

/* ---- life ---- */

static int resolve(const struct web_opts *o, struct sockaddr_storage *sa, struct err *e)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM},
                    *ai;
    char port[8];
    const char *host = !strcmp(o->host, "localhost") ? "127.0.0.1" : o->host;
    snprintf(port, sizeof port, "%d", o->port);
    if (getaddrinfo(host, port, &hints, &ai)) {
        return err_set(e, ERR_ARG, "%s is no numeric address to listen on", o->host);
    }
    memcpy(sa, ai->ai_addr, ai->ai_addrlen);
    freeaddrinfo(ai);
    if (!o->key && !web_loopback(sa)) {
        return err_set(e, ERR_REFUSED,
                       "%s can be reached from other machines: give an API key (--api-key-file) to "
                       "listen there, or listen on 127.0.0.1",
                       o->host);
    }
    return 0;
}

/* "All addresses" is none that a client can open: its URL names the loopback. */
static void make_url(struct web *h, const struct sockaddr_storage *sa)
{
    const union MHD_DaemonInfo *i = MHD_get_daemon_info(h->d, MHD_DAEMON_INFO_BIND_PORT);
    struct sockaddr_in in4;
    struct sockaddr_in6 in6;
    memcpy(&in4, sa, sizeof in4);
    memcpy(&in6, sa, sizeof in6);
    bool six = sa->ss_family == AF_INET6;
    bool all = six ? IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr) : in4.sin_addr.s_addr == 0;
    const char *host = all                               ? (six ? "::1" : "127.0.0.1")
                       : !strcmp(h->o.host, "localhost") ? "127.0.0.1"
                                                         : h->o.host;
    snprintf(h->url, sizeof h->url, "http://%s%s%s:%u", six ? "[" : "", host, six ? "]" : "",
             i ? (unsigned)i->port : 0);
}

static int cannot_listen(const char *host, int port, int no, struct err *e)
{
    return no == EADDRINUSE
               ? err_set(e, ERR_BUSY,
                         "the API cannot listen on %s port %d: another program has this port", host,
                         port)
               : err_sys(e, no, "the API cannot listen on %s port %d", host, port);
}

/* As the library binds: the address may be in use by connections that end, and [::] is not IPv4. */
int web_may_listen(const char *host, int port, struct err *e)
{
    struct web_opts o = {.host = host, .port = port, .key = ""};
    struct sockaddr_storage sa;
    int on = 1, r = port ? resolve(&o, &sa, e) : 0;
    if (r || !port) {
        return r;
    }
    bool six = sa.ss_family == AF_INET6;
    int fd = socket(sa.ss_family, SOCK_STREAM, 0);
    if (fd < 0) {
        return cannot_listen(host, port, errno, e);
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (six) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    if (bind(fd, (struct sockaddr *)&sa,
             six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)) ||
        listen(fd, 1)) {
        r = cannot_listen(host, port, errno, e);
    }
    close(fd);
    return r;
}

int web_open(const struct web_opts *o, struct web **out, struct err *e)
{
    struct sockaddr_storage sa;
    *out = NULL;
    int r = resolve(o, &sa, e);
    struct web *h = r ? NULL : calloc(1, sizeof *h);
    if (r) {
        return r;
    }
    if (!h || (o->key && !(h->key = strdup(o->key))) || (o->cors && !(h->cors = strdup(o->cors)))) {
        if (h) {
            free(h->key);
            free(h);
        }
        return err_set(e, ERR_NOMEM, "out of memory for the API");
    }
    h->o = *o;
    h->o.head_ms = o->head_ms ? o->head_ms : (WEB_IDLE_S + WEB_HEAD_S) * 1000;
    h->o.body_ms = o->body_ms ? o->body_ms : WEB_BODY_S * 1000;
    pthread_mutex_init(&h->mu, NULL);
    pthread_cond_init(&h->cond, NULL);
    pthread_cond_init(&h->done, NULL);
    /* poll, not epoll: with that the library (0.9.75) at times misses that suspended clients went,
     * and keeps their descriptors until they time out */
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    flags |= sa.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    errno = 0;
    /* a request may come at once: it waits in req_new until all is set */
    pthread_mutex_lock(&h->mu);
    h->d = MHD_start_daemon(
        flags, (uint16_t)o->port, NULL, NULL, on_request, h, MHD_OPTION_SOCK_ADDR, &sa,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, web_conn_notice,
        h, MHD_OPTION_CONNECTION_LIMIT, o->connections ? o->connections : WEB_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, WEB_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        WEB_HEADER_MAX + 2 * WEB_BLOCK, MHD_OPTION_END);
    if (!h->d) {
        r = cannot_listen(o->host, o->port, errno ? errno : EADDRINUSE, e);
    } else {
        make_url(h, &sa);
        int t = pthread_create(&h->watcher, NULL, watch_main, h);
        r = t ? err_sys(e, t, "cannot start a thread for the API") : 0;
        h->watching = !t;
        r = r ? r : web_work_start(h, e);
    }
    *out = r ? NULL : h;
    atomic_store(&h->quiet, r != 0);
    pthread_mutex_unlock(&h->mu);
    if (r) {
        web_close(h);
    }
    return r;
}

void web_quiet(struct web *h)
{
    pthread_mutex_lock(&h->mu);
    atomic_store(&h->quiet, true);
    while (h->handling) {
        pthread_cond_wait(&h->done, &h->mu);
    }
    pthread_mutex_unlock(&h->mu);
}

void web_close(struct web *h)
{
    if (!h) {
        return;
    }
    atomic_store(&h->quiet, true);
    pthread_mutex_lock(&h->mu);
    h->stop = true;
    pthread_cond_broadcast(&h->cond);
    pthread_mutex_unlock(&h->mu);
    if (h->watching) {
        pthread_join(h->watcher, NULL);
    }
    web_work_stop(h);
    if (h->d) {
        MHD_stop_daemon(h->d);
    }
    pthread_cond_destroy(&h->cond);
    pthread_cond_destroy(&h->done);
    pthread_mutex_destroy(&h->mu);
    free(h->key);
    free(h->cors);
    free(h);
}

const char *web_url(const struct web *h)
{
    return h->url;
}

void web_get_stats(struct web *h, struct web_stats *out)
{
    const union MHD_DaemonInfo *i = MHD_get_daemon_info(h->d, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    *out = (struct web_stats){atomic_load(&h->requests), atomic_load(&h->refused),
                              atomic_load(&h->gone), atomic_load(&h->bytes_out),
                              i ? i->num_connections : 0};
}
