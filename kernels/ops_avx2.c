/* SPDX-License-Identifier: MIT
 * ops_avx2.c: ops_v8.h for x86-64 with AVX2 and FMA (compiled with -mavx2 -mfma). */
#include "kernels/isa.h"

#ifdef KERN_HAVE_AVX2
#include "kernels/ops_v8_seq.h"

const struct kern_ops kern_ops_avx2 = KERN_OPS_V8;
#endif
