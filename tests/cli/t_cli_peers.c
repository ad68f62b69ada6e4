/* SPDX-License-Identifier: MIT
 * t_cli_peers.c: nodes of one shoal by the real program: who answers from whose cache, a process
 * beside a running node, the report, the HTTP face, and two nodes that compare what they compute.
 */
#include "homes.h"

#include "node/demo/server.h"

#include <curl/curl.h>
#include <signal.h>

static char *dir, *a, *b, *c;
static struct demo_server *origin;
static char *url; /* of the origin, also after it has gone */

static int setup(void **state)
{
    struct err e;
    (void)state;
    dir = homes_new();
    a = homes_at(dir, "a");
    b = homes_at(dir, "b");
    c = homes_at(dir, "c");
    assert_int_equal(curl_global_init(CURL_GLOBAL_DEFAULT), 0);
    assert_int_equal(demo_server_start(MODEL, 0, &origin, &e), 0);
    url = strdup(demo_server_url(origin));
    return url ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    demo_server_stop(origin);
    curl_global_cleanup();
    free(url);
    free(a);
    free(b);
    free(c);
    homes_drop(dir);
    return 0;
}

#define QUESTION "--chat", "Define whale.", "--no-think"

/* ---- HTTP ---- */

static size_t keep(char *p, size_t size, size_t n, void *ctx)
{
    return buf_add(ctx, p, size * n) ? 0 : size * n;
}

/* A request; its status, the body in *out. host: another Host header, or NULL. */
static long http(const char *base, const char *path, const char *method, const char *host,
                 struct buf *out)
{
    char whole[200], header[100];
    long status = 0;
    CURL *h = curl_easy_init();
    struct curl_slist *l = NULL;
    assert_non_null(h);
    snprintf(whole, sizeof whole, "%s%s", base, path);
    buf_init(out, 1 << 20);
    if (host) {
        snprintf(header, sizeof header, "Host: %s", host);
        l = curl_slist_append(l, header);
    }
    curl_easy_setopt(h, CURLOPT_URL, whole);
    curl_easy_setopt(h, CURLOPT_PROXY, "");
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, l);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, out);
    curl_easy_setopt(h, CURLOPT_TIMEOUT, 60L);
    if (!strcmp(method, "POST")) {
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, "{\"model\": \"k3\"}");
    }
    assert_int_equal(curl_easy_perform(h), CURLE_OK);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(l);
    curl_easy_cleanup(h);
    assert_int_equal(buf_adds(out, ""), 0);
    return status;
}

/* The value of a metric without labels, or with exactly these. */
static double metric(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *l = text; l; l = strchr(l, '\n'), l = l ? l + 1 : NULL) {
        if (!strncmp(l, name, n) && l[n] == ' ') {
            return strtod(l + n + 1, NULL);
        }
    }
    fail_msg("no metric %s in:\n%s", name, text);
    return -1;
}

static bool name_char(char x, bool first)
{
    return (x >= 'a' && x <= 'z') || x == '_' || (!first && x >= '0' && x <= '9');
}

/* Text format 0.0.4 with the conventions: each metric has HELP and TYPE, once and before its
 * samples, which stand together, no two alike; names are ours; counters end in _total, nothing else
 * does; a sample is a name, labels with quoted values, and one finite number. */
static void check_format(const char *text)
{
    char name[100] = "", type[20] = "", sample[300];
    const char *begin = text;
    int samples = 0;
    for (const char *l = text; *l; l = strchr(l, '\n') + 1) {
        const char *end = strchr(l, '\n');
        assert_non_null(end);
        if (!strncmp(l, "# HELP ", 7)) {
            size_t n = strcspn(l + 7, " \n");
            assert_true(n < sizeof name && l[7 + n] == ' ' && end - l > (long)n + 12);
            snprintf(name, sizeof name, "%.*s", (int)n, l + 7);
            snprintf(sample, sizeof sample, "# HELP %s ", name);
            assert_ptr_equal(strstr(begin, sample), l); /* the first */
            assert_null(strstr(end, sample));
            assert_true(!strncmp(name, "shoal_", 6));
            continue;
        }
        if (!strncmp(l, "# TYPE ", 7)) {
            char of[100];
            assert_int_equal(sscanf(l + 7, "%99s %19s", of, type), 2);
            assert_string_equal(of, name);
            bool total = strlen(name) > 6 && !strcmp(name + strlen(name) - 6, "_total");
            assert_true(!strcmp(type, "counter") || !strcmp(type, "gauge"));
            assert_int_equal(total, !strcmp(type, "counter"));
            continue;
        }
        size_t n = 0;
        while (name_char(l[n], n == 0)) {
            n++;
        }
        if (n != strlen(name) || strncmp(l, name, n) != 0) {
            fail_msg("a sample without HELP and TYPE right before: %.100s", l);
        }
        const char *p = l + n;
        if (*p == '{') {
            size_t k = 0;
            while (name_char(p[1 + k], k == 0)) {
                k++;
            }
            assert_true(k > 0 && !strncmp(p + 1 + k, "=\"", 2));
            p += k + 3;
            while (*p != '"' && *p != '\n') {
                p += *p == '\\' ? 2 : 1;
            }
            assert_true(!strncmp(p, "\"}", 2));
            p += 2;
        }
        assert_true(p - l < (long)sizeof sample - 2 && *p == ' ');
        snprintf(sample, sizeof sample, "\n%.*s", (int)(p - l) + 1, l);
        assert_null(strstr(end, sample)); /* not twice */
        char *stop;
        double v = strtod(p + 1, &stop);
        assert_ptr_equal(stop, end);
        assert_true(v >= 0 && v < 1e18);
        samples++;
    }
    assert_true(samples > 60);
}

