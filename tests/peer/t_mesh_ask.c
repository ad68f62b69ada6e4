/* SPDX-License-Identifier: MIT
 * t_mesh_ask.c: prompts that members run for each other, and the signing key on its way to a second
 * keeper. */
#include "tests/peer/bare_mesh.h"

#include "peer/keeper.h"

#include <time.h>

/* A kit that answers questions when it is told to. */
struct node {
    struct kit_mesh k; /* first: the ctx of the mesh's callbacks */
    pthread_mutex_t mu;
    uint64_t id; /* of the last question */
    unsigned asked;
    struct mesh_verify_ask ask;
    bool at_once; /* answer in the callback */
    int code;
};

static void reply(struct node *n)
{
    struct mesh_verify_answer a = {.code = n->code};
    snprintf(a.text, sizeof a.text, "because\tof %s", "this");
    if (!n->code) {
        memset(a.receipt, 0xab, sizeof a.receipt);
        memset(a.model_root, 7, sizeof a.model_root);
        a.numerics_version = 3;
        a.n_ids = n->ask.max_new;
        for (uint32_t i = 0; i < a.n_ids; i++) {
            a.ids[i] = 1000 * i + (uint32_t)strlen(n->ask.prompt);
        }
    }
    mesh_verify_reply(n->k.m, n->id, &a);
}

static void verify(void *ctx, uint64_t id, const struct mesh_verify_ask *ask)
{
    struct node *n = ctx;
    pthread_mutex_lock(&n->mu);
    n->id = id;
    n->ask = *ask;
    n->asked++;
    bool now = n->at_once;
    pthread_mutex_unlock(&n->mu);
    if (now) {
        reply(n);
    }
}

static unsigned asked(struct node *n)
{
    pthread_mutex_lock(&n->mu);
    unsigned r = n->asked;
    pthread_mutex_unlock(&n->mu);
    return r;
}

static void node_init(struct node *n, struct node *keeper)
{
    memset(n, 0, sizeof *n);
    kit_home(&n->k, keeper ? &keeper->k : NULL);
    pthread_mutex_init(&n->mu, NULL);
    n->k.o.verify = verify;
}

static void node_free(struct node *n)
{
    kit_free(&n->k);
    pthread_mutex_destroy(&n->mu);
}

static void connect_pair(struct node *a, struct node *b)
{
    kit_open(&a->k);
    kit_static(&b->k, mesh_port(a->k.m));
    kit_open(&b->k);
    assert_int_equal(mesh_wait_peers(a->k.m, 1, 60000), 1);
    assert_int_equal(mesh_wait_peers(b->k.m, 1, 60000), 1);
}

struct question {
    pthread_t t;
    struct mesh *m;
    const char *peer;
    unsigned ms;
    int code;
    struct mesh_verify_ask ask;
    struct mesh_verify_answer out;
    struct err e;
};

static void *asks(void *arg)
{
    struct question *q = arg;
    q->code = mesh_verify(q->m, q->peer, &q->ask, q->ms, &q->out, &q->e);
    return NULL;
}

static void begin(struct question *q, struct node *n, const char *peer)
{
    memset(q, 0, sizeof *q);
    q->m = n->k.m;
    q->peer = peer;
    q->ms = 60000;
    q->ask.max_new = 4;
    assert_int_equal(pthread_create(&q->t, NULL, asks, q), 0);
}

static void finish(struct question *q, int code, const char *words)
{
    pthread_join(q->t, NULL);
    assert_int_equal(q->code, code);
    assert_int_equal(q->out.code, code);
    if (code && (!strstr(q->e.msg, words) || strncmp(q->e.msg, q->out.text, WIRE_TEXT_MAX) != 0)) {
        fail_msg("\"%s\" does not say \"%s\", or \"%s\"", q->e.msg, words, q->out.text);
    }
}

