/* SPDX-License-Identifier: MIT
 * t_member.c: a home's membership: init, remove, how rosters spread, damaged files, a full disk,
 * several processes at once. */
#include "peer/trust_kit.h"

#include <signal.h>
#include <sys/resource.h>

static void init_remove_and_the_spread_of_rosters(void **s)
{
    struct err e = {0};
    struct node a, b, c;
    struct key_id id;
    enum member_taken taken;
    char *home = temp_home();
    node_open(&a, at(home, "a"));
    assert_false(a.m.in_group);
    fails(member_remove(&a.m, "abcd", false, 5, &id, &e), ERR_REFUSED, "shoal init");
    ok(member_init(&a.m, 900, &e));
    assert_true(a.m.in_group && a.m.signing_key && a.m.roster.version == 1);
    fails(member_init(&a.m, 901, &e), ERR_BUSY, "already belongs");
    assert_int_equal(mode_of(at(a.home, "shoal/group.key")), 0600);
    assert_int_equal(mode_of(at(a.home, "shoal")), 0700);
    node_open(&b, at(home, "b"));
    node_open(&c, at(home, "c"));
    enlist(&a, &b);
    enlist(&a, &c);
    assert_int_equal(a.m.roster.version, 3);
    assert_int_equal(b.m.roster.version, 2);
    struct err why = {0};
    assert_int_equal(member_standing(&b.m, &c.me.id, NULL, 0, &why), STANDING_STRANGER);
    assert_non_null(strstr(why.msg, "shoal join"));
    assert_int_equal(member_standing(&b.m, &c.me.id, c.m.blob.p, c.m.blob.n, NULL),
                     STANDING_MEMBER);
    fails(member_add(&b.m, pubs[1], 1, &e), ERR_REFUSED, short_of(&a));

    ok(member_take_roster(&b.m, c.m.blob.p, c.m.blob.n, &taken, &e));
    assert_int_equal(taken, TAKEN_NEWER);
    ok(member_take_roster(&b.m, c.m.blob.p, c.m.blob.n, &taken, &e));
    assert_int_equal(taken, TAKEN_EQUAL);
    assert_int_equal(b.m.roster.version, 3);

    fails(member_remove(&a.m, short_of(&a), false, 5, &id, &e), ERR_ARG, "cannot remove itself");
    fails(member_remove(&a.m, "zzzz", false, 5, &id, &e), ERR_NOTFOUND, "zzzz");
    struct buf old;
    buf_init(&old, ROSTER_BLOB_MAX);
    ok(buf_add(&old, a.m.blob.p, a.m.blob.n));
    ok(member_remove(&a.m, short_of(&c), false, 5, &id, &e));
    assert_true(id_equal(&id, &c.me.id));
    assert_int_equal(member_standing(&a.m, &c.me.id, old.p, old.n, &why), STANDING_REMOVED);
    assert_non_null(strstr(why.msg, "removed"));
    ok(member_take_roster(&b.m, a.m.blob.p, a.m.blob.n, &taken, &e));
    assert_int_equal(taken, TAKEN_NEWER);
    ok(member_take_roster(&b.m, old.p, old.n, &taken,
                          &e)); /* the removed one shows its old roster */
    assert_int_equal(taken, TAKEN_OLDER);
    assert_int_equal(member_standing(&b.m, &c.me.id, old.p, old.n, NULL), STANDING_REMOVED);
    ok(member_take_roster(&c.m, a.m.blob.p, a.m.blob.n, &taken, &e)); /* and it learns of it */
    assert_int_equal(member_standing(&c.m, &c.me.id, NULL, 0, NULL), STANDING_REMOVED);
    /* a roster of somebody else's shoal changes nothing */
    struct roster r = sample();
    struct buf foreign = signed_blob(&r);
    fails(member_take_roster(&b.m, foreign.p, foreign.n, &taken, &e), ERR_REFUSED, "another shoal");
    assert_int_equal(b.m.roster.version, 4);
    /* restart: everything is still there */
    member_close(&b.m);
    ok(member_open(b.home, &b.me, &b.m, &e));
    assert_int_equal(b.m.roster.version, 4);
    buf_free(&foreign);
    buf_free(&old);
    roster_free(&r);
    node_close(&a);
    node_close(&b);
    node_close(&c);
    drop_home(home);
}

