/* SPDX-License-Identifier: MIT
 * fpenv.h: the floating-point environment of the calling thread; inside kernels/. */
#ifndef SHOAL_KERNELS_FPENV_H
#define SHOAL_KERNELS_FPENV_H

#include <stdbool.h>
#include <stdint.h>

/* Round to nearest even, exceptions masked, subnormals kept or (flush) taken and made as zero.
 * Returns the former mode for kern_fpenv_leave. */
uint64_t kern_fpenv_enter(bool flush);
void kern_fpenv_leave(uint64_t former);

#endif
