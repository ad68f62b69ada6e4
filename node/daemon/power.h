/* SPDX-License-Identifier: MIT
 * power.h: may this machine do work now that nobody waits for? Not on battery, nor on a network
 * that costs. power_linux.c and power_darwin.c only read what the system says; what follows from it
 * is decided in power.c. */
#ifndef SHOAL_NODE_DAEMON_POWER_H
#define SHOAL_NODE_DAEMON_POWER_H

#include <stdbool.h>

enum power_said { POWER_NOT_SAID, POWER_NO, POWER_YES };

struct power_reading {
    enum power_said battery;     /* there is one, and it can feed the machine */
    enum power_said outside;     /* an outside source feeds the machine */
    enum power_said expensive;   /* the network in use is a phone's, or marked as metered */
    enum power_said constrained; /* the user asks for little traffic (Low Data Mode) */
};

struct power {
    bool on_battery;
    bool costly_network; /* marked as metered, expensive or constrained */
    bool little_data;    /* of these: the user asks for little traffic */
};

/* ---- power.c ---- */

/* What the system does not say counts as no. */
void power_judge(const struct power_reading *r, struct power *out);
/* Why nothing is copied in the background; "": it is. `asked`: --metered yes said so. */
const char *power_words(const struct power *p, bool asked);

/* ---- the system ---- */

/* Any thread; a few file reads, or a question to a daemon of the system, half a second at most. */
void power_read(struct power_reading *out);
/* Both together. */
void power_now(struct power *out);

#endif
