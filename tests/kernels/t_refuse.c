/* SPDX-License-Identifier: MIT
 * t_refuse.c: impossible operands are refused before anything runs; options and instruction sets;
 * the properties of buffers. */
#include "kernels/kt.h"

#include <unistd.h>

static struct kern_backend *b;
static struct kern_buf *buf, *other;
#define SIZE 65536

static int submit(const struct kern_cmd *c)
{
    uint64_t fence = 0;
    return b->submit(b, c, 1, &fence);
}

static struct kern_ref at(size_t floats)
{
    return kern_at(buf, floats * 4);
}

static struct kern_cmd add_cmd(void)
{
    struct kern_cmd c = {.op = KERN_ADD};
    c.u.add.a = at(0);
    c.u.add.b = at(100);
    c.u.add.y = at(200);
    c.u.add.n = 100;
    return c;
}

#define REFUSED(change)                            \
    do {                                           \
        struct kern_cmd c = good;                  \
        change;                                    \
        assert_int_equal(submit(&c), KERN_EINVAL); \
    } while (0)
#define TAKEN(change)                    \
    do {                                 \
        struct kern_cmd c = good;        \
        change;                          \
        assert_int_equal(submit(&c), 0); \
    } while (0)

static void test_ranges(void **state)
{
    struct kern_cmd good = add_cmd();
    TAKEN((void)0);
    REFUSED(c.op = (enum kern_op)99);
    REFUSED(c.u.add.a.buf = NULL);
    REFUSED(c.u.add.y.buf = NULL);
    REFUSED(c.u.add.n = 0);
    REFUSED(c.u.add.a.off = 2);
    REFUSED(c.u.add.a.off = SIZE);
    REFUSED(c.u.add.a.off = SIZE - 396);
    TAKEN(c.u.add.a.off = SIZE - 400);
    REFUSED(c.u.add.a.off = SIZE_MAX - 3);
    REFUSED(c.u.add.n = UINT32_MAX);
}

static void test_overlap(void **state)
{
    struct kern_cmd good = add_cmd();
    TAKEN(c.u.add.y = c.u.add.a);
    TAKEN(c.u.add.y = c.u.add.b);
    TAKEN(c.u.add.b = c.u.add.a);
    REFUSED(c.u.add.y.off = 4);
    REFUSED(c.u.add.y.off = 99 * 4);
    TAKEN(c.u.add.y = kern_at(other, 0));

    struct kern_cmd n = {.op = KERN_RMSNORM};
    n.u.rmsnorm.x = at(0);
    n.u.rmsnorm.y = at(10);
    n.u.rmsnorm.w = (struct kern_vec){KERN_F32, at(8000)};
    n.u.rmsnorm.xstride = n.u.rmsnorm.ystride = 20;
    n.u.rmsnorm.n = 10;
    n.u.rmsnorm.T = 5;
    good = n; /* columns of one array */
    TAKEN((void)0);
    REFUSED(c.u.rmsnorm.y = at(9));
    REFUSED(c.u.rmsnorm.y = at(11));
    REFUSED(c.u.rmsnorm.ystride = 21);
    REFUSED(c.u.rmsnorm.xstride = 9);
    REFUSED(c.u.rmsnorm.w.type = KERN_I8);
    REFUSED(c.u.rmsnorm.w.data = at(15));
    TAKEN(c.u.rmsnorm.y = c.u.rmsnorm.x);
    REFUSED(c.u.rmsnorm.T = 0);
    REFUSED(c.u.rmsnorm.T = UINT32_MAX);
    REFUSED(c.u.rmsnorm.T = c.u.rmsnorm.xstride = c.u.rmsnorm.ystride = UINT32_MAX);
}

