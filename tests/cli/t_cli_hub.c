/* SPDX-License-Identifier: MIT
 * t_cli_hub.c: models of a hub from outside: names, commits that stay, tokens and their files,
 * certificates, what the hub's own variables forbid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/base/file.h"
#include "spawn.h"
#include "tests/store/hub.h"
#include "tests/store/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN "hf_SecretOfTheTest"
#define OTHER "hf_AnotherSecret"

struct rig {
    char *tmp, *cache, *home;
    struct hub *hub, *cdn;
};

static void clear_env(void)
{
    static const char *const names[] = {"HF_TOKEN",       "HUGGING_FACE_HUB_TOKEN",
                                        "HF_TOKEN_PATH",  "HF_HOME",
                                        "XDG_CACHE_HOME", "HF_HUB_OFFLINE",
                                        "SHOAL_TOKEN",    "HF_HUB_DISABLE_IMPLICIT_TOKEN",
                                        "SSL_CERT_FILE",  "REQUESTS_CA_BUNDLE",
                                        "CURL_CA_BUNDLE", "HF_ENDPOINT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsetenv(names[i]);
    }
}

static void rig_start(struct rig *r, const char *token, struct hub_cert *cert)
{
    clear_env();
    r->tmp = util_tmpdir();
    r->cache = util_path("%s/cache", r->tmp);
    r->home = util_path("%s/home", r->tmp);
    assert_int_equal(mkdir(r->home, 0700), 0);
    setenv("HOME", r->home, 1);
    setenv("SHOAL_HOME", r->home, 1);
    struct hub_opts o = {.dir = DEMO_MODEL, .host = "127.0.0.1", .token = token, .cert = cert};
    r->hub = hub_start(&o);
    o.name = "localhost";
    o.token = NULL;
    r->cdn = hub_start(&o);
    hub_redirect_to(r->hub, r->cdn);
    setenv("HF_ENDPOINT", hub_url(r->hub), 1);
}

static void rig_end(struct rig *r)
{
    clear_env();
    assert_int_equal(hub_heard(r->cdn, "uthorization"), 0);
    hub_stop(r->hub);
    hub_stop(r->cdn);
    util_rmtree(r->tmp);
    free(r->tmp);
    free(r->cache);
    free(r->home);
}

static void has(const struct buf *b, const char *part)
{
    if (!strstr(b->p, part)) {
        fail_msg("\"%s\" is not in: %s", part, b->p);
    }
}

static void has_not(const struct spawn_result *r, const char *part)
{
    if ((r->out.p && strstr(r->out.p, part)) || (r->err.p && strstr(r->err.p, part))) {
        fail_msg("\"%s\" is in: %s %s", part, r->out.p, r->err.p);
    }
}

/* The cheapest command that opens a model. */
#define TOKENS(r, m, ...) SPAWN(r, NULL, "tokenize", "hello", "--model", m, "--cache", __VA_ARGS__)

static void good(struct rig *r, const char *model, const char *more)
{
    struct spawn_result x;
    TOKENS(&x, model, r->cache, more ? more : "-q");
    if (x.status) {
        fail_msg("%s", x.err.p);
    }
    has_not(&x, TOKEN);
    spawn_free(&x);
}

static uint64_t asked(struct rig *r)
{
    struct hub_numbers n;
    hub_get(r->hub, &n);
    return n.resolved;
}

