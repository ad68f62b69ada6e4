/* SPDX-License-Identifier: MIT
 * bench_speculate.c: what drafts are worth.
 * usage: bench_speculate [MODEL] (default: the demo model)
 *
 * A chat that asks again for what stands in it twice, without drafts, with up to eight drafted
 * tokens, and as measured; rounds interleaved, medians. Once with everything in memory, once with
 * nothing kept there, so that each row's experts are read. And the cost of one pass by its rows,
 * which is what decides. Exit 1 when a receipt differs, or when eight drafted tokens save less than
 * 1.8 times the passes. */
#include "tests/infer/rig.h"

#include "node/text/chat.h"
#include "proto/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NEW 56
#define ROUNDS 5
#define PASSES 24
#define LEAST 1.8

#define WHALE                                                                                      \
    "{\"role\":\"user\",\"content\":\"Define whale.\"},{\"role\":\"assistant\",\"content\":"       \
    "\"whale: any of the larger cetacean mammals having a streamlined body and breathing through " \
    "a blowhole on the head.\"},"
static const char request[] =
    "{\"messages\":[" WHALE WHALE "{\"role\":\"user\",\"content\":\"Define whale.\"}]}";

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

static void prompt_of(struct rig *r, struct tok_ids *ids)
{
    struct buf ranks, config;
    struct tok *t = NULL;
    struct chat_prompt p;
    struct err e = {0};
    buf_init(&ranks, TOK_MAX_FILE);
    buf_init(&config, TOK_MAX_CONFIG);
    if (store_read_file(r->st, "tiktoken.model", &ranks, &e) ||
        store_read_file(r->st, "tokenizer_config.json", &config, &e) ||
        tok_open(ranks.p, ranks.n, config.p, config.n, &t, &e) ||
        chat_render(request, sizeof request - 1, CHAT_THINK_DEFAULT, &p, &e) ||
        chat_prompt_ids(&p, t, ids, &e)) {
        fail_msg("%s", e.msg);
    }
    chat_prompt_free(&p);
    tok_close(t);
    buf_free(&ranks);
    buf_free(&config);
}

static double run(struct rig *r, const struct tok_ids *ids, struct spec_opts spec,
                  struct spec_stats *s, char hex[65])
{
    struct generate_opts o = {
        .prompt = ids->v, .n_prompt = ids->n, .max_new = NEW, .sample = {.top_p = 1}, .spec = spec};
    struct generate_result res;
    struct err e = {0};
    if (generate(r->f, r->m, &o, &res, &e)) {
        fail_msg("%s", e.msg);
    }
    double took = res.decode_s;
    *s = res.spec;
    receipt_hex(&res.receipt, hex);
    generate_result_free(&res);
    return took;
}

/* 0, or 1 when it saves too little or a receipt differs. */
static int answers(const char *model, const char *what, const struct rig_opts *how)
{
    static const struct spec_opts arm[3] = {
        {.mode = SPEC_OFF}, {.mode = SPEC_ALWAYS, .most = 8}, {.mode = SPEC_MEASURED}};
    static const char *const name[3] = {"off", "up to 8", "measured"};
    struct rig r;
    struct rig_opts o = *how;
    struct err e = {0};
    struct tok_ids ids = {0};
    double took[3][ROUNDS];
    struct spec_stats s[3];
    char want[65], got[65];
    int bad = 0;
    o.model = model;
    if (rig_open(&r, &o, &e)) {
        fail_msg("%s", e.msg);
    }
    prompt_of(&r, &ids);
    run(&r, &ids, arm[0], &s[0], want); /* warms up */
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 3; k++) {
            took[k][i] = run(&r, &ids, arm[k], &s[k], got);
            bad = bad || strcmp(got, want) != 0;
        }
    }
    double t0 = median(took[0], ROUNDS);
    for (int k = 0; k < 3; k++) {
        double t = median(took[k], ROUNDS), ratio = (double)s[0].passes / (double)s[k].passes;
        printf("%s, drafts %s: %llu passes for %d tokens (%.2f times fewer), %llu of %llu drafted "
               "right, %.1f ms (%.2f times as fast)%s%s\n",
               what, name[k], (unsigned long long)s[k].passes, NEW - 1, ratio,
               (unsigned long long)s[k].accepted, (unsigned long long)s[k].drafted, t * 1e3, t0 / t,
               s[k].why && k ? "; off in the end: " : "", s[k].why && k ? s[k].why : "");
        bad = bad || (k == 1 && ratio < LEAST);
    }
    tok_ids_free(&ids);
    rig_close(&r);
    return bad;
}

/* One pass of n rows of one sequence, and the mark and the way back that a draft needs. */
static void pass_costs(const char *model, const char *what, const struct rig_opts *how)
{
    static const uint32_t rows[] = {1, 2, 4, 8, 16};
    enum { N = sizeof rows / sizeof *rows };
    struct rig r;
    struct rig_opts o = *how;
    struct err e = {0};
    o.model = model;
    if (rig_open(&r, &o, &e)) {
        fail_msg("%s", e.msg);
    }
    uint32_t V = infer_config(r.f)->vocab, seed = 3;
    float *logits = malloc((size_t)16 * V * sizeof *logits);
    double pass[N][PASSES], back[N][PASSES];
    struct infer_state *st;
    assert_non_null(logits);
    assert_int_equal(infer_state_new(r.f, &st, &e), 0);
    for (int i = -4; i < PASSES; i++) { /* the first ones warm up */
        for (int k = 0; k < N; k++) {
            struct infer_row row[16];
            for (uint32_t n = 0; n < rows[k]; n++) {
                seed = seed * 1664525u + 1013904223u;
                row[n] = (struct infer_row){st, (seed >> 8) % V, true};
            }
            double t0 = clock_s();
            assert_int_equal(infer_state_mark(st, 16, &e), 0);
            double t1 = clock_s();
            assert_int_equal(infer_forward(r.f, row, rows[k], logits, &e), 0);
            double t2 = clock_s();
            assert_int_equal(infer_state_rewind(st, rows[k] / 2, &e), 0);
            if (i >= 0) {
                pass[k][i] = t2 - t1;
                back[k][i] = clock_s() - t2 + t1 - t0;
            }
        }
    }
    double one = median(pass[0], PASSES);
    printf("%s, one pass:", what);
    for (int k = 0; k < N; k++) {
        double t = median(pass[k], PASSES);
        printf("%s %u row%s %.2f ms (%.2f times one; mark and half of it back %.2f ms)",
               k ? "," : "", rows[k], rows[k] > 1 ? "s" : "", t * 1e3, t / one,
               median(back[k], PASSES) * 1e3);
    }
    printf("\n");
    infer_state_free(st);
    free(logits);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    const char *model = argc > 1 ? argv[1] : SHOAL_SOURCE_DIR "/node/demo/model";
    static const struct rig_opts memory = {.threads = 1}, streamed = {.threads = 1, .ram = 1};
    pass_costs(model, "in memory", &memory);
    pass_costs(model, "experts read anew", &streamed);
    int bad = answers(model, "in memory", &memory);
    bad |= answers(model, "experts read anew", &streamed);
    if (bad) {
        printf("a receipt differs, or drafts save less than %.1f times the passes\n", LEAST);
    }
    return bad;
}
