/* SPDX-License-Identifier: MIT
 * bench_inventory.c: how long the released K3's inventory takes to open, from its index and 96
 * shard headers and from a saved inventory, and how much memory. Limits: 2 s, 0.2 s, 400 MB; beyond
 * one of them the exit status is 1. */
#include "model/k3gen.h"
#include "node/model/model.h"
#include "proto/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

static int measure(const char *dir)
{
    struct err e = {0};
    struct model_source src;
    struct model *m = NULL, *n = NULL;
    struct buf b;
    buf_init(&b, 1 << 26);
    double open_s = 1e9, load_s = 1e9;
    int r = model_folder_open(dir, &src, &e);
    for (int i = 0; i < 3 && !r; i++) {
        model_close(m);
        double t = clock_s();
        r = model_open(&src, &m, &e);
        t = clock_s() - t;
        open_s = t < open_s ? t : open_s;
    }
    double mb = peak_mb();
    r = r ? r : model_save(m, &b, &e);
    for (int i = 0; i < 5 && !r; i++) {
        model_close(n);
        double t = clock_s();
        r = model_load(b.p, b.n, &n, &e);
        t = clock_s() - t;
        load_s = t < load_s ? t : load_s;
    }
    if (r) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    printf(
        "inventory of K3: open %.3f s (limit 2), peak %.0f MB (limit 400), saved %zu bytes, load "
        "%.4f s (limit 0.2)\n",
        open_s, mb, b.n, load_s);
    model_close(m);
    model_close(n);
    model_folder_close(&src);
    buf_free(&b);
    return open_s > 2 || mb > 400 || load_s > 0.2;
}

int main(void)
{
    char dir[] = "/tmp/shoal-bench-XXXXXX";
    struct k3_totals t;
    if (!mkdtemp(dir)) {
        perror(dir);
        return 1;
    }
    pid_t child = fork(); /* so that the generator's memory does not count */
    if (child == 0) {
        _exit(k3gen(SHOAL_TEST_DIR "/model/data/k3", dir, &t));
    }
    int status = 1;
    int bad = child < 0 || waitpid(child, &status, 0) != child || status != 0 || measure(dir);
    k3gen_remove(dir);
    return bad;
}