/* A branch is asked for once; it moves; this cache does not, until its user says so. */
static void t_commit(void **state)
{
    struct rig r;
    struct spawn_result x;
    rig_start(&r, NULL, NULL);
    TOKENS(&x, HUB_REPO, r.cache);
    assert_int_equal(x.status, 0);
    has(&x.err, "revision main of " HUB_REPO " is commit " HUB_COMMIT_A);
    has(&x.err, "--new-revision");
    spawn_free(&x);
    assert_int_equal(asked(&r), 1);
    hub_commit(r.hub, HUB_COMMIT_B);
    char *address = util_path("%s/" HUB_REPO, hub_url(r.hub));
    char *branch = util_path("%s/" HUB_REPO "/resolve/main/", hub_url(r.hub));
    char *tree = util_path("%s/" HUB_REPO "/tree/main", hub_url(r.hub));
    const char *const same[] = {HUB_REPO, HUB_REPO "@main", "hf://" HUB_REPO,
                                address,  branch,           tree};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        good(&r, same[i], NULL);
    }
    assert_int_equal(asked(&r), 1);
    assert_int_equal(hub_heard(r.hub, HUB_COMMIT_B), 0);
    /* with the hub away, too */
    good(&r, HUB_REPO, "--offline");
    setenv("HF_HUB_OFFLINE", "1", 1);
    struct hub_numbers n0, n;
    hub_get(r.hub, &n0);
    good(&r, HUB_REPO, NULL);
    hub_get(r.hub, &n);
    assert_int_equal(n.requests, n0.requests);
    TOKENS(&x, HUB_REPO, r.cache, "--new-revision");
    assert_true(x.status != 0);
    has(&x.err, "offline");
    spawn_free(&x);
    TOKENS(&x, HUB_REPO "@other", r.cache);
    assert_true(x.status != 0);
    has(&x.err, "other of " HUB_REPO);
    spawn_free(&x);
    unsetenv("HF_HUB_OFFLINE");
    /* by the user's word */
    TOKENS(&x, HUB_REPO, r.cache, "--new-revision");
    assert_int_equal(x.status, 0);
    has(&x.err, HUB_COMMIT_B);
    spawn_free(&x);
    assert_true(hub_heard(r.hub, HUB_COMMIT_B) > 0);
    assert_int_equal(asked(&r), 2);
    good(&r, HUB_REPO, NULL);
    /* a commit needs no question */
    good(&r, HUB_REPO "@" HUB_COMMIT_A, NULL);
    assert_int_equal(asked(&r), 2);
    /* what there is not */
    TOKENS(&x, HUB_REPO "@nope", r.cache);
    assert_true(x.status != 0);
    has(&x.err, "there is no revision nope");
    spawn_free(&x);
    TOKENS(&x, "org/nothing", r.cache);
    assert_true(x.status != 0);
    has(&x.err, "org/nothing");
    has(&x.err, "no such model");
    spawn_free(&x);
    /* a record that is damaged is no reason to take another commit in silence */
    char *file;
    assert_int_equal(util_count_files(r.cache, "/revisions/", &file), 1);
    struct err e;
    assert_int_equal(file_write_atomic(file, "shoal", 5, 0600, &e), 0);
    TOKENS(&x, HUB_REPO, r.cache);
    assert_true(x.status != 0);
    has(&x.err, file);
    has(&x.err, "--new-revision");
    spawn_free(&x);
    good(&r, HUB_REPO, "--new-revision");
    free(file);
    free(address);
    free(branch);
    free(tree);
    rig_end(&r);
}

static void write_token(const char *path, const char *text)
{
    struct err e;
    char *dir = strdup(path);
    *strrchr(dir, '/') = 0;
    assert_int_equal(file_mkdirs(dir, &e), 0);
    assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, &e), 0);
    free(dir);
}

