/* SPDX-License-Identifier: MIT
 * t_store_nginx.c: the same store against a real server: nginx, started as a child with a
 * configuration of its own in the test's folder. */
#include "tests/store/util.h"

#include "proto/base/clock.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char CONF[] =
    "%s" /* user root; when that is who runs the tests */
    "daemon off;\n"
    "pid %s/pid;\n"
    "error_log %s/error.log;\n"
    "worker_processes 1;\n"
    "events { worker_connections 256; }\n"
    "http {\n"
    "  log_format bytes '$request_uri $status $body_bytes_sent';\n"
    "  access_log %s/access.log bytes;\n"
    "  client_body_temp_path %s/t1; proxy_temp_path %s/t2;\n"
    "  fastcgi_temp_path %s/t3; uwsgi_temp_path %s/t4; scgi_temp_path %s/t5;\n"
    "  server {\n"
    "    listen 127.0.0.1:%d;\n"
    "    location /m/ { alias " DEMO_MODEL "/; }\n"
    "    location /slow/ { alias " DEMO_MODEL "/; limit_rate 4m; }\n"
    "    location /moved/ { rewrite ^/moved/(.*)$ /m/$1 redirect; }\n"
    "    location /busy/ { return 503; }\n"
    "    location /plain/ { alias " DEMO_MODEL "/; max_ranges 0; }\n"
    "  }\n"
    "}\n";

struct nginx {
    char *dir;
    pid_t pid;
    int port;
};

/* SHOAL_NGINX names one that is not installed (bootstrap unpacks it, so that no service starts). */
static const char *find_nginx(void)
{
    const char *named = getenv("SHOAL_NGINX");
    if (named && *named) {
        return named;
    }
    static const char *const at[] = {"/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx",
                                     "/opt/homebrew/bin/nginx", "/usr/local/bin/nginx"};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        if (access(at[i], X_OK) == 0) {
            return at[i];
        }
    }
    return NULL;
}

static int connects(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int ok = connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return ok;
}

static int free_port(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int port = 0;
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &n) == 0) {
        port = ntohs(a.sin_port);
    }
    close(fd);
    return port;
}

static int nginx_start(struct nginx *g)
{
    const char *exe = find_nginx();
    g->dir = util_tmpdir();
    for (int tries = 0; tries < 5; tries++) { /* somebody else may take the port in between */
        g->port = free_port();
        char *conf = util_path("%s/nginx.conf", g->dir);
        FILE *f = fopen(conf, "w");
        const char *d = g->dir;
        fprintf(f, CONF, geteuid() == 0 ? "user root;\n" : "", d, d, d, d, d, d, d, d, g->port);
        fclose(f);
        fflush(NULL);
        g->pid = fork();
        if (g->pid == 0) {
            int null = open("/dev/null", O_RDWR);
            dup2(null, 2);
            execl(exe, "nginx", "-p", g->dir, "-c", conf, (char *)NULL);
            _exit(127);
        }
        free(conf);
        uint64_t end = clock_ns() + 5000000000u;
        int status;
        while (clock_ns() < end && waitpid(g->pid, &status, WNOHANG) == 0) {
            if (connects(g->port)) {
                return 1;
            }
            usleep(5000);
        }
        kill(g->pid, SIGKILL);
        waitpid(g->pid, &status, 0);
    }
    return 0;
}

static void nginx_stop(struct nginx *g)
{
    kill(g->pid, SIGQUIT); /* finishes its requests and writes its log */
    int status;
    waitpid(g->pid, &status, 0);
}

/* Sum of the body bytes of all shard requests answered with 206, from the server's own log. */
static uint64_t logged(struct nginx *g, const char *prefix, uint64_t *requests)
{
    char *p = util_path("%s/access.log", g->dir), line[1024], uri[800];
    FILE *f = fopen(p, "r");
    uint64_t sum = 0;
    int status;
    unsigned long long n;
    *requests = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%799s %d %llu", uri, &status, &n) == 3 && strstr(uri, prefix) == uri) {
            ++*requests;
            sum += status == 206 ? n : 0;
        }
    }
    if (f) {
        fclose(f);
    }
    free(p);
    return sum;
}

