/* SPDX-License-Identifier: MIT
 * control.c: the owner's side of the control socket. See control.h.
 *
 * One thread polls the socket, a pipe that wakes it, and the clients. What other threads share with
 * it (the clients' outgoing bytes and the numbers) is under `mu`; descriptors and incoming bytes
 * are the thread's alone. */
#include "node/daemon/control.h"

#include "proto/base/buf.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define READ_SIZE 65536
#define MS_NS 1000000ull
#define OUT_MAX (2 * (size_t)CONTROL_ANSWER_MAX)

struct client {
    uint64_t id; /* 0: free */
    int fd;
    struct buf in;
    uint64_t in_since; /* clock_ns when the present unfinished line began; 0: there is none */
    /* with mu */
    char *out;
    size_t out_at, out_n, out_cap;
    uint64_t out_since; /* when bytes began to wait, or the last were taken */
    uint32_t pending;
    bool broken;
};

struct control {
    struct control_ops ops;
    int fd, wake[2];
    char path[CONTROL_PATH_MAX];
    pthread_t thread;
    bool threaded;
    uint64_t stuck_ns, next_id;
    struct client c[CONTROL_CLIENTS_MAX];
    pthread_mutex_t mu;
    bool stopping; /* with mu */
    struct control_stats st;
};

long control_send(int fd, const void *p, size_t n)
{
#ifdef MSG_NOSIGNAL
    return (long)send(fd, p, n, MSG_NOSIGNAL);
#else
    return (long)send(fd, p, n, 0);
#endif
}

static void wake_up(struct control *c)
{
    char b = 0;
    /* A full pipe wakes it as well. */
    ssize_t n = write(c->wake[1], &b, 1);
    (void)n;
}

/* ---- answers ---- */

/* With mu. */
static void out_add(struct client *k, const char *s, size_t n)
{
    if (k->broken || n > OUT_MAX - (k->out_n - k->out_at)) {
        k->broken = true; /* it does not take its answers */
        return;
    }
    if (k->out_at == k->out_n) {
        k->out_at = k->out_n = 0;
        k->out_since = clock_ns();
    } else if (k->out_n + n > k->out_cap && k->out_at) {
        memmove(k->out, k->out + k->out_at, k->out_n - k->out_at);
        k->out_n -= k->out_at;
        k->out_at = 0;
    }
    if (k->out_n + n > k->out_cap) {
        size_t cap = k->out_n + n + 4096;
        char *p = realloc(k->out, cap);
        if (!p) {
            k->broken = true;
            return;
        }
        k->out = p;
        k->out_cap = cap;
    }
    memcpy(k->out + k->out_n, s, n);
    k->out_n += n;
}

static struct client *find(struct control *c, uint64_t id)
{
    for (size_t i = 0; id && i < CONTROL_CLIENTS_MAX; i++) {
        if (c->c[i].id == id) {
            return &c->c[i];
        }
    }
    return NULL;
}

static json_t *error_json(int code, const char *text)
{
    /* A sentence may quote bytes that are no UTF-8. */
    json_t *t = json_string(text);
    t = t ? t : json_string(err_text(code));
    return json_pack("{s:{s:i,s:o}}", "error", "code", code, "message", t);
}

void control_answer(struct control *c, const struct control_to *to, json_t *answer)
{
    size_t n = 0;
    char *s = NULL;
    if (!answer) {
        answer = error_json(ERR_NOMEM, "no memory for the answer");
    }
    if (to->has_seq && json_object_set_new(answer, "seq", json_integer(to->seq))) {
        json_decref(answer);
        answer = NULL;
    }
    s = answer ? control_line(answer, &n) : NULL;
    json_decref(answer);
    if (!s) {
        answer = error_json(ERR_LIMIT, "the answer is too large");
        json_object_set_new(answer, "seq", json_integer(to->seq));
        s = control_line(answer, &n);
        json_decref(answer);
    }
    pthread_mutex_lock(&c->mu);
    struct client *k = c->stopping ? NULL : find(c, to->client);
    if (k) {
        k->pending -= k->pending > 0;
        if (s) {
            out_add(k, s, n);
        } else {
            k->broken = true;
        }
        wake_up(c);
    }
    pthread_mutex_unlock(&c->mu);
    free(s);
}

