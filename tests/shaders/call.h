// SPDX-License-Identifier: MIT
// call.h: from a kernel as Metal spells it to emu_fn: its buffers from an array of pointers.
#pragma once
#include <utility>

#include "tests/shaders/emu.h"

template <class A, class... B, size_t... I>
inline void emu_call(void (*f)(const A &, uint3, uint, uint, uint, B...), const void *args,
                     const uint32_t g[3], uint32_t tid, void *const *buf, std::index_sequence<I...>)
{
    uint3 group;
    group.x = g[0];
    group.y = g[1];
    group.z = g[2];
    f(*(const A *)args, group, tid, tid % 32, tid / 32, (B)buf[I]...);
}

template <class A, class... B>
inline void emu_call(void (*f)(const A &, uint3, uint, uint, uint, B...), const void *args,
                     const uint32_t g[3], uint32_t tid, void *const *buf)
{
    emu_call(f, args, g, tid, buf, std::index_sequence_for<B...>());
}

template <class A, class... B>
constexpr uint32_t emu_buffers(void (*)(const A &, uint3, uint, uint, uint, B...))
{
    return sizeof...(B);
}

template <class A, class... B>
constexpr size_t emu_args(void (*)(const A &, uint3, uint, uint, uint, B...))
{
    return sizeof(A);
}

#define EMU_BODY(name)                                                                            \
    static void run_##name(const void *args, const uint32_t g[3], uint32_t tid, void *const *buf) \
    {                                                                                             \
        emu_call(name, args, g, tid, buf);                                                        \
    }
#define EMU_ENTRY(name) {#name, run_##name, emu_args(name), emu_buffers(name)},
