/* SPDX-License-Identifier: MIT
 * gateway_linux.c: see gateway.h. Dumps of the main table of routes and of the neighbours by
 * rtnetlink(7), whose answers come from the kernel at once. */
#include "peer/gateway.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define DUMP_MAX (4u << 20) /* bytes of one table; a larger one is not a household's */
#define LIVE_STATES (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT)

struct look {
    uint32_t ifindex, metric;
    struct gateway *g;
    bool found;
};

typedef void (*message_fn)(struct look *l, const struct nlmsghdr *h);

/* The attributes after a body of `body` bytes: calls f for each whole one. */
static void attributes(const struct nlmsghdr *h, size_t body, const struct rtattr **v, size_t max)
{
    const char *p = (const char *)NLMSG_DATA(h) + NLMSG_ALIGN(body);
    const char *end = (const char *)h + h->nlmsg_len;
    memset(v, 0, max * sizeof *v);
    while (end - p >= (ptrdiff_t)sizeof(struct rtattr)) {
        const struct rtattr *a = (const struct rtattr *)(const void *)p;
        if (a->rta_len < sizeof *a || (ptrdiff_t)a->rta_len > end - p) {
            return;
        }
        if (a->rta_type < max) {
            v[a->rta_type] = a;
        }
        if ((ptrdiff_t)RTA_ALIGN(a->rta_len) > end - p) {
            return;
        }
        p += RTA_ALIGN(a->rta_len);
    }
}

static bool number(const struct rtattr *a, uint32_t *out)
{
    if (!a || RTA_PAYLOAD(a) != sizeof *out) {
        return false;
    }
    memcpy(out, RTA_DATA(a), sizeof *out);
    return true;
}

static void better(struct look *l, uint32_t ifindex, uint32_t metric, const struct rtattr *via)
{
    size_t n = l->g->v6 ? 16 : 4;
    if (ifindex != l->ifindex || !via || RTA_PAYLOAD(via) != n ||
        (l->found && metric >= l->metric)) {
        return;
    }
    l->found = true;
    l->metric = metric;
    l->g->has_addr = true;
    memcpy(l->g->addr, RTA_DATA(via), n);
}

/* A route over several routers. */
static void each_hop(struct look *l, uint32_t metric, const struct rtattr *multi)
{
    const char *p = RTA_DATA(multi), *end = p + RTA_PAYLOAD(multi);
    while (end - p >= (ptrdiff_t)sizeof(struct rtnexthop)) {
        const struct rtnexthop *hop = (const struct rtnexthop *)(const void *)p;
        if (hop->rtnh_len < sizeof *hop || (ptrdiff_t)hop->rtnh_len > end - p) {
            return;
        }
        const char *q = p + RTNH_ALIGN(sizeof *hop), *stop = p + hop->rtnh_len;
        while (stop - q >= (ptrdiff_t)sizeof(struct rtattr)) {
            const struct rtattr *a = (const struct rtattr *)(const void *)q;
            if (a->rta_len < sizeof *a || (ptrdiff_t)a->rta_len > stop - q) {
                break;
            }
            if (a->rta_type == RTA_GATEWAY) {
                better(l, (uint32_t)hop->rtnh_ifindex, metric, a);
            }
            if ((ptrdiff_t)RTA_ALIGN(a->rta_len) > stop - q) {
                break;
            }
            q += RTA_ALIGN(a->rta_len);
        }
        if ((ptrdiff_t)RTNH_ALIGN(hop->rtnh_len) > end - p) {
            return;
        }
        p += RTNH_ALIGN(hop->rtnh_len);
    }
}

static void on_route(struct look *l, const struct nlmsghdr *h)
{
    const struct rtattr *a[RTA_TABLE + 1];
    struct rtmsg r;
    uint32_t table, out, metric = 0;
    if (h->nlmsg_type != RTM_NEWROUTE || h->nlmsg_len < NLMSG_LENGTH(sizeof r)) {
        return;
    }
    memcpy(&r, NLMSG_DATA(h), sizeof r);
    attributes(h, sizeof r, a, RTA_TABLE + 1);
    table = r.rtm_table;
    number(a[RTA_TABLE], &table);
    if (table != RT_TABLE_MAIN || r.rtm_dst_len || r.rtm_type != RTN_UNICAST ||
        r.rtm_family != (l->g->v6 ? AF_INET6 : AF_INET) || (r.rtm_flags & RTM_F_CLONED)) {
        return;
    }
    number(a[RTA_PRIORITY], &metric);
    if (a[RTA_MULTIPATH]) {
        each_hop(l, metric, a[RTA_MULTIPATH]);
    } else if (number(a[RTA_OIF], &out)) {
        better(l, out, metric, a[RTA_GATEWAY]);
    }
}

