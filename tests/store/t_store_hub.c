/* SPDX-License-Identifier: MIT
 * t_store_hub.c: a hub as it really behaves: redirects to signed addresses that expire, tags of two
 * servers, bad habits of either, https, proxies. The right bytes in the end, or one sentence; the
 * token goes to the hub alone, and into no log, error or file. */
#include "tests/store/hub.h"
#include "tests/store/util.h"

#include "proto/base/clock.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN "hf_SecretOfTheTest"

struct rig {
    struct hub *hub, *cdn;
    char *tmp, *url, *cache;
    struct hub_cert *cert;
    struct util_log log;
    struct store *st;
    struct store_opts o;
    struct hub_opts ho, co;
    char *ca;
};

/* Fills what is asked of the servers; rig_start begins. */
static void rig_init(struct rig *r, bool tls)
{
    memset(r, 0, sizeof *r);
    r->tmp = util_tmpdir();
    r->cache = util_path("%s/cache", r->tmp);
    util_log_init(&r->log);
    if (tls) {
        r->ca = util_path("%s/ca.pem", r->tmp);
        r->cert = hub_cert_new(r->ca);
    }
    r->ho =
        (struct hub_opts){.dir = DEMO_MODEL, .host = "127.0.0.1", .cert = r->cert, .token = TOKEN};
    r->co = (struct hub_opts){
        .dir = DEMO_MODEL, .host = "127.0.0.1", .name = "localhost", .cert = r->cert};
    r->o = (struct store_opts){.ram_budget = 1 << 20,
                               .disk_floor = 1,
                               .retries = 4,
                               .retry_ms = 5,
                               .stall_ms = 8000,
                               .token = TOKEN,
                               .log = util_log_line,
                               .log_ctx = &r->log};
}

static void rig_start(struct rig *r)
{
    r->hub = hub_start(&r->ho);
    r->cdn = hub_start(&r->co);
    assert_non_null(r->hub);
    assert_non_null(r->cdn);
    hub_redirect_to(r->hub, r->cdn);
    hub_redirect_to(r->cdn, r->hub);
    r->url = util_path("%s/" HUB_REPO "/resolve/" HUB_COMMIT_A, hub_url(r->hub));
    r->o.model = r->url;
    r->o.cache_dir = r->cache;
    r->o.ca_file = r->ca;
}

static void rig_open(struct rig *r)
{
    struct err e = {0};
    if (store_open(&r->o, &r->st, &e)) {
        fail_msg("%s", e.msg);
    }
}

/* Nowhere below `dir` does a file hold the text. */
static void no_file_holds(const char *dir, const char *what)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));) {
        if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0) {
            continue;
        }
        char *p = util_path("%s/%s", dir, x->d_name);
        struct stat st;
        if (lstat(p, &st) == 0 && S_ISDIR(st.st_mode)) {
            no_file_holds(p, what);
        } else {
            FILE *f = fopen(p, "rb");
            size_t n = (size_t)st.st_size;
            char *b = malloc(n + 1);
            if (!f || fread(b, 1, n, f) != n) {
                fail_msg("cannot read %s", p);
            }
            for (size_t i = 0; i + strlen(what) <= n; i++) {
                if (memcmp(b + i, what, strlen(what)) == 0) {
                    fail_msg("%s holds \"%s\"", p, what);
                }
            }
            free(b);
            fclose(f);
        }
        free(p);
    }
    closedir(d);
}

static void rig_end(struct rig *r)
{
    store_close(r->st);
    /* whatever the test was about */
    assert_int_equal(hub_heard(r->cdn, TOKEN), 0);
    assert_int_equal(hub_heard(r->cdn, "uthorization"), 0);
    assert_int_equal(util_log_has(&r->log, TOKEN), 0);
    assert_int_equal(util_log_has(&r->log, "sig="), 0);
    if (access(r->cache, F_OK) == 0) {
        no_file_holds(r->cache, TOKEN);
        no_file_holds(r->cache, "sig=");
    }
    hub_stop(r->hub);
    hub_stop(r->cdn);
    hub_cert_free(r->cert);
    util_rmtree(r->tmp);
    util_log_free(&r->log);
    free(r->tmp);
    free(r->url);
    free(r->cache);
    free(r->ca);
}

