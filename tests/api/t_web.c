/* SPDX-License-Identifier: MIT
 * t_web.c: bodies whose end can be told in two ways are refused; clients that go while their answer
 * is awaited: whoever works for them hears of it, also behind bytes that nobody has read, and never
 * after having said that it is through. Requests that come a byte at a time are cut; one whose
 * handling takes long keeps no other from its answer, and web_quiet from returning. */
#include "node/api/web.h"
#include "proto/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS 60000000000ull

struct scene {
    struct web *h;
    _Atomic(struct web_req *) r; /* held by the handler */
    atomic_int gone;             /* 1: the call began, 2: it is over */
    atomic_bool go_on;           /* it may end */
    atomic_int handling;         /* of a long body: 1 it is begun, 2 it is over */
};

static void nap(void)
{
    usleep(2000);
}

static void on_gone(void *ctx)
{
    struct scene *s = ctx;
    atomic_store(&s->gone, 1);
    for (uint64_t end = clock_ns() + PATIENCE_NS; !atomic_load(&s->go_on) && clock_ns() < end;) {
        nap();
    }
    atomic_store(&s->gone, 2);
}

static void handle(void *ctx, struct web_req *r)
{
    struct scene *s = ctx;
    size_t n;
    web_body(r, &n);
    if (n > WEB_INLINE) {
        atomic_store(&s->handling, 1);
        for (uint64_t end = clock_ns() + PATIENCE_NS; !atomic_load(&s->go_on);) {
            assert_true(clock_ns() < end);
            nap();
        }
        web_answer(r, 200, "text/plain", "long", 4);
        nap();
        atomic_store(&s->handling, 2);
        return;
    }
    if (!strcmp(web_path(r), "/short") ||
        atomic_load(&s->r)) { /* the second of two: nothing to wait for */
        web_answer(r, 200, "text/plain", "y", 1);
        return;
    }
    web_hold(r);
    web_on_gone(r, on_gone, s);
    atomic_store(&s->r, r);
}

static void refuse(void *ctx, struct web_req *r, int status, const char *code, const char *text)
{
    (void)ctx;
    (void)code;
    web_answer(r, status, "text/plain", text, strlen(text));
}

static void await_gone(struct scene *s, int at_least)
{
    for (uint64_t end = clock_ns() + PATIENCE_NS; atomic_load(&s->gone) < at_least;) {
        assert_true(clock_ns() < end);
        nap();
    }
}

static int connected(struct scene *s, const char *text)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)strtoul(strrchr(web_url(s->h), ':') + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    return fd;
}

static int client(struct scene *s, const char *text)
{
    int fd = connected(s, text);
    for (uint64_t end = clock_ns() + PATIENCE_NS; !atomic_load(&s->r);) {
        assert_true(clock_ns() < end);
        nap();
    }
    return fd;
}

static void open_web(struct scene *s)
{
    struct err e = {0};
    struct web_opts o = {.host = "127.0.0.1", .ctx = s, .handle = handle, .refuse = refuse};
    if (web_open(&o, &s->h, &e)) {
        fail_msg("%s", e.msg);
    }
}

static void finish(struct scene *s)
{
    struct web_req *r = atomic_load(&s->r);
    web_answer(r, 200, "text/plain", "x", 1);
    web_release(r);
    web_close(s->h);
}

#define POST "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"

static void test_unread(void **state)
{
    (void)state;
    static const char *const sent[] = {POST, POST "\r\n", POST POST};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
#ifdef __APPLE__ /* there the end is seen only when all before it was read */
        if (i) {
            break;
        }
#endif
        struct scene s = {0};
        atomic_store(&s.go_on, true);
        open_web(&s);
        close(client(&s, sent[i]));
        await_gone(&s, 2);
        finish(&s);
    }
}

static void test_framing(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}ab",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\ntransfer-encoding: chunked\r\n\r\n"
        "2\r\n{}\r\n0\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n"
        "\r\n",
        "POST /x HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}",
    };
    struct scene s = {0};
    open_web(&s);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char got[13] = "";
        int fd = connected(&s, odd[i]);
        assert_int_equal(recv(fd, got, sizeof got - 1, MSG_WAITALL), sizeof got - 1);
        assert_string_equal(got, "HTTP/1.1 400");
        close(fd);
    }
    assert_null(atomic_load(&s.r));
    web_close(s.h);
}

