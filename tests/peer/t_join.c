/* SPDX-License-Identifier: MIT
 * t_join.c: joining by an invite: who gets in, how often, how long, and what a stranger, somebody
 * in the middle, a replay and a lost answer get. */
#include "peer/trust_kit.h"

#include "peer/b32.h"

#define NOW 1764480000u

static void an_invite_makes_a_member_once(void **s)
{
    struct err e = {0};
    struct node k, b, c;
    struct token t, two;
    struct invite *list;
    size_t n, damaged;
    char *home = temp_home();
    node_open(&k, at(home, "k"));
    node_open(&b, at(home, "b"));
    node_open(&c, at(home, "c"));
    ok(member_init(&k.m, NOW, &e));
    fails(invite_make(k.home, &k.m.group, 0, 60, NOW, &t, &e), ERR_ARG, "1 to 64");
    fails(invite_make(k.home, &k.m.group, 65, 60, NOW, &t, &e), ERR_ARG, "1 to 64");
    fails(invite_make(k.home, &k.m.group, 1, 0, NOW, &t, &e), ERR_ARG, "30 days");
    fails(invite_make(k.home, &k.m.group, 1, INVITE_SECONDS_MAX + 1, NOW, &t, &e), ERR_ARG,
          "30 days");
    ok(invite_make(k.home, &k.m.group, 1, 3600, NOW, &t, &e));
    ok(invite_list(k.home, &list, &n, &damaged, &e));
    assert_true(n == 1 && !damaged && list[0].uses == 1 && list[0].used == 0);
    assert_int_equal(list[0].expires, NOW + 3600);
    free(list);
    char name[INVITE_ID * 2], path[64];
    uint8_t id[INVITE_ID], key[32];
    ok(invite_keys(&t, id, key, &e));
    b32_encode(id, INVITE_ID, name);
    snprintf(path, sizeof path, "shoal/invites/%s", name);
    assert_int_equal(mode_of(at(k.home, path)), 0600);
    struct buf file = slurp(at(k.home, path));
    for (size_t i = 0; i + TOKEN_SECRET <= file.n; i++) { /* the secret itself is not kept */
        assert_memory_not_equal(file.p + i, t.secret, TOKEN_SECRET);
    }
    buf_free(&file);

    assert_int_equal(attempt(&k, &b, &t, NOW + 1), JOINED);
    assert_true(b.m.in_group && id_equal(&b.m.group, &k.m.group));
    assert_true(roster_find(&b.m.roster, &b.me.id) && roster_find(&k.m.roster, &b.me.id));
    assert_true(roster_find(&b.m.roster, &b.me.id)->flags == 0);
    /* a second node with the same token, and the first again: its answer may have been lost */
    assert_int_equal(attempt(&k, &c, &t, NOW + 2), JOIN_INVITE_USED_UP);
    assert_false(c.m.in_group);
    uint64_t version = k.m.roster.version;
    assert_int_equal(attempt(&k, &b, &t, NOW + 3), JOINED);
    assert_int_equal(k.m.roster.version, version);
    /* both ends restart: the use stays burnt */
    node_close(&k);
    node_open(&k, at(home, "k"));
    assert_int_equal(attempt(&k, &c, &t, NOW + 4), JOIN_INVITE_USED_UP);
    /* removed: that node cannot come back, with whatever invite */
    char brief[ID_SHORT];
    struct key_id gone;
    id_short(&b.me.id, brief);
    ok(member_remove(&k.m, brief, false, NOW + 5, &gone, &e));
    ok(invite_make(k.home, &k.m.group, 2, 3600, NOW, &two, &e));
    assert_int_equal(attempt(&k, &b, &t, NOW + 6), JOIN_NODE_REMOVED);
    assert_int_equal(attempt(&k, &b, &two, NOW + 6), JOIN_NODE_REMOVED);
    /* two uses are two nodes */
    struct node d, f;
    node_open(&d, at(home, "d"));
    node_open(&f, at(home, "f"));
    assert_int_equal(attempt(&k, &c, &two, NOW + 7), JOINED);
    assert_int_equal(attempt(&k, &c, &two, NOW + 7), JOINED);
    assert_int_equal(attempt(&k, &d, &two, NOW + 7), JOINED);
    assert_int_equal(attempt(&k, &f, &two, NOW + 7), JOIN_INVITE_USED_UP);
    /* a member of one shoal does not slip into another */
    struct node o;
    struct token t3;
    node_open(&o, at(home, "o"));
    ok(member_init(&o.m, NOW, &e));
    ok(invite_make(o.home, &o.m.group, 1, 3600, NOW, &t3, &e));
    struct join_request q;
    struct join_answer a;
    ok(join_ask(&t3, &o.me.id, &c.me.id, &q, &e));
    ok(join_admit(&o.m, &q, crypto_key_public(c.me.key), NOW, &a, &e));
    fails(join_finish(&c.m, &t3, &o.me.id, &a, &e), ERR_BUSY, "another shoal");
    assert_true(id_equal(&c.m.group, &k.m.group));
    join_answer_free(&a);
    /* only a keeper has the invite; the same token at another member is unknown */
    assert_int_equal(attempt(&c, &f, &two, NOW), JOIN_NO_SUCH_INVITE);
    struct node *all[] = {&k, &b, &c, &d, &f, &o};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        node_close(all[i]);
    }
    drop_home(home);
}

