/* SPDX-License-Identifier: MIT
 * emu_backend.h: kernels/backend.h on the emulated shaders, for tests only. */
#ifndef SHOAL_TESTS_SHADERS_EMU_BACKEND_H
#define SHOAL_TESTS_SHADERS_EMU_BACKEND_H

#include "kernels/backend.h"
#include "shaders/plan.h"
#include "tests/shaders/emu.h"

extern const struct emu_kernel emu_shaders[SH_KERNELS]; /* kernels.cc */

struct emu_opts {
    bool reverse, flush; /* flush: FTZ and DAZ */
    struct sh_plan_opts plan;
};

/* NULL without memory. A fault of the emulation (see emu.h), and a command that the kernels do not
 * take, end submit with KERN_EINVAL and KERN_ENOTSUP and a line on stderr. */
struct kern_backend *emu_open(const struct emu_opts *o);

/* For a planned launch outside a backend. ctx: struct emu_opts. */
int emu_launch(void *ctx, const struct sh_launch *l);

/* Does this processor have what kernels.cc was compiled for? */
bool emu_usable(void);

#endif
