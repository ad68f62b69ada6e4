/* SPDX-License-Identifier: MIT
 * t_cli_mirror.c: the program and mirrors, by real nginx: setup takes the objects from the mirror
 * and not from the origin; the mirror's cap is its own and is shown; passwords in addresses are
 * refused and shown nowhere, and .netrc has them in their place. */
#include "homes.h"

#include "tests/store/nginx_rig.h"

#include "proto/base/clock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#define SECRET "hush-hush-4711"
#define ALL 19116224

static struct nginx far_away, near;
static char *tmp, *origin, *mirror;

static void write_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static int start(void **state)
{
    (void)state;
    if (!nginx_find()) {
        return 0;
    }
    char locked[2000], *users;
    tmp = homes_new();
    users = homes_at(tmp, "users");
    write_file(users, "anna:{PLAIN}" SECRET "\n", 0644);
    assert_int_equal(chmod(tmp, 0755), 0); /* nginx's workers may be somebody else */
    snprintf(locked, sizeof locked,
             "    location /m/ { alias " MODEL "/; }\n"
             "    location /locked/ { auth_basic \"x\"; auth_basic_user_file %s; alias " MODEL
             "/; }\n",
             users);
    free(users);
    if (!nginx_start(&far_away, "    location /m/ { alias " MODEL "/; }\n") ||
        !nginx_start(&near, locked)) {
        return -1;
    }
    origin = util_path("http://127.0.0.1:%d/m", far_away.port);
    mirror = util_path("http://127.0.0.1:%d/m", near.port);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    if (tmp) {
        nginx_stop(&far_away);
        nginx_stop(&near);
        util_rmtree(far_away.dir);
        util_rmtree(near.dir);
        free(far_away.dir);
        free(near.dir);
        homes_drop(tmp);
        free(origin);
        free(mirror);
    }
    return 0;
}

static bool without(void)
{
    if (!tmp) {
        print_message("there is no nginx here: not tried\n");
    }
    return !tmp;
}

static void t_setup(void **state)
{
    (void)state;
    if (without()) {
        return;
    }
    char *cache = homes_at(tmp, "c1"), *home = homes_at(tmp, "h1");
    json_t *j = MUST("setup", origin, "--full", "--cache", cache, "--mirror", mirror);
    assert_true(num_of(j, "bytes") == ALL);
    /* the mirror is asked first; what the origin gives is what that one was too slow for */
    assert_true(num_of(j, "mirror_bytes") > 0);
    assert_true(num_of(j, "mirror_bytes") + num_of(j, "origin_bytes") == ALL);
    print_message("%.0f bytes from the mirror, %.0f from the origin\n", num_of(j, "mirror_bytes"),
                  num_of(j, "origin_bytes"));
    json_decref(j);
    DO("cache", "verify", "--deep", "--cache", cache);
    /* the node that runs has mirrors of its own */
    struct spawn_child c;
    json_t *ready = UP(&c, home, "--model", origin, "--mirror", mirror, "--mirror-rate-limit", "4M",
                       "--rate-limit", "2M");
    FAILS("shoal up --mirror", "setup", origin, "--home", home, "--mirror", mirror);
    json_t *s = status_of(home);
    assert_true(num_of(s, "limits.origin_bytes_s") == 2e6);
    assert_true(num_of(s, "limits.mirror_bytes_s") == 4e6);
    json_decref(s);
    struct spawn_result r;
    SPAWN(&r, NULL, "status", "--home", home);
    assert_non_null(strstr(r.out.p, "from each mirror 4.00 MB/s"));
    spawn_free(&r);
    json_decref(ready);
    assert_int_equal(spawn_end(&c, SIGTERM), 0);
    free(cache);
    free(home);
}

/* The cap holds: no time is too long for it, but a shorter one than that of the bytes is wrong. */
static void t_rate(void **state)
{
    (void)state;
    if (without()) {
        return;
    }
    char *cache = homes_at(tmp, "c2");
    uint64_t t0 = clock_ns();
    json_t *j =
        MUST("setup", origin, "--cache", cache, "--mirror", mirror, "--mirror-rate-limit", "8M");
    double t = (double)(clock_ns() - t0) * 1e-9, want = num_of(j, "mirror_bytes") / 8e6;
    print_message("cap of 8 MB/s: %.2f s, ideal %.2f s\n", t, want);
    assert_true(t > want * 0.75);
    json_decref(j);
    free(cache);
}

static void shows_nothing(const struct spawn_result *r)
{
    assert_null(strstr(r->out.p ? r->out.p : "", SECRET));
    assert_null(strstr(r->err.p ? r->err.p : "", SECRET));
}

