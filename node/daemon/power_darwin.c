/* SPDX-License-Identifier: MIT
 * power_darwin.c: see power.h: the power source as the system's power daemon publishes it by
 * notify(3), which is in libSystem and needs no framework. Whether a network is expensive or
 * constrained is told by the Network framework's path monitor alone, which this program does not
 * link: not known. */
#include "node/daemon/power.h"

#include <stdint.h>
#include <string.h>

/* As <notify.h> declares them; not every SDK that builds this has the header. */
extern uint32_t notify_register_check(const char *name, int *out_token);
extern uint32_t notify_get_state(int token, uint64_t *state64);
extern uint32_t notify_cancel(int token);

#define SOURCE_KEY "com.apple.system.powersources.percent"
#define EXTERNAL ((uint64_t)1 << 16) /* an outside source feeds the machine */
#define VALID ((uint64_t)1 << 19)    /* there is a battery, and the rest means something */

void power_now(struct power *out)
{
    int token;
    uint64_t state = 0;
    memset(out, 0, sizeof *out);
    if (notify_register_check(SOURCE_KEY, &token) == 0) {
        if (notify_get_state(token, &state) == 0 && (state & VALID)) {
            out->on_battery = !(state & EXTERNAL);
        }
        notify_cancel(token);
    }
}
