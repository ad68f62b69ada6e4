/* SPDX-License-Identifier: MIT
 * Of CoreFoundation, what this project calls: names and types as in Apple's. */
#ifndef SHOAL_STUB_COREFOUNDATION_H
#define SHOAL_STUB_COREFOUNDATION_H

#include <stdint.h>

typedef const void *CFTypeRef;
typedef const struct __CFString *CFStringRef;

/* A string that the compiler makes, with -fconstant-cfstrings as on a Mac. */
#define CFSTR(s) ((CFStringRef)__builtin___CFStringMakeConstantString("" s ""))

void CFRelease(CFTypeRef cf);

#endif
