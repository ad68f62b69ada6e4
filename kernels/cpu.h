/* SPDX-License-Identifier: MIT
 * cpu.h: the CPU backend: scalar C (the reference), AVX2+FMA, NEON, chosen at run time. */
#ifndef SHOAL_KERNELS_CPU_H
#define SHOAL_KERNELS_CPU_H

#include "kernels/backend.h"

enum kern_isa { KERN_ISA_AUTO, KERN_ISA_SCALAR, KERN_ISA_AVX2, KERN_ISA_NEON };

struct kern_cpu_opts {
    enum kern_isa isa;
    unsigned threads;      /* workers including the calling thread; at most 64;
                            0 = one per performance core */
    bool flush_subnormals; /* for tests: run with FTZ and DAZ on; results must not change */
    bool split_small;      /* for tests: spread even the smallest work, in the smallest parts */
};

/* KERN_ENOTSUP when the machine lacks the forced instruction set, KERN_EINVAL for too many threads,
 * KERN_ENOMEM without memory or threads. Free with (*out)->close(*out). */
int kern_cpu_open(const struct kern_cpu_opts *o, struct kern_backend **out);
const char *kern_isa_name(enum kern_isa isa);
/* "auto", "scalar", "avx2", "neon" -> true and *isa. */
bool kern_isa_parse(const char *s, enum kern_isa *isa);
bool kern_isa_available(enum kern_isa isa);

/* The scalar forms of the functions of NUMERICS.md, for sampling and tests. Pure. */
float kern_exp(float x);     /* within 1 ulp; +0 below -86 */
float kern_sigmoid(float x); /* within 4 ulp, as the next two */
float kern_tanh(float x);
float kern_silu(float x);

#endif
