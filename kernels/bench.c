/* SPDX-License-Identifier: MIT
 * bench.c: the benchmark of the matrix products. Made-up weights, real shapes. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/bench.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/pool.h"

#define MIB ((size_t)1 << 20)
#define HUGE_PAGE (2 * MIB)
#define MEMORY_DEFAULT (512 * MIB)
#define MEMORY_MIN MIB /* 32 rows of the widest */
#define SAMPLES_MIN 9
#define SAMPLES_MAX 31
#define BATCH 16 /* the larger of the two T */
#define PEAK_TURNS 8000
#define SLICE 384 /* rows between two looks at the rate of fmas */
#define EXPERTS 16
#define GRAIN 64 /* rows that a thread takes at least */

struct shape {
    const char *name;
    enum kern_type type;
    uint32_t rows, cols, experts; /* experts: w1, w3 of the shape and w2 of the transposed one */
};

static const struct shape shapes[] = {
    {"mxfp4 experts", KERN_MXFP4, 3072, 3584, EXPERTS},
    {"bf16 12288x7168", KERN_BF16, 12288, 7168, 0},
    {"bf16 7168x12288", KERN_BF16, 7168, 12288, 0},
    {"bf16 33792x7168", KERN_BF16, 33792, 7168, 0},
    {"int8 33792x7168", KERN_I8, 33792, 7168, 0},
    {"f32 12288x7168", KERN_F32, 12288, 7168, 0},
};

struct bench {
    enum kern_isa isa;
    struct kern_pool *pool;
    uint8_t *map, *arena; /* arena: the huge-page aligned part of map */
    size_t map_size, size;
    float *x, *y, *scale;
    void *scratch;
};

static double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One thread: its processor time, so that other programs count as little as may be. More: time. */
static double now(const struct bench *b)
{
    if (kern_pool_threads(b->pool) > 1)
        return clock_now();
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the memory read rate ---- */

struct reading {
    const uint8_t *base;
    size_t part;             /* bytes of each of the four streams, a multiple of 64 */
    volatile uint64_t *sink; /* a word per thread, 64 bytes apart */
};

/* 64-byte lines [begin, end) of each of four streams, asked for 1 KiB before they are read: the
 * fastest way found; without the hints the rate is a fifth lower. */
static void read_range(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct reading *r = ctx;
    uint64_t sum[8] = {0};
    for (size_t i = begin; i < end; i++) {
        for (size_t s = 0; s < 4; s++) {
            const uint64_t *p = (const uint64_t *)(const void *)(r->base + s * r->part + i * 64);
            __builtin_prefetch((const uint8_t *)p + 1024);
            for (size_t k = 0; k < 8; k++)
                sum[k] += p[k];
        }
    }
    for (size_t k = 1; k < 8; k++)
        sum[0] += sum[k];
    r->sink[worker * 8] = sum[0];
}

static double read_once(struct bench *b, size_t bytes)
{
    uint64_t sink[KERN_POOL_MAX * 8];
    struct reading r = {b->arena, bytes / 4 / 64 * 64, sink};
    double t = now(b);
    kern_pool_run(b->pool, r.part / 64, 1024, read_range, &r);
    return now(b) - t;
}

/* ---- the fma rate ---- */

struct peaking {
    enum kern_isa isa;
    volatile float *sink; /* as in struct reading */
};

static void peak_range(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct peaking *p = ctx;
    float f;
    kern_matmul_peak(p->isa, (end - begin) * PEAK_TURNS, &f);
    p->sink[worker * 16] = f;
}

/* Seconds that n fmas take on all threads, from a short measurement; 0: not known. */
static double peak_once(struct bench *b, double n)
{
    float sink[KERN_POOL_MAX * 16], one;
    struct peaking p = {b->isa, sink};
    size_t parts = (size_t)2 * kern_pool_threads(b->pool);
    double fmas = (double)kern_matmul_peak(b->isa, 1, &one) * PEAK_TURNS * (double)parts;
    if (fmas <= 0)
        return 0;
    double t = now(b);
    kern_pool_run(b->pool, parts, 1, peak_range, &p);
    return (now(b) - t) / fmas * n;
}

/* ---- products ---- */

struct job {
    struct kern_matmul m;
    enum kern_isa isa;
    void *scratch;
    uint32_t row0;
};

static void job_prepare(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct job *j = ctx;
    kern_matmul_prepare(&j->m, j->isa, j->scratch, (uint32_t)begin, (uint32_t)end);
}

static void job_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct job *j = ctx;
    kern_matmul_rows(&j->m, j->isa, j->scratch, j->row0 + (uint32_t)begin, j->row0 + (uint32_t)end);
}