static void *let_go(void *ctx)
{
    struct scene *s = ctx;
    usleep(100000); /* time for a web_on_gone that does not wait to return */
    atomic_store(&s->go_on, true);
    return NULL;
}

static void test_through(void **state)
{
    (void)state;
    struct scene s = {0};
    pthread_t t;
    open_web(&s);
    close(client(&s, POST));
    await_gone(&s, 1);
    assert_int_equal(pthread_create(&t, NULL, let_go, &s), 0);
    web_on_gone(atomic_load(&s.r), NULL, NULL);
    assert_int_equal(atomic_load(&s.gone), 2); /* what it worked with may be freed now */
    pthread_join(t, NULL);
    finish(&s);
}

/* ---- requests that take long ---- */

static void open_slow(struct scene *s)
{
    struct err e = {0};
    struct web_opts o = {.host = "127.0.0.1", .ctx = s, .handle = handle, .refuse = refuse};
    o.head_ms = o.body_ms = 200;
    if (web_open(&o, &s->h, &e)) {
        fail_msg("%s", e.msg);
    }
}

/* A byte every few milliseconds, without end: the library's own limit never comes. */
static void drip(struct scene *s, const char *begin)
{
    int fd = connected(s, begin);
    char c;
    ssize_t n = -1;
    for (uint64_t end = clock_ns() + PATIENCE_NS; clock_ns() < end && n < 0;) {
        (void)send(fd, "a", 1, MSG_NOSIGNAL);
        nap();
        n = recv(fd, &c, 1, MSG_DONTWAIT);
        n = n < 0 && errno != EAGAIN && errno != EWOULDBLOCK ? 0 : n;
    }
    assert_int_equal(n, 0); /* its end, and no answer */
    close(fd);
}

static void test_drip(void **state)
{
    (void)state;
    struct scene s = {0};
    struct web_stats st;
    open_slow(&s);
    drip(&s, "GET /short HTTP/1.1\r\nHost: localhost\r\nX-Long: ");
    drip(&s, "POST /short HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n");
    for (uint64_t end = clock_ns() + PATIENCE_NS; web_get_stats(s.h, &st), st.connections;) {
        assert_true(clock_ns() < end);
        nap();
    }
    web_close(s.h);
}

static int long_body(struct scene *s)
{
    char head[200];
    size_t n = WEB_INLINE + 1;
    snprintf(head, sizeof head,
             "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", n);
    int fd = connected(s, head);
    char *p = calloc(1, n);
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, p + at, n - at, MSG_NOSIGNAL);
        assert_true(k > 0);
        at += (size_t)k;
    }
    free(p);
    for (uint64_t end = clock_ns() + PATIENCE_NS; !atomic_load(&s->handling);) {
        assert_true(clock_ns() < end);
        nap();
    }
    return fd;
}

static void answered(int fd, const char *body)
{
    struct timeval t = {20, 0};
    char got[500];
    size_t n = 0, want = strlen(body);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    do {
        ssize_t k = recv(fd, got + n, sizeof got - 1 - n, 0);
        assert_true(k > 0);
        n += (size_t)k;
        got[n] = 0;
    } while (!strstr(got, "\r\n\r\n") || n < want || strcmp(got + n - want, body) != 0);
    assert_memory_equal(got, "HTTP/1.1 200", 12);
    close(fd);
}

static void test_long(void **state)
{
    (void)state;
    struct scene s = {0};
    open_web(&s);
    int fd = long_body(&s);
    answered(connected(&s, "GET /short HTTP/1.1\r\nHost: localhost\r\n\r\n"), "y");
    assert_int_equal(atomic_load(&s.handling), 1);
    atomic_store(&s.go_on, true);
    answered(fd, "long");
    web_close(s.h);
}

static void test_quiet(void **state)
{
    (void)state;
    struct scene s = {0};
    pthread_t t;
    open_web(&s);
    int fd = long_body(&s);
    assert_int_equal(pthread_create(&t, NULL, let_go, &s), 0);
    web_quiet(s.h);
    assert_int_equal(atomic_load(&s.handling), 2); /* what it works with may be closed now */
    pthread_join(t, NULL);
    answered(fd, "long");
    web_close(s.h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unread),  cmocka_unit_test(test_through),
        cmocka_unit_test(test_framing), cmocka_unit_test(test_drip),
        cmocka_unit_test(test_long),    cmocka_unit_test(test_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
