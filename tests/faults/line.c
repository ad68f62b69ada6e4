/* SPDX-License-Identifier: MIT
 * line.c: see line.h. */
#include "tests/faults/line.h"

#include "proto/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SO_NOSIGPIPE there */
#endif

#define FILES 64
#define CONNS 128
#define REQUESTS 65536
#define PIECE 4096         /* bytes of one turn */
#define SOCKET_BYTES 32768 /* in the kernel, on their way to a member */
#define BURST_S 0.01       /* of the rate may come at once */
#define WAKE_MS 2          /* while somebody waits for the line */

struct file {
    char name[256];
    const uint8_t *p;
    uint8_t *count; /* [members * size] */
    uint64_t size;
};

struct conn {
    int fd, member;
    char req[4096], head[512];
    size_t n, head_n, head_at;
    struct file *file; /* of the body */
    uint64_t off, left, ready_at, first, asked;
    bool answering;
};

struct request {
    uint64_t at;
    int member;
};

struct line {
    int members, listener[LINE_MEMBERS], port[LINE_MEMBERS];
    pthread_t thread;
    pthread_mutex_t mu; /* what follows */
    bool stop, cut[LINE_MEMBERS];
    struct file file[FILES];
    int n_files;
    struct conn *conn[CONNS];
    int turn;
    double rate, member_rate[LINE_MEMBERS], tokens, member_tokens[LINE_MEMBERS];
    uint64_t refilled, latency_ns, busy_said;
    unsigned retry_s;
    int busy; /* member, -1: none */
    uint64_t bytes, member_bytes[LINE_MEMBERS];
    struct request *requests;
    unsigned n_requests, rounds;
    bool log;
    uint64_t began;
};

/* ---- the folder ---- */

static void read_folder(struct line *l, const char *dir)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[1024];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        int fd = e->d_name[0] == '.' ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size) {
            assert_true(l->n_files < FILES);
            struct file *f = &l->file[l->n_files++];
            snprintf(f->name, sizeof f->name, "%s", e->d_name);
            f->size = (uint64_t)st.st_size;
            f->p = mmap(NULL, f->size, PROT_READ, MAP_SHARED, fd, 0);
            f->count = calloc(f->size, (size_t)l->members);
            assert_true(f->p != MAP_FAILED && f->count);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    closedir(d);
}

static struct file *file_of(struct line *l, const char *name)
{
    for (int i = 0; i < l->n_files; i++) {
        if (strcmp(l->file[i].name, name) == 0) {
            return &l->file[i];
        }
    }
    return NULL;
}

/* ---- connections ---- */

/* LINE_LOG=1: one line for each answer, when it ends. */
static void log_answer(const struct line *l, const struct conn *c, const char *how)
{
    if (l->log && c->file) {
        uint64_t now = clock_ns();
        fprintf(stderr, "line: %7.3f member %d %s: %s from %llu, %llu bytes since %.3f\n",
                (double)(now - l->began) / 1e9, c->member, how, c->file->name,
                (unsigned long long)c->first, (unsigned long long)(c->off - c->first),
                (double)(c->asked - l->began) / 1e9);
    }
}

static void drop(struct line *l, int i)
{
    if (l->conn[i]->answering) {
        log_answer(l, l->conn[i], "left");
    }
    close(l->conn[i]->fd);
    free(l->conn[i]);
    l->conn[i] = NULL;
}

