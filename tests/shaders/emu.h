/* SPDX-License-Identifier: MIT
 * emu.h: a grid of GPU threads on one CPU thread: fibers that change at shuffles and barriers.
 *
 * A SIMD group of 32 runs, lane after lane, until all its lanes stand at the same shuffle (which is
 * then carried out), at the same barrier or at their end; then the next. Threadgroups run one after
 * the other. Both orders, of threadgroups, SIMD groups and lanes, can be reversed: what depends on
 * the order lacks a barrier. Lanes or threads that stand at different places are a fault.
 * One emulation at a time in a process. */
#ifndef SHOAL_TESTS_SHADERS_EMU_H
#define SHOAL_TESTS_SHADERS_EMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMU_THREADS 1024 /* the most threads of a threadgroup */

/* The body of one thread. */
typedef void emu_fn(const void *args, const uint32_t group[3], uint32_t tid, void *const *buf);

struct emu_kernel {
    const char *name;
    emu_fn *fn;
    size_t args_size;
    uint32_t buffers;
};

/* Runs the grid. Returns 0, or -1 with the fault in why: which threads stood where. Memory is then
 * as the fault left it. */
int emu_run(const struct emu_kernel *k, const void *args, const uint32_t groups[3],
            uint32_t threads, void *const *buf, bool reverse, char *why, size_t size);

/* For the shim, inside a kernel: source line as the name of the place. */
uint32_t emu_shuffle_xor(uint32_t v, uint32_t mask, int line);
void emu_barrier(int line);

#ifdef __cplusplus
}
#endif

#endif
