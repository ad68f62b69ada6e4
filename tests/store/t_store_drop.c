/* SPDX-License-Identifier: MIT
 * t_store_drop.c: parts of a merged request that nobody wants any more: a request of which much is
 * left for nothing is broken off, and what is still wanted of it is asked for anew, from its next
 * byte; little is read along. Against a server that stops in the middle of a body until it is told
 * to go on, so that each step is seen before the next one. */
#include "tests/store/util.h"

#include "node/store/mirrors_inner.h"
#include "proto/base/clock.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SO_NOSIGPIPE there */
#endif

#define KIB 1024ull
#define MIB (1024ull * KIB)
#define SIZE (16 * MIB)

static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}

/* ---- the server: one connection after the other has a thread ---- */

struct asked {
    uint64_t from, to, sent;
    bool gone; /* the other side has closed before all was sent */
};

struct gate {
    int fd, port;
    pthread_t thread;
    pthread_mutex_t mu;
    pthread_cond_t cv;
    uint64_t open; /* bytes of each body that are sent; the rest when this grows */
    bool stop;
    struct asked asked[16];
    int n;
};

struct talk {
    struct gate *g;
    int fd;
};

static uint64_t opened(struct gate *g)
{
    pthread_mutex_lock(&g->mu);
    uint64_t n = g->stop ? UINT64_MAX : g->open;
    pthread_mutex_unlock(&g->mu);
    return n;
}

static bool closed(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    char c;
    return poll(&p, 1, 5) > 0 && recv(fd, &c, 1, MSG_PEEK) <= 0;
}

/* False: the connection is over. */
static bool answer(struct gate *g, int fd, const char *req)
{
    unsigned long long from = 0, to = 0;
    const char *range = strcasestr(req, "\nRange: bytes=");
    assert_true(range && sscanf(range + 14, "%llu-%llu", &from, &to) == 2);
    char head[256];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 206 Partial Content\r\nContent-Length: %llu\r\n"
                     "Content-Range: bytes %llu-%llu/%llu\r\n\r\n",
                     to - from + 1, from, to, (unsigned long long)SIZE);
    pthread_mutex_lock(&g->mu);
    assert_true(g->n < 16);
    struct asked *a = &g->asked[g->n++];
    *a = (struct asked){from, to + 1, 0, false};
    pthread_cond_broadcast(&g->cv);
    pthread_mutex_unlock(&g->mu);
    bool ok = send(fd, head, (size_t)n, MSG_NOSIGNAL) == n;
    while (ok && a->sent < a->to - a->from) {
        uint8_t p[4096];
        uint64_t may = opened(g), left = a->to - a->from - a->sent;
        if (a->sent >= may) {
            ok = !closed(fd) && may != UINT64_MAX;
            continue;
        }
        left = left < may - a->sent ? left : may - a->sent;
        size_t k = left < sizeof p ? (size_t)left : sizeof p;
        for (size_t i = 0; i < k; i++) {
            p[i] = byte_at(a->from + a->sent + i);
        }
        ssize_t did = send(fd, p, k, MSG_NOSIGNAL);
        ok = did > 0;
        pthread_mutex_lock(&g->mu);
        a->sent += ok ? (uint64_t)did : 0;
        pthread_mutex_unlock(&g->mu);
    }
    pthread_mutex_lock(&g->mu);
    a->gone = !ok;
    pthread_cond_broadcast(&g->cv);
    pthread_mutex_unlock(&g->mu);
    return ok;
}

static void *talk_main(void *arg)
{
    struct talk *t = arg;
    char req[4096];
    size_t n = 0;
    bool ok = true;
    while (ok) {
        ssize_t k = recv(t->fd, req + n, sizeof req - 1 - n, 0);
        ok = k > 0;
        n += ok ? (size_t)k : 0;
        req[n] = 0;
        if (ok && strstr(req, "\r\n\r\n")) {
            ok = answer(t->g, t->fd, req);
            n = 0;
        }
    }
    close(t->fd);
    free(t);
    return NULL;
}

