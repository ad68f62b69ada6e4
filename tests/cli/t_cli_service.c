/* SPDX-License-Identifier: MIT
 * t_cli_service.c: shoal service and shoal uninstall from outside. The service manager is a script
 * that writes down what it is told, since no session of launchd or systemd runs where tests do; the
 * files, the node and all that is deleted are real. */
#include "homes.h"

#include "node/demo/server.h"
#include "proto/base/file.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

static char *dir, *calls;
static struct demo_server *origin;

static void put(const char *path, const char *text, mode_t mode)
{
    struct err e = {0};
    assert_int_equal(file_write_atomic(path, text, strlen(text), mode, &e), 0);
}

static char *whole(const char *path)
{
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 20);
    if (file_read_all(path, &b, &e)) {
        buf_free(&b);
        return strdup("");
    }
    char *s = strndup(b.p, b.n);
    buf_free(&b);
    return s;
}

static void expect_calls(const char *want)
{
    char *got = whole(calls);
    assert_string_equal(got, want);
    free(got);
    unlink(calls);
}

/* The tool writes its arguments, and fails with a message for the word in `on`. */
static void tool(const char *on)
{
    char text[1000], *bin = homes_at(dir, "bin/systemctl"), *mac = homes_at(dir, "bin/launchctl");
    snprintf(
        text, sizeof text,
        "#!/bin/sh\necho \"$*\" >>'%s'\ncase \" $* \" in *' %s '*) echo no bus; exit 1 ;; esac\n",
        calls, on);
    put(bin, text, 0700);
    put(mac, text, 0700);
    free(bin);
    free(mac);
}

static int start(void **s)
{
    dir = homes_new();
    calls = homes_at(dir, "calls");
    char *user = homes_at(dir, "user"), *bin = homes_at(dir, "bin"), *path = NULL;
    size_t room;
    FILE *f = open_memstream(&path, &room);
    fprintf(f, "%s:%s", bin, getenv("PATH"));
    fclose(f);
    setenv("PATH", path, 1);
    setenv("HOME", user, 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("SHOAL_HOME");
    struct err e = {0};
    int r =
        file_mkdirs(bin, &e) || file_mkdirs(user, &e) || demo_server_start(MODEL, 0, &origin, &e);
    free(path);
    free(user);
    free(bin);
    return r;
}

static int stop(void **s)
{
    demo_server_stop(origin);
    free(calls);
    homes_drop(dir);
    return 0;
}

static void t_install(void **s)
{
    struct spawn_result r;
    tool("nothing");
    char *home = homes_at(dir, "a home"), *log = homes_at(dir, "a home/service.log");
    FAILS("no service is installed", "service", "remove", "--home", home);
    json_t *j = MUST("service", "show", "--home", home);
    assert_true(json_is_false(json_object_get(j, "installed")));
    json_decref(j);
    /* wrong options of the node are noticed now; nothing is written */
    SPAWN(&r, NULL, "service", "install", "--home", home, "--", "--modle", "x");
    assert_int_equal(r.status, 2);
    assert_non_null(strstr(r.err.p, "did you mean --model?"));
    spawn_free(&r);
    SPAWN(&r, NULL, "service", "install", "--", "--home", home);
    assert_int_equal(r.status, 2);
    assert_non_null(strstr(r.err.p, "--home belongs in front"));
    spawn_free(&r);
    SPAWN(&r, NULL, "service", "install", "--home", home, "--", "stray");
    assert_int_equal(r.status, 2);
    spawn_free(&r);
    /* it may be looked at before */
    SPAWN(&r, NULL, "service", "install", "--print", "--for", "launchd", "--home", home, "--",
          "--model", "a&b");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out.p, "<string>a&amp;b</string>"));
    assert_non_null(strstr(r.out.p, log));
    spawn_free(&r);
    expect_calls("");
