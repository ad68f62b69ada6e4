/* SPDX-License-Identifier: MIT
 * t_tls_refuse.c: who gets in and what the others see: strangers, removed members, openssl without
 * and with the wrong key, old versions, other suites, HTTP, noise, silence, floods. */
#include "tests/peer/bare_tls.h"

#include "proto/base/num.h"

#include <errno.h>
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

static struct kit_id ka, kb, kx; /* a and b are members, x is not */
static struct kit_trust members;

static int setup(void **state)
{
    kit_id_make(&ka);
    kit_id_make(&kb);
    kit_id_make(&kx);
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
    assert_int_equal(tls_conn_send(l->c, secret, sizeof secret, NULL, TLS_CONTROL), 0);
}

struct server {
    uv_loop_t loop;
    struct kit_node n;
};

static void server_open(struct server *s, struct kit_trust *t, int max_in,
                        void (*change)(struct tls_opts *o))
{
    struct tls_opts o;
    memset(s, 0, sizeof *s);
    uv_loop_init(&s->loop);
    kit_opts(&o, &kb, t);
    o.max_failures_per_address = 1u << 30;
    if (change) {
        change(&o);
    }
    kit_node_open(&s->n, &s->loop, &o, "127.0.0.1", max_in);
    s->n.model.on_open = tell;
}

static void server_close(struct server *s)
{
    kit_node_close(&s->n);
    assert_int_equal(uv_loop_close(&s->loop), 0);
}

/* ---- keys ---- */

/* A client with key `k` that trusts `t` comes; what do both ends see? */
static void meet(const struct kit_id *k, struct kit_trust *client_trusts,
                 struct kit_trust *server_trusts, const uint8_t *expect, struct kit_log *cl,
                 struct tls_close *sv, struct tls_stats *st)
{
    struct server s;
    struct kit_node c;
    struct tls_opts o;
    server_open(&s, server_trusts, 1, NULL);
    kit_opts(&o, k, client_trusts);
    kit_node_open(&c, &s.loop, &o, NULL, 0);
    memset(cl, 0, sizeof *cl);
    struct tls_conn_opts co = {.expect = expect};
    kit_connect(&c, cl, "127.0.0.1", s.n.port, &co);
    assert_true(kit_until(&s.loop, &cl->closes, 1, 20000));
    assert_true(kit_until(&s.loop, &s.n.closes, 1, 20000));
    assert_int_equal(s.n.n_in, 0);
    assert_int_equal(cl->frames, 0); /* the secret stays one */
    *sv = s.n.why;
    tls_pool_stats(s.n.pool, st);
    assert_int_equal(st->handshakes, 0);
    kit_node_close(&c);
    server_close(&s);
}

static void t_stranger(void **state)
{
    struct kit_log cl;
    struct tls_close sv;
    struct tls_stats st;
    meet(&kx, &members, &members, NULL, &cl, &sv, &st);
    assert_int_equal(sv.end, TLS_END_STRANGER);
    assert_true(sv.has_id && memcmp(sv.id, kx.id, WIRE_ID) == 0);
    assert_non_null(strstr(sv.err.msg, "is not a member"));
    assert_int_equal(cl.why.end, TLS_END_REFUSED);
    assert_int_equal(cl.why.alert, 48);
    assert_string_equal(cl.why.err.msg, "the peer does not know us: join first");
    assert_int_equal(st.strangers, 1);
    assert_int_equal(st.failed, 1);
    assert_int_equal(st.opened, 0);
}

static void t_removed(void **state)
{
    struct kit_log cl;
    struct tls_close sv;
    struct tls_stats st;
    struct kit_trust t = members;
    t.of[t.n].id = kx.id;
    t.of[t.n++].trust = TLS_REMOVED;
    meet(&kx, &members, &t, NULL, &cl, &sv, &st);
    assert_int_equal(sv.end, TLS_END_REMOVED);
    assert_non_null(strstr(sv.err.msg, "was removed"));
    assert_int_equal(cl.why.alert, 44);
    assert_string_equal(cl.why.err.msg, "the peer's shoal has removed this node");
}

