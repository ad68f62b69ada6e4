/* SPDX-License-Identifier: MIT
 * privacy.c: see privacy.h. */
#include "discovery/privacy.h"

#include <errno.h>
#include <string.h>

void privacy_lan(struct privacy *p, bool reached, int sys, unsigned took_ms)
{
    if (reached) {
        memset(p, 0, sizeof *p);
    } else if (sys == EHOSTUNREACH && took_ms < PRIVACY_FAST_MS) {
        if (p->fast_unreachable++ == 0) {
            p->outside = false; /* an answer from before says nothing about now */
        }
    } else {
        p->fast_unreachable = 0; /* refused or timed out: packets do leave */
    }
}

void privacy_outside(struct privacy *p, bool answered)
{
    p->outside = answered;
}

void privacy_bonjour(struct privacy *p, int code)
{
    if (code == PRIVACY_POLICY_DENIED) {
        p->denied = true;
    } else if (code == 0 && p->denied) {
        p->denied = p->reported = false;
    }
}

bool privacy_report(struct privacy *p)
{
    bool is = p->denied || (p->fast_unreachable >= PRIVACY_TRIES && p->outside);
    if (!is || p->reported) {
        return false;
    }
    p->reported = true;
    return true;
}

const char *privacy_text(void)
{
    return "macOS keeps this program off the local network (every address of it fails at once with "
           "\"no route to host\" while the internet answers): allow it in System Settings, Privacy "
           "& "
           "Security, Local Network; if it is allowed there already, switch it off and on again";
}
