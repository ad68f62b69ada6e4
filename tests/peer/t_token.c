/* SPDX-License-Identifier: MIT
 * t_token.c: invites: the text against what copying does to it, the record on disk, and joining:
 * who gets in, how often, and what a stranger, somebody in the middle, a replay, a lost answer, a
 * kill at any point and many joiners at once get. */
#include "peer/home_util.h"

#include "peer/b32.h"
#include "peer/home.h"
#include "peer/join.h"
#include "peer/keeper.h"

#include <signal.h>
#include <sys/resource.h>

#define NOW 1764480000u

struct node {
    char *home;
    struct identity me;
    struct member m;
};

static void node_open(struct node *n, char *home)
{
    struct err e = {0};
    n->home = home;
    ok(identity_open(home, "a machine of this test", &n->me, &e));
    ok(member_open(home, &n->me, &n->m, &e));
}

static void node_close(struct node *n)
{
    member_close(&n->m);
    identity_close(&n->me);
}

static bool same_token(const struct token *a, const struct token *b)
{
    bool same = memcmp(a->group, b->group, TOKEN_GROUP) == 0 &&
                memcmp(a->secret, b->secret, TOKEN_SECRET) == 0 && a->addrs_n == b->addrs_n;
    for (size_t i = 0; same && i < a->addrs_n; i++) {
        same =
            strcmp(a->addrs[i].host, b->addrs[i].host) == 0 && a->addrs[i].port == b->addrs[i].port;
    }
    return same;
}

static void fixed_token(struct token *t)
{
    struct err e = {0};
    memset(t, 0, sizeof *t);
    for (int i = 0; i < 16; i++) {
        t->group[i] = (uint8_t)(i * 16 + i);
        t->secret[i] = (uint8_t)(255 - i);
    }
    ok(token_add_address(t, "192.168.1.20", 7117, &e));
    ok(token_add_address(t, "FD00:0:0::7", 65535, &e));
    ok(token_add_address(t, "Annas-Mac.local", 1, &e));
}

static void the_text_is_as_written_down(void **s)
{
    struct err e = {0};
    struct token t, back;
    char text[TOKEN_TEXT_MAX];
    fixed_token(&t);
    assert_string_equal(t.addrs[1].host, "fd00::7");
    assert_string_equal(t.addrs[2].host, "annas-mac.local");
    token_text(&t, text);
    assert_memory_equal(text, "shoal1", 6);
    uint8_t raw[256], want[256], digest[32];
    size_t n, k = 0;
    ok(b32_decode(text + 6, strlen(text) - 6, raw, sizeof raw, &n));
    memcpy(want, t.group, 16);
    memcpy(want + 16, t.secret, 16);
    k = 32;
    want[k++] = 3;
    memcpy(want + k, "\x04\xc0\xa8\x01\x14\xcd\x1b", 7);
    k += 7;
    memcpy(want + k, "\x06\xfd\x00\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\xff\xff", 19);
    k += 19;
    memcpy(want + k,
           "\x8f"
           "annas-mac.local\x01\x00",
           18);
    k += 18;
    assert_int_equal(n, k + 4);
    assert_memory_equal(raw, want, k);
    char all[300] = "shoal invite";
    memcpy(all + 12, want, k);
    sha256(all, 12 + k, digest);
    assert_memory_equal(raw + k, digest, 4);
    ok(token_parse(text, strlen(text), &back, &e));
    assert_true(same_token(&t, &back));
    /* a token of this version keeps its form for ever */
    assert_string_equal(text,
                        "shoal1008j4ct4ank7f24snaxwsqfezzzzxzfwzfxfky7qyvtz9wzjy7r06160n00h9k8v0"
                        "vyg00000000000000000000003zzzwfc5q6wrbk5npp2rsedhqp6rbc04016sprn0");
}

