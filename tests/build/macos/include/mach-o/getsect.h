/* SPDX-License-Identifier: MIT
 * Of mach-o/getsect.h, what this project calls: names and types as in Apple's. */
#ifndef SHOAL_STUB_GETSECT_H
#define SHOAL_STUB_GETSECT_H

#include <mach-o/loader.h>
#include <stdint.h>

uint8_t *getsectiondata(const struct mach_header_64 *mhp, const char *segname, const char *sectname,
                        unsigned long *size);

#endif
