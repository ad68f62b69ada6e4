/* SPDX-License-Identifier: MIT
 * sampling.c: see sampling.h. Order: repetition, presence and frequency, bias, grammar; then
 * sample_pick (temperature, top-k, top-p, min-p). Each step is one rounded operation per logit, in
 * binary32, so that every machine gets the same. */
#include "node/engine/sampling.h"

#include "kernels/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool within(float x, float lo, float hi)
{
    return x >= lo && x <= hi; /* false for NaN */
}

int sampling_check(const struct engine_sampling *o, uint32_t vocab, struct err *e)
{
    int r = sample_check(&o->base, e);
    if (r) {
        return r;
    }
    if (!within(o->presence, -2, 2) || !within(o->frequency, -2, 2)) {
        bool p = !within(o->presence, -2, 2);
        return err_set(e, ERR_ARG, "%s_penalty %g is not between -2 and 2",
                       p ? "presence" : "frequency", (double)(p ? o->presence : o->frequency));
    }
    if (o->repetition != 0 && !within(o->repetition, 0.01f, 10)) {
        return err_set(e, ERR_ARG, "repetition_penalty %g is not between 0.01 and 10",
                       (double)o->repetition);
    }
    if (o->n_bias > ENGINE_BIAS_MAX) {
        return err_set(e, ERR_LIMIT, "logit_bias has %zu entries; at most %d are taken", o->n_bias,
                       ENGINE_BIAS_MAX);
    }
    for (size_t i = 0; i < o->n_bias; i++) {
        if (o->bias[i].id >= vocab || !within(o->bias[i].add, -100, 100)) {
            return err_set(e, ERR_ARG,
                           "logit_bias of token %u: ids go up to %u, values from -100 to 100",
                           o->bias[i].id, vocab - 1);
        }
    }
    if (o->top > ENGINE_TOP_MAX) {
        return err_set(e, ERR_ARG, "top_logprobs %u is above %d", o->top, ENGINE_TOP_MAX);
    }
    return 0;
}

int sampling_open(struct sampling *s, const struct engine_sampling *o, uint32_t vocab,
                  const uint32_t *prompt, size_t n, struct err *e)
{
    memset(s, 0, sizeof *s);
    s->o = o;
    s->vocab = vocab;
    bool repeat = o->repetition != 0 && o->repetition != 1;
    s->work = malloc(vocab * sizeof *s->work);
    s->scratch = malloc((size_t)vocab * 8);
    bool ok = s->work && s->scratch;
    if (ok && (o->presence != 0 || o->frequency != 0)) {
        ok = (s->count = calloc(vocab, sizeof *s->count)) != NULL;
    }
    if (ok && repeat) {
        ok = (s->seen = calloc(vocab, 1)) != NULL;
    }
    if (!ok) {
        sampling_close(s);
        return err_set(e, ERR_NOMEM, "out of memory for a request's logits");
    }
    for (size_t i = 0; s->seen && i < n; i++) {
        s->seen[prompt[i]] = 1;
    }
    return 0;
}

void sampling_close(struct sampling *s)
{
    free(s->work);
    free(s->scratch);
    free(s->count);
    free(s->seen);
    memset(s, 0, sizeof *s);
}

void sampling_took(struct sampling *s, uint32_t id)
{
    if (s->count) {
        s->count[id]++;
    }
    if (s->seen) {
        s->seen[id] = 1;
    }
}

int sampling_pick(struct sampling *s, const float *logits, const uint32_t *mask, uint64_t counter,
                  uint32_t *id, struct err *e)
{
    const struct engine_sampling *o = s->o;
    float *w = s->work;
    bool any = false;
    memcpy(w, logits, s->vocab * sizeof *w);
    for (uint32_t i = 0; s->seen && i < s->vocab; i++) {
        if (s->seen[i]) {
            w[i] = w[i] > 0 ? w[i] / o->repetition : w[i] * o->repetition;
        }
    }
    for (uint32_t i = 0; s->count && i < s->vocab; i++) {
        if (s->count[i]) {
            w[i] -= o->presence;
            float f = o->frequency * (float)s->count[i];
            w[i] -= f;
        }
    }
    for (size_t i = 0; i < o->n_bias; i++) {
        uint32_t k = o->bias[i].id;
        w[k] = o->bias[i].add <= -100 ? -INFINITY : w[k] + o->bias[i].add;
    }
    for (uint32_t i = 0; i < s->vocab; i++) {
        if (mask && !(mask[i / 32] >> i % 32 & 1)) {
            w[i] = -INFINITY;
        }
        any = any || w[i] > -INFINITY;
    }
    if (!any) {
        return err_set(e, ERR_NUMERIC,
                       "no token may come next: logit_bias forbids all that the format asks for");
    }
    *id = sample_pick(&o->base, w, s->vocab, counter, s->scratch);
    return 0;
}

double sampling_ln(double x)
{
    /* x = m 2^k with m near 1; ln m = 2 atanh((m - 1) / (m + 1)). Additions, multiplications and
     * one division in binary64, in this order. */
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int k = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffull) | 1023ull << 52;
    memcpy(&x, &bits, sizeof x);
    if (x > 1.4142135623730951) {
        x *= 0.5;
        k++;
    }
    double t = (x - 1) / (x + 1), t2 = t * t, sum = 0;
    for (int i = 21; i >= 1; i -= 2) {
        sum = sum * t2 + 1.0 / i;
    }
    return 2 * t * sum + k * 0.69314718055994531;
}

static bool before(const float *l, uint32_t a, uint32_t b)
{
    return l[a] > l[b] || (l[a] == l[b] && a < b);
}

void sampling_logprobs(struct sampling *s, const float *logits, struct engine_token *t)
{
    uint32_t top = sample_argmax(logits, s->vocab), best[ENGINE_TOP_MAX], n = 0;
    float max = logits[top];
    double sum = 0;
    for (uint32_t i = 0; i < s->vocab; i++) {
        sum += (double)kern_exp(logits[i] - max);
        uint32_t at = n;
        while (at > 0 && before(logits, i, best[at - 1])) {
            at--;
        }
        if (at < s->o->top) {
            n += n < s->o->top;
            memmove(best + at + 1, best + at, (n - 1 - at) * sizeof *best);
            best[at] = i;
        }
    }
    double ln = sampling_ln(sum);
    t->logprob = (float)((double)logits[t->id] - (double)max - ln);
    t->n_top = n;
    for (uint32_t i = 0; i < n; i++) {
        t->top[i].id = best[i];
        t->top[i].logprob = (float)((double)logits[best[i]] - (double)max - ln);
    }
}