static size_t matrix_bytes(enum kern_type type, size_t rows, size_t cols)
{
    switch (type) {
    case KERN_F32:
        return rows * cols * 4;
    case KERN_BF16:
        return rows * cols * 2;
    case KERN_MXFP4:
        return rows * (cols / 2 + cols / 32);
    case KERN_I8:
        break;
    }
    return rows * cols;
}

/* Seconds of one pass, and of its fmas at their rate in registers, looked at again and again in
 * between: a processor's rate changes within a pass. */
struct spent {
    double product, peak;
};

static void product(struct bench *b, enum kern_type type, const uint8_t *w, uint32_t rows,
                    uint32_t cols, uint32_t T, struct spent *s)
{
    struct job j = {
        {type, rows, cols, T, w, NULL, b->x, cols, NULL, b->y, rows, NULL}, b->isa, b->scratch, 0};
    if (type == KERN_MXFP4)
        j.m.scale = w + (size_t)rows * cols / 2;
    else if (type == KERN_I8)
        j.m.scale = b->scale;
    double t = now(b);
    kern_pool_run(b->pool, T, 1, job_prepare, &j);
    if (T == 1) {
        kern_pool_run(b->pool, rows, GRAIN, job_rows, &j);
        s->product += now(b) - t;
        return;
    }
    s->product += now(b) - t;
    for (j.row0 = 0; j.row0 < rows; j.row0 += SLICE) {
        uint32_t n = rows - j.row0 < SLICE ? rows - j.row0 : SLICE;
        t = now(b);
        kern_pool_run(b->pool, n, GRAIN, job_rows, &j);
        s->product += now(b) - t;
        s->peak += peak_once(b, (double)n * cols * T);
    }
}

static struct spent product_once(struct bench *b, const struct shape *s, uint32_t T)
{
    size_t one = matrix_bytes(s->type, s->rows, s->cols);
    struct spent spent = {0};
    if (!s->experts)
        product(b, s->type, b->arena, s->rows, s->cols, T, &spent);
    for (uint32_t e = 0; e < s->experts; e++) {
        const uint8_t *w = b->arena + e * 3 * one;
        product(b, s->type, w, s->rows, s->cols, T, &spent);
        product(b, s->type, w + 2 * one, s->rows, s->cols, T, &spent);
        product(b, s->type, w + one, s->cols, s->rows, T, &spent);
    }
    return spent;
}