#ifdef __linux__
    struct stat sb;
    j = must(NULL, (const char *const[]){"service", "install", "--json", "--home", home, "--",
                                         "--api", "127.0.0.1:0", NULL});
    char *file = strdup(str_of(j, "file")), line[500];
    assert_string_equal(str_of(j, "manager"), "systemd");
    json_decref(j);
    assert_int_equal(stat(file, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
    char *text = whole(file);
    snprintf(line, sizeof line, "\" \"up\" \"--home\" \"%s\" \"--api\" \"127.0.0.1:0\"\n", home);
    assert_non_null(strstr(text, line));
    free(text);
    const char *name = strrchr(file, '/') + 1;
    snprintf(line, sizeof line, "--user daemon-reload\n--user enable %s\n--user restart %s\n", name,
             name);
    expect_calls(line);
    j = MUST("service", "show", "--home", home);
    assert_true(json_is_true(json_object_get(j, "installed")));
    assert_true(json_is_false(json_object_get(j, "running")));
    json_decref(j);
    DO("service", "remove", "--home", home);
    snprintf(line, sizeof line, "--user disable --now %s\n--user daemon-reload\n", name);
    expect_calls(line);
    assert_int_equal(access(file, F_OK), -1);
    /* what cannot be started leaves no file */
    tool("restart");
    FAILS("systemctl restart failed (status 1): no bus", "service", "install", "--home", home);
    assert_int_equal(access(file, F_OK), -1);
    unlink(calls);
    tool("nothing");
    free(file);
#endif
    free(home);
    free(log);
}

static void t_uninstall(void **s)
{
    struct spawn_child c = {0};
    struct spawn_result r;
    char *home = homes_at(dir, "node"), *own = homes_at(dir, "node/my notes");
    char *cache = homes_at(dir, "node/cache"), *key = homes_at(dir, "node/identity/node.key");
    char *moved = homes_at(dir, "elsewhere");
    tool("nothing");
    FAILS("there is no node in", "uninstall", "--yes", "--home", home);
    DO("init", "--home", home);
    json_t *j = UP(&c, home, "--model", demo_server_url(origin));
    FAILS("a node runs on this home already", "service", "install", "--home", home);
    json_decref(j);
    DO("cache", "warm", "--shoal", "--home", home);
    put(own, "mine", 0600);
    /* not without being told to */
    SPAWN(&r, NULL, "uninstall", "--home", home);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err.p, "the shoal's signing key in"));
    assert_non_null(strstr(r.err.p, "they are the last copies that are known ("));
    assert_non_null(strstr(r.err.p, " each)")); /* all of its layers are alike */
    assert_non_null(strstr(r.err.p, "nothing was removed: say --yes"));
    spawn_free(&r);
    assert_int_equal(access(key, F_OK), 0);
    /* the node is stopped; the cache may stay, and what somebody else put there does */
    j = MUST("uninstall", "--yes", "--keep-cache", "--home", home);
    assert_true(num_of(j, "last_copies") > 0);
    assert_true(num_of(j, "last_bytes") > 1e6);
    double sum = 0; /* which: by layer, each layer once */
    json_int_t before = -1;
    size_t at;
    json_t *layer;
    json_array_foreach(json_object_get(j, "last_layers"), at, layer)
    {
        assert_true(json_integer_value(json_array_get(layer, 0)) > before);
        before = json_integer_value(json_array_get(layer, 0));
        sum += (double)json_integer_value(json_array_get(layer, 1));
    }
    assert_true(sum == num_of(j, "last_copies"));
    assert_int_equal(json_array_size(json_object_get(j, "kept")), 2);
    json_decref(j);
    assert_int_equal(spawn_end(&c, 0), 0);
    assert_int_equal(access(key, F_OK), -1);
    assert_int_equal(access(cache, F_OK), 0);
    DO("cache", "move", moved, "--home", home);
    assert_int_equal(access(moved, F_OK), 0);
    j = MUST("uninstall", "--yes", "--home", home);
    assert_int_equal(access(moved, F_OK), -1);
    assert_true(num_of(j, "cache_bytes") > 1e6);
    json_decref(j);
    assert_int_equal(access(cache, F_OK), -1);
    assert_int_equal(access(own, F_OK), 0);
    assert_int_equal(unlink(own), 0);
    assert_int_equal(rmdir(home), 0); /* nothing else was left */
    free(home);
    free(own);
    free(cache);
    free(key);
    free(moved);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_install), cmocka_unit_test(t_uninstall)};
    return cmocka_run_group_tests_name("cli_service", t, start, stop);
}
