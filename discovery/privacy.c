/* SPDX-License-Identifier: MIT
 * privacy.c: see privacy.h. */
#include "discovery/privacy.h"

#include <errno.h>
#include <stdio.h>
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

bool privacy_is(const struct privacy *p)
{
    return p->denied || (p->fast_unreachable >= PRIVACY_TRIES && p->outside);
}

bool privacy_report(struct privacy *p)
{
    if (!privacy_is(p) || p->reported) {
        return false;
    }
    p->reported = true;
    return true;
}

enum privacy_how privacy_how(const struct privacy_start *s)
{
    if (s->macos < 15) {
        return PRIVACY_NO_SETTING;
    }
    if (s->root || (s->by_launchd && !s->graphic)) {
        return PRIVACY_DAEMON;
    }
    if (s->by_launchd && !s->terminal[0] && !s->ssh) {
        return PRIVACY_AGENT;
    }
    return s->ssh                                       ? PRIVACY_SSH
           : strcmp(s->terminal, "Apple_Terminal") == 0 ? PRIVACY_TERMINAL
                                                        : PRIVACY_OTHER_TERMINAL;
}

bool privacy_free(enum privacy_how how)
{
    return how != PRIVACY_AGENT && how != PRIVACY_OTHER_TERMINAL;
}

/* The name under which the settings list what TERM_PROGRAM names, as far as it is known. */
static const char *app_of(const char *terminal)
{
    static const struct {
        const char *term, *app;
    } known[] = {{"iTerm.app", "iTerm"},
                 {"vscode", "Visual Studio Code"},
                 {"ghostty", "Ghostty"},
                 {"WezTerm", "WezTerm"},
                 {"WarpTerminal", "Warp"},
                 {"Hyper", "Hyper"},
                 {"zed", "Zed"},
                 {"tmux", "the app in which tmux was started"},
                 {"", "the app in which it was started"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(terminal, known[i].term) == 0) {
            return known[i].app;
        }
    }
    return terminal;
}

#define SEEN                                                                                \
    "every address of the local network fails at once with \"no route to host\" while the " \
    "internet answers"
#define PLACE "System Settings, Privacy & Security, Local Network"

void privacy_text(enum privacy_how how, const char *terminal, char out[PRIVACY_TEXT])
{
    switch (how) {
    case PRIVACY_AGENT:
        snprintf(
            out, PRIVACY_TEXT,
            "macOS keeps this program, which launchd runs as an agent, off the local network (" SEEN
            "): allow shoal in " PLACE "; a program that was built or updated since counts as "
            "another one: if it is allowed there already, switch it off and on again");
        break;
    case PRIVACY_OTHER_TERMINAL:
        snprintf(out, PRIVACY_TEXT,
                 "macOS keeps programs that %.63s starts off the local network (" SEEN
                 "): allow that app in " PLACE
                 ", off and on again if it is allowed already, or start "
                 "shoal in Terminal, or by shoal service install",
                 app_of(terminal));
        break;
    case PRIVACY_TERMINAL:
    case PRIVACY_SSH:
        snprintf(
            out, PRIVACY_TEXT,
            "%s: macOS lets programs %s through, but only as long as %s is open; start shoal anew "
            "there. If that does not help, it is no setting of the Mac: a VPN or a filter takes "
            "the local addresses, or the Wi-Fi keeps its guests apart",
            SEEN, how == PRIVACY_SSH ? "started by ssh" : "of Terminal",
            how == PRIVACY_SSH ? "the session" : "Terminal");
        break;
    case PRIVACY_DAEMON:
        snprintf(
            out, PRIVACY_TEXT,
            "%s: the Local Network setting of macOS does not hold for daemons and root, so it is "
            "the network: a VPN or a filter takes the local addresses, or the Wi-Fi keeps its "
            "guests apart",
            SEEN);
        break;
    default:
        out[0] = 0;
        break;
    }
}
