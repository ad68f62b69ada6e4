/* SPDX-License-Identifier: MIT
 * t_join_faults.c: joining when something breaks: a full disk, a kill at any moment, many joiners
 * at once, a damaged record. */
#include "peer/trust_kit.h"
#include "peer/rng.h"

#include "peer/b32.h"

#include <signal.h>
#include <sys/resource.h>

#define NOW 1764480000u

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
    struct rng rng = rng_start(3);
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
        usleep(rng_below(&rng, round < 10 ? 6000 : 60000));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_use_is_burnt_before_a_member_is_made),
        cmocka_unit_test(many_joiners_at_once_spend_each_use_once),
        cmocka_unit_test(a_damaged_record_is_no_invite),
        cmocka_unit_test(kills_lose_nothing_that_was_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
