/* SPDX-License-Identifier: MIT
 * device_darwin.c: the Mac's GPU. */
#include "node/compute/compute.h"

#include "shaders/metal_device.h"

int compute_device(void *ctx, struct sh_device **out, char *why, size_t size)
{
    (void)ctx;
    return metal_device_open(out, why, size);
}
