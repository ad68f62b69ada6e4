/* SPDX-License-Identifier: MIT
 * habits_darwin.c: see habits.h: what a Mac says, each by one call.
 *
 * Source: dns_sd.h, sys/mount.h, sys/resource.h, mach-o/getsect.h of the SDK, and what awake.h and
 * sleep.h name. */
#include "node/cli/habits.h"

#include "node/cli/awake.h"
#include "node/daemon/sleep.h"

#include <dns_sd.h>
#include <fcntl.h>
#include <limits.h>
#include <mach-o/getsect.h>
#include <mach-o/ldsyms.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#define BROWSE_MS 1000

static enum known said(bool yes)
{
    return yes ? YES : NO;
}

static void on_browse(DNSServiceRef ref, DNSServiceFlags flags, uint32_t interface,
                      DNSServiceErrorType code, const char *name, const char *type,
                      const char *domain, void *ctx)
{
    *(DNSServiceErrorType *)ctx = code;
}

/* Looks for other nodes for a second: a refusal comes at once. */
static enum known refuses(void)
{
    DNSServiceRef ref;
    DNSServiceErrorType told = 0;
    DNSServiceErrorType code = DNSServiceBrowse(&ref, 0, 0, "_shoal._tcp", NULL, on_browse, &told);
    if (code) {
        return code == PRIVACY_POLICY_DENIED ? YES : NOT_KNOWN;
    }
    struct pollfd p = {DNSServiceRefSockFD(ref), POLLIN, 0};
    if (p.fd >= 0 && poll(&p, 1, BROWSE_MS) > 0) {
        code = DNSServiceProcessResult(ref);
    }
    DNSServiceRefDeallocate(ref);
    return said(code == PRIVACY_POLICY_DENIED || told == PRIVACY_POLICY_DENIED);
}

static void on_sleep(void *ctx, enum sleep_event ev)
{
    (void)ctx;
    (void)ev;
}

static enum known syncs(const char *dir)
{
    char p[PATH_MAX];
    snprintf(p, sizeof p, "%s/CACHEDIR.TAG", dir);
    int fd = open(p, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NOT_KNOWN;
    }
    enum known k = said(fcntl(fd, F_FULLFSYNC) == 0);
    close(fd);
    return k;
}

void habits_system(struct habits *h)
{
    uint32_t token;
    unsigned long n = 0;
    struct statfs v;
    h->mac = true;
    h->plist = said(getsectiondata(&_mh_execute_header, "__TEXT", "__info_plist", &n) && n > 0);
    h->bonjour_denied = refuses();
    h->lowered = said(getpriority(PRIO_DARWIN_PROCESS, 0) > 0);
    h->holds_sleep = said(awake_hold(&token));
    if (h->holds_sleep == YES) {
        awake_let_go(token);
    }
    struct sleep_watch *w = sleep_watch(on_sleep, NULL);
    h->tells_sleep = said(w != NULL);
    sleep_unwatch(w);
    if (h->cache_there) {
        h->full_sync = syncs(h->cache);
        if (!statfs(h->cache, &v)) {
            h->local = said((v.f_flags & MNT_LOCAL) != 0);
        }
    }
}
