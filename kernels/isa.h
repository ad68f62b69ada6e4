/* SPDX-License-Identifier: MIT
 * isa.h: which instruction sets this build and this machine have, inside kernels/.
 *
 * Names and availability for users are in cpu.h. A file for one set defines its table only where
 * the compiler targets the architecture: KERN_HAVE_AVX2 / KERN_HAVE_NEON say so. */
#ifndef SHOAL_KERNELS_ISA_H
#define SHOAL_KERNELS_ISA_H

#include "kernels/cpu.h"

#if defined(__x86_64__)
#define KERN_HAVE_AVX2 1 /* built; the machine is asked at run time */
#endif
#if defined(__aarch64__)
#define KERN_HAVE_NEON 1 /* always there on arm64 */
#endif

/* AUTO becomes the best set of this machine; a forced set comes back as it is when available.
 * Returns 0 or KERN_ENOTSUP. */
int kern_isa_resolve(enum kern_isa want, enum kern_isa *isa);

#endif
