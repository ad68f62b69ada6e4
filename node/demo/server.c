/* SPDX-License-Identifier: MIT
 * server.c: see server.h. libmicrohttpd speaks HTTP; this file maps a path to a file and a range.
 */
#include "node/demo/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERVER_BLOCK ((size_t)64 << 10) /* bytes read from the file at a time */
#define SERVER_PATH_MAX 4096

struct demo_server {
    char *dir;
    struct MHD_Daemon *daemon;
    char url[64];
    atomic_uint_least64_t requests, ranges, errors, bytes;
};

/* What one answer sends. */
struct body {
    struct demo_server *s;
    int fd;
    uint64_t off; /* of the first byte sent, in the file */
};

/* ---- the range ---- */

/* Decimal digits to *v; false when there are none or too many. Moves *p behind them. */
static bool digits(const char **p, uint64_t *v)
{
    uint64_t x = 0;
    const char *c = *p;
    while (*c >= '0' && *c <= '9') {
        if (x > (UINT64_MAX - 9) / 10) {
            return false;
        }
        x = x * 10 + (uint64_t)(*c++ - '0');
    }
    if (c == *p) {
        return false;
    }
    *p = c;
    *v = x;
    return true;
}

enum demo_range demo_range_parse(const char *v, uint64_t size, uint64_t *off, uint64_t *n)
{
    if (strncasecmp(v, "bytes=", 6) != 0) {
        return DEMO_RANGE_NONE;
    }
    v += 6;
    uint64_t a, b;
    if (*v == '-') { /* the last b bytes */
        v++;
        if (!digits(&v, &b) || *v) {
            return DEMO_RANGE_NONE;
        }
        if (b == 0 || size == 0) {
            return DEMO_RANGE_BAD;
        }
        *n = b < size ? b : size;
        *off = size - *n;
        return DEMO_RANGE_OK;
    }
    if (!digits(&v, &a) || *v != '-') {
        return DEMO_RANGE_NONE;
    }
    v++;
    if (!*v) {
        b = UINT64_MAX;
    } else if (!digits(&v, &b) || *v || b < a) {
        return DEMO_RANGE_NONE;
    }
    if (a >= size) {
        return DEMO_RANGE_BAD;
    }
    *off = a;
    *n = (b < size - 1 ? b : size - 1) - a + 1;
    return DEMO_RANGE_OK;
}

/* ---- answers ---- */

static ssize_t body_read(void *ctx, uint64_t pos, char *p, size_t max)
{
    struct body *b = ctx;
    ssize_t k;
    do {
        k = pread(b->fd, p, max, (off_t)(b->off + pos));
    } while (k < 0 && errno == EINTR);
    if (k <= 0) { /* an error, or the file has shrunk: break the connection, never pad */
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    atomic_fetch_add(&b->s->bytes, (uint64_t)k);
    return k;
}

static void body_free(void *ctx)
{
    struct body *b = ctx;
    close(b->fd);
    free(b);
}

static enum MHD_Result answer_text(struct demo_server *s, struct MHD_Connection *c, unsigned status,
                                   const char *name, const char *value)
{
    static const char text[] = "";
    struct MHD_Response *r =
        MHD_create_response_from_buffer(0, (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
    if (!r) {
        return MHD_NO;
    }
    if (status >= 400) {
        atomic_fetch_add(&s->errors, 1);
    }
    if (name) {
        MHD_add_response_header(r, name, value);
    }
    enum MHD_Result q = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return q;
}

/* A relative path whose every segment is an ordinary name. */
static bool path_ok(const char *p)
{
    if (*p == '/') {
        p++;
    }
    if (!*p) {
        return false;
    }
    for (;;) {
        if (*p == '/' || *p == '.' || !*p) {
            return false;
        }
        const char *end = strchr(p, '/');
        if (!end) {
            return true;
        }
        p = end + 1;
    }
}

static int open_file(const struct demo_server *s, const char *url, struct stat *sb)
{
    char path[SERVER_PATH_MAX];
    if (!path_ok(url)) {
        return -1;
    }
    int k = snprintf(path, sizeof path, "%s/%s", s->dir, *url == '/' ? url + 1 : url);
    if (k < 0 || (size_t)k >= sizeof path) {
        return -1;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, sb) || !S_ISREG(sb->st_mode)) {
        close(fd);
        return -1;
    }
    return fd;
}

static enum MHD_Result answer_file(struct demo_server *s, struct MHD_Connection *c, const char *url)
{
    struct stat sb;
    int fd = open_file(s, url, &sb);
    if (fd < 0) {
        return answer_text(s, c, MHD_HTTP_NOT_FOUND, NULL, NULL);
    }
    uint64_t size = (uint64_t)sb.st_size, off = 0, n = size;
    char etag[80], value[96];
    snprintf(etag, sizeof etag, "\"%llx-%llx-%llx\"", (unsigned long long)size,
             (unsigned long long)sb.st_mtime, (unsigned long long)sb.st_ino);
    const char *match = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "If-None-Match");
    if (match && (!strcmp(match, "*") || strstr(match, etag))) {
        close(fd);
        return answer_text(s, c, MHD_HTTP_NOT_MODIFIED, "ETag", etag);
    }
    const char *range = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Range");
    const char *if_range = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "If-Range");
    enum demo_range what = DEMO_RANGE_NONE;
    if (range && (!if_range || !strcmp(if_range, etag))) {
        what = demo_range_parse(range, size, &off, &n);
    }
    if (what == DEMO_RANGE_BAD) {
        close(fd);
        snprintf(value, sizeof value, "bytes */%llu", (unsigned long long)size);
        return answer_text(s, c, MHD_HTTP_RANGE_NOT_SATISFIABLE, "Content-Range", value);
    }
    struct body *b = malloc(sizeof *b);
    if (!b) {
        close(fd);
        return MHD_NO;
    }
    *b = (struct body){s, fd, off};
    struct MHD_Response *r =
        MHD_create_response_from_callback(n, SERVER_BLOCK, body_read, b, body_free);
    if (!r) {
        body_free(b);
        return MHD_NO;
    }
    MHD_add_response_header(r, "Accept-Ranges", "bytes");
    MHD_add_response_header(r, "ETag", etag);
    MHD_add_response_header(r, "Content-Type", "application/octet-stream");
    unsigned status = MHD_HTTP_OK;
    if (what == DEMO_RANGE_OK) {
        status = MHD_HTTP_PARTIAL_CONTENT;
        snprintf(value, sizeof value, "bytes %llu-%llu/%llu", (unsigned long long)off,
                 (unsigned long long)(off + n - 1), (unsigned long long)size);
        MHD_add_response_header(r, "Content-Range", value);
        atomic_fetch_add(&s->ranges, 1);
    }
    enum MHD_Result q = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return q;
}