static void damaged_files_say_what_to_do(void **s)
{
    struct err e = {0};
    struct node a;
    struct member m;
    enum member_taken taken;
    char *home = temp_home();
    node_open(&a, home);
    ok(member_init(&a.m, 900, &e));
    ok(member_add(&a.m, pubs[1], 5, &e));
    char *roster = at(home, "shoal/roster"), *group = at(home, "shoal/group"),
         *key = at(home, "shoal/group.key");
    struct buf r = slurp(roster), g = slurp(group), k = slurp(key);

    put(roster, r.p, r.n / 2, 0600);
    fails(member_open(home, &a.me, &m, &e), ERR_FORMAT, roster);
    assert_non_null(strstr(e.msg, "delete it"));
    member_close(&m);
    char *big = calloc(1, ROSTER_BLOB_MAX + 1);
    put(roster, big, ROSTER_BLOB_MAX + 1, 0600);
    free(big);
    fails(member_open(home, &a.me, &m, &e), ERR_LIMIT, "larger");
    member_close(&m);
    /* following the advice: the keeper goes on alone, and what the others have comes back */
    unlink(roster);
    ok(member_open(home, &a.me, &m, &e));
    assert_true(m.in_group && m.roster.version == 0 && m.roster.members_n == 1);
    ok(member_take_roster(&m, r.p, r.n, &taken, &e));
    assert_int_equal(taken, TAKEN_NEWER);
    assert_int_equal(m.roster.members_n, 2);
    member_close(&m);
    unlink(roster);
    ok(member_open(home, &a.me, &m, &e));
    ok(member_add(&m, pubs[2], 5, &e)); /* before it met anybody */
    ok(member_take_roster(&m, r.p, r.n, &taken, &e));
    assert_int_equal(taken, TAKEN_MERGED);
    assert_int_equal(m.roster.members_n, 3);
    member_close(&m);
    put(roster, r.p, r.n, 0600);

    put(group, "nonsense\n", 9, 0600);
    fails(member_open(home, &a.me, &m, &e), ERR_FORMAT, "join again");
    member_close(&m);
    put(group, "", 0, 0600);
    fails(member_open(home, &a.me, &m, &e), ERR_FORMAT, "join again");
    member_close(&m);
    char other[ID_TEXT];
    id_text(&ids[4], other);
    put(group, other, strlen(other), 0600);
    fails(member_open(home, &a.me, &m, &e), ERR_REFUSED, "another shoal");
    member_close(&m);
    put(group, g.p, g.n, 0600);

    put(key, k.p, k.n - 5, 0600);
    fails(member_open(home, &a.me, &m, &e), ERR_FORMAT, key);
    member_close(&m);
    put(key, k.p, k.n, 0644);
    fails(member_open(home, &a.me, &m, &e), ERR_REFUSED, "chmod 600");
    member_close(&m);
    char pem[CRYPTO_PEM_MAX];
    size_t n;
    ok(crypto_key_pem(keys[2], pem, &n, &e));
    put(key, pem, n, 0600);
    fails(member_open(home, &a.me, &m, &e), ERR_FORMAT, "signing key of another shoal");
    member_close(&m);
    put(key, k.p, k.n, 0600);
    ok(member_open(home, &a.me, &m, &e));
    /* an init that was killed before the pin: the next one goes on with the same key */
    unlink(group);
    bool changed;
    ok(member_reload(&m, &changed, &e));
    assert_true(changed && !m.in_group);
    ok(member_init(&m, 5, &e));
    struct buf k2 = slurp(key);
    assert_memory_equal(k.p, k2.p, k.n);
    member_close(&m);
    buf_free(&k2);
    buf_free(&r);
    buf_free(&g);
    buf_free(&k);
    node_close(&a);
    drop_home(home);
}

/* Writes that fail: the disk keeps the old state whole, and memory says what the disk says. */
static void a_full_disk_changes_nothing(void **s)
{
    struct err e = {0};
    struct node a;
    char *home = temp_home();
    node_open(&a, home);
    ok(member_init(&a.m, 900, &e));
    struct buf before = slurp(at(home, "shoal/roster"));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit small = {100, 100};
        struct err c = {0};
        signal(SIGXFSZ, SIG_IGN);
        int bad = setrlimit(RLIMIT_FSIZE, &small);
        bad |= member_add(&a.m, pubs[1], 5, &c) != ERR_IO || !strstr(c.msg, "cannot write");
        bad |= a.m.roster.version != 1 || a.m.roster.members_n != 1 || !a.m.signing_key;
        _exit(bad);
    }
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
    struct buf after = slurp(at(home, "shoal/roster"));
    assert_int_equal(before.n, after.n);
    assert_memory_equal(before.p, after.p, before.n);
    assert_int_equal(names_in(at(home, "shoal")), 3);
    buf_free(&before);
    buf_free(&after);
    node_close(&a);
    drop_home(home);
}

/* Several processes change one home's roster: no change is lost, each has its own version. */
static void processes_at_once_lose_no_member(void **s)
{
    struct err e = {0};
    struct node a;
    enum { KIDS = 4, EACH = 2 };
    char *home = temp_home();
    node_open(&a, home);
    ok(member_init(&a.m, 900, &e));
    pid_t kids[KIDS];
    for (int i = 0; i < KIDS; i++) {
        kids[i] = fork();
        assert_true(kids[i] >= 0);
        if (kids[i] == 0) {
            int bad = 0;
            for (int j = 0; j < EACH; j++) {
                bad |= member_add(&a.m, pubs[1 + i * EACH + j], 5, NULL);
            }
            _exit(bad != 0);
        }
    }
    for (int i = 0; i < KIDS; i++) {
        int st;
        waitpid(kids[i], &st, 0);
        assert_int_equal(st, 0);
    }
    bool changed;
    ok(member_reload(&a.m, &changed, &e));
    assert_true(changed);
    assert_int_equal(a.m.roster.members_n, 1 + KIDS * EACH);
    assert_int_equal(a.m.roster.version, 1 + KIDS * EACH);
    ok(member_reload(&a.m, &changed, &e));
    assert_false(changed);
    node_close(&a);
    drop_home(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_remove_and_the_spread_of_rosters),
        cmocka_unit_test(damaged_files_say_what_to_do),
        cmocka_unit_test(a_full_disk_changes_nothing),
        cmocka_unit_test(processes_at_once_lose_no_member),
    };
    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
