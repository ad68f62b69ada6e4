/* SPDX-License-Identifier: MIT
 * t_compute.c: what computes, by option, by what the GPU's self-test finds, and by what of it is
 * remembered. */
#include "node/compute/compute.h"
#include "node/compute/code.h"
#include "node/compute/tested.h"

#include "proto/base/file.h"
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

static char folder[] = "/tmp/t-compute-XXXXXX", said[4096];
static struct fake_opts fake = {.sabotage = -1};
static unsigned opened;

static void hear(void *ctx, const char *line)
{
    (void)ctx;
    size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%s\n", line);
}

static int device(void *ctx, struct sh_device **out, char *why, size_t size)
{
    (void)ctx;
    opened++;
    *out = fake_open(&fake);
    return *out ? 0 : KERN_ENOMEM;
}

static int no_device(void *ctx, struct sh_device **out, char *why, size_t size)
{
    (void)ctx;
    *out = NULL;
    snprintf(why, size, "it does not take kernel kda");
    return KERN_ENOTSUP;
}

static struct compute_setup setup(enum compute_choice choice)
{
    said[0] = 0;
    return (struct compute_setup){.choice = choice,
                                  .cpu = {.threads = 1},
                                  .folder = folder,
                                  .program = "shoal 1",
                                  .device = device,
                                  .say = hear};
}

static struct code code; /* the compiled kernels of the fake, kept in the folder */
static const struct tested_key key = {"fake", "test 1", "shoal 1", code.from};

/* What the fake's kernels are compiled to stays in the folder; that is t_code's subject. */
static int compile(void **state)
{
    const struct code_setup o = {.folder = folder, .program = "shoal 1"};
    struct sh_device *d = fake_open(&fake);
    char why[200];
    int rc = d ? code_ready(d, &o, &code, why, sizeof why) : KERN_ENOMEM;
    if (d) {
        d->close(d);
    }
    return rc || !code.from[0];
}

static void forget(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/gpu", folder);
    unlink(path);
}

static int remove_kernels(void)
{
    char cmd[80];
    snprintf(cmd, sizeof cmd, "rm -rf %s/kernels", folder);
    return system(cmd);
}

static void remember(const struct tested *t)
{
    assert_int_equal(tested_write(folder, &key, t, NULL), 0);
}

static void opens(const struct compute_setup *o, bool gpu, struct compute_report *r)
{
    static char name[64];
    struct compute *c;
    struct err e = {0};
    if (compute_open(o, &c, &e)) {
        fail_msg("%s", e.msg);
    }
    compute_report(c, r);
    assert_int_equal(r->gpu, gpu);
    assert_string_equal(r->name, compute_backend(c)->name);
    assert_int_equal(compute_limit(c), r->limit);
    snprintf(name, sizeof name, "%s", r->name);
    r->name = name;
    compute_close(c);
}

static void by_option(void **state)
{
    struct compute_setup o = setup(COMPUTE_CPU);
    struct compute_report r;
    struct compute *c;
    struct err e = {0};
    struct tested good = {.done = true, .begun = 1};
    remember(&good);
    opened = 0;
    opens(&o, false, &r);
    assert_string_equal(r.why, "--backend cpu");
    o = setup(COMPUTE_AUTO);
    o.cpu.isa = KERN_ISA_SCALAR; /* who asks for an instruction set means the CPU */
    opens(&o, false, &r);
    assert_string_equal(r.name, "cpu/scalar");
    assert_int_equal(opened, 0);
    o = setup(COMPUTE_AUTO);
    opens(&o, true, &r);
    assert_string_equal(r.name, "fake");
    assert_int_equal(r.limit, 1u << 30);
    assert_string_equal(r.why, "");
    assert_string_equal(r.on_cpu, "");
    assert_string_equal(said, "");
    o.device = no_device;
    opens(&o, false, &r);
    assert_string_equal(r.why, "it does not take kernel kda");
    o.choice = COMPUTE_GPU;
    assert_int_equal(compute_open(&o, &c, &e), ERR_UNSUPPORTED);
    assert_null(c);
    assert_non_null(strstr(e.msg, "it does not take kernel kda"));
#ifndef __APPLE__
    o.device = NULL; /* this machine's */
    assert_int_equal(compute_open(&o, &c, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "uses no GPU"));
#endif
    forget();
}

/* The self-test itself, once; then it is remembered as long as nothing changes. */
static void self_test(void **state)
{
    struct compute_setup o = setup(COMPUTE_AUTO);
    struct compute_report r;
    struct tested t;
    fake.sabotage = SH_kda;
    fake.in_buffer = 7;
    forget();
    opens(&o, true, &r);
    assert_false(r.remembered);
    assert_string_equal(r.on_cpu, "kda");
    assert_non_null(strstr(said, "kernel kda"));
    assert_true(tested_read(folder, &key, &t));
    assert_true(t.done && t.broken[SH_kda]);
    fake.sabotage = -1; /* what is remembered counts */
    o = setup(COMPUTE_GPU);
    opens(&o, true, &r);
    assert_true(r.remembered);
    assert_string_equal(r.on_cpu, "kda");
    assert_non_null(strstr(said, "kda")); /* named at each start */
    forget();
}

