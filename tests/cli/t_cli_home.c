/* SPDX-License-Identifier: MIT
 * t_cli_home.c: the life of a shoal by the real program: who is taken in and who is not, who
 * leaves, what is kept and brought back, and what a node says when its home is damaged or in use.
 */
#include "homes.h"

#include "proto/base/file.h"

#include <signal.h>
#include <sys/stat.h>

static char *dir, *a, *b, *c, *d;

static int setup(void **state)
{
    (void)state;
    dir = homes_new();
    a = homes_at(dir, "a");
    b = homes_at(dir, "b b");
    c = homes_at(dir, "c");
    d = homes_at(dir, "d");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(a);
    free(b);
    free(c);
    free(d);
    homes_drop(dir);
    return 0;
}

/* What mail, chat and terminals do to a token. */
static char *mangled(const char *token)
{
    size_t n = strlen(token), k = 0;
    char *s = malloc(8 * n + 8);
    assert_non_null(s);
    for (size_t i = 0; i < n; i++) {
        s[k++] = token[i];
        if (i % 7 == 6) {
            memcpy(s + k, "\xe2\x80\x8b", 3); /* zero width space */
            k += 3;
        }
        if (i % 20 == 19) {
            memcpy(s + k, " \n", 2);
            k += 2;
        }
        if (i % 33 == 32) {
            memcpy(s + k, "\xef\xbb\xbf", 3); /* byte order mark */
            k += 3;
        }
    }
    s[k] = 0;
    return s;
}

static void write_file(const char *path, const char *text)
{
    struct err e;
    assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, &e), 0);
}

/* A member by short id in the list that `peers` gives; NULL: not there. */
static const json_t *peer(const json_t *peers, const char *brief)
{
    size_t i;
    const json_t *p;
    json_array_foreach(json_object_get(peers, "peers"), i, p)
    {
        if (!strcmp(str_of(p, "short"), brief)) {
            return p;
        }
    }
    return NULL;
}

/* ---- joining ---- */

static void t_join(void **state)
{
    struct spawn_child ua;
    struct spawn_result r;
    (void)state;
    FAILS("make a shoal with shoal init", "invite", "--home", a);
    json_t *made = MUST("init", "--home", a);
    char *ida = strdup(str_of(made, "short"));
    assert_int_equal(strlen(ida), 14);
    assert_true(json_is_true(json_object_get(made, "keeper")));
    assert_int_equal(num_of(made, "members"), 1);
    json_decref(made);
    FAILS("already belongs", "init", "--home", a);

    /* Without a node the invite says on which port one will listen, and that it has to. */
    json_t *inv = MUST("invite", "--home", a, "--address", "192.0.2.7:4433");
    int port = (int)num_of(inv, "port");
    assert_true(json_is_false(json_object_get(inv, "running")));
    assert_true(port > 0);
    assert_string_equal(json_string_value(json_array_get(json_object_get(inv, "addresses"), 0)),
                        "192.0.2.7:4433");
    json_decref(inv);
    SPAWN(&r, NULL, "invite", "--home", a, "--address", "192.0.2.7:4433");
    assert_int_equal(r.status, 0);
    assert_int_equal(strncmp(r.out.p, "shoal1", 6), 0);
    assert_null(strchr(r.out.p, ' ')); /* the token alone */
    assert_non_null(strstr(r.err.p, "works only while"));
    spawn_free(&r);

    SPAWN_START(&ua, "up", "--home", a, "--no-bonjour", "--json");
    json_t *ready = spawn_ready(&ua);
    assert_int_equal(num_of(ready, "port"), port); /* as said */
    json_decref(ready);
    assert_int_equal(spawn_end(&ua, SIGTERM), 0);

    ready = UP(&ua, a, "-q");
    assert_string_equal(str_of(ready, "short"), ida);
    inv = MUST("invite", "--home", a);
    assert_true(json_is_true(json_object_get(inv, "running")));
    assert_int_equal(num_of(inv, "port"), num_of(ready, "port"));
    char *address = address_of(ready), *text = mangled(str_of(inv, "token"));
    assert_int_equal(json_array_size(json_object_get(inv, "addresses")), 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(inv, "addresses"), 0)),
                        address);

    SPAWN(&r, NULL, "join", text, "--home", b, "--json");
    assert_int_equal(r.status, 0);
    assert_int_equal(num_of(r.json, "members"), 2);
    assert_true(json_is_true(json_object_get(r.json, "member")));
    assert_true(json_is_false(json_object_get(r.json, "keeper")));
    assert_non_null(strstr(r.err.p, "connecting")); /* its steps */
    assert_null(strstr(r.out.p, "shoal1"));
    char *idb = strdup(str_of(r.json, "short"));
    spawn_free(&r);

    /* Both know of each other; the keeper without being told anew. */
    json_t *list = MUST("peers", "--home", b);
    assert_non_null(peer(list, ida));
    assert_true(json_is_true(json_object_get(peer(list, ida), "keeper")));
    json_decref(list);
    list = MUST("peers", "--home", a);
    assert_non_null(peer(list, idb));
    assert_true(json_is_true(json_object_get(list, "running")));
    json_decref(list);

    /* The use is spent: another home gets nothing, and hears why. Its own node may ask again. */
    FAILS("used", "join", text, "--home", c);
    DO("join", text, "--home", b);
    must_fail("used", text, (const char *const[]){"join", "-", "--home", c, "--json", NULL});
    must_fail("standard input is empty", "",
              (const char *const[]){"join", "-", "--home", c, "--json", NULL});
    json_decref(inv);
    free(text);

    /* One that is over. */
    inv = MUST("invite", "--home", a, "--expires", "1s");
    bool over = false;
    for (int i = 0; !over && i < SPAWN_WAIT_S * 10; i++) {
        json_t *l = MUST("invite", "list", "--home", a);
        size_t k;
        const json_t *v;
        json_array_foreach(json_object_get(l, "invites"), k, v)
        {
            over |= !strcmp(str_of(v, "state"), "expired");
        }
        json_decref(l);
        usleep(100000);
    }
    assert_true(over);
    FAILS("is over", "join", str_of(inv, "token"), "--home", c);
    json_decref(inv);

    /* One that was taken back. */
    inv = MUST("invite", "--home", a);
    list = MUST("invite", "list", "--home", a);
    size_t k;
    const json_t *v;
    json_array_foreach(json_object_get(list, "invites"), k, v)
    {
        if (!strcmp(str_of(v, "state"), "open")) {
            DO("invite", "revoke", str_of(v, "id"), "--home", a);
        }
    }
    json_decref(list);
    FAILS("not joined: ", "join", str_of(inv, "token"), "--home", c, "--wait", "5s");
    json_decref(inv);

    assert_int_equal(spawn_end(&ua, SIGTERM), 0);
    json_decref(ready);
    free(address);
    free(ida);
    free(idb);
}

