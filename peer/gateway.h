/* SPDX-License-Identifier: MIT
 * gateway.h: the router of the network behind an interface, told by its hardware address. Asked of
 * the system's tables of routes and neighbours; nothing of this waits for the network. Linux:
 * netlink. macOS: sysctl of the routing table. Any thread. */
#ifndef SHOAL_PEER_GATEWAY_H
#define SHOAL_PEER_GATEWAY_H

#include <stdbool.h>
#include <stdint.h>

#define GATEWAY_MAC 6

enum gateway_state {
    GATEWAY_NONE,    /* no default route over a router goes out there */
    GATEWAY_UNKNOWN, /* there is one, but its hardware address is not in the table (yet), or the
                        system does not tell: look again */
    GATEWAY_KNOWN,
};

struct gateway {
    enum gateway_state state;
    uint8_t mac[GATEWAY_MAC]; /* KNOWN */
    bool has_addr;            /* its address is known */
    bool v6;
    uint8_t addr[16]; /* IPv4 in the first 4 */
};

/* The IPv4 router of that interface; without one its IPv6 router. Of several the one with the
 * lowest metric. */
void gateway_of(uint32_t ifindex, struct gateway *out);
/* Make the system find the hardware address out: sends the router an empty datagram, for which the
 * system has to ask who it is. gateway_of tells it a moment later. */
void gateway_ask(uint32_t ifindex, const struct gateway *g);

#endif
