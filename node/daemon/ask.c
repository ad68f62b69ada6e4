/* SPDX-License-Identifier: MIT
 * ask.c: the other side of the control socket: connecting, and one question with its answer. */
#include "node/daemon/control.h"
#include "node/daemon/node.h"

#include "proto/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MS_NS 1000000ull
#define ASK_MS 10000

int control_connect(const char *home, int *out, struct err *e)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char path[CONTROL_PATH_MAX];
    unsigned uid;
    int r = control_path_find(home, path, e);
    if (r) {
        return r;
    }
    if (strlen(path) >= sizeof sa.sun_path) {
        return err_set(e, ERR_OFFLINE, "no node runs in %s", home);
    }
    memcpy(sa.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || control_tame(fd)) {
        r = err_sys(e, errno, "cannot make a socket");
    } else if (connect(fd, (struct sockaddr *)&sa, sizeof sa)) {
        /* EAGAIN: its queue of connections is full. The rest means that nobody listens there. */
        r = errno == EAGAIN   ? err_set(e, ERR_BUSY, "the node in %s has too much to do", home)
            : errno == EACCES ? err_set(e, ERR_REFUSED, "the node in %s is another user's", home)
                              : err_set(e, ERR_OFFLINE, "no node runs in %s", home);
    } else if (control_peer_uid(fd, &uid) || (uid != (unsigned)geteuid() && uid != 0)) {
        r = err_set(e, ERR_REFUSED, "what listens at %s is another user's", path);
    }
    if (r) {
        if (fd >= 0) {
            close(fd);
        }
        return r;
    }
    *out = fd;
    return 0;
}

/* Wait for the descriptor; false: the time is over. */
static bool await(int fd, short what, uint64_t deadline)
{
    for (;;) {
        uint64_t now = clock_ns();
        struct pollfd p = {.fd = fd, .events = what};
        if (now >= deadline) {
            return false;
        }
        uint64_t ms = (deadline - now) / MS_NS + 1;
        int n = poll(&p, 1, ms > 60000 ? 60000 : (int)ms);
        if (n > 0) {
            return true;
        }
    }
}

static bool again(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static int send_all(int fd, const char *p, size_t n, uint64_t deadline, struct err *e)
{
    while (n) {
        long k = control_send(fd, p, n);
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        } else if (k < 0 && !again()) {
            return err_set(e, ERR_OFFLINE, "the node hung up");
        } else if (!await(fd, POLLOUT, deadline)) {
            return err_set(e, ERR_TIMEOUT, "the node takes no request");
        }
    }
    return 0;
}

static int receive_line(int fd, struct buf *in, uint64_t deadline, struct err *e)
{
    char b[65536];
    for (;;) {
        ssize_t n = recv(fd, b, sizeof b, 0);
        if (n == 0 || (n < 0 && !again())) {
            return err_set(e, ERR_OFFLINE, "the node hung up");
        }
        if (n < 0) {
            if (!await(fd, POLLIN, deadline)) {
                return err_set(e, ERR_TIMEOUT, "the node has not answered in the time given");
            }
            continue;
        }
        const char *nl = memchr(b, '\n', (size_t)n);
        if (buf_add(in, b, nl ? (size_t)(nl - b) : (size_t)n)) {
            return err_set(e, ERR_LIMIT, "the answer of the node is too long");
        }
        if (nl) {
            return 0;
        }
    }
}

static int exchange(int fd, const char *line, size_t n, uint64_t deadline, json_t **answer,
                    struct err *e)
{
    struct buf in;
    buf_init(&in, CONTROL_ANSWER_MAX);
    int r = send_all(fd, line, n, deadline, e);
    struct err sent = r ? *e : (struct err){0};
    /* One that was turned away has its answer, even if it could not ask. */
    r = r == ERR_OFFLINE || !r ? receive_line(fd, &in, deadline, e) : r;
    if (r && sent.code) {
        *e = sent;
        r = sent.code;
    }
    json_t *j = NULL;
    if (!r) {
        j = json_loadb(in.p ? in.p : "", in.n, JSON_REJECT_DUPLICATES, NULL);
        r = json_is_object(j) ? control_error(j, e)
                              : err_set(e, ERR_FORMAT, "the answer of the node is no JSON object");
    }
    if (!r) {
        *answer = j;
        j = NULL;
    }
    json_decref(j);
    buf_free(&in);
    return r;
}

int node_ask(const char *home, json_t *request, unsigned timeout_ms, json_t **answer, struct err *e)
{
    struct err e1 = {0};
    uint64_t deadline = clock_ns() + (timeout_ms ? timeout_ms : ASK_MS) * MS_NS;
    size_t n = 0;
    int fd = -1;
    *answer = NULL;
    e = e ? e : &e1;
    if (!json_is_string(json_object_get(request, "op"))) {
        return err_set(e, ERR_ARG, "the request has no \"op\"");
    }
    char *line = control_line(request, &n);
    if (!line || n > CONTROL_LINE_MAX) {
        free(line);
        return err_set(e, ERR_LIMIT, "the request is too long");
    }
    int r = control_connect(home, &fd, e);
    if (!r) {
        r = exchange(fd, line, n, deadline, answer, e);
        close(fd);
    }
    free(line);
    return r;
}
