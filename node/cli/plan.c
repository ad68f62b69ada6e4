/* SPDX-License-Identifier: MIT
 * plan.c: who gets how much memory, and why.
 *
 * Without options Shoal takes half of the memory there is, never as much as fits: the rest is left
 * to the system's file cache and to other programs, since a Mac that starts to compress or swap
 * loses far more than a larger cache wins. Of that half the spine comes first, because every token
 * reads all of it, while a token reads one expert in dozens; experts get what is left, but never
 * less than two layers' choice, so that one layer can compute while the next is read. */
#include "node/cli/session.h"

#include <stdio.h>
#include <string.h>

void plan_make(struct plan *p, const struct model *m, const struct compute_opts *o, uint64_t memory)
{
    const struct model_config *c = model_config(m);
    memset(p, 0, sizeof *p);
    p->memory = memory;
    p->half = memory ? memory / 2 : (uint64_t)2 << 30;
    p->spine_bytes = model_spine_bytes(m);
    p->expert_bytes = model_expert_bytes(m);
    p->expert_size = model_expert_layout(m)->size;
    uint64_t least = 2 * (uint64_t)c->topk * p->expert_size;
    if (least > p->expert_bytes) {
        least = p->expert_bytes;
    }
    if (o->ram.set) {
        p->ram_budget = o->ram.v;
        snprintf(p->ram_why, sizeof p->ram_why, "given by --ram-budget");
    }
    uint64_t experts = o->ram.set ? o->ram.v : least;
    if (o->spine_ram.set) {
        p->spine_budget = o->spine_ram.v;
        snprintf(p->spine_why, sizeof p->spine_why, "given by --spine-ram");
    } else {
        uint64_t room = p->half > experts ? p->half - experts : 0;
        p->spine_budget = room < p->spine_bytes ? room : p->spine_bytes;
        snprintf(p->spine_why, sizeof p->spine_why, "%s",
                 room < p->spine_bytes ? "half of the memory, less the experts"
                                       : "all of it fits in half of the memory");
    }
    if (!o->ram.set) {
        uint64_t spine = p->spine_budget < p->spine_bytes ? p->spine_budget : p->spine_bytes;
        uint64_t room = p->half > spine ? p->half - spine : 0;
        if (room >= p->expert_bytes) {
            p->ram_budget = p->expert_bytes;
            snprintf(p->ram_why, sizeof p->ram_why, "all there are");
        } else if (room > least) {
            p->ram_budget = room;
            snprintf(p->ram_why, sizeof p->ram_why, "half of the memory, less the spine");
        } else {
            p->ram_budget = least;
            snprintf(p->ram_why, sizeof p->ram_why, "the least: two layers' choice");
        }
    }
}

/* Of what the GPU may use, so much is left for states, work arrays and other programs. */
#define GPU_SHARE 8

void plan_limit(struct plan *p, uint64_t limit)
{
    uint64_t room = limit - limit / GPU_SHARE;
    uint64_t spine = p->spine_budget < p->spine_bytes ? p->spine_budget : p->spine_bytes;
    if (!limit || (spine <= room && p->ram_budget <= room - spine)) {
        return;
    }
    /* Experts give way first: a token reads all of the spine, and one expert in dozens. */
    uint64_t half = room / 2, experts = p->ram_budget < half ? p->ram_budget : half;
    if (spine > room - experts) {
        p->spine_budget = spine = room - experts;
        snprintf(p->spine_why, sizeof p->spine_why, "bound by what the GPU may use");
    }
    if (p->ram_budget > room - spine) {
        p->ram_budget = room - spine;
        snprintf(p->ram_why, sizeof p->ram_why, "bound by what the GPU may use");
    }
}

/* A sixteenth of what weights have: it is not missed there. More than PLAN_CHUNK_MOST tokens need
 * no fewer bytes each that would be noticed: computing them takes longer than reading by then. */
void plan_chunk(struct plan *p, const struct compute_opts *o, uint64_t row_bytes)
{
    uint64_t spine = p->spine_budget < p->spine_bytes ? p->spine_budget : p->spine_bytes;
    uint64_t room = spine / 16 + p->ram_budget / 16;
    uint64_t n = row_bytes ? room / row_bytes : PLAN_CHUNK_MOST;
    if (o->chunk.set) {
        n = o->chunk.v;
        snprintf(p->chunk_why, sizeof p->chunk_why, "given by --prefill-chunk");
    } else if (n >= PLAN_CHUNK_MOST) {
        n = PLAN_CHUNK_MOST;
        snprintf(p->chunk_why, sizeof p->chunk_why,
                 "with more, reading is no longer what takes long");
    } else if (n <= PLAN_CHUNK_LEAST) {
        n = PLAN_CHUNK_LEAST;
        snprintf(p->chunk_why, sizeof p->chunk_why, "the least, whatever the memory");
    } else {
        n -= n % 16;
        snprintf(p->chunk_why, sizeof p->chunk_why,
                 "a sixteenth of the memory of spine and experts");
    }
    p->chunk = (uint32_t)n;
    p->chunk_bytes = n * row_bytes;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

void plan_spine(const struct spine_facts *f, double *bf16, double *packed)
{
    double compute = f->bytes / (f->read * f->cores), all = f->ratio * f->bytes;
    /* all of it packed in memory: what is over holds some of it as it is (node/infer/weights.c) */
    double as_is = f->ram > all ? (f->ram - all) / (1 - f->ratio) : 0;
    as_is = as_is < f->bytes ? as_is : f->bytes;
    *bf16 = larger(larger(f->bytes - f->ram, 0) / f->disk, compute);
    *packed = larger(larger(all - f->ram, 0) / f->disk,
                     compute + (f->bytes - as_is) / (f->unpack * f->cores));
}

json_t *plan_json(const struct plan *p)
{
    return json_pack("{s:I, s:I, s:I, s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:s}", "memory",
                     (json_int_t)p->memory, "spine_bytes", (json_int_t)p->spine_bytes, "spine_ram",
                     (json_int_t)p->spine_budget, "spine_ram_why", p->spine_why, "expert_bytes",
                     (json_int_t)p->expert_bytes, "expert_ram", (json_int_t)p->ram_budget,
                     "expert_ram_why", p->ram_why, "state_bytes", (json_int_t)p->state_fixed,
                     "state_bytes_per_token", (json_int_t)p->state_per_token, "prefill_chunk",
                     (json_int_t)p->chunk, "prefill_bytes", (json_int_t)p->chunk_bytes,
                     "prefill_chunk_why", p->chunk_why);
}
