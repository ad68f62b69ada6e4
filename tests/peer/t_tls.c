/* SPDX-License-Identifier: MIT
 * t_tls.c: two nodes on loopback: frames both ways, limits of every queue, order by priority, the
 * ends of a connection. Who is let in is in t_tls_refuse.c. */
#include "tests/peer/wire_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct kit_id ka, kb;
static struct kit_trust both; /* a and b are members */

static int setup(void **state)
{
    kit_id_make(&ka);
    kit_id_make(&kb);
    both.n = 2;
    both.of[0].id = ka.id;
    both.of[1].id = kb.id;
    both.of[0].trust = both.of[1].trust = TLS_MEMBER;
    return 0;
}

/* Two nodes and a connection from a (client) to b; `cl` and b.in[0] are its ends. */
struct pair {
    uv_loop_t loop;
    struct kit_node a, b;
    struct kit_log cl;
};

static void pair_open(struct pair *p, const struct tls_opts *oa, const struct tls_opts *ob,
                      const char *host)
{
    struct tls_opts da, db;
    memset(p, 0, sizeof *p);
    uv_loop_init(&p->loop);
    kit_opts(&da, &ka, &both);
    kit_opts(&db, &kb, &both);
    kit_node_open(&p->a, &p->loop, oa ? oa : &da, NULL, 0);
    kit_node_open(&p->b, &p->loop, ob ? ob : &db, host, 4);
    p->b.model.keep = p->cl.keep = true;
    kit_connect(&p->a, &p->cl, host, p->b.port, NULL);
    assert_true(kit_until(&p->loop, &p->cl.opens, 1, 20000));
    assert_true(kit_until(&p->loop, &p->b.n_in, 1, 20000));
}

static void pair_close(struct pair *p)
{
    kit_node_close(&p->a);
    kit_node_close(&p->b);
    assert_int_equal(uv_loop_close(&p->loop), 0); /* nothing left open */
}

static void released(void *ctx, const uint8_t *p)
{
    ++*(int *)ctx;
}

static uint8_t *pattern(size_t n, unsigned seed)
{
    uint8_t *p = malloc(n);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        p[i] = (uint8_t)(seed >> 24);
    }
    return p;
}

static void exchange(const char *host)
{
    struct pair p;
    pair_open(&p, NULL, NULL, host);
    struct kit_log *sv = &p.b.in[0];
    assert_memory_equal(p.cl.peer.id, kb.id, WIRE_ID);
    assert_memory_equal(sv->peer.id, ka.id, WIRE_ID);
    assert_int_equal(p.cl.peer.trust, TLS_MEMBER);
    assert_true(strncmp(p.cl.peer.version, "TLSv1.", 6) == 0 && p.cl.peer.version[6] >= '2');
    assert_true(strncmp(sv->address, strchr(host, ':') ? "[::1]:" : "127.0.0.1:", 6) == 0);

    int rel = 0;
    uint8_t sha[SHA256_SIZE], *raw = pattern(WIRE_RAW_MAX, 1);
    struct tls_raw r = {raw, WIRE_RAW_MAX, released, &rel};
    sha256(raw, WIRE_RAW_MAX, sha);
    assert_int_equal(tls_conn_send(p.cl.c, "hello", 5, NULL, TLS_CONTROL), 0);
    assert_int_equal(tls_conn_send(sv->c, "data", 4, &r, TLS_DEMAND), 0);
    assert_true(kit_until(&p.loop, &p.cl.frames, 1, 20000));
    assert_true(kit_until(&p.loop, &sv->frames, 1, 20000));
    assert_true(kit_until(&p.loop, &rel, 1, 20000));
    assert_int_equal(sv->head->body_n, 5);
    assert_memory_equal(sv->head->body, "hello", 5);
    assert_int_equal(p.cl.head->raw_n, WIRE_RAW_MAX);
    assert_memory_equal(p.cl.head->raw, raw, WIRE_RAW_MAX);
    assert_memory_equal(p.cl.head->raw_sha256, sha, SHA256_SIZE);
    assert_int_equal(tls_conn_queued(sv->c), 0);
    uint64_t in, out;
    tls_conn_bytes(p.cl.c, &in, &out);
    assert_int_equal(in, WIRE_HEAD + 4 + WIRE_RAW_MAX);
    assert_int_equal(out, WIRE_HEAD + 5);

    /* The client closes in order: both ends know why; what was queued still arrives. */
    assert_int_equal(tls_conn_send(p.cl.c, "bye", 3, NULL, TLS_BACKGROUND), 0);
    tls_conn_close(p.cl.c);
    assert_int_equal(tls_conn_send(p.cl.c, "x", 1, NULL, TLS_CONTROL), ERR_CANCELLED);
    assert_true(kit_until(&p.loop, &p.cl.closes, 1, 20000));
    assert_true(kit_until(&p.loop, &sv->closes, 1, 20000));
    assert_int_equal(sv->frames, 2);
    assert_int_equal(p.cl.why.end, TLS_END_LOCAL);
    assert_int_equal(sv->why.end, TLS_END_PEER);
    assert_int_equal(sv->why.err.code, ERR_OK);
    assert_true(sv->why.opened && sv->why.has_id);
    assert_int_equal(rel, 1);
    free(raw);
    pair_close(&p);
}

