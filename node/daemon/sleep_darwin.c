/* SPDX-License-Identifier: MIT
 * sleep_darwin.c: see sleep.h: IOKit's messages of the root power domain, on a queue of their own.
 * Before sleep the system waits for an answer, up to 30 s; each message that wants one gets it.
 *
 * Source: IOKit/pwr_mgt/IOPMLib.h and IOKit/IOMessage.h of the SDK; technical Q&A QA1340. */
#include "node/daemon/sleep.h"

#include <IOKit/IOMessage.h>
#include <IOKit/pwr_mgt/IOPMLib.h>
#include <dispatch/dispatch.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>

#define LEAVE_MS 300 /* for goodbyes and the withdrawal to leave by the sockets */

struct sleep_watch {
    void (*event)(void *ctx, enum sleep_event ev);
    void *ctx;
    io_connect_t root;
    io_object_t notifier;
    IONotificationPortRef port;
    dispatch_queue_t queue;
};

static void on_message(void *refcon, io_service_t service, uint32_t type, void *argument)
{
    struct sleep_watch *w = refcon;
    (void)service;
    switch (type) {
    case kIOMessageCanSystemSleep:
        w->event(w->ctx, SLEEP_ASKED);
        IOAllowPowerChange(w->root, (intptr_t)argument);
        break;
    case kIOMessageSystemWillSleep:
        w->event(w->ctx, SLEEP_COMES);
        poll(NULL, 0, LEAVE_MS);
        IOAllowPowerChange(w->root, (intptr_t)argument);
        break;
    case kIOMessageSystemWillNotSleep:
        w->event(w->ctx, SLEEP_OFF);
        break;
    case kIOMessageSystemWillPowerOn:
        w->event(w->ctx, SLEEP_ENDS);
        break;
    case kIOMessageSystemHasPoweredOn:
        w->event(w->ctx, SLEEP_IS_OVER);
        break;
    default:
        break;
    }
}

struct sleep_watch *sleep_watch(void (*event)(void *ctx, enum sleep_event ev), void *ctx)
{
    struct sleep_watch *w = calloc(1, sizeof *w);
    if (!w) {
        return NULL;
    }
    w->event = event;
    w->ctx = ctx;
    w->queue = dispatch_queue_create("org.shoal.sleep", DISPATCH_QUEUE_SERIAL);
    w->root = w->queue ? IORegisterForSystemPower(w, &w->port, on_message, &w->notifier) : 0;
    if (!w->root) {
        if (w->queue) {
            dispatch_release(w->queue);
        }
        free(w);
        return NULL;
    }
    IONotificationPortSetDispatchQueue(w->port, w->queue); /* only from now on messages come */
    return w;
}

static void nothing(void *ctx)
{
    (void)ctx;
}

void sleep_unwatch(struct sleep_watch *w)
{
    if (!w) {
        return;
    }
    IODeregisterForSystemPower(&w->notifier);
    dispatch_sync_f(w->queue, NULL, nothing); /* behind the last message */
    IONotificationPortDestroy(w->port);
    dispatch_sync_f(w->queue, NULL, nothing);
    IOServiceClose(w->root);
    dispatch_release(w->queue);
    free(w);
}