static void what_it_holds_for(void **state)
{
    struct tested t = {.done = true, .begun = 1}, got;
    struct tested_key k = key;
    t.broken[SH_router] = t.broken[SH_product_bf16_1] = true;
    remember(&t);
    assert_true(tested_read(folder, &k, &got));
    assert_memory_equal(got.broken, t.broken, sizeof t.broken);
    k.gpu = "another";
    assert_false(tested_read(folder, &k, &got));
    k = key;
    k.system = "test 2";
    assert_false(tested_read(folder, &k, &got));
    k = key;
    k.program = "shoal 2";
    assert_false(tested_read(folder, &k, &got));
    k = key;
    k.code = "";
    assert_false(tested_read(folder, &k, &got));
    /* files that make no sense, and those of a program with other kernels */
    static const char *const bad[] = {
        "", "{", "[]", "{\"gpu\":\"fake\",\"system\":\"test 1\",\"program\":\"shoal 1\"}"};
    /* the rest of an object that begins as it should */
    static const char *const rest[] = {"", ",\"begun\":-1", ",\"begun\":1,\"broken\":[3]",
                                       ",\"begun\":1,\"broken\":[\"nobody\"]"};
    char path[64];
    snprintf(path, sizeof path, "%s/gpu", folder);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(file_write_atomic(path, bad[i], strlen(bad[i]), 0644, NULL), 0);
        assert_false(tested_read(folder, &key, &got));
    }
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        char text[300];
        snprintf(
            text, sizeof text,
            "{\"gpu\":\"fake\",\"system\":\"test 1\",\"program\":\"shoal 1\",\"code\":\"%s\"%s}",
            key.code, rest[i]);
        assert_int_equal(file_write_atomic(path, text, strlen(text), 0644, NULL), 0);
        assert_false(tested_read(folder, &key, &got));
    }
    forget();
}

/* A product that differs: auto takes the CPU, who asks for the GPU gets it with the fallback. */
static void products(void **state)
{
    struct tested t = {.done = true, .begun = 1};
    struct compute_setup o = setup(COMPUTE_AUTO);
    struct compute_report r;
    t.broken[SH_product_mxfp4_4] = true;
    remember(&t);
    opens(&o, false, &r);
    assert_non_null(strstr(r.why, "product_mxfp4_4"));
    assert_int_equal(r.limit, 0);
    o = setup(COMPUTE_GPU);
    opens(&o, true, &r);
    assert_string_equal(r.on_cpu, "product_mxfp4_4");
    forget();
}

/* A GPU that takes the process down in the self-test is not tried for ever. */
static void never_ends(void **state)
{
    struct tested t = {.begun = TESTED_TRIES};
    struct compute_setup o = setup(COMPUTE_AUTO);
    struct compute_report r;
    remember(&t);
    opens(&o, false, &r);
    assert_non_null(strstr(r.why, "did not come to an end 2 times"));
    assert_string_equal(said, "");
    /* it fails rather than ends: nothing good is remembered */
    fake.fail_batch = 2;
    o = setup(COMPUTE_GPU);
    struct compute *c;
    struct err e = {0};
    assert_int_equal(compute_open(&o, &c, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(said, "batch 2"));
    assert_true(tested_read(folder, &key, &t));
    assert_true(!t.done && t.begun == TESTED_TRIES + 1);
    fake.fail_batch = 0;
    forget();
}

/* Kernels that are whole and taken, and compute something else than those that were tested: what is
 * remembered does not hold for them. */
static void other_code(void **state)
{
    struct compute_setup o = setup(COMPUTE_AUTO);
    struct compute_report r;
    struct tested good = {.done = true, .begun = 1};
    remember(&good);
    opens(&o, true, &r);
    assert_true(r.kept_code && r.remembered);
    assert_string_equal(r.on_cpu, "");
    assert_int_equal(remove_kernels(), 0);
    fake.wrong_code = SH_kda;
    fake.in_buffer = 7;
    o = setup(COMPUTE_AUTO);
    opens(&o, true, &r);
    assert_true(!r.kept_code && !r.remembered);
    assert_string_equal(r.on_cpu, "kda");
    fake.wrong_code = 0;
    opens(&o, true, &r);
    assert_true(r.kept_code && r.remembered);
    assert_string_equal(r.on_cpu, "kda");
    assert_int_equal(remove_kernels(), 0);
    forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_option),         cmocka_unit_test(self_test),
        cmocka_unit_test(what_it_holds_for), cmocka_unit_test(products),
        cmocka_unit_test(never_ends),        cmocka_unit_test(other_code)};
    if (!emu_usable()) {
        printf("this processor lacks what the emulation was compiled for: not run\n");
        return 0;
    }
    if (!mkdtemp(folder)) {
        return 1;
    }
    int r = cmocka_run_group_tests(tests, compile, NULL);
    rmdir(folder);
    return r;
}