static void addresses_that_mean_something(void **s)
{
    struct err e = {0};
    struct token t = {0};
    static const char *const bad[] = {"",      "fe80::1",     "fe80::1%en0",   "10.0.0.256",
                                      "1.2.3", "a b",         "a_b",           "-a",
                                      ".a",    "10.0.0.1:80", "\xc3\xa4.local"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (token_add_address(&t, bad[i], 80, &e) != ERR_ARG) {
            fail_msg("taken: %s", bad[i]);
        }
    }
    fails(token_add_address(&t, "10.0.0.1", 0, &e), ERR_ARG, "port 0");
    char longer[70];
    memset(longer, 'a', 64);
    longer[64] = 0;
    fails(token_add_address(&t, longer, 80, &e), ERR_ARG, "no address");
    for (int i = 0; i < TOKEN_ADDRS_MAX; i++) {
        longer[63] = 0;
        longer[0] = (char)('b' + i);
        ok(token_add_address(&t, longer, 80, &e));
        ok(token_add_address(&t, longer, 80, &e)); /* twice is once */
    }
    fails(token_add_address(&t, "10.0.0.1", 80, &e), ERR_LIMIT, "at most 8");
    char text[TOKEN_TEXT_MAX];
    struct token back;
    token_text(&t, text); /* the longest there is */
    assert_true(strlen(text) < TOKEN_TEXT_MAX);
    ok(token_parse(text, strlen(text), &back, &e));
    assert_true(same_token(&t, &back));
}

/* What terminals, mail, chat and people do to a line of text. */
static void it_survives_copy_and_paste(void **s)
{
    struct err e = {0};
    static const char *const noise[] = {" ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "-",
                                        "\xe2\x80\x8b",
                                        "> ",
                                        "\xc2\xa0",
                                        "\xef\xbb\xbf",
                                        "\xe2\x80\x8d",
                                        "\xc2\xad",
                                        "\"",
                                        "\xe2\x80\x91",
                                        "\xe2\x80\xa8",
                                        "\xe2\x81\xa0",
                                        "`"};
    unsigned seed = 5;
    struct token t, back;
    char text[TOKEN_TEXT_MAX];
    for (int round = 0; round < 300; round++) {
        struct key_id group;
        for (size_t i = 0; i < sizeof group.b; i++) {
            group.b[i] = (uint8_t)rand_r(&seed);
        }
        ok(token_make(&group, &t, &e));
        for (int i = rand_r(&seed) % 4; i > 0; i--) {
            char host[32];
            snprintf(host, sizeof host, "10.%d.%d.%d", rand_r(&seed) % 256, rand_r(&seed) % 256, i);
            ok(token_add_address(&t, host, (uint16_t)(1 + rand_r(&seed) % 65535), &e));
        }
        token_text(&t, text);
        struct buf b;
        buf_init(&b, TOKEN_INPUT_MAX);
        for (const char *c = text; *c; c++) {
            while (rand_r(&seed) % 8 == 0) {
                ok(buf_adds(&b, noise[(size_t)rand_r(&seed) % (sizeof noise / sizeof *noise)]));
            }
            char x = *c;
            if (rand_r(&seed) % 2 && x >= 'a') {
                x = (char)(x - 32);
            }
            x = x == '0' && rand_r(&seed) % 2 ? 'o' : x == '1' && rand_r(&seed) % 2 ? 'I' : x;
            ok(buf_add(&b, &x, 1));
        }
        ok(token_parse(b.p, b.n, &back, &e));
        assert_true(same_token(&t, &back));
        buf_free(&b);
    }
}

