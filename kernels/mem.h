/* SPDX-License-Identifier: MIT
 * mem.h: page-aligned zeroed memory from the system; inside kernels/. */
#ifndef SHOAL_KERNELS_MEM_H
#define SHOAL_KERNELS_MEM_H

#include <stddef.h>

/* `size` bytes rounded up to pages, in huge pages where the system has them and it is worth it.
 * *mapped is what kern_mem_unmap wants. NULL without memory. */
void *kern_mem_map(size_t size, size_t *mapped);
void kern_mem_unmap(void *p, size_t mapped);

#endif