static void get_right(struct rig *r, uint32_t id)
{
    struct store_view v;
    struct err e = {0};
    if (store_get(r->st, id, STORE_DEMAND, 0, &v, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_true(util_right(store_model(r->st), DEMO_MODEL, &v));
    store_release(r->st, &v);
}

/* The hub is asked once for each shard; what it said is used until it expires. */
static void t_signed(void **s)
{
    struct rig r;
    rig_init(&r, false);
    rig_start(&r);
    rig_open(&r);
    const struct model *m = store_model(r.st);
    struct hub_numbers h0, h, c;
    for (uint32_t i = 0; i < 7; i++) {
        get_right(&r, model_expert_id(m, 1 + i, 0));
    }
    hub_get(r.hub, &h0);
    for (uint32_t i = 0; i < 35; i++) { /* other ranges of the same shards, with other tags there */
        get_right(&r, model_expert_id(m, 1 + i % 7, 2 + i));
    }
    hub_get(r.hub, &h);
    assert_int_equal(h.redirects, h0.redirects);
    assert_int_equal(hub_heard(r.hub, "Authorization: Bearer " TOKEN "\r\n"), h.requests);
    /* it expires, though nothing has said when: once refused, asked anew */
    hub_expire(r.cdn);
    get_right(&r, model_expert_id(m, 2, 40));
    hub_get(r.hub, &h);
    hub_get(r.cdn, &c);
    assert_int_equal(h.redirects, h0.redirects + 1);
    assert_int_equal(c.refused, 1);
    assert_int_equal(util_log_has(&r.log, "expired"), 1);
    /* nothing of it is kept for the next start */
    store_close(r.st);
    rig_open(&r);
    m = store_model(r.st);
    get_right(&r, model_expert_id(m, 2, 41));
    hub_get(r.hub, &h0);
    assert_true(h0.redirects > h.redirects);
    rig_end(&r);
}

/* Renewed before it expires, with a hub whose clock is years away from ours. */
static void t_renewed(void **s)
{
    static const int64_t clocks[] = {0, 100000000, -100000000};
    struct rig r[3];
    struct hub_numbers h0[3], h, c;
    for (size_t i = 0; i < 3; i++) {
        rig_init(&r[i], false);
        r[i].ho.life = 1;
        r[i].ho.clock = r[i].co.clock = clocks[i];
        rig_start(&r[i]);
        rig_open(&r[i]);
        get_right(&r[i], model_expert_id(store_model(r[i].st), 1, 0));
        hub_get(r[i].hub, &h0[i]);
    }
    usleep(1100000); /* past its life: the file server refuses it now */
    for (size_t i = 0; i < 3; i++) {
        hub_expire(r[i].cdn);
        get_right(&r[i], model_expert_id(store_model(r[i].st), 1, 2));
        hub_get(r[i].hub, &h);
        hub_get(r[i].cdn, &c);
        assert_true(h.redirects > h0[i].redirects);
        assert_int_equal(c.refused, 0);
        rig_end(&r[i]);
    }
}

struct habit_case {
    enum hub_habit kind;
    long arg;
    int times;        /* -1: for ever */
    int code;         /* 0: survived */
    const char *says; /* in the error, or in the log where it is survived; NULL: nothing */
    bool at_hub;      /* it is the hub's habit, not the file server's */
};

static const struct habit_case cases[] = {
    {HUB_CUT, 50000, -1, 0, NULL, false}, /* less than an object: goes on where it was cut */
    {HUB_CUT, 3, -1, ERR_NET, "given up after 4", false},
    {HUB_TRICKLE, 5000, 1, 0, "only", false},
    {HUB_ETAG_OTHER, 0, 1, 0, "another file", false},
    {HUB_ETAG_GZIP, 0, -1, 0, NULL, false},
    {HUB_ETAG_WEAK, 0, -1, 0, NULL, false},
    {HUB_GZIP, 0, 1, 0, "encoded", false},
    {HUB_GZIP, 0, -1, ERR_NET, "encoded", false},
    {HUB_BUSY, 0, 3, 0, "slow down", false},
    {HUB_BUSY, 1, 1, 0, "trying again in 1.0 s", false},
    {HUB_BUSY_DATE, 1, 1, 0, "trying again in 1.0 s", false},
    {HUB_416, 0, -1, ERR_NET, "status 416", false},
    {HUB_WHOLE, 0, 1, 0, "status 200", false},
    {HUB_WHOLE, 0, -1, ERR_NET, "does not support ranges", false},
    {HUB_RANGE, 0, -1, ERR_NET, "instead of", false},
    {HUB_LOOP, 0, -1, ERR_NET, "circle", false},
    {HUB_HEAD, 1024, -1, ERR_NET, "head of the server's answer is too large", false},
    {HUB_HEAD, 1024, 1, 0, "too large", false},
    {HUB_HEAD, -1, -1, ERR_NET, "head of the server's answer is too large", false},
    {HUB_HEAD, 200, -1, ERR_NET, "no Content-Range", false},
    {HUB_LINE, 1024, -1, ERR_NET, "head of the server's answer is too large", false},
    {HUB_ENDLESS, 0, 1, 0, NULL, false},
    {HUB_EXPIRED, 0, 2, 0, "expired", false},
    {HUB_EXPIRED, 0, -1, ERR_NET, "redirects to has expired or refuses (status 403)", false},
    /* the hub's own, when it is asked where the file is now */
    {HUB_BUSY, 1, 1, 0, "trying again in 1.0 s", true},
    {HUB_BUSY_DATE, 1, 1, 0, "trying again in 1.0 s", true},
    {HUB_416, 0, -1, ERR_NET, "status 416", true},
    {HUB_LOOP, 0, -1, ERR_NET, "circle", true},
    {HUB_ETAG_GZIP, 0, -1, 0, NULL, true},
    {HUB_ETAG_OTHER, 0, -1, ERR_NET, "has changed since", true},
    {HUB_HEAD, -1, -1, ERR_NET, "head of the server's answer is too large", true},
};

static void habits(struct rig *r, bool few)
{
    rig_start(r);
    r->o.stall_ms = 500;
    rig_open(r);
    const struct model *m = store_model(r->st);
    uint32_t id = model_expert_id(m, 1, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++, id += 3) {
        const struct habit_case *c = &cases[i];
        if (few && c->kind != HUB_CUT && c->kind != HUB_HEAD && c->kind != HUB_ENDLESS &&
            c->kind != HUB_LOOP) {
            continue;
        }
        get_right(r, id + 1); /* its shard's address is known */
        r->log.n = 0;
        memset(r->log.text, 0, sizeof r->log.text);
        hub_set(c->at_hub ? r->hub : r->cdn, c->kind, c->arg, c->times);
        if (c->at_hub) {
            hub_expire(r->cdn);
        }
        struct store_view v;
        struct err e = {0};
        int rc = store_get(r->st, id, STORE_DEMAND, clock_ns() + 60000000000u, &v, &e);
        if (rc != c->code) {
            fail_msg("case %zu: code %d (%s), expected %d", i, rc, e.msg, c->code);
        }
        if (rc) {
            char name[64];
            model_object_name(m, id, name, sizeof name);
            if (!strstr(e.msg, c->says) || !strstr(e.msg, name) || !strstr(e.msg, "127.0.0.1")) {
                fail_msg("case %zu: \"%s\" does not say \"%s\"", i, e.msg, c->says);
            }
            assert_null(strstr(e.msg, TOKEN));
            assert_null(strstr(e.msg, "sig="));
        } else {
            assert_true(util_right(m, DEMO_MODEL, &v));
            store_release(r->st, &v);
            if (c->says && !util_log_has(&r->log, c->says)) {
                fail_msg("case %zu: the log does not say \"%s\" but %s", i, c->says, r->log.text);
            }
        }
        hub_set(r->hub, HUB_GOOD, 0, 0);
        hub_set(r->cdn, HUB_GOOD, 0, 0);
        get_right(r, id); /* and it goes on as if nothing had been */
    }
    rig_end(r);
}

static void t_habits(void **s)
{
    struct rig r;
    rig_init(&r, false);
    habits(&r, false);
}

static void t_habits_tls(void **s)
{
    struct rig r;
    rig_init(&r, true);
    habits(&r, true);
}

/* A hub that lets nobody in without its token says so. */
static void t_token(void **s)
{
    struct rig r;
    rig_init(&r, false);
    rig_start(&r);
    static const char *const wrong[] = {NULL, "hf_WrongSecret"};
    for (size_t i = 0; i < 2; i++) {
        struct err e = {0};
        r.o.token = wrong[i];
        assert_int_equal(store_open(&r.o, &r.st, &e), ERR_NET);
        assert_non_null(strstr(e.msg, "token"));
        assert_null(strstr(e.msg, "hf_"));
        r.st = NULL;
    }
    assert_int_equal(hub_heard(r.hub, TOKEN), 0);
    r.o.token = TOKEN;
    rig_open(&r);
    get_right(&r, 3);
    rig_end(&r);
}

static void t_https(void **s)
{
    struct rig r;
    rig_init(&r, true);
    rig_start(&r);
    struct err e = {0};
    struct store_opts o = r.o;
    o.ca_file = NULL; /* the system does not know this authority */
    assert_int_equal(store_open(&o, &r.st, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "--ca-file"));
    assert_int_equal(hub_heard(r.hub, "GET"), 0); /* nothing was said to whom nobody trusts */
    o.ca_file = "/no/such/file";
    assert_true(store_open(&o, &r.st, &e) != 0);
    assert_non_null(strstr(e.msg, "/no/such/file"));
    rig_open(&r);
    const struct model *m = store_model(r.st);
    get_right(&r, model_expert_id(m, 1, 0));
    /* to a server that anybody can play: never */
    hub_set(r.hub, HUB_DOWNGRADE, 0, -1);
    struct store_view v;
    hub_expire(r.cdn);
    assert_int_equal(store_get(r.st, model_expert_id(m, 1, 5), STORE_DEMAND, 0, &v, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "from https to unprotected http"));
    hub_set(r.hub, HUB_GOOD, 0, 0);
    get_right(&r, model_expert_id(m, 1, 5));
    rig_end(&r);
}

static void t_ipv6(void **s)
{
    struct rig r;
    for (int tls = 0; tls < 2; tls++) {
        rig_init(&r, tls);
        r.ho.host = "::1";
        struct hub *there = hub_start(&r.ho);
        if (!there) {
            print_message("skipped: this machine has no ::1\n");
            util_rmtree(r.tmp);
            skip();
        }
        hub_stop(there);
        rig_start(&r);
        assert_non_null(strstr(r.url, "://[::1]:"));
        rig_open(&r);
        get_right(&r, 5);
        struct err e = {0};
        struct store_view v;
        hub_set(r.cdn, HUB_416, 0, -1);
        assert_int_equal(store_get(r.st, 300, STORE_DEMAND, 0, &v, &e), ERR_NET);
        assert_non_null(strstr(e.msg, "[::1]"));
        rig_end(&r);
    }
}

/* A hub that redirects nothing; and one whose small files have no end: cut at the limit. */
static void t_alone(void **s)
{
    struct rig r;
    rig_init(&r, false);
    rig_start(&r);
    hub_redirect_to(r.hub, NULL);
    hub_set(r.hub, HUB_ENDLESS_FILE, 0, -1);
    struct err e = {0};
    assert_int_equal(store_open(&r.o, &r.st, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "config.json"));
    assert_non_null(strstr(e.msg, "larger than"));
    hub_set(r.hub, HUB_GOOD, 0, 0);
    rig_open(&r);
    get_right(&r, 7);
    struct hub_numbers c;
    hub_get(r.cdn, &c);
    assert_int_equal(c.requests, 0);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(t_signed),     cmocka_unit_test(t_renewed), cmocka_unit_test(t_habits),
        cmocka_unit_test(t_habits_tls), cmocka_unit_test(t_token),   cmocka_unit_test(t_https),
        cmocka_unit_test(t_ipv6),       cmocka_unit_test(t_alone),
    };
    return cmocka_run_group_tests_name("store_hub", t, NULL, NULL);
}
