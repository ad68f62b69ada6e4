/* SPDX-License-Identifier: MIT
 * t_node.c: whole nodes: alone, among peers with and without an origin, and what they report. */
#include "tests/daemon/node_kit.h"

#include <stdatomic.h>

/* ---- alone ---- */

static void test_alone(void **state)
{
    char url[128];
    struct kit_node a;
    struct err e = {0};
    struct demo_server *origin = kit_origin(url);
    kit_lonely(&a);
    kit_open(&a, url, NULL);
    assert_true(node_owner(a.n));
    int port = node_port(a.n);
    assert_true(port > 0);
    kit_get_all(&a, 0, 7);
    assert_true(kit_origin_bytes(origin) >= kit_bytes(&a, 0, 7));
    assert_int_equal(kit_stats(&a).origin_bytes, kit_bytes(&a, 0, 7));
    assert_int_equal(kit_stats(&a).peer_bytes, 0);
    until(kit_status(&a, "coverage.own.objects") == (kit_count(&a) + 6) / 7);
    assert_int_equal(kit_status(&a, "tiers.disk.used"), kit_bytes(&a, 0, 7));
    assert_int_equal(kit_status(&a, "basis.origin.objects"), (kit_count(&a) + 6) / 7);
    assert_int_equal(kit_status(&a, "gave.from_origin"), (kit_count(&a) + 6) / 7);
    assert_int_equal(kit_status(&a, "gave.origin_bytes"), kit_bytes(&a, 0, 7));
    assert_int_equal(kit_status(&a, "connected"), 0);
    assert_int_equal(kit_status(&a, "limits.ram_budget"), 64 << 20);
    assert_int_equal(kit_status(&a, "tiers.disk.floor"), 1 << 20);
    char *hint = kit_status_text(&a, "hint"), *words = kit_status_text(&a, "coverage.words");
    assert_non_null(strstr(hint, "shoal init"));
    assert_non_null(strstr(hint, "shoal join"));
    assert_non_null(strstr(words, "this Mac holds"));
    free(hint);
    free(words);
    /* the same by the socket */
    json_t *q = json_pack("{s:s}", "op", "status"), *s = NULL;
    ok(node_ask(a.home, q, 0, &s, &e));
    assert_int_equal(json_integer_value(json_object_get(s, "port")), port);
    assert_string_equal(json_string_value(json_object_get(s, "home")), a.home);
    json_decref(s);
    json_decref(q);
    kit_close(&a);
    /* again: the same port, everything from disk */
    uint64_t before = kit_origin_bytes(origin);
    kit_open(&a, url, NULL);
    assert_int_equal(node_port(a.n), port);
    kit_get_all(&a, 0, 7);
    assert_int_equal(kit_stats(&a).origin_bytes, 0);
    assert_true(kit_origin_bytes(origin) == before);
    kit_end(&a);
    demo_server_stop(origin);
}

static void test_no_model(void **state)
{
    struct kit_node a, b;
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_open(&a, NULL, NULL);
    kit_open(&b, NULL, &a);
    assert_null(node_store(a.n));
    kit_connected(&a, 1);
    kit_connected(&b, 1);
    assert_int_equal(kit_status(&b, "members"), 2);
    char *m = kit_status_text(&b, "model");
    assert_string_equal(m, "");
    free(m);
    kit_end(&b);
    kit_end(&a);
}

static void test_port_taken(void **state)
{
    struct kit_node a, b;
    kit_lonely(&a);
    kit_lonely(&b);
    kit_open(&a, NULL, NULL);
    int port = node_port(a.n);
    assert_int_equal(mkdir(at(b.home, "run"), 0700), 0);
    char s[16];
    snprintf(s, sizeof s, "%d\n", port);
    put(at(b.home, "run/port"), s, strlen(s), 0600);
    kit_open(&b, NULL, NULL); /* its port is another's now: it takes the next */
    assert_true(node_port(b.n) != port && node_port(b.n) > 0);
    kit_end(&a);
    kit_end(&b);
}

/* ---- peers ---- */

