/* SPDX-License-Identifier: MIT
 * t_gpu.c: the logic of the GPU backend on a fake GPU that runs late: order, buffers freed and
 * slots refilled while commands are in flight, limits, a device that fails, the self-test and what
 * goes to the CPU after it. */
#include "shaders/gpu.h"

#include "kernels/cpu.h"
#include "tests/shaders/emu_backend.h"
#include "tests/shaders/fake.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A change of fibers is a thousand times dearer under ThreadSanitizer. */
#if defined(__SANITIZE_THREAD__)
#define SUBMISSIONS 15
#define SELFTESTS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SUBMISSIONS 15
#define SELFTESTS 0
#endif
#endif
#ifndef SUBMISSIONS
#define SUBMISSIONS 60
#define SELFTESTS 1
#endif

#define FLOATS 300
#define SLOTS 6

static struct kern_backend *scalar(void)
{
    struct kern_cpu_opts o = {.isa = KERN_ISA_SCALAR, .threads = 1};
    struct kern_backend *b;
    assert_int_equal(kern_cpu_open(&o, &b), 0);
    return b;
}

static char said[4096];

static void hear(void *ctx, const char *text)
{
    size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%s\n", text);
}

/* ---- a stream of commands, the same for any backend ---- */

struct stream {
    struct kern_backend *b;
    struct kern_buf *slot[SLOTS];
    uint64_t fence, fence_of[SLOTS]; /* the last submission that may use the slot */
    uint32_t rng;
};

static uint32_t rnd(struct stream *s)
{
    s->rng = s->rng * 1664525u + 1013904223u;
    return s->rng >> 8;
}

static void fill(struct stream *s, int i)
{
    float *p = s->slot[i]->host;
    for (int k = 0; k < FLOATS; k++) {
        p[k] = (float)(rnd(s) % 2001) / 1000.0f - 1.0f;
    }
}

static void renew(struct stream *s, int i)
{
    if (s->slot[i]) {
        s->b->free(s->b, s->slot[i]); /* commands may still be reading it */
    }
    s->slot[i] = s->b->alloc(s->b, FLOATS * 4);
    assert_non_null(s->slot[i]);
    fill(s, i);
}

static struct kern_cmd command(struct stream *s)
{
    struct kern_cmd c = {.op = KERN_ADD};
    uint32_t a = rnd(s) % SLOTS, b = (a + 1 + rnd(s) % (SLOTS - 1)) % SLOTS;
    uint32_t y = rnd(s) % 2 ? a : b;
    struct kern_ref ra = kern_at(s->slot[a], 0), rb = kern_at(s->slot[b], 0);
    struct kern_ref ry = kern_at(s->slot[y], 0);
    switch (rnd(s) % 4) {
    case 0:
        c.u.add.a = ra;
        c.u.add.b = rb;
        c.u.add.y = ry;
        c.u.add.n = FLOATS;
        break;
    case 1:
        c.op = KERN_GATE;
        c.u.gate.x = ra;
        c.u.gate.g = rb;
        c.u.gate.y = ry;
        c.u.gate.n = FLOATS;
        break;
    case 2:
        c.op = KERN_MIX; /* needs scratch */
        c.u.mix.bank = ra;
        c.u.mix.p = kern_at(s->slot[a], 600);
        c.u.mix.s = kern_at(s->slot[a], 900);
        c.u.mix.y = rb;
        c.u.mix.bank_stride = 75;
        c.u.mix.nb = 2;
        c.u.mix.n = 75;
        c.u.mix.T = 1;
        c.u.mix.eps = 1e-5f;
        break;
    default:
        c.op = KERN_RMSNORM;
        c.u.rmsnorm.x = ra;
        c.u.rmsnorm.y = ra;
        c.u.rmsnorm.w = (struct kern_vec){KERN_F32, rb};
        c.u.rmsnorm.xstride = c.u.rmsnorm.ystride = 150;
        c.u.rmsnorm.n = 150;
        c.u.rmsnorm.T = 2;
        c.u.rmsnorm.eps = 1e-5f;
    }
    return c;
}

/* After it all slots hold what the stream made of them. */
static void stream(struct stream *s, int submissions)
{
    for (int i = 0; i < SLOTS; i++) {
        renew(s, i);
    }
    for (int n = 0; n < submissions; n++) {
        struct kern_cmd c[5];
        size_t k = 1 + rnd(s) % 5;
        for (size_t i = 0; i < k; i++) {
            c[i] = command(s);
        }
        assert_int_equal(s->b->submit(s->b, c, k, &s->fence), 0);
        for (int i = 0; i < SLOTS; i++) {
            s->fence_of[i] = s->fence;
        }
        int i = (int)(rnd(s) % SLOTS);
        switch (rnd(s) % 5) {
        case 0:
            renew(s, i);
            break;
        case 1: /* the slot is filled anew once its commands are done */
            assert_int_equal(s->b->wait(s->b, s->fence_of[i]), 0);
            fill(s, i);
            break;
        default:
            break;
        }
    }
    assert_int_equal(s->b->wait(s->b, s->fence), 0);
}