static void look_at_http(const char *api)
{
    struct buf t;
    json_t *j;
    while (http(api, "/health", "GET", NULL, &t) == 503) { /* the model loads */
        assert_non_null(strstr(t.p, "\"loading\""));
        buf_free(&t);
        usleep(50000);
    }
    j = json_loadb(t.p, t.n, 0, NULL);
    assert_string_equal(str_of(j, "status"), "ok");
    assert_int_equal(num_of(j, "peers"), 1);
    json_decref(j);
    buf_free(&t);

    assert_int_equal(http(api, "/metrics", "GET", NULL, &t), 200);
    check_format(t.p);
    assert_int_equal(metric(t.p, "shoal_peers_connected"), 1);
    assert_int_equal(metric(t.p, "shoal_members"), 2);
    assert_true(metric(t.p, "shoal_served_bytes_total") > 0);
    assert_true(metric(t.p, "shoal_experts{held=\"node\"}") > 0);
    assert_true(metric(t.p, "shoal_experts{held=\"model\"}") >=
                metric(t.p, "shoal_experts{held=\"node\"}"));
    assert_true(metric(t.p, "shoal_taken_bytes_total{tier=\"origin\"}") > 0);
    assert_non_null(strstr(t.p, "# TYPE shoal_served_bytes_total counter\n"));
    assert_non_null(strstr(t.p, "shoal_peer_sent_bytes_total{peer=\""));
    buf_free(&t);

    assert_int_equal(http(api, "/v1/chat/completions", "POST", NULL, &t),
                     404); /* {"model": "k3"} */
    j = json_loadb(t.p, t.n, 0, NULL);
    assert_string_equal(str_of(json_object_get(j, "error"), "code"), "model_not_found");
    assert_true(json_is_string(json_object_get(json_object_get(j, "error"), "message")));
    json_decref(j);
    buf_free(&t);
    assert_int_equal(http(api, "/", "GET", NULL, &t), 404);
    buf_free(&t);
    assert_int_equal(http(api, "/metrics", "DELETE", NULL, &t), 405);
    buf_free(&t);
    assert_int_equal(http(api, "/metrics", "GET", "evil.example", &t), 403);
    buf_free(&t);
}

/* ---- the household ---- */

