/* SPDX-License-Identifier: MIT
 * t_kbench.c: the benchmark of the matrix products reports sane numbers in both forms; no speed is
 * asserted here (a small matrix in a busy machine proves nothing). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/bench.h"
#include "kernels/isa.h"

static const struct kern_bench_opts small = {
    .isa = KERN_ISA_AUTO, .threads = 2, .seconds = 0, .memory = 1, .only = "mxfp4"};

struct seen {
    unsigned n;
    uint32_t T[8];
};

static void look(void *ctx, const struct kern_bench_result *r)
{
    struct seen *s = ctx;
    assert_true(s->n < 8);
    s->T[s->n++] = r->T;
    assert_string_equal(r->name, "mxfp4 experts");
    assert_int_equal(r->type, KERN_MXFP4);
    assert_int_equal(r->matrices, 3);
    assert_int_equal(r->rows % 32, 0);
    assert_true(r->rows > 0);
    assert_int_equal(r->bytes, (size_t)r->matrices * r->rows * r->cols / 32 * 17);
    assert_true(r->bytes <= (size_t)1 << 20);
    assert_true(r->samples >= 9);
    assert_true(isfinite(r->gbs) && r->gbs > 0);
    assert_true(isfinite(r->read_gbs) && r->read_gbs > 0);
    assert_true(isfinite(r->share) && r->share > 0);
    assert_true(isfinite(r->fma_share) && r->fma_share >= 0);
}

static void test_results(void **state)
{
    struct seen s = {0};
    assert_int_equal(kern_bench_each(&small, look, &s), 0);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.T[0], 1);
    assert_int_equal(s.T[1], 16);
}

static char *output(bool json)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    struct kern_bench_opts o = small;
    o.only = "f32";
    assert_int_equal(kern_bench(f, json, &o), 0);
    fclose(f);
    return text;
}

static void test_json(void **state)
{
    char *text = output(true);
    enum kern_isa isa;
    assert_int_equal(kern_isa_resolve(KERN_ISA_AUTO, &isa), 0);
    char head[64];
    snprintf(head, sizeof head,
             "{\"isa\":\"%s\",\"threads\":2,\"products\":[{\"name\":", kern_isa_name(isa));
    assert_int_equal(strncmp(text, head, strlen(head)), 0);
    assert_non_null(strstr(text, "\"tokens\":1,"));
    assert_non_null(strstr(text, "},{\"name\":"));
    assert_non_null(strstr(text, "\"tokens\":16,"));
    assert_string_equal(text + strlen(text) - 4, "}]}\n");
    free(text);
}

static void test_table(void **state)
{
    char *text = output(false);
    assert_non_null(strstr(text, "2 threads"));
    assert_non_null(strstr(text, "\nf32 12288x7168 "));
    free(text);
}

static void test_absent_isa(void **state)
{
    struct kern_bench_opts o = small;
    o.isa = kern_isa_available(KERN_ISA_NEON) ? KERN_ISA_AVX2 : KERN_ISA_NEON;
    assert_int_equal(kern_bench_each(&o, look, NULL), KERN_ENOTSUP);
    assert_int_equal(kern_bench(stdout, true, &o), KERN_ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_absent_isa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
