/* SPDX-License-Identifier: MIT
 * cable.c: see cable.h. */
#include "tests/faults/cable.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SO_NOSIGPIPE there */
#endif

#define WIRES 64
#define ROOM 65536

struct way { /* one direction */
    char p[ROOM];
    size_t n, at;
    bool over; /* the sender has ended */
};

struct wire {
    int fd[2], from, to; /* fd[0]: of the dialler */
    bool dialing;
    struct way way[2]; /* way[i]: read from fd[i] */
};

struct cable {
    int members, to[CABLE_MEMBERS];
    int listener[CABLE_MEMBERS][CABLE_MEMBERS], port[CABLE_MEMBERS][CABLE_MEMBERS];
    pthread_t thread;
    pthread_mutex_t mu; /* what follows */
    bool stop, cut[CABLE_MEMBERS];
    struct wire *wire[WIRES];
};

const char *cable_host(int member)
{
    static const char *const host[CABLE_MEMBERS] = {"127.0.0.11", "127.0.0.12", "127.0.0.13",
                                                    "127.0.0.14"};
    return host[member];
}

bool cable_possible(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    inet_pton(AF_INET, cable_host(0), &a.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    bool can = s >= 0 && bind(s, (struct sockaddr *)&a, sizeof a) == 0;
    if (s >= 0) {
        close(s);
    }
    return can;
}

static void set_up(int fd)
{
    int one = 1;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
}

static void drop(struct cable *c, int i)
{
    close(c->wire[i]->fd[0]);
    close(c->wire[i]->fd[1]);
    free(c->wire[i]);
    c->wire[i] = NULL;
}

static void take_wire(struct cable *c, int from, int to)
{
    int fd = accept(c->listener[from][to], NULL, NULL), i = 0;
    while (i < WIRES && c->wire[i]) {
        i++;
    }
    struct wire *w = fd >= 0 && i < WIRES ? calloc(1, sizeof *w) : NULL;
    if (!w) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)c->to[to])};
    inet_pton(AF_INET, cable_host(to), &a.sin_addr);
    *w = (struct wire){.fd = {fd, socket(AF_INET, SOCK_STREAM, 0)}, .from = from, .to = to};
    set_up(fd);
    set_up(w->fd[1]);
    c->wire[i] = w;
    if (connect(w->fd[1], (struct sockaddr *)&a, sizeof a)) {
        if (errno != EINPROGRESS) {
            drop(c, i);
            return;
        }
        w->dialing = true;
    }
}

/* False: the wire is over. */
static bool forward(struct wire *w, int i)
{
    struct way *x = &w->way[i];
    if (x->at == x->n && !x->over) {
        ssize_t k = recv(w->fd[i], x->p, sizeof x->p, 0);
        if (k < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        x->at = 0;
        x->n = (size_t)k;
        x->over = k == 0;
        if (x->over) {
            shutdown(w->fd[1 - i], SHUT_WR);
        }
    }
    while (x->at < x->n) {
        ssize_t k = send(w->fd[1 - i], x->p + x->at, x->n - x->at, MSG_NOSIGNAL);
        if (k < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        x->at += (size_t)k;
    }
    return !(w->way[0].over && w->way[1].over);
}

static void *cable_main(void *arg)
{
    struct cable *c = arg;
    for (;;) {
        enum { MOST = CABLE_MEMBERS * CABLE_MEMBERS + 2 * WIRES };
        struct pollfd f[MOST];
        int who[MOST], n = 0;
        pthread_mutex_lock(&c->mu);
        for (int i = 0; i < c->members * c->members; i++) {
            int from = i / c->members, to = i % c->members;
            if (from != to && !c->cut[from] && !c->cut[to]) {
                f[n] = (struct pollfd){c->listener[from][to], POLLIN, 0};
                who[n++] = -1 - i;
            }
        }
        for (int i = 0; i < WIRES; i++) {
            struct wire *w = c->wire[i];
            for (int k = 0; w && k < 2 && !c->cut[w->from] && !c->cut[w->to]; k++) {
                bool in = w->way[k].at == w->way[k].n && !w->way[k].over && !w->dialing;
                bool out = w->way[1 - k].at < w->way[1 - k].n || (k && w->dialing);
                if (in || out) {
                    f[n] = (struct pollfd){w->fd[k],
                                           (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0)), 0};
                    who[n++] = i;
                }
            }
        }
        bool stop = c->stop;
        pthread_mutex_unlock(&c->mu);
        if (stop) {
            return NULL;
        }
        poll(f, (nfds_t)n, 10);
        pthread_mutex_lock(&c->mu);
        for (int j = 0; j < n; j++) {
            if (!f[j].revents) {
                continue;
            }
            if (who[j] < 0) {
                take_wire(c, (-1 - who[j]) / c->members, (-1 - who[j]) % c->members);
                continue;
            }
            struct wire *w = c->wire[who[j]];
            if (!w || c->cut[w->from] || c->cut[w->to]) {
                continue;
            }
            if (w->dialing) {
                int err = 0;
                socklen_t k = sizeof err;
                getsockopt(w->fd[1], SOL_SOCKET, SO_ERROR, &err, &k);
                w->dialing = false;
                if (err) {
                    drop(c, who[j]);
                    continue;
                }
            }
            if (!forward(w, 0) || !forward(w, 1)) {
                drop(c, who[j]);
            }
        }
        pthread_mutex_unlock(&c->mu);
    }
}

struct cable *cable_start(const int *to, int members)
{
    struct cable *c = calloc(1, sizeof *c);
    assert_non_null(c);
    assert_true(members <= CABLE_MEMBERS);
    c->members = members;
    for (int i = 0; i < members; i++) {
        c->to[i] = to[i];
        for (int k = 0; k < members; k++) {
            struct sockaddr_in a = {.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
            socklen_t n = sizeof a;
            int s = c->listener[i][k] = i == k ? -1 : socket(AF_INET, SOCK_STREAM, 0);
            if (i != k) {
                fcntl(s, F_SETFD, FD_CLOEXEC);
                assert_int_equal(bind(s, (struct sockaddr *)&a, n) | listen(s, 64), 0);
                assert_int_equal(getsockname(s, (struct sockaddr *)&a, &n), 0);
                c->port[i][k] = ntohs(a.sin_port);
            }
        }
    }
    pthread_mutex_init(&c->mu, NULL);
    assert_int_equal(pthread_create(&c->thread, NULL, cable_main, c), 0);
    return c;
}

void cable_stop(struct cable *c)
{
    pthread_mutex_lock(&c->mu);
    c->stop = true;
    pthread_mutex_unlock(&c->mu);
    pthread_join(c->thread, NULL);
    for (int i = 0; i < WIRES; i++) {
        if (c->wire[i]) {
            drop(c, i);
        }
    }
    for (int i = 0; i < c->members * c->members; i++) {
        if (i / c->members != i % c->members) {
            close(c->listener[i / c->members][i % c->members]);
        }
    }
    pthread_mutex_destroy(&c->mu);
    free(c);
}

int cable_port(const struct cable *c, int from, int to)
{
    return c->port[from][to];
}

void cable_cut(struct cable *c, int member, bool cut)
{
    pthread_mutex_lock(&c->mu);
    c->cut[member] = cut;
    pthread_mutex_unlock(&c->mu);
}
