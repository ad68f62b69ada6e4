/* SPDX-License-Identifier: MIT
 * metal_device.h: the GPU of this Mac as a device of gpu.h. */
#ifndef SHOAL_SHADERS_METAL_DEVICE_H
#define SHOAL_SHADERS_METAL_DEVICE_H

#include "shaders/gpu.h"

/* The GPU and a queue; no kernels yet (build, load of gpu.h), which are compiled with strict
 * arithmetic. KERN_ENOTSUP and a sentence in why when there is no GPU. */
int metal_device_open(struct sh_device **out, char *why, size_t size);

/* The text of all kernels: generated from this folder (embed.cmake), no zero at its end. */
extern const unsigned char sh_metal_text[];
extern const size_t sh_metal_text_size;

#endif