static enum MHD_Result handle(void *ctx, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *data_n, void **req)
{
    struct demo_server *s = ctx;
    static int seen;
    if (!*req) { /* headers are in; a body, if any, follows and is thrown away */
        *req = &seen;
        return MHD_YES;
    }
    if (*data_n) {
        *data_n = 0;
        return MHD_YES;
    }
    atomic_fetch_add(&s->requests, 1);
    if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD)) {
        return answer_text(s, c, MHD_HTTP_METHOD_NOT_ALLOWED, "Allow", "GET, HEAD");
    }
    return answer_file(s, c, url);
}

/* ---- life ---- */

int demo_server_start(const char *dir, uint16_t port, struct demo_server **out, struct err *e)
{
    struct stat sb;
    if (stat(dir, &sb)) {
        return err_sys(e, errno, "cannot serve the folder %s", dir);
    }
    if (!S_ISDIR(sb.st_mode)) {
        return err_set(e, ERR_ARG, "cannot serve %s: it is not a folder", dir);
    }
    struct demo_server *s = calloc(1, sizeof *s);
    if (!s || !(s->dir = strdup(dir))) {
        free(s);
        return err_set(e, ERR_NOMEM, "no memory for the HTTP server");
    }
    struct sockaddr_in sin;
    memset(&sin, 0, sizeof sin);
    sin.sin_family = AF_INET;
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sin.sin_port = htons(port);
    s->daemon = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL, handle,
                                 s, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&sin,
                                 MHD_OPTION_CONNECTION_TIMEOUT, 30u, MHD_OPTION_END);
    if (!s->daemon) {
        int r =
            err_sys(e, errno, "cannot start an HTTP server on 127.0.0.1 port %u", (unsigned)port);
        free(s->dir);
        free(s);
        return r;
    }
    if (port == 0) {
        const union MHD_DaemonInfo *i = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
        port = i ? i->port : 0;
    }
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%u", (unsigned)port);
    *out = s;
    return 0;
}

void demo_server_stop(struct demo_server *s)
{
    if (s) {
        MHD_stop_daemon(s->daemon);
        free(s->dir);
        free(s);
    }
}

const char *demo_server_url(const struct demo_server *s)
{
    return s->url;
}

void demo_server_get_stats(struct demo_server *s, struct demo_server_stats *out)
{
    out->requests = atomic_load(&s->requests);
    out->ranges = atomic_load(&s->ranges);
    out->errors = atomic_load(&s->errors);
    out->bytes = atomic_load(&s->bytes);
}