/* A from the origin; the origin goes; B gets everything, the metadata too, from A. */
static void test_from_a_peer(void **state)
{
    char url[128];
    struct kit_node a, b, c;
    struct demo_server *origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_member(&c, &a);
    kit_open(&a, url, NULL);
    kit_get_all(&a, 0, 1);
    uint64_t all = kit_bytes(&a, 0, 1);
    uint32_t n = kit_count(&a);
    assert_int_equal(kit_stats(&a).origin_bytes, all);
    until(kit_status(&a, "objects") == n);
    demo_server_stop(origin);
    kit_open(&b, url, &a);
    assert_int_equal(kit_count(&b), n);
    uint64_t meta = kit_stats(&b).peer_bytes; /* config, index, headers, tokenizer */
    assert_true(meta > 100000);
    kit_get_all(&b, 0, 1);
    assert_int_equal(kit_stats(&b).origin_bytes, 0);
    assert_int_equal(kit_stats(&b).peer_bytes, meta + all);
    /* who gave what, at both ends */
    until(kit_status(&b, "gave.objects") == n);
    assert_int_equal(kit_status(&b, "gave.from_peers"), n);
    assert_int_equal(kit_status(&b, "gave.peer_bytes"), all);
    assert_int_equal(kit_status(&b, "gave.peers.0.bytes"), all);
    bool first = kit_status(&b, "peers.0.gave.bytes") >= 0; /* the other row is C's */
    assert_int_equal(kit_status(&b, first ? "peers.0.gave.bytes" : "peers.1.gave.bytes"), all);
    assert_int_equal(kit_status(&b, first ? "peers.0.gave.objects" : "peers.1.gave.objects"), n);
    assert_int_equal(kit_status(&b, first ? "peers.0.objects" : "peers.1.objects"), n);
    assert_true(kit_status(&b, first ? "peers.1.gave.bytes" : "peers.0.gave.bytes") < 0);
    assert_true(kit_status(&a, "serve.bytes") >= (double)all);
    /* coverage */
    until(kit_status(&b, "coverage.own.objects") == n);
    until(kit_status(&b, "coverage.experts.missing") == 0); /* counted every two seconds */
    char *words = kit_status_text(&b, "coverage.words");
    assert_string_equal(words, "your Macs hold 100.0 %; 0 experts are on no disk");
    free(words);
    assert_int_equal(kit_status(&b, "basis.one_member.objects"), n);
    assert_int_equal(kit_status(&a, "basis.origin.objects"), n);
    char *hint = kit_status_text(&b, "hint");
    assert_string_equal(hint, "");
    free(hint);
    assert_int_equal(kit_status(&b, "tiers.origin.bytes"), 0);
    /* B serves now, too: a third one with B as its only peer */
    kit_close(&a);
    kit_open(&c, url, &b);
    kit_get_all(&c, 0, 3);
    /* small ones of the spine may have come beside them, for samples of B's word */
    assert_true(kit_stats(&c).peer_bytes >= meta + kit_bytes(&c, 0, 3));
    assert_true(kit_stats(&c).peer_bytes <= meta + all);
    kit_end(&c);
    kit_end(&b);
    kit_end(&a);
}

/* Every byte of the model was used from one source, whatever came twice in a race. */
static void used_once(struct kit_node *k)
{
    until(kit_status(k, "gave.objects") == kit_count(k));
    assert_true(kit_status(k, "gave.peer_bytes") + kit_status(k, "gave.origin_bytes") ==
                (double)kit_bytes(k, 0, 1));
    assert_true(kit_stats(k).origin_bytes >= (uint64_t)kit_status(k, "gave.origin_bytes"));
}

