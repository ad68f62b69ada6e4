/* SPDX-License-Identifier: MIT
 * privacy_darwin.c: see privacy.h: parent, user, session and terminal of this process.
 *
 * Source: bsm/audit.h of the SDK; Apple's technote TN3179. */
#include "discovery/privacy.h"

#include <bsm/audit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysctl.h>
#include <unistd.h>

#define LAUNCHD 1

void privacy_read(struct privacy_start *out)
{
    char version[32] = "";
    size_t n = sizeof version - 1;
    auditinfo_addr_t a;
    const char *terminal = getenv("TERM_PROGRAM"), *ssh = getenv("SSH_CONNECTION");
    memset(out, 0, sizeof *out);
    memset(&a, 0, sizeof a);
    if (!sysctlbyname("kern.osproductversion", version, &n, NULL, 0)) {
        out->macos = (int)strtol(version, NULL, 10);
    }
    out->root = geteuid() == 0;
    out->by_launchd = getppid() == LAUNCHD;
    out->graphic = getaudit_addr(&a, (int)sizeof a) == 0 &&
                   (a.ai_flags & AU_SESSION_FLAG_HAS_GRAPHIC_ACCESS) != 0;
    out->ssh = ssh && *ssh;
    snprintf(out->terminal, sizeof out->terminal, "%s", terminal ? terminal : "");
}
