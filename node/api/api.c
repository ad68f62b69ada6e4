/* SPDX-License-Identifier: MIT
 * api.c: see api.h. libmicrohttpd speaks HTTP; this file maps a path to an answer. */
#include "node/api/api.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define API_CONNECTIONS 32
#define API_TIMEOUT_S 30
#define API_MEMORY (32 << 10)     /* of one connection: request line and headers */
#define API_ANSWER_MAX (4u << 20) /* bytes */

struct api {
    struct node *node;
    struct MHD_Daemon *daemon;
    char url[80];
};

/* ---- the address ---- */

struct address {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } u;
    bool v6;
    char host[64];
    uint16_t port;
};

static int parse_address(const char *text, struct address *a, struct err *e)
{
    const char *from = text, *end, *colon = strrchr(text, ':');
    memset(a, 0, sizeof *a);
    if (text[0] == '[') {
        from = text + 1;
        end = strchr(text, ']');
        colon = end && end[1] == ':' ? end + 1 : NULL;
    } else {
        end = colon;
    }
    size_t n = colon ? (size_t)(end - from) : 0;
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    unsigned long port = digits && digits < 6 ? strtoul(colon + 1, NULL, 10) : 65536;
    if (!n || n >= sizeof a->host || port > UINT16_MAX || colon[1 + digits]) {
        return err_set(e, ERR_ARG, "--api %.100s: it must be HOST:PORT, such as 127.0.0.1:8080",
                       text);
    }
    memcpy(a->host, from, n);
    a->port = (uint16_t)port;
    if (!strcasecmp(a->host, "localhost")) {
        snprintf(a->host, sizeof a->host, "127.0.0.1");
    }
    bool loopback;
    if (inet_pton(AF_INET, a->host, &a->u.in.sin_addr) == 1) {
        a->u.in.sin_family = AF_INET;
        a->u.in.sin_port = htons(a->port);
        loopback = (ntohl(a->u.in.sin_addr.s_addr) >> 24) == 127;
    } else if (inet_pton(AF_INET6, a->host, &a->u.in6.sin6_addr) == 1) {
        a->v6 = true;
        a->u.in6.sin6_family = AF_INET6;
        a->u.in6.sin6_port = htons(a->port);
        loopback = IN6_IS_ADDR_LOOPBACK(&a->u.in6.sin6_addr);
    } else {
        return err_set(e, ERR_ARG, "--api %.100s: HOST must be 127.0.0.1, [::1] or localhost",
                       text);
    }
    return loopback
               ? 0
               : err_set(e, ERR_REFUSED,
                         "--api %.100s: only this machine itself is served (127.0.0.1, [::1]), "
                         "since nothing here asks who is calling",
                         text);
}

int api_check(const char *address, struct err *e)
{
    struct address a;
    return parse_address(address, &a, e);
}

/* Is the host of a Host header this machine? A missing header (HTTP/1.0) is fine. */
static bool host_ok(const char *h)
{
    char name[64];
    if (!h) {
        return true;
    }
    const char *end = h[0] == '[' ? strchr(h, ']') : strchr(h, ':');
    size_t n = end ? (size_t)(end - h) + (h[0] == '[') : strlen(h);
    if (n >= sizeof name) {
        return false;
    }
    memcpy(name, h, n);
    name[n] = 0;
    struct in_addr in;
    return !strcasecmp(name, "localhost") || !strcmp(name, "[::1]") ||
           (inet_pton(AF_INET, name, &in) == 1 && (ntohl(in.s_addr) >> 24) == 127);
}

/* ---- answers ---- */

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type, char *p,
                              size_t n)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(n, p, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(p);
        return MHD_NO;
    }
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        MHD_add_response_header(r, "Allow", "GET, HEAD");
    }
    enum MHD_Result q = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return q;
}

static enum MHD_Result answer_json(struct MHD_Connection *c, unsigned status, json_t *v)
{
    char *s = v ? json_dumps(v, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(v);
    return s ? answer(c, status, "application/json", s, strlen(s)) : MHD_NO;
}

/* In the form that clients of the OpenAI API read. */
static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *type,
                              const char *code, const char *message)
{
    return answer_json(c, status,
                       json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message", message, "type",
                                 type, "param", "code", code));
}

