/* SPDX-License-Identifier: MIT
 * nginx_rig.c: see nginx_rig.h. */
#include "tests/store/nginx_rig.h"

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
    "  log_format bytes '$request_uri $status $body_bytes_sent $http_authorization';\n"
    "  access_log %s/access.log bytes;\n"
    "  client_body_temp_path %s/t1; proxy_temp_path %s/t2;\n"
    "  fastcgi_temp_path %s/t3; uwsgi_temp_path %s/t4; scgi_temp_path %s/t5;\n"
    "  server {\n"
    "    listen 127.0.0.1:%d;\n"
    "%s"
    "  }\n"
    "}\n";

const char *nginx_find(void)
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

int nginx_start(struct nginx *g, const char *locations)
{
    const char *exe = nginx_find();
    g->dir = util_tmpdir();
    for (int tries = 0; tries < 5; tries++) { /* somebody else may take the port in between */
        g->port = free_port();
        char *conf = util_path("%s/nginx.conf", g->dir);
        FILE *f = fopen(conf, "w");
        const char *d = g->dir;
        fprintf(f, CONF, geteuid() == 0 ? "user root;\n" : "", d, d, d, d, d, d, d, d, g->port,
                locations);
        fclose(f);
        fflush(NULL);
        g->pid = fork();
        if (g->pid == 0) {
            int null = open("/dev/null", O_RDWR);
            dup2(null, 1);
            dup2(null, 2);
            setpgid(0, 0); /* so that nginx_kill gets its worker, too */
            execl(exe, "nginx", "-p", g->dir, "-c", conf, (char *)NULL);
            _exit(127);
        }
        free(conf);
        uint64_t end = clock_ns() + 60000000000u;
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

void nginx_stop(struct nginx *g)
{
    int status;
    kill(g->pid, SIGQUIT);
    waitpid(g->pid, &status, 0);
}

void nginx_kill(struct nginx *g)
{
    int status;
    kill(-g->pid, SIGKILL);
    waitpid(g->pid, &status, 0);
}

uint64_t nginx_logged(struct nginx *g, const char *prefix, uint64_t *requests, uint64_t *with_auth)
{
    char *p = util_path("%s/access.log", g->dir), line[1024], uri[800], auth[200];
    FILE *f = fopen(p, "r");
    uint64_t sum = 0, n_requests = 0, n_auth = 0;
    int status;
    unsigned long long n;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%799s %d %llu %199s", uri, &status, &n, auth) == 4 &&
            strstr(uri, prefix) == uri) {
            n_requests++;
            n_auth += strcmp(auth, "-") != 0;
            sum += status == 206 ? n : 0;
        }
    }
    if (f) {
        fclose(f);
    }
    free(p);
    if (requests) {
        *requests = n_requests;
    }
    if (with_auth) {
        *with_auth = n_auth;
    }
    return sum;
}