/* ---- leaving, keepers ---- */

static void t_members(void **state)
{
    struct spawn_child ua, ub, uc;
    (void)state;
    json_t *ready = UP(&ua, a, "-q");
    char *address = address_of(ready);
    json_decref(ready);
    ready = UP(&ub, b, "--peer", address);
    char *idb = strdup(str_of(ready, "short"));
    json_decref(ready);
    await_num(a, "connected", 1);
    await_num(b, "connected", 1);

    /* A second keeper gets the key over the connection, and can invite then. */
    FAILS("only a keeper", "invite", "--home", b);
    char prefix[6];
    snprintf(prefix, sizeof prefix, "%.5s", idb);
    DO("keeper", "add", prefix, "--home", a);
    bool has = false;
    for (int i = 0; !has && i < SPAWN_WAIT_S * 10; i++) {
        json_t *l = MUST("keeper", "list", "--home", b);
        size_t k;
        const json_t *v;
        json_array_foreach(json_object_get(l, "keepers"), k, v)
        {
            has |= json_is_true(json_object_get(v, "has_key"));
        }
        json_decref(l);
        usleep(50000);
    }
    assert_true(has);
    take_in(b, c);
    await_num(a, "members", 3); /* what the second keeper signed came to the first */

    /* Removing: a keeper only when it is meant. Whoever is removed hears it in words. */
    FAILS("--keeper-too", "remove", idb, "--home", a);
    FAILS("no node here", "remove", "zzzz", "--home", a);
    DO("remove", idb, "--keeper-too", "--home", a);
    await_num(a, "connected", 0);
    await_num(a, "members", 2);
    spawn_await(&ub, "removed");
    assert_int_equal(spawn_end(&ub, SIGTERM), 0);

    /* One that was away meanwhile hears it, too, and starts all the same. */
    ready = UP(&ub, b, "--peer", address);
    json_decref(ready);
    spawn_await(&ub, "removed");
    assert_int_equal(spawn_end(&ub, SIGINT), 0);

    ready = UP(&uc, c, "--peer", address);
    json_decref(ready);
    await_num(a, "connected", 1);
    assert_int_equal(spawn_end(&uc, SIGTERM), 0);
    assert_int_equal(spawn_end(&ua, SIGTERM), 0);
    free(idb);
    free(address);
}

/* ---- the backup ---- */

