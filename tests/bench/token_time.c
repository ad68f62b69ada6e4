/* SPDX-License-Identifier: MIT
 * token_time.c: where the time of a token goes when the model does not fit in RAM: computing, RAM,
 * disk, peers, origin, stalled; with guesses ahead and without, taking turns; beside the time that
 * reading alone, and computing alone, would take. By hand: the model is 2 GB, its cache as much.
 *
 *     token_time MODEL [CACHE [RAM [TOKENS [ROUNDS [THREADS]]]]]
 *
 * MODEL is a folder (README.md says how to make the 2 GB one), CACHE a folder to be kept, made and
 * filled at first; "-": the model is read in place. RAM: MB for experts, 256; past the page cache
 * always. The exit status is 1 when the parts do not add up to the wall time within 2 %, by a clock
 * outside and in the best of the rounds, since a busy machine may stop us between two clocks: that
 * is no matter of speed. */
#include "kernels/cpu.h"
#include "node/infer/infer.h"
#include "proto/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define WARM 6 /* tokens before the clock starts */
#define ROUNDS_MAX 64
#define TOKENS_MAX 512

enum { OFF, ON, COMPUTE, READ, GAIN, OVER_OFF, OVER_ON, CPU, RESULTS = CPU + 4 };

static struct kern_backend *be;
static uint32_t tokens = 24, rounds = 5;
static double closest[3] = {1, 1, 1}; /* how near the parts come to the whole, by mode */

static void die(const struct err *e)
{
    fprintf(stderr, "token_time: %s\n", e->msg);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *v, size_t n)
{
    double s[ROUNDS_MAX];
    memcpy(s, v, n * sizeof *s);
    qsort(s, n, sizeof *s, by_value);
    return s[n / 2];
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* ---- what the routers chose ---- */

struct routes {
    uint32_t *id; /* objects */
    size_t n, cap, *end, n_end, cap_end;
    const struct model *m;
    bool on;
};

static void chosen(void *ctx, uint32_t layer, uint32_t rows, const uint32_t *ids, size_t n)
{
    struct routes *r = ctx;
    (void)rows;
    if (!r->on) {
        return;
    }
    if (r->n + n > r->cap) {
        r->cap = 2 * r->cap + n + 1024;
        r->id = realloc(r->id, r->cap * sizeof *r->id);
    }
    if (r->n_end == r->cap_end) {
        r->cap_end = 2 * r->cap_end + 64;
        r->end = realloc(r->end, r->cap_end * sizeof *r->end);
    }
    if (!r->id || !r->end) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        r->id[r->n++] = model_expert_id(r->m, layer, ids[i]);
    }
    r->end[r->n_end++] = r->n;
}

/* ---- one run of the tokens ---- */

struct run {
    struct infer_times t; /* after WARM */
    struct infer_ahead a;
    double sum_s; /* by a clock outside */
    double cpu_s; /* of all threads */
};

static void less(struct infer_times *t, const struct infer_times *u)
{
    t->wall_ns -= u->wall_ns;
    t->compute_ns -= u->compute_ns;
    t->ram_ns -= u->ram_ns;
    t->disk_ns -= u->disk_ns;
    t->peers_ns -= u->peers_ns;
    t->origin_ns -= u->origin_ns;
    t->stall_ns -= u->stall_ns;
}

static void run(struct store *st, enum infer_prefetch prefetch, struct routes *routes,
                struct run *out)
{
    struct err e = {0};
    struct infer *f;
    struct infer_state *s;
    struct infer_times t0 = {0};
    out->sum_s = 0;
    struct infer_opts o = {.st = st,
                           .be = be,
                           .spine_budget = UINT64_MAX,
                           .prefetch = prefetch,
                           .routed = chosen,
                           .routed_ctx = routes};
    if (infer_open(&o, &f, &e) || infer_state_new(f, &s, &e)) {
        die(&e);
    }
    uint32_t vocab = infer_config(f)->vocab;
    float *logits = malloc(vocab * sizeof *logits);
    routes->on = false;
    for (uint32_t i = 0; i < WARM + tokens; i++) {
        struct infer_row row = {s, (uint32_t)((i + 1) * UINT64_C(2654435761) % (vocab - 300)),
                                true};
        if (i == WARM) {
            infer_get_times(f, &t0);
            out->cpu_s = cpu_s();
            routes->on = true;
        }
        double t = clock_s();
        if (infer_forward(f, &row, 1, logits, &e)) {
            die(&e);
        }
        if (i >= WARM) {
            out->sum_s += clock_s() - t;
        }
    }
    out->cpu_s = cpu_s() - out->cpu_s;
    infer_get_times(f, &out->t);
    less(&out->t, &t0);
    infer_get_ahead(f, &out->a);
    infer_state_free(s);
    infer_close(f);
    free(logits);
}

