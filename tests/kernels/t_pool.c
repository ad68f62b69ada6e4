/* SPDX-License-Identifier: MIT
 * t_pool.c: the pool runs every unit exactly once, in ranges that respect the grain, for any number
 * of threads, also when workers sleep in between; the floating-point environment of workers and
 * caller; a backend used by different threads one after the other. */
#include "kernels/kt.h"

#include "kernels/fpenv.h"
#include "kernels/pool.h"

#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define UNITS 5000

struct job {
    unsigned char seen[UNITS]; /* not atomic: a unit run twice at once is a race that TSan sees */
    size_t n, grain;
    unsigned threads;
    atomic_bool bad;
};

static void visit(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct job *j = ctx;
    if (begin >= end || end > j->n || worker >= j->threads ||
        (end != j->n && end - begin < j->grain)) {
        atomic_store(&j->bad, true);
        return;
    }
    for (size_t i = begin; i < end; i++) {
        j->seen[i]++;
    }
}

static void check_job(struct kern_pool *p, size_t n, size_t grain)
{
    struct job j = {.n = n, .grain = grain, .threads = kern_pool_threads(p)};
    kern_pool_run(p, n, grain, visit, &j);
    assert_false(atomic_load(&j.bad));
    for (size_t i = 0; i < UNITS; i++) {
        assert_int_equal(j.seen[i], i < n);
    }
}

static void test_every_unit_once(void **state)
{
    static const unsigned threads[] = {1, 2, 3, 8, 64};
    for (size_t t = 0; t < 5; t++) {
        struct kern_pool *p = kern_pool_open(threads[t], false);
        assert_non_null(p);
        assert_int_equal(kern_pool_threads(p), threads[t]);
        for (size_t n = 0; n < 300; n++) {
            check_job(p, n, 1 + n % 7);
        }
        check_job(p, UNITS, 1);
        check_job(p, UNITS, 999);
        check_job(p, UNITS, 10000);
        kern_pool_close(p);
    }
}

static void add_one(void *ctx, size_t begin, size_t end, unsigned worker)
{
    uint32_t *a = ctx;
    for (size_t i = begin; i < end; i++) {
        a[i]++;
    }
}

/* Effects of one run are seen by the next, however the units move between threads. */
static void test_order(void **state)
{
    struct kern_pool *p = kern_pool_open(4, false);
    assert_non_null(p);
    uint32_t a[97] = {0};
    for (unsigned i = 0; i < 20000; i++) {
        kern_pool_run(p, 97 - i % 5, 1, add_one, a);
        assert_int_equal(a[0], i + 1);
    }
    assert_int_equal(a[92], 20000);
    assert_int_equal(a[96], 4000);
    kern_pool_close(p);
}

/* Long pauses put the workers to sleep; the next run must still finish. */
static void test_sleepers(void **state)
{
    struct kern_pool *p = kern_pool_open(3, false);
    assert_non_null(p);
    struct timespec pause = {0, 2000000};
    for (int i = 0; i < 40; i++) {
        nanosleep(&pause, NULL);
        check_job(p, 100, 1);
    }
    kern_pool_close(p);
}

static void test_open_close(void **state)
{
    for (int i = 0; i < 50; i++) {
        struct kern_pool *p = kern_pool_open(1 + i % 9, false);
        assert_non_null(p);
        if (i % 2) {
            check_job(p, 50, 1);
        }
        kern_pool_close(p);
    }
    kern_pool_close(NULL);
    assert_null(kern_pool_open(KERN_POOL_MAX + 1, false));
    assert_true(kern_pool_cores() >= 1 && kern_pool_cores() <= KERN_POOL_MAX);
}

struct flush_job {
    volatile float tiny;
    atomic_uint kept, zero;
};

