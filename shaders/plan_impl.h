/* SPDX-License-Identifier: MIT
 * plan_impl.h: what plan.c and plan_mla.c share. */
#ifndef SHOAL_SHADERS_PLAN_IMPL_H
#define SHOAL_SHADERS_PLAN_IMPL_H

#include "shaders/plan.h"

struct sh_planner {
    const struct kern_cmd *c;
    const struct sh_plan_opts *o;
    const struct kern_buf *scratch;
    sh_emit *emit;
    void *ctx;
};

static inline uint32_t sh_groups(uint32_t n, uint32_t per)
{
    return n / per + (n % per != 0);
}

static inline struct sh_launch sh_launch(enum sh_kernel k, size_t args_size, uint32_t threads,
                                         uint32_t x, uint32_t y, uint32_t z)
{
    return (struct sh_launch){
        .kernel = k, .groups = {x, y, z}, .threads = threads, .args_size = args_size};
}

static inline void sh_bind(struct sh_launch *l, struct kern_ref r)
{
    l->buf[l->buffers++] = r;
}

bool sh_mla_scratch(const struct kern_cmd *c, const struct sh_plan_opts *o, size_t *bytes);
int sh_plan_mla(const struct sh_planner *p);

#endif