static void t_backup(void **state)
{
    struct spawn_child ua, uc, ud;
    struct spawn_result r;
    char *pass = homes_at(dir, "pass"), *other = homes_at(dir, "other"),
         *file = homes_at(dir, "key");
    struct stat sb;
    (void)state;
    write_file(pass, "correct horse battery\n");
    write_file(other, "incorrect horse battery\n");
    json_t *v = MUST("backup", "--home", a, "--passphrase-file", pass, "--file", file);
    char *group = strdup(str_of(v, "group"));
    json_decref(v);
    assert_int_equal(stat(file, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
    FAILS("there already", "backup", "--home", a, "--passphrase-file", pass, "--file", file);
    FAILS("only a keeper", "backup", "--home", c, "--passphrase-file", pass);
    SPAWN(&r, NULL, "backup", "--home", a, "--passphrase-file", pass);
    assert_int_equal(r.status, 0);
    assert_int_equal(strncmp(r.out.p, "shoal backup 1", 14), 0);
    spawn_free(&r);

    /* On a terminal: asked for twice, never shown. What was mistyped is not taken. */
    char *typed = homes_at(dir, "typed");
    const char *const ask[] = {"backup", "--home", a, "--file", typed, NULL};
    spawn_tty(&r, (const char *const[]){"correct horse", "correct house", NULL}, ask);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.out.p, "not the same"));
    assert_null(strstr(r.out.p, "correct"));
    spawn_free(&r);
    spawn_tty(&r, (const char *const[]){"short", NULL}, ask);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.out.p, "at least"));
    spawn_free(&r);
    spawn_tty(&r, (const char *const[]){"\x03", NULL}, ask); /* Control-C */
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.out.p, "given up"));
    spawn_free(&r);
    assert_int_not_equal(access(typed, F_OK), 0);
    spawn_tty(&r,
              (const char *const[]){"x\x15"
                                    "correct horsee\x7f battery", /* erased, corrected */
                                    "correct horse battery", NULL},
              ask);
    assert_int_equal(r.status, 0);
    assert_null(strstr(r.out.p, "correct"));
    spawn_free(&r);

    FAILS("passphrase", "restore", file, "--home", d, "--passphrase-file", other);
    v = MUST("restore", typed, "--home", d, "--passphrase-file", pass);
    free(typed);
    assert_string_equal(str_of(v, "group"), group);
    assert_true(json_is_true(json_object_get(v, "keeper")));
    json_decref(v);

    /* The new keeper knows nobody, and nobody it, until one member joins anew; then all know all.
     */
    json_t *ready = UP(&ua, a, "-q");
    char *address = address_of(ready);
    json_decref(ready);
    json_decref(UP(&ud, d, "-q"));
    take_in(d, c);
    json_decref(UP(&uc, c, "--peer", address));
    await_num(c, "connected", 2);
    await_num(d, "members", 3);
    await_num(a, "members", 3);
    await_num(c, "members", 3);
    assert_int_equal(spawn_end(&uc, SIGTERM), 0);
    assert_int_equal(spawn_end(&ud, SIGTERM), 0);
    assert_int_equal(spawn_end(&ua, SIGTERM), 0);
    free(address);
    free(group);
    free(pass);
    free(other);
    free(file);
}

/* ---- one home, one node ---- */

static void t_twice_and_killed(void **state)
{
    struct spawn_child ua, uc;
    (void)state;
    json_t *ready = UP(&ua, a, "-q");
    char *ida = strdup(str_of(ready, "node")), *address = address_of(ready);
    int port = (int)num_of(ready, "port");
    json_decref(ready);
    FAILS("already (process ", "up", "--home", a, "--no-bonjour");
    json_decref(UP(&uc, c, "--peer", address));
    await_num(a, "connected", 1);

    /* Killed, it leaves nothing behind that is in the way, and comes back as the same node at the
     * same port, so that the others find it again. */
    assert_int_equal(spawn_end(&ua, SIGKILL), 128 + SIGKILL);
    FAILS("no node runs", "peers", "--why", "--home", a);
    ready = UP(&ua, a, "-q");
    assert_string_equal(str_of(ready, "node"), ida);
    assert_int_equal(num_of(ready, "port"), port);
    json_decref(ready);
    await_num(a, "connected", 1);
    await_num(c, "connected", 1);
    json_t *s = status_of(a);
    assert_int_equal(json_array_size(json_object_get(s, "peers")), num_of(s, "members") - 1);
    json_decref(s);
    assert_int_equal(spawn_end(&uc, SIGTERM), 0);
    assert_int_equal(spawn_end(&ua, SIGTERM), 0);
    s = status_of(a);
    assert_true(json_is_false(json_object_get(s, "running")));
    assert_string_equal(str_of(s, "node"), ida);
    json_decref(s);
    free(ida);
    free(address);
}

