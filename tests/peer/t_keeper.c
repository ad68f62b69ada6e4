/* SPDX-License-Identifier: MIT
 * t_keeper.c: a second keeper, and the signing key under a passphrase: backup, restore, an old
 * backup. */
#include "peer/trust_kit.h"

#include "peer/b32.h"
#include "proto/base/num.h"

static const char pass[] = "correct horse battery";
#define FAST BACKUP_ITERATIONS_MIN

static void a_second_keeper(void **s)
{
    struct err e = {0};
    struct node a, b, c;
    struct key_id id;
    enum member_taken taken;
    uint8_t box[KEEPER_SEALED];
    char *home = temp_home();
    node_open(&a, at(home, "a"));
    node_open(&b, at(home, "b"));
    node_open(&c, at(home, "c"));
    ok(member_init(&a.m, 900, &e));
    enlist(&a, &b);
    enlist(&a, &c);
    fails(keeper_seal(&a.m, &b.me.id, box, &e), ERR_REFUSED, "keeper add");
    fails(keeper_seal(&b.m, &b.me.id, box, &e), ERR_REFUSED, "only a keeper");
    ok(keeper_add(&a.m, short_of(&b), &id, &e));
    assert_true(id_equal(&id, &b.me.id));
    assert_false(keeper_wanted(&b.m));
    ok(member_take_roster(&b.m, a.m.blob.p, a.m.blob.n, &taken, &e));
    ok(member_take_roster(&c.m, a.m.blob.p, a.m.blob.n, &taken, &e));
    assert_true(keeper_wanted(&b.m));
    assert_false(keeper_wanted(&c.m) || keeper_wanted(&a.m));
    ok(keeper_seal(&a.m, &b.me.id, box, &e));
    fails(keeper_take(&c.m, box, sizeof box, &e), ERR_DIGEST, "cannot be used");
    fails(keeper_take(&b.m, box, sizeof box - 1, &e), ERR_FORMAT, "sealed");
    for (size_t i = 0; i < sizeof box; i++) { /* whatever byte of it is another */
        box[i] ^= 1;
        assert_int_not_equal(keeper_take(&b.m, box, sizeof box, &e), 0);
        assert_true(keeper_wanted(&b.m));
        box[i] ^= 1;
    }
    ok(keeper_take(&b.m, box, sizeof box, &e));
    assert_false(keeper_wanted(&b.m));
    ok(keeper_take(&b.m, box, sizeof box, &e)); /* twice does no harm */
    assert_int_equal(mode_of(at(b.home, "shoal/group.key")), 0600);
    /* somebody else's key in our name is refused */
    char context[96] = "shoal keeper 1 ";
    uint8_t d[CRYPTO_SECRET];
    sha256_hex(a.m.group.b, context + 15);
    ok(crypto_key_secret(keys[3], d, &e));
    ok(crypto_seal_for(crypto_key_public(c.me.key), context, d, sizeof d, box, &e));
    fails(keeper_take(&c.m, box, sizeof box, &e), ERR_REFUSED, "not this shoal's");
    assert_int_not_equal(access(at(c.home, "shoal/group.key"), F_OK), 0);

    /* both keepers take in a node at once, without seeing each other: both stay in */
    ok(member_add(&a.m, pubs[1], 5, &e));
    ok(member_add(&b.m, pubs[2], 6, &e));
    assert_int_equal(a.m.roster.version, b.m.roster.version);
    enum member_taken at_c1, at_c2;
    ok(member_take_roster(&c.m, a.m.blob.p, a.m.blob.n, &at_c1, &e));
    ok(member_take_roster(&c.m, b.m.blob.p, b.m.blob.n, &at_c2, &e));
    assert_int_equal(at_c1, TAKEN_NEWER);
    assert_int_equal(at_c2, TAKEN_MERGED); /* which of the two wins or not (t_fork) */
    assert_true(roster_find(&c.m.roster, &ids[1]) && roster_find(&c.m.roster, &ids[2]));
    ok(member_take_roster(&a.m, b.m.blob.p, b.m.blob.n, &taken, &e));
    assert_int_equal(taken, TAKEN_MERGED);
    assert_true(roster_find(&a.m.roster, &ids[1]) && roster_find(&a.m.roster, &ids[2]));
    ok(member_take_roster(&b.m, a.m.blob.p, a.m.blob.n, &taken, &e));
    assert_int_equal(taken, TAKEN_NEWER);
    assert_memory_equal(a.m.blob.p, b.m.blob.p, a.m.blob.n);
    ok(member_take_roster(&c.m, a.m.blob.p, a.m.blob.n, &taken, &e));
    assert_int_equal(taken, TAKEN_NEWER);
    assert_true(roster_find(&c.m.roster, &ids[1]) && roster_find(&c.m.roster, &ids[2]));
    /* one removes while the other adds to a longer chain: the removal is not lost */
    char brief[ID_SHORT];
    id_short(&ids[1], brief);
    ok(member_remove(&a.m, brief, false, 9, &id, &e));
    ok(member_add(&b.m, pubs[3], 6, &e));
    ok(member_add(&b.m, pubs[4], 6, &e));
    ok(member_take_roster(&a.m, b.m.blob.p, b.m.blob.n, &taken, &e));
    assert_int_equal(taken, TAKEN_MERGED);
    assert_true(roster_has_removed(&a.m.roster, &ids[1]) && roster_find(&a.m.roster, &ids[4]));
    fails(member_remove(&a.m, short_of(&b), false, 9, &id, &e), ERR_REFUSED, "signing key");
    ok(member_remove(&a.m, short_of(&b), true, 9, &id, &e));
    node_close(&a);
    node_close(&b);
    node_close(&c);
    drop_home(home);
}

