/* SPDX-License-Identifier: MIT
 * t_ahead.c: experts guessed a layer ahead: how many are right (a matter of arithmetic, so always
 * the same), when nothing is guessed, and where the time of calls is said to have gone. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define TOKENS 40
#define EXPERT 19584 /* bytes of the demo model's */

static const char model_dir[] = SHOAL_SOURCE_DIR "/node/demo/model";

struct outcome {
    char receipt[65];
    struct infer_times t;
    struct infer_ahead a;
    struct store_stats st;
};

static void go(const struct rig_opts *o, struct outcome *out)
{
    struct rig r;
    struct err e = {0};
    if (rig_open(&r, o, &e)) {
        fail_msg("%s", e.msg);
    }
    uint32_t prompt[20];
    for (uint32_t i = 0; i < 20; i++) {
        prompt[i] = i * 131 % 2816;
    }
    struct generate_opts g = {.prompt = prompt,
                              .n_prompt = 20,
                              .max_new = TOKENS,
                              .sample = {.temperature = 1, .top_p = 1, .seed = 3}};
    struct generate_result res;
    if (generate(r.f, r.m, &g, &res, &e)) {
        fail_msg("%s", e.msg);
    }
    receipt_hex(&res.receipt, out->receipt);
    infer_get_times(r.f, &out->t);
    infer_get_ahead(r.f, &out->a);
    store_get_stats(r.st, &out->st);
    const struct model_config *c = infer_config(r.f);
    assert_int_equal(model_expert_layout(r.m)->size, EXPERT);
    if (out->a.layers) { /* each MoE layer, of every call with one row */
        uint64_t each = c->n_layers - c->first_dense;
        assert_int_equal(out->a.layers % each, 0);
        assert_int_equal(out->a.guessed, out->a.layers * c->topk);
        assert_int_equal(out->a.chosen, out->a.layers * c->topk);
    }
    generate_result_free(&res);
    rig_close(&r);
}

static uint64_t parts(const struct infer_times *t)
{
    return t->compute_ns + t->ram_ns + t->disk_ns + t->peers_ns + t->origin_ns + t->stall_ns;
}

static void test_right(void **state)
{
    (void)state;
    struct rig_opts o = {.model = model_dir, .prefetch = INFER_PREFETCH_ON, .ram = 40 * EXPERT};
    struct outcome on, again, off, all;
    go(&o, &on);
    go(&o, &again);
    o.ram = 1u << 30;
    go(&o, &all);
    o.prefetch = INFER_PREFETCH_OFF;
    go(&o, &off);
    print_message("  %llu of %llu guessed a layer before; %llu bytes in vain\n",
                  (unsigned long long)on.a.right, (unsigned long long)on.a.chosen,
                  (unsigned long long)on.a.wasted_bytes);
    assert_string_equal(on.receipt, off.receipt);
    assert_string_equal(all.receipt, off.receipt);
    assert_int_equal(on.a.right, again.a.right);
    assert_int_equal(on.a.right, all.a.right);
    assert_true(on.a.right * 2 > on.a.chosen); /* by chance it were one in twelve */
    assert_true(on.a.right < on.a.chosen);
    assert_true(on.a.moved <= on.a.right);
    assert_true(on.a.wasted_bytes % EXPERT == 0);
    assert_true(on.a.wasted_bytes / EXPERT <= on.a.guessed - on.a.right);
    assert_true(on.a.on && !on.a.why);
    assert_int_equal(off.a.layers, 0);
    assert_string_equal(off.a.why, "it was turned off");
}

static void test_not(void **state)
{
    (void)state;
    struct rig_opts o = {
        .model = model_dir, .prefetch = INFER_PREFETCH_ON, .ram = 2 * 4 * EXPERT - 1};
    struct outcome out;
    go(&o, &out); /* a guess would push out what is needed */
    assert_int_equal(out.a.layers, 0);
    assert_non_null(strstr(out.a.why, "RAM budget"));
    o.ram = 1u << 30;
    o.no_spine = true; /* the next router is not there yet */
    go(&o, &out);
    assert_int_equal(out.a.layers, 0);
}

static void test_times(void **state)
{
    (void)state;
    static const enum infer_prefetch modes[] = {INFER_PREFETCH_AUTO, INFER_PREFETCH_OFF,
                                                INFER_PREFETCH_ON};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct rig_opts o = {.model = model_dir, .prefetch = modes[i], .ram = 20 * EXPERT};
        struct outcome out;
        go(&o, &out);
        assert_int_equal(parts(&out.t), out.t.wall_ns); /* of one thread, one after the other */
        assert_true(out.t.compute_ns > 0 && out.t.ram_ns > 0 && out.t.disk_ns > 0);
        assert_int_equal(out.t.peers_ns + out.t.origin_ns + out.t.stall_ns, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_not),
        cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
