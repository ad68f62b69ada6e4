/* SPDX-License-Identifier: MIT
 * t_identity.c: ids in text; the key file: made once, by one of many processes, never replaced
 * whatever happens to it; a copied folder and a node id that lives twice. */
#include "peer/home_util.h"

#include "peer/b32.h"
#include "peer/home.h"
#include "peer/identity.h"
#include "peer/instance.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

static const char machine_a[] = "0123456789abcdef0123456789abcdef";
static const char machine_b[] = "fedcba9876543210fedcba9876543210";

static void ids_in_text(void **s)
{
    struct err e = {0};
    struct key_id ids[40], out;
    char full[ID_TEXT], brief[ID_SHORT], twin[ID_SHORT];
    size_t at;
    for (int i = 0; i < 40; i++) {
        sha256(&i, sizeof i, ids[i].b);
    }
    for (int i = 0; i < 40; i++) {
        id_text(&ids[i], full);
        id_short(&ids[i], brief);
        assert_int_equal(strlen(full), ID_TEXT - 1);
        assert_int_equal(strlen(brief), ID_SHORT - 1);
        assert_memory_equal(full, brief, 11);
        ok(id_parse(full, &out, &e));
        assert_true(id_equal(&out, &ids[i]));
        ok(id_find(full, ids, 40, &at, &e));
        assert_int_equal(at, i);
        ok(id_find(brief, ids, 40, &at, &e));
        assert_int_equal(at, i);
        char bare[17], again[ID_SHORT]; /* as an announcement has it */
        size_t n = 0;
        for (const char *c = full; n < 16; c++) {
            bare[n] = *c;
            n += *c != '-';
        }
        bare[16] = 0;
        assert_true(id_short_of(bare, again));
        assert_string_equal(again, brief);
        brief[11] = 0; /* 10 characters, no check */
        ok(id_find(brief, ids, 40, &at, &e));
        assert_int_equal(at, i);
    }
    assert_false(id_short_of("k7qm3v9d", twin)); /* too short */
    assert_false(id_short_of("mac-mini.local:4433", twin));
    assert_false(id_short_of("k7qm3v9dx2:4433", twin));
    assert_string_equal(twin, "");
    /* each single mistyped character of a short form is noticed (2 check characters: 1 in 1024
     * would slip through; these do not) */
    id_short(&ids[3], brief);
    int slipped = 0, tried = 0;
    for (size_t i = 0; i < strlen(brief); i++) {
        if (brief[i] == '-') {
            continue;
        }
        for (const char *c = "0123456789abcdefghjkmnpqrstvwxyz"; *c; c++) {
            memcpy(twin, brief, sizeof twin);
            if (twin[i] == *c) {
                continue;
            }
            twin[i] = *c;
            int r = id_find(twin, ids, 40, &at, NULL);
            tried++;
            slipped += r != ERR_FORMAT;
            assert_true(r == ERR_FORMAT || r == ERR_NOTFOUND);
        }
    }
    assert_int_equal(tried, 12 * 31);
    assert_true(slipped <= 3);
    id_text(&ids[0], full);
    for (char *c = full; *c; c++) { /* as a person might write it */
        *c = *c == '-' ? ' ' : *c == '0' ? 'O' : *c == '1' ? 'l' : (char)(*c >= 'a' ? *c - 32 : *c);
    }
    ok(id_parse(full, &out, &e));
    assert_true(id_equal(&out, &ids[0]));
    full[0] = full[0] == 'A' ? 'B' : 'A';
    fails(id_parse(full, &out, &e), ERR_FORMAT, "mistyped");
    fails(id_parse("abcd", &out, &e), ERR_FORMAT, "has 56 characters, this has 4");
    fails(id_find("abc", ids, 40, &at, &e), ERR_FORMAT, "first 4 to 10");
    fails(id_find("zzzzzz", ids, 40, &at, &e), ERR_NOTFOUND, "zzzzzz");
    struct key_id pair[2] = {ids[0], ids[0]};
    pair[1].b[31] ^= 1;
    id_short(&ids[0], brief);
    fails(id_find(brief, pair, 2, &at, &e), ERR_ARG, "fits 2 nodes");
}