static void same_as_cpu(const bool broken[SH_KERNELS], uint32_t seed, unsigned delay,
                        struct gpu_counts *counts)
{
    struct kern_backend *cpu = scalar();
    struct stream want = {.b = scalar(), .rng = seed}, got = {.rng = seed};
    struct fake_opts fo = {.delay_us = delay, .seed = seed, .sabotage = -1};
    struct gpu_opts o = {.cpu = cpu};
    memcpy(o.broken, broken, sizeof o.broken);
    struct sh_device *d = fake_open(&fo);
    assert_non_null(d);
    assert_int_equal(gpu_open(d, &o, &got.b), 0);
    stream(&want, SUBMISSIONS);
    stream(&got, SUBMISSIONS);
    for (int i = 0; i < SLOTS; i++) {
        assert_memory_equal(got.slot[i]->host, want.slot[i]->host, FLOATS * 4);
        got.b->free(got.b, got.slot[i]);
        want.b->free(want.b, want.slot[i]);
    }
    gpu_counts(got.b, counts);
    assert_int_equal(fake_faults(d), 0);
    assert_true(fake_buffers(d) <= 1); /* the scratch */
    got.b->close(got.b);
    want.b->close(want.b);
    cpu->close(cpu);
}

static void order_and_lives(void **state)
{
    const bool none[SH_KERNELS] = {false};
    struct gpu_counts c;
    for (uint32_t seed = 1; seed < 6; seed++) {
        same_as_cpu(none, seed, seed * 60, &c);
        assert_int_equal(c.on_cpu, 0);
        assert_int_equal(c.batches, SUBMISSIONS);
    }
}

static void fallback(void **state)
{
    static const enum sh_kernel one[] = {SH_add, SH_gate, SH_mix_sum, SH_rmsnorm};
    struct gpu_counts c;
    for (size_t i = 0; i < 4; i++) {
        bool broken[SH_KERNELS] = {false};
        broken[one[i]] = true;
        same_as_cpu(broken, (uint32_t)i + 20, 100, &c);
        assert_true(c.on_cpu > 1 && c.batches > SUBMISSIONS / 3);
    }
    bool all[SH_KERNELS];
    memset(all, 1, sizeof all);
    same_as_cpu(all, 30, 100, &c);
    assert_int_equal(c.batches, 0);
}

/* ---- limits and failures ---- */

static void limit(void **state)
{
    struct fake_opts fo = {.limit = 10000, .delay_us = 2000, .sabotage = -1};
    struct gpu_opts o = {0};
    struct kern_backend *b;
    struct sh_device *d = fake_open(&fo);
    assert_int_equal(gpu_open(d, &o, &b), 0);
    struct kern_buf *x = b->alloc(b, 4000), *y = b->alloc(b, 4000);
    assert_true(x && y);
    assert_null(b->alloc(b, 4000));
    assert_null(b->alloc(b, SIZE_MAX));
    struct kern_cmd c = {.op = KERN_ADD};
    c.u.add.a = c.u.add.b = kern_at(x, 0);
    c.u.add.y = kern_at(y, 0);
    c.u.add.n = 1000;
    uint64_t fence;
    assert_int_equal(b->submit(b, &c, 1, &fence), 0);
    b->free(b, x); /* in flight: its memory is not there yet, or just so */
    assert_int_equal(b->wait(b, fence), 0);
    x = b->alloc(b, 4000); /* now it is */
    assert_non_null(x);
    assert_int_equal(b->wait(b, fence + 1), KERN_EINVAL); /* never submitted */
    c.u.add.a = c.u.add.b = kern_at(x, 0);
    c.u.add.n = 1001;
    assert_int_equal(b->submit(b, &c, 1, &fence), KERN_EINVAL);
    b->free(b, x);
    b->free(b, y);
    b->free(b, NULL);
    assert_int_equal(fake_faults(d), 0);
    b->close(b);
}

static void failure(void **state)
{
    struct fake_opts fo = {.sabotage = -1, .fail_batch = 3};
    struct gpu_opts o = {.say = hear};
    struct kern_backend *b;
    assert_int_equal(gpu_open(fake_open(&fo), &o, &b), 0);
    struct kern_buf *x = b->alloc(b, 400);
    struct kern_cmd c = {.op = KERN_ADD};
    c.u.add.a = c.u.add.b = c.u.add.y = kern_at(x, 0);
    c.u.add.n = 100;
    uint64_t fence[4];
    said[0] = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(b->submit(b, &c, 1, &fence[i]), 0);
    }
    assert_int_equal(b->wait(b, fence[3]), KERN_EINVAL);
    assert_non_null(strstr(said, "batch 3"));
    assert_int_equal(b->submit(b, &c, 1, &fence[0]), KERN_EINVAL); /* nobody else can */
    b->free(b, x);
    b->close(b);
}