static void t_exchange_v4(void **state)
{
    exchange("127.0.0.1");
}

static void t_exchange_v6(void **state)
{
    uv_loop_t loop;
    uv_tcp_t s;
    struct sockaddr_in6 a;
    uv_loop_init(&loop);
    uv_tcp_init(&loop, &s);
    uv_ip6_addr("::1", 0, &a);
    int r = uv_tcp_bind(&s, (struct sockaddr *)&a, 0);
    uv_close((uv_handle_t *)&s, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    if (r == UV_EADDRNOTAVAIL || r == UV_EAFNOSUPPORT) {
        skip(); /* no IPv6 on this machine */
    }
    exchange("::1");
}

/* Frames of every small size and around record borders, thousands of them, in order. */
static void t_sizes(void **state)
{
    struct pair p;
    pair_open(&p, NULL, NULL, "127.0.0.1");
    struct kit_log *sv = &p.b.in[0];
    uint8_t *bytes = pattern(WIRE_RAW_MAX, 2);
    static const size_t edge[] = {16376 - 3, 16376, 16384 - 9, 16384, 16385, 32768, 65536, 262144};
    int sent = 0;
    for (size_t i = 0; i < 600; i++) {
        size_t body = i < 500 ? i + 1 : 1 + (i * 37) % 20000;
        size_t raw = i % 3 == 0 ? 0 : i % 3 == 1 ? i + 1 : edge[i % 8];
        if (i >= 500 && i % 5 == 0) {
            body = edge[i / 5 % 8];
        }
        struct tls_raw r = {bytes + i, raw, NULL, NULL};
        int code;
        while ((code = tls_conn_send(p.cl.c, bytes + 2 * i, body, raw ? &r : NULL, TLS_DEMAND)) ==
               ERR_BUSY) {
            uv_run(&p.loop, UV_RUN_ONCE);
        }
        assert_int_equal(code, 0);
        sent++;
    }
    assert_true(kit_until(&p.loop, &sv->frames, sent, 60000));
    size_t i = 0;
    for (struct frame *f = sv->head; f; f = f->next, i++) {
        size_t raw = i % 3 == 0 ? 0 : i % 3 == 1 ? i + 1 : edge[i % 8];
        assert_memory_equal(f->body, bytes + 2 * i, f->body_n);
        assert_int_equal(f->raw_n, raw);
        assert_true(!raw || memcmp(f->raw, bytes + i, raw) == 0);
    }
    assert_int_equal(i, sent);
    assert_int_equal(tls_conn_send(p.cl.c, bytes, 0, NULL, TLS_DEMAND), ERR_LIMIT);
    assert_int_equal(tls_conn_send(p.cl.c, bytes, WIRE_BODY_MAX + 1, NULL, TLS_DEMAND), ERR_LIMIT);
    free(bytes);
    pair_close(&p);
}

/* A receiver that does not take frames stalls the sender at a bounded number of bytes; then all
 * arrive, and the sender is told when there is room. */
static void t_backpressure(void **state)
{
    struct pair p;
    struct tls_opts oa, ob;
    kit_opts(&oa, &ka, &both);
    kit_opts(&ob, &kb, &both);
    oa.send_max = 4 << 20;
    ob.receive_max = 3 << 20;
    pair_open(&p, &oa, &ob, "127.0.0.1");
    struct kit_log *sv = &p.b.in[0];
    uint8_t *bytes = pattern(WIRE_RAW_MAX, 3);
    struct tls_raw r = {bytes, WIRE_RAW_MAX, NULL, NULL};
    sv->keep = false;
    tls_conn_pause(sv->c);
    int sent = 0, quiet = 0;
    while (quiet < 40 && sent < 200) {
        if (tls_conn_send(p.cl.c, "x", 1, &r, TLS_DEMAND) == 0) {
            sent++;
            quiet = 0;
        } else {
            kit_run_ms(&p.loop, 10);
            quiet++;
        }
    }
    /* 4 + 3 MiB of our queues, one chunk each of slack, 1 MiB of ciphertext, and what two kernel
     * buffers take (4 + 6 MiB at most on Linux). */
    assert_in_range(sent, 4, 24);
    assert_int_equal(sv->frames, 0);
    int drains = p.cl.drains; /* the queue may have been half empty on the way */
    tls_conn_resume(sv->c);
    assert_true(kit_until(&p.loop, &sv->frames, sent, 60000));
    assert_true(kit_until(&p.loop, &p.cl.drains, drains + 1, 20000));
    /* Pause in the middle, then close: no frame comes after that. */
    assert_int_equal(tls_conn_send(p.cl.c, "y", 1, NULL, TLS_DEMAND), 0);
    tls_conn_pause(sv->c);
    kit_run_ms(&p.loop, 50);
    tls_conn_close(sv->c);
    assert_true(kit_until(&p.loop, &sv->closes, 1, 20000));
    assert_int_equal(sv->frames, sent);
    free(bytes);
    pair_close(&p);
}

/* A control frame may go a quarter over the limit, nothing goes further. */
static void t_send_limit(void **state)
{
    struct pair p;
    struct tls_opts oa;
    kit_opts(&oa, &ka, &both);
    oa.send_max = 1 << 20;
    pair_open(&p, &oa, NULL, "127.0.0.1");
    uint8_t *bytes = pattern(WIRE_BODY_MAX, 4);
    int n[2] = {0, 0}; /* the loop does not run: nothing goes out beyond what the worker takes */
    tls_conn_pause(p.b.in[0].c);
    for (int i = 0; i < 2; i++) {
        while (tls_conn_send(p.cl.c, bytes, WIRE_BODY_MAX, NULL, i ? TLS_CONTROL : TLS_DEMAND) ==
               0) {
            n[i]++;
        }
    }
    assert_true(n[0] >= 3 && n[0] <= 7);
    assert_true(n[1] >= 1 && n[1] <= 4);
    assert_true(tls_conn_queued(p.cl.c) <= (1 << 20) + (1 << 18) + (1 << 20));
    free(bytes);
    pair_close(&p);
}

/* ---- order ---- */

struct order {
    int background_before, demand_at, n;
};

static void note(struct kit_log *l, struct frame *f)
{
    struct order *o = l->user;
    if (f->body[0] == 'd') {
        o->demand_at = o->n;
    }
    o->n++;
    frame_free(f);
}

/* A demand frame that is queued behind 24 background chunks arrives after few of them. */
static void t_priority(void **state)
{
    struct pair p;
    struct tls_opts oa;
    kit_opts(&oa, &ka, &both);
    oa.send_max = 64 << 20;
    pair_open(&p, &oa, NULL, "127.0.0.1");
    struct kit_log *sv = &p.b.in[0];
    struct order o = {.demand_at = -1};
    sv->user = &o;
    sv->on_frame = note;
    uint8_t *bytes = pattern(WIRE_RAW_MAX, 5);
    struct tls_raw r = {bytes, WIRE_RAW_MAX, NULL, NULL};
    for (int i = 0; i < 24; i++) {
        assert_int_equal(tls_conn_send(p.cl.c, "b", 1, &r, TLS_BACKGROUND), 0);
    }
    assert_int_equal(tls_conn_send(p.cl.c, "p", 1, &r, TLS_PREFETCH), 0);
    assert_int_equal(tls_conn_send(p.cl.c, "d", 1, &r, TLS_DEMAND), 0);
    assert_true(kit_until(&p.loop, &sv->frames, 26, 60000));
    /* The one begun, and those that are encrypted already. */
    assert_in_range(o.demand_at, 0, 3);
    free(bytes);
    pair_close(&p);
}

/* ---- ends ---- */

static void t_abort(void **state)
{
    struct pair p;
    pair_open(&p, NULL, NULL, "127.0.0.1");
    struct kit_log *sv = &p.b.in[0];
    int rel = 0;
    uint8_t *bytes = pattern(WIRE_RAW_MAX, 6);
    struct tls_raw r = {bytes, WIRE_RAW_MAX, released, &rel};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tls_conn_send(p.cl.c, "b", 1, &r, TLS_BACKGROUND), 0);
    }
    tls_conn_abort(p.cl.c);
    tls_conn_abort(p.cl.c);
    tls_conn_close(p.cl.c);
    assert_true(kit_until(&p.loop, &p.cl.closes, 1, 20000));
    assert_int_equal(rel, 5); /* each once, sent or not, before on_close */
    assert_int_equal(p.cl.why.end, TLS_END_LOCAL);
    assert_true(kit_until(&p.loop, &sv->closes, 1, 20000));
    assert_int_equal(sv->why.end, TLS_END_LOST);
    assert_int_equal(sv->why.err.code, ERR_NET);
    free(bytes);
    pair_close(&p);
    assert_int_equal(p.cl.closes, 1);
}