static void the_key_is_made_once_and_kept(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    struct identity a, b;
    umask(0); /* the modes must not depend on it */
    char *deep = at(home, "new/home");
    ok(identity_open(deep, machine_a, &a, &e));
    assert_true(a.fresh && !a.moved);
    assert_int_equal(mode_of(at(deep, "identity/node.key")), 0600);
    assert_int_equal(mode_of(at(deep, "identity")), 0700);
    assert_int_equal(names_in(at(deep, "identity")), 3);
    struct buf one = slurp(at(deep, "identity/node.key"));
    struct buf id = slurp(at(deep, "identity/node.id"));
    char text[ID_TEXT];
    id_text(&a.id, text);
    assert_memory_equal(id.p, text, ID_TEXT - 1);
    ok(identity_open(deep, machine_a, &b, &e));
    assert_false(b.fresh);
    assert_true(id_equal(&a.id, &b.id));
    assert_memory_not_equal(a.run, b.run, sizeof a.run);
    assert_memory_equal(a.machine, b.machine, sizeof a.machine);
    struct buf two = slurp(at(deep, "identity/node.key"));
    assert_int_equal(one.n, two.n);
    assert_memory_equal(one.p, two.p, one.n);
    buf_free(&one);
    buf_free(&two);
    buf_free(&id);
    identity_close(&b);
    /* what a kill -9 in the middle leaves is swept, and a lost node.id comes back */
    put(at(deep, "identity/node.key.new0123456789abcdef"), "x", 1, 0600);
    put(at(deep, "identity/machine.tmp123"), "x", 1, 0600);
    put(at(deep, "identity/mine.txt"), "x", 1, 0600);
    unlink(at(deep, "identity/node.id"));
    ok(identity_open(deep, machine_a, &b, &e));
    assert_int_equal(names_in(at(deep, "identity")), 4);
    assert_true(id_equal(&a.id, &b.id));
    identity_close(&b);
    identity_close(&a);
    drop_home(home);
}

