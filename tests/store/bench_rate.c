/* SPDX-License-Identifier: MIT
 * bench_rate.c: how exact the caps on the origin's rate are, with real sockets: what the store was
 * given and what the server has handed to its kernel (whose buffers hold megabytes) in some
 * seconds, as shares of the cap. `bench_rate [SECONDS]`.
 */
#include "tests/store/faulty.h"
#include "tests/store/util.h"

#include "node/store/origin.h"
#include "proto/base/clock.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES 4
#define CONNECTIONS 4 /* of an origin; the parts keep all of them busy */
#define PARTS 64
#define SETTLE 1.0 /* seconds until buffers are full */

static atomic_ullong given, running;

static int on_data(struct origin_part *p, const void *b, size_t n, struct err *e)
{
    atomic_fetch_add(&given, n);
    return 0;
}

static void on_done(struct origin_part *p, int code, const struct err *e)
{
    atomic_fetch_sub(&running, 1);
}

static void measure(const char *dir, bool folder, uint64_t total, uint64_t conn, unsigned files,
                    double seconds)
{
    struct faulty *f = faulty_start(dir);
    char *url = folder ? strdup(dir) : util_path("http://127.0.0.1:%d", faulty_port(f));
    struct origin_opts oo = {.url = url, .folder = folder, .rate_limit = total, .rate_conn = conn};
    struct origin *o;
    struct err e = {0};
    if (origin_open(&oo, &o, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        exit(1);
    }
    static struct origin_part part[PARTS];
    unsigned n = 0;
    for (unsigned i = 0; i < files; i++) { /* one request after the other by each connection */
        char name[32];
        uint32_t file;
        snprintf(name, sizeof name, "%u.bin", i);
        origin_file(o, name, &file, &e);
        for (unsigned k = 0; k < PARTS / FILES; k++) {
            part[n] = (struct origin_part){.name = "part",
                                           .file = file,
                                           .off = (uint64_t)k * (65u << 20),
                                           .size = 64u << 20,
                                           .data = on_data,
                                           .done = on_done};
            atomic_fetch_add(&running, 1);
            origin_submit(o, &part[n++]);
        }
    }
    usleep((useconds_t)(SETTLE * 1e6));
    struct faulty_numbers a, b;
    faulty_get(f, &a);
    uint64_t g0 = atomic_load(&given), t0 = clock_ns();
    usleep((useconds_t)(seconds * 1e6));
    faulty_get(f, &b);
    uint64_t g1 = atomic_load(&given), t1 = clock_ns();
    double s = (double)(t1 - t0) * 1e-9;
    double cap = total ? (double)total : (double)conn * CONNECTIONS;
    char sent[32] = "";
    if (!folder) {
        snprintf(sent, sizeof sent, "sent %.4f", (double)(b.body_bytes - a.body_bytes) / s / cap);
    }
    printf("%-6s %u files, all %9llu each %9llu bytes/s: given %.4f of the cap %s\n",
           folder ? "folder" : "http", files, (unsigned long long)total, (unsigned long long)conn,
           (double)(g1 - g0) / s / cap, sent);
    fflush(stdout);
    origin_stop(o);
    origin_free(o);
    faulty_stop(f);
    free(url);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 4;
    char *dir = util_tmpdir();
    for (int i = 0; i < FILES; i++) {
        char *p = util_path("%s/%d.bin", dir, i);
        int fd = open(p, O_CREAT | O_WRONLY, 0600);
        if (fd < 0 || ftruncate(fd, (off_t)4 << 30)) { /* holes: no room is taken */
            perror(p);
            return 1;
        }
        close(fd);
        free(p);
    }
    static const uint64_t rates[] = {250000, 1000000, 8000000, 50000000, 125000000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        measure(dir, false, rates[i], 0, 1, seconds);
        measure(dir, false, rates[i], 0, FILES, seconds);
    }
    measure(dir, false, 0, 1000000, 1, seconds);
    measure(dir, false, 0, 8000000, 3, seconds);
    measure(dir, false, 8000000, 3000000, FILES, seconds);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        measure(dir, true, rates[i], 0, FILES, seconds);
    }
    util_rmtree(dir);
    free(dir);
    return 0;
}