static void on_neighbour(struct look *l, const struct nlmsghdr *h)
{
    const struct rtattr *a[NDA_LLADDR + 1];
    struct ndmsg n;
    size_t len = l->g->v6 ? 16 : 4;
    if (h->nlmsg_type != RTM_NEWNEIGH || h->nlmsg_len < NLMSG_LENGTH(sizeof n)) {
        return;
    }
    memcpy(&n, NLMSG_DATA(h), sizeof n);
    attributes(h, sizeof n, a, NDA_LLADDR + 1);
    if (n.ndm_ifindex < 0 || (uint32_t)n.ndm_ifindex != l->ifindex ||
        n.ndm_family != (l->g->v6 ? AF_INET6 : AF_INET) || !(n.ndm_state & LIVE_STATES) ||
        !a[NDA_DST] || RTA_PAYLOAD(a[NDA_DST]) != len ||
        memcmp(RTA_DATA(a[NDA_DST]), l->g->addr, len) != 0 || !a[NDA_LLADDR] ||
        RTA_PAYLOAD(a[NDA_LLADDR]) != GATEWAY_MAC) {
        return;
    }
    memcpy(l->g->mac, RTA_DATA(a[NDA_LLADDR]), GATEWAY_MAC);
    l->found = true;
}

/* False: the system did not tell all of it. */
static bool answers(int fd, uint32_t seq, message_fn f, struct look *l)
{
    _Alignas(struct nlmsghdr) char buf[32768];
    for (size_t all = 0; all < DUMP_MAX;) {
        ssize_t got = recv(fd, buf, sizeof buf, MSG_TRUNC);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0 || (size_t)got > sizeof buf) {
            return false;
        }
        all += (size_t)got;
        const char *p = buf, *end = buf + got;
        while (end - p >= (ptrdiff_t)sizeof(struct nlmsghdr)) {
            const struct nlmsghdr *h = (const struct nlmsghdr *)(const void *)p;
            if (h->nlmsg_len < sizeof *h || (ptrdiff_t)h->nlmsg_len > end - p) {
                return false;
            }
            if (h->nlmsg_seq == seq) {
                if (h->nlmsg_type == NLMSG_DONE) {
                    return true;
                }
                if (h->nlmsg_type == NLMSG_ERROR) {
                    return false;
                }
                f(l, h);
            }
            if ((ptrdiff_t)NLMSG_ALIGN(h->nlmsg_len) >= end - p) {
                break;
            }
            p += NLMSG_ALIGN(h->nlmsg_len);
        }
    }
    return false;
}

static bool dump(int fd, uint16_t type, uint32_t seq, message_fn f, struct look *l)
{
    struct {
        struct nlmsghdr h;
        union {
            struct rtmsg r;
            struct ndmsg n;
        } u;
    } q;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    uint8_t family = l->g->v6 ? AF_INET6 : AF_INET;
    memset(&q, 0, sizeof q);
    q.h.nlmsg_type = type;
    q.h.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    q.h.nlmsg_seq = seq;
    if (type == RTM_GETROUTE) {
        q.u.r.rtm_family = family;
        q.h.nlmsg_len = NLMSG_LENGTH(sizeof q.u.r);
    } else {
        q.u.n.ndm_family = family;
        q.h.nlmsg_len = NLMSG_LENGTH(sizeof q.u.n);
    }
    ssize_t sent = sendto(fd, &q, q.h.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof kernel);
    return sent == (ssize_t)q.h.nlmsg_len && answers(fd, seq, f, l);
}

void gateway_of(uint32_t ifindex, struct gateway *out)
{
    struct timeval limit = {.tv_usec = 200000};
    memset(out, 0, sizeof *out);
    out->state = GATEWAY_UNKNOWN;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) {
        return;
    }
    struct look l = {.ifindex = ifindex, .g = out};
    bool told = setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
                dump(fd, RTM_GETROUTE, 1, on_route, &l);
    if (told && !l.found) {
        out->v6 = true;
        told = dump(fd, RTM_GETROUTE, 2, on_route, &l);
    }
    if (told && !l.found) {
        out->state = GATEWAY_NONE;
    } else if (told) {
        l.found = false;
        if (dump(fd, RTM_GETNEIGH, 3, on_neighbour, &l) && l.found) {
            out->state = GATEWAY_KNOWN;
        }
    }
    close(fd);
}
