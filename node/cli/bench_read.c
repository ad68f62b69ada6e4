/* SPDX-License-Identifier: MIT
 * bench_read.c: see bench_read.h: experts of the cache as a token reads them when none is in
 * memory, a layer's worth at a time, beside the program fio, which reads the same files with as
 * many readers, by reads of the same size, past the page cache or not as the store does. In turn,
 * so that both meet the same machine. */
#include "node/cli/bench_read.h"

#include "node/cli/home.h"
#include "node/store/store.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES_MAX 512
#define ROUNDS_MAX 99
#define ANSWER_MAX ((size_t)4 << 20)
#define GOAL 0.9

extern char **environ;

struct bench_read {
    struct cli *c;
    struct store *st;
    uint32_t id[FILES_MAX];
    char *file[FILES_MAX];
    size_t n, step;
    uint64_t size; /* of each */
    bool past, fio;
    unsigned rounds;
    double own[ROUNDS_MAX], layers[ROUNDS_MAX], ref[ROUNDS_MAX], ratio[ROUNDS_MAX];
};

/* ---- fio ---- */

/* One argument more; a NULL is made of what there was no memory for. */
static int add(char **argv, size_t *n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int add(char **argv, size_t *n, const char *fmt, ...)
{
    struct buf b;
    buf_init(&b, ANSWER_MAX);
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    int r = len < 0 ? ERR_NOMEM : buf_reserve(&b, (size_t)len + 1);
    if (!r) {
        va_start(ap, fmt);
        vsnprintf(b.p, (size_t)len + 1, fmt, ap);
        va_end(ap);
        argv[(*n)++] = b.p;
    }
    return r;
}

/* The files of one reader, as fio wants them: with a colon between, and before one in a name. */
static int names(const struct bench_read *b, size_t from, struct buf *out)
{
    int r = 0;
    for (size_t i = from; i < b->n && !r; i += STORE_READS) {
        r = i == from ? 0 : buf_adds(out, ":");
        for (const char *p = b->file[i]; *p && !r; p++) {
            r = *p == ':' ? buf_adds(out, "\\:") : buf_add(out, p, 1);
        }
    }
    return r;
}

static int arguments(const struct bench_read *b, char **argv, size_t *n)
{
    struct buf s;
    int r = add(argv, n, "fio");
    r = r ? r : add(argv, n, "--output-format=json");
    for (size_t i = 0; i < STORE_READS && i < b->n && !r; i++) {
        buf_init(&s, ANSWER_MAX);
        r = names(b, i, &s);
        r = r ? r : add(argv, n, "--name=r%zu", i);
        r = r ? r : add(argv, n, "--filename=%s", s.p);
        r = r ? r : add(argv, n, "--rw=read");
        r = r ? r : add(argv, n, "--readonly");
        r = r ? r : add(argv, n, "--thread");
        r = r ? r : add(argv, n, "--ioengine=psync");
        r = r ? r : add(argv, n, "--bs=%zu", b->step);
        r = r ? r : add(argv, n, "--direct=%d", b->past);
        r = r ? r : add(argv, n, "--invalidate=1");
        r = r ? r : add(argv, n, "--file_service_type=sequential");
        r = r ? r : add(argv, n, "--openfiles=1");
        r = r ? r : add(argv, n, "--group_reporting");
        buf_free(&s);
    }
    return r;
}

static int spawn(char **argv, int *from, pid_t *pid)
{
    int p[2];
    if (pipe(p)) {
        return errno;
    }
    posix_spawn_file_actions_t a;
    int r = posix_spawn_file_actions_init(&a);
    if (!r) {
        r = posix_spawn_file_actions_adddup2(&a, p[1], STDOUT_FILENO);
        r = r ? r : posix_spawn_file_actions_addclose(&a, p[0]);
        r = r ? r : posix_spawn_file_actions_addclose(&a, p[1]);
        r = r ? r : posix_spawnp(pid, argv[0], &a, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&a);
    }
    close(p[1]);
    if (r) {
        close(p[0]);
    }
    *from = p[0];
    return r;
}

/* Bytes a second of all of its readers together. */
static int rate_of(const struct buf *b, double *rate, struct err *e)
{
    const char *at = strchr(b->p, '{'); /* notes may stand before it */
    json_t *j = at ? json_loads(at, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    json_t *read = json_object_get(json_array_get(json_object_get(j, "jobs"), 0), "read");
    double bytes = json_number_value(json_object_get(read, "io_bytes"));
    double ms = json_number_value(json_object_get(read, "runtime"));
    json_decref(j);
    if (bytes <= 0 || ms <= 0) {
        return err_set(e, ERR_FORMAT, "fio has answered in an unknown way: %.200s", b->p);
    }
    *rate = bytes / ms * 1e3;
    return 0;
}

/* ERR_NOTFOUND: there is no fio. */
static int run_fio(const struct bench_read *b, double *rate, struct err *e)
{
    char *argv[STORE_READS * 12 + 3] = {NULL};
    size_t n = 0;
    struct buf out;
    buf_init(&out, ANSWER_MAX);
    int from = -1, status = 0;
    pid_t pid = 0;
    int r = arguments(b, argv, &n) ? err_set(e, ERR_NOMEM, "out of memory") : 0;
    int sys = r ? 0 : spawn(argv, &from, &pid);
    if (sys) {
        r = err_sys(e, sys, "cannot run fio");
    }
    while (!r && !(r = buf_reserve(&out, 1 << 16))) {
        ssize_t k = read(from, out.p + out.n, (1 << 16) - 1);
        if (k == 0) {
            break;
        }
        if (k < 0 && errno != EINTR) {
            r = err_sys(e, errno, "cannot read what fio says");
        }
        out.n += k > 0 ? (size_t)k : 0;
    }
    if (from >= 0 && !sys && pid) {
        close(from);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        if (!r && status) {
            r = err_set(e, ERR_IO, "fio has failed");
        }
    }
    if (!r) {
        out.p[out.n] = 0;
        r = rate_of(&out, rate, e);
    }
    for (size_t i = 0; i < n; i++) {
        free(argv[i]);
    }
    buf_free(&out);
    return r;
}

/* ---- the store ---- */

static int read_batch(struct bench_read *b, size_t from, size_t n, struct err *e)
{
    size_t which;
    struct store_batch *batch;
    struct store_view v;
    int r = store_batch_begin(b->st, b->id + from, n, STORE_DEMAND, &batch, e);
    if (r) {
        return r;
    }
    while (!(r = store_batch_next(batch, &which, &v, e))) {
        store_release_drop(b->st, &v);
    }
    store_batch_end(batch);
    return r == ERR_NOTFOUND ? 0 : r;
}

/* All files, `at_once` together: the next ones are begun when all of these are here. The store
 * reads STORE_READS of them at any time, as fio does. */
static int read_all(struct bench_read *b, size_t at_once, double *rate, struct err *e)
{
    double t = clock_s();
    int r = 0;
    for (size_t i = 0; i < b->n && !r; i += at_once) {
        r = read_batch(b, i, at_once, e);
    }
    *rate = (double)b->n * (double)b->size / (clock_s() - t);
    return r;
}

/* Experts of the cache, layer by layer, whole layers' worth. */
static int choose(struct bench_read *b, struct err *e)
{
    const struct model *m = store_model(b->st);
    b->size = model_expert_layout(m)->size;
    for (uint32_t id = 0; id < model_object_count(m) && b->n < FILES_MAX; id++) {
        char *p = model_object(m, id)->kind == MODEL_EXPERT
                      ? store_file(b->st, id, &b->past, &b->step)
                      : NULL;
        if (p) {
            b->id[b->n] = id;
            b->file[b->n++] = p;
        }
    }
    for (; b->n % STORE_READS; b->n--) {
        free(b->file[b->n - 1]);
    }
    if (!b->n) {
        return err_set(e, ERR_NOTFOUND,
                       "the cache holds fewer than %d experts of this model: fetch some first, by "
                       "`shoal run` or `shoal cache warm`",
                       STORE_READS);
    }
    return 0;
}

static int measure(struct bench_read *b, double seconds, struct err *e)
{
    double end = clock_s() + seconds;
    int r = 0;
    b->fio = true;
    while (!r && b->rounds < ROUNDS_MAX && !cli_interrupted() &&
           (b->rounds < 3 || clock_s() < end)) {
        unsigned i = b->rounds;
        if (b->fio) {
            r = run_fio(b, &b->ref[i], e);
            if (r == ERR_NOTFOUND) {
                b->fio = false;
                r = 0;
            }
        }
        r = r ? r : read_all(b, b->n, &b->own[i], e);
        r = r ? r : read_all(b, STORE_READS, &b->layers[i], e);
        b->ratio[i] = b->fio ? b->own[i] / b->ref[i] : 0;
        b->rounds += !r;
    }
    return r ? r : b->rounds ? 0 : err_set(e, ERR_CANCELLED, "interrupted");
}

/* ---- telling ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *v, unsigned n)
{
    double s[ROUNDS_MAX];
    memcpy(s, v, n * sizeof *s);
    qsort(s, n, sizeof *s, by_value);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

static int print(struct bench_read *b)
{
    double own = median(b->own, b->rounds), ref = median(b->ref, b->rounds);
    double layers = median(b->layers, b->rounds);
    double ratio = median(b->ratio, b->rounds);
    if (b->c->json) {
        json_t *j =
            json_pack("{s:i,s:I,s:i,s:i,s:b,s:i,s:f}", "files", (int)b->n, "object_bytes",
                      (json_int_t)b->size, "readers", STORE_READS, "read_bytes", (int)b->step,
                      "past_page_cache", b->past, "rounds", (int)b->rounds, "store_bytes_s", own);
        json_object_set_new(j, "layers_bytes_s", json_real(layers));
        json_object_set_new(j, "fio_bytes_s", b->fio ? json_real(ref) : json_null());
        json_object_set_new(j, "ratio", b->fio ? json_real(ratio) : json_null());
        json_object_set_new(j, "goal", json_real(GOAL));
        return cli_json(b->c, j);
    }
    struct buf t;
    buf_init(&t, 4096);
    int r =
        buf_addf(&t,
                 "%zu experts of %.1f MB, %d at a time, in reads of %.1f MB %s the page cache;\n"
                 "medians of %u rounds in turn:\n\n",
                 b->n, (double)b->size / 1e6, STORE_READS, (double)b->step / 1e6,
                 b->past ? "past" : "through", b->rounds);
    if (b->fio) {
        r |= buf_addf(&t, "fio                        %8.0f MB/s\n", ref / 1e6);
    }
    r |= buf_addf(&t,
                  "store                      %8.0f MB/s  every byte verified\n"
                  "  with a stop after each %d %8.0f MB/s  a layer's experts, then the next's\n",
                  own / 1e6, STORE_READS, layers / 1e6);
    if (b->fio) {
        r |= buf_addf(&t, "ratio store / fio          %8.3f       goal %.1f: %s\n", ratio, GOAL,
                      ratio >= GOAL ? "met" : "not met");
    } else {
        r |= buf_adds(&t, "\nThe program fio, to compare with, is not installed (apt-get install "
                          "fio, brew install fio).\n");
    }
    struct err e = {0};
    r = r ? cli_fail(b->c, (err_set(&e, ERR_NOMEM, "out of memory"), &e))
          : cli_write(b->c, t.p, t.n);
    buf_free(&t);
    return r;
}

int cli_bench_read(struct cli *c, const char *model, const char *home, const char *cache,
                   double seconds)
{
    struct err e = {0};
    struct buf dir;
    buf_init(&dir, 4096);
    int r = cli_cache_find(cache, home, NULL, &dir, &e);
    struct bench_read *b = r ? NULL : calloc(1, sizeof *b);
    if (!r && !b) {
        r = err_set(&e, ERR_NOMEM, "out of memory");
    }
    struct store_opts o = {.model = model, .cache_dir = dir.p, .offline = true};
    if (!r) {
        b->c = c;
        r = store_open(&o, &b->st, &e);
    }
    r = r ? r : choose(b, &e);
    if (!r && b->step > b->size) {
        b->step = (size_t)b->size;
    }
    if (!r) { /* those being read, and those being given back */
        store_set_ram_budget(b->st, 2 * STORE_READS * b->size);
    }
    if (!r && !c->json) {
        char took[CLI_NUM];
        cli_note(c, "this takes about %s", cli_duration(seconds, took));
    }
    cli_catch_interrupts();
    r = r ? r : measure(b, seconds, &e);
    int status = r ? cli_fail(c, &e) : print(b);
    for (size_t i = 0; b && i < b->n; i++) {
        free(b->file[i]);
    }
    store_close(b ? b->st : NULL);
    free(b);
    buf_free(&dir);
    return status;
}
