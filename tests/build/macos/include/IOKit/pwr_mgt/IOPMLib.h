/* SPDX-License-Identifier: MIT
 * Of IOKit/pwr_mgt/IOPMLib.h, what this project calls: names and types as in Apple's. */
#ifndef SHOAL_STUB_IOPMLIB_H
#define SHOAL_STUB_IOPMLIB_H

#include <CoreFoundation/CoreFoundation.h>
#include <IOKit/IOKitLib.h>

typedef uint32_t IOPMAssertionID;
typedef uint32_t IOPMAssertionLevel;

#define kIOPMAssertionTypePreventUserIdleSystemSleep CFSTR("PreventUserIdleSystemSleep")
enum { kIOPMAssertionLevelOff = 0, kIOPMAssertionLevelOn = 255 };

io_connect_t IORegisterForSystemPower(void *refcon, IONotificationPortRef *thePortRef,
                                      IOServiceInterestCallback callback, io_object_t *notifier);
IOReturn IODeregisterForSystemPower(io_object_t *notifier);
IOReturn IOAllowPowerChange(io_connect_t kernelPort, intptr_t notificationID);
IOReturn IOPMAssertionCreateWithName(CFStringRef AssertionType, IOPMAssertionLevel AssertionLevel,
                                     CFStringRef AssertionName, IOPMAssertionID *AssertionID);
IOReturn IOPMAssertionRelease(IOPMAssertionID AssertionID);

#endif
