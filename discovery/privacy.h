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
/* The verdict now. */
bool privacy_is(const struct privacy *p);
/* True exactly once for each spell; a LAN attempt that works ends the spell. */
bool privacy_report(struct privacy *p);

/* ---- who is meant by the setting ---- */

/* macOS 15 and later ask about whoever is responsible for a program: the app in whose window it was
 * started, or, started by launchd for a user, the program itself. What root or the system's launchd
 * runs, and what runs in Apple's Terminal or by ssh, is let through without being asked about. */
enum privacy_how {
    PRIVACY_NO_SETTING, /* another system, or an older one */
    PRIVACY_TERMINAL,   /* in Apple's Terminal */
    PRIVACY_SSH,
    PRIVACY_OTHER_TERMINAL, /* an app with a terminal in it */
    PRIVACY_AGENT,          /* by launchd, for a user who is logged in */
    PRIVACY_DAEMON,         /* by launchd for the machine, or root */
};

/* What is known of how this process was started. */
struct privacy_start {
    int macos; /* its major version; 0: another system */
    bool root;
    bool by_launchd;   /* it is the parent */
    bool graphic;      /* its session has a screen: that of a user who is logged in */
    bool ssh;          /* SSH_CONNECTION is set */
    char terminal[64]; /* TERM_PROGRAM; "" */
};
/* Reads it: privacy_darwin.c, privacy_linux.c. */
void privacy_read(struct privacy_start *out);
enum privacy_how privacy_how(const struct privacy_start *s);
/* Is a program that was started so let through without being asked about? */
bool privacy_free(enum privacy_how how);
/* What to do, in one sentence; `terminal` as in privacy_start. "" for PRIVACY_NO_SETTING. */
#define PRIVACY_TEXT 500
void privacy_text(enum privacy_how how, const char *terminal, char out[PRIVACY_TEXT]);

#endif
