/* SPDX-License-Identifier: MIT
 * guest.c: the side of a process that found the home owned: what its store lacks, it asks of the
 * owner, who brings it to the disk that both read. See node_int.h and guests.c.
 *
 * Callbacks of the store leave notes and wake the thread, which owns everything else: the
 * connection, what was asked, what waits to be asked. Without an owner (none, a dead one, one that
 * works on something else) requests end at once with ERR_OFFLINE and the store goes to its own
 * origin; an owner is looked for again at a request, RETRY_NS after the last try at the soonest. */
#include "node/daemon/node_int.h"

#include "node/store/used.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RETRY_NS (1000 * MS_NS)
#define OTHER_NS (10000 * MS_NS) /* after an owner that works on something else */
#define HELLO_NS (3000 * MS_NS)
#define SILENT_NS (20000 * MS_NS) /* then it is asked whether it lives */
#define DEAD_NS (30000 * MS_NS)
#define ASKED_MAX 1024 /* requests under way at the owner */
#define OUT_MAX (1u << 20)
#define SEQ_SHIFT 24 /* "seq" of a fetch: a counter above, the object below */

enum want_state { W_NONE, W_WAITING, W_ASKED };

struct gwant { /* of an object */
    uint8_t state, prio;
    bool cancelled;
    uint64_t seq;
};

enum { N_FETCH = 1, N_RAISE = 2, N_CANCEL = 4 };
struct gnote { /* of an object: what the store has said since the thread last looked */
    uint8_t flags, prio;
    uint32_t next; /* in the list of those with flags: index + 1 */
};

struct line { /* of wants that wait; what was answered or raised since is passed over */
    uint32_t *v;
    size_t at, n, cap;
};

enum conn { C_NONE, C_HELLO, C_UP };

struct guest {
    struct node *n;
    struct store *st;
    pthread_t thread;
    bool threaded;
    int wake[2];

    pthread_mutex_t mu;
    struct gnote *notes;        /* one for each object */
    uint32_t noted, noted_last; /* index + 1 of the first and last with flags */
    int computing_by;
    bool stop;

    /* the thread's */
    struct gwant *w;
    uint32_t n_objects;
    struct line line[3];
    size_t asked, open; /* open: wants that are not W_NONE */
    enum conn conn;
    int fd, computing;
    uint64_t counter, retry_at, hello_at, heard_at;
    bool pinged;
    struct buf in, out;
    char said[200]; /* the last line about the owner, so that it is said once */
};

static void wake_up(struct guest *g)
{
    char b = 0;
    ssize_t n = write(g->wake[1], &b, 1); /* a full pipe wakes it as well */
    (void)n;
}

static void note(struct guest *g, uint32_t id, uint8_t what, uint8_t prio)
{
    pthread_mutex_lock(&g->mu);
    struct gnote *x = &g->notes[id];
    if (!x->flags) {
        *(g->noted ? &g->notes[g->noted_last - 1].next : &g->noted) = id + 1;
        g->noted_last = id + 1;
        x->next = 0;
    }
    if (what == N_FETCH) { /* what came before belongs to a request that is over */
        x->flags = N_FETCH;
        x->prio = prio;
    } else {
        x->prio = what == N_RAISE && (!x->flags || prio < x->prio) ? prio : x->prio;
        x->flags |= what;
    }
    pthread_mutex_unlock(&g->mu);
    wake_up(g);
}

static void up_fetch(void *ctx, uint32_t id, enum store_prio prio)
{
    note(ctx, id, N_FETCH, (uint8_t)prio);
}

static void up_raise(void *ctx, uint32_t id, enum store_prio prio)
{
    note(ctx, id, N_RAISE, (uint8_t)prio);
}

static void up_cancel(void *ctx, uint32_t id)
{
    note(ctx, id, N_CANCEL, 0);
}

void guest_computing(struct guest *g, int by)
{
    pthread_mutex_lock(&g->mu);
    g->computing_by += by;
    pthread_mutex_unlock(&g->mu);
    wake_up(g);
}

static void say_once(struct guest *g, const char *line)
{
    if (strcmp(g->said, line) != 0) {
        snprintf(g->said, sizeof g->said, "%s", line);
        node_log(g->n, "%s", line);
    }
}

/* ---- what becomes of a want ---- */

static void finish(struct guest *g, uint32_t id, const struct store_upstream_result *r)
{
    struct gwant *w = &g->w[id];
    g->asked -= w->state == W_ASKED;
    g->open--;
    w->state = W_NONE; /* what stands in a queue is passed over */
    store_upstream_done(g->st, id, r);
}

