/* SPDX-License-Identifier: MIT
 * t_tls_rude.c: members that break the protocol, and connections cut after any number of bytes. */
#include "peer/tls_internal.h"
#include "tests/peer/bare_tls.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct kit_id ka, kb;
static struct kit_trust members;

static int setup(void **state)
{
    kit_id_make(&ka);
    kit_id_make(&kb);
    members.n = 2;
    members.of[0].id = ka.id;
    members.of[1].id = kb.id;
    members.of[0].trust = members.of[1].trust = TLS_MEMBER;
    return 0;
}

/* A server node that tells whoever gets in a secret and closes. */
static const char secret[] = "the secret of the shoal";

static void tell(struct kit_log *l)
{
    int r = tls_conn_send(l->c, secret, sizeof secret, NULL, TLS_CONTROL);
    assert_true(r == 0 || r == ERR_CANCELLED); /* it may have ended by now */
}

struct server {
    uv_loop_t loop;
    struct kit_node n;
};

static void server_open(struct server *s, int max_in)
{
    struct tls_opts o;
    memset(s, 0, sizeof *s);
    uv_loop_init(&s->loop);
    kit_opts(&o, &kb, &members);
    o.max_failures_per_address = 1u << 30;
    kit_node_open(&s->n, &s->loop, &o, "127.0.0.1", max_in);
    s->n.model.on_open = tell;
}

static void server_close(struct server *s)
{
    kit_node_close(&s->n);
    assert_int_equal(uv_loop_close(&s->loop), 0);
}

/* ---- members that break the protocol ---- */

struct rude {
    int port, result;
    uint8_t bytes[64];
    size_t n;
    bool notify, garbage;
};

static void *be_rude(void *arg)
{
    struct rude *r = arg;
    uint8_t in[64];
    struct bare *b = bare_new(bare_connect(r->port), false, &ka, TLS_FASTEST);
    r->result = bare_handshake(b);
    if (!r->result && r->garbage) {
        send(bare_socket(b), r->bytes, r->n, MSG_NOSIGNAL);
    } else if (!r->result) {
        r->result = bare_write(b, r->bytes, r->n);
    }
    if (!r->result) {
        /* What the server told us first: closing with it unread would reset the connection. */
        r->result = bare_read(b, in, WIRE_HEAD + sizeof secret);
    }
    if (!r->result && !r->notify) {
        r->result = bare_read(b, in, 1); /* how it ends */
    }
    bare_free(b, r->notify);
    return NULL;
}