static void backup_and_restore(void **s)
{
    struct err e = {0};
    struct node a, b, c;
    enum member_taken taken;
    struct buf text, mangled;
    char *home = temp_home();
    node_open(&a, at(home, "a"));
    node_open(&b, at(home, "b"));
    node_open(&c, at(home, "c"));
    ok(member_init(&a.m, 900, &e));
    enlist(&a, &b);
    buf_init(&text, BACKUP_TEXT_MAX);
    fails(keeper_backup(&b.m, pass, strlen(pass), FAST, &text, &e), ERR_REFUSED, "only a keeper");
    fails(keeper_backup(&a.m, "short", 5, FAST, &text, &e), ERR_ARG, "8 to 1024");
    fails(keeper_backup(&a.m, pass, strlen(pass), 9999, &text, &e), ERR_ARG, "iterations");
    ok(keeper_backup(&a.m, pass, strlen(pass), FAST, &text, &e));
    assert_memory_equal(text.p, "shoal backup 1: ", 16);

    /* by hand, as written down: PBKDF2 and GCM of crypto.h have their own vectors */
    uint8_t raw[160], key[32], d[32], real[32];
    struct buf clean;
    size_t n;
    char *line = strchr(text.p, '\n');
    buf_init(&clean, 1024);
    ok(b32_clean("x", line, strlen(line), &clean, &e));
    ok(b32_decode(clean.p, clean.n, raw, sizeof raw, &n));
    assert_int_equal(n, 65 + 32 + 16 + 4);
    assert_int_equal(num_get_le32(raw + 1), FAST);
    assert_memory_equal(raw + 5, a.m.group.b, 32);
    ok(crypto_pbkdf2(pass, strlen(pass), raw + 37, 16, FAST, key, 32));
    ok(crypto_open(key, raw + 53, raw, 65, raw + 65, 48, d, &e));
    ok(crypto_key_secret(a.m.signing_key, real, &e));
    assert_memory_equal(d, real, 32);
    buf_free(&clean);

    fails(keeper_restore(&c.m, text.p, text.n, "wrong horse battery", 19, 5, &e), ERR_DIGEST,
          "passphrase");
    assert_false(c.m.in_group);
    for (size_t i = 0; i < text.n; i += 9) { /* any other character: the check notices */
        char was = text.p[i];
        if (was == ' ' || was == '\n' || (char *)text.p + i < line) {
            continue;
        }
        text.p[i] = was == '7' ? '8' : '7';
        e.msg[0] = 0;
        assert_int_not_equal(keeper_restore(&c.m, text.p, text.n, pass, strlen(pass), 5, &e), 0);
        assert_non_null(strstr(e.msg, "damaged"));
        text.p[i] = was;
    }
    fails(keeper_restore(&c.m, text.p, text.n - 3, pass, strlen(pass), 5, &e), ERR_FORMAT,
          "damaged");
    fails(keeper_restore(&c.m, "hello\n", 6, pass, strlen(pass), 5, &e), ERR_FORMAT, "no backup");
    fails(keeper_restore(&c.m, "", 0, pass, strlen(pass), 5, &e), ERR_FORMAT, "no backup");

    /* printed and typed in again, in capitals, on one line */
    buf_init(&mangled, 2048);
    for (size_t i = 0; i < text.n; i++) {
        char ch = text.p[i];
        bool data = text.p + i > line;
        ch = data && ch >= 'a' && ch <= 'z' ? (char)(ch - 32) : data && ch == '\n' ? ' ' : ch;
        ok(buf_add(&mangled, &ch, 1));
    }
    ok(keeper_restore(&c.m, mangled.p, mangled.n, pass, strlen(pass), 7, &e));
    assert_true(c.m.in_group && c.m.signing_key && c.m.roster.members_n == 1);
    assert_true(id_equal(&c.m.group, &a.m.group));
    /* the only keeper is lost for good; the restored one meets a member and they become one */
    assert_int_equal(member_standing(&b.m, &c.me.id, c.m.blob.p, c.m.blob.n, NULL),
                     STANDING_MEMBER);
    ok(member_take_roster(&b.m, c.m.blob.p, c.m.blob.n, &taken, &e));
    assert_int_equal(taken, TAKEN_MERGED);
    ok(member_take_roster(&c.m, b.m.blob.p, b.m.blob.n, &taken, &e));
    assert_int_equal(taken, TAKEN_MERGED);
    ok(member_take_roster(&b.m, c.m.blob.p, c.m.blob.n, &taken, &e));
    assert_int_equal(taken, TAKEN_NEWER);
    assert_int_equal(b.m.roster.members_n, 3);
    assert_true(roster_find(&b.m.roster, &c.me.id)->flags & ROSTER_KEEPER);
    /* a member that gets the key back */
    ok(keeper_restore(&b.m, text.p, text.n, pass, strlen(pass), 8, &e));
    assert_true(b.m.signing_key && roster_find(&b.m.roster, &b.me.id)->flags & ROSTER_KEEPER);
    /* a member of another shoal */
    struct node d_;
    node_open(&d_, at(home, "d"));
    ok(member_init(&d_.m, 1, &e));
    fails(keeper_restore(&d_.m, text.p, text.n, pass, strlen(pass), 8, &e), ERR_BUSY,
          "another shoal");
    node_close(&d_);
    buf_free(&text);
    buf_free(&mangled);
    node_close(&a);
    node_close(&b);
    node_close(&c);
    drop_home(home);
}