static void time_ends_an_invite_and_no_clock_revives_it(void **s)
{
    struct err e = {0};
    struct node k, b;
    struct token t, t2, t3;
    struct invite *list;
    size_t n, damaged;
    char *home = temp_home();
    node_open(&k, at(home, "k"));
    node_open(&b, at(home, "b"));
    ok(member_init(&k.m, NOW, &e));
    ok(invite_make(k.home, &k.m.group, 3, 100, NOW, &t, &e));
    ok(invite_make(k.home, &k.m.group, 3, 100, NOW, &t2, &e));
    assert_int_equal(attempt(&k, &b, &t, NOW + 101), JOIN_INVITE_EXPIRED);
    assert_int_equal(attempt(&k, &b, &t, NOW + 50), JOIN_INVITE_EXPIRED); /* the clock went back */
    assert_int_equal(attempt(&k, &b, &t, 1), JOIN_INVITE_EXPIRED);
    /* the bound is inclusive, and a flat battery (1970) does not shut out a good invite */
    struct node c;
    node_open(&c, at(home, "c"));
    assert_int_equal(attempt(&k, &b, &t2, NOW + 100), JOINED);
    assert_int_equal(attempt(&k, &c, &t2, 5), JOINED);
    /* revoked; swept; counted */
    uint8_t id[INVITE_ID], key[32];
    char name[32];
    ok(invite_make(k.home, &k.m.group, 1, 100, NOW, &t3, &e));
    ok(invite_keys(&t3, id, key, &e));
    b32_encode(id, INVITE_ID, name);
    fails(invite_revoke(k.home, "abc", &e), ERR_ARG, "four characters");
    name[8] = 0;
    ok(invite_revoke(k.home, name, &e));
    fails(invite_revoke(k.home, name, &e), ERR_NOTFOUND, name);
    assert_int_equal(attempt(&k, &c, &t3, NOW), JOIN_NO_SUCH_INVITE);
    ok(invite_make(k.home, &k.m.group, 1, 100, NOW + 5000, &t3, &e));
    ok(invite_list(k.home, &list, &n, &damaged, &e));
    assert_int_equal(n, 1); /* the expired ones are gone */
    free(list);
    for (int i = 1; i < INVITE_OPEN_MAX; i++) {
        ok(invite_make(k.home, &k.m.group, 1, 100, NOW + 5000, &t3, &e));
    }
    fails(invite_make(k.home, &k.m.group, 1, 100, NOW + 5000, &t3, &e), ERR_LIMIT, "revoke some");
    node_close(&k);
    node_close(&b);
    node_close(&c);
    drop_home(home);
}

