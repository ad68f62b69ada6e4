/* SPDX-License-Identifier: MIT
 * Of mach-o/ldsyms.h, what this project names: as in Apple's. */
#ifndef SHOAL_STUB_LDSYMS_H
#define SHOAL_STUB_LDSYMS_H

#include <mach-o/loader.h>

extern const struct mach_header_64 _mh_execute_header;

#endif