/* A backup as this version writes it, of the private number 7, opened once by another program
 * (PBKDF2 and GCM of Python): paper in a drawer has to work for ever. */
static void an_old_backup_still_works(void **s)
{
    struct err e = {0};
    static const char words[] = "seven words are better than one word";
    static const char text[] =
        "shoal backup 1: the signing key of the shoal 2446-cjed-7svh, under a passphrase\n"
        "0702 e280 2446 cjed 7seh h4h0 1910 1cb5 qfn5 s7wv\n"
        "8z58 6y9d 9yd1 xw6w h4gp p7h0 t27h 8gmy afba xhwp\n"
        "1bpt 312q 47qh wcnd dbhp 4rpd bmbn fvp6 fqw0 8bec\n"
        "1khs d1s8 8asx m55g 9z63 7zqv spzw 14pm cwtj rfgj\n"
        "h13d 6ww4 dhzf p9c7 8q1e dfra ns3g\n";
    char *home = temp_home();
    struct node a;
    uint8_t d[CRYPTO_SECRET], want[CRYPTO_SECRET] = {[CRYPTO_SECRET - 1] = 7};
    node_open(&a, home);
    ok(keeper_restore(&a.m, text, sizeof text - 1, words, sizeof words - 1, 5, &e));
    ok(crypto_key_secret(a.m.signing_key, d, &e));
    assert_memory_equal(d, want, sizeof d);
    node_close(&a);
    drop_home(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_keeper),
        cmocka_unit_test(backup_and_restore),
        cmocka_unit_test(an_old_backup_still_works),
    };
    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
