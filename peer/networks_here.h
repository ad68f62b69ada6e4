/* SPDX-License-Identifier: MIT
 * networks_here.h: the networks that this machine is in now, compared with the home's list
 * (networks.h): for `shoal networks`, for `shoal init` and `shoal join`, which allow them (whoever
 * makes or joins a shoal here means the network here), and for the mesh. Blocking, any thread. */
#ifndef SHOAL_PEER_NETWORKS_HERE_H
#define SHOAL_PEER_NETWORKS_HERE_H

#include "discovery/disco.h"
#include "peer/gateway.h"
#include "peer/networks.h"

#define NETWORKS_HERE_MAX 128

enum network_state {
    NETWORK_HERE_NEW,     /* no member was met here and it is not allowed: nothing is announced */
    NETWORK_HERE_MET,     /* a member was met here: announced on */
    NETWORK_HERE_ALLOWED, /* the user said so: announced on */
    NETWORK_HERE_WAITING, /* its gateway's hardware address is not known yet: nothing is announced
                           */
};
/* "new", "met", "allowed", "waiting for its gateway" */
const char *network_state_word(enum network_state s);

struct network_here {
    char interface[IF_NAMESIZE];
    bool virtual_if;    /* of a VM, container or VPN: announced on only when allowed by name */
    bool alike;         /* link-local and no gateway: nothing to tell it by, allowed only by name */
    struct network net; /* WAITING: without its gateway */
    char subnet[NETWORK_TEXT]; /* "192.168.7.0/24": what `shoal networks allow` takes */
    enum network_state state;
};

/* The networks of this machine's interfaces but loopback, in order of interface; of each IPv4
 * before IPv6 and link-local last. A home's list that cannot be read is the error. */
int networks_here(const char *home, struct network_here *out, size_t max, size_t *n, struct err *e);
/* Allow present networks. which: NULL means all but virtual interfaces and networks that look alike
 * everywhere; else a subnet as above or the name of an interface, or a subnet and a gateway as in
 * the file (also one that is not present). Waits at most 3 s for gateways to be known. *added (may
 * be NULL): how many were not in the list. ERR_NOTFOUND: no such network here, the sentence names
 * those that are. Takes the home's lock. */
int networks_allow_here(const char *home, const char *which, size_t *added, struct err *e);
/* Take entries off the list: a subnet (whatever its gateway), or a subnet and a gateway.
 * ERR_NOTFOUND: none such. */
int networks_forget_named(const char *home, const char *which, size_t *gone, struct err *e);

/* The networks of one interface whose gateway is g, as above. Pure; for the mesh. */
size_t networks_of(const struct networks *list, const struct disco_if *f, const struct gateway *g,
                   struct network_here *out, size_t max);
/* Is one of them in the list, so that this interface may be announced on? */
bool networks_may(const struct network_here *v, size_t n);

#endif