/* Nothing below the folder holds the password. */
static void keeps_nothing(const char *dir)
{
    char cmd[600];
    snprintf(cmd, sizeof cmd, "grep -r -q -s -F " SECRET " '%s'", dir);
    assert_int_not_equal(system(cmd), 0);
}

/* A password in an address is refused before anything is said, kept or asked. */
static void t_passwords(void **state)
{
    (void)state;
    if (without()) {
        return;
    }
    char *home = homes_at(tmp, "h3"),
         *bad = util_path("http://anna:" SECRET "@127.0.0.1:%d/locked", near.port);
    char *eq = util_path("--model=%s", bad);
    const char *const words[][7] = {
        {"setup", bad, "--home", home, NULL},
        {"setup", origin, "--mirror", bad, "--home", home, NULL},
        {"run", "--model", bad, "--ids", "1", NULL},
        {"run", eq, "--ids", "1", NULL},
        {"run", bad, "and", "more", NULL},
        {"up", "--model", bad, "--home", home, NULL},
        {"up", "--mirror", bad, "--home", home, NULL},
        {"serve", "--model", bad, NULL},
        {"doctor", "--model", bad, NULL},
        {"logits", "--model", bad, "--ids", "1", NULL},
        {"chat", "--model", bad, "--message", "x", NULL},
        {"cache", "rm", bad, "--home", home, NULL},
        {"status", bad, NULL},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct spawn_result r;
        spawn(&r, NULL, words[i]);
        if (!r.status || r.status > 2) {
            fail_msg("%s %s: %d", words[i][0], words[i][1], r.status);
        }
        shows_nothing(&r);
        spawn_free(&r);
    }
    struct spawn_result u;
    SPAWN(&u, NULL, "setup", bad, "--home", home);
    assert_int_equal(u.status, 2);
    assert_non_null(strstr(u.err.p, "http://anna:***@127.0.0.1"));
    assert_non_null(strstr(u.err.p, ".netrc"));
    spawn_free(&u);
    keeps_nothing(home);
    /* .netrc has them in its place, and only where nobody else can read it */
    char *real = getenv("HOME") ? strdup(getenv("HOME")) : NULL, *netrc = homes_at(tmp, ".netrc"),
         *url = util_path("http://127.0.0.1:%d/locked", near.port), *cache = homes_at(tmp, "c3");
    setenv("HOME", tmp, 1);
    unsetenv("NETRC");
    FAILS("status 401", "setup", url, "--cache", cache);
    write_file(netrc, "machine 127.0.0.1 login anna password " SECRET "\n", 0644);
    FAILS("only you may read", "setup", url, "--cache", cache);
    assert_int_equal(chmod(netrc, 0600), 0);
    json_t *j = MUST("setup", url, "--cache", cache);
    assert_true(num_of(j, "origin_bytes") > 1e6);
    json_decref(j);
    keeps_nothing(cache);
    /* a mirror, too */
    char *second = homes_at(tmp, "c4");
    j = MUST("setup", origin, "--cache", second, "--mirror", url);
    assert_true(num_of(j, "mirror_bytes") > 0);
    json_decref(j);
    keeps_nothing(second);
    /* what an older program has kept is shown without it */
    char *name = NULL, cmd[900];
    assert_int_equal(util_count_files(cache, "origin.txt", &name), 1);
    snprintf(cmd, sizeof cmd, "sed -i.bak 's|shoal-origin 1 .*|shoal-origin 1 %s|' '%s'", bad,
             name);
    assert_int_equal(system(cmd), 0);
    struct spawn_result r;
    SPAWN(&r, NULL, "cache", "ls", "--cache", cache);
    assert_non_null(strstr(r.out.p, "http://anna:***@127.0.0.1"));
    shows_nothing(&r);
    spawn_free(&r);
    SPAWN(&r, NULL, "cache", "verify", "--cache", cache, "--json");
    shows_nothing(&r);
    spawn_free(&r);
    SPAWN(&r, NULL, "cache", "ls", "--cache", cache, "--json");
    shows_nothing(&r);
    spawn_free(&r);
    if (real) {
        setenv("HOME", real, 1);
    }
    free(real);
    free(netrc);
    free(url);
    free(cache);
    free(second);
    free(name);
    free(home);
    free(bad);
    free(eq);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(t_setup), cmocka_unit_test(t_rate),
                                       cmocka_unit_test(t_passwords)};
    return cmocka_run_group_tests_name("cli_mirror", tests, start, stop);
}