static void test_verify(void **state)
{
    struct node a, b;
    struct err e = {0};
    char full[ID_TEXT], brief[ID_SHORT], start[6];
    struct mesh_verify_ask ask = {.max_new = 3};
    struct mesh_verify_answer out;
    node_init(&a, NULL);
    node_init(&b, &a);
    a.at_once = true;
    a.k.o.name = "Anna";
    b.k.o.has_model = false; /* what it compares with is its affair */
    connect_pair(&a, &b);
    id_text(mesh_id(a.k.m), full);
    id_short(mesh_id(a.k.m), brief);
    snprintf(start, sizeof start, "%.5s", brief);
    const char *const names[] = {full, brief, start, "Anna"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(ask.prompt, sizeof ask.prompt, "%.*s\n\xc3\xa9", (int)i, "xyz");
        ok(mesh_verify(b.k.m, names[i], &ask, 60000, &out, &e));
        assert_string_equal(a.ask.prompt, ask.prompt);
        assert_int_equal(out.code, 0);
        assert_int_equal(out.receipt[31], 0xab);
        assert_int_equal(out.model_root[0], 7);
        assert_int_equal(out.numerics_version, 3);
        assert_int_equal(out.n_ids, 3);
        assert_int_equal(out.ids[2], 2003 + i);
    }
    memset(ask.prompt, 'p', MESH_VERIFY_PROMPT);
    ask.max_new = MESH_VERIFY_NEW;
    ok(mesh_verify(b.k.m, "Anna", &ask, 60000, &out, &e));
    assert_int_equal(out.n_ids, MESH_VERIFY_NEW);
    assert_int_equal(out.ids[1], 1000 + MESH_VERIFY_PROMPT);
    /* what goes wrong at the other end, in its words, cleaned */
    a.code = ERR_BUSY;
    fails(mesh_verify(b.k.m, "Anna", &ask, 60000, &out, &e), ERR_BUSY, "becauseof this");
    a.code = ERR_REFUSED;
    fails(mesh_verify(b.k.m, "Anna", &ask, 60000, &out, &e), ERR_REFUSED, "becauseof this");
    a.code = ERR_DIGEST;
    fails(mesh_verify(b.k.m, "Anna", &ask, 60000, &out, &e), ERR_IO, "becauseof this");
    assert_int_equal(out.code, ERR_IO);
    /* here */
    fails(mesh_verify(b.k.m, "Berta", &ask, 60000, &out, &e), ERR_NOTFOUND, "Berta");
    ask.max_new = 0;
    fails(mesh_verify(b.k.m, "Anna", &ask, 60000, &out, &e), ERR_ARG, "1 to 64");
    ask.max_new = 1;
    mesh_sleep(a.k.m);
    mesh_until(mesh_peers(b.k.m) == 0);
    fails(mesh_verify(b.k.m, brief, &ask, 60000, &out, &e), ERR_OFFLINE, "not connected");
    node_free(&b);
    node_free(&a);
}

static void test_one_at_a_time(void **state)
{
    struct node a, b;
    struct question q[3];
    struct mesh_verify_answer out;
    struct mesh_verify_ask ask = {.max_new = 1};
    struct err e = {0};
    node_init(&a, NULL);
    node_init(&b, &a);
    a.k.o.name = "Anna";
    b.k.o.name = "Berta";
    connect_pair(&a, &b);
    begin(&q[0], &b, "Anna");
    mesh_until(asked(&a) == 1);
    fails(mesh_verify(b.k.m, "Anna", &ask, 60000, &out, &e), ERR_BUSY, "being asked already");
    begin(&q[1], &a, "Berta"); /* the other direction is another matter */
    mesh_until(asked(&b) == 1);
    reply(&b);
    finish(&q[1], 0, "");
    reply(&a);
    finish(&q[0], 0, "");
    assert_int_equal(q[0].out.n_ids, 4);
    /* given up here, still at work there: busy, in its words; the late answer is nobody's */
    q[0] = (struct question){.m = b.k.m, .peer = "Anna", .ms = 100, .ask = ask};
    asks(&q[0]);
    assert_int_equal(q[0].code, ERR_TIMEOUT);
    mesh_until(asked(&a) == 2);
    fails(mesh_verify(b.k.m, "Anna", &ask, 60000, &out, &e), ERR_BUSY, "not answered yet");
    reply(&a);
    a.at_once = true;
    mesh_until(mesh_verify(b.k.m, "Anna", &ask, 60000, &out, &e) == 0);
    /* the connection ends */
    a.at_once = false;
    unsigned before = asked(&a);
    begin(&q[0], &b, "Anna");
    mesh_until(asked(&a) == before + 1);
    mesh_sleep(a.k.m);
    finish(&q[0], ERR_NET, "ended before it answered");
    reply(&a); /* dropped */
    mesh_wake(a.k.m);
    assert_int_equal(mesh_wait_peers(b.k.m, 1, 60000), 1);
    /* the mesh ends */
    begin(&q[0], &b, "Anna");
    mesh_until(asked(&a) == before + 2);
    kit_close(&b.k);
    finish(&q[0], ERR_CANCELLED, "stopping");
    node_free(&b);
    node_free(&a);
}