/* With a CPU beside it what comes after the error is computed, from what is in memory then. */
static void failure_with_cpu(void **state)
{
    struct fake_opts fo = {.sabotage = -1, .fail_batch = 3, .delay_us = 300};
    struct gpu_opts o = {.cpu = scalar(), .say = hear};
    struct gpu_counts n;
    struct kern_backend *b;
    struct sh_device *d = fake_open(&fo);
    assert_int_equal(gpu_open(d, &o, &b), 0);
    struct kern_buf *x = b->alloc(b, 400);
    struct kern_cmd c = {.op = KERN_ADD};
    c.u.add.a = c.u.add.b = c.u.add.y = kern_at(x, 0);
    c.u.add.n = 100;
    uint64_t fence[5], again;
    float *v = x->host;
    said[0] = 0;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(b->submit(b, &c, 1, &fence[i]), 0);
    }
    assert_int_equal(b->wait(b, fence[2]), KERN_EINVAL);
    assert_int_equal(fake_launches(d), 5); /* nothing comes late: all are over */
    assert_int_equal(b->done(b), fence[4]);
    assert_int_equal(b->wait(b, fence[4]), 0);
    assert_non_null(strstr(said, "the CPU does the rest"));
    for (int i = 0; i < 100; i++) {
        v[i] = (float)i;
    }
    assert_int_equal(b->submit(b, &c, 1, &again), 0);
    assert_int_equal(b->wait(b, again), 0);
    for (int i = 0; i < 100; i++) {
        assert_true(v[i] == 2 * (float)i);
    }
    gpu_counts(b, &n);
    assert_true(n.lost && n.on_cpu == 1);
    b->free(b, x);
    assert_int_equal(fake_buffers(d), 0);
    b->close(b);
    o.cpu->close(o.cpu);
}

/* Slots are filled and freed by threads of the store while others compute. */
struct filler {
    struct kern_backend *b;
    unsigned rounds;
};

static void *fill_and_free(void *ctx)
{
    struct filler *f = ctx;
    for (unsigned i = 0; i < f->rounds; i++) {
        struct kern_buf *x = f->b->alloc(f->b, 4096 + 64 * (i % 7));
        if (x) {
            memset(x->host, (int)i, x->size);
        }
        f->b->free(f->b, x);
    }
    return NULL;
}

static void fillers(void **state)
{
    struct fake_opts fo = {.seed = 4, .delay_us = 100, .sabotage = -1};
    struct kern_backend *cpu = scalar();
    struct gpu_opts o = {.cpu = cpu};
    struct stream s = {.rng = 77};
    struct sh_device *d = fake_open(&fo);
    pthread_t t[2];
    o.broken[SH_gate] = true;
    assert_int_equal(gpu_open(d, &o, &s.b), 0);
    struct filler f = {s.b, 500};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, fill_and_free, &f), 0);
    }
    stream(&s, SUBMISSIONS / 2);
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
    }
    for (int i = 0; i < SLOTS; i++) {
        s.b->free(s.b, s.slot[i]);
    }
    assert_int_equal(fake_faults(d), 0);
    assert_true(fake_buffers(d) <= 1); /* the scratch */
    s.b->close(s.b);
    cpu->close(cpu);
}

/* ---- the self-test ---- */

static int test_with(int kernel, uint32_t buffer, bool broken[SH_KERNELS])
{
    struct fake_opts fo = {.sabotage = kernel, .in_buffer = buffer};
    struct sh_device *d = fake_open(&fo);
    said[0] = 0;
    int n = gpu_selftest(d, broken, hear, NULL);
    assert_int_equal(fake_faults(d), 0);
    assert_int_equal(fake_buffers(d), 0);
    d->close(d);
    return n;
}

static void selftest(void **state)
{
    static const struct {
        enum sh_kernel kernel;
        uint32_t buffer;
    } planted[] = {{SH_kda, 7}, {SH_product_bf16_any, 3}};
    bool broken[SH_KERNELS];
    if (!SELFTESTS) {
        skip();
    }
    assert_int_equal(test_with(-1, 0, broken), 0);
    assert_string_equal(said, "");
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        assert_int_equal(test_with(planted[i].kernel, planted[i].buffer, broken), 1);
        assert_true(broken[planted[i].kernel]);
        assert_non_null(strstr(said, sh_kernel_name(planted[i].kernel)));
    }
    print_message("  %s", said);
    assert_int_equal(test_with(SH_mix_sum, 3, broken), 2); /* with mix_score: one command */
    assert_true(broken[SH_mix_sum] && broken[SH_mix_score] && !broken[SH_softmax]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_and_lives),
        cmocka_unit_test(fallback),
        cmocka_unit_test(limit),
        cmocka_unit_test(failure),
        cmocka_unit_test(failure_with_cpu),
        cmocka_unit_test(fillers),
        cmocka_unit_test(selftest),
    };
    if (!emu_usable()) {
        printf("this processor lacks what the emulation was compiled for: not run\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
