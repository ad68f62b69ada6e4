/* SPDX-License-Identifier: MIT
 * ops_neon.c: ops_v8.h for arm64. */
#include "kernels/isa.h"

#ifdef KERN_HAVE_NEON
#include "kernels/ops_v8_seq.h"

const struct kern_ops kern_ops_neon = KERN_OPS_V8;
#endif