static void t_strange_server(void **state)
{
    struct kit_log cl;
    struct tls_close sv;
    struct tls_stats st;
    struct kit_trust nobody = {.n = 0};
    meet(&ka, &nobody, &members, NULL, &cl, &sv, &st);
    assert_int_equal(cl.opens, 0);
    assert_int_equal(cl.why.end, TLS_END_STRANGER);
    assert_int_equal(sv.end, TLS_END_REFUSED);
    assert_int_equal(sv.alert, 48);
}

static void t_expected(void **state)
{
    struct kit_log cl;
    struct tls_close sv;
    struct tls_stats st;
    meet(&ka, &members, &members, ka.id, &cl, &sv, &st); /* b answers */
    assert_int_equal(cl.opens, 0);
    assert_int_equal(cl.why.end, TLS_END_OTHER_ID);
    assert_memory_equal(cl.why.id, kb.id, WIRE_ID);
    assert_int_equal(sv.end, TLS_END_REFUSED);
}

static int only_x(void *ctx, const uint8_t id[WIRE_ID])
{
    return memcmp(id, ctx, WIRE_ID) == 0 ? TLS_MEMBER : TLS_STRANGER;
}

/* A connection's own judge replaces the pool's, in both senses. */
static void t_own_judge(void **state)
{
    struct server s;
    struct kit_node c;
    struct tls_opts o;
    struct kit_log l1 = {.keep = true}, l2 = {0};
    struct kit_trust nobody = {.n = 0};
    server_open(&s, &members, 2, NULL);
    kit_opts(&o, &ka, &nobody);
    kit_node_open(&c, &s.loop, &o, NULL, 0);
    struct tls_conn_opts yes = {.expect = kb.id, .trusted = only_x, .trusted_ctx = kb.id};
    struct tls_conn_opts no = {.trusted = only_x, .trusted_ctx = kx.id};
    kit_connect(&c, &l1, "127.0.0.1", s.n.port, &yes);
    kit_connect(&c, &l2, "127.0.0.1", s.n.port, &no);
    assert_true(kit_until(&s.loop, &l1.frames, 1, 20000));
    assert_string_equal((char *)l1.head->body, secret);
    assert_true(kit_until(&s.loop, &l2.closes, 1, 20000));
    assert_int_equal(l2.why.end, TLS_END_STRANGER);
    kit_node_close(&c);
    server_close(&s);
}

/* A guest gets in, but may only say little. */
static void t_guest(void **state)
{
    static const struct {
        size_t body, raw;
        bool ok;
    } cases[] = {
        {WIRE_BODY_GUEST, 0, true}, {WIRE_BODY_GUEST + 1, 0, false}, {5, 1, false}, {9, 1, true}};
    struct kit_trust t = members;
    static uint8_t bytes[WIRE_BODY_GUEST + 1];
    t.of[t.n].id = kx.id;
    t.of[t.n++].trust = TLS_GUEST;
    for (int i = 0; i < 4; i++) {
        struct server s;
        struct kit_node c;
        struct tls_opts o;
        struct kit_log cl = {0};
        server_open(&s, &t, 1, NULL);
        kit_opts(&o, &kx, &members);
        kit_node_open(&c, &s.loop, &o, NULL, 0);
        kit_connect(&c, &cl, "127.0.0.1", s.n.port, NULL);
        assert_true(kit_until(&s.loop, &cl.frames, 1, 20000));
        assert_int_equal(s.n.in[0].peer.trust, TLS_GUEST);
        if (i == 3) { /* as the second and third, after it became a member */
            tls_conn_promote(s.n.in[0].c);
        }
        struct tls_raw r = {bytes, cases[i].raw, NULL, NULL};
        assert_int_equal(tls_conn_send(cl.c, bytes, cases[i].body, &r, TLS_CONTROL), 0);
        if (cases[i].ok) {
            assert_true(kit_until(&s.loop, &s.n.in[0].frames, 1, 20000));
        } else {
            assert_true(kit_until(&s.loop, &s.n.in[0].closes, 1, 20000));
            assert_int_equal(s.n.in[0].why.end, TLS_END_PROTOCOL);
            assert_true(kit_until(&s.loop, &cl.closes, 1, 20000));
            assert_int_equal(cl.why.end, TLS_END_REFUSED);
            assert_int_equal(cl.why.alert, 50);
            assert_int_equal(s.n.in[0].frames, 0);
        }
        kit_node_close(&c);
        server_close(&s);
    }
}