static void damage_is_told_from_nonsense(void **s)
{
    struct err e = {0};
    struct token t, back;
    char text[TOKEN_TEXT_MAX], bad[TOKEN_TEXT_MAX + 1];
    fixed_token(&t);
    token_text(&t, text);
    size_t n = strlen(text);
    for (size_t i = 6; i < n; i++) {
        for (const char *c = "0123456789abcdefghjkmnpqrstvwxyz"; *c; c++) {
            memcpy(bad, text, n + 1);
            if (bad[i] == *c) {
                continue;
            }
            bad[i] = *c; /* every single wrong character, */
            assert_int_equal(token_parse(bad, n, &back, &e), ERR_DIGEST);
        }
        if (i + 1 < n && text[i] != text[i + 1]) { /* every two swapped, */
            memcpy(bad, text, n + 1);
            bad[i] = text[i + 1];
            bad[i + 1] = text[i];
            assert_int_equal(token_parse(bad, n, &back, &e), ERR_DIGEST);
        }
        memcpy(bad, text, i); /* each one lost, */
        memcpy(bad + i, text + i + 1, n - i);
        assert_int_equal(token_parse(bad, n - 1, &back, &e), ERR_DIGEST);
        memcpy(bad, text, i + 1); /* each one doubled, */
        memcpy(bad + i + 1, text + i, n - i + 1);
        assert_int_equal(token_parse(bad, n + 1, &back, &e), ERR_DIGEST);
        /* and the end cut off anywhere */
        assert_int_equal(token_parse(text, i, &back, &e), ERR_DIGEST);
        assert_non_null(strstr(e.msg, "copy all of it"));
    }
    fails(token_parse("", 0, &back, &e), ERR_FORMAT, "begins with shoal1");
    fails(token_parse("shoal", 5, &back, &e), ERR_FORMAT, "begins with shoal1");
    fails(token_parse("hello", 5, &back, &e), ERR_FORMAT, "begins with shoal1");
    fails(token_parse("shoal2abcdef", 12, &back, &e), ERR_UNSUPPORTED, "another version");
    fails(token_parse("shoal1+abc", 10, &back, &e), ERR_FORMAT, "character 7 ('+')");
    char *big = malloc(TOKEN_INPUT_MAX + 1);
    memset(big, ' ', TOKEN_INPUT_MAX + 1);
    fails(token_parse(big, TOKEN_INPUT_MAX + 1, &back, &e), ERR_LIMIT, "too long");
    memset(big, 'a', TOKEN_INPUT_MAX);
    fails(token_parse(big, TOKEN_INPUT_MAX, &back, &e), ERR_LIMIT, "shorter than that");
    free(big);
    /* a good check over bytes in no valid form */
    static const char *const forms[] = {
        "\x01",                         /* an address announced, none there */
        "\x00\x04\x7f\0\0\x01\x50\x00", /* bytes after the last address */
        "\x01\x04\x7f\0\0\x01\x00\x00", /* port 0 */
        "\x01\x05\x7f\0\0\x01\x50\x00", /* no such kind */
        "\x01\x84"
        "A.b.\x50\x00", /* a capital: not its one form */
        "\x01\x87"
        "1.2.3.4\x50\x00", /* a number as a name */
        "\x02\x81"
        "a\x50\x00\x81"
        "a\x50\x00", /* twice the same */
        "\x01\x06\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x50\x00",
    };
    static const size_t lens[] = {1, 8, 8, 8, 8, 11, 9, 20};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        uint8_t raw[128] = {0}, d[32];
        char all[160] = "shoal invite";
        memcpy(raw + 32, forms[i], lens[i]);
        memcpy(all + 12, raw, 32 + lens[i]);
        sha256(all, 44 + lens[i], d);
        memcpy(raw + 32 + lens[i], d, 4);
        memcpy(bad, "shoal1", 6);
        b32_encode(raw, 36 + lens[i], bad + 6);
        if (token_parse(bad, strlen(bad), &back, &e) != ERR_FORMAT) {
            fail_msg("form %zu is taken", i);
        }
    }
}

/* One attempt of `j` with this token; the answer's result. */
static enum join_result attempt(struct node *k, struct node *j, const struct token *t, uint64_t now)
{
    struct err e = {0};
    struct join_request q;
    struct join_answer a;
    ok(join_ask(t, &k->me.id, &j->me.id, &q, &e));
    join_admit(&k->m, &q, crypto_key_public(j->me.key), now, &a, &e);
    enum join_result result = a.result;
    if (result == JOINED) {
        ok(join_finish(&j->m, t, &k->me.id, &a, &e));
    } else {
        assert_true(a.text[0] && a.blob.n == 0 && e.msg[0]);
        fails(join_finish(&j->m, t, &k->me.id, &a, &e), ERR_REFUSED, a.text);
    }
    join_answer_free(&a);
    return result;
}

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

/* The keeper dies, or its disk fills, between the burnt use and the roster. */
static void a_use_is_burnt_before_a_member_is_made(void **s)
{
    struct err e = {0};
    struct node k, b, c;
    struct token t;
    struct join_request q;
    struct join_answer a;
    char *home = temp_home();
    node_open(&k, at(home, "k"));
    node_open(&b, at(home, "b"));
    node_open(&c, at(home, "c"));
    ok(member_init(&k.m, NOW, &e));
    ok(invite_make(k.home, &k.m.group, 1, 3600, NOW, &t, &e));
    ok(join_ask(&t, &k.me.id, &b.me.id, &q, &e));
    /* room for the record (120 bytes), none for the roster (over 300) */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit small = {200, 200};
        signal(SIGXFSZ, SIG_IGN);
        int bad = setrlimit(RLIMIT_FSIZE, &small);
        bad |= join_admit(&k.m, &q, crypto_key_public(b.me.key), NOW, &a, NULL) != ERR_IO;
        bad |= a.result != JOIN_FAILED_HERE || a.blob.n || a.added;
        _exit(bad);
    }
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
    assert_int_equal(k.m.roster.members_n, 1);
    /* the use is spent, and it is b's: c gets nothing, b gets in */
    assert_int_equal(attempt(&k, &c, &t, NOW), JOIN_INVITE_USED_UP);
    assert_int_equal(attempt(&k, &b, &t, NOW), JOINED);
    /* no room for the record: nobody gets in, and nothing is spent */
    ok(invite_make(k.home, &k.m.group, 1, 3600, NOW, &t, &e));
    ok(join_ask(&t, &k.me.id, &c.me.id, &q, &e));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit small = {50, 50};
        signal(SIGXFSZ, SIG_IGN);
        int bad = setrlimit(RLIMIT_FSIZE, &small);
        bad |= join_admit(&k.m, &q, crypto_key_public(c.me.key), NOW, &a, NULL) != ERR_IO;
        _exit(bad || a.result != JOIN_FAILED_HERE);
    }
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
    assert_int_equal(attempt(&k, &c, &t, NOW), JOINED);
    node_close(&k);
    node_close(&b);
    node_close(&c);
    drop_home(home);
}