void control_tell(struct control *c, uint64_t client, const json_t *line)
{
    size_t n = 0;
    char *s = control_line(line, &n);
    pthread_mutex_lock(&c->mu);
    struct client *k = c->stopping ? NULL : find(c, client);
    if (k && s) {
        out_add(k, s, n);
        wake_up(c);
    }
    pthread_mutex_unlock(&c->mu);
    free(s);
}

void control_fail(struct control *c, const struct control_to *to, int code, const struct err *e)
{
    control_answer(c, to, error_json(code, e && *e->msg ? e->msg : err_text(code)));
}

/* ---- clients ---- */

static void drop(struct control *c, struct client *k)
{
    uint64_t id = k->id;
    close(k->fd);
    buf_free(&k->in);
    pthread_mutex_lock(&c->mu);
    free(k->out);
    memset(k, 0, sizeof *k);
    k->fd = -1;
    c->st.connected--;
    pthread_mutex_unlock(&c->mu);
    if (c->ops.gone) {
        c->ops.gone(c->ops.ctx, id);
    }
}

static void turn_away(struct control *c, int fd, int code, const char *text)
{
    size_t n = 0;
    json_t *j = error_json(code, text);
    char *s = j ? control_line(j, &n) : NULL;
    if (s && control_send(fd, s, n) < 0) {
        errno = 0; /* it would not have read it either */
    }
    free(s);
    json_decref(j);
    close(fd);
    pthread_mutex_lock(&c->mu);
    c->st.refused++;
    pthread_mutex_unlock(&c->mu);
}

static void accept_one(struct control *c)
{
    unsigned uid;
    struct client *k = NULL;
    int fd = accept(c->fd, NULL, NULL);
    if (fd < 0) {
        return;
    }
    if (control_tame(fd)) {
        close(fd);
        return;
    }
    if (control_peer_uid(fd, &uid) || (uid != 0 && uid != (unsigned)geteuid())) {
        turn_away(c, fd, ERR_REFUSED, "this node belongs to another user");
        return;
    }
    for (size_t i = 0; !k && i < CONTROL_CLIENTS_MAX; i++) {
        k = c->c[i].id ? NULL : &c->c[i];
    }
    if (!k) {
        turn_away(c, fd, ERR_BUSY, "too many processes talk to this node already");
        return;
    }
    pthread_mutex_lock(&c->mu);
    k->id = ++c->next_id;
    k->fd = fd;
    buf_init(&k->in, CONTROL_LINE_MAX);
    c->st.clients++;
    c->st.connected++;
    pthread_mutex_unlock(&c->mu);
}

static void take_line(struct control *c, struct client *k, const char *line, size_t n)
{
    struct control_to to = {.client = k->id};
    struct err e = {0};
    json_t *req = NULL;
    if (n && line[n - 1] == '\r') {
        n--;
    }
    if (!n) {
        return;
    }
    int r = control_parse(line, n, &req, &e);
    const json_t *seq = json_object_get(req, "seq");
    to.has_seq = seq != NULL;
    to.seq = json_integer_value(seq);
    pthread_mutex_lock(&c->mu);
    c->st.requests++;
    c->st.malformed += r != 0;
    if (!r && k->pending >= CONTROL_PENDING_MAX) {
        r = err_set(&e, ERR_LIMIT, "%u requests of this process are under way: wait for answers",
                    k->pending);
    }
    k->pending++;
    pthread_mutex_unlock(&c->mu);
    if (r) {
        control_fail(c, &to, r, &e);
        json_decref(req);
    } else {
        c->ops.request(c->ops.ctx, &to, req);
    }
}

