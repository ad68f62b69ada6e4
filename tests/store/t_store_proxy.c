/* SPDX-License-Identifier: MIT
 * t_store_proxy.c: the origin through a real proxy: tinyproxy, started as a child with a
 * configuration of its own. Skipped, in words, where it is not installed. */
#include "tests/store/hub.h"
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

#define TOKEN "hf_SecretOfTheTest"

struct rig {
    char *tmp, *ca, *url, *log;
    struct hub_cert *cert;
    struct hub *hub, *cdn;
    struct util_log lines;
    pid_t pid;
    int port;
    char proxy[128];
};

static const char *find_proxy(void)
{
    static const char *const at[] = {"/usr/bin/tinyproxy", "/usr/sbin/tinyproxy",
                                     "/opt/homebrew/bin/tinyproxy", "/usr/local/bin/tinyproxy"};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        if (access(at[i], X_OK) == 0) {
            return at[i];
        }
    }
    return NULL;
}

static int free_port(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
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

static void proxy_stop(struct rig *r)
{
    int status;
    kill(r->pid, SIGKILL);
    waitpid(r->pid, &status, 0);
}

static void proxy_start(struct rig *r, const char *more)
{
    for (int tries = 0; tries < 5; tries++) { /* somebody else may take the port in between */
        r->port = free_port();
        char *conf = util_path("%s/proxy.conf", r->tmp);
        FILE *f = fopen(conf, "w");
        fprintf(f,
                "Port %d\nListen 127.0.0.1\nTimeout 60\nMaxClients 50\nLogFile \"%s\"\n"
                "LogLevel Connect\n%s\n",
                r->port, r->log, more);
        fclose(f);
        unlink(r->log);
        fflush(NULL);
        r->pid = fork();
        if (r->pid == 0) {
            int null = open("/dev/null", O_RDWR);
            dup2(null, 1);
            dup2(null, 2);
            execl(find_proxy(), "tinyproxy", "-d", "-c", conf, (char *)NULL);
            _exit(127);
        }
        free(conf);
        uint64_t end = clock_ns() + 60000000000u;
        int status;
        while (clock_ns() < end && waitpid(r->pid, &status, WNOHANG) == 0) {
            if (connects(r->port)) {
                snprintf(r->proxy, sizeof r->proxy, "http://127.0.0.1:%d", r->port);
                return;
            }
            usleep(5000);
        }
    }
    fail_msg("tinyproxy does not start");
}

/* How often the proxy's log says so. */
static int logged(struct rig *r, const char *what)
{
    FILE *f = fopen(r->log, "r");
    char line[1024];
    int n = 0;
    while (f && fgets(line, sizeof line, f)) {
        n += strstr(line, what) != NULL;
    }
    if (f) {
        fclose(f);
    }
    return n;
}

static void clear_env(void)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY",  "no_proxy",    "NO_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsetenv(names[i]);
    }
}

static void rig_start(struct rig *r, bool tls)
{
    memset(r, 0, sizeof *r);
    clear_env();
    r->tmp = util_tmpdir();
    r->log = util_path("%s/proxy.log", r->tmp);
    util_log_init(&r->lines);
    if (tls) {
        r->ca = util_path("%s/ca.pem", r->tmp);
        r->cert = hub_cert_new(r->ca);
    }
    struct hub_opts o = {.dir = DEMO_MODEL, .host = "127.0.0.1", .cert = r->cert, .token = TOKEN};
    r->hub = hub_start(&o);
    o.token = NULL;
    o.name = "localhost";
    r->cdn = hub_start(&o);
    hub_redirect_to(r->hub, r->cdn);
    r->url = util_path("%s/" HUB_REPO "/resolve/" HUB_COMMIT_A, hub_url(r->hub));
}

static void rig_end(struct rig *r)
{
    clear_env();
    assert_int_equal(hub_heard(r->cdn, TOKEN), 0);
    hub_stop(r->hub);
    hub_stop(r->cdn);
    hub_cert_free(r->cert);
    util_rmtree(r->tmp);
    util_log_free(&r->lines);
    free(r->tmp);
    free(r->url);
    free(r->ca);
    free(r->log);
}

/* Opens the model and gets an expert: 0, or the error. */
static int use(struct rig *r, struct err *e)
{
    struct store_opts o = {.model = r->url,
                           .ram_budget = 1 << 20,
                           .retries = 3,
                           .retry_ms = 5,
                           .stall_ms = 20000,
                           .token = TOKEN,
                           .ca_file = r->ca,
                           .log = util_log_line,
                           .log_ctx = &r->lines};
    struct store *st;
    int rc = store_open(&o, &st, e);
    if (rc) {
        return rc;
    }
    struct store_view v;
    rc = store_get(st, model_expert_id(store_model(st), 2, 3), STORE_DEMAND, 0, &v, e);
    if (!rc) {
        assert_true(util_right(store_model(st), DEMO_MODEL, &v));
        store_release(st, &v);
    }
    store_close(st);
    return rc;
}

