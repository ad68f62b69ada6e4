/* SPDX-License-Identifier: MIT
 * Of IOKit/IOMessage.h, the messages of the root power domain: err_system(0x38) | err_sub(0) |
 * code. */
#ifndef SHOAL_STUB_IOMESSAGE_H
#define SHOAL_STUB_IOMESSAGE_H

#include <stdint.h>

#define iokit_common_msg(message) ((uint32_t)((0x38u << 26) | (uint32_t)(message)))
#define kIOMessageCanSystemSleep iokit_common_msg(0x270)
#define kIOMessageSystemWillSleep iokit_common_msg(0x280)
#define kIOMessageSystemWillNotSleep iokit_common_msg(0x290)
#define kIOMessageSystemHasPoweredOn iokit_common_msg(0x300)
#define kIOMessageSystemWillPowerOn iokit_common_msg(0x320)

#endif
