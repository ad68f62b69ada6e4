/* SPDX-License-Identifier: MIT
 * bench_model.c: see bench_model.h: the arms in turn, so that all meet the same machine; what came
 * of it, told, written and drawn. No number is told of a run whose receipt is not the others'. */
#include "node/cli/bench_model.h"

#include "kernels/cpu.h"
#include "node/cli/home.h"
#include "node/cli/plat.h"
#include "node/cli/plot.h"

#include <stdlib.h>
#include <string.h>

#define GOAL 1.15

struct bench {
    struct cli *c;
    const struct bench_model_opts *o;
    struct buf source, cache;
    struct kern_backend *be;
    struct plan plan;
    struct bench_arm whole, ram; /* streamed; all in memory */
    uint32_t tokens, rows, rounds, want_rounds;
    struct bench_took last;
    char receipt[2 * SHA256_SIZE + 1];
    uint64_t read; /* bytes of the reads alone */
    double load[2], wall[BENCH_ROUNDS_MAX], reads[BENCH_ROUNDS_MAX], compute[BENCH_ROUNDS_MAX],
        ratio[BENCH_ROUNDS_MAX];
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *v, uint32_t n)
{
    double s[BENCH_ROUNDS_MAX];
    memcpy(s, v, n * sizeof *s);
    qsort(s, n, sizeof *s, by_value);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

static double load_now(void)
{
    double v[1];
    return getloadavg(v, 1) == 1 ? v[0] : -1;
}

/* ---- the rounds ---- */

static int same(struct bench *b, const char *arm, const struct bench_took *t, struct err *e)
{
    if (!b->receipt[0]) {
        memcpy(b->receipt, t->receipt, sizeof b->receipt);
    }
    if (strcmp(b->receipt, t->receipt) == 0) {
        return 0;
    }
    return err_set(
        e, ERR_RECEIPT,
        "nothing is reported: the run \"%s\" of round %u has the receipt %s, not %s. It "
        "has computed something else, so its time says nothing; run `shoal cache verify` "
        "and compare machines by `shoal verify`",
        arm, b->rounds + 1, t->receipt, b->receipt);
}

static int round_(struct bench *b, struct err *e)
{
    uint32_t warm = b->o->prefill ? 0 : BENCH_WARM, i = b->rounds;
    struct bench_took ram;
    int r = bench_arm_run(&b->whole, warm, b->tokens, b->rows, &b->last, e);
    r = r ? r : same(b, "streamed", &b->last, e);
    r = r ? r : bench_arm_run(&b->ram, warm, b->tokens, b->rows, &ram, e);
    r = r ? r : same(b, "in memory", &ram, e);
    r = r ? r : bench_arm_read(&b->whole, &b->reads[i], &b->read, e);
    if (r) {
        return r;
    }
    b->wall[i] = b->last.s;
    b->compute[i] = ram.s;
    b->ratio[i] = b->wall[i] / (b->reads[i] > ram.s ? b->reads[i] : ram.s);
    b->rounds++;
    return 0;
}

static int open_arms(struct bench *b, struct err *e)
{
    const struct compute_opts *k = &b->o->compute;
    const char *cache = b->cache.n ? b->cache.p : NULL;
    struct kern_cpu_opts ko = {.isa = (enum kern_isa)k->isa.v, .threads = (unsigned)k->threads.v};
    int r = kern_cpu_open(&ko, &b->be);
    if (r) {
        return err_set(e, r == KERN_ENOTSUP ? ERR_UNSUPPORTED : ERR_NOMEM, "%s",
                       r == KERN_ENOTSUP ? "--isa: this processor does not have it"
                                         : "cannot start the threads");
    }
    /* the plan wants the model; the arm wants the plan */
    struct store *st;
    struct store_opts so = {.model = b->source.p, .cache_dir = cache};
    r = store_open(&so, &st, e);
    if (r) {
        return r;
    }
    plan_make(&b->plan, store_model(st), k, plat_memory());
    plan_chunk(&b->plan, k, infer_row_bytes(model_config(store_model(st))));
    store_close(st);
    b->rows = b->o->prefill ? b->plan.chunk : 1;
    struct bench_open o = {.source = b->source.p,
                           .cache = cache,
                           .be = b->be,
                           .ram = b->plan.ram_budget,
                           .spine = b->plan.spine_budget,
                           .max_rows = b->plan.chunk,
                           .prefetch = k->prefetch.set ? (enum infer_prefetch)k->prefetch.v
                                                       : INFER_PREFETCH_ON};
    r = bench_arm_open(&b->whole, &o, e);
    o.ram = UINT64_MAX / 4;
    o.spine = UINT64_MAX;
    o.prefetch = INFER_PREFETCH_OFF;
    return r ? r : bench_arm_open(&b->ram, &o, e);
}

static int measure(struct bench *b, struct err *e)
{
    struct bench_took warm;
    b->load[0] = load_now();
    /* from here on all is in memory there */
    int r = bench_arm_run(&b->ram, b->o->prefill ? 0 : BENCH_WARM, b->tokens, b->rows, &warm, e);
    r = r ? r : same(b, "in memory", &warm, e);
    while (!r && b->rounds < b->want_rounds) {
        r = round_(b, e);
    }
    b->load[1] = load_now();
    return r;
}

/* ---- telling ---- */

static json_t *list(const double *v, uint32_t n)
{
    json_t *j = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_array_append_new(j, json_real(v[i]));
    }
    return j;
}