static uint64_t parts(const struct infer_times *t)
{
    return t->compute_ns + t->ram_ns + t->disk_ns + t->peers_ns + t->origin_ns + t->stall_ns;
}

static void say(int mode, const char *name, const struct run *r)
{
    const struct infer_times *t = &r->t;
    double w = 1e9 * r->sum_s, n = tokens;
    double sum = (double)parts(t) / w;
    printf("%-4s %8.2f ms a token: compute %5.1f %%, RAM %4.1f, disk %5.1f, peers %.1f, origin "
           "%.1f, stalled %.1f; together %.2f %%\n",
           name, w / n / 1e6, 100 * (double)t->compute_ns / w, 100 * (double)t->ram_ns / w,
           100 * (double)t->disk_ns / w, 100 * (double)t->peers_ns / w,
           100 * (double)t->origin_ns / w, 100 * (double)t->stall_ns / w, 100 * sum);
    closest[mode] = fabs(sum - 1) < closest[mode] ? fabs(sum - 1) : closest[mode];
}

/* The same experts layer by layer, and nothing computed. */
static double read_alone(struct store *st, const struct routes *r, uint64_t *bytes)
{
    struct err e = {0};
    struct store_stats a, b;
    store_get_stats(st, &a);
    double t = clock_s();
    for (size_t i = 0, from = 0; i < r->n_end; from = r->end[i++]) {
        struct store_batch *k;
        struct store_view v;
        if (store_batch_begin(st, r->id + from, r->end[i] - from, STORE_DEMAND, &k, &e)) {
            die(&e);
        }
        for (size_t j = from, which; j < r->end[i]; j++) {
            if (store_batch_next(k, &which, &v, &e)) {
                die(&e);
            }
            store_release(st, &v);
        }
        store_batch_end(k);
    }
    t = clock_s() - t;
    store_get_stats(st, &b);
    *bytes = b.disk_bytes - a.disk_bytes;
    return t;
}

static struct store *open_store(const char *model, const char *cache, uint64_t ram)
{
    struct err e = {0};
    struct store *st;
    struct store_opts o = {.model = model,
                           .cache_dir = cache,
                           .ram_budget = ram,
                           .disk_floor = 1,
                           .past_cache = true,
                           .mem = infer_store_mem(be)};
    if (store_open(&o, &st, &e)) {
        die(&e);
    }
    store_set_admit(st, infer_admit, (void *)(uintptr_t)store_model(st));
    return st;
}

/* Everything to the disk, if there is a cache. */
static void fill(struct store *st)
{
    const struct model *m = store_model(st);
    uint32_t n = model_object_count(m);
    struct err e = {0};
    for (uint32_t id = 0; id < n; id++) {
        struct store_view v;
        if (store_where(st, id) == STORE_DISK) {
            continue;
        }
        if (store_get(st, id, STORE_DEMAND, 0, &v, &e)) {
            die(&e);
        }
        store_release_drop(st, &v);
    }
}

