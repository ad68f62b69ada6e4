/* SPDX-License-Identifier: MIT
 * t_compute_run.c: the engine of a node over a GPU that is late: the receipts of the CPU, in all
 * ways that a state can go. */
#include "node/compute/compute.h"
#include "node/compute/code.h"
#include "node/compute/tested.h"
#include "tests/engine/eng_kit.h"
#include "tests/shaders/emu_backend.h"
#include "tests/shaders/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PROMPT 8
#define TOKENS 3
#define JOBS 2
#define HEX (2 * SHA256_SIZE + 1)

static bool brief;
static char folder[] = "/tmp/t-compute-run-XXXXXX", said[4096];
static const char *model = SHOAL_SOURCE_DIR "/node/demo/model";
static const uint32_t prompt[PROMPT] = {17, 3, 44, 17, 3, 44, 17, 3};

static void hear(void *ctx, const char *line)
{
    (void)ctx;
    size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%s\n", line);
}

static int device(void *ctx, struct sh_device **out, char *why, size_t size)
{
    (void)why;
    (void)size;
    *out = fake_open(ctx);
    return *out ? 0 : KERN_ENOMEM;
}

/* What computes, as the program makes it; the self-test found two kernels wrong, so some commands
 * go to the CPU in between. */
static struct compute *gpu(struct fake_opts *fo)
{
    struct tested t = {.done = true, .begun = 1};
    const struct code_setup cs = {.folder = folder, .program = "t"};
    struct code code;
    char why[200];
    struct sh_device *d = fake_open(fo);
    assert_non_null(d);
    assert_int_equal(code_ready(d, &cs, &code, why, sizeof why), 0);
    d->close(d);
    const struct tested_key k = {"fake", "test 1", "t", code.from};
    t.broken[SH_router] = t.broken[SH_mix_sum] = true;
    assert_int_equal(tested_write(folder, &k, &t, NULL), 0);
    struct compute_setup o = {.choice = COMPUTE_AUTO,
                              .cpu = {.threads = 2},
                              .folder = folder,
                              .program = "t",
                              .device = device,
                              .device_ctx = fo,
                              .say = hear};
    struct compute *c;
    struct err e = {0};
    said[0] = 0;
    if (compute_open(&o, &c, &e)) {
        fail_msg("%s", e.msg);
    }
    assert_string_equal(compute_backend(c)->name, "fake");
    assert_non_null(strstr(said, "mix_sum, router"));
    return c;
}

/* A draft that is never right: every pass takes rows back. */
static size_t wrong(void *ctx, const uint32_t *tokens, size_t n, size_t max, uint32_t *out)
{
    (void)ctx;
    size_t k = max < 2 ? max : 2;
    for (size_t i = 0; i < k; i++) {
        out[i] = (tokens[n - 1] * 7 + 1 + (uint32_t)i) % 200;
    }
    return k;
}

struct way {
    const char *name;
    uint32_t chunk;
    bool reload, drafts, streamed;
    uint64_t ram;
    enum infer_prefetch prefetch;
    size_t limit; /* of the GPU; 0: enough */
};

static int answer(const struct rig *r, const struct way *w, char hex[HEX], struct spec_stats *spec,
                  struct err *e)
{
    static const struct draft_source source = {.propose = wrong};
    char path[64];
    snprintf(path, sizeof path, "%s/state", folder);
    struct generate_opts g = {.prompt = prompt,
                              .n_prompt = brief ? 4 : PROMPT,
                              .max_new = brief ? 3 : TOKENS,
                              .sample = {.temperature = 1, .top_p = 0.98f, .seed = 8},
                              .prefill_chunk = w->chunk,
                              .reload_path = w->reload ? path : NULL,
                              .reload_after = 1};
    if (w->drafts) {
        g.spec = (struct spec_opts){.mode = SPEC_ALWAYS, .most = 2, .source = &source};
    }
    struct generate_result out = {0};
    int rc = generate(r->f, r->m, &g, &out, e);
    if (!rc) {
        receipt_hex(&out.receipt, hex);
        *spec = out.spec;
    }
    generate_result_free(&out);
    unlink(path);
    return rc;
}

static void open_rig(struct rig *r, const struct way *w, struct kern_backend *be)
{
    struct err e = {0};
    struct rig_opts o = {.model = model,
                         .isa = KERN_ISA_SCALAR,
                         .be = be,
                         .ram = w->ram,
                         .no_spine = w->streamed,
                         .prefetch = w->prefetch};
    if (rig_open(r, &o, &e)) {
        fail_msg("%s", e.msg);
    }
}

static void on_cpu(char hex[HEX])
{
    struct way plain = {.chunk = PROMPT};
    struct rig r;
    struct err e = {0};
    struct spec_stats spec;
    open_rig(&r, &plain, NULL);
    assert_int_equal(answer(&r, &plain, hex, &spec, &e), 0);
    rig_close(&r);
}