static void offline(struct guest *g, uint32_t id)
{
    struct err e = {0};
    err_set(&e, ERR_OFFLINE, "no node runs in %s that could be asked", g->n->home);
    struct store_upstream_result r = {.code = e.code, .err = &e};
    finish(g, id, &r);
}

static void all_offline(struct guest *g)
{
    for (uint32_t i = 0; g->open && i < g->n_objects; i++) {
        if (g->w[i].state != W_NONE) {
            offline(g, i);
        }
    }
    for (int p = 0; p < 3; p++) {
        g->line[p].at = g->line[p].n = 0;
    }
}

static void push(struct guest *g, uint32_t id)
{
    struct line *l = &g->line[g->w[id].prio];
    if (l->at && l->n == l->cap) {
        memmove(l->v, l->v + l->at, (l->n - l->at) * sizeof *l->v);
        l->n -= l->at;
        l->at = 0;
    }
    if (l->n == l->cap) {
        size_t cap = l->cap * 2 + 64;
        uint32_t *v = realloc(l->v, cap * sizeof *v);
        if (!v) {
            offline(g, id); /* the own origin needs no memory of ours */
            return;
        }
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = id;
}

/* ---- the connection ---- */

static void hang_up(struct guest *g, uint64_t retry_ns)
{
    if (g->fd >= 0) {
        close(g->fd);
    }
    g->fd = -1;
    g->conn = C_NONE;
    g->in.n = g->out.n = 0;
    g->retry_at = clock_ns() + retry_ns;
    all_offline(g);
}

static void say(struct guest *g, json_t *j)
{
    size_t n = 0;
    char *s = j ? control_line(j, &n) : NULL;
    json_decref(j);
    if (!s || buf_add(&g->out, s, n)) {
        shutdown(g->fd, SHUT_RDWR); /* noticed by the next read */
    }
    free(s);
}

static void call(struct guest *g)
{
    struct err e = {0};
    char root[2 * SHA256_SIZE + 1];
    if (control_connect(g->n->home, &g->fd, &e)) {
        g->fd = -1;
        say_once(g, "no node runs in this home any more: what is missing comes from the origin");
        hang_up(g, RETRY_NS);
        return;
    }
    g->conn = C_HELLO;
    g->hello_at = g->heard_at = clock_ns();
    g->pinged = false;
    sha256_hex(model_root(store_model(g->st)), root);
    say(g, json_pack("{s:s,s:i,s:s,s:o,s:i}", "op", "hello", "seq", 0, "root", root, "cache",
                     guests_cache_mark(g->n->cache), "pid", (int)getpid()));
    for (int i = 0; i < g->computing; i++) {
        say(g, json_pack("{s:s,s:i}", "op", "computing", "by", 1));
    }
}

static void ask_waiting(struct guest *g)
{
    for (unsigned p = 0; p < 3; p++) {
        struct line *l = &g->line[p];
        while (l->at < l->n && g->asked < ASKED_MAX && g->out.n < OUT_MAX / 2) {
            uint32_t id = l->v[l->at++];
            struct gwant *w = &g->w[id];
            if (w->state != W_WAITING || w->prio != p) {
                continue;
            }
            w->state = W_ASKED;
            w->seq = ++g->counter << SEQ_SHIFT | id;
            g->asked++;
            say(g, json_pack("{s:s,s:I,s:I,s:i}", "op", "fetch", "seq", (json_int_t)w->seq, "id",
                             (json_int_t)id, "prio", (int)w->prio));
        }
    }
}

static void on_hello(struct guest *g, const json_t *j)
{
    struct err e = {0};
    if (control_error(j, &e)) {
        hang_up(g, OTHER_NS);
        return;
    }
    if (json_is_true(json_object_get(j, "match"))) {
        g->conn = C_UP;
        say_once(g, "another process runs the node of this home: it fetches what is missing");
        return;
    }
    const char *why = json_string_value(json_object_get(j, "why"));
    char line[200];
    bool starting = json_is_true(json_object_get(j, "wait"));
    snprintf(line, sizeof line, "the node that runs in this home is not asked for anything: %.100s",
             why && *why ? why : "it does not say why");
    if (!starting) {
        say_once(g, line);
    }
    hang_up(g, starting ? RETRY_NS : OTHER_NS);
}

/* Objects whose bytes the owner has taken back. */
static void on_taken_back(struct guest *g, const json_t *list, const char *why)
{
    size_t n = json_array_size(list), k = 0;
    uint32_t *ids = malloc((n ? n : 1) * sizeof *ids);
    for (size_t i = 0; ids && i < n; i++) {
        json_int_t id = json_integer_value(json_array_get(list, i));
        if (id >= 0 && id < g->n_objects) {
            ids[k++] = (uint32_t)id;
        }
    }
    if (ids && k) {
        store_take_back(g->st, ids, k, why ? why : "the node of this home has taken bytes back");
    } else if (!ids) {
        shutdown(g->fd, SHUT_RDWR);
    }
    free(ids);
}

/* An answer of the owner. */
static void on_line(struct guest *g, const char *line, size_t n)
{
    json_t *j = json_loadb(line, n, 0, NULL);
    const json_t *s = json_object_get(j, "seq");
    uint64_t seq = json_is_integer(s) && json_integer_value(s) >= 0
                       ? (uint64_t)json_integer_value(s)
                       : UINT64_MAX;
    uint32_t id = (uint32_t)(seq & ((1u << SEQ_SHIFT) - 1));
    if (!j) {
        shutdown(g->fd, SHUT_RDWR);
    } else if (seq == 0) {
        if (g->conn == C_HELLO) {
            on_hello(g, j);
        }
    } else if (seq != UINT64_MAX && id < g->n_objects && g->w[id].state == W_ASKED &&
               g->w[id].seq == seq) {
        struct err e = {0};
        struct store_upstream_result r = {.code = control_error(j, &e), .err = &e};
        json_int_t p = json_integer_value(json_object_get(j, "peer_bytes"));
        json_int_t o = json_integer_value(json_object_get(j, "origin_bytes"));
        r.peer_bytes = p > 0 ? (uint64_t)p : 0;
        r.origin_bytes = o > 0 ? (uint64_t)o : 0;
        if (r.code && !g->w[id].cancelled && store_has_origin(g->st)) {
            r.code = ERR_OFFLINE; /* whatever ails the owner: the own origin may have it */
        }
        finish(g, id, &r);
    } else if (json_is_array(json_object_get(j, "taken_back"))) {
        on_taken_back(g, json_object_get(j, "taken_back"),
                      json_string_value(json_object_get(j, "why")));
    } else if (seq == UINT64_MAX && control_error(j, NULL) && g->conn == C_HELLO) {
        hang_up(g, OTHER_NS); /* turned away at the door */
    }
    json_decref(j);
}

static void receive(struct guest *g)
{
    char b[65536];
    ssize_t n = recv(g->fd, b, sizeof b, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return;
    }
    if (n <= 0 || buf_add(&g->in, b, (size_t)n)) {
        hang_up(g, RETRY_NS);
        return;
    }
    g->heard_at = clock_ns();
    g->pinged = false;
    size_t at = 0;
    char *nl;
    while (g->fd >= 0 && (nl = memchr(g->in.p + at, '\n', g->in.n - at)) != NULL) {
        size_t len = (size_t)(nl - (g->in.p + at));
        size_t from = at;
        at += len + 1;
        on_line(g, g->in.p + from, len);
    }
    if (g->fd >= 0) {
        memmove(g->in.p, g->in.p + at, g->in.n - at);
        g->in.n -= at;
    }
}

static void transmit(struct guest *g)
{
    long n = control_send(g->fd, g->out.p, g->out.n);
    if (n > 0) {
        memmove(g->out.p, g->out.p + n, g->out.n - (size_t)n);
        g->out.n -= (size_t)n;
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        hang_up(g, RETRY_NS);
    }
}

/* An owner that is stopped or hangs is as good as none. */
static void watch(struct guest *g, uint64_t now)
{
    if (g->conn == C_HELLO && now > g->hello_at + HELLO_NS) {
        hang_up(g, OTHER_NS);
    } else if (g->conn == C_UP && g->asked && now > g->heard_at + DEAD_NS) {
        say_once(g, "the node that runs in this home does not answer");
        hang_up(g, OTHER_NS);
    } else if (g->conn == C_UP && g->asked && !g->pinged && now > g->heard_at + SILENT_NS) {
        g->pinged = true;
        say(g, json_pack("{s:s}", "op", "ping"));
    }
}

/* ---- notes ---- */

static void take(struct guest *g, uint32_t id, const struct gnote *x)
{
    struct gwant *w = &g->w[id];
    if ((x->flags & N_FETCH) && w->state == W_NONE) {
        *w = (struct gwant){.state = W_WAITING, .prio = x->prio};
        g->open++;
        push(g, id);
    } else if ((x->flags & N_RAISE) && w->state != W_NONE && x->prio < w->prio) {
        w->prio = x->prio;
        if (w->state == W_WAITING) {
            push(g, id);
        } else {
            say(g, json_pack("{s:s,s:I,s:i}", "op", "raise", "of", (json_int_t)w->seq, "prio",
                             (int)x->prio));
        }
    }
    if ((x->flags & N_CANCEL) && w->state == W_ASKED) {
        w->cancelled = true;
        say(g, json_pack("{s:s,s:I}", "op", "cancel", "of", (json_int_t)w->seq));
    } else if ((x->flags & N_CANCEL) && w->state == W_WAITING) {
        struct err e = {0};
        err_set(&e, ERR_CANCELLED, "the request was withdrawn");
        struct store_upstream_result r = {.code = e.code, .err = &e};
        finish(g, id, &r);
    }
}

static bool take_notes(struct guest *g)
{
    char b[256];
    while (read(g->wake[0], b, sizeof b) > 0) {
    }
    for (;;) {
        pthread_mutex_lock(&g->mu);
        uint32_t i = g->noted;
        int by = g->computing_by;
        bool stop = g->stop;
        struct gnote x = {0};
        g->computing_by = 0;
        if (i) {
            x = g->notes[i - 1];
            g->noted = x.next;
            g->notes[i - 1] = (struct gnote){0};
        }
        pthread_mutex_unlock(&g->mu);
        g->computing += by;
        for (int k = 0; g->conn != C_NONE && k < abs(by); k++) {
            say(g, json_pack("{s:s,s:i}", "op", "computing", "by", by > 0 ? 1 : -1));
        }
        if (!i) {
            return !stop;
        }
        take(g, i - 1, &x);
    }
}

/* ---- the thread ---- */

static void turn(struct guest *g)
{
    struct pollfd p[2] = {{.fd = g->wake[0], .events = POLLIN}, {.fd = -1}};
    if (g->fd >= 0) {
        p[1] = (struct pollfd){.fd = g->fd, .events = (short)(POLLIN | (g->out.n ? POLLOUT : 0))};
    }
    poll(p, 2, g->conn == C_NONE ? -1 : 500);
    if (g->fd >= 0 && (p[1].revents & POLLOUT)) {
        transmit(g);
    }
    if (g->fd >= 0 && (p[1].revents & (POLLIN | POLLHUP | POLLERR))) {
        receive(g);
    }
}

static void *thread_main(void *ctx)
{
    struct guest *g = ctx;
    call(g);
    while (take_notes(g)) {
        uint64_t now = clock_ns();
        if (g->open && g->conn == C_NONE) {
            if (now >= g->retry_at) {
                call(g);
            } else {
                all_offline(g);
            }
        }
        if (g->conn == C_UP) {
            ask_waiting(g);
        }
        watch(g, now);
        turn(g);
    }
    hang_up(g, 0);
    return NULL;
}

/* ---- life ---- */

int guest_open(struct node *n, struct guest **out, struct err *e)
{
    struct guest *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    g->n = n;
    g->st = n->st;
    g->fd = g->wake[0] = g->wake[1] = -1;
    g->n_objects = model_object_count(store_model(n->st));
    g->w = calloc(g->n_objects ? g->n_objects : 1, sizeof *g->w);
    g->notes = calloc(g->n_objects ? g->n_objects : 1, sizeof *g->notes);
    buf_init(&g->in, CONTROL_ANSWER_MAX + 65536);
    buf_init(&g->out, 2 * OUT_MAX);
    pthread_mutex_init(&g->mu, NULL);
    int r = !g->w || !g->notes || g->n_objects >= 1u << SEQ_SHIFT
                ? err_set(e, ERR_NOMEM, "out of memory")
                : 0;
    if (!r && (pipe(g->wake) || control_tame(g->wake[0]) || control_tame(g->wake[1]))) {
        r = err_sys(e, errno, "cannot make a pipe");
    }
    if (!r && pthread_create(&g->thread, NULL, thread_main, g)) {
        r = err_set(e, ERR_NOMEM, "cannot start a thread");
    }
    if (r) {
        guest_close(g);
        return r;
    }
    g->threaded = true;
    struct store_upstream up = {g, up_fetch, up_raise, up_cancel, NULL};
    store_set_upstream(n->st, &up);
    *out = g;
    return 0;
}

void guest_close(struct guest *g)
{
    if (!g) {
        return;
    }
    if (g->threaded) {
        store_set_upstream(g->st, NULL);
        pthread_mutex_lock(&g->mu);
        g->stop = true;
        pthread_mutex_unlock(&g->mu);
        wake_up(g);
        pthread_join(g->thread, NULL);
    }
    for (int i = 0; i < 2; i++) {
        if (g->wake[i] >= 0) {
            close(g->wake[i]);
        }
    }
    for (int p = 0; p < 3; p++) {
        free(g->line[p].v);
    }
    free(g->notes);
    free(g->w);
    buf_free(&g->in);
    buf_free(&g->out);
    pthread_mutex_destroy(&g->mu);
    free(g);
}
