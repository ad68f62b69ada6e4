/* SPDX-License-Identifier: MIT
 * t_shaders.c: the shaders in K3's shapes with fewer rows and heads, against kernels/ scalar, bit
 * for bit: three moods, both orders, flushing on and off; argmax against its plain loop; which
 * sizes are refused. */
#include "shaders/cases.h"

#include "kernels/cpu.h"
#include "tests/shaders/emu_backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct case_scale small = {.rows = 101, .heads = 10, .positions = 39};

static const struct emu_opts emus[] = {
    {.reverse = false},
    {.reverse = true, .plan = {.max_scores = 3000}},
    {.flush = true},
    {.plan = {.plain = true}},
};
#define EMUS (sizeof emus / sizeof *emus)

static struct kern_backend *scalar;

static void run(struct kern_backend *b, const struct kern_cmd *c, const char *name)
{
    uint64_t fence;
    int rc = b->submit(b, c, 1, &fence);
    if (rc) {
        fail_msg("%s on %s: %d", name, b->name, rc);
    }
    assert_int_equal(b->wait(b, fence), 0);
}

static void one_case(size_t i, enum case_mood mood)
{
    size_t size = case_arena(i, &small);
    struct kern_buf *buf = scalar->alloc(scalar, size);
    uint8_t *before = malloc(size), *want = malloc(size);
    struct case_built c;
    assert_true(buf && before && want);
    case_build(i, &small, mood, buf, &c);
    memcpy(before, buf->host, size);
    run(scalar, &c.cmd, c.name);
    memcpy(want, buf->host, size);
    for (size_t e = 0; e < EMUS; e++) {
        if (emus[e].flush && mood == CASE_HOSTILE) {
            continue;
        }
        memcpy(buf->host, before, size);
        struct kern_backend *b = emu_open(&emus[e]);
        assert_non_null(b);
        run(b, &c.cmd, c.name);
        size_t at = case_compare(&c, want, buf->host);
        if (at != SIZE_MAX) {
            uint32_t w, g;
            memcpy(&w, want + at, 4);
            memcpy(&g, (uint8_t *)buf->host + at, 4);
            fail_msg("%s, mood %d, emulation %zu: byte %zu is %08x, scalar has %08x", c.name,
                     (int)mood, e, at, g, w);
        }
        b->close(b);
    }
    scalar->free(scalar, buf);
    free(before);
    free(want);
}

static void shapes(void **state)
{
    for (size_t i = 0; i < case_count(); i++) {
        for (int mood = CASE_TAME; mood <= CASE_HOSTILE; mood++) {
            one_case(i, (enum case_mood)mood);
        }
    }
}

/* ---- rows longer than what a kernel holds at a time ---- */

#define LONG 9001 /* above SH_NORM_STAGE and twice SH_STAGE */

static void same_in_all(const struct kern_cmd *c, struct kern_buf *buf, size_t size, size_t out,
                        size_t bytes, const char *name)
{
    uint8_t *before = malloc(size), *want = malloc(size);
    assert_true(before && want);
    memcpy(before, buf->host, size);
    run(scalar, c, name);
    memcpy(want, buf->host, size);
    for (size_t e = 0; e < 2; e++) {
        struct kern_backend *b = emu_open(&emus[e]);
        assert_non_null(b);
        memcpy(buf->host, before, size);
        run(b, c, name);
        assert_memory_equal((uint8_t *)buf->host + out, want + out, bytes);
        b->close(b);
    }
    free(before);
    free(want);
}

static void long_rows(void **state)
{
    size_t size = (size_t)8 * LONG * 4;
    struct kern_buf *buf = scalar->alloc(scalar, size);
    assert_non_null(buf);
    float *p = buf->host;
    uint32_t rng = 5;
    for (size_t i = 0; i < size / 4; i++) {
        rng = rng * 1664525u + 1013904223u;
        p[i] = (float)(rng >> 8) * 0x1p-23f - 1.0f;
    }
    struct kern_cmd c = {.op = KERN_RMSNORM};
    c.u.rmsnorm.x = kern_at(buf, 0);
    c.u.rmsnorm.w = (struct kern_vec){KERN_F32, kern_at(buf, 2 * LONG * 4)};
    c.u.rmsnorm.y = kern_at(buf, 3 * LONG * 4);
    c.u.rmsnorm.xstride = c.u.rmsnorm.ystride = c.u.rmsnorm.n = LONG;
    c.u.rmsnorm.T = 2;
    c.u.rmsnorm.eps = 1e-5f;
    same_in_all(&c, buf, size, 3 * LONG * 4, 2 * LONG * 4, "a long rmsnorm");

    c = (struct kern_cmd){.op = KERN_MLA};
    c.u.mla.q = kern_at(buf, 0);
    c.u.mla.cache = kern_at(buf, 400);
    c.u.mla.kvb = (struct kern_mat){KERN_F32, 16, 3, kern_at(buf, 100), {NULL, 0}};
    c.u.mla.o = kern_at(buf, 7 * LONG * 4);
    c.u.mla.H = 2;
    c.u.mla.nope = 5;
    c.u.mla.vdim = 3;
    c.u.mla.rank = 3;
    c.u.mla.rope = 1;
    c.u.mla.T = 1;
    c.u.mla.pos0 = LONG - 1;
    same_in_all(&c, buf, size, 7 * LONG * 4, 2 * 3 * 4, "a long attention");
    scalar->free(scalar, buf);
}

