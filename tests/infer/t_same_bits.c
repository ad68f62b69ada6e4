/* SPDX-License-Identifier: MIT
 * t_same_bits.c: one receipt, however it was computed. 500 tokens drawn from the demo model (a draw
 * visits more experts than a greedy loop), the same for every instruction set, thread count, prompt
 * split, reload, memory budget, order of arrival and flush mode; the value itself is committed, so
 * that other machines are held to it too. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define TOKENS 500
#define BRIEF 40 /* of them, for most ways on an emulated machine */
#define PROMPT 37

/* What every machine must print for this prompt after BRIEF and after TOKENS tokens (numerics
 * version 1). */
static const char expected_brief[] =
    "b4d23d69e98d23f0215fa34e9259fe9d43e5bbcd60279deff210ae13e2e21834";
static const char expected[] = "6ff6424a715638d3f68d6a3f06fbafbb5136e5108308936600985839d411024f";

static const char model_dir[] = SHOAL_SOURCE_DIR "/node/demo/model";

static void make_prompt(uint32_t *p)
{
    for (uint32_t i = 0; i < PROMPT; i++) {
        p[i] = (i * 2654435761u >> 7) % 2816;
    }
}

struct how {
    const char *name;
    struct rig_opts rig;
    uint32_t chunk, reload_after;
};

static bool brief; /* set by main: a word on the command line */

static void run(const struct how *h, uint32_t tokens, char hex[65])
{
    struct rig r;
    struct err e = {0};
    struct rig_opts o = h->rig;
    o.model = o.model ? o.model : model_dir;
    if (rig_open(&r, &o, &e)) {
        fail_msg("%s: %s", h->name, e.msg);
    }
    uint32_t prompt[PROMPT];
    make_prompt(prompt);
    char state[] = "/tmp/t_same_bits_XXXXXX";
    int fd = mkstemp(state);
    assert_true(fd >= 0);
    close(fd);
    struct generate_opts g = {.prompt = prompt,
                              .n_prompt = PROMPT,
                              .max_new = tokens,
                              .sample = {.temperature = 1, .top_p = 0.98f, .seed = 2026},
                              .prefill_chunk = h->chunk,
                              .reload_path = h->reload_after ? state : NULL,
                              .reload_after = h->reload_after};
    struct generate_result out;
    if (generate(r.f, r.m, &g, &out, &e)) {
        fail_msg("%s: %s", h->name, e.msg);
    }
    assert_int_equal(out.n, tokens);
    receipt_hex(&out.receipt, hex);
    print_message("  %-28s %.16s %.1f tok/s\n", h->name, hex,
                  (double)out.decoded / (out.decode_s > 0 ? out.decode_s : 1e-9));
    generate_result_free(&out);
    rig_close(&r);
    unlink(state);
}

static void one_receipt(void **s)
{
    const struct how ways[] = {
        {"1 thread", {.threads = 1}, 0, 0},
        {"2 threads", {.threads = 2}, 0, 0},
        {"3 threads", {.threads = 3}, 0, 0},
        {"8 threads", {.threads = 8}, 0, 0},
        {"scalar", {.isa = KERN_ISA_SCALAR}, 0, 0},
        {"avx2", {.isa = KERN_ISA_AVX2}, 0, 0},
        {"neon", {.isa = KERN_ISA_NEON}, 0, 0},
        {"prompt in chunks of 1", {.threads = 2}, 1, 0},
        {"prompt in chunks of 7", {.threads = 2}, 7, 0},
        {"prompt in chunks of 32", {.threads = 2}, 32, 0},
        {"steps of 5 rows", {.threads = 2, .max_rows = 5}, 0, 0},
        {"state saved and loaded at 23", {.threads = 2}, 0, 23},
        {"one expert's worth of RAM", {.threads = 2, .ram = 19584}, 0, 0},
        {"spine streamed", {.threads = 2, .no_spine = true}, 0, 0},
        {"half the spine streamed", {.threads = 2, .spine_budget = 5000000}, 0, 0},
        {"experts in another order", {.threads = 2, .shuffle = 7}, 0, 0},
        {"and another", {.threads = 2, .shuffle = 12345678901u, .max_rows = 64}, 0, 0},
        {"FTZ and DAZ", {.threads = 2, .flush = true}, 0, 0},
        {"FTZ and DAZ, scalar", {.isa = KERN_ISA_SCALAR, .flush = true}, 0, 0},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (!kern_isa_available(ways[i].rig.isa)) {
            print_message("  %-28s not on this machine\n", ways[i].name);
            continue;
        }
        char hex[65];
        bool all = !brief || i == 1;
        run(&ways[i], all ? TOKENS : BRIEF, hex);
        assert_string_equal(hex, all ? expected : expected_brief);
    }
}

/* Experts guessed a layer ahead, or not, with little RAM and with much. */
static void guessed(void **s)
{
    const struct how ways[] = {
        {"guessed ahead", {.threads = 2, .prefetch = INFER_PREFETCH_ON}, 0, 0},
        {"guessed, little RAM",
         {.threads = 2, .prefetch = INFER_PREFETCH_ON, .ram = 300000, .shuffle = 5},
         0,
         0},
        {"not guessed, little RAM",
         {.threads = 2, .prefetch = INFER_PREFETCH_OFF, .ram = 300000},
         0,
         0},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char hex[65];
        run(&ways[i], BRIEF, hex);
        assert_string_equal(hex, expected_brief);
    }
}

/* Rows of several sequences in one call give each the bits that it gets alone. */
static void sequences_do_not_touch(void **s)
{
    struct rig r;
    struct err e = {0};
    struct rig_opts o = {.model = model_dir, .max_rows = 7};
    if (rig_open(&r, &o, &e)) {
        fail_msg("%s", e.msg);
    }
    uint32_t V = infer_config(r.f)->vocab, p[PROMPT];
    make_prompt(p);
    struct infer_state *alone[3], *both[3];
    float *want = calloc(PROMPT * V, sizeof *want), *got = calloc(PROMPT * V, sizeof *got);
    const uint32_t len[3] = {9, 1, 20}; /* 30 rows: the steps of 7 cut through sequences */
    uint32_t at = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(infer_state_new(r.f, &alone[i], &e), 0);
        assert_int_equal(infer_state_new(r.f, &both[i], &e), 0);
        for (uint32_t k = 0; k < len[i]; k++, at++) {
            struct infer_row row = {alone[i], p[at], true};
            assert_int_equal(infer_forward(r.f, &row, 1, want + at * V, &e), 0);
        }
    }
    struct infer_row rows[PROMPT];
    uint32_t n = 0;
    for (int i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < len[i]; k++, n++) {
            rows[n] = (struct infer_row){both[i], p[n], true};
        }
    }
    assert_int_equal(infer_forward(r.f, rows, n, got, &e), 0);
    assert_memory_equal(got, want, (size_t)n * V * sizeof *got);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(infer_state_pos(both[i]), len[i]);
        infer_state_free(alone[i]);
        infer_state_free(both[i]);
    }
    free(want);
    free(got);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    brief = argc > 1 && !strcmp(argv[1], "brief");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_receipt),
        cmocka_unit_test(guessed),
        cmocka_unit_test(sequences_do_not_touch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