static void test_refused(void **state)
{
    struct node a, b;
    struct mesh_verify_answer out;
    struct mesh_verify_ask ask = {.max_new = 1};
    struct err e = {0};
    for (int old = 0; old < 2; old++) {
        node_init(&a, NULL);
        node_init(&b, &a);
        a.k.o.name = "Anna";
        a.k.o.verify = NULL;
        a.k.o.no_features = old;
        connect_pair(&a, &b);
        if (old) {
            fails(mesh_verify(b.k.m, "Anna", &ask, 60000, &out, &e), ERR_UNSUPPORTED, "older");
        } else {
            fails(mesh_verify(b.k.m, "Anna", &ask, 60000, &out, &e), ERR_REFUSED, "no prompts");
        }
        node_free(&b);
        node_free(&a);
    }
}

/* ---- the signing key ---- */

/* As `shoal keeper add`, another process. */
static void add_keeper(struct kit_mesh *on, const struct key_id *whom)
{
    struct identity me;
    struct member m;
    struct key_id id;
    struct err e = {0};
    char s[ID_TEXT];
    ok(identity_open(on->home, NULL, &me, &e));
    ok(member_open(on->home, &me, &m, &e));
    id_text(whom, s);
    ok(keeper_add(&m, s, &id, &e));
    member_close(&m);
    identity_close(&me);
}

static void test_second_keeper(void **state)
{
    struct kit_mesh a, b, c;
    struct err e = {0};
    char token[TOKEN_TEXT_MAX];
    kit_home(&a, NULL);
    kit_home(&b, &a);
    kit_home(&c, &a);
    kit_open(&a);
    kit_static(&b, mesh_port(a.m));
    kit_open(&b);
    kit_static(&c, mesh_port(a.m));
    kit_static(&c, mesh_port(b.m));
    kit_open(&c);
    assert_int_equal(mesh_wait_peers(b.m, 2, 60000), 2);
    fails(mesh_invite(b.m, 1, 60, token, &e), ERR_REFUSED, "keeper");
    add_keeper(&a, mesh_id(b.m));
    mesh_until(kit_status(&b, "keeper") == 1);
    mesh_until(kit_said(&b, "this node is a keeper now"));
    assert_true(kit_said(&a, "was given the shoal's signing key"));
    ok(mesh_invite(b.m, 1, 60, token, &e)); /* it signs */
    assert_int_equal((int)kit_status(&c, "keeper"), 0);
    assert_false(kit_said(&c, "keeper now"));
    /* and takes a node in while the first keeper is away */
    kit_close(&a);
    char *home = temp_home();
    ok(mesh_join(home, token, 20000, NULL, NULL, &e));
    mesh_until(kit_status(&c, "members") == 4);
    drop_home(home);
    kit_free(&c);
    kit_free(&b);
    kit_free(&a);
}

static size_t sealed;
static char words[WIRE_TEXT_MAX + 1];

static void see(struct bare *b, const Shoal__Frame *f, const struct frame *raw)
{
    (void)b;
    (void)raw;
    if (f->kind_case == SHOAL__FRAME__KIND_KEY_REPLY) {
        sealed = f->key_reply->sealed.len;
        snprintf(words, sizeof words, "%s", f->key_reply->text);
    } else if (f->kind_case == SHOAL__FRAME__KIND_VERIFY_REPLY) {
        sealed = (size_t)f->verify_reply->result;
        snprintf(words, sizeof words, "%s", f->verify_reply->text);
    }
}

static void key_ask(struct bare *b)
{
    Shoal__KeyAsk k = SHOAL__KEY_ASK__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    int n = b->kinds[SHOAL__FRAME__KIND_KEY_REPLY];
    f.kind_case = SHOAL__FRAME__KIND_KEY_ASK;
    f.key_ask = &k;
    bare_send(b, &f);
    bare_until(b, b->kinds[SHOAL__FRAME__KIND_KEY_REPLY] > n);
}

static void key_reply(struct bare *b, uint8_t *p, size_t n, char *text)
{
    Shoal__KeyReply k = SHOAL__KEY_REPLY__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    k.sealed.data = p;
    k.sealed.len = n;
    k.text = text;
    f.kind_case = SHOAL__FRAME__KIND_KEY_REPLY;
    f.key_reply = &k;
    bare_send(b, &f);
}

static void hello(struct bare *b, struct kit_mesh *a)
{
    bare_connect(b, mesh_port(a->m));
    bare_hello(b);
    bare_until(b, b->kinds[SHOAL__FRAME__KIND_HELLO] && mesh_peers(a->m) == 1);
}

/* A member that is no keeper asks, in vain, until it is one; a node without the key says so; what
 * nobody asked for is a fault. */
