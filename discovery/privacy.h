/* SPDX-License-Identifier: MIT
 * privacy.h: tells the macOS "Local Network" privacy setting from a network that is broken. Where
 * the setting forbids a program the LAN, every connection to it fails at once with EHOSTUNREACH,
 * while everything beyond the router answers; newer systems say so to Bonjour by a code of its own.
 * Pure: it holds counts and no clock. */
#ifndef SHOAL_DISCOVERY_PRIVACY_H
#define SHOAL_DISCOVERY_PRIVACY_H

#include <stdbool.h>

/* kDNSServiceErr_PolicyDenied, absent from older headers and from Avahi's. */
#define PRIVACY_POLICY_DENIED (-65570)
#define PRIVACY_FAST_MS                                                                     \
    1000                /* a neighbour that is off takes longer than this to be unreachable \
                         */
#define PRIVACY_TRIES 4 /* failures in a row that are needed */

struct privacy {
    unsigned fast_unreachable; /* LAN attempts in a row that failed at once with EHOSTUNREACH */
    bool outside;              /* something beyond the LAN answered since the first of them */
    bool denied;               /* Bonjour was told that policy forbids it */
    bool reported;
};

void privacy_lan(struct privacy *p, bool reached, int sys, unsigned took_ms);
void privacy_outside(struct privacy *p, bool answered);
void privacy_bonjour(struct privacy *p, int code); /* 0 = it works */
/* True exactly once for each spell; a LAN attempt that works ends the spell. */
bool privacy_report(struct privacy *p);
/* The sentence; names the setting and where it is. */
const char *privacy_text(void);

#endif