static void right(struct rig *r)
{
    struct err e = {0};
    if (use(r, &e)) {
        fail_msg("%s", e.msg);
    }
}

static void t_connect(void **s)
{
    struct rig r;
    rig_start(&r, true);
    proxy_start(&r, "");
    setenv("HTTPS_PROXY", r.proxy, 1);
    right(&r);
    assert_true(logged(&r, "CONNECT 127.0.0.1:") > 0); /* the hub */
    assert_true(logged(&r, "CONNECT localhost:") > 0); /* the file server */
    assert_int_equal(logged(&r, TOKEN), 0);            /* inside of TLS */
    assert_int_equal(logged(&r, "sig="), 0);
    /* not for those that are named */
    int n = logged(&r, "CONNECT");
    setenv("NO_PROXY", "127.0.0.1", 1);
    right(&r);
    assert_true(logged(&r, "CONNECT localhost:") > 0);
    int k = logged(&r, "CONNECT 127.0.0.1:");
    setenv("NO_PROXY", "127.0.0.1,localhost", 1);
    n = logged(&r, "CONNECT");
    right(&r);
    assert_int_equal(logged(&r, "CONNECT"), n);
    assert_int_equal(logged(&r, "CONNECT 127.0.0.1:"), k);
    proxy_stop(&r);
    /* it is gone: said, with the proxy's address, and in so many attempts */
    unsetenv("NO_PROXY");
    struct err e = {0};
    assert_int_equal(use(&r, &e), ERR_NET);
    char port[16];
    snprintf(port, sizeof port, "port %d", r.port);
    assert_non_null(strstr(e.msg, port));
    assert_non_null(strstr(e.msg, "given up after 3"));
    rig_end(&r);
}

static void t_refused(void **s)
{
    struct rig r;
    struct err e = {0};
    rig_start(&r, true);
    proxy_start(&r, "ConnectPort 1\n");
    setenv("https_proxy", r.proxy, 1);
    assert_int_equal(use(&r, &e), ERR_NET);
    if (!strstr(e.msg, "refuses to connect to 127.0.0.1 (status 403)") ||
        !strstr(e.msg, "no_proxy") || strstr(e.msg, "given up")) {
        fail_msg("%s", e.msg);
    }
    proxy_stop(&r);
    /* a password: asked for, and never shown */
    proxy_start(&r, "BasicAuth anna geheim1234\n");
    setenv("https_proxy", r.proxy, 1);
    assert_int_equal(use(&r, &e), ERR_NET);
    assert_non_null(strstr(e.msg, "proxy wants a user name and password (status 407)"));
    assert_null(strstr(e.msg, "given up"));
    char with[200];
    snprintf(with, sizeof with, "http://anna:wrong5678@127.0.0.1:%d", r.port);
    setenv("https_proxy", with, 1);
    assert_true(use(&r, &e) != 0);
    assert_null(strstr(e.msg, "wrong5678"));
    snprintf(with, sizeof with, "http://anna:geheim1234@127.0.0.1:%d", r.port);
    setenv("https_proxy", with, 1);
    right(&r);
    assert_int_equal(util_log_has(&r.lines, "geheim1234"), 0);
    assert_int_equal(hub_heard(r.hub, "roxy-Authorization"), 0);
    assert_int_equal(hub_heard(r.cdn, "roxy-Authorization"), 0);
    proxy_stop(&r);
    rig_end(&r);
}

static void t_plain(void **s)
{
    struct rig r;
    rig_start(&r, false);
    proxy_start(&r, "");
    setenv("http_proxy", r.proxy, 1);
    right(&r);
    assert_true(logged(&r, "GET http://127.0.0.1:") > 0);
    assert_true(logged(&r, "GET http://localhost:") > 0);
    proxy_stop(&r);
    rig_end(&r);
}

int main(void)
{
    if (!find_proxy()) {
        printf("skipped: tinyproxy is not installed (Debian's package tinyproxy-bin)\n");
        return 0;
    }
    const struct CMUnitTest t[] = {
        cmocka_unit_test(t_connect),
        cmocka_unit_test(t_refused),
        cmocka_unit_test(t_plain),
    };
    return cmocka_run_group_tests_name("store_proxy", t, NULL, NULL);
}
