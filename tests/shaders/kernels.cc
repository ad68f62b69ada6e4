// SPDX-License-Identifier: MIT
// kernels.cc: all shaders as C++, and the table through which the emulation calls them.
#include "shoal.metal" // generated: the text that the program carries

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
