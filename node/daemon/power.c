/* SPDX-License-Identifier: MIT
 * power.c: see power.h. A machine with a battery is on it unless something outside feeds it. */
#include "node/daemon/power.h"

void power_judge(const struct power_reading *r, struct power *out)
{
    out->on_battery = r->battery == POWER_YES && r->outside != POWER_YES;
    out->little_data = r->constrained == POWER_YES;
    out->costly_network = r->expensive == POWER_YES || out->little_data;
}

const char *power_words(const struct power *p, bool asked)
{
    return p->on_battery        ? "this machine is on battery"
           : !p->costly_network ? ""
           : asked              ? "the network costs (--metered yes)"
           : p->little_data ? "the network is in Low Data Mode (--metered no, if that is not meant)"
                            : "the network costs (--metered no, if it does not)";
}
