/* SPDX-License-Identifier: MIT
 * power_darwin.c: see power.h: the power source as the system's power daemon publishes it by
 * notify(3); the network in use as the Network framework's path monitor tells it, which is asked
 * anew each time: its first answer comes at once, and nothing stays behind.
 *
 * Source: notify.h, Network/path.h and Network/path_monitor.h of the SDK. */
#include "node/daemon/power.h"

#include <Network/Network.h>
#include <dispatch/dispatch.h>
#include <notify.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE_KEY "com.apple.system.powersources.percent"
#define EXTERNAL ((uint64_t)1 << 16) /* an outside source feeds the machine */
#define VALID ((uint64_t)1 << 19)    /* there is a battery, and the rest means something */
#define PATH_MS 500

static enum power_said said(bool yes)
{
    return yes ? POWER_YES : POWER_NO;
}

static void read_source(struct power_reading *out)
{
    int token;
    uint64_t state = 0;
    if (notify_register_check(SOURCE_KEY, &token) != NOTIFY_STATUS_OK) {
        return;
    }
    if (notify_get_state(token, &state) == NOTIFY_STATUS_OK) {
        out->battery = said((state & VALID) != 0);
        out->outside = said((state & EXTERNAL) != 0);
    }
    notify_cancel(token);
}

/* Lives until the monitor has said that it is cancelled: an answer that comes too late finds it. */
struct look {
    dispatch_semaphore_t told;
    bool done, up, expensive, constrained;
};

static void read_path(struct power_reading *out)
{
    struct look *l = calloc(1, sizeof *l);
    dispatch_queue_t q = dispatch_queue_create("org.shoal.path", DISPATCH_QUEUE_SERIAL);
    nw_path_monitor_t m = nw_path_monitor_create();
    dispatch_semaphore_t told = dispatch_semaphore_create(0);
    if (!l || !q || !m || !told) { /* no memory: nothing is known */
        free(l);
        return;
    }
    l->told = told;
    nw_path_monitor_set_queue(m, q);
    nw_path_monitor_set_update_handler(m, ^(nw_path_t p) {
      if (!l->done) { /* the first: whoever waits reads what stands here */
          l->done = true;
          l->up = nw_path_get_status(p) == nw_path_status_satisfied;
          l->expensive = nw_path_is_expensive(p);
          l->constrained = nw_path_is_constrained(p);
          dispatch_semaphore_signal(l->told);
      }
    });
    nw_path_monitor_set_cancel_handler(m, ^{
      dispatch_release(l->told);
      free(l);
    });
    nw_path_monitor_start(m);
    dispatch_time_t end = dispatch_time(DISPATCH_TIME_NOW, PATH_MS * (int64_t)NSEC_PER_MSEC);
    if (!dispatch_semaphore_wait(told, end) && l->up) {
        out->expensive = said(l->expensive);
        out->constrained = said(l->constrained);
    }
    nw_path_monitor_cancel(m);
    nw_release(m);
    dispatch_release(q);
}

void power_read(struct power_reading *out)
{
    memset(out, 0, sizeof *out);
    read_source(out);
    read_path(out);
}

void power_now(struct power *out)
{
    struct power_reading r;
    power_read(&r);
    power_judge(&r, out);
}