static void fetch_all(struct store *st)
{
    const struct model *m = store_model(st);
    uint32_t n = model_object_count(m), *ids = malloc(n * sizeof *ids);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = i;
    }
    struct err e = {0};
    struct store_batch *b;
    assert_int_equal(store_batch_begin(st, ids, n, STORE_DEMAND, &b, &e), 0);
    size_t which;
    struct store_view v;
    for (uint32_t i = 0; i < n; i++) {
        if (store_batch_next(b, &which, &v, &e)) {
            fail_msg("%s", e.msg);
        }
        assert_true(util_right(m, DEMO_MODEL, &v));
        store_release(st, &v);
    }
    store_batch_end(b);
    free(ids);
}

static void t_nginx(void **s)
{
    if (!find_nginx()) {
        print_message("SKIPPED: there is no nginx on this machine; install it to run this test\n");
        skip();
    }
    struct nginx g;
    if (!nginx_start(&g)) {
        fail_msg("nginx does not start; see %s/error.log", g.dir);
    }
    char *tmp = util_tmpdir(), *cache = util_path("%s/c", tmp);
    static const char *const base[] = {"m", "slow", "moved"};
    uint64_t total = 0;
    struct err e = {0};
    struct store *st;
    struct store_opts o = {
        .cache_dir = cache, .ram_budget = 1 << 20, .disk_floor = 1, .retries = 3, .retry_ms = 10};
    for (int i = 0; i < 3; i++) {
        char *url = util_path("http://127.0.0.1:%d/%s", g.port, base[i]);
        o.model = url;
        for (int again = 0; again < 2; again++) {
            if (store_open(&o, &st, &e)) {
                fail_msg("%s", e.msg);
            }
            const struct model *m = store_model(st);
            total = model_spine_bytes(m) + model_expert_bytes(m);
            if (i == 1) { /* the objects are known by their model, not by their address */
                struct store_view v;
                assert_int_equal(store_get(st, 9, STORE_DEMAND, 0, &v, &e), 0);
                store_release(st, &v);
            } else {
                fetch_all(st);
            }
            struct store_stats x;
            store_get_stats(st, &x);
            assert_int_equal(x.origin_bytes, i == 0 && !again ? total : 0);
            assert_int_equal(x.retries, 0);
            store_close(st);
        }
        free(url);
    }
    util_rmtree(cache);
    char *moved = util_path("http://127.0.0.1:%d/moved/", g.port);
    o.model = moved;
    assert_int_equal(store_open(&o, &st, &e), 0);
    fetch_all(st);
    store_close(st);
    free(moved);
    /* errors in a sentence */
    char *busy = util_path("http://127.0.0.1:%d/busy", g.port);
    o.model = busy;
    assert_int_equal(store_open(&o, &st, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "503"));
    free(busy);
    char *none = util_path("http://127.0.0.1:%d/nothing/here", g.port);
    o.model = none;
    assert_int_equal(store_open(&o, &st, &e), ERR_NOTFOUND);
    assert_non_null(strstr(e.msg, "config.json"));
    free(none);
    char *plain = util_path("http://127.0.0.1:%d/plain", g.port);
    o.model = plain;
    assert_int_equal(store_open(&o, &st, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "ranges"));
    free(plain);
    nginx_stop(&g);
    uint64_t requests, sent = logged(&g, "/m/", &requests);
    print_message("nginx sent %llu bytes in %llu requests for twice %llu bytes of objects\n",
                  (unsigned long long)sent, (unsigned long long)requests,
                  (unsigned long long)total);
    assert_true(sent >= 2 * total);
    /* and metadata, and for each further address a sample of the shards (vouch.h): a chunk of one
     * expert and of one spine object each, of which only the two largest fill a chunk */
    assert_true(sent < 2 * total + 7000000);
    util_rmtree(tmp);
    util_rmtree(g.dir);
    free(tmp);
    free(cache);
    free(g.dir);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(t_nginx)};
    return cmocka_run_group_tests_name("store_nginx", t, NULL, NULL);
}