/* Every way in which the key file can be wrong: an error that names it, and the file stays. */
static void a_bad_key_is_an_error_and_never_replaced(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    struct identity me, other;
    ok(identity_open(home, machine_a, &me, &e));
    identity_close(&me);
    char *key = at(home, "identity/node.key");
    struct buf good = slurp(key);

    static const mode_t modes[] = {0640, 0604, 0620, 0660, 0644, 0666};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        chmod(key, modes[i]);
        fails(identity_open(home, machine_a, &other, &e), ERR_REFUSED, "chmod 600");
        assert_non_null(strstr(e.msg, key));
        assert_int_equal(mode_of(key), modes[i]);
    }
    /* cut anywhere, emptied, doubled, with bytes around it, with a wrong character anywhere */
    struct {
        const char *before, *after;
        size_t cut;
    } bad[] = {{"", "", 0},       {"", "", 1},        {"", "", good.n / 2}, {"", "", good.n - 1},
               {" ", "", good.n}, {"", "\n", good.n}, {"", good.p, good.n}, {"", "x", good.n}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[2048];
        int n = snprintf(text, sizeof text, "%s%.*s%s", bad[i].before, (int)bad[i].cut, good.p,
                         bad[i].after);
        put(key, text, (size_t)n, 0600);
        memset(&e, 0, sizeof e);
        int r = identity_open(home, machine_a, &other, &e);
        assert_true(r == ERR_FORMAT || r == ERR_LIMIT);
        assert_non_null(strstr(e.msg, key));
        struct buf now = slurp(key);
        assert_int_equal(now.n, n);
        assert_memory_equal(now.p ? now.p : "", text, (size_t)n);
        buf_free(&now);
    }
    for (size_t i = 0; i < good.n; i += 5) {
        char *text = malloc(good.n);
        memcpy(text, good.p, good.n);
        text[i] = text[i] == 'A' ? 'B' : 'A';
        put(key, text, good.n, 0600);
        memset(&e, 0, sizeof e);
        int r = identity_open(home, machine_a, &other, &e);
        if (!r) { /* base 64 padding bits: the same key after all */
            assert_true(id_equal(&other.id, &me.id));
            identity_close(&other);
        } else {
            assert_non_null(strstr(e.msg, key));
        }
        free(text);
    }
    char big[8192];
    memset(big, 'A', sizeof big);
    put(key, big, sizeof big, 0600);
    fails(identity_open(home, machine_a, &other, &e), ERR_LIMIT, "larger than");

    unlink(key);
    fails(identity_open(home, machine_a, &other, &e), ERR_NOTFOUND, "is gone");
    assert_int_not_equal(access(key, F_OK), 0);
    put(at(home, "elsewhere"), good.p, good.n, 0600);
    assert_int_equal(symlink("../elsewhere", key), 0);
    fails(identity_open(home, machine_a, &other, &e), ERR_FORMAT, "link");
    unlink(key);
    assert_int_equal(mkfifo(key, 0600), 0);
    fails(identity_open(home, machine_a, &other, &e), ERR_FORMAT, "not a plain file");
    unlink(key);
    assert_int_equal(mkdir(key, 0700), 0);
    fails(identity_open(home, machine_a, &other, &e), ERR_FORMAT, "not a plain file");
    rmdir(key);
    put(key, good.p, good.n, 0600);
    if (geteuid() != 0) {
        chmod(key, 0);
        fails(identity_open(home, machine_a, &other, &e), ERR_REFUSED, "chown");
        chmod(key, 0600);
        chmod(at(home, "identity"), 0500); /* nothing to write: opens all the same */
    }
    ok(identity_open(home, machine_a, &other, &e));
    assert_true(id_equal(&other.id, &me.id));
    identity_close(&other);
    chmod(at(home, "identity"), 0700);
    put(at(home, "identity/node.id"), "hello\n", 6, 0600);
    fails(identity_open(home, machine_a, &other, &e), ERR_FORMAT, "does not hold an id");
    buf_free(&good);
    drop_home(home);
}

/* A full or read-only disk, by a limit on the size of files: nothing half-made is left. */
static void a_full_disk_leaves_nothing(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    struct identity me;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        /* writes beyond 64 bytes fail with EFBIG */
        signal(SIGXFSZ, SIG_IGN);
        struct err c = {0};
        struct rlimit small = {64, 64};
        int r = setrlimit(RLIMIT_FSIZE, &small) ? 0 : identity_open(home, machine_a, &me, &c);
        _exit(r == ERR_IO && strstr(c.msg, "cannot write") ? 0 : 1);
    }
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 0);
    assert_int_equal(names_in(at(home, "identity")), 0);
    ok(identity_open(home, machine_a, &me, &e));
    assert_true(me.fresh);
    identity_close(&me);
    drop_home(home);
}

