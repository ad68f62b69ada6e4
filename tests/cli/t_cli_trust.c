/* SPDX-License-Identifier: MIT
 * t_cli_trust.c: what a user sees of a member that lies, and does about it: who signs falsely, who
 * gives bad bytes; `shoal peers unban`. And `shoal cache warm --shoal` from outside. */
#include "homes.h"

#include "node/demo/server.h"

#include <signal.h>

static char *dir, *a, *b, *c;
static struct demo_server *origin;

static int setup(void **state)
{
    struct err e;
    (void)state;
    dir = homes_new();
    a = homes_at(dir, "a");
    b = homes_at(dir, "b");
    c = homes_at(dir, "c");
    return demo_server_start(MODEL, 0, &origin, &e);
}

static int teardown(void **state)
{
    (void)state;
    demo_server_stop(origin);
    free(a);
    free(b);
    free(c);
    homes_drop(dir);
    return 0;
}

/* ---- an evil member, a program of its own (tests/faults) ---- */

/* Starts it on that home; its address, freed by the caller. It ends with pclose. */
static FILE *evil(const char *home, const char *vice, const char *signs, char **address)
{
    char cmd[1400], line[32] = "", *file = homes_at(dir, "evil.out");
    snprintf(cmd, sizeof cmd, "exec '%s' '%s' '%s' %s 0 0 %s >'%s'", EVIL_PROGRAM, home, MODEL,
             vice, signs, file);
    unlink(file);
    FILE *p = popen(cmd, "w");
    assert_non_null(p);
    for (int i = 0; i < 20000 && !strchr(line, '\n'); i++) {
        FILE *f = fopen(file, "r");
        if (!f || !fgets(line, sizeof line, f)) {
            line[0] = 0;
        }
        if (f) {
            fclose(f);
        }
        usleep(5000);
    }
    long port = strtol(line, NULL, 10);
    assert_true(port > 0);
    snprintf(cmd, sizeof cmd, "127.0.0.1:%ld", port);
    *address = strdup(cmd);
    assert_non_null(*address);
    free(file);
    return p;
}

/* What `shoal peers` of a prints; the caller's. */
static char *peers(void)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "peers", "--home", a);
    assert_int_equal(r.status, 0);
    char *s = strdup(r.out.p);
    spawn_free(&r);
    return s;
}

/* Until it says so (or no longer), then the line with these words. */
static void await_peers(const char *words, bool there)
{
    for (int i = 0; i < 600; i++) {
        char *s = peers();
        bool yes = strstr(s, words) != NULL;
        free(s);
        if (yes == there) {
            return;
        }
        usleep(100000);
    }
    fail_msg("shoal peers never %s \"%s\"", there ? "says" : "stops saying", words);
}

static void unban(const char *member)
{
    struct spawn_result r;
    SPAWN(&r, NULL, "peers", "unban", member, "--home", a);
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out.p, "is asked again"));
    spawn_free(&r);
}

static char *id_of(const char *home)
{
    json_t *s = status_of(home);
    char *id = strdup(str_of(s, "short"));
    json_decref(s);
    return id;
}