static void strangers_and_the_man_in_the_middle_get_nothing(void **s)
{
    struct err e = {0};
    struct node k, b, x;
    struct token t, guess;
    struct join_request q, q2;
    struct join_answer a, first;
    char *home = temp_home();
    node_open(&k, at(home, "k"));
    node_open(&b, at(home, "b"));
    node_open(&x, at(home, "x")); /* the attacker */
    ok(member_init(&k.m, NOW, &e));
    ok(member_init(&x.m, NOW, &e));
    ok(invite_make(k.home, &k.m.group, 1, 3600, NOW, &t, &e));

    /* no invite: one answer, the same for an unknown invite and a wrong secret */
    memset(&q, 0, sizeof q);
    assert_int_not_equal(join_admit(&k.m, &q, crypto_key_public(x.me.key), NOW, &first, &e), 0);
    assert_int_equal(first.result, JOIN_NO_SUCH_INVITE);
    ok(join_ask(&t, &k.me.id, &b.me.id, &q, &e));
    for (size_t i = 0; i < sizeof q.proof; i++) {
        q2 = q;
        q2.proof[i] ^= 1;
        assert_int_not_equal(join_admit(&k.m, &q2, crypto_key_public(b.me.key), NOW, &a, &e), 0);
        assert_int_equal(a.result, first.result);
        assert_string_equal(a.text, first.text);
        assert_true(a.blob.n == 0 && !a.added);
        join_answer_free(&a);
    }
    guess = t;
    guess.secret[15] ^= 1;
    assert_int_equal(attempt(&k, &x, &guess, NOW), JOIN_NO_SUCH_INVITE);

    /* a request that was overheard or passed on is bound to its sender and to its receiver */
    assert_int_not_equal(join_admit(&k.m, &q, crypto_key_public(x.me.key), NOW, &a, &e), 0);
    assert_int_equal(a.result, JOIN_NO_SUCH_INVITE);
    join_answer_free(&a);
    /* in the middle: b sees x's key and proves to x; x passes it on as its own, or as b's */
    ok(join_ask(&t, &x.me.id, &b.me.id, &q2, &e));
    assert_int_not_equal(join_admit(&k.m, &q2, crypto_key_public(x.me.key), NOW, &a, &e), 0);
    join_answer_free(&a);
    assert_int_not_equal(join_admit(&k.m, &q2, crypto_key_public(b.me.key), NOW, &a, &e), 0);
    join_answer_free(&a);
    /* nothing of this spent the invite or changed the roster */
    assert_int_equal(k.m.roster.version, 1);

    /* a false keeper cannot take b in: with its own shoal's roster, */
    memset(&a, 0, sizeof a);
    a.result = JOINED;
    buf_init(&a.blob, ROSTER_BLOB_MAX);
    ok(buf_add(&a.blob, x.m.blob.p, x.m.blob.n));
    fails(join_finish(&b.m, &t, &x.me.id, &a, &e), ERR_REFUSED, "does not know the invite");
    join_answer_free(&a);
    /* with a true answer to b from k, which x passes on, */
    ok(join_ask(&t, &k.me.id, &b.me.id, &q, &e));
    ok(join_admit(&k.m, &q, crypto_key_public(b.me.key), NOW, &a, &e));
    assert_true(a.result == JOINED && a.added);
    fails(join_finish(&b.m, &t, &x.me.id, &a, &e), ERR_REFUSED, "does not know the invite");
    /* changed in any byte, */
    for (size_t i = 0; i < a.blob.n; i += 11) {
        a.blob.p[i] ^= 1;
        fails(join_finish(&b.m, &t, &k.me.id, &a, &e), ERR_REFUSED, "does not know the invite");
        a.blob.p[i] ^= 1;
    }
    /* or given to somebody else */
    fails(join_finish(&x.m, &t, &k.me.id, &a, &e), ERR_REFUSED, "does not know the invite");
    assert_false(b.m.in_group);
    ok(join_finish(&b.m, &t, &k.me.id, &a, &e));
    join_answer_free(&a);
    join_answer_free(&first);

    /* who has the token and is no keeper (a thief with another shoal's key) */
    struct node v;
    struct token t2;
    uint8_t id[INVITE_ID];
    node_open(&v, at(home, "v"));
    ok(invite_make(k.home, &k.m.group, 1, 3600, NOW, &t2, &e));
    struct invite stolen = {.uses = 1, .expires = NOW + 100};
    ok(invite_keys(&t2, id, stolen.key, &e));
    uint8_t proof[32], msg[14 + 16 + 96];
    memcpy(msg, "shoal joined 1", 14);
    memcpy(msg + 14, id, 16);
    memcpy(msg + 30, x.me.id.b, 32);
    memcpy(msg + 62, v.me.id.b, 32);
    memset(&a, 0, sizeof a);
    a.result = JOINED;
    buf_init(&a.blob, ROSTER_BLOB_MAX);
    for (int kind = 0; kind < 2; kind++) {
        a.blob.n = 0;
        const struct buf *roster = kind == 0 ? &x.m.blob : &k.m.blob;
        ok(buf_add(&a.blob, roster->p, roster->n));
        sha256(a.blob.p, a.blob.n, msg + 94);
        ok(crypto_hmac(stolen.key, 32, msg, sizeof msg, proof));
        memcpy(a.proof, proof, 32);
        fails(join_finish(&v.m, &t2, &x.me.id, &a, &e), ERR_REFUSED,
              kind == 0 ? "another shoal than the invite" : "not a keeper");
    }
    join_answer_free(&a);
    assert_false(v.m.in_group);
    struct node *all[] = {&k, &b, &x, &v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        node_close(all[i]);
    }
    drop_home(home);
}

/* An init that was killed left a signing key; then this node joins another shoal instead. */
static void a_left_over_key_is_set_aside(void **s)
{
    struct err e = {0};
    struct node k, b;
    struct token t;
    char *home = temp_home();
    node_open(&k, at(home, "k"));
    node_open(&b, at(home, "b"));
    ok(member_init(&k.m, NOW, &e));
    ok(member_init(&b.m, NOW, &e));
    unlink(at(b.home, "shoal/group"));
    ok(invite_make(k.home, &k.m.group, 1, 3600, NOW, &t, &e));
    assert_int_equal(attempt(&k, &b, &t, NOW), JOINED);
    assert_null(b.m.signing_key);
    node_close(&b);
    node_open(&b, at(home, "b"));
    assert_true(b.m.in_group && id_equal(&b.m.group, &k.m.group));
    assert_int_equal(names_in(at(b.home, "shoal")), 3); /* group, roster, the old key renamed */
    node_close(&k);
    node_close(&b);
    drop_home(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_invite_makes_a_member_once),
        cmocka_unit_test(time_ends_an_invite_and_no_clock_revives_it),
        cmocka_unit_test(strangers_and_the_man_in_the_middle_get_nothing),
        cmocka_unit_test(a_left_over_key_is_set_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