static void t_own_key(void **state)
{
    uv_loop_t loop;
    struct tls_opts o;
    struct tls_pool *p;
    struct err e = {0};
    uv_loop_init(&loop);
    kit_opts(&o, &ka, &members);
    o.cert = kb.cert;
    o.cert_n = kb.cert_n;
    assert_int_equal(tls_pool_open(&loop, &o, &p, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "does not belong"));
    kit_opts(&o, &ka, &members);
    o.key = "garbage";
    o.key_n = 8;
    assert_int_equal(tls_pool_open(&loop, &o, &p, &e), ERR_ARG);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- openssl ---- */

struct child {
    uv_process_t proc;
    uv_pipe_t out;
    char text[65536];
    size_t n;
    int done; /* 2: exited and read to its end */
};

static void child_alloc(uv_handle_t *h, size_t hint, uv_buf_t *b)
{
    struct child *c = h->data;
    *b = uv_buf_init(c->text + c->n, (unsigned)(sizeof c->text - 1 - c->n));
}

static void child_read(uv_stream_t *h, ssize_t n, const uv_buf_t *b)
{
    struct child *c = h->data;
    if (n >= 0) {
        c->n += (size_t)n;
        return;
    }
    c->done++;
    uv_close((uv_handle_t *)h, NULL);
}

static void child_exit(uv_process_t *p, int64_t status, int signal)
{
    ((struct child *)p->data)->done++;
    uv_close((uv_handle_t *)p, NULL);
}

/* Runs openssl s_client with `extra` (ended by NULL) against the server; its output in c->text. */
static bool s_client(struct server *s, struct child *c, const char *const *extra)
{
    char to[40];
    char *argv[24] = {"openssl", "s_client", "-connect", to, "-ign_eof"};
    int n = 5;
    snprintf(to, sizeof to, "127.0.0.1:%d", s->n.port);
    while (*extra) {
        argv[n++] = (char *)(uintptr_t)*extra++;
    }
    memset(c, 0, sizeof *c);
    uv_pipe_init(&s->loop, &c->out, 0);
    c->out.data = c->proc.data = c;
    uv_stdio_container_t io[3] = {
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&c->out},
        {.flags = UV_IGNORE}};
    uv_process_options_t o = {
        .file = argv[0], .args = argv, .exit_cb = child_exit, .stdio = io, .stdio_count = 3};
    if (uv_spawn(&s->loop, &c->proc, &o)) {
        uv_close((uv_handle_t *)&c->proc, NULL);
        uv_close((uv_handle_t *)&c->out, NULL);
        return false;
    }
    uv_read_start((uv_stream_t *)&c->out, child_alloc, child_read);
    return true;
}

