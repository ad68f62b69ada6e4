/* SPDX-License-Identifier: MIT
 * device_none.c: a system whose GPUs Shoal does not use. */
#include "node/compute/compute.h"

#include <stdio.h>

int compute_device(void *ctx, struct sh_device **out, char *why, size_t size)
{
    (void)ctx;
    *out = NULL;
    snprintf(why, size, "on this system Shoal uses no GPU");
    return KERN_ENOTSUP;
}