static enum MHD_Result health(struct api *a, struct MHD_Connection *c)
{
    struct err e = {0};
    json_t *r = NULL;
    if (node_status(a->node, &r, &e)) {
        return answer_json(c, MHD_HTTP_SERVICE_UNAVAILABLE,
                           json_pack("{s:s, s:s}", "status", "failing", "message", e.msg));
    }
    json_t *peers = json_object_get(r, "connected");
    json_t *v =
        json_pack("{s:s, s:O?, s:O?, s:O?}", "status", "ok", "node", json_object_get(r, "node"),
                  "model", json_object_get(r, "model"), "peers_connected", peers);
    json_decref(r);
    return answer_json(c, MHD_HTTP_OK, v);
}

static enum MHD_Result metrics(struct api *a, struct MHD_Connection *c)
{
    struct err e = {0};
    struct buf b;
    json_t *r = NULL;
    size_t n;
    if (node_status(a->node, &r, &e)) {
        return refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "server_error", "unavailable", e.msg);
    }
    buf_init(&b, API_ANSWER_MAX);
    int k = api_metrics(r, &b);
    json_decref(r);
    if (k) {
        buf_free(&b);
        return MHD_NO;
    }
    char *p = buf_take(&b, &n);
    return p ? answer(c, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", p, n) : MHD_NO;
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_n, void **req)
{
    struct api *a = ctx;
    (void)version;
    (void)upload;
    if (!*req) { /* first the headers alone */
        *req = a;
        return MHD_YES;
    }
    if (*upload_n) { /* a body is read and dropped, so that the answer arrives */
        *upload_n = 0;
        return MHD_YES;
    }
    if (!host_ok(MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host"))) {
        return refuse(c, MHD_HTTP_FORBIDDEN, "invalid_request_error", "host_not_allowed",
                      "only requests to this machine itself are answered");
    }
    if (!strncmp(path, "/v1/", 4)) {
        return refuse(c, MHD_HTTP_NOT_IMPLEMENTED, "server_error", "not_implemented",
                      "this version of Shoal has no OpenAI API: use shoal run");
    }
    bool is_health = !strcmp(path, "/health"), is_metrics = !strcmp(path, "/metrics");
    if (!is_health && !is_metrics) {
        return refuse(c, MHD_HTTP_NOT_FOUND, "invalid_request_error", "not_found",
                      "there are /health and /metrics");
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "invalid_request_error", "method_not_allowed",
                      "only GET and HEAD");
    }
    return is_health ? health(a, c) : metrics(a, c);
}

/* ---- life ---- */

int api_open(const char *address, struct node *n, struct api **out, struct err *e)
{
    struct address at;
    int r = parse_address(address, &at, e);
    struct api *a = r ? NULL : calloc(1, sizeof *a);
    if (r || !a) {
        return r ? r : err_set(e, ERR_NOMEM, "out of memory");
    }
    a->node = n;
    errno = 0;
    a->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | (at.v6 ? MHD_USE_IPv6 : 0), 0, NULL, NULL, on_request, a,
        MHD_OPTION_SOCK_ADDR, &at.u.sa, MHD_OPTION_CONNECTION_LIMIT, (unsigned)API_CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)API_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)API_MEMORY, MHD_OPTION_END);
    const union MHD_DaemonInfo *i =
        a->daemon ? MHD_get_daemon_info(a->daemon, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    if (!i) {
        int no = errno;
        api_close(a);
        return no == EADDRINUSE
                   ? err_set(e, ERR_BUSY, "--api %.100s: another program listens there", address)
                   : err_sys(e, no, "--api %.100s: cannot listen there", address);
    }
    snprintf(a->url, sizeof a->url, at.v6 ? "http://[%s]:%u" : "http://%s:%u", at.host,
             (unsigned)i->port);
    *out = a;
    return 0;
}

void api_close(struct api *a)
{
    if (a) {
        if (a->daemon) {
            MHD_stop_daemon(a->daemon);
        }
        free(a);
    }
}

const char *api_url(const struct api *a)
{
    return a->url;
}