static void t_liars(void **state)
{
    struct spawn_child ua;
    struct spawn_result r;
    char *address, *liar, *rotten, *url = strdup(demo_server_url(origin));
    (void)state;
    DO("init", "--home", a);
    json_decref(UP(&ua, a, "--model", url));
    take_in(a, b);
    take_in(a, c);
    liar = id_of(b);
    rotten = id_of(c);

    /* Signs everything falsely: what this node has by its own download says so, and nothing of it
     * is used. */
    json_t *clean = MUST("run", "--model", url, "--ids", "1,2", "--max-new", "2");
    json_t *own = MUST("run", "--home", a, "--model", url, "--ids", "3", "--max-new", "1");
    json_decref(own);
    FILE *e = evil(b, "lies", "falsely", &address);
    DO("peers", "add", address, "--home", a);
    await_num(a, "connected", 1);
    await_peers("its word on digests is void", true);
    json_t *got = MUST("run", "--home", a, "--model", url, "--ids", "1,2", "--max-new", "2");
    assert_string_equal(str_of(got, "receipt"), str_of(clean, "receipt"));
    SPAWN(&r, NULL, "status", "--home", a);
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out.p, "liar "));
    assert_non_null(strstr(r.out.p, liar));
    spawn_free(&r);
    pclose(e);
    await_num(a, "connected", 0);
    FAILS("no ", "peers", "unban", "zzzz", "--home", a);
    unban(liar); /* repaired: believed again */
    await_peers("its word on digests is void", false);
    free(address);

    /* Gives bad bytes: banned, named, asked again when the user says so. The experts on disk are
     * gone, so that there is something to ask for. */
    assert_int_equal(spawn_end(&ua, SIGTERM), 0);
    demo_server_stop(origin);
    origin = NULL;
    char cmd[1400];
    snprintf(cmd, sizeof cmd, "find '%s/cache' -name '*.mxfp4' -delete", a);
    assert_int_equal(system(cmd), 0);
    json_decref(UP(&ua, a, "--model", url, "--offline"));
    e = evil(c, "flip", "", &address);
    DO("peers", "add", address, "--home", a);
    await_num(a, "connected", 1);
    SPAWN(&r, NULL, "run", "--home", a, "--model", url, "--ids", "1,2", "--max-new", "2");
    assert_int_not_equal(r.status, 0); /* nobody has what it needs */
    spawn_free(&r);
    await_peers("banned for", true);
    char *list = peers();
    assert_non_null(strstr(list, "bad chunk"));
    assert_non_null(strstr(strstr(list, "banned for"), rotten));
    free(list);
    unban(rotten);
    await_peers("banned for", false);
    pclose(e);
    assert_int_equal(spawn_end(&ua, SIGTERM), 0);
    FAILS("shoal up", "peers", "unban", rotten, "--home", a); /* by the node that runs */
    json_decref(clean);
    json_decref(got);
    free(address);
    free(liar);
    free(rotten);
    free(url);
    struct err err;
    assert_int_equal(demo_server_start(MODEL, 0, &origin, &err), 0);
}

static bool warming(const char *home)
{
    json_t *s = status_of(home);
    bool on = json_is_true(json_object_get(json_object_get(s, "homes"), "warm"));
    json_decref(s);
    return on;
}

/* Of one node alone: all of the model; interrupted it goes on, --stop ends it. */
static void t_warm(void **state)
{
    struct spawn_child u, w;
    struct spawn_result r;
    char *home = homes_at(dir, "warm");
    (void)state;
    SPAWN(&r, NULL, "cache", "warm", "--home", home);
    assert_int_equal(r.status, 2);
    assert_non_null(strstr(r.err.p, "--shoal"));
    spawn_free(&r);
    FAILS("shoal up", "cache", "warm", "--shoal", "--home", home);

    json_decref(UP(&u, home, "--model", demo_server_url(origin), "--rate-limit", "64K"));
    SPAWN_START(&w, "cache", "warm", "--shoal", "--home", home);
    spawn_await(&w, "% of what fits is held");
    assert_int_not_equal(spawn_end(&w, SIGINT), 0);
    assert_true(warming(home));
    DO("cache", "warm", "--shoal", "--stop", "--home", home);
    assert_false(warming(home));
    DO("cache", "warm", "--shoal", "--no-wait", "--home", home);
    assert_true(warming(home));
    assert_int_equal(spawn_end(&u, SIGTERM), 0);

    json_decref(UP(&u, home, "--model", demo_server_url(origin)));
    json_t *done = MUST("cache", "warm", "--shoal", "--home", home);
    assert_true(num_of(done, "homes.possible") > 0);
    assert_true(num_of(done, "homes.covered") == num_of(done, "homes.possible"));
    json_decref(done);
    await_num(home, "homes.missing", 0);
    assert_false(warming(home));
    assert_int_equal(spawn_end(&u, SIGTERM), 0);
    free(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(t_liars), cmocka_unit_test(t_warm)};
    cmocka_set_test_filter(getenv("CLI_ONLY"));
    return cmocka_run_group_tests_name("cli_trust", tests, setup, teardown);
}