static void t_damaged(void **state)
{
    char *key = homes_at(c, "identity/node.key");
    struct buf was;
    struct err e;
    (void)state;
    buf_init(&was, 1 << 16);
    assert_int_equal(file_read_all(key, &was, &e), 0);
    assert_int_equal(chmod(key, 0644), 0);
    FAILS("identity/node.key", "up", "--home", c, "--no-bonjour");
    assert_int_equal(chmod(key, 0600), 0);
    write_file(key, "-----BEGIN EC PRIVATE KEY-----\nAAAA\n");
    FAILS("identity/node.key is damaged", "up", "--home", c, "--no-bonjour");
    FAILS("identity/node.key is damaged", "peers", "--home", c);
    struct spawn_result r;
    SPAWN(&r, NULL, "doctor", "--home", c);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.out.p, "fail  node"));
    spawn_free(&r);
    assert_int_equal(unlink(key), 0);
    FAILS("is gone", "up", "--home", c, "--no-bonjour");
    assert_int_not_equal(access(key, F_OK), 0); /* nothing was made in its place */
    write_file(key, was.p);
    DO("peers", "--home", c);
    buf_free(&was);
    free(key);
}

static void t_alone(void **state)
{
    struct spawn_child u;
    char *home = homes_at(dir, "alone");
    (void)state;
    struct spawn_result r;
    json_t *s = status_of(home);
    assert_true(json_is_false(json_object_get(s, "running")));
    assert_true(json_is_null(json_object_get(s, "node")));
    /* No shoal, no peers: not an error, with a node and without. */
    SPAWN(&r, NULL, "peers", "--why", "--home", home);
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out.p, "belongs to no shoal"));
    assert_non_null(strstr(r.out.p, home)); /* the command that helps can be copied */
    spawn_free(&r);
    json_decref(s);
    assert_int_not_equal(access(home, F_OK), 0); /* looking makes nothing */
    json_decref(UP(&u, home, "--offline"));
    spawn_await(&u, "shoal init");
    s = status_of(home);
    assert_true(json_is_true(json_object_get(s, "running")));
    assert_true(json_is_null(json_object_get(s, "group")));
    json_decref(s);
    SPAWN(&r, NULL, "run", "--home", home, "--ids", "1,2", "--max-new", "1");
    assert_int_equal(r.status, 0);
    assert_null(strstr(r.err.p, "peers"));
    spawn_free(&r);
    DO("init", "--home", home); /* while it runs */
    await_num(home, "members", 1);
    assert_int_equal(spawn_end(&u, SIGTERM), 0);
    free(home);

    /* One that has never seen a shoal has nothing to complain of, up to its end. */
    struct err e;
    struct buf said;
    char *log = homes_at(dir, "log");
    home = homes_at(dir, "single");
    json_decref(UP(&u, home, "--offline"));
    assert_int_equal(link(u.err, log), 0); /* its own name for it goes with it */
    assert_int_equal(spawn_end(&u, SIGTERM), 0);
    buf_init(&said, 1 << 20);
    assert_int_equal(file_read_all(log, &said, &e), 0);
    assert_int_equal(buf_add(&said, "", 1), 0);
    assert_non_null(strstr(said.p, "stopping"));
    assert_null(strstr(said.p, "cannot"));
    buf_free(&said);
    free(log);
    free(home);
}

static void t_usage(void **state)
{
    static const char *const wrong[][6] = {
        {"join"},
        {"remove"},
        {"keeper", "ad", "k7qm"},
        {"peers", "unban"},
        {"networks", "forget"},
        {"invite", "--expires", "24"},
        {"invite", "--uses", "0"},
        {"up", "--api", "0.0.0.0:8080"},
        {"up", "--api", "8080"},
        {"up", "--peer", "10.0.0.1"},
        {"up", "--peer-listen", "4433"},
        {"run", "--chat", "x", "--home", "x", "--cache"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *args[10] = {0};
        size_t n = 0;
        struct spawn_result r;
        for (; n < 6 && wrong[i][n]; n++) {
            args[n] = wrong[i][n];
        }
        if (n == 6) {
            args[n++] = "y";
        }
        spawn(&r, NULL, args);
        if (r.status != 2) {
            fail_msg("%s %s: status %d: %s", args[0], args[1] ? args[1] : "", r.status, r.err.p);
        }
        spawn_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_join),    cmocka_unit_test(t_members),
        cmocka_unit_test(t_backup),  cmocka_unit_test(t_twice_and_killed),
        cmocka_unit_test(t_damaged), cmocka_unit_test(t_alone),
        cmocka_unit_test(t_usage),
    };
    return cmocka_run_group_tests_name("cli_home", tests, setup, teardown);
}
