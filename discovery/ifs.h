/* SPDX-License-Identifier: MIT
 * ifs.h: the machine's interfaces that are up, with their addresses, and which of them are not
 * cables or radios. */
#ifndef SHOAL_DISCOVERY_IFS_H
#define SHOAL_DISCOVERY_IFS_H

#include "discovery/disco.h"

/* By name, as the systems give them: containers, VMs, tunnels, VPNs, and Apple's peer-to-peer radio
 * interfaces, which Bonjour must leave alone. The Thunderbolt bridge (bridge0) is real. */
bool ifs_virtual_name(const char *name);
/* Fills at most `max` interfaces that are up and have an address, loopback included, in order of
 * index; returns their number (0 also when the system refuses). */
size_t ifs_read(struct disco_if *out, size_t max);
/* Adds an address to a table that ifs_read would make; false when there is no room. */
bool ifs_add(struct disco_if *t, size_t *n, size_t max, uint32_t index, const char *name,
             bool loopback, const struct sockaddr_storage *a, unsigned prefix);
bool ifs_same(const struct disco_if *a, const struct disco_if *b);
/* The interface whose network holds `a`: by scope for link-local, else the longest prefix; NULL =
 * through a router. */
const struct disco_if *ifs_for(const struct disco_if *t, size_t n,
                               const struct sockaddr_storage *a);
/* Is it an address of this machine? */
bool ifs_own(const struct disco_if *t, size_t n, const struct sockaddr_storage *a);

#endif
