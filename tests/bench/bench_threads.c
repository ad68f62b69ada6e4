/* SPDX-License-Identifier: MIT
 * bench_threads.c: two threads against one, over products from small to large, and one token's
 * experts as a whole against their products alone.
 *
 * Interleaved. Threads by the clock: of each arm's samples the one that a tenth undercut, because
 * with other programs on the cores a thread waits for its turn, and for the other one's; with two
 * threads a step may then not take longer than with one, since the number of threads follows from
 * the work. A token's path through 16 experts (w1, w3, SiTU, w2, the weighted sum), by processor
 * time, medians: it may take 5 % more than its products. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/backend.h"
#include "kernels/cpu.h"

#define SAMPLES 301
#define EXPERTS 16
#define WIDTH 3584
#define INNER 3072
#define MIB ((size_t)1 << 20)
#define SLOWER 1.05 /* two threads against one: what the clock cannot tell apart */
#define PATH 1.05

static const struct {
    enum kern_type type;
    uint32_t rows, cols, T;
} shapes[] = {
    {KERN_BF16, 16, 64, 1},         {KERN_BF16, 128, 256, 1},      {KERN_BF16, 256, 512, 1},
    {KERN_BF16, 512, 512, 1},       {KERN_BF16, 512, 1024, 1},     {KERN_BF16, 1024, 1024, 1},
    {KERN_BF16, 2048, 2048, 1},     {KERN_BF16, 4096, 7168, 1},    {KERN_BF16, 128, 256, 16},
    {KERN_BF16, 1024, 1024, 16},    {KERN_MXFP4, 64, 512, 1},      {KERN_MXFP4, 256, 1024, 1},
    {KERN_MXFP4, 768, 1024, 1},     {KERN_MXFP4, INNER, WIDTH, 1}, {KERN_MXFP4, 256, 1024, 16},
    {KERN_MXFP4, INNER, WIDTH, 16},
};

struct arm {
    struct kern_backend *b;
    struct kern_buf *w, *x, *y;
};

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_size);
    return v[n / 2];
}

static bool arm_open(struct arm *a, unsigned threads)
{
    struct kern_cpu_opts o = {.threads = threads};
    if (kern_cpu_open(&o, &a->b))
        return false;
    a->w = a->b->alloc(a->b, 320 * MIB);
    a->x = a->b->alloc(a->b, 4 * MIB);
    a->y = a->b->alloc(a->b, 4 * MIB);
    if (!a->w || !a->x || !a->y)
        return false;
    memset(a->w->host, 0x3c, a->w->size); /* bf16 of about 0.01, scales of about 2^-67 */
    float *x = a->x->host;
    for (size_t i = 0; i < a->x->size / sizeof *x; i++)
        x[i] = (float)(i % 7) - 3;
    return true;
}

static void arm_close(struct arm *a)
{
    if (!a->b)
        return;
    a->b->free(a->b, a->w);
    a->b->free(a->b, a->x);
    a->b->free(a->b, a->y);
    a->b->close(a->b);
}

static struct kern_cmd product(const struct arm *a, enum kern_type type, uint32_t rows,
                               uint32_t cols, uint32_t T, size_t at, size_t y)
{
    struct kern_cmd c = {.op = KERN_MATMUL};
    size_t data = (size_t)rows * cols / (type == KERN_MXFP4 ? 2 : 1) * (type == KERN_BF16 ? 2 : 1);
    c.u.matmul.w = (struct kern_mat){type, rows, cols, {a->w, at}, {a->w, at + data}};
    c.u.matmul.x = (struct kern_ref){a->x, 0};
    c.u.matmul.y = (struct kern_ref){a->y, y * sizeof(float)};
    c.u.matmul.xstride = cols;
    c.u.matmul.ystride = rows;
    c.u.matmul.T = T;
    return c;
}

static double run(const struct arm *a, const struct kern_cmd *c, size_t n, size_t times,
                  clockid_t clock)
{
    uint64_t fence;
    double t = now(clock);
    for (size_t i = 0; i < times; i++)
        if (a->b->submit(a->b, c, n, &fence) || a->b->wait(a->b, fence))
            abort();
    return (now(clock) - t) / (double)times;
}

