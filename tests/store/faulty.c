/* SPDX-License-Identifier: MIT
 * faulty.c: see faulty.h. */
#include "tests/store/faulty.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNS 64
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* where it is missing, the signal is ignored below */
#endif

struct faulty {
    char dir[1024], redirect[512];
    int fd, port;
    pthread_t thread;
    pthread_mutex_t mu;
    pthread_cond_t cv;
    enum fault kind;
    long arg;
    char match[128];
    uint64_t min_off;
    int times;
    unsigned slow;
    struct faulty_numbers n;
    void (*fill)(void *ctx, const char *path, uint64_t off, uint8_t *p, size_t n);
    void *fill_ctx;
    bool stop;
    int live;
    int conn[CONNS];
};

struct req {
    struct faulty *f;
    int c;
    char path[512];
    bool range, token;
    uint64_t from, to; /* inclusive */
    int fd;
    uint64_t size;
};

static bool all(int c, const void *p, size_t n)
{
    const char *b = p;
    while (n) {
        ssize_t k = send(c, b, n, MSG_NOSIGNAL);
        if (k <= 0) {
            return false;
        }
        b += k;
        n -= (size_t)k;
    }
    return true;
}

static bool headf(int c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool headf(int c, const char *fmt, ...)
{
    char b[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(b, sizeof b, fmt, ap);
    va_end(ap);
    return all(c, b, (size_t)n);
}

static bool body(struct req *r, uint64_t from, uint64_t n, bool lie)
{
    char *b = malloc(1 << 16);
    bool ok = true;
    uint64_t header = 8;
    uint8_t h[8];
    bool shard = strstr(r->path, ".safetensors") != NULL && !strstr(r->path, ".json");
    if (shard && pread(r->fd, h, 8, 0) == 8) {
        for (int i = 0; i < 8; i++) {
            header += (uint64_t)h[i] << 8 * i;
        }
    }
    while (n && ok) {
        size_t k = n < 1 << 16 ? (size_t)n : 1 << 16;
        ssize_t got = pread(r->fd, b, k, (off_t)from);
        if (got <= 0) {
            memset(b, 'x', k);
            got = (ssize_t)k;
        }
        if (r->f->fill) {
            r->f->fill(r->f->fill_ctx, r->path, from, (uint8_t *)b, (size_t)got);
        }
        if (lie) {
            b[got / 2] ^= 4;
            lie = false;
        }
        pthread_mutex_lock(&r->f->mu);
        unsigned us = r->f->slow;
        r->f->n.body_bytes += (uint64_t)got;
        if (shard && from >= header) {
            r->f->n.shard_bytes += (uint64_t)got;
        }
        pthread_mutex_unlock(&r->f->mu);
        if (us) {
            usleep(us);
        }
        ok = all(r->c, b, (size_t)got);
        from += (uint64_t)got;
        n -= (uint64_t)got;
    }
    free(b);
    return ok;
}

/* Wait until the server stops or the client goes away. */
static void silence(struct req *r)
{
    char x;
    for (;;) {
        ssize_t k = recv(r->c, &x, 1, MSG_DONTWAIT);
        pthread_mutex_lock(&r->f->mu);
        bool stop = r->f->stop;
        pthread_mutex_unlock(&r->f->mu);
        if (k == 0 || stop) {
            return;
        }
        usleep(5000);
    }
}

/* True: the connection may go on. */
static bool answer(struct req *r)
{
    struct faulty *f = r->f;
    pthread_mutex_lock(&f->mu);
    f->n.requests++;
    *(r->token ? &f->n.with_token : &f->n.without_token) += 1;
    enum fault k = F_NONE;
    long arg = f->arg;
    if (f->times && (!*f->match || strstr(r->path, f->match)) &&
        (r->range ? r->from : 0) >= f->min_off) {
        k = f->kind;
        f->times -= f->times > 0;
        f->n.faults++;
    }
    char to[1100];
    snprintf(to, sizeof to, "%s%s", f->redirect, r->path);
    pthread_mutex_unlock(&f->mu);

    if (k == F_DEAD) {
        return false;
    }
    if (k == F_GARBAGE) {
        headf(r->c, "\x01\x02 what is this\r\n\r\n");
        return false;
    }
    if (k == F_STATUS || k == F_BUSY) {
        char extra[64] = "";
        if (k == F_BUSY) {
            snprintf(extra, sizeof extra, "Retry-After: %ld\r\n", arg);
        }
        return headf(r->c, "HTTP/1.1 %ld Fault\r\n%sContent-Length: 12\r\n\r\nno such luck",
                     k == F_BUSY ? 503 : arg, extra);
    }
    if (k == F_REDIRECT) {
        return headf(r->c, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", to);
    }
    char file[2048];
    snprintf(file, sizeof file, "%s%s", f->dir, r->path);
    r->fd = open(file, O_RDONLY);
    struct stat st;
    if (r->fd < 0 || fstat(r->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return headf(r->c, "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone");
    }
    r->size = (uint64_t)st.st_size;
    char etag[80];
    snprintf(etag, sizeof etag, "\"%llx%s\"", (unsigned long long)r->size,
             k == F_ETAG ? "-other" : "");
    if (!r->range || k == F_WHOLE) {
        return headf(r->c, "HTTP/1.1 200 OK\r\nETag: %s\r\nContent-Length: %llu\r\n\r\n", etag,
                     (unsigned long long)r->size) &&
               body(r, 0, k == F_CUT ? (uint64_t)arg : r->size, false) && k != F_CUT;
    }
    if (r->from >= r->size) {
        return headf(r->c,
                     "HTTP/1.1 416 Range\r\nContent-Range: bytes */%llu\r\nContent-Length: "
                     "0\r\n\r\n",
                     (unsigned long long)r->size);
    }
    if (r->to >= r->size) {
        r->to = r->size - 1;
    }
    uint64_t from = r->from, to_ = r->to, total = r->size, n = to_ - from + 1, len = n;
    if (k == F_RANGE_OFF) {
        from += from ? -1 : 1;
        to_ += r->from ? -1 : 1;
    }
    total += k == F_TOTAL;
    if (k == F_SHORTER) {
        len = n = n > 1 ? n - 1 : n;
    }
    char cr[160];
    snprintf(cr, sizeof cr, "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)from,
             (unsigned long long)to_, (unsigned long long)total);
    if (k == F_RANGE_NONE) {
        cr[0] = 0;
    } else if (k == F_RANGE_TEXT) {
        snprintf(cr, sizeof cr, "Content-Range: pages 1-2/3\r\n");
    }
    if (!headf(r->c, "HTTP/1.1 206 Partial Content\r\nETag: %s\r\n%s%sContent-Length: %llu\r\n\r\n",
               etag, cr, k == F_ENCODED ? "Content-Encoding: gzip\r\n" : "",
               (unsigned long long)len)) {
        return false;
    }
    if (k == F_CUT || k == F_STALL) {
        body(r, from, (uint64_t)arg < n ? (uint64_t)arg : n, false);
        if (k == F_STALL) {
            silence(r);
        }
        return false;
    }
    if (!body(r, from, n, k == F_LIE)) {
        return false;
    }
    if (k == F_LONGER) {
        all(r->c, "more bytes than anybody asked for", 33);
        return false;
    }
    return true;
}

static bool one_request(struct faulty *f, int c)
{
    char b[8192];
    size_t n = 0;
    for (;;) {
        ssize_t k = recv(c, b + n, sizeof b - 1 - n, 0);
        if (k <= 0) {
            return false;
        }
        n += (size_t)k;
        b[n] = 0;
        if (strstr(b, "\r\n\r\n")) {
            break;
        }
        if (n + 1 == sizeof b) {
            return false;
        }
    }
    struct req r = {.f = f, .c = c, .fd = -1};
    if (sscanf(b, "GET %511s", r.path) != 1) {
        return false;
    }
    char *q = strcasestr(b, "\nRange: bytes=");
    unsigned long long from, to;
    if (q && sscanf(q + 14, "%llu-%llu", &from, &to) == 2) {
        r.range = true;
        r.from = from;
        r.to = to;
    }
    r.token = strcasestr(b, "\nAuthorization: Bearer secret") != NULL;
    bool on = answer(&r);
    if (r.fd >= 0) {
        close(r.fd);
    }
    return on;
}

struct conn_arg {
    struct faulty *f;
    int c, slot;
};

static void *conn_main(void *arg)
{
    struct conn_arg a = *(struct conn_arg *)arg;
    free(arg);
    while (one_request(a.f, a.c)) {
    }
    pthread_mutex_lock(&a.f->mu);
    a.f->conn[a.slot] = -1;
    close(a.c);
    a.f->live--;
    pthread_cond_broadcast(&a.f->cv);
    pthread_mutex_unlock(&a.f->mu);
    return NULL;
}

static void *accept_main(void *arg)
{
    struct faulty *f = arg;
    for (;;) {
        int c = accept(f->fd, NULL, NULL);
        pthread_mutex_lock(&f->mu);
        bool stop = f->stop;
        int slot = -1;
        for (int i = 0; i < CONNS && c >= 0 && !stop; i++) {
            if (f->conn[i] < 0) {
                f->conn[slot = i] = c;
                f->live++;
                break;
            }
        }
        pthread_mutex_unlock(&f->mu);
        if (stop || slot < 0) {
            if (c >= 0) {
                close(c);
            }
            if (stop) {
                return NULL;
            }
            continue;
        }
        int one = 1;
        setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct conn_arg *a = malloc(sizeof *a);
        *a = (struct conn_arg){f, c, slot};
        pthread_t t;
        pthread_attr_t at;
        pthread_attr_init(&at);
        pthread_attr_setdetachstate(&at, PTHREAD_CREATE_DETACHED);
        pthread_create(&t, &at, conn_main, a);
        pthread_attr_destroy(&at);
    }
}

struct faulty *faulty_start(const char *dir)
{
    struct faulty *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "%s", dir);
    signal(SIGPIPE, SIG_IGN);
    pthread_mutex_init(&f->mu, NULL);
    pthread_cond_init(&f->cv, NULL);
    for (int i = 0; i < CONNS; i++) {
        f->conn[i] = -1;
    }
    f->fd = socket(AF_INET, SOCK_STREAM, 0);
    fcntl(f->fd, F_SETFD, FD_CLOEXEC);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    if (bind(f->fd, (struct sockaddr *)&a, sizeof a) || listen(f->fd, 64) ||
        getsockname(f->fd, (struct sockaddr *)&a, &n)) {
        abort();
    }
    f->port = ntohs(a.sin_port);
    pthread_create(&f->thread, NULL, accept_main, f);
    return f;
}

int faulty_port(const struct faulty *f)
{
    return f->port;
}

void faulty_set(struct faulty *f, enum fault kind, long arg, const char *match, uint64_t min_off,
                int times)
{
    pthread_mutex_lock(&f->mu);
    f->kind = kind;
    f->arg = arg;
    snprintf(f->match, sizeof f->match, "%s", match ? match : "");
    f->min_off = min_off;
    f->times = times;
    pthread_mutex_unlock(&f->mu);
}

void faulty_redirect_to(struct faulty *f, const char *base)
{
    pthread_mutex_lock(&f->mu);
    snprintf(f->redirect, sizeof f->redirect, "%s", base);
    pthread_mutex_unlock(&f->mu);
}

void faulty_slow(struct faulty *f, unsigned us)
{
    pthread_mutex_lock(&f->mu);
    f->slow = us;
    pthread_mutex_unlock(&f->mu);
}

void faulty_fill(struct faulty *f,
                 void (*fill)(void *ctx, const char *path, uint64_t off, uint8_t *p, size_t n),
                 void *ctx)
{
    f->fill = fill;
    f->fill_ctx = ctx;
}

void faulty_get(struct faulty *f, struct faulty_numbers *n)
{
    pthread_mutex_lock(&f->mu);
    *n = f->n;
    pthread_mutex_unlock(&f->mu);
}

void faulty_zero(struct faulty *f)
{
    pthread_mutex_lock(&f->mu);
    memset(&f->n, 0, sizeof f->n);
    pthread_mutex_unlock(&f->mu);
}

void faulty_stop(struct faulty *f)
{
    pthread_mutex_lock(&f->mu);
    f->stop = true;
    for (int i = 0; i < CONNS; i++) {
        if (f->conn[i] >= 0) {
            shutdown(f->conn[i], SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&f->mu);
    shutdown(f->fd, SHUT_RDWR);
    int c = socket(AF_INET, SOCK_STREAM, 0); /* where shutdown does not end accept */
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)f->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    connect(c, (struct sockaddr *)&a, sizeof a);
    pthread_join(f->thread, NULL);
    close(c);
    close(f->fd);
    pthread_mutex_lock(&f->mu);
    while (f->live) {
        pthread_cond_wait(&f->cv, &f->mu);
    }
    pthread_mutex_unlock(&f->mu);
    pthread_mutex_destroy(&f->mu);
    pthread_cond_destroy(&f->cv);
    free(f);
}
