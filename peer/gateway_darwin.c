/* SPDX-License-Identifier: MIT
 * gateway_darwin.c: see gateway.h. The routing table by sysctl(3): routes over a router, and the
 * entries with link-layer addresses, which are macOS's table of neighbours. Each message is a
 * struct rt_msghdr and then the addresses that rtm_addrs names, each padded to four bytes; a
 * default route of an interface that is not the first has RTF_IFSCOPE. */
#include "peer/gateway.h"

#include <errno.h>
#include <net/if.h>
#include <net/if_dl.h>
#include <net/route.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysctl.h>

#define TABLE_MAX (16u << 20)
#define TRIES 4 /* the table may grow between asking its size and reading it */
#define PAD(n) ((n) > 0 ? 1 + (((n)-1) | (sizeof(uint32_t) - 1)) : sizeof(uint32_t))

/* Messages of the table whose flags have `flags`; malloc'ed. NULL with *n 0: the system does not
 * tell. */
static char *table(int family, int flags, size_t *n)
{
    int mib[6] = {CTL_NET, PF_ROUTE, 0, family, NET_RT_FLAGS, flags};
    *n = 0;
    for (int i = 0; i < TRIES; i++) {
        size_t need = 0;
        if (sysctl(mib, 6, NULL, &need, NULL, 0) != 0 || need > TABLE_MAX) {
            return NULL;
        }
        need += need / 8 + 1024;
        char *p = malloc(need);
        if (!p) {
            return NULL;
        }
        if (sysctl(mib, 6, p, &need, NULL, 0) == 0) {
            *n = need;
            return p;
        }
        free(p);
        if (errno != ENOMEM) {
            return NULL;
        }
    }
    return NULL;
}

/* The address number `which` (RTAX_...) of a message, or NULL. */
static const struct sockaddr *part(const struct rt_msghdr *m, int which, size_t *room)
{
    const char *p = (const char *)(m + 1), *end = (const char *)m + m->rtm_msglen;
    for (int i = 0; i < RTAX_MAX && end - p >= 2; i++) {
        if (!(m->rtm_addrs & (1 << i))) {
            continue;
        }
        const struct sockaddr *sa = (const struct sockaddr *)(const void *)p;
        if (sa->sa_len > end - p) {
            return NULL;
        }
        if (i == which) {
            *room = sa->sa_len;
            return sa;
        }
        if ((ptrdiff_t)PAD(sa->sa_len) > end - p) {
            return NULL;
        }
        p += PAD(sa->sa_len);
    }
    return NULL;
}

/* The host of an address, 4 or 16 bytes; link-local ones without the interface that the kernel
 * keeps within them. */
static bool host(const struct sockaddr *sa, size_t n, bool v6, uint8_t out[16])
{
    size_t at =
        v6 ? offsetof(struct sockaddr_in6, sin6_addr) : offsetof(struct sockaddr_in, sin_addr);
    size_t len = v6 ? 16 : 4;
    if (!sa || sa->sa_family != (v6 ? AF_INET6 : AF_INET) || n < at + len) {
        return false;
    }
    memcpy(out, (const char *)sa + at, len);
    if (v6 && out[0] == 0xfe && (out[1] & 0xc0) == 0x80) {
        out[2] = out[3] = 0;
    }
    return true;
}

/* Destination 0 with mask 0; the kernel shortens both as far as to nothing. */
static bool is_default(const struct rt_msghdr *m, bool v6)
{
    size_t n = 0, k = 0;
    const struct sockaddr *dst = part(m, RTAX_DST, &n), *mask = part(m, RTAX_NETMASK, &k);
    size_t at =
        v6 ? offsetof(struct sockaddr_in6, sin6_addr) : offsetof(struct sockaddr_in, sin_addr);
    if (!dst || (m->rtm_flags & RTF_HOST)) {
        return false;
    }
    for (size_t i = at; i < n && i < at + (v6 ? 16u : 4u); i++) {
        if (((const uint8_t *)dst)[i]) {
            return false;
        }
    }
    for (size_t i = at; mask && i < k && i < at + (v6 ? 16u : 4u); i++) {
        if (((const uint8_t *)mask)[i]) {
            return false;
        }
    }
    return true;
}

static const struct rt_msghdr *next(const char **p, const char *end)
{
    if (end - *p < (ptrdiff_t)sizeof(struct rt_msghdr)) {
        return NULL;
    }
    const struct rt_msghdr *m = (const struct rt_msghdr *)(const void *)*p;
    if (m->rtm_msglen < sizeof *m || m->rtm_msglen > end - *p) {
        return NULL;
    }
    *p += m->rtm_msglen;
    return m;
}

/* 1: found, 0: there is none, -1: the system does not tell. The table has no metric: an interface's
 * own default route (RTF_IFSCOPE) and the general one name the same router. */
static int find_route(uint32_t ifindex, struct gateway *g)
{
    size_t n;
    char *all = table(g->v6 ? AF_INET6 : AF_INET, RTF_GATEWAY, &n);
    int found = all ? 0 : -1;
    const char *p = all;
    for (const struct rt_msghdr *m; found == 0 && (m = next(&p, all + n));) {
        size_t room = 0;
        const struct sockaddr *via = part(m, RTAX_GATEWAY, &room);
        if (m->rtm_index == ifindex && (m->rtm_flags & RTF_UP) && is_default(m, g->v6) &&
            host(via, room, g->v6, g->addr)) {
            g->has_addr = true;
            found = 1;
        }
    }
    free(all);
    return found;
}

static bool find_neighbour(uint32_t ifindex, struct gateway *g)
{
    size_t n;
    char *all = table(g->v6 ? AF_INET6 : AF_INET, RTF_LLINFO, &n);
    bool found = false;
    const char *p = all;
    for (const struct rt_msghdr *m; all && !found && (m = next(&p, all + n));) {
        size_t room = 0, ll = 0;
        uint8_t a[16];
        const struct sockaddr *dst = part(m, RTAX_DST, &room), *via = part(m, RTAX_GATEWAY, &ll);
        size_t head = offsetof(struct sockaddr_dl, sdl_data);
        if (m->rtm_index != ifindex || !host(dst, room, g->v6, a) ||
            memcmp(a, g->addr, g->v6 ? 16 : 4) != 0 || !via || via->sa_family != AF_LINK ||
            ll < head) {
            continue;
        }
        const struct sockaddr_dl *dl = (const struct sockaddr_dl *)(const void *)via;
        static const uint8_t hidden[GATEWAY_MAC]; /* what a sandbox is shown */
        const char *mac = (const char *)dl + head + dl->sdl_nlen;
        if (dl->sdl_alen == GATEWAY_MAC && ll >= head + dl->sdl_nlen + GATEWAY_MAC &&
            memcmp(mac, hidden, GATEWAY_MAC) != 0) {
            memcpy(g->mac, mac, GATEWAY_MAC);
            found = true;
        }
    }
    free(all);
    return found;
}

void gateway_of(uint32_t ifindex, struct gateway *out)
{
    memset(out, 0, sizeof *out);
    int r = find_route(ifindex, out);
    if (r == 0) {
        out->v6 = true;
        r = find_route(ifindex, out);
    }
    out->state = r == 0                                  ? GATEWAY_NONE
                 : r > 0 && find_neighbour(ifindex, out) ? GATEWAY_KNOWN
                                                         : GATEWAY_UNKNOWN;
}