/* ---- argmax ---- */

#define MOST 20001

static uint32_t plain_argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (x[i] > x[best]) {
            best = i;
        }
    }
    return best;
}

static void one_argmax(struct kern_buf *x, uint32_t n)
{
    float *p = x->host;
    for (int reverse = 0; reverse < 2; reverse++) {
        struct emu_opts o = {.reverse = reverse};
        struct kern_buf scratch = {.size = sh_argmax_scratch(n, 2)};
        uint32_t id[2] = {1, 1};
        float value[2];
        struct kern_buf ids = {id, sizeof id, NULL}, values = {value, sizeof value, NULL};
        scratch.host = malloc(scratch.size);
        assert_non_null(scratch.host);
        memset(scratch.host, 0xff, scratch.size);
        assert_int_equal(sh_plan_argmax(kern_at(x, 0), n, 2, kern_at(&ids, 0), kern_at(&values, 0),
                                        &scratch, emu_launch, &o),
                         0);
        for (uint32_t t = 0; t < 2; t++) {
            uint32_t want = plain_argmax(p + (size_t)t * n, n);
            assert_int_equal(id[t], want);
            assert_true(value[t] == p[(size_t)t * n + want] || isnan(p[(size_t)t * n + want]));
        }
        free(scratch.host);
    }
}

static void argmax(void **state)
{
    static const uint32_t lengths[] = {1, 2, 31, 255, 4096, 4097, MOST};
    struct kern_buf *x = scalar->alloc(scalar, (size_t)2 * MOST * 4);
    assert_non_null(x);
    float *p = x->host;
    uint32_t rng = 1;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        uint32_t n = lengths[l];
        for (int way = 0; way < 8; way++) {
            for (uint32_t i = 0; i < 2 * n; i++) {
                rng = rng * 1664525u + 1013904223u;
                float v = (float)(rng >> 20) - 2000.0f; /* 4096 values: many ties */
                p[i] = way == 1                     ? 1.0f
                       : way == 2                   ? -INFINITY
                       : way == 3 && rng >> 30      ? NAN
                       : way == 4 && rng >> 31      ? -INFINITY
                       : way == 5 && i < n          ? NAN
                       : way == 6 && i % n == 0     ? NAN
                       : way == 7 && i % n == n - 1 ? 9999.0f
                                                    : v;
            }
            one_argmax(x, n);
        }
    }
    scalar->free(scalar, x);
}

/* ---- limits ---- */

static int count(void *ctx, const struct sh_launch *l)
{
    int *n = ctx;
    assert_true(l->kernel < SH_KERNELS && l->threads && l->threads % 32 == 0);
    ++*n;
    return *n == 3 ? 55 : 0;
}

static void refused(void **state)
{
    size_t size = case_arena(0, &small);
    const struct sh_plan_opts o = {0};
    struct case_built c;
    int n = 0;
    for (size_t i = 0; i < case_count(); i++) {
        size = case_arena(i, &small) > size ? case_arena(i, &small) : size;
    }
    struct kern_buf *buf = scalar->alloc(scalar, size);
    assert_non_null(buf);
    for (size_t i = 0; i < case_count(); i++) {
        memset(buf->host, 0, size);
        case_build(i, &small, CASE_TAME, buf, &c);
        size_t need;
        assert_true(sh_plan_scratch(&c.cmd, &o, &need));
        n = 0;
        int rc = sh_plan(&c.cmd, &o, buf, count, &n);
        bool several = c.cmd.op == KERN_MIX || c.cmd.op == KERN_MLA;
        assert_int_equal(rc, several ? 55 : 0); /* what emit returns ends the plan */
        assert_int_equal(n, several ? 3 : 1);
        if (c.cmd.op == KERN_ADD) {
            c.cmd.u.add.n = 1u << 30;
            assert_int_equal(sh_plan(&c.cmd, &o, buf, count, &n), KERN_EINVAL);
        }
    }
    struct kern_buf vast = {buf->host, SIZE_MAX / 2, NULL};
    struct kern_cmd k = {.op = KERN_ROUTER};
    k.u.router.logits = kern_at(&vast, 0);
    k.u.router.bias = kern_at(&vast, 1 << 20);
    k.u.router.ids = kern_at(&vast, 2 << 20);
    k.u.router.w = kern_at(&vast, 3 << 20);
    k.u.router.T = 1;
    k.u.router.k = 8;
    k.u.router.E = SH_ROUTER_MAX_E;
    n = 0;
    assert_int_equal(sh_plan(&k, &o, NULL, count, &n), 0);
    k.u.router.E++;
    assert_int_equal(sh_plan(&k, &o, NULL, count, &n), KERN_ENOTSUP);
    assert_int_equal(n, 1);
    scalar->free(scalar, buf);
}

static int setup(void **state)
{
    struct kern_cpu_opts o = {.isa = KERN_ISA_SCALAR, .threads = 1};
    return kern_cpu_open(&o, &scalar);
}

static int teardown(void **state)
{
    scalar->close(scalar);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(argmax),
        cmocka_unit_test(refused),
    };
    if (!emu_usable()) {
        printf("this processor lacks what the emulation was compiled for: not run\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