/* A has half of it; B takes that from A. The rest comes from the origin, once, to one of them. */
static void test_half(void **state)
{
    char url[128];
    struct kit_node a, b;
    struct demo_server *origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_open(&a, url, NULL);
    kit_get_all(&a, 0, 2);
    uint32_t half = (kit_count(&a) + 1) / 2;
    until(kit_status(&a, "objects") == half);
    uint64_t before = kit_stats(&a).origin_bytes;
    b.o.store.rate_limit = 4000000;
    kit_open(&b, url, &a);
    until(kit_status(&b, "peers.0.objects") == half);
    kit_get_all(&b, 0, 1);
    uint64_t took = kit_stats(&b).origin_bytes, gave = kit_stats(&b).peer_bytes;
    assert_true(took + kit_stats(&a).origin_bytes - before >= kit_bytes(&b, 1, 2));
    assert_true(gave > 0); /* how much depends on how quick each side is today */
    used_once(&b);
    kit_end(&b);
    kit_end(&a);
    demo_server_stop(origin);
}

/* A goes while B reads: the origin takes over. */
static void test_peer_leaves(void **state)
{
    char url[128];
    struct kit_node a, b;
    struct demo_server *origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_open(&a, url, NULL);
    kit_get_all(&a, 0, 1);
    uint32_t n = kit_count(&a);
    until(kit_status(&a, "objects") == n);
    kit_open(&b, url, &a);
    for (uint32_t i = 0; i < n; i++) {
        if (i == n / 3) {
            kit_close(&a);
        }
        kit_get(&b, i);
    }
    assert_true(kit_stats(&b).peer_bytes > 0);
    assert_true(kit_stats(&b).origin_bytes > 0);
    used_once(&b);
    assert_int_equal(kit_status(&b, "connected"), 0);
    /* and closing with requests under way ends them all */
    kit_close(&b);
    kit_end(&b);
    kit_end(&a);
    demo_server_stop(origin);
}

struct reader {
    struct kit_node *k;
    uint32_t from;
    int bad;
};

static void *hints(void *ctx)
{
    struct reader *r = ctx;
    uint32_t ids[64], n = kit_count(r->k);
    for (uint32_t i = 0; i < 64; i++) {
        ids[i] = (r->from + i * 37) % n;
    }
    store_hint(r->k->st, ids, 64);
    return NULL;
}

/* Closed while much is being fetched: nobody waits for anybody. */
static void test_close_busy(void **state)
{
    char url[128];
    struct kit_node a, b;
    struct demo_server *origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_open(&a, url, NULL);
    kit_get_all(&a, 0, 2);
    for (int round = 0; round < 4; round++) {
        struct reader r = {&b, (uint32_t)round * 11, 0};
        pthread_t t;
        kit_open(&b, url, &a);
        assert_int_equal(pthread_create(&t, NULL, hints, &r), 0);
        pthread_join(t, NULL);
        usleep((useconds_t)round * 7000);
        kit_close(&b);
    }
    kit_open(&b, url, &a);
    kit_get_all(&b, 0, 5);
    kit_end(&b);
    kit_end(&a);
    demo_server_stop(origin);
}

/* ---- requests ---- */

static json_t *ask(struct kit_node *k, json_t *q)
{
    struct err e = {0};
    json_t *a = NULL;
    ok(node_ask(k->home, q, 0, &a, &e));
    json_decref(q);
    return a;
}

static void refused(struct kit_node *k, json_t *q, int code, const char *words)
{
    struct err e = {0};
    json_t *a = NULL;
    fails(node_ask(k->home, q, 0, &a, &e), code, words);
    json_decref(q);
}

static void on_stop(void *ctx)
{
    atomic_store((_Atomic(int) *)ctx, 1);
}