static void many_processes_at_once_make_one_key(void **s)
{
    struct err e = {0};
    enum { KIDS = 8, ROUNDS = 5 };
    for (int round = 0; round < ROUNDS; round++) {
        char *home = temp_home();
        int go[2], back[2];
        assert_int_equal(pipe(go), 0);
        assert_int_equal(pipe(back), 0);
        pid_t kids[KIDS];
        for (int i = 0; i < KIDS; i++) {
            kids[i] = fork();
            assert_true(kids[i] >= 0);
            if (kids[i] == 0) {
                char c;
                struct identity me;
                uint8_t out[33] = {0};
                close(go[1]);
                if (read(go[0], &c, 1) == 0 && !identity_open(home, machine_a, &me, NULL)) {
                    memcpy(out, me.id.b, 32);
                    out[32] = (uint8_t)(1 + me.fresh);
                }
                _exit(write(back[1], out, sizeof out) == (ssize_t)sizeof out ? 0 : 1);
            }
        }
        close(go[0]);
        close(go[1]); /* all start */
        uint8_t first[32];
        int fresh = 0;
        for (int i = 0; i < KIDS; i++) {
            uint8_t got[33];
            assert_int_equal(read(back[0], got, sizeof got), sizeof got);
            assert_true(got[32] >= 1);
            fresh += got[32] - 1;
            if (i == 0) {
                memcpy(first, got, 32);
            }
            assert_memory_equal(first, got, 32);
        }
        for (int i = 0; i < KIDS; i++) {
            int st;
            waitpid(kids[i], &st, 0);
            assert_int_equal(st, 0);
        }
        assert_int_equal(fresh, 1);
        assert_int_equal(names_in(at(home, "identity")), 3);
        struct identity me;
        ok(identity_open(home, machine_a, &me, &e));
        assert_memory_equal(me.id.b, first, 32);
        identity_close(&me);
        close(back[0]);
        close(back[1]);
        drop_home(home);
    }
}

struct racer {
    const char *home;
    int i, made;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    char text[16];
    bool made;
    int n = snprintf(text, sizeof text, "writer %d", r->i);
    r->made = home_write_once(r->home, "once", text, (size_t)n, &made, NULL) ? -1 : made;
    return NULL;
}