/* All whole lines. False: the client is over. */
static bool take_lines(struct control *c, struct client *k)
{
    size_t at = 0;
    for (;;) {
        char *nl = memchr(k->in.p + at, '\n', k->in.n - at);
        if (!nl) {
            break;
        }
        size_t n = (size_t)(nl - (k->in.p + at));
        take_line(c, k, k->in.p + at, n);
        at += n + 1;
    }
    memmove(k->in.p, k->in.p + at, k->in.n - at);
    k->in.n -= at;
    if (at) {
        k->in_since = 0;
    }
    if (!k->in.n) {
        buf_free(&k->in); /* a long line's memory is not kept */
        buf_init(&k->in, CONTROL_LINE_MAX);
    } else if (!k->in_since) {
        k->in_since = clock_ns();
    }
    return k->in.n < CONTROL_LINE_MAX;
}

static bool read_some(struct control *c, struct client *k)
{
    char b[READ_SIZE];
    ssize_t n = recv(k->fd, b, sizeof b, 0);
    if (n < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    }
    if (n == 0) {
        return false;
    }
    size_t room = CONTROL_LINE_MAX - k->in.n;
    if ((size_t)n > room) { /* more than a line's length without an end is over in any case */
        bool ends = memchr(b, '\n', room) != NULL;
        if (!ends || buf_add(&k->in, b, room) || !take_lines(c, k)) {
            return false;
        }
        return !buf_add(&k->in, b + room, (size_t)n - room) && take_lines(c, k);
    }
    return !buf_add(&k->in, b, (size_t)n) && take_lines(c, k);
}

static bool write_some(struct control *c, struct client *k)
{
    bool fine = true;
    pthread_mutex_lock(&c->mu);
    if (k->out_at < k->out_n) {
        long n = control_send(k->fd, k->out + k->out_at, k->out_n - k->out_at);
        if (n > 0) {
            k->out_at += (size_t)n;
            k->out_since = clock_ns();
        } else {
            fine = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        }
        if (k->out_at == k->out_n && k->out_cap > READ_SIZE) {
            free(k->out);
            k->out = NULL;
            k->out_at = k->out_n = k->out_cap = 0;
        }
    }
    pthread_mutex_unlock(&c->mu);
    return fine;
}

/* ---- the thread ---- */

/* What to poll a client for; -1: it is over. */
static int wants(struct control *c, struct client *k, uint64_t now)
{
    pthread_mutex_lock(&c->mu);
    size_t waiting = k->out_n - k->out_at;
    bool over = k->broken || (waiting && now > k->out_since + c->stuck_ns) ||
                (k->in_since && now > k->in_since + c->stuck_ns);
    pthread_mutex_unlock(&c->mu);
    return over ? -1 : (waiting ? POLLOUT : 0) | (waiting < CONTROL_BACKLOG ? POLLIN : 0);
}

static void count_drop(struct control *c)
{
    pthread_mutex_lock(&c->mu);
    c->st.dropped++;
    pthread_mutex_unlock(&c->mu);
}

static void drain_wakes(struct control *c)
{
    char b[256];
    while (read(c->wake[0], b, sizeof b) > 0) {
    }
}

static bool stopping(struct control *c)
{
    pthread_mutex_lock(&c->mu);
    bool r = c->stopping;
    pthread_mutex_unlock(&c->mu);
    return r;
}

/* One round of poll. */
static void turn(struct control *c)
{
    struct pollfd p[CONTROL_CLIENTS_MAX + 2];
    struct client *who[CONTROL_CLIENTS_MAX + 2];
    nfds_t n = 0;
    uint64_t now = clock_ns();
    p[n++] = (struct pollfd){.fd = c->wake[0], .events = POLLIN};
    p[n++] = (struct pollfd){.fd = c->fd, .events = POLLIN};
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        struct client *k = &c->c[i];
        int ev = k->id ? wants(c, k, now) : 0;
        if (ev < 0) {
            count_drop(c);
            drop(c, k);
        } else if (k->id) {
            who[n] = k;
            p[n++] = (struct pollfd){.fd = k->fd, .events = (short)ev};
        }
    }
    int ms = (int)(c->stuck_ns / MS_NS / 4);
    if (poll(p, n, ms < 10 ? 10 : ms > 1000 ? 1000 : ms) <= 0) {
        return;
    }
    if (p[0].revents) {
        drain_wakes(c);
    }
    for (nfds_t i = 2; i < n; i++) {
        struct client *k = who[i];
        bool fine = true;
        if (p[i].revents & POLLOUT) {
            fine = write_some(c, k);
        }
        if (fine && (p[i].revents & POLLIN)) {
            fine = read_some(c, k);
            fine = write_some(c, k) && fine; /* what was answered at once */
        } else if (p[i].revents & (POLLHUP | POLLERR | POLLNVAL)) {
            fine = false;
        }
        if (!fine) {
            drop(c, k);
        }
    }
    if (p[1].revents) {
        accept_one(c);
    }
}

