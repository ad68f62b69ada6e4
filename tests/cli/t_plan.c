/* SPDX-License-Identifier: MIT
 * t_plan.c: how memory is divided, on the demo model's sizes and machines of many sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "node/cli/session.h"

#include <string.h>

static struct model_source src;
static struct model *m;

static uint64_t least(void)
{
    return 2 * (uint64_t)model_config(m)->topk * model_expert_layout(m)->size;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What the numbers must keep for every size of machine, from far too small to far too large. */
static void t_default(void **state)
{
    struct compute_opts o = {.threads = {0, false}};
    uint64_t spine_before = 0, ram_before = 0;
    for (uint64_t memory = 100000; memory < 100000000; memory += memory / 50) {
        struct plan p;
        plan_make(&p, m, &o, memory);
        assert_int_equal(p.half, memory / 2);
        assert_true(p.spine_budget <= p.spine_bytes);
        assert_true(p.ram_budget >= least() && p.ram_budget <= p.expert_bytes);
        /* Within half of the memory, but for the least that must be. */
        assert_true(p.spine_budget + p.ram_budget <= p.half || p.ram_budget == least());
        assert_true(p.spine_budget == p.spine_bytes || p.ram_budget == least()); /* spine first */
        /* More memory never gives less of either. */
        assert_true(p.spine_budget >= spine_before && p.ram_budget >= ram_before);
        assert_true(p.spine_why[0] && p.ram_why[0]);
        spine_before = p.spine_budget;
        ram_before = p.ram_budget;
    }
    assert_int_equal(spine_before, model_spine_bytes(m)); /* both ends were reached */
    assert_int_equal(ram_before, model_expert_bytes(m));
}

static void t_given(void **state)
{
    struct compute_opts o = {.ram = {12345678, true}};
    struct plan p;
    plan_make(&p, m, &o, 20000000);
    assert_int_equal(p.ram_budget, 12345678);
    assert_string_equal(p.ram_why, "given by --ram-budget");
    assert_int_equal(p.spine_budget, 0); /* half is less than what was given to the experts */
    o = (struct compute_opts){.spine_ram = {1000000, true}};
    plan_make(&p, m, &o, 8000000);
    assert_int_equal(p.spine_budget, 1000000);
    assert_string_equal(p.spine_why, "given by --spine-ram");
    assert_int_equal(p.ram_budget, 3000000);
    o = (struct compute_opts){.ram = {0, true}, .spine_ram = {0, true}};
    plan_make(&p, m, &o, 8000000);
    assert_int_equal(p.ram_budget, 0); /* zero given is not the same as not given */
    assert_int_equal(p.spine_budget, 0);
}

static void t_unknown_memory(void **state)
{
    struct compute_opts o = {.threads = {0, false}};
    struct plan p;
    plan_make(&p, m, &o, 0);
    assert_int_equal(p.spine_budget, model_spine_bytes(m));
    assert_int_equal(p.ram_budget, smaller(p.half - p.spine_budget, model_expert_bytes(m)));
}

static int setup(void **state)
{
    struct err e;
    return model_folder_open(SHOAL_SOURCE_DIR "/node/demo/model", &src, &e) ||
           model_open(&src, &m, &e);
}

static int teardown(void **state)
{
    model_close(m);
    model_folder_close(&src);
    return 0;
}

/* The spine packed or not, on machines that are easy to reckon. */
static void spine_forms(void **state)
{
    double bf16, packed;
    /* Kimi K3's 111 GB beside 80 GB: all of it packed fits, 14.1 GB of it even as it is */
    struct spine_facts f = {111e9, 80e9, 0.68, 5e9, 3e9, 10e9, 16};
    plan_spine(&f, &bf16, &packed);
    assert_true(bf16 > 6.19 && bf16 < 6.21);     /* 31 GB at 5 GB/s */
    assert_true(packed > 2.71 && packed < 2.73); /* 111 / 160 + 97.125 / 48 */
    /* beside 8 GB most is read */
    f.ram = 8e9;
    plan_spine(&f, &bf16, &packed);
    assert_true(bf16 > 20.5 && bf16 < 20.7);
    assert_true(packed > 13.4 && packed < 13.6);
    /* one slow core: unpacking costs more than is saved */
    f.cores = 1;
    plan_spine(&f, &bf16, &packed);
    assert_true(packed > 48 && packed < 48.2 && packed > bf16);
    /* all of it in memory: nothing is read, unpacking would only cost */
    f.ram = 200e9;
    plan_spine(&f, &bf16, &packed);
    assert_true(bf16 > 11 && bf16 < 11.2 && packed >= bf16);
}

/* What a GPU may use binds both; experts give way first, as far as half of it. */
static void limits(void **state)
{
    struct compute_opts o = {.threads = {0, false}};
    struct plan full, p;
    plan_make(&full, m, &o, 100000000);
    p = full;
    plan_limit(&p, 0); /* no GPU */
    assert_memory_equal(&p, &full, sizeof p);
    plan_limit(&p, 1000000000);
    assert_memory_equal(&p, &full, sizeof p);
    uint64_t spine_before = UINT64_MAX, ram_before = UINT64_MAX;
    for (uint64_t limit = 40000000; limit > 1000; limit -= limit / 20) {
        uint64_t room = limit - limit / 8;
        p = full;
        plan_limit(&p, limit);
        assert_true(p.spine_budget + p.ram_budget <= room ||
                    (p.spine_budget == full.spine_budget && p.ram_budget == full.ram_budget));
        assert_true(p.spine_budget == full.spine_budget ||
                    p.ram_budget >= smaller(full.ram_budget, room / 2));
        assert_true(p.spine_budget <= spine_before && p.ram_budget <= ram_before);
        assert_true(p.ram_budget == full.ram_budget || strstr(p.ram_why, "GPU"));
        assert_true(p.spine_budget == full.spine_budget || strstr(p.spine_why, "GPU"));
        spine_before = p.spine_budget;
        ram_before = p.ram_budget;
    }
    assert_true(spine_before < 1000 && ram_before < 1000);
}

/* How much of a prompt at a time: by memory, within bounds, or as told. */
static void test_chunk(void **state)
{
    (void)state;
    struct compute_opts o = {.threads = {0, false}};
    struct plan p = {.spine_bytes = 4000, .spine_budget = UINT64_MAX, .ram_budget = 12000};
    plan_chunk(&p, &o, 1000);
    assert_int_equal(p.chunk, PLAN_CHUNK_LEAST);
    assert_int_equal(p.chunk_bytes, 1000 * PLAN_CHUNK_LEAST);
    plan_chunk(&p, &o, 10); /* 1000 bytes are room for 100 tokens */
    assert_int_equal(p.chunk, 96);
    assert_non_null(strstr(p.chunk_why, "a sixteenth"));
    p.ram_budget = UINT64_MAX;
    plan_chunk(&p, &o, 10);
    assert_int_equal(p.chunk, PLAN_CHUNK_MOST);
    o.chunk.v = 7;
    o.chunk.set = true;
    plan_chunk(&p, &o, 10);
    assert_int_equal(p.chunk, 7);
    assert_string_equal(p.chunk_why, "given by --prefill-chunk");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_default),        cmocka_unit_test(t_given),
        cmocka_unit_test(t_unknown_memory), cmocka_unit_test(spine_forms),
        cmocka_unit_test(limits),           cmocka_unit_test(test_chunk),
    };
    return cmocka_run_group_tests_name("plan", tests, setup, teardown);
}
