/* SPDX-License-Identifier: MIT
 * bench_store.c: the store with K3's 82,432 experts: opening the model from a warm cache, starting
 * with a cache that holds everything, and what one operation of the disk tier and of the catalog
 * takes. Limits: 0.5 s and 300 MB, 1 s, 50 microseconds; beyond one of them the exit status is 1.
 * Each measurement is a process of its own; files lie in TMPDIR, else in /tmp. */
#include "store/faulty.h"
#include "store/k3full.h"
#include "store/k3rig.h"
#include "store/util.h"

#include "node/store/catalog.h"
#include "proto/base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMES 20000
#define BATCH 64

static struct {
    char tmp[64], *dir, *cache, url[64];
} g;

static double peak_mb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
#ifdef __APPLE__
    return (double)u.ru_maxrss / 1e6; /* bytes */
#else
    return (double)u.ru_maxrss * 1024 / 1e6; /* KiB */
#endif
}

/* Runs in a process of its own; what it returns is its exit status. */
static int in_child(int (*body)(void))
{
    fflush(NULL);
    pid_t p = fork();
    if (p == 0) {
        int r = body();
        fflush(NULL);
        _exit(r);
    }
    int status = 1;
    return p < 0 || waitpid(p, &status, 0) != p || status != 0;
}

static int failed(const struct err *e)
{
    fprintf(stderr, "%s\n", e->msg);
    return 1;
}

static int open_once(double *s, double *mb)
{
    struct store_opts o = {.model = g.url, .cache_dir = g.cache, .disk_floor = 1};
    struct store *st;
    struct err e = {0};
    double t = clock_s();
    if (store_open(&o, &st, &e)) {
        return failed(&e);
    }
    *s = clock_s() - t;
    *mb = peak_mb();
    store_close(st);
    return 0;
}

static int cold(void)
{
    double s, mb;
    if (open_once(&s, &mb)) {
        return 1;
    }
    printf("opened from the origin (96 headers, the index): %.2f s, peak %.0f MB\n", s, mb);
    return 0;
}

static int warm(void)
{
    double s, mb;
    if (open_once(&s, &mb)) {
        return 1;
    }
    printf("opened from a warm cache without objects: %.3f s (limit 0.5), peak %.0f MB (limit "
           "300)\n",
           s, mb);
    return s > 0.5 || mb > 300;
}

static int full(void)
{
    double s, mb;
    if (open_once(&s, &mb)) {
        return 1;
    }
    printf("started with 82,432 experts and the spine in the cache: %.3f s (limit 1), peak %.0f MB "
           "(limit 300)\n",
           s, mb);
    return s > 1 || mb > 300;
}

static struct model *open_model(void)
{
    struct model_source src;
    struct model *m = NULL;
    struct err e = {0};
    if (model_folder_open(g.dir, &src, &e) || model_open(&src, &m, &e)) {
        failed(&e);
        return NULL;
    }
    model_folder_close(&src);
    return m;
}

static int fill(void)
{
    struct model *m = open_model();
    return !m || k3_fill(g.cache, m, 92) == 0;
}

/* ---- one operation ---- */

static struct {
    struct model *m;
    struct disk *d;
    struct catalog *c;
    int64_t no;
    uint32_t first, n;
    int bad;
} o;

static uint32_t some(uint32_t i) /* experts, all over the place */
{
    return o.first + (uint32_t)((uint64_t)i * 40503u % (o.n - o.first));
}

static void op_has(uint32_t i)
{
    o.bad |= !disk_has(o.d, some(i));
}

static void op_use(uint32_t i)
{
    disk_pin(o.d, some(i), 1);
    disk_pin(o.d, some(i), -1);
}

static void op_get(uint32_t i)
{
    struct digest *d;
    struct err e = {0};
    o.bad |= catalog_get(o.c, o.no, some(i), &d, &e) != 0;
    free(d);
}

static void op_add(uint32_t i)
{
    struct chunk_sum *s = k3_sums(o.m, some(i));
    struct digest *d = digest_make(model_object(o.m, some(i))->size, s, DIGEST_ORIGIN);
    struct catalog_row row = {.id = some(i), .d = d};
    struct err e = {0};
    o.bad |= catalog_add(o.c, o.no, &row, 1, &e) != 0 || row.result != 0;
    free(s);
    free(d);
}

static void op_touch(uint32_t i)
{
    uint32_t ids[BATCH];
    uint64_t use[BATCH];
    struct err e = {0};
    for (uint32_t k = 0; k < BATCH; k++) {
        ids[k] = some(i * BATCH + k);
        use[k] = 1000000u + i;
    }
    o.bad |= catalog_touch(o.c, o.no, ids, use, BATCH, &e) != 0;
}

