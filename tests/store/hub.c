/* SPDX-License-Identifier: MIT
 * hub.c: see hub.h. */
#include "tests/store/hub.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CONNS 64
#define HEARD_MAX ((size_t)8 << 20)

struct hub {
    struct hub_opts o;
    int fd;
    char url[128];
    pthread_t thread;
    pthread_mutex_t mu; /* what follows */
    pthread_cond_t cv;
    struct hub *cdn;
    enum hub_habit habit;
    long arg;
    int times;
    char commit[41];
    unsigned generation; /* of signatures that are still good */
    struct hub_numbers n;
    char *heard;
    size_t heard_n;
    bool stop;
    int live, conn[CONNS];
};

struct ask {
    struct hub *h;
    struct hub_conn *c;
    char path[1024], file[256], etag[160];
    bool head, range, authorized;
    uint64_t from, to, size;
    int fd;
    enum hub_habit habit;
    long arg;
};

static bool text(struct ask *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool text(struct ask *a, const char *fmt, ...)
{
    char b[2048];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(b, sizeof b, fmt, ap);
    va_end(ap);
    return hub_write(a->c, b, (size_t)n);
}

static void date(char out[64], int64_t at)
{
    time_t t = (time_t)at;
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, 64, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

static int64_t clock_of(const struct hub *h)
{
    return (int64_t)time(NULL) + h->o.clock;
}

/* Status line and the headers that all answers have. */
static bool begin(struct ask *a, const char *status)
{
    char now[64];
    date(now, clock_of(a->h));
    return text(a, "HTTP/1.1 %s\r\nDate: %s\r\nServer: test\r\n", status, now);
}

static bool stopped(struct hub *h)
{
    pthread_mutex_lock(&h->mu);
    bool r = h->stop;
    pthread_mutex_unlock(&h->mu);
    return r;
}

static bool gone(struct ask *a)
{
    char x;
    return stopped(a->h) || recv(hub_socket(a->c), &x, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

static bool body(struct ask *a, uint64_t from, uint64_t n)
{
    char *b = malloc(1 << 16);
    bool ok = true;
    while (n && ok) {
        size_t k = n < 1 << 16 ? (size_t)n : 1 << 16;
        ssize_t got = pread(a->fd, b, k, (off_t)from);
        ok = got > 0 && hub_write(a->c, b, (size_t)got);
        from += ok ? (uint64_t)got : 0;
        n -= ok ? (uint64_t)got : 0;
        pthread_mutex_lock(&a->h->mu);
        a->h->n.bodies += ok ? (uint64_t)got : 0;
        pthread_mutex_unlock(&a->h->mu);
    }
    free(b);
    return ok;
}

static bool endless(struct ask *a, const char *what, size_t n)
{
    while (!gone(a) && hub_write(a->c, what, n)) {
    }
    return false;
}

static bool error_page(struct ask *a, const char *status, const char *more)
{
    return begin(a, status) && text(a, "%sContent-Length: 5\r\n\r\n", more) &&
           (a->head || text(a, "error"));
}

/* True: this habit is a whole answer; *on: the connection may go on. */
static bool bad_answer(struct ask *a, bool *on)
{
    char more[128], when[64];
    static const char filler[] =
        "X-Filler: 0123456789012345678901234567890123456789012345678901\r\n";
    switch (a->habit) {
    case HUB_BUSY:
        snprintf(more, sizeof more, "Retry-After: %ld\r\n", a->arg);
        *on = error_page(a, "429 Too Many Requests", more);
        return true;
    case HUB_BUSY_DATE:
        date(when, clock_of(a->h) + a->arg);
        snprintf(more, sizeof more, "Retry-After: %s\r\n", when);
        *on = error_page(a, "503 Service Unavailable", more);
        return true;
    case HUB_416:
        *on = error_page(a, "416 Range Not Satisfiable", "Content-Range: bytes */1\r\n");
        return true;
    case HUB_WHOLE:
        *on = begin(a, "200 OK") &&
              text(a, "Content-Length: %llu\r\n\r\n", (unsigned long long)a->size) &&
              body(a, 0, a->size);
        return true;
    case HUB_DOWNGRADE:
        *on = begin(a, "302 Found") &&
              text(a, "Location: http://localhost:9%s\r\nContent-Length: 0\r\n\r\n", a->path);
        return true;
    case HUB_HEAD:
        if (!begin(a, "206 Partial Content")) {
            *on = false;
            return true;
        }
        for (long i = 0; a->arg < 0 || i < a->arg * 16; i++) {
            if (!hub_write(a->c, filler, sizeof filler - 1)) {
                *on = false;
                return true;
            }
        }
        *on = text(a, "Content-Length: 0\r\n\r\n");
        return true;
    case HUB_LINE:
        *on = begin(a, "206 Partial Content") && hub_write(a->c, "X-Long: ", 8);
        for (long i = 0; *on && i < a->arg * 1024 / 64; i++) {
            *on = hub_write(a->c, filler, sizeof filler - 3);
        }
        *on = *on && text(a, "\r\nContent-Length: 0\r\n\r\n");
        return true;
    case HUB_ENDLESS:
        begin(a, "206 Partial Content");
        text(a, "ETag: %s\r\nContent-Range: bytes %llu-%llu/%llu\r\n\r\n", a->etag,
             (unsigned long long)a->from, (unsigned long long)a->to, (unsigned long long)a->size);
        body(a, a->from, a->to - a->from + 1);
        *on = endless(a, filler, sizeof filler);
        return true;
    default:
        return false;
    }
}

/* The bytes themselves; true: the connection may go on. */
static bool serve(struct ask *a)
{
    bool on = false;
    if (bad_answer(a, &on)) {
        return on;
    }
    if (!a->range) {
        return begin(a, "200 OK") &&
               text(a, "ETag: %s\r\nContent-Length: %llu\r\n\r\n", a->etag,
                    (unsigned long long)a->size) &&
               (a->head || body(a, 0, a->size));
    }
    uint64_t n = a->to - a->from + 1, shift = a->habit == HUB_RANGE;
    const char *packed = a->habit == HUB_GZIP ? "Content-Encoding: gzip\r\n" : "";
    if (!begin(a, "206 Partial Content") ||
        !text(a,
              "ETag: %s\r\nContent-Range: bytes %llu-%llu/%llu\r\nContent-Length: %llu\r\n%s\r\n",
              a->etag, (unsigned long long)(a->from + shift), (unsigned long long)(a->to + shift),
              (unsigned long long)(a->size + shift), (unsigned long long)n, packed)) {
        return false;
    }
    if (a->habit == HUB_CUT && n > (uint64_t)a->arg) {
        body(a, a->from, (uint64_t)a->arg);
        return false;
    }
    if (a->habit == HUB_TRICKLE) {
        body(a, a->from, (uint64_t)a->arg < n ? (uint64_t)a->arg : n);
        for (uint64_t at = a->from + (uint64_t)a->arg; at <= a->to && !gone(a); at++) {
            body(a, at, 1);
            usleep(20000);
        }
        return false;
    }
    return body(a, a->from, n);
}

static void tag(struct ask *a, const char *base)
{
    switch (a->habit) {
    case HUB_ETAG_OTHER:
        snprintf(a->etag, sizeof a->etag, "\"%s-other\"", base);
        break;
    case HUB_ETAG_GZIP:
        snprintf(a->etag, sizeof a->etag, "\"%s-gzip\"", base);
        break;
    case HUB_ETAG_WEAK:
        snprintf(a->etag, sizeof a->etag, "W/\"%llu\"", (unsigned long long)a->from);
        break;
    default:
        snprintf(a->etag, sizeof a->etag, "\"%s\"", base);
        break;
    }
}

static bool open_file(struct ask *a)
{
    char path[2048];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", a->h->o.dir, a->file);
    a->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (a->fd < 0 || fstat(a->fd, &st) || !S_ISREG(st.st_mode)) {
        return false;
    }
    a->size = (uint64_t)st.st_size;
    if (a->range && a->to >= a->size) {
        a->to = a->size - 1;
    }
    return !a->range || a->from < a->size;
}

/* The habit of this answer, if it concerns a shard. */
static void choose(struct ask *a)
{
    struct hub *h = a->h;
    pthread_mutex_lock(&h->mu);
    if (h->times) {
        a->habit = h->habit;
        a->arg = h->arg;
        h->times -= h->times > 0;
        h->n.habits++;
    }
    pthread_mutex_unlock(&h->mu);
}

/* The file server: /file/<name>?sig=<generation>[&Expires=...] */
static bool as_cdn(struct ask *a)
{
    struct hub *h = a->h;
    unsigned sig = 0;
    const char *q = strchr(a->path, '?');
    snprintf(a->file, sizeof a->file, "%.*s", (int)strcspn(a->path + 6, "?"), a->path + 6);
    choose(a);
    pthread_mutex_lock(&h->mu);
    bool good =
        q && sscanf(q, "?sig=%u", &sig) == 1 && sig == h->generation && a->habit != HUB_EXPIRED;
    h->n.refused += !good;
    struct hub *back = h->cdn;
    pthread_mutex_unlock(&h->mu);
    if (!good) {
        return error_page(a, "403 Forbidden", "");
    }
    if (a->habit == HUB_LOOP && back) {
        return begin(a, "302 Found") &&
               text(a, "Location: %s/" HUB_REPO "/resolve/%s/%s\r\nContent-Length: 0\r\n\r\n",
                    back->url, HUB_COMMIT_A, a->file);
    }
    tag(a, "of-the-file-server");
    return open_file(a) ? serve(a) : error_page(a, "404 Not Found", "");
}

/* The hub: /org/model/resolve/<revision>/<name> */
static bool as_hub(struct ask *a)
{
    struct hub *h = a->h;
    char rev[64] = "", commit[41];
    if (h->o.token && !a->authorized) {
        return error_page(a, "401 Unauthorized", "X-Error-Code: GatedRepo\r\n");
    }
    if (sscanf(a->path, "/" HUB_REPO "/resolve/%63[^/]/%255[^?]", rev, a->file) != 2) {
        return error_page(a, "404 Not Found", "X-Error-Code: RepoNotFound\r\n");
    }
    pthread_mutex_lock(&h->mu);
    snprintf(commit, sizeof commit, "%s", h->commit);
    struct hub *cdn = h->cdn;
    h->n.resolved += strcmp(rev, "main") == 0;
    pthread_mutex_unlock(&h->mu);
    if (strcmp(rev, HUB_COMMIT_A) == 0 || strcmp(rev, HUB_COMMIT_B) == 0) {
        snprintf(commit, sizeof commit, "%s", rev);
    } else if (strcmp(rev, "main") != 0) {
        return error_page(a, "404 Not Found", "X-Error-Code: RevisionNotFound\r\n");
    }
    bool shard = strstr(a->file, ".safetensors") && !strstr(a->file, ".json");
    if (shard && cdn) {
        choose(a);
    }
    bool there = open_file(a);
    bool on;
    if (there && shard && cdn && bad_answer(a, &on)) { /* in place of a redirect */
        return on;
    }
    char more[256];
    snprintf(more, sizeof more, "X-Repo-Commit: %s\r\n", commit);
    if (!there) {
        return error_page(a, "404 Not Found", more);
    }
    snprintf(a->etag, sizeof a->etag, "\"%.100s-%.8s\"", a->file, commit);
    if (shard && !cdn) {
        return serve(a);
    }
    if (!shard) {
        static const char filler[] = "and so on and on and on and on and on and on and on ";
        pthread_mutex_lock(&h->mu);
        bool forever = h->habit == HUB_ENDLESS_FILE && h->times;
        pthread_mutex_unlock(&h->mu);
        if (forever) {
            return begin(a, "200 OK") && text(a, "\r\n") && endless(a, filler, sizeof filler - 1);
        }
        return begin(a, "200 OK") &&
               text(a, "%sETag: %s\r\nContent-Length: %llu\r\n\r\n", more, a->etag,
                    (unsigned long long)a->size) &&
               (a->head || body(a, 0, a->size));
    }
    char until[64] = "";
    if (h->o.life) {
        snprintf(until, sizeof until, "&Expires=%lld", (long long)(clock_of(h) + h->o.life));
    }
    pthread_mutex_lock(&h->mu);
    h->n.redirects++;
    pthread_mutex_unlock(&h->mu);
    pthread_mutex_lock(&cdn->mu);
    unsigned sig = cdn->generation;
    pthread_mutex_unlock(&cdn->mu);
    if (a->habit == HUB_LOOP) {
        return begin(a, "302 Found") &&
               text(a, "Location: %s%s\r\nContent-Length: 0\r\n\r\n", h->url, a->path);
    }
    return begin(a, "302 Found") &&
           text(a,
                "%sX-Linked-ETag: \"sha-of-%s%s\"\r\nX-Linked-Size: %llu\r\nLocation: "
                "%s/file/%s?sig=%u%s\r\nContent-Length: 0\r\n\r\n",
                more, a->file,
                a->habit == HUB_ETAG_OTHER  ? "-other"
                : a->habit == HUB_ETAG_GZIP ? "-gzip"
                                            : "",
                (unsigned long long)a->size, cdn->url, a->file, sig, until);
}

static bool one_request(struct hub *h, struct hub_conn *c)
{
    char b[16384];
    size_t n = 0;
    do {
        long k = n + 1 < sizeof b ? hub_read(c, b + n, sizeof b - 1 - n) : 0;
        if (k <= 0) {
            return false;
        }
        n += (size_t)k;
        b[n] = 0;
    } while (!strstr(b, "\r\n\r\n"));
    struct ask a = {.h = h, .c = c, .fd = -1, .head = strncmp(b, "HEAD ", 5) == 0};
    unsigned long long from, to;
    char *r = strcasestr(b, "\nRange: bytes="), *t = strcasestr(b, "\nAuthorization: Bearer ");
    pthread_mutex_lock(&h->mu);
    h->n.requests++;
    if (h->heard_n + n < HEARD_MAX) {
        memcpy(h->heard + h->heard_n, b, n + 1);
        h->heard_n += n;
    } else {
        abort(); /* the assertion about what was heard would be worth nothing */
    }
    pthread_mutex_unlock(&h->mu);
    if (sscanf(b, "%*s %1023s", a.path) != 1) {
        return false;
    }
    if (r && sscanf(r + 14, "%llu-%llu", &from, &to) == 2) {
        a.range = true;
        a.from = from;
        a.to = to;
    }
    if (t && h->o.token) {
        size_t k = strlen(h->o.token);
        a.authorized = strncmp(t + 23, h->o.token, k) == 0 && t[23 + k] == '\r';
    }
    bool on = strncmp(a.path, "/file/", 6) == 0 ? as_cdn(&a) : as_hub(&a);
    if (a.fd >= 0) {
        close(a.fd);
    }
    return on && !strcasestr(b, "\nConnection: close"); /* a proxy relies on that */
}

struct conn_arg {
    struct hub *h;
    int fd, slot;
};

static void *conn_main(void *arg)
{
    struct conn_arg a = *(struct conn_arg *)arg;
    free(arg);
    struct hub_conn *c = hub_conn_new(dup(a.fd), a.h->o.cert);
    while (c && one_request(a.h, c)) {
    }
    if (c) {
        hub_conn_free(c);
    }
    pthread_mutex_lock(&a.h->mu);
    shutdown(a.fd, SHUT_RDWR);
    close(a.fd);
    a.h->conn[a.slot] = -1;
    a.h->live--;
    pthread_cond_broadcast(&a.h->cv);
    pthread_mutex_unlock(&a.h->mu);
    return NULL;
}

static void *accept_main(void *arg)
{
    struct hub *h = arg;
    for (;;) {
        int fd = accept(h->fd, NULL, NULL), slot = -1;
        pthread_mutex_lock(&h->mu);
        bool stop = h->stop;
        for (int i = 0; i < CONNS && fd >= 0 && !stop && slot < 0; i++) {
            if (h->conn[i] < 0) {
                h->conn[slot = i] = fd;
                h->live++;
            }
        }
        pthread_mutex_unlock(&h->mu);
        if (slot < 0) {
            if (fd >= 0) {
                close(fd);
            }
            if (stop) {
                return NULL;
            }
            continue;
        }
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct conn_arg *a = malloc(sizeof *a);
        *a = (struct conn_arg){h, fd, slot};
        pthread_t t;
        pthread_attr_t at;
        pthread_attr_init(&at);
        pthread_attr_setdetachstate(&at, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&t, &at, conn_main, a)) {
            abort();
        }
        pthread_attr_destroy(&at);
    }
}

static socklen_t address(const char *host, int port, struct sockaddr_storage *s)
{
    memset(s, 0, sizeof *s);
    if (strchr(host, ':')) {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)s;
        a->sin6_family = AF_INET6;
        a->sin6_port = htons((uint16_t)port);
        inet_pton(AF_INET6, host, &a->sin6_addr);
        return sizeof *a;
    }
    struct sockaddr_in *a = (struct sockaddr_in *)s;
    a->sin_family = AF_INET;
    a->sin_port = htons((uint16_t)port);
    inet_pton(AF_INET, host, &a->sin_addr);
    return sizeof *a;
}

static int port_of(int fd)
{
    struct sockaddr_storage s;
    socklen_t n = sizeof s;
    if (getsockname(fd, (struct sockaddr *)&s, &n)) {
        abort();
    }
    return ntohs(s.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&s)->sin6_port
                                         : ((struct sockaddr_in *)&s)->sin_port);
}

struct hub *hub_start(const struct hub_opts *o)
{
    struct hub *h = calloc(1, sizeof *h);
    struct sockaddr_storage s;
    socklen_t n = address(o->host, 0, &s);
    h->o = *o;
    h->heard = calloc(1, HEARD_MAX);
    h->generation = 1;
    snprintf(h->commit, sizeof h->commit, "%s", HUB_COMMIT_A);
    signal(SIGPIPE, SIG_IGN);
    pthread_mutex_init(&h->mu, NULL);
    pthread_cond_init(&h->cv, NULL);
    for (int i = 0; i < CONNS; i++) {
        h->conn[i] = -1;
    }
    h->fd = socket(s.ss_family, SOCK_STREAM, 0);
    if (h->fd < 0 || bind(h->fd, (struct sockaddr *)&s, n) || listen(h->fd, 64)) {
        free(h->heard);
        free(h);
        return NULL; /* no IPv6 here */
    }
    fcntl(h->fd, F_SETFD, FD_CLOEXEC);
    const char *name = o->name ? o->name : o->host;
    snprintf(h->url, sizeof h->url, strchr(name, ':') ? "%s://[%s]:%d" : "%s://%s:%d",
             o->cert ? "https" : "http", name, port_of(h->fd));
    if (pthread_create(&h->thread, NULL, accept_main, h)) {
        abort();
    }
    return h;
}

void hub_stop(struct hub *h)
{
    pthread_mutex_lock(&h->mu);
    h->stop = true;
    for (int i = 0; i < CONNS; i++) {
        if (h->conn[i] >= 0) {
            shutdown(h->conn[i], SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&h->mu);
    struct sockaddr_storage s; /* shutdown does not end accept everywhere */
    socklen_t n = address(h->o.host, port_of(h->fd), &s);
    shutdown(h->fd, SHUT_RDWR);
    int c = socket(s.ss_family, SOCK_STREAM, 0);
    connect(c, (struct sockaddr *)&s, n);
    pthread_join(h->thread, NULL);
    close(c);
    close(h->fd);
    pthread_mutex_lock(&h->mu);
    while (h->live) {
        pthread_cond_wait(&h->cv, &h->mu);
    }
    pthread_mutex_unlock(&h->mu);
    pthread_mutex_destroy(&h->mu);
    pthread_cond_destroy(&h->cv);
    free(h->heard);
    free(h);
}

const char *hub_url(const struct hub *h)
{
    return h->url;
}

void hub_redirect_to(struct hub *h, struct hub *cdn)
{
    pthread_mutex_lock(&h->mu);
    h->cdn = cdn;
    pthread_mutex_unlock(&h->mu);
}

void hub_set(struct hub *h, enum hub_habit k, long arg, int times)
{
    pthread_mutex_lock(&h->mu);
    h->habit = k;
    h->arg = arg;
    h->times = times;
    pthread_mutex_unlock(&h->mu);
}

void hub_commit(struct hub *h, const char *commit)
{
    pthread_mutex_lock(&h->mu);
    snprintf(h->commit, sizeof h->commit, "%s", commit);
    pthread_mutex_unlock(&h->mu);
}

void hub_expire(struct hub *h)
{
    pthread_mutex_lock(&h->mu);
    h->generation++;
    pthread_mutex_unlock(&h->mu);
}

void hub_get(struct hub *h, struct hub_numbers *n)
{
    pthread_mutex_lock(&h->mu);
    *n = h->n;
    pthread_mutex_unlock(&h->mu);
}

int hub_heard(struct hub *h, const char *what)
{
    int k = 0;
    pthread_mutex_lock(&h->mu);
    for (const char *p = h->heard; (p = strstr(p, what)); p += strlen(what)) {
        k++;
    }
    pthread_mutex_unlock(&h->mu);
    return k;
}