static void halve(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct flush_job *j = ctx;
    volatile float half = 0.5f;
    for (size_t i = begin; i < end; i++) {
        volatile float y = j->tiny * half;
        uint32_t u;
        float v = y;
        memcpy(&u, &v, sizeof u);
        atomic_fetch_add(u ? &j->kept : &j->zero, 1);
        struct timespec pause = {0, 100000}; /* lets every worker have some */
        nanosleep(&pause, NULL);
    }
}

static void test_environment(void **state)
{
    for (int flush = 0; flush < 2; flush++) {
        struct kern_pool *p = kern_pool_open(4, flush);
        assert_non_null(p);
        struct flush_job j = {.tiny = 0x1p-126f};
        uint64_t mode = kern_fpenv_enter(flush);
        kern_pool_run(p, 200, 1, halve, &j);
        kern_fpenv_leave(mode);
        assert_int_equal(atomic_load(&j.zero), flush ? 200 : 0);
        assert_int_equal(atomic_load(&j.kept), flush ? 0 : 200);
        kern_pool_close(p);
    }
}

/* A caller in another rounding mode gets the same bits and its mode back. */
static void test_caller_mode(void **state)
{
    struct kern_cpu_opts o = {.isa = KERN_ISA_AUTO, .threads = 2, .split_small = true};
    struct kern_backend *b;
    assert_int_equal(kern_cpu_open(&o, &b), 0);
    struct kern_buf *buf = b->alloc(b, 3 * 1000 * 4);
    assert_non_null(buf);
    float *a = buf->host, want[1000];
    for (int i = 0; i < 2000; i++) {
        a[i] = 1.0f / (float)(i + 3);
    }
    struct kern_cmd c = {.op = KERN_ADD};
    c.u.add.a = kern_at(buf, 0);
    c.u.add.b = kern_at(buf, 4000);
    c.u.add.y = kern_at(buf, 8000);
    c.u.add.n = 1000;
    uint64_t fence;
    assert_int_equal(b->submit(b, &c, 1, &fence), 0);
    memcpy(want, a + 2000, sizeof want);
    assert_int_equal(fesetround(FE_DOWNWARD), 0);
    int r = b->submit(b, &c, 1, &fence);
    int mode = fegetround();
    fesetround(FE_TONEAREST);
    assert_int_equal(r, 0);
    assert_int_equal(mode, FE_DOWNWARD);
    assert_memory_equal(want, a + 2000, sizeof want);
    b->free(b, buf);
    b->close(b);
}

static void *use(void *arg)
{
    struct kern_backend *b = arg;
    struct kern_buf *buf = b->alloc(b, 4096);
    float *a = buf->host;
    for (int i = 0; i < 1024; i++) {
        a[i] = i % 512 ? (float)i : 0.0f;
    }
    struct kern_cmd c = {.op = KERN_ADD};
    c.u.add.a = kern_at(buf, 0);
    c.u.add.b = kern_at(buf, 2048);
    c.u.add.y = kern_at(buf, 0);
    c.u.add.n = 512;
    uint64_t fence = 0;
    int r = b->submit(b, &c, 1, &fence);
    r = r ? r : b->wait(b, fence);
    bool good = !r && a[1] == 514.0f && a[511] == 1534.0f;
    b->free(b, buf);
    return good ? b : NULL;
}

static void test_threads_take_turns(void **state)
{
    struct kern_cpu_opts o = {.threads = 3, .split_small = true};
    struct kern_backend *b;
    assert_int_equal(kern_cpu_open(&o, &b), 0);
    for (int i = 0; i < 10; i++) {
        pthread_t t;
        void *got = NULL;
        assert_int_equal(pthread_create(&t, NULL, use, b), 0);
        assert_int_equal(pthread_join(t, &got), 0);
        assert_ptr_equal(got, b);
        assert_ptr_equal(use(b), b);
    }
    b->close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_unit_once),    cmocka_unit_test(test_order),
        cmocka_unit_test(test_sleepers),           cmocka_unit_test(test_open_close),
        cmocka_unit_test(test_environment),        cmocka_unit_test(test_caller_mode),
        cmocka_unit_test(test_threads_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