static void put_file(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static bool holds(const struct child *c, const char *s)
{
    size_t k = strlen(s);
    for (size_t i = 0; i + k <= c->n; i++) {
        if (memcmp(c->text + i, s, k) == 0) {
            return true;
        }
    }
    return false;
}

static void close_after_telling(struct kit_log *l)
{
    tell(l);
    tls_conn_close(l->c);
}

static void t_openssl(void **state)
{
    char dir[] = "/tmp/shoal-tls-XXXXXX", file[4][64];
    static const char *const names[] = {"a.pem", "a.der", "x.pem", "x.der"};
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 4; i++) {
        const struct kit_id *k = i < 2 ? &ka : &kx;
        snprintf(file[i], sizeof file[i], "%s/%s", dir, names[i]);
        put_file(file[i], i % 2 ? (const void *)k->cert : k->pem, i % 2 ? k->cert_n : k->pem_n - 1);
    }
#define MEMBER "-key", file[0], "-cert", file[1], "-certform", "DER"
    const struct {
        const char *what, *args[14];
        bool in;
        enum tls_end end, or_end;
    } cases[] = {
        {"a member", {MEMBER}, true, 0, 0},
        {"a member with TLS 1.2", {MEMBER, "-tls1_2"}, true, 0, 0},
        {"AES-GCM", {MEMBER, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"}, true, 0, 0},
        {"ChaCha20", {MEMBER, "-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"}, true, 0, 0},
        {"no certificate", {NULL}, false, TLS_END_NO_CERT, TLS_END_NO_CERT},
        {"no certificate, 1.2", {"-tls1_2"}, false, TLS_END_NO_CERT, TLS_END_NO_CERT},
        {"a stranger's certificate",
         {"-key", file[2], "-cert", file[3], "-certform", "DER"},
         false,
         TLS_END_STRANGER,
         TLS_END_STRANGER},
        {"TLS 1.1",
         {MEMBER, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"},
         false,
         TLS_END_NO_COMMON,
         TLS_END_PROTOCOL},
        {"TLS 1.0",
         {MEMBER, "-tls1", "-cipher", "ALL:@SECLEVEL=0"},
         false,
         TLS_END_NO_COMMON,
         TLS_END_PROTOCOL},
        {"CBC with SHA-1",
         {MEMBER, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"},
         false,
         TLS_END_NO_COMMON,
         TLS_END_NO_COMMON},
        {"CBC with SHA-384",
         {MEMBER, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-SHA384"},
         false,
         TLS_END_NO_COMMON,
         TLS_END_NO_COMMON},
        {"CBC with SHA-256",
         {MEMBER, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256:@SECLEVEL=0"},
         false,
         TLS_END_NO_COMMON,
         TLS_END_NO_COMMON},
        {"no encryption",
         {MEMBER, "-tls1_2", "-cipher", "ECDHE-ECDSA-NULL-SHA:@SECLEVEL=0"},
         false,
         TLS_END_NO_COMMON,
         TLS_END_NO_COMMON},
        {"RSA key exchange",
         {MEMBER, "-tls1_2", "-cipher", "AES128-GCM-SHA256"},
         false,
         TLS_END_NO_COMMON,
         TLS_END_NO_COMMON},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct server s;
        struct child c;
        server_open(&s, &members, 1, NULL);
        s.n.model.on_open = close_after_telling;
        if (!s_client(&s, &c, cases[i].args)) {
            uv_run(&s.loop, UV_RUN_NOWAIT);
            server_close(&s);
            skip(); /* no openssl program on this machine */
        }
        if (!kit_until(&s.loop, &c.done, 2, 60000)) {
            fail_msg("%s: openssl does not end", cases[i].what);
        }
        if (cases[i].in != (s.n.n_in == 1) || cases[i].in != holds(&c, secret)) {
            fail_msg("%s: %s: %s\n%s", cases[i].what, s.n.n_in ? "let in" : "refused",
                     s.n.why.err.msg, c.text);
        }
        if (!cases[i].in) {
            assert_true(kit_until(&s.loop, &s.n.closes, 1, 20000));
            if (s.n.why.end != cases[i].end && s.n.why.end != cases[i].or_end) {
                fail_msg("%s: %s", cases[i].what, s.n.why.err.msg);
            }
            if (cases[i].end == TLS_END_NO_COMMON && !strstr(s.n.why.err.msg, "TLS 1.2")) {
                fail_msg("%s: it does not say what is needed: %s", cases[i].what, s.n.why.err.msg);
            }
        }
        server_close(&s);
    }
    for (int i = 0; i < 4; i++) {
        unlink(file[i]);
    }
    rmdir(dir);
}

/* ---- not TLS at all ---- */

/* Sends `n` bytes, then reads to the end (at most 64 KiB); what came back is in out. */
static size_t talk(struct server *s, const void *p, size_t n, uint8_t out[65536], bool half_close)
{
    int closes = s->n.closes, fd = bare_connect(s->n.port);
    size_t got = 0;
    assert_int_equal(send(fd, p, n, MSG_NOSIGNAL), (ssize_t)n);
    if (half_close) {
        shutdown(fd, SHUT_WR);
    }
    /* The server reads, answers and half-closes; then our end closes the rest. */
    struct pollfd pf = {.fd = fd, .events = POLLIN};
    for (int i = 0; i < 4000; i++) {
        uv_run(&s->loop, UV_RUN_NOWAIT);
        if (poll(&pf, 1, 5) == 1) {
            ssize_t r = recv(fd, out + got, 65536 - got, 0);
            if (r <= 0) {
                break;
            }
            got += (size_t)r;
        }
    }
    close(fd);
    assert_true(kit_until(&s->loop, &s->n.closes, closes + 1, 20000));
    return got;
}

static void t_not_tls(void **state)
{
    struct server s;
    static uint8_t out[65536], noise[3000];
    struct tls_stats st;
    server_open(&s, &members, 0, NULL);
    static const char get[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    size_t n = talk(&s, get, sizeof get - 1, out, false);
    assert_int_equal(s.n.why.end, TLS_END_NOT_TLS);
    assert_non_null(strstr(s.n.why.err.msg, "plain HTTP"));
    assert_true(n <= 7); /* at most one alert record */
    n = talk(&s, "SSH-2.0-OpenSSH_9\r\n", 19, out, false);
    assert_int_equal(s.n.why.end, TLS_END_NOT_TLS);
    assert_null(strstr(s.n.why.err.msg, "HTTP"));
    assert_true(n <= 7);
    tls_pool_stats(s.n.pool, &st);
    assert_int_equal(st.not_tls, 2);
    unsigned seed = 7;
    for (int round = 0; round < 40; round++) {
        size_t k = 1 + seed % sizeof noise;
        for (size_t i = 0; i < k; i++) {
            seed = seed * 1664525 + 1013904223;
            noise[i] = (uint8_t)(seed >> 24);
        }
        if (round % 2) { /* a TLS record head before it: a handshake that makes no sense */
            static const uint8_t head[] = {22, 3, 1, 0, 40, 1, 0, 0, 36, 3, 3};
            memcpy(noise, head, k < sizeof head ? k : sizeof head);
        }
        n = talk(&s, noise, k, out, true);
        assert_true(n <= 7);
        assert_true(s.n.why.end == TLS_END_NOT_TLS || s.n.why.end == TLS_END_PROTOCOL ||
                    s.n.why.end == TLS_END_LOST || s.n.why.end == TLS_END_NO_COMMON);
    }
    n = talk(&s, "", 0, out, true); /* a port scan */
    assert_int_equal(n, 0);
    assert_int_equal(s.n.why.end, TLS_END_LOST);
    assert_int_equal(s.n.n_in, 0);
    server_close(&s);
}

/* ---- slow and many ---- */

static void slow_limits(struct tls_opts *o)
{
    o->handshake_ms = 400;
    o->max_handshakes = 6;
    o->max_handshakes_per_address = 4;
    o->max_failures_per_address = 10;
}

static void t_slow(void **state)
{
    struct server s;
    struct tls_stats st;
    int fd[8];
    struct sockaddr_in host = {.sin_family = AF_INET}, other = host;
    host.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    other.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    server_open(&s, &members, 1, slow_limits);
    assert_false(tls_pool_shaking(s.n.pool, (struct sockaddr *)&host));
    /* Four that say nothing, or a byte now and then, are waited for; the rest are turned away. */
    for (int i = 0; i < 8; i++) {
        fd[i] = bare_connect(s.n.port);
    }
    kit_run_ms(&s.loop, 100);
    tls_pool_stats(s.n.pool, &st);
    assert_int_equal(st.accepted, 8);
    assert_int_equal(st.over_limit, 4);
    assert_int_equal(st.handshakes, 4);
    assert_true(tls_pool_shaking(s.n.pool, (struct sockaddr *)&host)); /* whatever the port */
    assert_false(tls_pool_shaking(s.n.pool, (struct sockaddr *)&other));
    static const uint8_t head[] = {22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3};
    for (size_t i = 0; i < sizeof head && !s.n.closes; i++) {
        send(fd[0], head + i, 1, MSG_NOSIGNAL);
        kit_run_ms(&s.loop, 20);
    }
    assert_true(kit_until(&s.loop, &s.n.closes, 4, 20000));
    assert_int_equal(s.n.why.end, TLS_END_TIMEOUT);
    tls_pool_stats(s.n.pool, &st);
    assert_int_equal(st.handshakes, 0);
    assert_int_equal(st.failed, 4);
    assert_false(tls_pool_shaking(s.n.pool, (struct sockaddr *)&host));
    for (int i = 0; i < 8; i++) {
        close(fd[i]);
    }
    /* An address that keeps failing is not answered for a while. */
    for (int i = 0; i < 12; i++) {
        int f = bare_connect(s.n.port);
        close(f);
        kit_run_ms(&s.loop, 20);
    }
    tls_pool_stats(s.n.pool, &st);
    assert_int_equal(st.failed, 10);
    assert_int_equal(st.over_limit, 4 + 6);
    server_close(&s);
}

static void few_bytes(struct tls_opts *o)
{
    o->handshake_bytes = 1000;
}

static void t_too_much(void **state)
{
    struct server s;
    static uint8_t out[65536], p[5000] = {22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xf0};
    server_open(&s, &members, 0, few_bytes);
    talk(&s, p, sizeof p, out, false);
    assert_int_equal(s.n.why.end, TLS_END_LIMIT);
    server_close(&s);
}

static void t_unreachable(void **state)
{
    uv_loop_t loop;
    struct kit_node a;
    struct tls_opts o;
    struct kit_log l = {0};
    int port, fd = bare_listen(&port);
    close(fd); /* a port where nobody listens */
    uv_loop_init(&loop);
    kit_opts(&o, &ka, &members);
    kit_node_open(&a, &loop, &o, NULL, 0);
    kit_connect(&a, &l, "127.0.0.1", port, NULL);
    assert_true(kit_until(&loop, &l.closes, 1, 20000));
    assert_int_equal(l.why.end, TLS_END_CONNECT);
    assert_non_null(strstr(l.why.err.msg, "refused"));
    assert_false(l.why.opened);
    kit_node_close(&a);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- words ---- */

static void t_words(void **state)
{
    static const int unknown[] = {41, 42, 46, 48, 49, 116};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_string_equal(tls_alert_text(unknown[i]), "the peer does not know us: join first");
    }
    for (int i = -1; i < 300; i++) {
        assert_true(strlen(tls_alert_text(i)) > 10);
    }
    assert_non_null(strstr(tls_alert_text(44), "removed"));
    assert_string_equal(tls_end_text(TLS_END_PEER), "closed by the peer");
    assert_non_null(tls_end_text((enum tls_end)99));
    const struct tls_speed *s = tls_suite_speed();
    assert_true(s->aes_gcm > 0 && s->chacha20 > 0);
    assert_ptr_equal(s, tls_suite_speed());
    assert_ptr_equal(tls_suite_list(TLS_FASTEST),
                     tls_suite_list(s->chacha20 > s->aes_gcm ? TLS_CHACHA20 : TLS_AES_GCM));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_words),       cmocka_unit_test(t_stranger),
        cmocka_unit_test(t_removed),     cmocka_unit_test(t_strange_server),
        cmocka_unit_test(t_expected),    cmocka_unit_test(t_own_judge),
        cmocka_unit_test(t_guest),       cmocka_unit_test(t_own_key),
        cmocka_unit_test(t_openssl),     cmocka_unit_test(t_not_tls),
        cmocka_unit_test(t_slow),        cmocka_unit_test(t_too_much),
        cmocka_unit_test(t_unreachable),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
