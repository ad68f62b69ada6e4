/* SPDX-License-Identifier: MIT
 * bus.h: a network in memory for tests: machines with interfaces on numbered segments, and a
 * responder on each machine. Discos that are opened with it see each other as over Bonjour. All of
 * it belongs to one loop thread. */
#ifndef SHOAL_DISCOVERY_BUS_H
#define SHOAL_DISCOVERY_BUS_H

#include "discovery/disco.h"

#define BUS_HOSTS_MAX 16
#define BUS_HOST_NAME 32

struct disco_bus *disco_bus_new(void);
/* After every disco on it is closed. */
void disco_bus_free(struct disco_bus *b);

/* Adds an address ("10.0.0.1", "fe80::1") to an interface of a machine, making both when they are
 * new; the interface is up afterwards. The disco sees it at its next poll. */
int disco_bus_addr(struct disco_bus *b, const char *host, uint32_t ifindex, const char *ifname,
                   unsigned segment, const char *addr, unsigned prefix, struct err *e);
void disco_bus_if_up(struct disco_bus *b, const char *host, uint32_t ifindex, bool up);
void disco_bus_if_clear(struct disco_bus *b, const char *host, uint32_t ifindex); /* no address */
/* Every start on that interface fails with this code (0 = works again), sessions break. */
void disco_bus_fail(struct disco_bus *b, const char *host, uint32_t ifindex, int code);
/* The responder of a machine stops (with its goodbyes) or runs again. */
void disco_bus_responder(struct disco_bus *b, const char *host, bool runs);
/* The machine falls silent, without goodbye: what it announced stays with the others, nothing new
 * comes from it and it cannot be resolved. */
void disco_bus_cut(struct disco_bus *b, const char *host, bool cut);
/* Multicast passes on a segment or not: what is known stays, nothing new is seen. */
void disco_bus_multicast(struct disco_bus *b, unsigned segment, bool passes);
/* How often an announcement was made by that machine. */
uint64_t disco_bus_announcements(const struct disco_bus *b, const char *host);

#endif