/* Closing the pool ends connections in every state, each with one on_close. */
static void t_pool_close(void **state)
{
    struct pair p;
    struct kit_log late = {0};
    int rel = 0;
    uint8_t *bytes = pattern(WIRE_RAW_MAX, 7);
    struct tls_raw r = {bytes, WIRE_RAW_MAX, released, &rel};
    pair_open(&p, NULL, NULL, "127.0.0.1");
    kit_connect(&p.a, &late, "127.0.0.1", p.b.port, NULL); /* not yet connected */
    assert_int_equal(tls_conn_send(p.cl.c, "b", 1, &r, TLS_BACKGROUND), 0);
    kit_node_close(&p.a);
    assert_int_equal(p.cl.closes, 1);
    assert_int_equal(late.closes, 1);
    assert_int_equal(late.opens, 0);
    assert_int_equal(rel, 1);
    kit_node_close(&p.b);
    assert_int_equal(uv_loop_close(&p.loop), 0);
    free(bytes);
}

static void close_in_open(struct kit_log *l)
{
    tls_conn_close(l->c);
}

static void abort_in_frame(struct kit_log *l, struct frame *f)
{
    frame_free(f);
    tls_conn_abort(l->c);
}

static void t_close_in_callbacks(void **state)
{
    struct pair p;
    struct kit_log c2 = {.on_open = close_in_open};
    pair_open(&p, NULL, NULL, "127.0.0.1");
    kit_connect(&p.a, &c2, "127.0.0.1", p.b.port, NULL);
    assert_true(kit_until(&p.loop, &c2.closes, 1, 20000));
    assert_int_equal(c2.why.end, TLS_END_LOCAL);
    struct kit_log *sv = &p.b.in[0];
    sv->on_frame = abort_in_frame;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(tls_conn_send(p.cl.c, "12345", 5, NULL, TLS_CONTROL), 0);
    }
    assert_true(kit_until(&p.loop, &sv->closes, 1, 20000));
    assert_int_equal(sv->frames, 1);
    assert_true(kit_until(&p.loop, &p.cl.closes, 1, 20000));
    assert_int_equal(p.cl.why.end, TLS_END_LOST);
    pair_close(&p);
}