/* Two processes of one keeper serve the same invite to many nodes at the same time. */
static void many_joiners_at_once_spend_each_use_once(void **s)
{
    struct err e = {0};
    enum { NODES = 6, USES = 3 };
    struct node k, n[NODES];
    struct token t;
    char *home = temp_home(), name[16];
    node_open(&k, at(home, "k"));
    ok(member_init(&k.m, NOW, &e));
    ok(invite_make(k.home, &k.m.group, USES, 3600, NOW, &t, &e));
    pid_t kids[NODES];
    for (int i = 0; i < NODES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        node_open(&n[i], at(home, name));
        kids[i] = fork();
        assert_true(kids[i] >= 0);
        if (kids[i] == 0) {
            struct join_request q;
            struct join_answer a;
            if (join_ask(&t, &k.me.id, &n[i].me.id, &q, NULL)) {
                _exit(99);
            }
            join_admit(&k.m, &q, crypto_key_public(n[i].me.key), NOW, &a, NULL);
            _exit(a.result);
        }
    }
    int in = 0, out = 0;
    for (int i = 0; i < NODES; i++) {
        int st;
        waitpid(kids[i], &st, 0);
        assert_true(WIFEXITED(st));
        in += WEXITSTATUS(st) == JOINED;
        out += WEXITSTATUS(st) == JOIN_INVITE_USED_UP;
    }
    assert_int_equal(in, USES);
    assert_int_equal(out, NODES - USES);
    bool changed;
    ok(member_reload(&k.m, &changed, &e));
    assert_int_equal(k.m.roster.members_n, 1 + USES);
    for (int i = 0; i < NODES; i++) {
        node_close(&n[i]);
    }
    node_close(&k);
    drop_home(home);
}

static void a_damaged_record_is_no_invite(void **s)
{
    struct err e = {0};
    struct node k, b;
    struct token t;
    struct invite v, *list;
    size_t n, damaged;
    char *home = temp_home(), name[32], rel[64];
    uint8_t id[INVITE_ID], key[32];
    int lock;
    node_open(&k, at(home, "k"));
    node_open(&b, at(home, "b"));
    ok(member_init(&k.m, NOW, &e));
    ok(invite_make(k.home, &k.m.group, 2, 3600, NOW, &t, &e));
    assert_int_equal(attempt(&k, &b, &t, NOW), JOINED);
    ok(invite_keys(&t, id, key, &e));
    b32_encode(id, INVITE_ID, name);
    snprintf(rel, sizeof rel, "shoal/invites/%s", name);
    char *path = at(k.home, rel);
    struct buf good = slurp(path);
    assert_int_equal(good.n, 80 + 32 + 8);
    ok(home_lock(k.home, &lock, &e));
    for (size_t i = 0; i < good.n; i += 3) {
        good.p[i] ^= 4;
        put(path, good.p, good.n, 0600);
        fails(invite_load(k.home, id, &v, &e), ERR_FORMAT, "delete it");
        good.p[i] ^= 4;
        put(path, good.p, i, 0600);
        fails(invite_load(k.home, id, &v, &e), ERR_FORMAT, "delete it");
    }
    put(path, good.p, good.n, 0644);
    fails(invite_load(k.home, id, &v, &e), ERR_REFUSED, "chmod 600");
    put(path, good.p, 50, 0600);
    home_unlock(lock);
    struct node c;
    node_open(&c, at(home, "c"));
    assert_int_equal(attempt(&k, &c, &t, NOW), JOIN_NO_SUCH_INVITE);
    ok(invite_list(k.home, &list, &n, &damaged, &e));
    assert_true(n == 0 && damaged == 1);
    free(list);
    put(path, good.p, good.n, 0600);
    assert_int_equal(attempt(&k, &c, &t, NOW), JOINED);
    buf_free(&good);
    node_close(&k);
    node_close(&b);
    node_close(&c);
    drop_home(home);
}