static void test_matmul(void **state)
{
    struct kern_cmd good = {.op = KERN_MATMUL};
    good.u.matmul.w = (struct kern_mat){KERN_MXFP4, 8, 33, at(0), at(1000)};
    good.u.matmul.x = at(2000);
    good.u.matmul.y = at(12000);
    good.u.matmul.xstride = 33;
    good.u.matmul.ystride = 8;
    good.u.matmul.T = 3;
    TAKEN((void)0);
    REFUSED(c.u.matmul.T = 0);
    REFUSED(c.u.matmul.w.cols = 0);
    REFUSED(c.u.matmul.w.rows = 0);
    REFUSED(c.u.matmul.w.scale.buf = NULL);
    REFUSED(c.u.matmul.w.type = (enum kern_type)7);
    REFUSED(c.u.matmul.w.rows = UINT32_MAX);
    REFUSED(c.u.matmul.w.scale = kern_at(buf, SIZE - 15)); /* 8 rows of 2 scales */
    TAKEN(c.u.matmul.w.scale = kern_at(buf, SIZE - 16));
    REFUSED(c.u.matmul.w.data = kern_at(buf, SIZE - 8 * 17 + 1));
    TAKEN(c.u.matmul.w.data = kern_at(buf, SIZE - 8 * 17));
    REFUSED(c.u.matmul.y = at(1000));
    REFUSED(c.u.matmul.xstride = 32);
    uint32_t *map = (uint32_t *)other->host;
    map[0] = 0;
    map[1] = 200; /* row 200 of x begins at 2000 + 6600 */
    map[2] = 1;
    TAKEN(c.u.matmul.xmap = kern_at(other, 0));
    map[1] = 1000000;
    REFUSED(c.u.matmul.xmap = kern_at(other, 0));
    REFUSED(c.u.matmul.ymap = kern_at(other, 0));
    map[1] = UINT32_MAX;
    REFUSED(c.u.matmul.xmap = kern_at(other, 0));
    REFUSED(c.u.matmul.xmap = kern_at(other, other->size - 8));
}

static void test_others(void **state)
{
    struct kern_cmd good = {.op = KERN_CONV};
    good.u.conv.x = at(0);
    good.u.conv.y = at(1000);
    good.u.conv.w = at(2000);
    good.u.conv.hist = at(3000);
    good.u.conv.xstride = good.u.conv.ystride = good.u.conv.C = 20;
    good.u.conv.K = 4;
    good.u.conv.T = 3;
    TAKEN((void)0);
    REFUSED(c.u.conv.K = 0);
    REFUSED(c.u.conv.K = 65);
    REFUSED(c.u.conv.hist.buf = NULL);
    TAKEN((c.u.conv.K = 1, c.u.conv.hist.buf = NULL));
    REFUSED(c.u.conv.y = at(0));
    REFUSED(c.u.conv.hist = at(40));

    good = (struct kern_cmd){.op = KERN_ROUTER};
    good.u.router.logits = at(0);
    good.u.router.bias = at(1000);
    good.u.router.ids = at(2000);
    good.u.router.w = at(3000);
    good.u.router.E = 10;
    good.u.router.k = 10;
    good.u.router.T = 2;
    TAKEN((void)0);
    REFUSED(c.u.router.k = 11);
    REFUSED(c.u.router.k = 0);
    REFUSED(c.u.router.w = c.u.router.ids);

    good = (struct kern_cmd){.op = KERN_MLA};
    good.u.mla.q = at(0);
    good.u.mla.cache = at(1000);
    good.u.mla.o = at(5000);
    good.u.mla.kvb =
        (struct kern_mat){.type = KERN_F32, .rows = 2 * 7, .cols = 8, .data = at(6000)};
    good.u.mla.H = 2;
    good.u.mla.nope = 4;
    good.u.mla.rope = 2;
    good.u.mla.vdim = 3;
    good.u.mla.rank = 8;
    good.u.mla.T = 2;
    good.u.mla.pos0 = 5;
    TAKEN((void)0);
    TAKEN(c.u.mla.rope = 0);
    REFUSED(c.u.mla.kvb.rows = 13);
    REFUSED(c.u.mla.kvb.cols = 7);
    REFUSED(c.u.mla.kvb.type = KERN_MXFP4);
    REFUSED(c.u.mla.pos0 = UINT32_MAX);
    REFUSED(c.u.mla.o = c.u.mla.q);
    REFUSED(c.u.mla.nope = 0);

    good = (struct kern_cmd){.op = KERN_KDA};
    good.u.kda.q = good.u.kda.k = good.u.kda.v = good.u.kda.f = at(0);
    good.u.kda.b = good.u.kda.a_log = good.u.kda.dt_bias = at(100);
    good.u.kda.S = at(1000);
    good.u.kda.o = at(2000);
    good.u.kda.H = 2;
    good.u.kda.D = 4;
    good.u.kda.T = 2;
    good.u.kda.lower = -5;
    TAKEN((void)0);
    REFUSED(c.u.kda.o = at(0));
    REFUSED(c.u.kda.S = at(100));
    REFUSED(c.u.kda.S = c.u.kda.o);
    REFUSED(c.u.kda.H = c.u.kda.D = UINT32_MAX);

    good = (struct kern_cmd){.op = KERN_MIX};
    good.u.mix.bank = at(0);
    good.u.mix.p = at(1000);
    good.u.mix.s = at(2000);
    good.u.mix.y = at(3000);
    good.u.mix.bank_stride = 40;
    good.u.mix.nb = 2;
    good.u.mix.n = 20;
    good.u.mix.T = 2;
    TAKEN((void)0);
    REFUSED(c.u.mix.bank_stride = 39);
    REFUSED(c.u.mix.nb = 0);
    REFUSED(c.u.mix.bank_stride = SIZE_MAX);
    REFUSED(c.u.mix.y = c.u.mix.p);
}

