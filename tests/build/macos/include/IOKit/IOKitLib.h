/* SPDX-License-Identifier: MIT
 * Of IOKit/IOKitLib.h and IOKit/IOTypes.h, what this project calls: names and types as in Apple's.
 */
#ifndef SHOAL_STUB_IOKITLIB_H
#define SHOAL_STUB_IOKITLIB_H

#include <dispatch/dispatch.h>
#include <mach/mach.h>
#include <stdint.h>

typedef kern_return_t IOReturn;
typedef mach_port_t io_object_t;
typedef io_object_t io_connect_t;
typedef io_object_t io_service_t;
typedef struct IONotificationPort *IONotificationPortRef;
typedef void (*IOServiceInterestCallback)(void *refcon, io_service_t service, uint32_t messageType,
                                          void *messageArgument);

#define kIOReturnSuccess KERN_SUCCESS

IOReturn IOServiceClose(io_connect_t connect);
void IONotificationPortDestroy(IONotificationPortRef notify);
void IONotificationPortSetDispatchQueue(IONotificationPortRef notify, dispatch_queue_t queue);

#endif