/* What the child of the next test does until it is killed; it reports each finished step. */
static void work_until_killed(char *home, int report, uint64_t now)
{
    struct node n;
    struct token t;
    struct join_request q;
    struct join_answer a;
    struct crypto_key *k;
    node_open(&n, home);
    if (write(report, "i", 1) != 1 || (!n.m.in_group && member_init(&n.m, NOW, NULL))) {
        _exit(1);
    }
    while (write(report, "g", 1) == 1) {
        struct key_id id;
        now += 2; /* so that the spent ones are swept */
        if (crypto_key_make(&k, NULL) || invite_make(home, &n.m.group, 1, 1, now, &t, NULL)) {
            _exit(2);
        }
        crypto_key_id(crypto_key_public(k), &id);
        if (join_ask(&t, &n.me.id, &id, &q, NULL) ||
            join_admit(&n.m, &q, crypto_key_public(k), now, &a, NULL)) {
            _exit(3);
        }
        join_answer_free(&a);
        crypto_key_free(k);
        if (write(report, "j", 1) != 1) {
            _exit(4);
        }
    }
}

/* kill -9 at any moment, over and over in one home: the identity and the group stay, and no step
 * that was reported is lost. */
static void kills_lose_nothing_that_was_done(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    unsigned seed = 3;
    struct key_id id = {{0}}, group = {{0}};
    bool had_id = false, had_group = false, group_seen = false;
    size_t members = 1;
    for (int round = 0; round < 25; round++) {
        int report[2];
        assert_int_equal(pipe(report), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(report[0]);
            work_until_killed(home, report[1], NOW + 1000000u * (unsigned)round);
            _exit(5);
        }
        close(report[1]);
        /* any moment will do: in the first rounds early ones, so that making is hit, too */
        usleep((useconds_t)(rand_r(&seed) % (round < 10 ? 6000 : 60000)));
        kill(pid, SIGKILL);
        int st;
        waitpid(pid, &st, 0);
        assert_true(WIFSIGNALED(st));
        char c;
        while (read(report[0], &c, 1) == 1) {
            had_id = had_id || c == 'i';
            had_group = had_group || c == 'g';
            members += c == 'j';
        }
        close(report[0]);
        struct node n;
        node_open(&n, home);
        assert_true(!had_id || !n.me.fresh);
        if (round) {
            assert_true(id_equal(&id, &n.me.id));
        }
        id = n.me.id;
        had_id = true;
        assert_true(!had_group || n.m.in_group);
        if (n.m.in_group) {
            assert_true(!group_seen || id_equal(&group, &n.m.group));
            group = n.m.group;
            had_group = group_seen = true;
            assert_true(n.m.roster.members_n >= members);
            members = n.m.roster.members_n;
            assert_true(n.m.signing_key && roster_find(&n.m.roster, &n.me.id));
        }
        node_close(&n);
        assert_true(names_in(at(home, "identity")) == 3);
    }
    struct node n;
    node_open(&n, home);
    if (!n.m.in_group) {
        ok(member_init(&n.m, NOW, &e));
    }
    node_close(&n);
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
        cmocka_unit_test(the_text_is_as_written_down),
        cmocka_unit_test(addresses_that_mean_something),
        cmocka_unit_test(it_survives_copy_and_paste),
        cmocka_unit_test(damage_is_told_from_nonsense),
        cmocka_unit_test(an_invite_makes_a_member_once),
        cmocka_unit_test(time_ends_an_invite_and_no_clock_revives_it),
        cmocka_unit_test(strangers_and_the_man_in_the_middle_get_nothing),
        cmocka_unit_test(a_use_is_burnt_before_a_member_is_made),
        cmocka_unit_test(many_joiners_at_once_spend_each_use_once),
        cmocka_unit_test(a_damaged_record_is_no_invite),
        cmocka_unit_test(kills_lose_nothing_that_was_done),
        cmocka_unit_test(a_left_over_key_is_set_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