static void test_requests(void **state)
{
    struct kit_node a, lone;
    _Atomic(int) stopped = 0;
    kit_keeper(&a);
    a.o.stop = on_stop;
    a.o.stop_ctx = &stopped;
    a.o.serve_bytes_s = 5000000;
    kit_open(&a, NULL, NULL);
    json_t *j = ask(&a, json_pack("{s:s}", "op", "ping"));
    assert_int_equal(json_integer_value(json_object_get(j, "pid")), getpid());
    json_decref(j);
    j = ask(&a, json_pack("{s:s}", "op", "why"));
    assert_true(json_is_object(json_object_get(j, "refused")));
    json_decref(j);
    /* limits: what is not named stays */
    j = ask(&a, json_pack("{s:s,s:i}", "op", "limits", "out_peer_bytes_s", 1000));
    json_decref(j);
    assert_int_equal(kit_status(&a, "limits.out_bytes_s"), 5000000);
    assert_int_equal(kit_status(&a, "limits.out_peer_bytes_s"), 1000);
    refused(&a, json_pack("{s:s,s:i}", "op", "limits", "out_bytes_s", -1), ERR_ARG, "out_bytes_s");
    refused(&a, json_pack("{s:s,s:s}", "op", "limits", "out_bytes_s", "5"), ERR_ARG, "whole");
    /* an invite */
    j = ask(&a, json_pack("{s:s,s:i}", "op", "invite", "uses", 2));
    const char *token = json_string_value(json_object_get(j, "token"));
    assert_non_null(token);
    struct token t;
    struct err e = {0};
    ok(token_parse(token, strlen(token), &t, &e));
    json_decref(j);
    refused(&a, json_pack("{s:s,s:i}", "op", "invite", "uses", 0), ERR_ARG, "uses");
    /* static peers, kept */
    j = ask(&a, json_pack("{s:s,s:s}", "op", "add_peer", "peer", "127.0.0.1:9"));
    assert_true(json_is_true(json_object_get(j, "new")));
    json_decref(j);
    j = ask(&a, json_pack("{s:s,s:s}", "op", "add_peer", "peer", "127.0.0.1:9"));
    assert_true(json_is_false(json_object_get(j, "new")));
    json_decref(j);
    refused(&a, json_pack("{s:s,s:s}", "op", "add_peer", "peer", "nonsense"), ERR_ARG, "HOST:PORT");
    static const char *const no_peers[] = {"[::1", "[]:1", "fe80::1:4433", "1.2.3.4:5:6",
                                           "]:4",  "h:0",  "[a]b]:3",      "h:65536"};
    for (size_t i = 0; i < sizeof no_peers / sizeof *no_peers; i++) {
        refused(&a, json_pack("{s:s,s:s}", "op", "add_peer", "peer", no_peers[i]), ERR_ARG,
                "HOST:PORT");
    }
    refused(&a, json_pack("{s:s,s:s}", "op", "add_peer", "peer", "\x1b[31mx:1"), ERR_ARG,
            "\"?[31m");
    refused(&a, json_pack("{s:s}", "op", "add_peer"), ERR_ARG, "peer");
    struct buf b = slurp(at(a.home, "peers"));
    assert_non_null(strstr(b.p, "\n127.0.0.1:9\n"));
    buf_free(&b);
    /* peers that are none */
    refused(&a, json_pack("{s:s,s:s}", "op", "unban", "peer", "abcdefgh"), ERR_NOTFOUND, "");
    refused(&a, json_pack("{s:s,s:s}", "op", "verify", "peer", "abcdefgh"), ERR_NOTFOUND, "");
    refused(&a, json_pack("{s:s,s:i,s:i,s:i}", "op", "fetch", "id", 0, "prio", 0, "seq", 1),
            ERR_UNSUPPORTED, "fetch");
    refused(&a, json_pack("{s:s}", "op", "dance"), ERR_UNSUPPORTED, "dance");
    j = ask(&a, json_pack("{s:s}", "op", "stop"));
    json_decref(j);
    until(atomic_load(&stopped));
    /* one that is in no shoal */
    kit_lonely(&lone);
    kit_open(&lone, NULL, NULL);
    refused(&lone, json_pack("{s:s}", "op", "stop"), ERR_REFUSED, "");
    j = ask(&lone, json_pack("{s:s,s:s}", "op", "add_peer", "peer", "127.0.0.1:10"));
    assert_true(json_is_true(json_object_get(j, "waits_for_shoal")));
    json_decref(j);
    kit_close(&lone);
    kit_open(&lone, NULL, NULL); /* a damaged line in the list is said and left out */
    kit_close(&lone);
    static const char list[] = "# mine\nhost:1\nbad line\n\nhost:99999\n";
    put(at(lone.home, "peers"), list, sizeof list - 1, 0600);
    kit_open(&lone, NULL, NULL);
    assert_true(util_log_has(&lone.log, "the line is not used") == 2);
    kit_end(&lone);
    kit_end(&a);
}

