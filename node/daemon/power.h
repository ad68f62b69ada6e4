/* SPDX-License-Identifier: MIT
 * power.h: may this machine do work now that nobody waits for? Not on battery, nor on a network
 * that costs. power_linux.c and power_darwin.c ask the system. */
#ifndef SHOAL_NODE_DAEMON_POWER_H
#define SHOAL_NODE_DAEMON_POWER_H

#include <stdbool.h>

struct power {
    bool on_battery;
    bool costly_network; /* marked as metered, expensive or constrained */
};

/* What the system says; what it does not say counts as no. Any thread; a few file reads. */
void power_now(struct power *out);

#endif