/* The rules of the hub's own tools; and never to another host. */
static void t_tokens(void **state)
{
    struct rig r;
    struct spawn_result x;
    rig_start(&r, TOKEN, NULL);
    TOKENS(&x, HUB_REPO, r.cache);
    assert_true(x.status != 0);
    has(&x.err, "HF_TOKEN");
    has(&x.err, "status 401");
    spawn_free(&x);
    char *p1 = util_path("%s/.cache/huggingface/token", r.home);
    char *p2 = util_path("%s/xdg/huggingface/token", r.home);
    char *p3 = util_path("%s/hf/token", r.home);
    char *p4 = util_path("%s/mine", r.home), *dir;
    write_token(p1, TOKEN "\n");
    good(&r, HUB_REPO, NULL);
    /* each place goes before the former, so a wrong one there shows */
    write_token(p1, OTHER);
    write_token(p2, "  " TOKEN " \n");
    dir = util_path("%s/xdg", r.home);
    setenv("XDG_CACHE_HOME", dir, 1);
    good(&r, HUB_REPO, "--new-revision");
    write_token(p2, OTHER);
    write_token(p3, TOKEN);
    setenv("HF_HOME", "~/hf", 1);
    good(&r, HUB_REPO, "--new-revision");
    write_token(p3, OTHER);
    write_token(p4, TOKEN);
    setenv("HF_TOKEN_PATH", p4, 1);
    good(&r, HUB_REPO, "--new-revision");
    write_token(p4, OTHER);
    setenv("HF_TOKEN", TOKEN "\n", 1);
    good(&r, HUB_REPO, "--new-revision");
    setenv("SHOAL_TOKEN", TOKEN, 1); /* for whatever --model names: the nearest word */
    setenv("HF_TOKEN", OTHER, 1);
    good(&r, HUB_REPO, "--new-revision");
    unsetenv("SHOAL_TOKEN");
    assert_int_equal(hub_heard(r.hub, OTHER), 0);
    /* a wrong one is not shown */
    TOKENS(&x, HUB_REPO, r.cache, "--new-revision");
    assert_true(x.status != 0);
    has(&x.err, "not valid there");
    has_not(&x, OTHER);
    spawn_free(&x);
    /* --token: a file, none, and no token itself */
    write_token(p4, TOKEN);
    TOKENS(&x, HUB_REPO, r.cache, "--new-revision", "--token", p4);
    assert_int_equal(x.status, 0);
    spawn_free(&x);
    setenv("HF_TOKEN", TOKEN, 1);
    TOKENS(&x, HUB_REPO, r.cache, "--new-revision", "--token", "none");
    assert_true(x.status != 0);
    has(&x.err, "status 401");
    spawn_free(&x);
    TOKENS(&x, HUB_REPO, r.cache, "--token", TOKEN);
    assert_true(x.status != 0);
    has(&x.err, "who list processes");
    spawn_free(&x);
    setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", 1);
    TOKENS(&x, HUB_REPO, r.cache, "--new-revision");
    assert_true(x.status != 0);
    spawn_free(&x);
    unsetenv("HF_HUB_DISABLE_IMPLICIT_TOKEN");
    /* another host gets the hub's token by the user's word alone */
    setenv("HF_ENDPOINT", "https://huggingface.co", 1);
    char *url = util_path("%s/" HUB_REPO "/resolve/" HUB_COMMIT_A, hub_url(r.hub));
    int n = hub_heard(r.hub, TOKEN);
    TOKENS(&x, url, r.cache, "-q");
    assert_int_equal(x.status, 0); /* all is cached; what is asked, is asked without */
    spawn_free(&x);
    char *fresh = util_path("%s/fresh", r.tmp);
    TOKENS(&x, url, fresh, "-q");
    assert_true(x.status != 0);
    spawn_free(&x);
    assert_int_equal(hub_heard(r.hub, TOKEN), n);
    TOKENS(&x, url, fresh, "-q", "--token", "hub");
    assert_int_equal(x.status, 0);
    spawn_free(&x);
    assert_true(hub_heard(r.hub, TOKEN) > n);
    free(p1);
    free(p2);
    free(p3);
    free(p4);
    free(dir);
    free(url);
    free(fresh);
    rig_end(&r);
}

static void t_certificates(void **state)
{
    struct rig r;
    struct spawn_result x;
    char *dir = util_tmpdir(), *ca = util_path("%s/ca.pem", dir);
    struct hub_cert *cert = hub_cert_new(ca);
    rig_start(&r, NULL, cert);
    TOKENS(&x, HUB_REPO, r.cache);
    assert_true(x.status != 0);
    has(&x.err, "--ca-file");
    spawn_free(&x);
    TOKENS(&x, HUB_REPO, r.cache, "--ca-file", ca);
    assert_int_equal(x.status, 0);
    spawn_free(&x);
    static const char *const names[] = {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"};
    for (size_t i = 0; i < 3; i++) { /* a later one goes first */
        setenv(names[i], ca, 1);
        good(&r, HUB_REPO, "--new-revision");
        setenv(names[i], "/no/such/file", 1);
        TOKENS(&x, HUB_REPO, r.cache, "-q");
        assert_true(x.status != 0);
        has(&x.err, names[i]);
        has(&x.err, "/no/such/file");
        spawn_free(&x);
    }
    hub_cert_free(cert);
    rig_end(&r);
    util_rmtree(dir);
    free(dir);
    free(ca);
}

static const char *check(const struct spawn_result *x, const char *name, const char *verdict)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(x->json, "checks"), i, c)
    {
        if (!strcmp(json_string_value(json_object_get(c, "name")), name)) {
            const char *detail = json_string_value(json_object_get(c, "detail"));
            if (strcmp(json_string_value(json_object_get(c, "verdict")), verdict) != 0) {
                fail_msg("%s: not %s: %s", name, verdict, detail);
            }
            return detail;
        }
    }
    fail_msg("doctor says nothing of %s: %s", name, x->out.p);
    return NULL;
}

static void says(const struct spawn_result *x, const char *name, const char *verdict,
                 const char *part)
{
    const char *detail = check(x, name, verdict);
    if (!strstr(detail, part)) {
        fail_msg("%s: \"%s\" is not in: %s", name, part, detail);
    }
}

#define DOCTOR(r, ...) \
    SPAWN(r, NULL, "doctor", "--json", "--model", HUB_REPO, "--cache", __VA_ARGS__)