static void take_conn(struct line *l, int member)
{
    int fd = accept(l->listener[member], NULL, NULL), one = 1, room = SOCKET_BYTES;
    for (int i = 0; i < CONNS && fd >= 0; i++) {
        if (!l->conn[i] && (l->conn[i] = calloc(1, sizeof(struct conn)))) {
            l->conn[i]->fd = fd;
            l->conn[i]->member = member;
            fcntl(fd, F_SETFL, O_NONBLOCK);
            fcntl(fd, F_SETFD, FD_CLOEXEC);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
#ifdef SO_NOSIGPIPE
            setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
            return;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void answer(struct line *l, struct conn *c, uint64_t now)
{
    char url[1024] = "";
    unsigned long long from = 0, to = 0;
    const char *range = strcasestr(c->req, "\nRange: bytes=");
    sscanf(c->req, "GET %1023s", url);
    const char *name = strrchr(url, '/');
    struct file *f = name ? file_of(l, name + 1) : NULL;
    bool part = range && sscanf(range + 14, "%llu-%llu", &from, &to) == 2;
    if (l->n_requests < REQUESTS) {
        l->requests[l->n_requests++] = (struct request){now, c->member};
    }
    c->answering = true;
    c->ready_at = now + l->latency_ns;
    c->file = NULL;
    c->left = c->head_at = 0;
    int n;
    if (f && part && l->busy == c->member && from > 8) {
        l->busy = -1;
        l->busy_said = now;
        n = snprintf(c->head, sizeof c->head,
                     "HTTP/1.1 429 Too Many Requests\r\nRetry-After: %u\r\nContent-Length: 0\r\n"
                     "\r\n",
                     l->retry_s);
    } else if (!f || (part && (from > to || from >= f->size))) {
        n = snprintf(c->head, sizeof c->head,
                     "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    } else {
        c->file = f;
        c->off = c->first = part ? from : 0;
        c->asked = now;
        c->left = part ? (to < f->size - 1 ? to : f->size - 1) - from + 1 : f->size;
        n = snprintf(c->head, sizeof c->head,
                     "HTTP/1.1 %s\r\nETag: \"%llx\"\r\nContent-Length: %llu\r\n",
                     part ? "206 Partial Content" : "200 OK", (unsigned long long)f->size,
                     (unsigned long long)c->left);
        if (part) {
            n += snprintf(c->head + n, sizeof c->head - (size_t)n,
                          "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)c->off,
                          (unsigned long long)(c->off + c->left - 1), (unsigned long long)f->size);
        }
        n += snprintf(c->head + n, sizeof c->head - (size_t)n, "\r\n");
    }
    c->head_n = (size_t)n;
}

/* False: the connection is over. */
static bool hear(struct line *l, struct conn *c, uint64_t now)
{
    ssize_t k = recv(c->fd, c->req + c->n, sizeof c->req - 1 - c->n, 0);
    if (k <= 0) {
        return k < 0 && (errno == EAGAIN || errno == EINTR);
    }
    c->n += (size_t)k;
    c->req[c->n] = 0;
    if (!c->answering && strstr(c->req, "\r\n\r\n")) {
        answer(l, c, now);
        c->n = 0; /* no pipelining */
    }
    return c->n + 1 < sizeof c->req;
}

static bool may_send(const struct line *l, const struct conn *c, uint64_t now)
{
    return c->answering && !l->cut[c->member] && now >= c->ready_at &&
           (c->head_at < c->head_n ||
            ((!(l->rate > 0) || l->tokens > 0) &&
             (!(l->member_rate[c->member] > 0) || l->member_tokens[c->member] > 0)));
}

static bool say(struct line *l, struct conn *c)
{
    bool head = c->head_at < c->head_n;
    size_t n = head ? c->head_n - c->head_at : c->left < PIECE ? (size_t)c->left : PIECE;
    const void *p = head ? (const void *)(c->head + c->head_at) : c->file->p + c->off;
    ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);
    if (k < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    if (head) {
        c->head_at += (size_t)k;
    } else {
        for (ssize_t i = 0; i < k; i++) {
            uint8_t *x =
                &c->file->count[(uint64_t)c->member * c->file->size + c->off + (uint64_t)i];
            *x = (uint8_t)(*x < 255 ? *x + 1 : 255);
        }
        c->off += (uint64_t)k;
        c->left -= (uint64_t)k;
        l->bytes += (uint64_t)k;
        l->member_bytes[c->member] += (uint64_t)k;
        l->tokens -= (double)k;
        l->member_tokens[c->member] -= (double)k;
    }
    c->answering = c->head_at < c->head_n || c->left;
    if (!c->answering) {
        log_answer(l, c, "done");
    }
    return true;
}

/* ---- the thread ---- */

static double refilled(double tokens, double rate, double s)
{
    double most = rate * BURST_S > PIECE ? rate * BURST_S : PIECE;
    tokens += rate * s;
    return tokens > most ? most : tokens;
}

static void refill(struct line *l, uint64_t now)
{
    double s = (double)(now - l->refilled) / 1e9;
    l->refilled = now;
    l->tokens = refilled(l->tokens, l->rate, s);
    for (int i = 0; i < l->members; i++) {
        l->member_tokens[i] = refilled(l->member_tokens[i], l->member_rate[i], s);
    }
}

/* With mu. What is ready, one piece each in turn, while the line has room. */
static void pieces(struct line *l, uint64_t now, const bool *writable)
{
    bool any = true;
    for (int round = 0; any && round < 16; round++) {
        any = false;
        for (int j = 0; j < CONNS; j++) {
            int i = (l->turn + j) % CONNS;
            struct conn *c = l->conn[i];
            if (c && writable[i] && may_send(l, c, now)) {
                uint64_t before = c->left + c->head_n - c->head_at;
                if (!say(l, c)) {
                    drop(l, i);
                } else {
                    any |= c->answering && c->left + c->head_n - c->head_at < before;
                    l->turn = i + 1;
                }
            }
        }
    }
}

static void *line_main(void *arg)
{
    struct line *l = arg;
    for (;;) {
        struct pollfd f[LINE_MEMBERS + CONNS];
        int who[LINE_MEMBERS + CONNS], n = 0, wait_ms = 20;
        bool writable[CONNS] = {false};
        pthread_mutex_lock(&l->mu);
        uint64_t now = clock_ns();
        refill(l, now);
        for (int i = 0; i < l->members; i++) {
            f[n] = (struct pollfd){l->listener[i], (short)(l->cut[i] ? 0 : POLLIN), 0};
            who[n++] = i;
        }
        for (int i = 0; i < CONNS; i++) {
            if (l->conn[i] && !l->cut[l->conn[i]->member]) {
                bool ready = may_send(l, l->conn[i], now);
                wait_ms = l->conn[i]->answering && !ready ? WAKE_MS : wait_ms;
                f[n] =
                    (struct pollfd){l->conn[i]->fd, (short)(ready ? POLLIN | POLLOUT : POLLIN), 0};
                who[n++] = i;
            }
        }
        bool stop = l->stop;
        pthread_mutex_unlock(&l->mu);
        if (stop) {
            return NULL;
        }
        poll(f, (nfds_t)n, wait_ms);
        pthread_mutex_lock(&l->mu);
        now = clock_ns();
        refill(l, now);
        for (int i = l->members; i < n; i++) {
            struct conn *c = l->conn[who[i]];
            if ((f[i].revents & (POLLIN | POLLHUP | POLLERR)) && !hear(l, c, now)) {
                drop(l, who[i]);
            }
            writable[who[i]] = (f[i].revents & POLLOUT) && l->conn[who[i]];
        }
        for (int i = 0; i < l->members; i++) {
            if (f[i].revents & POLLIN) {
                take_conn(l, i);
            }
        }
        pieces(l, now, writable);
        l->rounds++;
        pthread_mutex_unlock(&l->mu);
    }
}

/* ---- for the test ---- */

struct line *line_start(const char *dir, int members)
{
    struct line *l = calloc(1, sizeof *l);
    assert_non_null(l);
    assert_true(members <= LINE_MEMBERS);
    l->members = members;
    l->busy = -1;
    l->log = getenv("LINE_LOG") != NULL;
    l->requests = calloc(REQUESTS, sizeof *l->requests);
    assert_non_null(l->requests);
    read_folder(l, dir);
    for (int i = 0; i < members; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t n = sizeof a;
        int s = l->listener[i] = socket(AF_INET, SOCK_STREAM, 0);
        fcntl(s, F_SETFD, FD_CLOEXEC);
        assert_int_equal(bind(s, (struct sockaddr *)&a, n) | listen(s, 64), 0);
        assert_int_equal(getsockname(s, (struct sockaddr *)&a, &n), 0);
        l->port[i] = ntohs(a.sin_port);
    }
    l->refilled = clock_ns();
    pthread_mutex_init(&l->mu, NULL);
    assert_int_equal(pthread_create(&l->thread, NULL, line_main, l), 0);
    return l;
}

void line_stop(struct line *l)
{
    pthread_mutex_lock(&l->mu);
    l->stop = true;
    pthread_mutex_unlock(&l->mu);
    pthread_join(l->thread, NULL);
    for (int i = 0; i < CONNS; i++) {
        if (l->conn[i]) {
            drop(l, i);
        }
    }
    for (int i = 0; i < l->members; i++) {
        close(l->listener[i]);
    }
    for (int i = 0; i < l->n_files; i++) {
        munmap((void *)(uintptr_t)l->file[i].p, l->file[i].size);
        free(l->file[i].count);
    }
    pthread_mutex_destroy(&l->mu);
    free(l->requests);
    free(l);
}

int line_port(const struct line *l, int member)
{
    return l->port[member];
}

void line_rate(struct line *l, double all)
{
    pthread_mutex_lock(&l->mu);
    l->rate = all;
    l->tokens = 0;
    pthread_mutex_unlock(&l->mu);
}

void line_member_rate(struct line *l, int member, double rate)
{
    pthread_mutex_lock(&l->mu);
    l->member_rate[member] = rate;
    l->member_tokens[member] = 0;
    pthread_mutex_unlock(&l->mu);
}

void line_cut(struct line *l, int member, bool cut)
{
    pthread_mutex_lock(&l->mu);
    l->cut[member] = cut;
    pthread_mutex_unlock(&l->mu);
}

void line_latency(struct line *l, unsigned ms)
{
    pthread_mutex_lock(&l->mu);
    l->latency_ns = ms * 1000000ull;
    pthread_mutex_unlock(&l->mu);
}

void line_busy(struct line *l, int member, unsigned retry_s)
{
    pthread_mutex_lock(&l->mu);
    l->busy = member;
    l->retry_s = retry_s;
    l->busy_said = 0;
    pthread_mutex_unlock(&l->mu);
}

void line_settle(struct line *l)
{
    pthread_mutex_lock(&l->mu);
    unsigned end = l->rounds + 4; /* the present one, accept, read, and one more */
    while ((int)(end - l->rounds) > 0) {
        pthread_mutex_unlock(&l->mu);
        usleep(1000);
        pthread_mutex_lock(&l->mu);
    }
    pthread_mutex_unlock(&l->mu);
}

uint64_t line_busy_said(struct line *l)
{
    pthread_mutex_lock(&l->mu);
    uint64_t at = l->busy_said;
    pthread_mutex_unlock(&l->mu);
    return at;
}

unsigned line_requests(struct line *l, int member, uint64_t from, uint64_t to, uint64_t *first)
{
    unsigned n = 0;
    pthread_mutex_lock(&l->mu);
    for (unsigned i = 0; i < l->n_requests; i++) {
        const struct request *r = &l->requests[i];
        if (r->member == member && r->at >= from && r->at < to && ++n == 1 && first) {
            *first = r->at;
        }
    }
    pthread_mutex_unlock(&l->mu);
    return n;
}

void line_reset(struct line *l)
{
    pthread_mutex_lock(&l->mu);
    for (int i = 0; i < l->n_files; i++) {
        memset(l->file[i].count, 0, l->file[i].size * (uint64_t)l->members);
    }
    for (int i = 0; i < l->members; i++) {
        l->member_bytes[i] = 0;
        l->member_rate[i] = 0;
        l->cut[i] = false;
    }
    l->began = clock_ns();
    l->bytes = l->latency_ns = l->n_requests = 0;
    l->rate = 0;
    l->busy = -1;
    pthread_mutex_unlock(&l->mu);
}

double line_time(struct line *l)
{
    pthread_mutex_lock(&l->mu);
    double s = (double)(clock_ns() - l->began) / 1e9;
    pthread_mutex_unlock(&l->mu);
    return s;
}

uint64_t line_bytes(struct line *l)
{
    pthread_mutex_lock(&l->mu);
    uint64_t n = l->bytes;
    pthread_mutex_unlock(&l->mu);
    return n;
}

uint64_t line_member_bytes(struct line *l, int member)
{
    pthread_mutex_lock(&l->mu);
    uint64_t n = l->member_bytes[member];
    pthread_mutex_unlock(&l->mu);
    return n;
}

/* With mu. */
static unsigned given(const struct line *l, const struct file *f, uint64_t byte, unsigned who)
{
    unsigned n = 0;
    for (int m = 0; m < l->members; m++) {
        n += who >> m & 1 ? f->count[(uint64_t)m * f->size + byte] : 0u;
    }
    return n;
}

unsigned line_given(struct line *l, const char *file, uint64_t off, uint64_t n, unsigned who,
                    uint64_t *twice, uint64_t *both)
{
    unsigned most = 0;
    *twice = *both = 0;
    pthread_mutex_lock(&l->mu);
    const struct file *f = file_of(l, file);
    for (uint64_t i = off; f && i < off + n && i < f->size; i++) {
        unsigned some = given(l, f, i, who), all = given(l, f, i, ~0u);
        most = all > most ? all : most;
        *twice += all > 1 ? all - 1 : 0;
        *both += some && all > some;
    }
    pthread_mutex_unlock(&l->mu);
    return most;
}

int line_files(const struct line *l)
{
    return l->n_files;
}

const char *line_file(const struct line *l, int i, uint64_t *size)
{
    *size = l->file[i].size;
    return l->file[i].name;
}
