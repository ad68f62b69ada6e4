/* SPDX-License-Identifier: MIT
 * fpenv.c: see fpenv.h. */
#include "kernels/fpenv.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

#define MASKED 0x1f80u /* all exceptions masked, nearest */
#define FTZ 0x8000u
#define DAZ 0x0040u

uint64_t kern_fpenv_enter(bool flush)
{
    uint64_t former = _mm_getcsr();
    _mm_setcsr(MASKED | (flush ? FTZ | DAZ : 0));
    return former;
}

void kern_fpenv_leave(uint64_t former)
{
    _mm_setcsr((unsigned)former);
}

#elif defined(__aarch64__)

#define FZ (UINT64_C(1) << 24)

uint64_t kern_fpenv_enter(bool flush)
{
    uint64_t former;
    uint64_t mode = flush ? FZ : 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(former));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
    return former;
}

void kern_fpenv_leave(uint64_t former)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(former) : "memory");
}

#else
#error "fpenv.c: say how this machine's floating-point mode is set"
#endif
