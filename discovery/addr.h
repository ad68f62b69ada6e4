/* SPDX-License-Identifier: MIT
 * addr.h: socket addresses as text and back, and whether two are the same. */
#ifndef SHOAL_DISCOVERY_ADDR_H
#define SHOAL_DISCOVERY_ADDR_H

#include "discovery/disco.h"

/* AF_INET or AF_INET6, else false everywhere below. An IPv4 address mapped into IPv6 counts as
 * IPv4: addr_copy makes it one. */
bool addr_copy(struct sockaddr_storage *out, const struct sockaddr *in);
socklen_t addr_len(const struct sockaddr_storage *a);
uint16_t addr_port(const struct sockaddr_storage *a); /* host byte order */
void addr_set_port(struct sockaddr_storage *a, uint16_t port);
uint32_t addr_scope(const struct sockaddr_storage *a); /* 0 where there is none */
/* Same family, host, scope and, with `port`, port. */
bool addr_same(const struct sockaddr_storage *a, const struct sockaddr_storage *b, bool port);
bool addr_is_linklocal6(const struct sockaddr_storage *a);
bool addr_is_loopback(const struct sockaddr_storage *a);
/* A host that another node can be reached by: not any, not multicast, not broadcast, port not 0,
 * and an IPv6 link-local one only with its scope. */
bool addr_usable(const struct sockaddr_storage *a);
/* Is `a` in the network `net`/`bits`? */
bool addr_in_net(const struct sockaddr_storage *a, const struct sockaddr_storage *net,
                 unsigned bits);
/* "10.0.0.2:4433", "[fe80::1%en0]:4433"; without port when `port` is false: "fe80::1%en0". */
void addr_text(const struct sockaddr_storage *a, bool port, char out[DISCO_ADDR_TEXT]);
/* The reverse of addr_text with port. A scope may be a name or a number; a name that no interface
 * bears is ERR_NOTFOUND, any other text ERR_FORMAT. */
int addr_parse(const char *text, struct sockaddr_storage *out);
/* "host:port", "1.2.3.4:port", "[v6%scope]:port" into host (without brackets) and port. */
int addr_split(const char *text, char host[DISCO_HOST_MAX + 1], uint16_t *port, struct err *e);

#endif