static void t_household(void **state)
{
    struct spawn_child ua, ub;
    struct spawn_result r;
    struct demo_server_stats net;
    (void)state;
    json_t *alone = MUST("run", "--model", MODEL, QUESTION); /* what all must say */
    DO("init", "--home", a);
    json_t *ready = UP(&ua, a, "--model", url, "--api", "127.0.0.1:0", "--upload-limit", "500M");
    char *address = address_of(ready), *api = strdup(str_of(ready, "api"));
    take_in(a, b);

    /* A process beside the node: its cache, filled through it. Without --model it takes the
     * node's. */
    json_t *guest = MUST("run", "--home", a, QUESTION);
    assert_string_equal(str_of(guest, "receipt"), str_of(alone, "receipt"));
    assert_string_equal(str_of(guest, "model"), url);
    demo_server_get_stats(origin, &net);
    uint64_t first = net.bytes;
    json_t *again = MUST("run", "--home", a, QUESTION);
    assert_string_equal(str_of(again, "receipt"), str_of(alone, "receipt"));
    demo_server_get_stats(origin, &net);
    assert_int_equal(net.bytes, first); /* all of it was in the cache */

    /* The origin goes away; the other machine answers from the first one's cache. */
    demo_server_stop(origin);
    origin = NULL;
    DO("peers", "add", address, "--home", b);
    json_t *other = MUST("run", "--home", b, "--model", url, QUESTION);
    assert_string_equal(str_of(other, "receipt"), str_of(alone, "receipt"));
    const json_t *stats = json_object_get(other, "stats");
    assert_true(num_of(stats, "peer_bytes") > 1e6);
    assert_int_equal(num_of(stats, "origin_bytes"), 0);
    SPAWN(&r, NULL, "run", "--home", b, "--model", url, QUESTION);
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.err.p, "1 of 1 other members connected"));
    assert_non_null(strstr(r.err.p, " from peers"));
    assert_null(strstr(r.err.p, ": known at ")); /* what a node logs is not for a single answer */
    assert_null(strstr(r.err.p, ": connected to "));
    spawn_free(&r);

    /* Both run, with the origin back where it was; the report says so. */
    struct err e;
    const char *port = strrchr(url, ':') + 1;
    assert_int_equal(demo_server_start(MODEL, (uint16_t)strtoul(port, NULL, 10), &origin, &e), 0);
    json_t *ready_b = UP(&ub, b, "--model", url);
    await_num(a, "connected", 1);
    await_num(b, "connected", 1);
    json_t *s = status_of(a);
    assert_true(json_is_true(json_object_get(s, "running")));
    assert_int_equal(num_of(s, "members"), 2);
    assert_int_equal(num_of(s, "port"), num_of(ready, "port"));
    assert_int_equal(num_of(s, "limits.out_bytes_s"), 500e6);
    /* what was taken counts the small files, too: half a megabyte here */
    assert_true(num_of(s, "serve.bytes") + 1e6 >= num_of(stats, "peer_bytes"));
    assert_true(num_of(s, "tiers.origin.bytes") > 0);
    assert_true(num_of(s, "coverage.experts.have") > 0);
    assert_true(num_of(s, "coverage.experts.have") <= num_of(s, "coverage.experts.of"));
    const json_t *p = json_array_get(json_object_get(s, "peers"), 0);
    assert_string_equal(str_of(p, "short"), str_of(ready_b, "short"));
    assert_string_equal(str_of(p, "state"), "connected");
    assert_true(json_is_true(json_object_get(p, "model_same")));
    json_decref(s);
    SPAWN(&r, NULL, "status", "--home", a);
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out.p, "2 members, 1 connected"));
    assert_non_null(strstr(r.out.p, "to all peers 500 MB/s"));
    assert_non_null(strstr(r.out.p, str_of(ready_b, "short")));
    spawn_free(&r);
    SPAWN(&r, NULL, "peers", "--why", "--home", b);
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out.p, address));
    assert_non_null(strstr(r.out.p, str_of(ready, "short"))); /* the form that is shown anywhere */
    spawn_free(&r);
    look_at_http(api);

    /* The same bits on both. */
    json_t *v = MUST("verify", str_of(ready_b, "short"), "--home", a);
    assert_true(json_is_true(json_object_get(v, "same")));
    assert_string_equal(str_of(json_object_get(v, "here"), "receipt"),
                        str_of(json_object_get(v, "there"), "receipt"));
    assert_int_equal(json_array_size(json_object_get(json_object_get(v, "here"), "ids")), 16);
    json_decref(v);
    SPAWN(&r, NULL, "verify", str_of(ready, "short"), "--home", b, "--prompt", "music: the",
          "--max-new", "3");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.err.p, "is sent to"));
    assert_non_null(strstr(r.out.p, "bit for bit: 3 tokens"));
    spawn_free(&r);
    FAILS("no", "verify", "zzzz", "--home", a);
    FAILS("is this node", "verify", str_of(ready, "short"), "--home", a);

    /* Another model there: said, and the status is 1. */
    assert_int_equal(spawn_end(&ub, SIGTERM), 0);
    char cmd[1400], *changed = homes_at(dir, "changed");
    snprintf(cmd, sizeof cmd,
             "mkdir %s && ln -s '%s'/* %s/ && rm %s/config.json && sed "
             "'s/\\(\"max_position_embeddings\"\\): *[0-9]*/\\1: 2000/' '%s'/config.json "
             ">%s/config.json",
             changed, MODEL, changed, changed, MODEL, changed);
    assert_int_equal(system(cmd), 0);
    json_decref(UP(&ub, b, "--model", changed));
    await_num(a, "connected", 1);
    SPAWN(&r, NULL, "verify", str_of(ready_b, "short"), "--home", a, "--json");
    assert_int_equal(r.status, 1);
    assert_string_equal(str_of(r.json, "result"), "model");
    assert_true(json_is_false(json_object_get(r.json, "same")));
    spawn_free(&r);
    free(changed);

    assert_int_equal(spawn_end(&ub, SIGTERM), 0);
    assert_int_equal(spawn_end(&ua, SIGTERM), 0);
    json_decref(alone);
    json_decref(guest);
    json_decref(again);
    json_decref(other);
    json_decref(ready);
    json_decref(ready_b);
    free(address);
    free(api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(t_household)};
    return cmocka_run_group_tests_name("cli_peers", tests, setup, teardown);
}