static void *gate_main(void *arg)
{
    struct gate *g = arg;
    pthread_t talks[16];
    int n = 0;
    for (;;) {
        int fd = accept(g->fd, NULL, NULL);
        if (fd < 0 || opened(g) == UINT64_MAX) {
            close(fd);
            break;
        }
#ifdef SO_NOSIGPIPE
        int one = 1;
        setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
        struct talk *t = malloc(sizeof *t);
        assert_true(t && n < 16);
        *t = (struct talk){g, fd};
        assert_int_equal(pthread_create(&talks[n++], NULL, talk_main, t), 0);
    }
    while (n) {
        pthread_join(talks[--n], NULL);
    }
    return NULL;
}

static void gate_start(struct gate *g, uint64_t open)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    memset(g, 0, sizeof *g);
    g->open = open;
    pthread_mutex_init(&g->mu, NULL);
    pthread_cond_init(&g->cv, NULL);
    g->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(g->fd, (struct sockaddr *)&a, n) | listen(g->fd, 16), 0);
    assert_int_equal(getsockname(g->fd, (struct sockaddr *)&a, &n), 0);
    g->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&g->thread, NULL, gate_main, g), 0);
}

static void gate_open(struct gate *g, uint64_t open)
{
    pthread_mutex_lock(&g->mu);
    g->open = open;
    pthread_mutex_unlock(&g->mu);
}

/* Until the client has broken that request off. */
static void gate_gone(struct gate *g, int i)
{
    pthread_mutex_lock(&g->mu);
    while (g->n <= i || !g->asked[i].gone) {
        pthread_cond_wait(&g->cv, &g->mu);
    }
    pthread_mutex_unlock(&g->mu);
}

/* After the clients' origins have been closed. */
static void gate_stop(struct gate *g)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    a.sin_port = htons((uint16_t)g->port);
    pthread_mutex_lock(&g->mu);
    g->stop = true;
    pthread_mutex_unlock(&g->mu);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    pthread_join(g->thread, NULL);
    close(fd);
    close(g->fd);
    pthread_cond_destroy(&g->cv);
    pthread_mutex_destroy(&g->mu);
}

/* ---- parts ---- */

#define PARTS 16

struct wish {
    struct origin_part part;
    uint64_t got;
    bool right, done;
    int code;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;

static int on_data(struct origin_part *p, const void *b, size_t n, struct err *e)
{
    struct wish *w = p->user;
    (void)e;
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < n; i++) {
        w->right &= ((const uint8_t *)b)[i] == byte_at(p->off + w->got + i);
    }
    w->got += n;
    pthread_cond_broadcast(&cv);
    pthread_mutex_unlock(&mu);
    return 0;
}

static void on_done(struct origin_part *p, int code, const struct err *e)
{
    struct wish *w = p->user;
    (void)e;
    pthread_mutex_lock(&mu);
    assert_false(w->done);
    w->done = true;
    w->code = code;
    pthread_cond_broadcast(&cv);
    pthread_mutex_unlock(&mu);
}

static void wait_got(struct wish *w, uint64_t got)
{
    pthread_mutex_lock(&mu);
    while (w->got < got) {
        pthread_cond_wait(&cv, &mu);
    }
    pthread_mutex_unlock(&mu);
}

static int wait_done(struct wish *w)
{
    pthread_mutex_lock(&mu);
    while (!w->done) {
        pthread_cond_wait(&cv, &mu);
    }
    pthread_mutex_unlock(&mu);
    return w->code;
}

static struct origin *open_at(const struct gate *g)
{
    char url[64];
    struct origin *o;
    struct err e = {0};
    uint32_t file;
    snprintf(url, sizeof url, "http://127.0.0.1:%d", g->port);
    struct origin_opts opts = {.url = url, .stall_ms = 60000};
    assert_int_equal(origin_open(&opts, &o, &e), 0);
    assert_int_equal(origin_file(o, "m.safetensors", &file, &e), 0);
    assert_int_equal(file, 0);
    origin_expect(o, file, SIZE, "");
    return o;
}