static void test_key_refused(void **state)
{
    struct node a;
    struct bare b;
    uint8_t wrong[KEEPER_SEALED] = {0};
    node_init(&a, NULL);
    bare_open(&b, &a.k);
    b.on_message = see;
    kit_open(&a.k);
    hello(&b, &a.k);
    key_ask(&b);
    assert_int_equal(sealed, 0);
    assert_non_null(strstr(words, "not a keeper"));
    mesh_until(kit_said(&a.k, "did not get it"));
    key_ask(&b);
    assert_int_equal(sealed, 0);
    assert_non_null(strstr(words, "too often"));
    add_keeper(&a.k, &b.me.id);
    mesh_look(a.k.m);
    uint64_t end = clock_ns() + 60ull * 1000000000u;
    while (!sealed && clock_ns() < end) {
        kit_run_ms(&b.loop, 300);
        key_ask(&b);
    }
    assert_int_equal(sealed, KEEPER_SEALED);
    /* two questions at once */
    Shoal__Verify v = SHOAL__VERIFY__INIT;
    Shoal__Frame f = SHOAL__FRAME__INIT;
    v.max_new = 1;
    f.kind_case = SHOAL__FRAME__KIND_VERIFY;
    f.verify = &v;
    bare_send(&b, &f);
    bare_send(&b, &f);
    bare_until(&b, b.kinds[SHOAL__FRAME__KIND_VERIFY_REPLY] == 1);
    assert_int_equal(sealed, SHOAL__VERIFY_RESULT__VERIFY_BUSY);
    assert_int_equal(asked(&a), 1);
    reply(&a);
    bare_until(&b, b.kinds[SHOAL__FRAME__KIND_VERIFY_REPLY] == 2);
    assert_int_equal(sealed, SHOAL__VERIFY_RESULT__VERIFY_OK);
    /* a key that nobody asked for */
    key_reply(&b, wrong, sizeof wrong, "");
    bare_until(&b, b.log.closes);
    assert_true(strstr(b.text, "KeyReply: not asked for"));
    bare_close(&b);
    node_free(&a);
}

/* A node that waits for the key: refused, given nonsense, given the key. Not asked at all while the
 * other side is no keeper by the roster. */
static void test_wrong_key(void **state)
{
    struct kit_mesh a, c;
    struct bare b;
    struct err e = {0};
    struct identity me;
    struct member m;
    uint8_t p[KEEPER_SEALED] = {1};
    kit_home(&a, NULL); /* signs, does not run */
    bare_open(&b, &a);
    kit_home(&c, &a);
    c.o.heartbeat_ms = 60000; /* B answers no pings */
    kit_open(&c);
    b.answers = true;
    hello(&b, &c);
    add_keeper(&a, mesh_id(c.m));
    for (int round = 0; round < 2; round++) { /* C is to be one; then B is one, too */
        if (round) {
            add_keeper(&a, &b.me.id);
        }
        ok(identity_open(a.home, NULL, &me, &e));
        ok(member_open(a.home, &me, &m, &e));
        Shoal__Roster r = SHOAL__ROSTER__INIT;
        Shoal__Frame f = SHOAL__FRAME__INIT;
        r.version = m.roster.version;
        r.blob.data = (uint8_t *)m.blob.p;
        r.blob.len = m.blob.n;
        f.kind_case = SHOAL__FRAME__KIND_ROSTER;
        f.roster = &r;
        bare_send(&b, &f);
        bare_until(&b, kit_status(&c, "roster_version") == (double)r.version);
        if (!round) {
            kit_run_ms(&b.loop, 500);
            assert_int_equal(b.kinds[SHOAL__FRAME__KIND_KEY_ASK], 0);
            member_close(&m);
            identity_close(&me);
        }
    }
    bare_until(&b, b.kinds[SHOAL__FRAME__KIND_KEY_ASK] == 1);
    key_reply(&b, NULL, 0, "not today");
    bare_until(&b, kit_said(&c, "not today"));
    bare_until(&b, b.kinds[SHOAL__FRAME__KIND_KEY_ASK] == 2); /* again, after a while */
    key_reply(&b, p, sizeof p, "");
    bare_until(&b, kit_said(&c, "is not taken"));
    assert_int_equal((int)kit_status(&c, "keeper"), 0);
    ok(keeper_seal(&m, mesh_id(c.m), p, &e));
    bare_until(&b, b.kinds[SHOAL__FRAME__KIND_KEY_ASK] == 3);
    key_reply(&b, p, sizeof p, "");
    bare_until(&b, kit_status(&c, "keeper") == 1);
    member_close(&m);
    identity_close(&me);
    bare_close(&b);
    kit_free(&c);
    kit_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify),      cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_second_keeper),
        cmocka_unit_test(test_key_refused), cmocka_unit_test(test_wrong_key),
    };
    if (getenv("KIT_ONLY")) {
        cmocka_set_test_filter(getenv("KIT_ONLY"));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