static uint64_t number(int argc, char **argv, int i, uint64_t other, uint64_t most)
{
    uint64_t v = argc > i ? strtoull(argv[i], NULL, 10) : other;
    return v < 1 ? 1 : v > most ? most : v;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "token_time MODEL [CACHE [RAM [TOKENS [ROUNDS [THREADS]]]]]\n");
        return 2;
    }
    const char *cache = argc > 2 && strcmp(argv[2], "-") ? argv[2] : NULL;
    uint64_t ram = number(argc, argv, 3, 256, 1u << 20) * 1000000;
    tokens = (uint32_t)number(argc, argv, 4, 24, TOKENS_MAX);
    rounds = (uint32_t)number(argc, argv, 5, 5, ROUNDS_MAX);
    struct kern_cpu_opts ko = {.threads = (unsigned)number(argc, argv, 6, 2, 64)};
    static struct run off, on, alone;
    static double v[RESULTS][ROUNDS_MAX];
    uint64_t bytes = 0;
    if (kern_cpu_open(&ko, &be)) {
        fprintf(stderr, "token_time: no backend\n");
        return 1;
    }
    struct store *st = open_store(argv[1], cache, ram), *all;
    const struct model *m = store_model(st);
    if (cache) {
        fill(st);
    }
    all = open_store(argv[1], cache, UINT64_MAX / 4);
    struct routes none = {.m = m}, r = {.m = m};
    printf("%s: %.2f GB of experts of %.2f MB, spine %.2f GB; RAM for experts %.0f MB; %u tokens, "
           "%u rounds, %u threads\n",
           argv[1], (double)model_expert_bytes(m) / 1e9, (double)model_expert_layout(m)->size / 1e6,
           (double)model_spine_bytes(m) / 1e9, (double)ram / 1e6, tokens, rounds, ko.threads);
    run(all, INFER_PREFETCH_OFF, &none, &alone); /* from here on all is in RAM there */
    for (uint32_t i = 0; i < rounds; i++) {
        r.n = r.n_end = none.n = none.n_end = 0;
        run(st, INFER_PREFETCH_OFF, &r, &off);
        run(st, INFER_PREFETCH_ON, &none, &on);
        run(all, INFER_PREFETCH_OFF, &none, &alone);
        say(OFF, "off", &off);
        say(ON, "on", &on);
        say(COMPUTE, "RAM", &alone);
        v[OFF][i] = off.sum_s;
        v[ON][i] = on.sum_s;
        v[COMPUTE][i] = alone.sum_s;
        v[CPU + OFF][i] = off.cpu_s;
        v[CPU + ON][i] = on.cpu_s;
        v[CPU + COMPUTE][i] = alone.cpu_s;
        v[CPU + READ][i] = -cpu_s();
        v[READ][i] = read_alone(st, &r, &bytes);
        v[CPU + READ][i] += cpu_s();
        double most = v[READ][i] > alone.sum_s ? v[READ][i] : alone.sum_s;
        v[GAIN][i] = off.sum_s / on.sum_s;
        v[OVER_OFF][i] = off.sum_s / most;
        v[OVER_ON][i] = on.sum_s / most;
    }
    store_close(st);
    store_close(all);
    be->close(be);
    double ms = 1e3 / tokens, read = median(v[READ], rounds);
    printf(
        "medians, a token: %.2f ms without guesses, %.2f with them (%.2f times as fast); reading "
        "alone %.2f (%.1f MB, %.2f GB/s), computing alone %.2f\n",
        ms * median(v[OFF], rounds), ms * median(v[ON], rounds), median(v[GAIN], rounds), ms * read,
        (double)bytes / tokens / 1e6, (double)bytes / read / 1e9, ms * median(v[COMPUTE], rounds));
    printf("the whole to the longer of reading and computing: %.2f without guesses, %.2f with\n",
           median(v[OVER_OFF], rounds), median(v[OVER_ON], rounds));
    printf("processor time, a token: %.2f ms without guesses, %.2f with, reading alone %.2f, "
           "computing alone %.2f\n",
           ms * median(v[CPU + OFF], rounds), ms * median(v[CPU + ON], rounds),
           ms * median(v[CPU + READ], rounds), ms * median(v[CPU + COMPUTE], rounds));
    const struct infer_ahead *g = &on.a;
    printf("guesses: %.1f %% of the choices right, %llu of %llu brought in time, %.1f MB beside "
           "%.1f read in vain\n",
           g->chosen ? 100 * (double)g->right / (double)g->chosen : 0, (unsigned long long)g->moved,
           (unsigned long long)g->chosen, (double)g->wasted_bytes / 1e6, (double)bytes / 1e6);
    free(r.id);
    free(r.end);
    free(none.id);
    free(none.end);
    for (int i = 0; i < 3; i++) {
        if (closest[i] > 0.02) {
            printf(
                "the parts do not add up to the wall time within 2 %%: at best %.1f are missing\n",
                100 * closest[i]);
            return 1;
        }
    }
    return 0;
}