/* Parts of these sizes, one behind the other: one request. */
static void ask(struct origin *o, struct mirrors *ms, struct wish *w, const uint64_t *size, int n)
{
    uint64_t off = 0;
    struct origin *first = ms ? ms->m[0].o : o;
    pthread_mutex_lock(&first->mu);
    first->pause_until = UINT64_MAX;
    pthread_mutex_unlock(&first->mu);
    for (int i = 0; i < n; i++) {
        w[i] = (struct wish){.right = true,
                             .part = {.user = &w[i],
                                      .name = "x",
                                      .off = off,
                                      .size = size[i],
                                      .data = on_data,
                                      .done = on_done}};
        off += size[i];
        mirrors_submit(ms, o, &w[i].part);
    }
    pthread_mutex_lock(&first->mu);
    first->pause_until = 0;
    origin_wake(first);
    pthread_mutex_unlock(&first->mu);
}

static uint64_t unused(struct origin *o)
{
    uint64_t bytes, retries, n;
    origin_numbers(o, &bytes, &retries, &n);
    assert_int_equal(retries, 0); /* a request that was cut is no failure */
    return n;
}

/* At one moment, as far as the origin's thread sees it. */
static void drop(struct origin *o, struct wish *w, int from, int to)
{
    pthread_mutex_lock(&o->mu);
    for (int i = from; i < to; i++) {
        w[i].part.dropped = true;
    }
    pthread_mutex_unlock(&o->mu);
    assert_false(origin_drop(o, &w[from].part)); /* it is running */
    for (int i = from; i < to; i++) {
        assert_int_equal(wait_done(&w[i]), ERR_CANCELLED);
    }
}

static void whole(struct wish *w)
{
    assert_int_equal(wait_done(w), 0);
    assert_int_equal(w->got, w->part.size);
    assert_true(w->right);
}

/* Everything in the middle is dropped: the request ends where it is, though nothing comes at that
 * moment, and the last part is asked for alone. */
static void t_middle(void **state)
{
    struct gate g;
    struct wish w[PARTS];
    uint64_t size[PARTS];
    for (int i = 0; i < PARTS; i++) {
        size[i] = MIB;
    }
    gate_start(&g, MIB + 8 * KIB);
    struct origin *o = open_at(&g);
    ask(o, NULL, w, size, PARTS);
    whole(&w[0]);
    wait_got(&w[1], 8 * KIB);
    drop(o, w, 1, PARTS - 1);
    whole(&w[PARTS - 1]);
    assert_int_equal(unused(o), 0);
    origin_free(o);
    gate_stop(&g);
    assert_int_equal(g.n, 2);
    assert_int_equal(g.asked[0].to - g.asked[0].from, SIZE);
    assert_true(g.asked[0].gone);
    assert_int_equal(g.asked[0].sent, MIB + 8 * KIB);
    assert_int_equal(g.asked[1].from, SIZE - MIB);
    assert_int_equal(g.asked[1].to, SIZE);
}

/* Nothing of it is wanted any more; the next request is a new one. One that waits is not asked for
 * at all. */
static void t_all(void **state)
{
    static const uint64_t size[] = {MIB, MIB, MIB};
    struct gate g;
    struct wish w[3];
    gate_start(&g, 8 * KIB);
    struct origin *o = open_at(&g);
    ask(o, NULL, w, size, 3);
    wait_got(&w[0], 8 * KIB);
    drop(o, w, 0, 3);
    gate_gone(&g, 0);
    origin_pause(o, 3600000);
    w[0].done = w[1].done = false;
    w[0].got = w[0].code = 0;
    w[0].part.dropped = w[1].part.dropped = false;
    origin_submit(o, &w[0].part);
    origin_submit(o, &w[1].part);
    assert_true(origin_drop(o, &w[1].part));
    gate_open(&g, MIB);
    pthread_mutex_lock(&o->mu);
    o->pause_until = 0;
    origin_wake(o);
    pthread_mutex_unlock(&o->mu);
    whole(&w[0]);
    assert_false(w[1].done);
    origin_free(o);
    gate_stop(&g);
    assert_int_equal(g.n, 2);
    assert_int_equal(g.asked[0].sent, 8 * KIB);
    assert_int_equal(g.asked[1].from, 0);
    assert_int_equal(g.asked[1].to, MIB);
}

/* A little between what is wanted is read along, and counted. What lies behind the last wanted byte
 * is not read, whatever lies before it. */