static void t_replace(void **state)
{
    struct pair p;
    struct tls_opts oa;
    kit_opts(&oa, &ka, &both);
    oa.replace_bytes = 3 << 20;
    pair_open(&p, &oa, NULL, "127.0.0.1");
    struct kit_log *sv = &p.b.in[0];
    uint8_t *bytes = pattern(WIRE_RAW_MAX, 8);
    struct tls_raw r = {bytes, WIRE_RAW_MAX, NULL, NULL};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(tls_conn_send(i & 1 ? p.cl.c : sv->c, "b", 1, &r, TLS_DEMAND), 0);
    }
    assert_true(kit_until(&p.loop, &p.cl.replaces, 1, 20000));
    assert_true(kit_until(&p.loop, &sv->frames, 3, 20000));
    assert_true(kit_until(&p.loop, &p.cl.frames, 3, 20000));
    assert_int_equal(p.cl.replaces, 1);
    assert_int_equal(sv->replaces, 0); /* its limit is the default */
    free(bytes);
    pair_close(&p);
}

/* ---- many ---- */

enum { MANY = 48, EACH = 20 };

static void echo(struct kit_log *l, struct frame *f)
{
    assert_int_equal(tls_conn_send(l->c, f->body, f->body_n, NULL, TLS_CONTROL), 0);
    frame_free(f);
}

