/* SPDX-License-Identifier: MIT
 * t_web_slow.c: streams and their readers: one that does not read is given up when a megabyte
 * waits; one that is always behind gets all of a long stream, and the server holds two megabytes at
 * most. */
#include "node/api/web_int.h"
#include "proto/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS 60000000000ull
#define BLOCK ((size_t)32 << 10)
#define LONG ((uint64_t)80 << 20) /* more than any buffer may take */

struct scene {
    struct web *h;
    _Atomic(struct web_req *) r; /* held by the handler */
    atomic_int gone;
    int fd;
    uint64_t written;
};

static void on_gone(void *ctx)
{
    struct scene *s = ctx;
    atomic_fetch_add(&s->gone, 1);
}

static void handle(void *ctx, struct web_req *r)
{
    struct scene *s = ctx;
    web_hold(r);
    web_on_gone(r, on_gone, s);
    web_stream(r, 200, "text/plain");
    atomic_store(&s->r, r);
}

static void refuse(void *ctx, struct web_req *r, int status, const char *code, const char *text)
{
    (void)ctx;
    (void)code;
    web_answer(r, status, "text/plain", text, strlen(text));
}

static void begin(struct scene *s)
{
    static const char get[] = "GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct err e = {0};
    struct web_opts o = {.host = "127.0.0.1", .ctx = s, .handle = handle, .refuse = refuse};
    struct sockaddr_in to = {.sin_family = AF_INET};
    memset(s, 0, sizeof *s);
    assert_int_equal(web_open(&o, &s->h, &e), 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)strtoul(strrchr(web_url(s->h), ':') + 1, NULL, 10));
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(s->fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(write(s->fd, get, sizeof get - 1), sizeof get - 1);
    for (uint64_t end = clock_ns() + PATIENCE_NS; !atomic_load(&s->r); usleep(1000)) {
        assert_true(clock_ns() < end);
    }
}

static uint64_t pulled(struct scene *s)
{
    struct web_stats t;
    web_get_stats(s->h, &t);
    return t.bytes_out;
}

/* The stream's byte number i. */
static char byte_at(uint64_t i)
{
    return (char)('a' + i % 23);
}

static bool put_block(struct scene *s)
{
    char b[BLOCK];
    for (size_t i = 0; i < BLOCK; i++) {
        b[i] = byte_at(s->written + i);
    }
    if (!web_write(s->r, b, BLOCK)) {
        return false;
    }
    s->written += BLOCK;
    return true;
}

/* ---- chunked transfer, as it comes ---- */

struct body {
    enum { HEAD, SIZE, DATA, TAIL, OVER } at;
    unsigned ends; /* of the four bytes that end the head */
    uint64_t left, got;
};

static void take(struct body *b, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        switch (b->at) {
        case HEAD:
            b->ends = c == "\r\n\r\n"[b->ends] ? b->ends + 1 : c == '\r';
            b->at = b->ends == 4 ? SIZE : HEAD;
            break;
        case SIZE:
            if (c == '\n') {
                b->at = b->left ? DATA : OVER;
            } else if (c != '\r') {
                b->left = b->left * 16 + (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
            }
            break;
        case DATA:
            if (c != byte_at(b->got)) {
                fail_msg("byte %llu of the stream is another", (unsigned long long)b->got);
            }
            b->got++;
            b->at = --b->left ? DATA : TAIL;
            break;
        case TAIL:
            b->at = c == '\n' ? SIZE : TAIL;
            break;
        case OVER:
            break;
        }
    }
}

/* Reads at most `most` bytes of what is there; with `wait`, all until the end. */
static void read_some(struct scene *s, struct body *b, size_t most, bool wait)
{
    char p[BLOCK];
    for (size_t sum = 0; wait || sum < most;) {
        ssize_t n = recv(s->fd, p, sizeof p, wait ? 0 : MSG_DONTWAIT);
        if (n <= 0) {
            return;
        }
        take(b, p, (size_t)n);
        sum += (size_t)n;
    }
}

/* ---- tests ---- */

static void test_never_read(void **state)
{
    (void)state;
    struct scene s;
    struct body b = {0};
    begin(&s);
    while (put_block(&s)) {
        assert_true(s.written < LONG); /* a megabyte, and what the system takes */
        usleep(200);
    }
    assert_true(s.written >= WEB_STREAM_MAX);
    assert_int_equal(atomic_load(&s.gone), 1);
    assert_false(put_block(&s));
    assert_int_equal(atomic_load(&s.gone), 1);
    web_end(s.r);
    web_release(s.r);
    read_some(&s, &b, 0, true);
    assert_true(b.at != OVER && b.got <= s.written); /* it must not look whole */
    close(s.fd);
    web_close(s.h);
}

static void test_always_behind(void **state)
{
    (void)state;
    struct scene s;
    struct body b = {0};
    unsigned still = 0; /* looks at which the library had taken nothing */
    begin(&s);
    for (uint64_t end = clock_ns() + PATIENCE_NS; s.written < LONG;) {
        assert_true(clock_ns() < end);
        uint64_t before = s.written;
        while (s.written - pulled(&s) < WEB_STREAM_MAX / 2) {
            assert_true(put_block(&s));
        }
        still = s.written == before ? still + 1 : still;
        if (still >= 50) { /* the system's buffers are full by now */
            read_some(&s, &b, WEB_STREAM_MAX / 4, false);
        } else {
            usleep(1000);
        }
        pthread_mutex_lock(&s.r->mu);
        size_t held = s.r->out.n;
        pthread_mutex_unlock(&s.r->mu);
        assert_true(held <= 2 * WEB_STREAM_MAX);
    }
    web_end(s.r);
    read_some(&s, &b, 0, true);
    assert_int_equal(b.at, OVER);
    assert_int_equal(b.got, s.written);
    assert_int_equal(atomic_load(&s.gone), 0);
    web_release(s.r);
    close(s.fd);
    web_close(s.h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_read),
        cmocka_unit_test(test_always_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
