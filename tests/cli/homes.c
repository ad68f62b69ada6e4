/* SPDX-License-Identifier: MIT
 * homes.c: see homes.h. */
#include "homes.h"

#include <ftw.h>
#include <sys/stat.h>

#define ARGS_MAX 40

char *homes_new(void)
{
    char *dir = strdup("/tmp/t_cli_homes.XXXXXX");
    assert_non_null(dir);
    assert_non_null(mkdtemp(dir));
    return dir;
}

static int remove_one(const char *path, const struct stat *sb, int what, struct FTW *at)
{
    (void)sb;
    (void)what;
    (void)at;
    return remove(path);
}

void homes_drop(char *dir)
{
    assert_int_equal(nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(dir);
}

char *homes_at(const char *dir, const char *name)
{
    size_t n = strlen(dir) + strlen(name) + 2;
    char *p = malloc(n);
    assert_non_null(p);
    snprintf(p, n, "%s/%s", dir, name);
    return p;
}

json_t *must(const char *input, const char *const *args)
{
    struct spawn_result r;
    spawn(&r, input, args);
    if (r.status != 0 || !r.json) {
        fail_msg("%s: status %d: %s%s", args[0], r.status, r.out.p, r.err.p);
    }
    json_t *j = json_incref(r.json);
    spawn_free(&r);
    return j;
}

void must_fail(const char *words, const char *input, const char *const *args)
{
    struct spawn_result r;
    spawn(&r, input, args);
    const char *said =
        json_string_value(json_object_get(json_object_get(r.json, "error"), "message"));
    if (r.status != 1 || !said || !strstr(said, words)) {
        fail_msg("%s: status %d, not \"%s\": %s%s", args[0], r.status, words, r.out.p, r.err.p);
    }
    assert_non_null(strstr(r.err.p, words)); /* to people, too */
    spawn_free(&r);
}

const char *str_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    if (!s) {
        fail_msg("no text \"%s\"", key);
    }
    return s;
}

double num_of(const json_t *o, const char *path)
{
    char copy[100], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *k = strtok_r(copy, ".", &rest); k; k = strtok_r(NULL, ".", &rest)) {
        o = json_object_get(o, k);
    }
    return json_is_number(o) ? json_number_value(o) : -1;
}

json_t *status_of(const char *home)
{
    return MUST("status", "--home", home);
}

void await_num(const char *home, const char *path, double value)
{
    double v = -1;
    for (int i = 0; i < SPAWN_WAIT_S * 10; i++) {
        json_t *s = status_of(home);
        v = num_of(s, path);
        json_decref(s);
        if (v == value) {
            return;
        }
        usleep(50000);
    }
    fail_msg("%s of %s is %g, never %g", path, home, v, value);
}

json_t *up(struct spawn_child *c, const char *home, const char *const *extra)
{
    const char *args[ARGS_MAX] = {"up",          "--home",       home,    "--peer-listen",
                                  "127.0.0.1:0", "--no-bonjour", "--json"};
    size_t n = 7;
    for (; *extra; extra++) {
        assert_true(n + 1 < ARGS_MAX);
        args[n++] = *extra;
    }
    args[n] = NULL;
    spawn_start(c, args);
    json_t *ready = spawn_ready(c);
    if (!json_object_get(ready, "event")) {
        fail_msg("up: %s", spawn_said(c));
    }
    assert_true(num_of(ready, "port") > 0);
    return ready;
}

char *address_of(const json_t *ready)
{
    char s[40];
    snprintf(s, sizeof s, "127.0.0.1:%.0f", num_of(ready, "port"));
    return strdup(s);
}

void take_in(const char *keeper, const char *home)
{
    json_t *inv = MUST("invite", "--home", keeper);
    DO("join", str_of(inv, "token"), "--home", home);
    json_decref(inv);
}