static void ask_again(struct kit_log *l, struct frame *f)
{
    assert_int_equal(f->body_n, 3 + l->frames - 1);
    frame_free(f);
    if (l->frames < EACH) {
        assert_int_equal(
            tls_conn_send(l->c, "0123456789012345678901234", 3 + (size_t)l->frames, NULL, 0), 0);
    }
}

static void ask(struct kit_log *l)
{
    assert_int_equal(tls_conn_send(l->c, "012", 3, NULL, TLS_CONTROL), 0);
}

static bool all_done(void *ctx)
{
    const struct kit_log *l = ctx;
    for (int i = 0; i < MANY; i++) {
        if (l[i].frames < EACH) {
            return false;
        }
    }
    return true;
}

static void t_many(void **state)
{
    uv_loop_t loop;
    struct kit_node a, b;
    struct tls_opts oa, ob;
    static struct kit_log cl[MANY];
    uv_loop_init(&loop);
    kit_opts(&oa, &ka, &both);
    kit_opts(&ob, &kb, &both);
    ob.workers = 3;
    ob.max_handshakes_per_address = MANY;
    kit_node_open(&a, &loop, &oa, NULL, 0);
    kit_node_open(&b, &loop, &ob, "127.0.0.1", MANY);
    b.model.on_frame = echo;
    memset(cl, 0, sizeof cl);
    for (int i = 0; i < MANY; i++) {
        cl[i].on_open = ask;
        cl[i].on_frame = ask_again;
        kit_connect(&a, &cl[i], "127.0.0.1", b.port, NULL);
    }
    assert_true(kit_until_fn(&loop, all_done, cl, 60000));
    struct tls_stats st;
    tls_pool_stats(b.pool, &st);
    assert_int_equal(st.opened, MANY);
    assert_int_equal(st.conns, MANY);
    assert_int_equal(st.handshakes, 0);
    assert_int_equal(st.workers, 3);
    kit_node_close(&a);
    kit_node_close(&b);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_exchange_v4), cmocka_unit_test(t_exchange_v6),
        cmocka_unit_test(t_sizes),       cmocka_unit_test(t_backpressure),
        cmocka_unit_test(t_send_limit),  cmocka_unit_test(t_priority),
        cmocka_unit_test(t_abort),       cmocka_unit_test(t_pool_close),
        cmocka_unit_test(t_replace),     cmocka_unit_test(t_close_in_callbacks),
        cmocka_unit_test(t_many),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
