/* SPDX-License-Identifier: MIT
 * compute.h: which hardware computes: the one place that chooses between CPU and GPU, and what the
 * choice rests on. Everything behind it sees a kern_backend and cannot tell. */
#ifndef SHOAL_NODE_COMPUTE_H
#define SHOAL_NODE_COMPUTE_H

#include "kernels/cpu.h"
#include "proto/base/err.h"
#include "shaders/gpu.h"

/* AUTO: the GPU, where there is one whose self-test passed, or failed in small kernels alone (their
 * commands go to the CPU); else the CPU. GPU: the GPU or an error; every kernel that failed goes to
 * the CPU. */
enum compute_choice { COMPUTE_AUTO, COMPUTE_CPU, COMPUTE_GPU };
extern const char *const compute_choices[]; /* in this order, NULL-terminated */

struct compute_setup {
    enum compute_choice choice;
    struct kern_cpu_opts cpu;
    /* Compiling the kernels takes seconds and the self-test one, so the compiled kernels are kept
     * in the folder `kernels` of this one (made if need be), and what the test found of them in the
     * file `gpu`, as long as GPU, system and program are the same. NULL: both each time. */
    const char *folder;
    const char *program; /* names this very build */
    /* Opens a GPU, as metal_device_open. NULL: this machine's, if it has one that is supported. */
    int (*device)(void *ctx, struct sh_device **out, char *why, size_t size);
    void *device_ctx;
    /* One line for people, also later, from the thread that computes. May be NULL. */
    void (*say)(void *ctx, const char *line);
    void *say_ctx;
};

struct compute; /* opaque */

/* ERR_UNSUPPORTED with a sentence: no such instruction set, or COMPUTE_GPU and no GPU. */
int compute_open(const struct compute_setup *o, struct compute **out, struct err *e);
void compute_close(struct compute *c); /* its buffers are free; NULL is fine */
struct kern_backend *compute_backend(struct compute *c);

struct compute_report {
    const char *name; /* of the backend: "cpu/neon", "metal/Apple M2" */
    const char *cpu;  /* of the CPU's, which does what the GPU does not: "cpu/neon" */
    bool gpu;         /* in use */
    bool lost;        /* it was, and failed: the CPU computes until the next start */
    bool kept_code;   /* its kernels were compiled by an earlier process */
    bool remembered;  /* and so was the self-test made */
    char why[300];    /* it is not in use; "" else */
    char on_cpu[400]; /* kernels whose bits are not the CPU's here, "" none: their commands go to
                         the CPU */
    size_t limit, allocated;        /* bytes: that the GPU may use, that it uses; 0: no GPU */
    uint64_t batches, cpu_commands; /* submissions to the GPU; commands that went to the CPU */
};
void compute_report(const struct compute *c, struct compute_report *out); /* any thread */
size_t compute_limit(const struct compute *c);                            /* the report's */

/* ---- the machine (device_darwin.c, device_none.c) ---- */

int compute_device(void *ctx, struct sh_device **out, char *why, size_t size);

#endif
