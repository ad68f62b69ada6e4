/* SPDX-License-Identifier: MIT
 * bench_pack.c: packed bf16 (kernels/pack.h): its size on a model's spine and on normally
 * distributed weights, and how fast it unpacks on one core (processor time), beside copying and
 * unpacking by the scalar reference, taken in turn. Limits: 0.70 of the bytes, 2 GB/s of unpacked
 * bytes; beyond one of them the exit status is 1. usage: bench_pack [MODEL-FOLDER] (default: the
 * demo model) */
#include "kernels/pack.h"
#include "node/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NORMAL ((size_t)32 << 20) /* values */
#define ROUNDS 9

struct weights {
    uint16_t *v;
    size_t n;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of processor time: the work has one thread, and other programs may be running. */
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum kern_isa best(void)
{
    return kern_isa_available(KERN_ISA_AVX2)   ? KERN_ISA_AVX2
           : kern_isa_available(KERN_ISA_NEON) ? KERN_ISA_NEON
                                               : KERN_ISA_SCALAR;
}

static int measure(const char *name, const struct weights *w)
{
    uint8_t *p = malloc(kern_pack_bound(w->n));
    uint16_t *out = malloc(w->n * sizeof *out), *in = malloc(w->n * sizeof *in);
    double t[3][ROUNDS], gb = 2e-9 * (double)w->n;
    int bad = !p || !out || !in;
    size_t size = bad ? 0 : kern_pack(w->v, w->n, p);
    for (unsigned i = 0; !bad && i < ROUNDS; i++) {
        double at = cpu_s();
        memcpy(in, w->v, w->n * sizeof *in);
        t[0][i] = cpu_s() - at;
        at = cpu_s();
        bad |= kern_unpack(p, size, w->n, 0, w->n, out, best());
        t[1][i] = cpu_s() - at;
        bad |= memcmp(out, w->v, w->n * sizeof *out) != 0;
        at = cpu_s();
        bad |= kern_unpack(p, size, w->n, 0, w->n, out, KERN_ISA_SCALAR);
        t[2][i] = cpu_s() - at;
        bad |= memcmp(out, w->v, w->n * sizeof *out) != 0;
    }
    if (bad) {
        printf("%s: what was unpacked is not what was packed\n", name);
    } else {
        for (unsigned k = 0; k < 3; k++) {
            qsort(t[k], ROUNDS, sizeof t[k][0], by_size);
        }
        double ratio = (double)size / (double)(2 * w->n), rate = gb / t[1][ROUNDS / 2];
        printf("%-22s %8.1f MB  %.4f of the bytes (limit 0.70)  %s %.2f GB/s (limit 2), %.2f of "
               "copying, scalar %.2f GB/s\n",
               name, 1e3 * gb, ratio, kern_isa_name(best()), rate,
               t[0][ROUNDS / 2] / t[1][ROUNDS / 2], gb / t[2][ROUNDS / 2]);
        bad = ratio > 0.70 || rate < 2;
    }
    free(p);
    free(out);
    free(in);
    return bad;
}

static int spine(const char *dir, struct weights *w)
{
    struct model_source src;
    struct model *m = NULL;
    struct err e = {0};
    if (model_folder_open(dir, &src, &e) || model_open(&src, &m, &e)) {
        fprintf(stderr, "bench_pack: %s\n", e.msg);
        return -1;
    }
    for (uint32_t i = 0; i < model_object_count(m); i++) {
        const struct model_object *o = model_object(m, i);
        w->n += o->kind == MODEL_SPINE && o->dtype == MODEL_BF16 ? o->size / 2 : 0;
    }
    w->v = malloc(w->n * sizeof *w->v);
    size_t at = 0;
    int r = w->v ? 0 : -1;
    for (uint32_t i = 0; !r && i < model_object_count(m); i++) {
        const struct model_object *o = model_object(m, i);
        if (o->kind == MODEL_SPINE && o->dtype == MODEL_BF16) {
            r = src.read_range(src.ctx, model_shard(m, o->shard)->file, o->offset, w->v + at,
                               (size_t)o->size, &e);
            at += o->size / 2;
        }
    }
    if (r) {
        fprintf(stderr, "bench_pack: %s\n", e.msg);
    }
    model_close(m);
    model_folder_close(&src);
    return r;
}

/* Sums of twelve uniform numbers, rounded to bf16. */
static int normal(struct weights *w)
{
    uint64_t s = 88172645463325252u;
    w->n = NORMAL;
    w->v = malloc(w->n * sizeof *w->v);
    for (size_t i = 0; w->v && i < w->n; i++) {
        int32_t sum = -12 * 0x8000;
        for (int k = 0; k < 3; k++) {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            sum += (int32_t)(s & 0xffff) + (int32_t)(s >> 16 & 0xffff) +
                   (int32_t)(s >> 32 & 0xffff) + (int32_t)(s >> 48);
        }
        float f = (float)sum * 0x1p-21f;
        uint32_t u;
        memcpy(&u, &f, 4);
        w->v[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    return w->v ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct weights w = {0}, n = {0};
    int r = spine(argc > 1 ? argv[1] : SHOAL_DEMO_MODEL, &w) || normal(&n);
    if (!r) {
        r = measure("the model's bf16 spine", &w);
        r |= measure("normally distributed", &n);
    }
    free(w.v);
    free(n.v);
    return r ? 1 : 0;
}