/* The path of a token through its experts, or its products only. Returns the number of commands. */
static size_t path(const struct arm *a, struct kern_cmd *c, bool whole)
{
    size_t n = 0, one = (size_t)INNER * WIDTH / 32 * 17;
    for (size_t e = 0; e < EXPERTS; e++) {
        size_t at = e * 3 * one, g = e * 2 * INNER, y = EXPERTS * 2 * INNER;
        c[n++] = product(a, KERN_MXFP4, INNER, WIDTH, 1, at, g);
        c[n++] = product(a, KERN_MXFP4, INNER, WIDTH, 1, at + one, g + INNER);
        if (whole) {
            c[n] = (struct kern_cmd){.op = KERN_SITU};
            c[n].u.situ.g = c[n].u.situ.y = (struct kern_ref){a->y, g * sizeof(float)};
            c[n].u.situ.u = (struct kern_ref){a->y, (g + INNER) * sizeof(float)};
            c[n].u.situ.n = INNER;
            c[n].u.situ.beta = c[n].u.situ.lbeta = 5;
            n++;
        }
        c[n] = product(a, KERN_MXFP4, WIDTH, INNER, 1, at + 2 * one, y + e * WIDTH);
        c[n++].u.matmul.x = (struct kern_ref){a->y, g * sizeof(float)};
    }
    if (whole) {
        c[n] = (struct kern_cmd){.op = KERN_COMBINE};
        c[n].u.combine.y = (struct kern_ref){a->y, (size_t)EXPERTS * 2 * INNER * sizeof(float)};
        c[n].u.combine.w = (struct kern_ref){a->x, 0};
        c[n].u.combine.u = (struct kern_ref){a->y, 3 * MIB};
        c[n].u.combine.n = WIDTH;
        c[n].u.combine.k = EXPERTS;
        c[n].u.combine.T = 1;
        n++;
    }
    return n;
}

/* The sample that a tenth of all undercut. */
static double tenth(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_size);
    return v[n / 10];
}

static bool threads(const struct arm *one, const struct arm *two)
{
    static const char *const names[] = {"f32", "bf16", "mxfp4", "int8"};
    bool good = true;
    static double took[2][SAMPLES];
    printf("two threads against one:\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct kern_cmd c[2];
        const struct arm *arm[2] = {one, two};
        for (size_t k = 0; k < 2; k++)
            c[k] =
                product(arm[k], shapes[i].type, shapes[i].rows, shapes[i].cols, shapes[i].T, 0, 0);
        double once = run(one, &c[0], 1, 3, CLOCK_MONOTONIC);
        size_t times = once > 1e-4 ? 1 : (size_t)(1e-4 / once) + 1, n = once > 5e-3 ? 41 : SAMPLES;
        for (size_t s = 0; s < n; s++)
            for (size_t k = 0; k < 2; k++)
                took[k][s] = run(arm[k], &c[k], 1, times, CLOCK_MONOTONIC);
        double alone = tenth(took[0], n), q = tenth(took[1], n) / alone;
        printf("  %-6s %5u x %-5u T %-3u %9.1f us alone, with two %.2f of it%s\n",
               names[shapes[i].type], shapes[i].rows, shapes[i].cols, shapes[i].T, 1e6 * alone, q,
               q > SLOWER ? "  SLOWER" : "");
        fflush(stdout);
        good = good && q <= SLOWER;
    }
    return good;
}

int main(void)
{
    struct arm one = {0}, two = {0};
    if (!arm_open(&one, 1) || !arm_open(&two, 2)) {
        fputs("bench_threads: no memory\n", stderr);
        return 2;
    }
    bool good = threads(&one, &two);
    static struct kern_cmd whole[4 * EXPERTS + 1], bare[3 * EXPERTS];
    size_t n = path(&one, whole, true), m = path(&one, bare, false);
    static double quotient[41];
    run(&one, whole, n, 1, CLOCK_THREAD_CPUTIME_ID);
    for (size_t s = 0; s < 41; s++) {
        double t = run(&one, bare, m, 1, CLOCK_THREAD_CPUTIME_ID);
        quotient[s] = run(&one, whole, n, 1, CLOCK_THREAD_CPUTIME_ID) / t;
    }
    double q = median(quotient, 41);
    printf("a token's %d experts, one thread: the whole takes %.3f of the products alone (limit "
           "%.2f)\n",
           EXPERTS, q, PATH);
    good = good && q <= PATH;
    arm_close(&one);
    arm_close(&two);
    return good ? 0 : 1;
}