static uint32_t next(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Every 16 bits a bf16 of magnitude 2^-8 .. 2^8, so every 32 bits a float likewise; as bytes or
 * nibbles anything is a weight. Scale bytes of MXFP4 as the real ones: within 16 of each other. */
static void fill(struct bench *b, const struct shape *s, size_t bytes)
{
    uint32_t state = 12345;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t v = (next(&state) & 0x87ff87ffu) + 0x3c003c00u;
        memcpy(b->arena + i, &v, 4);
    }
    if (s->type != KERN_MXFP4)
        return;
    size_t one = matrix_bytes(s->type, s->rows, s->cols), scales = (size_t)s->rows * s->cols / 32;
    for (size_t i = 0; i < (size_t)s->experts * 3; i++)
        for (size_t k = 0; k < scales; k++)
            b->arena[(i + 1) * one - scales + k] = (uint8_t)(112 + (next(&state) >> 9) % 16);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, unsigned n)
{
    qsort(v, n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Fewer experts, then fewer rows (a multiple of 32: w2 has them as columns), until the weights fit
 * into size. Returns their bytes. */
static size_t fit(struct shape *s, size_t size)
{
    size_t copies = s->experts ? 3 : 1;
    size_t one = copies * matrix_bytes(s->type, s->rows, s->cols);
    if (s->experts > 1 && one * s->experts > size)
        s->experts = size < one ? 1 : (uint32_t)(size / one);
    if (one > size) {
        s->rows = (uint32_t)(size / (one / s->rows)) / 32 * 32;
        one = copies * matrix_bytes(s->type, s->rows, s->cols);
    }
    return s->experts ? one * s->experts : one;
}

/* Of one row of x. */
static double fmas_of(const struct shape *s)
{
    return (double)s->rows * s->cols * (s->experts ? 3 * s->experts : 1);
}

static void measure(struct bench *b, const struct shape *shape, double seconds, kern_bench_fn *fn,
                    void *ctx)
{
    static const uint32_t Ts[2] = {1, BATCH};
    double rate[2][SAMPLES_MAX], reads[2][SAMPLES_MAX], share[2][SAMPLES_MAX];
    double fma[2][SAMPLES_MAX];
    struct shape s = *shape;
    size_t bytes = fit(&s, b->size);
    fill(b, &s, bytes);
    product_once(b, &s, BATCH); /* everything touched once before the first sample */
    unsigned n = 0;
    double start = clock_now();
    while (n < SAMPLES_MIN || (n < SAMPLES_MAX && clock_now() - start < seconds)) {
        for (unsigned i = 0; i < 2; i++) {
            double gb = 1e-9 * (double)bytes;
            reads[i][n] = gb / read_once(b, bytes);
            struct spent t = product_once(b, &s, Ts[i]);
            if (Ts[i] == 1)
                t.peak = peak_once(b, fmas_of(&s));
            rate[i][n] = gb / t.product;
            share[i][n] = rate[i][n] / reads[i][n];
            fma[i][n] = t.peak / t.product;
        }
        n++;
    }
    for (unsigned i = 0; i < 2; i++) {
        struct kern_bench_result r = {.name = s.name,
                                      .type = s.type,
                                      .rows = s.rows,
                                      .cols = s.cols,
                                      .matrices = s.experts ? s.experts * 3 : 1,
                                      .T = Ts[i],
                                      .bytes = bytes,
                                      .samples = n};
        r.gbs = median(rate[i], n);
        r.read_gbs = median(reads[i], n);
        r.share = median(share[i], n);
        r.fma_share = median(fma[i], n);
        fn(ctx, &r);
    }
}

static void bench_close(struct bench *b)
{
    kern_pool_close(b->pool);
    if (b->map)
        munmap(b->map, b->map_size);
    free(b->x);
    free(b->y);
    free(b->scale);
    free(b->scratch);
}

static int bench_open(struct bench *b, const struct kern_bench_opts *o)
{
    memset(b, 0, sizeof *b);
    int rc = kern_isa_resolve(o->isa, &b->isa);
    if (rc)
        return rc;
    b->size = o->memory ? o->memory : MEMORY_DEFAULT;
    if (b->size < MEMORY_MIN)
        b->size = MEMORY_MIN;
    b->map_size = b->size + HUGE_PAGE;
    void *map = mmap(NULL, b->map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (map == MAP_FAILED)
        return KERN_ENOMEM;
    b->map = map;
    b->arena = b->map + (HUGE_PAGE - (uintptr_t)b->map % HUGE_PAGE) % HUGE_PAGE;
#ifdef MADV_HUGEPAGE
    madvise(b->arena, b->size, MADV_HUGEPAGE); /* a wish: without it the rates are lower */
#endif
    uint32_t rows = 0, cols = 0;
    size_t scratch = 64;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        uint32_t most = s->rows > s->cols ? s->rows : s->cols;
        rows = most > rows ? most : rows;
        cols = most > cols && s->experts ? most : s->cols > cols ? s->cols : cols;
        struct kern_matmul m = {.type = s->type, .rows = s->rows, .cols = most, .T = BATCH};
        size_t n = kern_matmul_scratch(&m, b->isa);
        scratch = n > scratch ? n : scratch;
    }
    b->x = malloc((size_t)cols * BATCH * sizeof *b->x);
    b->y = malloc((size_t)rows * BATCH * sizeof *b->y);
    b->scale = malloc((size_t)rows * sizeof *b->scale);
    if (posix_memalign(&b->scratch, 64, scratch))
        b->scratch = NULL;
    b->pool = kern_pool_open(o->threads, false);
    if (!b->x || !b->y || !b->scale || !b->scratch || !b->pool)
        return KERN_ENOMEM;
    uint32_t state = 99;
    for (size_t i = 0; i < (size_t)cols * BATCH; i++)
        b->x[i] = (float)(int32_t)next(&state) * 0x1p-31f;
    for (size_t i = 0; i < rows; i++)
        b->scale[i] = 0x1p-7f;
    return 0;
}

static bool wanted(const struct shape *s, const char *only)
{
    return !only || !strncmp(s->name, only, strlen(only));
}

static size_t count(const char *only)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        n += wanted(&shapes[i], only);
    return n;
}

int kern_bench_each(const struct kern_bench_opts *o, kern_bench_fn *fn, void *ctx)
{
    struct bench b;
    size_t n = count(o->only);
    if (!n)
        return KERN_EINVAL;
    int rc = bench_open(&b, o);
    for (size_t i = 0; !rc && i < sizeof shapes / sizeof *shapes; i++)
        if (wanted(&shapes[i], o->only))
            measure(&b, &shapes[i], o->seconds / (double)n, fn, ctx);
    bench_close(&b);
    return rc;
}

/* ---- output ---- */

struct printer {
    FILE *out;
    bool json;
    unsigned lines;
};

static void print(void *ctx, const struct kern_bench_result *r)
{
    struct printer *p = ctx;
    if (p->json)
        fprintf(p->out,
                "%s{\"name\":\"%s\",\"rows\":%u,\"cols\":%u,\"matrices\":%u,\"tokens\":%u,"
                "\"bytes\":%zu,\"samples\":%u,\"gb_per_s\":%.3f,\"read_gb_per_s\":%.3f,"
                "\"share\":%.4f,\"fma_share\":%.4f}",
                p->lines ? "," : "", r->name, r->rows, r->cols, r->matrices, r->T, r->bytes,
                r->samples, r->gbs, r->read_gbs, r->share, r->fma_share);
    else
        fprintf(p->out, "%-18s %3u %8.0f %8.2f %8.2f %7.0f %% %7.0f %%\n", r->name, r->T,
                1e-6 * (double)r->bytes, r->gbs, r->read_gbs, 100 * r->share, 100 * r->fma_share);
    fflush(p->out);
    p->lines++;
}

int kern_bench(FILE *out, bool json, const struct kern_bench_opts *o)
{
    struct printer p = {out, json, 0};
    enum kern_isa isa;
    int rc = count(o->only) ? kern_isa_resolve(o->isa, &isa) : KERN_EINVAL;
    if (rc)
        return rc;
    unsigned threads = o->threads ? o->threads : kern_pool_cores();
    if (json)
        fprintf(out, "{\"isa\":\"%s\",\"threads\":%u,\"products\":[", kern_isa_name(isa), threads);
    else
        fprintf(
            out,
            "Matrix products, %s, %u thread%s; GB/s of packed weights beside the memory read\n"
            "rate (four streams, huge pages, same threads), medians; arithmetic beside the rate\n"
            "of fmas in registers. %s.\n\n"
            "%-18s %3s %8s %8s %8s %9s %9s\n",
            kern_isa_name(isa), threads, threads == 1 ? "" : "s",
            threads == 1 ? "Processor time" : "Time of day", "weights", "T", "MB", "GB/s", "read",
            "share", "of fma");
    rc = kern_bench_each(o, print, &p);
    if (json)
        fprintf(out, "]}\n");
    else
        fprintf(
            out,
            "\nOther engines, one token's MXFP4 experts, one thread, measured likewise on an AMD "
            "EPYC\n"
            "(Zen 3): llama.cpp 38 %% of the memory read rate, with activations quantised to 8\n"
            "bits; DeltaFin 16 %%.\n");
    return rc;
}
