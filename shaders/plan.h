/* SPDX-License-Identifier: MIT
 * plan.h: a command of kernels/backend.h as launches of kernels, for whoever runs them: Metal, the
 * emulation, CUDA. Plain C without state; the launches of a plan take effect one after the other.
 */
#ifndef SHOAL_SHADERS_PLAN_H
#define SHOAL_SHADERS_PLAN_H

#include "kernels/backend.h"
#include "shaders/args.h"

enum sh_kernel {
#define SH_KERNEL(name, args, buffers) SH_##name,
#include "shaders/kernels.h"
#undef SH_KERNEL
    SH_KERNELS
};

#define SH_BUFFERS 9 /* the most buffers of a kernel */

struct sh_launch {
    enum sh_kernel kernel;
    uint32_t groups[3], threads; /* threads of a threadgroup: a multiple of 32 */
    uint32_t buffers;
    struct kern_ref buf[SH_BUFFERS]; /* all set; [[buffer(1)]] and on */
    size_t args_size;                /* of [[buffer(0)]] */
    union {
        struct sh_product product;
        struct sh_map map;
        struct sh_combine combine;
        struct sh_check check;
        struct sh_norm norm;
        struct sh_gated_norm gated_norm;
        struct sh_mix mix;
        struct sh_softmax softmax;
        struct sh_conv conv;
        struct sh_kda kda;
        struct sh_mla mla;
        struct sh_router router;
        struct sh_argmax argmax;
    } args;
};

struct sh_plan_opts {
    size_t max_scores; /* floats of attention scores at a time, 0 = 16 Mi */
    bool plain;        /* for tests: never the kernels that want aligned shapes */
};

/* Returns nonzero to end the plan. */
typedef int sh_emit(void *ctx, const struct sh_launch *l);

/* Bytes of scratch that the command needs (may be 0); false when they overflow. The command must
 * have passed kern_check_cmd. */
bool sh_plan_scratch(const struct kern_cmd *c, const struct sh_plan_opts *o, size_t *bytes);

/* Calls emit for each launch. scratch: at least the bytes above, 64-byte aligned, NULL when none.
 * Returns 0, KERN_EINVAL for a command whose operands cannot be right, KERN_ENOTSUP for sizes that
 * the kernels do not take (KDA heads above SH_KDA_MAX_D, more than SH_ROUTER_MAX_E experts, 2^32
 * elements), or what emit returned. */
int sh_plan(const struct kern_cmd *c, const struct sh_plan_opts *o, const struct kern_buf *scratch,
            sh_emit *emit, void *ctx);

/* The largest of each of T rows of n logits: id uint32 [T], value [T]; scratch of
 * sh_argmax_scratch(n, T) bytes. */
size_t sh_argmax_scratch(uint32_t n, uint32_t T);
int sh_plan_argmax(struct kern_ref x, uint32_t n, uint32_t T, struct kern_ref id,
                   struct kern_ref value, const struct kern_buf *scratch, sh_emit *emit, void *ctx);

const char *sh_kernel_name(enum sh_kernel k);

#endif