static void t_doctor(void **state)
{
    struct rig r;
    struct spawn_result x;
    rig_start(&r, TOKEN, NULL);
    DOCTOR(&x, r.cache);
    assert_int_equal(x.status, 1); /* not even its commit is told */
    says(&x, "origin", "fail", "status 401");
    spawn_free(&x);
    setenv("HF_TOKEN", TOKEN, 1);
    DOCTOR(&x, r.cache);
    assert_int_equal(x.status, 0);
    says(&x, "origin", "ok", "status 200");
    says(&x, "token", "ok", "accepted, and needed");
    says(&x, "redirect", "ok", "shards come from localhost:");
    says(&x, "ranges", "ok", "/s by one connection");
    says(&x, "clock", "ok", "within");
    has_not(&x, TOKEN);
    has_not(&x, "sig=");
    spawn_free(&x);
    setenv("HF_TOKEN", OTHER, 1); /* with the commit on record the origin itself refuses */
    DOCTOR(&x, r.cache);
    assert_int_equal(x.status, 1);
    says(&x, "token", "fail", "not accepted (status 401)");
    has_not(&x, OTHER);
    spawn_free(&x);
    unsetenv("HF_TOKEN");
    DOCTOR(&x, r.cache);
    says(&x, "token", "fail", "needed (status 401)");
    spawn_free(&x);
    DOCTOR(&x, r.cache, "--offline");
    says(&x, "origin", "ok", "not asked (--offline)");
    spawn_free(&x);
    setenv("HF_TOKEN", TOKEN, 1);
    hub_set(r.cdn, HUB_WHOLE, 0, -1);
    DOCTOR(&x, r.cache);
    assert_int_equal(x.status, 1);
    says(&x, "shards", "fail", "does not support ranges");
    spawn_free(&x);
    hub_set(r.cdn, HUB_ENDLESS, 0, -1); /* it ends nevertheless */
    DOCTOR(&x, r.cache);
    spawn_free(&x);
    rig_end(&r);
    /* a public one, signed for an hour, with a clock two hours later */
    clear_env();
    r.tmp = util_tmpdir();
    r.cache = util_path("%s/cache", r.tmp);
    r.home = util_path("%s/home", r.tmp);
    struct hub_opts o = {.dir = DEMO_MODEL, .host = "127.0.0.1", .clock = 7200, .life = 3600};
    r.hub = hub_start(&o);
    o.name = "localhost";
    r.cdn = hub_start(&o);
    hub_redirect_to(r.hub, r.cdn);
    setenv("HF_ENDPOINT", hub_url(r.hub), 1);
    DOCTOR(&x, r.cache);
    assert_int_equal(x.status, 0);
    says(&x, "token", "ok", "none is needed");
    says(&x, "redirect", "ok", "that last 3600 s");
    says(&x, "clock", "warn", "behind the server's");
    spawn_free(&x);
    setenv("HF_TOKEN", TOKEN, 1);
    DOCTOR(&x, r.cache);
    says(&x, "token", "ok", "not needed");
    spawn_free(&x);
    rig_end(&r);
    /* nobody there */
    setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
    DOCTOR(&x, "/nowhere");
    assert_int_equal(x.status, 1);
    says(&x, "origin", "fail", "127.0.0.1");
    spawn_free(&x);
    clear_env();
}

/* The same receipt as from the folder, through everything: name, redirects, rates. */
static void t_receipt(void **state)
{
    struct rig r;
    struct spawn_result a, b;
    rig_start(&r, TOKEN, NULL);
    setenv("HF_TOKEN", TOKEN, 1);
    SPAWN(&a, NULL, "run", "--model", DEMO_MODEL, "--chat", "Define whale.", "--no-think", "--json",
          "-q");
    SPAWN(&b, NULL, "run", "--model", HUB_REPO, "--cache", r.cache, "--rate-limit", "200MB",
          "--rate-limit-connection", "100MB", "--chat", "Define whale.", "--no-think", "--json");
    assert_int_equal(a.status, 0);
    assert_int_equal(b.status, 0);
    const char *want = json_string_value(json_object_get(a.json, "receipt"));
    assert_non_null(want);
    assert_string_equal(json_string_value(json_object_get(b.json, "receipt")), want);
    has_not(&b, TOKEN);
    spawn_free(&a);
    spawn_free(&b);
    /* no origin, no limit */
    SPAWN(&a, NULL, "run", "--rate-limit", "1MB", "--chat", "x", "-q");
    assert_true(a.status != 0);
    has(&a.err, "read in place");
    spawn_free(&a);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(t_commit), cmocka_unit_test(t_tokens),  cmocka_unit_test(t_certificates),
        cmocka_unit_test(t_doctor), cmocka_unit_test(t_receipt),
    };
    return cmocka_run_group_tests_name("cli_hub", t, NULL, NULL);
}