static void t_rude(void **state)
{
#define HEAD(body, raw)                                                                 \
    (body) & 255, (body) >> 8 & 255, (body) >> 16 & 255, (body) >> 24 & 255, (raw)&255, \
        (raw) >> 8 & 255, (raw) >> 16 & 255, (raw) >> 24 & 255
    static const struct {
        const char *what;
        uint8_t bytes[64];
        size_t n;
        bool notify, garbage;
        int frames;
        enum tls_end end;
        const char *says;
    } cases[] = {
        {"a body of 0 bytes",
         {HEAD(0u, 0u)},
         8,
         false,
         false,
         0,
         TLS_END_PROTOCOL,
         "without a body"},
        {"a body of 2^32-1", {HEAD(~0u, 0u)}, 8, false, false, 0, TLS_END_PROTOCOL, "4294967295"},
        {"raw of 2^32-1", {HEAD(1u, ~0u)}, 8, false, false, 0, TLS_END_PROTOCOL, "4294967295 raw"},
        {"a body of 1 byte", {HEAD(1u, 0u), 'x'}, 9, true, false, 1, TLS_END_PEER, ""},
        {"half a head", {HEAD(1u, 0u)}, 5, true, false, 0, TLS_END_LOST, "middle of a frame"},
        {"half a body", {HEAD(50u, 0u), 1, 2, 3}, 11, true, false, 0, TLS_END_LOST, "middle"},
        {"half of raw", {HEAD(2u, 50u), 1, 2, 3}, 11, true, false, 0, TLS_END_LOST, "middle"},
        {"two frames, then noise",
         {HEAD(1u, 0u), 'x', HEAD(1u, 0u), 'y', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
         26,
         false,
         false,
         2,
         TLS_END_PROTOCOL,
         "at most"},
        {"no record", "this is no TLS record at all", 28, false, true, 0, TLS_END_PROTOCOL,
         "damaged"},
        {"a forged record",
         {23, 3, 3, 0, 40, 1, 2, 3, 4, 5, 6, 7, 8, 9},
         45,
         false,
         true,
         0,
         TLS_END_PROTOCOL,
         "damaged"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct server s;
        pthread_t t;
        struct rude r = {.n = cases[i].n, .notify = cases[i].notify, .garbage = cases[i].garbage};
        server_open(&s, 1);
        r.port = s.n.port;
        memcpy(r.bytes, cases[i].bytes, r.n);
        pthread_create(&t, NULL, be_rude, &r);
        assert_true(kit_until(&s.loop, &s.n.n_in, 1, 20000));
        assert_true(kit_until(&s.loop, &s.n.in[0].closes, 1, 20000));
        pthread_join(t, NULL);
        if (s.n.in[0].why.end != cases[i].end || !strstr(s.n.in[0].why.err.msg, cases[i].says) ||
            s.n.in[0].frames != cases[i].frames) {
            fail_msg("%s: %d frames, end %d: %s", cases[i].what, s.n.in[0].frames,
                     s.n.in[0].why.end, s.n.in[0].why.err.msg);
        }
        assert_true(cases[i].notify || r.result); /* it was told, or saw the end */
        server_close(&s);
    }
}

/* ---- a connection that ends is in no list any more ---- */

static void t_unnotify(void **state)
{
    for (unsigned gone = 0; gone < 3; gone++) {
        struct tls_worker w = {0};
        struct tls_conn *c = calloc(4, sizeof *c), *rest[2];
        unsigned n = 0;
        for (unsigned i = 0; i < 4; i++) { /* the fourth is in no list */
            c[i].worker = &w;
            c[i].sh.in_notify = i < 3;
            c[i].notify_next = i < 2 ? &c[i + 1] : NULL;
        }
        w.notify_head = &c[0];
        w.notify_tail = &c[2];
        tls_worker_unnotify(&c[3]);
        tls_worker_unnotify(&c[gone]);
        tls_worker_unnotify(&c[gone]);
        for (unsigned i = 0; i < 3; i++) {
            if (i != gone) {
                rest[n++] = &c[i];
            }
        }
        assert_ptr_equal(w.notify_head, rest[0]);
        assert_ptr_equal(rest[0]->notify_next, rest[1]);
        assert_null(rest[1]->notify_next);
        assert_ptr_equal(w.notify_tail, rest[1]);
        assert_false(c[gone].sh.in_notify);
        tls_worker_unnotify(rest[0]);
        tls_worker_unnotify(rest[1]);
        assert_null(w.notify_head);
        assert_null(w.notify_tail);
        free(c);
    }
}

/* ---- cut after any number of bytes ---- */

/* Carries one connection between two nodes and cuts it when `limit` bytes went in one direction. */
struct relay {
    int listen, port, to;
    int direction; /* 0: from the client, 1: from the server */
    size_t limit;
    _Atomic(size_t) carried[2]; /* also read while the thread runs */
};

static void *carry(void *arg)
{
    struct relay *r = arg;
    int fd[2] = {accept(r->listen, NULL, NULL), bare_connect(r->to)};
    uint8_t b[4096];
    for (bool on = true; on;) {
        struct pollfd p[2] = {{.fd = fd[0], .events = POLLIN}, {.fd = fd[1], .events = POLLIN}};
        if (r->carried[r->direction] >= r->limit || poll(p, 2, 20000) <= 0) {
            break;
        }
        for (int i = 0; i < 2 && on; i++) {
            size_t max = i == r->direction ? r->limit - r->carried[i] : sizeof b;
            if (!p[i].revents || !max) {
                continue;
            }
            ssize_t n = recv(fd[i], b, max < sizeof b ? max : sizeof b, 0);
            on = n > 0 && send(fd[1 - i], b, (size_t)n, MSG_NOSIGNAL) == n;
            r->carried[i] += n > 0 ? (size_t)n : 0;
        }
    }
    close(fd[0]);
    close(fd[1]);
    return NULL;
}

static bool both_heard(void *ctx)
{
    struct kit_log **l = ctx;
    return l[0]->frames && l[1]->frames;
}

static void t_cut(void **state)
{
    struct server s;
    struct kit_node c;
    struct tls_opts o;
    enum { RUNS = 400 };
    server_open(&s, RUNS);
    kit_opts(&o, &ka, &members);
    kit_node_open(&c, &s.loop, &o, NULL, 0);
    struct relay r = {.to = s.n.port};
    r.listen = bare_listen(&r.port);
    /* Once without a cut, to know how much there is. */
    size_t whole[2];
    struct kit_log *cl = calloc(RUNS, sizeof *cl);
    pthread_t t;
    r.limit = SIZE_MAX;
    cl[0].on_open = tell;
    pthread_create(&t, NULL, carry, &r);
    kit_connect(&c, &cl[0], "127.0.0.1", r.port, NULL);
    assert_true(kit_until(&s.loop, &cl[0].opens, 1, 20000));
    assert_true(kit_until(&s.loop, &s.n.n_in, 1, 20000));
    struct kit_log *ends[2] = {&cl[0], &s.n.in[0]};
    assert_true(kit_until_fn(&s.loop, both_heard, ends, 20000));
    whole[0] = r.carried[0];
    whole[1] = r.carried[1];
    assert_true(whole[0] > 500 && whole[1] > 500);
    tls_conn_abort(cl[0].c);
    assert_true(kit_until(&s.loop, &s.n.in[0].closes, 1, 20000));
    pthread_join(t, NULL);
    int run = 1, cut_open = 0;
    for (int d = 0; d < 2; d++) {
        for (size_t n = 0; n < whole[d] && run < RUNS; n += n < 12 ? 1 : 13, run++) {
            int failed = s.n.closes, in = s.n.n_in;
            r = (struct relay){r.listen, r.port, s.n.port, d, n, {0, 0}};
            cl[run].on_open = tell;
            pthread_create(&t, NULL, carry, &r);
            kit_connect(&c, &cl[run], "127.0.0.1", r.port, NULL);
            assert_true(kit_until(&s.loop, &cl[run].closes, 1, 20000));
            for (int i = 0;
                 i < 2000 && s.n.closes == failed && (s.n.n_in == in || !s.n.in[in].closes); i++) {
                kit_run_ms(&s.loop, 10);
            }
            pthread_join(t, NULL);
            assert_int_equal(cl[run].why.end, TLS_END_LOST);
            assert_int_equal(cl[run].why.err.code, ERR_NET);
            if (s.n.n_in > in) {
                cut_open++;
                assert_int_equal(s.n.in[in].closes, 1);
                assert_int_equal(s.n.in[in].why.end, TLS_END_LOST);
                /* The last byte of one direction is missing: its frame cannot have come. */
                assert_int_equal(d == 0 ? s.n.in[in].frames : cl[run].frames, 0);
            } else {
                assert_int_equal(s.n.closes, failed + 1);
            }
        }
    }
    assert_true(run > 60 && run < RUNS);
    assert_true(cut_open > 0); /* some cuts fell after the handshake */
    close(r.listen);
    kit_node_close(&c);
    server_close(&s);
    free(cl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_rude),
        cmocka_unit_test(t_unnotify),
        cmocka_unit_test(t_cut),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
