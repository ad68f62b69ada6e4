// SPDX-License-Identifier: MIT
// kernels.cc: all shaders as C++, and the table through which the emulation calls them.
#include "shaders/elementwise.metal"
#include "shaders/head.metal"
#include "shaders/kda.metal"
#include "shaders/mix.metal"
#include "shaders/mla.metal"
#include "shaders/norms.metal"
#include "shaders/product.metal"
#include "shaders/router.metal"
#include "shaders/softmax.metal"

#include "tests/shaders/call.h"

#define SH_KERNEL(name, args, buffers)                                                             \
    EMU_BODY(name)                                                                                 \
    static_assert(emu_args(name) == sizeof(args) && emu_buffers(name) == buffers, #name);
#include "shaders/kernels.h"
#undef SH_KERNEL

extern "C" const struct emu_kernel emu_shaders[] = {
#define SH_KERNEL(name, args, buffers) EMU_ENTRY(name)
#include "shaders/kernels.h"
#undef SH_KERNEL
};
