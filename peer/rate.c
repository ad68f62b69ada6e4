/* SPDX-License-Identifier: MIT
 * rate.c: see rate.h. */
#include "peer/rate.h"

#include <string.h>

void rate_init(struct rate *r)
{
    r->bytes = 0;
    r->ns = 0;
}

void rate_add(struct rate *r, uint64_t bytes, uint64_t ns)
{
    double dt = ns ? (double)ns : 1;
    double keep = 1 / (1 + dt / RATE_MEMORY_NS);
    r->bytes = r->bytes * keep + (double)bytes;
    r->ns = r->ns * keep + dt;
}

void rate_set(struct rate *r, double per_s)
{
    rate_init(r);
    if (per_s > 0) {
        r->ns = RATE_MEMORY_NS;
        r->bytes = per_s * RATE_MEMORY_NS / 1e9;
    }
}

bool rate_known(const struct rate *r)
{
    return r->ns > 0;
}

double rate_get(const struct rate *r, double otherwise)
{
    double v = r->ns > 0 ? r->bytes / r->ns * 1e9 : otherwise;
    return v < 1 ? 1 : v; /* times are found by dividing by it */
}

double rate_at_most(const struct rate *r, double otherwise, uint64_t bytes, uint64_t waited)
{
    double v = rate_get(r, otherwise);
    if (waited > 0) {
        double bound = (double)bytes / (double)waited * 1e9;
        if (bound < v) {
            v = bound;
        }
    }
    return v < 1 ? 1 : v;
}

void latency_add(struct latency *l, uint64_t ns)
{
    double v = (double)ns;
    if (!l->known) {
        l->mean = l->least = v;
        l->known = true;
        return;
    }
    l->mean += (v - l->mean) / 8;
    l->least = v < l->least ? v : l->least + (v - l->least) / 8;
}

uint64_t latency_get(const struct latency *l, uint64_t otherwise)
{
    return l->known ? (uint64_t)l->mean : otherwise;
}

uint64_t latency_least(const struct latency *l, uint64_t otherwise)
{
    return l->known ? (uint64_t)l->least : otherwise;
}

void pct_init(struct pct *p)
{
    memset(p, 0, sizeof *p);
}

void pct_add(struct pct *p, uint64_t ns)
{
    p->v[p->next] = ns;
    p->next = (p->next + 1) % PCT_SAMPLES;
    if (p->n < PCT_SAMPLES) {
        p->n++;
    }
    p->cached_for = 0;
}

uint64_t pct_get(struct pct *p, uint32_t percent, uint64_t otherwise)
{
    if (p->n < PCT_MIN) {
        return otherwise;
    }
    if (percent < 1 || percent > 100) {
        percent = percent < 1 ? 1 : 100;
    }
    if (p->cached_for == percent) {
        return p->cached;
    }
    /* Only the upper end has to be in order: take the largest away until the rank is reached. */
    uint64_t s[PCT_SAMPLES];
    memcpy(s, p->v, p->n * sizeof s[0]);
    uint32_t rank = (p->n * percent + 99) / 100; /* 1 .. n */
    uint32_t n = p->n;
    for (;;) {
        uint32_t top = 0;
        for (uint32_t i = 1; i < n; i++) {
            if (s[i] > s[top]) {
                top = i;
            }
        }
        if (n == rank) {
            p->cached = s[top];
            p->cached_for = percent;
            return p->cached;
        }
        s[top] = s[--n];
    }
}