/* One bad command: none of the submission runs. */
static void test_all_or_nothing(void **state)
{
    struct kern_cmd c[2] = {add_cmd(), add_cmd()};
    c[1].u.add.n = 0;
    float *y = (float *)buf->host + 200;
    y[0] = 123;
    uint64_t fence = 0;
    assert_int_equal(b->submit(b, c, 2, &fence), KERN_EINVAL);
    assert_true(y[0] == 123);
    assert_int_equal(b->submit(b, c, 1, &fence), 0);
    assert_int_equal(b->wait(b, fence), 0);
    assert_true(y[0] != 123);
    assert_int_equal(b->wait(b, fence + 1), KERN_EINVAL);
    assert_int_equal(b->submit(b, c, 0, &fence), 0);
}

static void test_buffers(void **state)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 100000, ((size_t)8 << 20) + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct kern_buf *x = b->alloc(b, sizes[i]);
        assert_non_null(x);
        assert_int_equal(x->size, sizes[i]);
        assert_int_equal((uintptr_t)x->host % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(((char *)x->host)[j], 0);
        }
        if (sizes[i]) {
            memset(x->host, 1, sizes[i]);
        }
        b->free(b, x);
    }
    b->free(b, NULL);
    assert_null(b->alloc(b, SIZE_MAX));
}

static void test_options(void **state)
{
    struct kern_backend *x;
    struct kern_cpu_opts o = {.threads = 65};
    assert_int_equal(kern_cpu_open(&o, &x), KERN_EINVAL);
    assert_null(x);
    assert_true(kern_isa_available(KERN_ISA_SCALAR) && kern_isa_available(KERN_ISA_AUTO));
    assert_false(kern_isa_available(KERN_ISA_AVX2) && kern_isa_available(KERN_ISA_NEON));
    for (int i = KERN_ISA_AUTO; i <= KERN_ISA_NEON; i++) {
        enum kern_isa back, isa = (enum kern_isa)i;
        assert_true(kern_isa_parse(kern_isa_name(isa), &back));
        assert_int_equal(back, isa);
        o = (struct kern_cpu_opts){.isa = isa, .threads = 1};
        int r = kern_cpu_open(&o, &x);
        assert_int_equal(r, kern_isa_available(isa) ? 0 : KERN_ENOTSUP);
        if (!r) {
            char name[32];
            snprintf(name, sizeof name, "cpu/%s", kern_isa_name(isa));
            assert_true(isa == KERN_ISA_AUTO || !strcmp(x->name, name));
            x->close(x);
        }
    }
    enum kern_isa isa;
    assert_false(kern_isa_parse("avx", &isa));
    assert_false(kern_isa_parse("", &isa));
    o = (struct kern_cpu_opts){.isa = KERN_ISA_AUTO};
    assert_int_equal(kern_cpu_open(&o, &x), 0);
    assert_true(x->threads >= 1);
    x->close(x);
}

static int setup(void **state)
{
    struct kern_cpu_opts o = {.threads = 2};
    if (kern_cpu_open(&o, &b)) {
        return -1;
    }
    buf = b->alloc(b, SIZE);
    other = b->alloc(b, 4096);
    return buf && other ? 0 : -1;
}

static int teardown(void **state)
{
    b->free(b, buf);
    b->free(b, other);
    b->close(b);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),         cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_matmul),         cmocka_unit_test(test_others),
        cmocka_unit_test(test_all_or_nothing), cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
