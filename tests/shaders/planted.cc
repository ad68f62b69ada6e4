// SPDX-License-Identifier: MIT
// planted.cc: kernels with a fault each, and one without, for t_emu.
#include "shaders/prelude.metal"

#include "tests/shaders/call.h"

struct planted_args {
    uint32_t n;
};

// y[i] = the sum of the x of all SIMD groups' first threads; 128 threads.
kernel void sound(constant planted_args &a [[buffer(0)]], SH_POS,
                  device const float *x [[buffer(1)]], device float *y [[buffer(2)]])
{
    SH_SHARED(float, part, 4);
    float v = sh_fold32(x[tid]);
    if (lane == 0) {
        part[sg] = v;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[group.x * 128 + tid] = part[0] + part[1] + part[2] + part[3];
}

// The same without the barrier.
kernel void missing_barrier(constant planted_args &a [[buffer(0)]], SH_POS,
                            device const float *x [[buffer(1)]], device float *y [[buffer(2)]])
{
    SH_SHARED(float, part, 4);
    float v = sh_fold32(x[tid]);
    if (lane == 0) {
        part[sg] = v;
    }
    y[group.x * 128 + tid] = part[0] + part[1] + part[2] + part[3];
}

// Reads threadgroup memory that nobody wrote.
kernel void unwritten(constant planted_args &a [[buffer(0)]], SH_POS,
                      device const float *x [[buffer(1)]], device float *y [[buffer(2)]])
{
    SH_SHARED(float, part, 5);
    float v = sh_fold32(x[tid]);
    if (lane == 0) {
        part[sg] = v;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[group.x * 128 + tid] = part[0] + part[1] + part[2] + part[3] + part[4];
}

// A barrier that only some SIMD groups reach.
kernel void divergent_barrier(constant planted_args &a [[buffer(0)]], SH_POS,
                              device const float *x [[buffer(1)]], device float *y [[buffer(2)]])
{
    if (sg < 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    y[group.x * 128 + tid] = x[tid];
}

// All threads reach a barrier, but not the same one.
kernel void two_barriers(constant planted_args &a [[buffer(0)]], SH_POS,
                         device const float *x [[buffer(1)]], device float *y [[buffer(2)]])
{
    if (sg < 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    } else {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    y[group.x * 128 + tid] = x[tid];
}

// A shuffle that some lanes skip.
kernel void divergent_shuffle(constant planted_args &a [[buffer(0)]], SH_POS,
                              device const float *x [[buffer(1)]], device float *y [[buffer(2)]])
{
    float v = x[tid];
    if (lane < a.n) {
        v += simd_shuffle_xor(v, (ushort)1);
    }
    y[group.x * 128 + tid] = v;
}

#define ALL(X)                                                                                     \
    X(sound) X(missing_barrier) X(unwritten) X(divergent_barrier) X(two_barriers)                  \
    X(divergent_shuffle)
ALL(EMU_BODY)

extern "C" const struct emu_kernel emu_planted[] = {ALL(EMU_ENTRY)};
