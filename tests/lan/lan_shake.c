/* SPDX-License-Identifier: MIT
 * lan_shake N: what N TLS handshakes between two members cost at least: a blocking client and a
 * blocking server of the same library, keys, certificates and suites over loopback, one after the
 * other. Prints processor time and elapsed time of one, both ends together, in milliseconds. */
#include "tests/peer/bare_tls.h"

#include "proto/base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

static struct kit_id ids[2];
static int fd, n;

static void *server(void *arg)
{
    for (int i = 0; i < n; i++) {
        struct bare *b = bare_new(accept(fd, NULL, NULL), true, &ids[0], TLS_FASTEST);
        char c;
        if (bare_handshake(b) || bare_read(b, &c, 1) || bare_write(b, "y", 1)) {
            exit(1);
        }
        bare_free(b, false);
    }
    return arg;
}

static double cpu_s(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

int main(int argc, char **argv)
{
    int port;
    pthread_t t;
    n = argc == 2 ? (int)strtol(argv[1], NULL, 10) : 0;
    if (n < 1) {
        fputs("usage: lan_shake N\n", stderr);
        return 2;
    }
    kit_id_make(&ids[0]);
    kit_id_make(&ids[1]);
    fd = bare_listen(&port);
    double c = cpu_s(), w = clock_s();
    if (pthread_create(&t, NULL, server, NULL)) {
        return 1;
    }
    for (int i = 0; i < n; i++) {
        struct bare *b = bare_new(bare_connect(port), false, &ids[1], TLS_FASTEST);
        char x;
        if (bare_handshake(b) || bare_write(b, "x", 1) || bare_read(b, &x, 1)) {
            return 1;
        }
        bare_free(b, false);
    }
    pthread_join(t, NULL);
    printf("%.3f %.3f\n", (cpu_s() - c) * 1e3 / n, (clock_s() - w) * 1e3 / n);
    return 0;
}