static void same_receipts(void **state)
{
    static const struct way ways[] = {
        {.name = "rows taken back", .chunk = 3, .drafts = true},
        {.name = "streamed, two experts of RAM, guesses, saved",
         .chunk = 5,
         .reload = true,
         .streamed = true,
         .ram = 40000,
         .prefetch = INFER_PREFETCH_ON},
        {.name = "a GPU with little memory", .chunk = PROMPT, .limit = 14300000},
    };
    char want[HEX], got[HEX];
    struct spec_stats spec;
    on_cpu(want);
    for (uint32_t i = 0; i < (brief ? 1 : sizeof ways / sizeof *ways); i++) {
        const struct way *w = &ways[i];
        struct fake_opts fo = {
            .delay_us = 200, .seldom = 20, .seed = i + 1, .sabotage = -1, .limit = w->limit};
        struct compute *c = gpu(&fo);
        struct compute_report n;
        struct store_stats st;
        struct rig r;
        struct err e = {0};
        open_rig(&r, w, compute_backend(c));
        if (answer(&r, w, got, &spec, &e)) {
            fail_msg("%s: %s", w->name, e.msg);
        }
        store_get_stats(r.st, &st);
        compute_report(c, &n);
        print_message("  %-45s %.16s, %llu batches, %llu commands on the CPU, %.1f MB\n", w->name,
                      got, (unsigned long long)n.batches, (unsigned long long)n.cpu_commands,
                      (double)n.allocated * 1e-6);
        assert_string_equal(got, want);
        assert_true(n.batches && n.cpu_commands && !n.lost);
        assert_true(!w->drafts || spec.drafted > spec.accepted);
        assert_true(!w->limit || (n.allocated <= w->limit && st.ram_budget < 1u << 30));
        rig_close(&r);
        compute_close(c);
    }
}

/* The GPU fails in the middle: that answer is an error; the next ones are the CPU's, and right. */
static void a_gpu_that_fails(void **state)
{
    struct way plain = {.chunk = PROMPT};
    struct fake_opts fo = {
        .delay_us = 200, .seldom = 20, .seed = 9, .sabotage = -1, .fail_batch = 25};
    struct compute *c = gpu(&fo);
    struct compute_report n;
    struct rig r;
    struct err e = {0};
    struct spec_stats spec;
    char want[HEX], got[HEX];
    on_cpu(want);
    open_rig(&r, &plain, compute_backend(c));
    assert_int_not_equal(answer(&r, &plain, got, &spec, &e), 0);
    assert_non_null(strstr(said, "batch 25"));
    assert_non_null(strstr(said, "the CPU does the rest"));
    compute_report(c, &n);
    assert_true(n.lost);
    assert_int_equal(answer(&r, &plain, got, &spec, &e), 0);
    assert_string_equal(got, want);
    rig_close(&r);
    compute_close(c);
}

/* Several requests at once, drafts among them. */
static void engine(void **state)
{
    static const struct draft_source source = {.propose = wrong};
    struct fake_opts fo = {.delay_us = 200, .seldom = 20, .seed = 11, .sabotage = -1};
    struct compute *c = gpu(&fo);
    struct rig_opts ro = {.model = model, .isa = KERN_ISA_SCALAR, .be = compute_backend(c)};
    struct engine_opts eo = {.keep_ram = 64u << 20,
                             .spec = {.mode = SPEC_ALWAYS, .most = 2, .source = &source}};
    struct eng x;
    struct eng_job *j = calloc(JOBS, sizeof *j);
    uint32_t jobs = brief ? 1 : JOBS;
    assert_non_null(j);
    eng_open_rig(&x, &ro, &eo);
    for (uint32_t i = 0; i < jobs; i++) {
        eng_job(&j[i], i + 5, brief ? 3 : PROMPT - i, 3, infer_config(x.rig.f)->vocab);
        assert_int_equal(eng_submit(&x, &j[i]), 0);
    }
    for (uint32_t i = 0; i < jobs; i++) {
        char got[HEX], want[HEX];
        eng_wait(&j[i]);
        if (j[i].end.reason == ENGINE_ERROR) {
            fail_msg("%s", j[i].end.err.msg);
        }
        eng_receipt(&j[i], got);
        eng_alone(&x, &j[i], want);
        assert_string_equal(got, want);
        eng_free(&j[i]);
    }
    struct engine_stats st;
    engine_get_stats(x.g, &st);
    assert_true(st.spec.drafted > st.spec.accepted);
    eng_close(&x);
    compute_close(c);
    free(j);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_receipts),
                                       cmocka_unit_test(a_gpu_that_fails),
                                       cmocka_unit_test(engine)};
    brief = argc > 1 && !strcmp(argv[1], "brief");
    if (!emu_usable()) {
        printf("this processor lacks what the emulation was compiled for: not run\n");
        return 0;
    }
    if (brief) {
        model = SHOAL_TEST_DIR "/fixtures/k3/tiny_a";
    }
    if (!mkdtemp(folder)) {
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    char cmd[64];
    snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
    return system(cmd) || r;
}