static void *thread_main(void *ctx)
{
    struct control *c = ctx;
    while (!stopping(c)) {
        turn(c);
    }
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        if (c->c[i].id) {
            write_some(c, &c->c[i]);
            drop(c, &c->c[i]);
        }
    }
    return NULL;
}

/* ---- life ---- */

static int listen_at(struct control *c, struct err *e)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    size_t n = strlen(c->path);
    if (n >= sizeof sa.sun_path) {
        return err_set(e, ERR_LIMIT, "the path %s is too long for a socket", c->path);
    }
    memcpy(sa.sun_path, c->path, n + 1);
    if (c->fd >= 0) {
        close(c->fd);
    }
    c->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (c->fd < 0 || control_tame(c->fd)) {
        return err_sys(e, errno, "cannot make a socket");
    }
    unlink(c->path); /* of a dead owner: the lock is ours */
    if (bind(c->fd, (struct sockaddr *)&sa, sizeof sa) || chmod(c->path, 0600) ||
        listen(c->fd, 64)) {
        return err_sys(e, errno, "cannot listen at %s", c->path);
    }
    return 0;
}

int control_open(const char *home, const struct control_ops *ops, struct control **out,
                 struct err *e)
{
    struct control *c = calloc(1, sizeof *c);
    struct err e1 = {0};
    *out = NULL;
    if (!c) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    c->ops = *ops;
    c->fd = c->wake[0] = c->wake[1] = -1;
    c->stuck_ns = (ops->stuck_ms ? ops->stuck_ms : CONTROL_STUCK_MS) * MS_NS;
    if (pthread_mutex_init(&c->mu, NULL)) {
        free(c);
        return err_set(e, ERR_NOMEM, "cannot make a lock");
    }
    int r = pipe(c->wake) || control_tame(c->wake[0]) || control_tame(c->wake[1])
                ? err_sys(e, errno, "cannot make a pipe")
                : 0;
    r = r ? r : control_path_make(home, false, c->path, e);
    if (!r && listen_at(c, &e1)) { /* a volume without sockets */
        r = control_path_make(home, true, c->path, e);
        r = r ? r : listen_at(c, e);
    }
    *out = c; /* a request may come before this returns */
    if (!r && pthread_create(&c->thread, NULL, thread_main, c)) {
        r = err_set(e, ERR_NOMEM, "cannot start the thread of the control socket");
    }
    c->threaded = !r;
    if (r) {
        *out = NULL;
        control_free(c);
    }
    return r;
}

void control_stop(struct control *c)
{
    if (!c || !c->threaded) {
        return;
    }
    pthread_mutex_lock(&c->mu);
    c->stopping = true;
    pthread_mutex_unlock(&c->mu);
    wake_up(c);
    pthread_join(c->thread, NULL);
    c->threaded = false;
    unlink(c->path);
}

void control_free(struct control *c)
{
    if (!c) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (c->wake[i] >= 0) {
            close(c->wake[i]);
        }
    }
    if (c->fd >= 0) {
        close(c->fd);
    }
    pthread_mutex_destroy(&c->mu);
    free(c);
}

void control_get_stats(struct control *c, struct control_stats *out)
{
    pthread_mutex_lock(&c->mu);
    *out = c->st;
    pthread_mutex_unlock(&c->mu);
}
