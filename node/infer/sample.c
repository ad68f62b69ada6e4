/* SPDX-License-Identifier: MIT
 * sample.c: see sample.h. Everything is binary32 in a fixed order: sums run over the candidates in
 * descending logit (ties: lower id), which no sorting algorithm can change. */
#include "node/infer/sample.h"

#include "kernels/cpu.h"

#include <stdlib.h>

struct cand { /* scratch: 8 bytes each */
    float v;  /* logit, then kern_exp of the scaled distance to the largest */
    uint32_t id;
};

int sample_check(const struct sample_opts *o, struct err *e)
{
    if (!(o->temperature == 0 || (o->temperature >= 1e-4f && o->temperature <= 100))) {
        return err_set(e, ERR_ARG, "temperature %g is neither 0 nor between 0.0001 and 100",
                       (double)o->temperature);
    }
    if (!(o->top_p > 0 && o->top_p <= 1)) {
        return err_set(e, ERR_ARG, "top_p %g is not above 0 and at most 1", (double)o->top_p);
    }
    if (!(o->min_p >= 0 && o->min_p <= 1)) {
        return err_set(e, ERR_ARG, "min_p %g is not between 0 and 1", (double)o->min_p);
    }
    return 0;
}

uint32_t sample_argmax(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return best;
}

/* Philox4x32-10, constants and structure from Salmon, Moraes, Dror, Shaw: "Parallel random numbers:
 * as easy as 1, 2, 3" (SC 2011). */
void sample_philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static int by_logit(const void *pa, const void *pb)
{
    const struct cand *a = pa, *b = pb;
    if (a->v != b->v) {
        return a->v > b->v ? -1 : 1;
    }
    return a->id < b->id ? -1 : 1;
}

uint32_t sample_pick(const struct sample_opts *o, const float *logits, uint32_t n, uint64_t counter,
                     void *scratch)
{
    uint32_t top = sample_argmax(logits, n);
    if (o->temperature == 0) {
        return top;
    }
    struct cand *c = scratch;
    float max = logits[top];
    uint32_t kept = 0;
    /* exp is +0 beyond 86 below the largest: those can never be drawn and need no sorting. */
    for (uint32_t i = 0; i < n; i++) {
        if ((logits[i] - max) / o->temperature >= -86.0f) {
            c[kept].v = logits[i];
            c[kept++].id = i;
        }
    }
    qsort(c, kept, sizeof *c, by_logit);
    if (o->top_k && o->top_k < kept) {
        kept = o->top_k;
    }
    float sum = 0;
    for (uint32_t i = 0; i < kept; i++) {
        c[i].v = kern_exp((c[i].v - max) / o->temperature);
        sum += c[i].v;
    }
    if (o->top_p < 1) { /* the shortest beginning that reaches top_p */
        float want = o->top_p * sum, have = 0;
        for (uint32_t i = 0; i < kept; i++) {
            have += c[i].v;
            if (have >= want) {
                kept = i + 1;
                break;
            }
        }
    }
    while (kept > 1 && c[kept - 1].v < o->min_p * c[0].v) {
        kept--;
    }
    sum = 0;
    for (uint32_t i = 0; i < kept; i++) {
        sum += c[i].v;
    }
    uint32_t ctr[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}, r[4];
    uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
    sample_philox(ctr, key, r);
    /* 24 bits: an exact binary32 in [0, 1). */
    float aim = (float)(r[0] >> 8) * 0x1p-24f * sum, have = 0;
    for (uint32_t i = 0; i < kept; i++) {
        have += c[i].v;
        if (have > aim) {
            return c[i].id;
        }
    }
    return c[kept - 1].id;
}
