/* SPDX-License-Identifier: MIT
 * Of sys/xattr.h, what this project calls: names and types as in Apple's. */
#ifndef SHOAL_STUB_SYS_XATTR_H
#define SHOAL_STUB_SYS_XATTR_H

#include <stdint.h>
#include <sys/types.h>

ssize_t getxattr(const char *path, const char *name, void *value, size_t size, uint32_t position,
                 int options);
int setxattr(const char *path, const char *name, const void *value, size_t size, uint32_t position,
             int options);

#endif