static void t_little(void **state)
{
    static const uint64_t size[] = {64 * KIB, 4 * KIB, 64 * KIB, MIB, MIB, MIB};
    struct gate g;
    struct wish w[6];
    gate_start(&g, 8 * KIB);
    struct origin *o = open_at(&g);
    ask(o, NULL, w, size, 6);
    wait_got(&w[0], 8 * KIB);
    origin_drop(o, &w[1].part);
    for (int i = 3; i < 6; i++) {
        origin_drop(o, &w[i].part);
    }
    gate_open(&g, 132 * KIB);
    whole(&w[0]);
    whole(&w[2]);
    for (int i = 3; i < 6; i++) {
        assert_int_equal(wait_done(&w[i]), ERR_CANCELLED);
    }
    assert_int_equal(wait_done(&w[1]), ERR_CANCELLED);
    assert_int_equal(unused(o), 4 * KIB);
    origin_free(o);
    gate_stop(&g);
    assert_int_equal(g.n, 1);
    assert_int_equal(g.asked[0].sent, 132 * KIB);
}

/* A part in the middle of its bytes goes on at its next one when another part ahead of it makes the
 * request a bad one: of two that are wanted only what has not come is asked for again. */
static void t_resumed(void **state)
{
    static const uint64_t size[] = {MIB, MIB, 64 * KIB, MIB};
    struct gate g;
    struct wish w[4];
    gate_start(&g, 16 * KIB);
    struct origin *o = open_at(&g);
    ask(o, NULL, w, size, 4);
    wait_got(&w[0], 16 * KIB);
    origin_drop(o, &w[0].part); /* alone it makes the first request a bad one */
    assert_int_equal(wait_done(&w[0]), ERR_CANCELLED);
    wait_got(&w[1], 16 * KIB); /* by the second */
    origin_drop(o, &w[2].part);
    origin_drop(o, &w[3].part);
    gate_open(&g, MIB);
    whole(&w[1]);
    assert_int_equal(wait_done(&w[2]), ERR_CANCELLED);
    assert_int_equal(wait_done(&w[3]), ERR_CANCELLED);
    assert_int_equal(unused(o), 0);
    origin_free(o);
    gate_stop(&g);
    assert_int_equal(g.n, 2);
    assert_int_equal(g.asked[1].from, MIB);
    assert_int_equal(g.asked[1].sent, MIB); /* nothing behind it */
}

/* What is dropped while a mirror gives it is not asked of the origin, and the mirror is not to
 * blame. */
static void t_mirror(void **state)
{
    static const uint64_t size[] = {MIB, MIB, MIB};
    struct gate g, h;
    struct wish w[3];
    struct mirrors *ms;
    struct err e = {0};
    char url[64];
    const char *urls[] = {url};
    gate_start(&g, 0);
    gate_start(&h, 8 * KIB);
    struct origin *o = open_at(&g);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", h.port);
    struct origin_opts base = {.stall_ms = 60000};
    assert_int_equal(mirrors_open(o, &base, urls, 1, &ms, &e), 0);
    pthread_mutex_lock(&ms->mu);
    mirror_file(ms, &ms->m[0], 0)->state = FILE_GOOD;
    ms->m[0].o->o.stall_ms = 60000;
    pthread_mutex_unlock(&ms->mu);
    ask(o, ms, w, size, 3);
    wait_got(&w[0], 8 * KIB);
    for (int i = 0; i < 3; i++) {
        assert_false(mirrors_drop(ms, o, &w[i].part));
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wait_done(&w[i]), ERR_CANCELLED);
    }
    struct store_mirror now;
    assert_int_equal(mirrors_get(ms, &now, 1), 1);
    assert_int_equal(now.failed, 0);
    assert_true(mirrors_up(ms));
    mirrors_stop(ms);
    origin_stop(o);
    mirrors_free(ms);
    origin_free(o);
    gate_stop(&g);
    gate_stop(&h);
    assert_int_equal(g.n, 0);
    assert_in_range(h.n, 1, 3); /* another one where the second came late */
    assert_int_equal(h.asked[0].sent, 8 * KIB);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(t_middle),  cmocka_unit_test(t_all),    cmocka_unit_test(t_little),
        cmocka_unit_test(t_resumed), cmocka_unit_test(t_mirror),
    };
    return cmocka_run_group_tests_name("store_drop", t, NULL, NULL);
}