/* The same without the lock: link alone decides, and no reader ever sees half a file. */
static void write_once_has_one_winner(void **s)
{
    for (int round = 0; round < 20; round++) {
        char *home = temp_home();
        pthread_t t[4];
        struct racer r[4];
        int winner = -1;
        for (int i = 0; i < 4; i++) {
            r[i] = (struct racer){home, i, 0};
            assert_int_equal(pthread_create(&t[i], NULL, race, &r[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(t[i], NULL);
            assert_true(r[i].made >= 0);
            assert_true(!r[i].made || winner < 0);
            winner = r[i].made ? i : winner;
        }
        assert_true(winner >= 0);
        struct buf b = slurp(at(home, "once"));
        char want[32];
        snprintf(want, sizeof want, "writer %d", winner);
        assert_string_equal(b.p, want);
        buf_free(&b);
        assert_int_equal(names_in(home), 1);
        drop_home(home);
    }
}

static void the_lock_excludes_and_dies_with_its_holder(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    int up[2];
    assert_int_equal(pipe(up), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int l;
        int r = home_lock(home, &l, NULL);
        r = r || write(up[1], "x", 1) != 1;
        pause();
        _exit(r);
    }
    char c;
    assert_int_equal(read(up[0], &c, 1), 1);
    int fd = open(at(home, "trust.lock"), O_RDWR);
    assert_true(fd >= 0);
    close(fd);
    struct identity me;
    kill(pid, SIGKILL);
    ok(identity_open(home, machine_a, &me, &e)); /* waits for the death, at most ten seconds */
    identity_close(&me);
    waitpid(pid, NULL, 0);
    close(up[0]);
    close(up[1]);
    drop_home(home);
}

static void a_copied_folder_is_noticed(void **s)
{
    struct err e = {0};
    char *home = temp_home();
    char *one = at(home, "one"), *two = at(home, "two");
    struct identity a, b;
    char text[400], brief[ID_SHORT];
    ok(identity_open(one, machine_a, &a, &e));
    assert_int_equal(shell("cp -a '%s' '%s'", one, two), 0);
    ok(identity_open(two, machine_b, &b, &e));
    assert_true(id_equal(&a.id, &b.id));
    assert_true(b.moved);
    assert_memory_not_equal(a.machine, b.machine, MACHINE_MARK);
    identity_moved_text(&b, text, sizeof text);
    id_short(&a.id, brief);
    assert_non_null(strstr(text, brief));

    struct instance ia, ib, ic = {0};
    instance_of(&a, &ia);
    instance_of(&b, &ib);
    ic.id.b[0] = 1;
    /* they meet each other: both ends say so */
    assert_int_equal(instance_decide(&ia, NULL, OLD_GONE, &ib), INSTANCE_TWICE);
    assert_int_equal(instance_decide(&ib, NULL, OLD_GONE, &ia), INSTANCE_TWICE);
    assert_int_equal(instance_decide(&ia, NULL, OLD_GONE, &ia), INSTANCE_SELF);
    /* they meet a third */
    assert_int_equal(instance_decide(&ic, NULL, OLD_GONE, &ia), INSTANCE_NEW);
    assert_int_equal(instance_decide(&ic, &ia, OLD_UNKNOWN, &ia), INSTANCE_SAME);
    assert_int_equal(instance_decide(&ic, &ia, OLD_UNKNOWN, &ib), INSTANCE_PROBE);
    assert_int_equal(instance_decide(&ic, &ia, OLD_ANSWERS, &ib), INSTANCE_TWICE);
    assert_int_equal(instance_decide(&ic, &ia, OLD_GONE, &ib), INSTANCE_MOVED);
    struct instance again = ia;
    again.run[0] ^= 1; /* the same machine, a new run: a restart, unless the old one lives */
    assert_int_equal(instance_decide(&ic, &ia, OLD_GONE, &again), INSTANCE_RESTARTED);
    assert_int_equal(instance_decide(&ic, &ia, OLD_UNKNOWN, &again), INSTANCE_PROBE);
    assert_int_equal(instance_decide(&ic, &ia, OLD_ANSWERS, &again), INSTANCE_TWICE);
    memset(again.machine, 0, MACHINE_MARK); /* a system without an id */
    assert_int_equal(instance_decide(&ic, &ia, OLD_GONE, &again), INSTANCE_RESTARTED);
    for (int ear = EAR_OWN; ear <= EAR_THIRD; ear++) {
        instance_text(&a.id, (enum instance_ear)ear, text, sizeof text);
        assert_non_null(strstr(text, brief));
        assert_non_null(strstr(text, "join again"));
        assert_true(strlen(text) < sizeof text - 1);
    }

    identity_close(&b);
    ok(identity_open(two, machine_b, &b, &e)); /* still marked, until settled */
    assert_true(b.moved);
    ok(identity_settle(two, &b, &e));
    assert_false(b.moved);
    identity_close(&b);
    ok(identity_open(two, machine_b, &b, &e));
    assert_false(b.moved);
    identity_close(&b);
    ok(identity_open(one, machine_a, &b, &e)); /* the original never noticed anything */
    assert_false(b.moved);
    identity_close(&b);
    put(at(one, "identity/machine"), "garbage", 7, 0600); /* nothing hangs on it */
    ok(identity_open(one, machine_a, &b, &e));
    assert_false(b.moved);
    identity_close(&b);
    ok(identity_open(one, "", &b, &e)); /* no machine id: no statement */
    assert_false(b.moved);
    identity_close(&b);
    identity_close(&a);
    drop_home(home);
}

static void this_machine_has_an_id_or_says_no(void **s)
{
    char a[128], b[128];
    int r = machine_id(a, sizeof a);
    assert_int_equal(machine_id(b, sizeof b), r);
    assert_true(r == 0 || r == ERR_NOTFOUND);
    if (!r) {
        assert_string_equal(a, b);
        assert_true(strlen(a) >= 16);
        assert_int_equal(machine_id(a, 4), ERR_NOTFOUND);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_in_text),
        cmocka_unit_test(the_key_is_made_once_and_kept),
        cmocka_unit_test(a_bad_key_is_an_error_and_never_replaced),
        cmocka_unit_test(a_full_disk_leaves_nothing),
        cmocka_unit_test(many_processes_at_once_make_one_key),
        cmocka_unit_test(write_once_has_one_winner),
        cmocka_unit_test(the_lock_excludes_and_dies_with_its_holder),
        cmocka_unit_test(a_copied_folder_is_noticed),
        cmocka_unit_test(this_machine_has_an_id_or_says_no),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
