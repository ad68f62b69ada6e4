/* SPDX-License-Identifier: MIT
 * t_shader_demo.c: the demo model, a raw prompt of eight tokens and two more, through the emulated
 * shaders: the receipt of the CPU kernels. */
#include "infer/rig.h"

#include "tests/shaders/emu_backend.h"
#include "tests/shaders/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define PROMPT 8
#define TOKENS 2

static const char model_dir[] = SHOAL_SOURCE_DIR "/node/demo/model";

/* The receipt of a run; be NULL: the CPU's scalar kernels. The engine closes be. */
static void run(struct kern_backend *be, uint32_t chunk, char hex[65])
{
    static const uint32_t prompt[PROMPT] = {17, 1203, 44, 2001, 309, 9, 1777, 650};
    struct err e = {0};
    struct kern_cpu_opts ko = {.isa = KERN_ISA_SCALAR, .threads = 1};
    if (!be) {
        assert_int_equal(kern_cpu_open(&ko, &be), 0);
    }
    struct rig r = {.be = be};
    struct store_opts so = {.model = model_dir, .ram_budget = 1u << 30, .mem = infer_store_mem(be)};
    if (store_open(&so, &r.st, &e)) {
        fail_msg("%s", e.msg);
    }
    r.m = store_model(r.st);
    store_set_admit(r.st, infer_admit, (void *)(uintptr_t)r.m);
    struct infer_opts io = {.st = r.st, .be = be, .spine_budget = UINT64_MAX};
    if (infer_open(&io, &r.f, &e)) {
        fail_msg("%s", e.msg);
    }
    struct generate_opts g = {.prompt = prompt,
                              .n_prompt = PROMPT,
                              .max_new = TOKENS,
                              .sample = {.temperature = 1, .top_p = 0.98f, .seed = 8},
                              .prefill_chunk = chunk};
    struct generate_result out;
    if (generate(r.f, r.m, &g, &out, &e)) {
        fail_msg("%s: %s", be->name, e.msg);
    }
    assert_int_equal(out.n, TOKENS);
    receipt_hex(&out.receipt, hex);
    print_message("  %-20s %u rows at a time: %.16s, %.1f s\n", be->name, chunk, hex,
                  out.prefill_s + out.decode_s);
    generate_result_free(&out);
    rig_close(&r);
}

static void same_receipt(void **state)
{
    static const struct emu_opts ways[] = {
        {.reverse = false}, {.reverse = true, .flush = true, .plan = {.max_scores = 40}}};
    char want[65], got[65];
    run(NULL, PROMPT, want);
    for (uint32_t i = 0; i < 2; i++) {
        struct kern_backend *b = emu_open(&ways[i]);
        assert_non_null(b);
        run(b, i ? PROMPT : 3, got);
        assert_string_equal(got, want);
    }
}

/* The whole engine on a GPU that is late: it may look at nothing before its fence. */
static void same_receipt_late(void **state)
{
    char want[65], got[65];
    struct kern_cpu_opts ko = {.isa = KERN_ISA_SCALAR, .threads = 1};
    struct fake_opts fo = {.delay_us = 20, .seed = 3, .sabotage = -1};
    struct gpu_opts o = {0};
    struct kern_backend *b;
    assert_int_equal(kern_cpu_open(&ko, &o.cpu), 0);
    o.broken[SH_router] = o.broken[SH_mix_sum] = true; /* so some commands go to the CPU */
    assert_int_equal(gpu_open(fake_open(&fo), &o, &b), 0);
    run(NULL, PROMPT, want);
    run(b, PROMPT, got);
    assert_string_equal(got, want);
    o.cpu->close(o.cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_receipt),
                                       cmocka_unit_test(same_receipt_late)};
    if (!emu_usable()) {
        printf("this processor lacks what the emulation was compiled for: not run\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