static int print_json(struct bench *b)
{
    struct infer_spine s;
    infer_get_spine(b->whole.f, &s);
    const struct infer_times *t = &b->last.t;
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f}", "bench",
                          b->o->prefill ? "prefill" : "decode", "model", b->source.p, "receipt",
                          b->receipt, "backend", b->be->name, "threads", (int)b->be->threads,
                          "tokens", (int)b->tokens, "tokens_a_call", (int)b->rows, "rounds",
                          (int)b->rounds, "load_before", b->load[0], "load_after", b->load[1]);
    json_object_set_new(j, "wall_s", json_real(median(b->wall, b->rounds)));
    json_object_set_new(j, "read_s", json_real(median(b->reads, b->rounds)));
    json_object_set_new(j, "compute_s", json_real(median(b->compute, b->rounds)));
    json_object_set_new(j, "ratio", json_real(median(b->ratio, b->rounds)));
    json_object_set_new(j, "goal", json_real(GOAL));
    json_object_set_new(j, "read_bytes", json_integer((json_int_t)b->read));
    json_object_set_new(j, "wall_read_bytes", json_integer((json_int_t)b->last.read));
    json_object_set_new(j, "experts_chosen", json_integer((json_int_t)b->whole.routes.n));
    json_object_set_new(j, "spine_streamed", json_integer((json_int_t)s.streamed));
    json_object_set_new(j, "times_s",
                        json_pack("{s:f, s:f, s:f}", "compute", 1e-9 * (double)t->compute_ns, "ram",
                                  1e-9 * (double)t->ram_ns, "disk", 1e-9 * (double)t->disk_ns));
    json_object_set_new(j, "rounds_wall_s", list(b->wall, b->rounds));
    json_object_set_new(j, "rounds_read_s", list(b->reads, b->rounds));
    json_object_set_new(j, "rounds_compute_s", list(b->compute, b->rounds));
    json_object_set_new(j, "plan", plan_json(&b->plan));
    return cli_json(b->c, j);
}

static int print_text(struct bench *b)
{
    struct buf t;
    struct err e = {0};
    char n1[CLI_NUM], n2[CLI_NUM], n3[CLI_NUM];
    double ms = 1e3 / b->tokens, ratio = median(b->ratio, b->rounds);
    double wall = median(b->wall, b->rounds);
    buf_init(&t, 8192);
    int r =
        buf_addf(&t,
                 "%u tokens, %u a call (%s), %u threads; %s of experts in memory at most; "
                 "medians of %u rounds in turn; load %.1f to %.1f:\n\n",
                 b->tokens, b->rows, b->o->prefill ? b->plan.chunk_why : "decoding", b->be->threads,
                 cli_bytes(b->plan.ram_budget, n1), b->rounds, b->load[0], b->load[1]);
    r |= buf_addf(&t, "streamed            %9.2f ms a token, %.2f tokens a second, %s read\n",
                  ms * wall, b->tokens / wall, cli_bytes(b->last.read / b->tokens, n1));
    r |= buf_addf(&t, "reading alone       %9.2f ms a token, %s, %s a second\n",
                  ms * median(b->reads, b->rounds), cli_bytes(b->read / b->tokens, n2),
                  cli_bytes((uint64_t)((double)b->read / median(b->reads, b->rounds)), n3));
    r |= buf_addf(&t, "computing alone     %9.2f ms a token\n", ms * median(b->compute, b->rounds));
    r |= buf_addf(&t, "ratio to the longer %9.3f       goal %.2f: %s\nreceipt             %s\n",
                  ratio, GOAL, ratio <= GOAL ? "met" : "not met", b->receipt);
    r = r ? cli_fail(b->c, (err_set(&e, ERR_NOMEM, "out of memory"), &e))
          : cli_write(b->c, t.p, t.n);
    buf_free(&t);
    return r;
}

static int draw(struct bench *b, struct err *e)
{
    double x[BENCH_ROUNDS_MAX];
    for (uint32_t i = 0; i < b->rounds; i++) {
        x[i] = i + 1;
    }
    const struct plot_line l[] = {{"streamed", x, b->wall, b->rounds},
                                  {"reading alone", x, b->reads, b->rounds},
                                  {"computing alone", x, b->compute, b->rounds}};
    return plot_write(b->o->plot, b->o->prefill ? "shoal bench prefill" : "shoal bench decode",
                      "round", "seconds", false, l, sizeof l / sizeof *l)
               ? err_set(e, ERR_IO, "cannot write the plot %s", b->o->plot)
               : 0;
}

int cli_bench_model(struct cli *c, const struct bench_model_opts *o)
{
    struct err e = {0};
    struct bench *b = calloc(1, sizeof *b);
    if (!b) {
        return cli_fail(c, (err_set(&e, ERR_NOMEM, "out of memory"), &e));
    }
    b->c = c;
    b->o = o;
    b->tokens = o->tokens ? o->tokens : o->prefill ? 128 : 12;
    b->want_rounds = o->rounds ? o->rounds : 5;
    buf_init(&b->source, 4096);
    buf_init(&b->cache, 4096);
    if (o->receipt) {
        snprintf(b->receipt, sizeof b->receipt, "%s", o->receipt);
    }
    cli_catch_interrupts();
    int r = cli_model_source(c->exe, o->model, &b->source, &e);
    r = r || !(o->home || o->cache) ? r : cli_cache_find(o->cache, o->home, NULL, &b->cache, &e);
    r = r ? r : open_arms(b, &e);
    r = r ? r : measure(b, &e);
    r = r || !o->plot ? r : draw(b, &e);
    int status = r ? cli_fail(c, &e) : c->json ? print_json(b) : print_text(b);
    bench_arm_close(&b->whole);
    bench_arm_close(&b->ram);
    if (b->be) {
        b->be->close(b->be);
    }
    buf_free(&b->source);
    buf_free(&b->cache);
    free(b);
    return status;
}