static void run_prompt(void *ctx, const struct mesh_verify_ask *ask_,
                       struct mesh_verify_answer *out)
{
    (void)ctx;
    memset(out, 0, sizeof *out);
    if (!strcmp(ask_->prompt, "no")) {
        out->code = ERR_UNSUPPORTED;
        snprintf(out->text, sizeof out->text, "I would rather not");
        return;
    }
    memset(out->receipt, 0x5a, sizeof out->receipt);
    out->numerics_version = 1;
    out->n_ids = ask_->max_new;
    for (uint32_t i = 0; i < out->n_ids; i++) {
        out->ids[i] = i + 100;
    }
}

static void test_verify(void **state)
{
    struct kit_node a, b;
    char url[128];
    struct demo_server *origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    a.o.verify = run_prompt;
    kit_open(&a, url, NULL);
    kit_open(&b, url, &a);
    kit_connected(&b, 1);
    char *peer = kit_status_text(&b, "peers.0.short");
    json_t *j = ask(&b, json_pack("{s:s,s:s,s:s,s:i}", "op", "verify", "peer", peer, "prompt", "hi",
                                  "max_new", 3));
    assert_int_equal(json_array_size(json_object_get(j, "ids")), 3);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(j, "ids"), 2)), 102);
    assert_int_equal(strncmp(json_string_value(json_object_get(j, "receipt")), "5a5a5a", 6), 0);
    json_decref(j);
    refused(&b, json_pack("{s:s,s:s,s:s}", "op", "verify", "peer", peer, "prompt", "no"), ERR_IO,
            "rather not");
    free(peer);
    peer = kit_status_text(&a, "peers.0.short"); /* and B runs nothing for others */
    refused(&a, json_pack("{s:s,s:s}", "op", "verify", "peer", peer), ERR_REFUSED, "");
    free(peer);
    kit_end(&b);
    kit_end(&a);
    demo_server_stop(origin);
}

/* A node closes while a member still works on its prompt: it does not wait for that. */
struct slow {
    _Atomic(int) began, go;
};

static void run_slowly(void *ctx, const struct mesh_verify_ask *ask_,
                       struct mesh_verify_answer *out)
{
    struct slow *s = ctx;
    (void)ask_;
    atomic_store(&s->began, 1);
    until(atomic_load(&s->go));
    memset(out, 0, sizeof *out);
    out->code = ERR_CANCELLED;
}

static void *ask_slowly(void *ctx)
{
    struct kit_node *b = ctx;
    char *peer = kit_status_text(b, "peers.0.short");
    json_t *q = json_pack("{s:s,s:s}", "op", "verify", "peer", peer), *a = NULL;
    assert_true(node_ask(b->home, q, 60000, &a, NULL) != 0);
    json_decref(q);
    free(peer);
    return NULL;
}

static void test_close_asking(void **state)
{
    struct kit_node a, b;
    struct slow slow = {0, 0};
    pthread_t t;
    char url[128];
    struct demo_server *origin = kit_origin(url);
    kit_keeper(&a);
    kit_member(&b, &a);
    a.o.verify = run_slowly;
    a.o.verify_ctx = &slow;
    kit_open(&a, url, NULL);
    kit_open(&b, url, &a);
    kit_connected(&b, 1);
    assert_int_equal(pthread_create(&t, NULL, ask_slowly, &b), 0);
    until(atomic_load(&slow.began));
    kit_close(&b); /* would hang here until A answers */
    assert_false(atomic_load(&slow.go));
    pthread_join(t, NULL);
    atomic_store(&slow.go, 1);
    kit_end(&b);
    kit_end(&a);
    demo_server_stop(origin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),      cmocka_unit_test(test_no_model),
        cmocka_unit_test(test_port_taken), cmocka_unit_test(test_from_a_peer),
        cmocka_unit_test(test_half),       cmocka_unit_test(test_peer_leaves),
        cmocka_unit_test(test_close_busy), cmocka_unit_test(test_requests),
        cmocka_unit_test(test_verify),     cmocka_unit_test(test_close_asking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