/* Room for an expert that is not here is made by evicting another; then it is given up. */
static void op_room(uint32_t i)
{
    struct disk_file *f;
    struct err e = {0};
    (void)i;
    if (disk_begin(o.d, o.first, NULL, &f, &e)) {
        o.bad = failed(&e);
        return;
    }
    disk_abandon(o.d, f, false);
}

static void op_refill(uint32_t i)
{
    struct err e = {0};
    for (uint32_t id = some(i);; id = id + 1 < o.n ? id + 1 : o.first) {
        if (!disk_has(o.d, id)) {
            o.bad |= k3_refill(o.d, o.m, id, &e) != 0;
            return;
        }
    }
}

static int measure(const char *what, void (*op)(uint32_t), uint32_t times, uint32_t each,
                   double limit_us)
{
    double t = clock_s();
    for (uint32_t i = 0; i < times; i++) {
        op(i);
    }
    t = (clock_s() - t) / times / each * 1e6;
    printf("%-58s %9.2f us", what, t);
    printf(limit_us > 0 ? " (limit %.0f)\n" : "\n", limit_us);
    return limit_us > 0 && t > limit_us;
}

static int operations(void)
{
    struct err e = {0};
    char hex[2 * SHA256_SIZE + 1];
    o.m = open_model();
    if (!o.m) {
        return 1;
    }
    struct disk_opts d = {.cache_dir = g.cache, .m = o.m, .floor = 1};
    sha256_hex(model_root(o.m), hex);
    o.first = model_expert_id(o.m, 1, 0);
    o.n = model_object_count(o.m);
    if (catalog_open(g.cache, NULL, NULL, &o.c, &e) || catalog_model(o.c, hex, &o.no, &e) ||
        disk_open(&d, &o.d, &e)) {
        return failed(&e);
    }
    printf("one operation among %u objects, on average:\n", o.n);
    int r = measure("  is it here?", op_has, TIMES, 1, 50);
    r |= measure("  it is used", op_use, TIMES, 1, 50);
    r |= measure("  catalog: read a row", op_get, TIMES, 1, 50);
    r |= measure("  catalog: add a row, alone", op_add, TIMES / 10, 1, 50);
    r |= measure("  catalog: last use of a row, 64 together", op_touch, 200, BATCH, 50);
    disk_close(o.d);
    uint64_t all = 0;
    for (uint32_t id = 0; id < o.n; id++) {
        all += model_object(o.m, id)->size;
    }
    d.budget =
        all - (uint64_t)100 * K3_EXPERT_BYTES; /* one of a hundred and one leaves each time */
    if (disk_open(&d, &o.d, &e)) {
        return failed(&e);
    }
    for (int i = 0; i < 101; i++) {
        op_room(0);
    }
    r |= measure("  room is made, two files are opened and removed", op_room, 2000, 1, 0);
    r |= measure("  an expert of 17.5 MB leaves, another one is written", op_refill, 50, 1, 0);
    disk_close(o.d);
    catalog_close(o.c);
    return r || o.bad;
}

/* The server's memory and threads are not the store's. */
static pid_t serve(int *port)
{
    int a[2];
    if (pipe(a)) {
        return -1;
    }
    pid_t p = fork();
    if (p == 0) {
        struct faulty *f = k3_origin(g.dir);
        int n = faulty_port(f);
        if (write(a[1], &n, sizeof n) != sizeof n) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(a[1]);
    bool ok = read(a[0], port, sizeof *port) == sizeof *port;
    close(a[0]);
    return ok ? p : -1;
}

int main(void)
{
    const char *t = getenv("TMPDIR");
    int port = 0;
    snprintf(g.tmp, sizeof g.tmp, "%.40s/shoal-bench-XXXXXX", t && *t ? t : "/tmp");
    if (!mkdtemp(g.tmp)) {
        perror(g.tmp);
        return 1;
    }
    g.dir = util_path("%s/k3", g.tmp);
    g.cache = util_path("%s/cache", g.tmp);
    int r = k3_table() || k3_folder(g.dir);
    pid_t server = r ? -1 : serve(&port);
    snprintf(g.url, sizeof g.url, "http://127.0.0.1:%d", port);
    r = r || server < 0 || in_child(cold);
    if (!r) {
        r = in_child(warm);
        r = in_child(fill) || in_child(full) || r;
        r = in_child(operations) || r;
    }
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
    util_rmtree(g.tmp);
    free(g.dir);
    free(g.cache);
    return r;
}
