/* SPDX-License-Identifier: MIT
 * networks.h: the networks on which this node may announce itself: where a member was met, and what
 * the user allowed. A network is told by its subnet and the hardware address of its gateway, which
 * both systems offer and which, unlike a Wi-Fi name, nobody can imitate by accident.
 *
 * The file (home.h), one line each after the first:
 *   shoal networks 1
 *   allow 192.168.1.0/24 aa:bb:cc:dd:ee:ff 1764480000
 *   met fd00:1:2:3::/64 - 1764480000
 * The last field is when, in seconds since 1970; "-" stands for a network without a gateway, such
 * as a cable between two Macs. Pure functions but for load and save. */
#ifndef SHOAL_PEER_NETWORKS_H
#define SHOAL_PEER_NETWORKS_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETWORKS_MAX 256
#define NETWORK_TEXT 80 /* subnet and gateway in text with the NUL */

struct network {
    bool v6;
    uint8_t prefix;   /* 0..32 or 0..128 */
    uint8_t addr[16]; /* the subnet, the bits after the prefix zero; IPv4 in the first 4 */
    bool has_gateway;
    uint8_t gateway[6]; /* hardware address */
};

enum network_why {
    NETWORK_MET,   /* a member was met here */
    NETWORK_ALLOW, /* the user said so */
};

struct network_entry {
    struct network net;
    enum network_why why;
    uint64_t when;
};

struct networks {
    struct network_entry v[NETWORKS_MAX];
    size_t n;
};

/* From an interface's address (4 or 16 bytes), its prefix and the gateway's hardware address
 * (NULL: none). */
int network_make(const uint8_t *addr, bool v6, unsigned prefix, const uint8_t *gateway,
                 struct network *out, struct err *e);
/* "192.168.1.0/24 aa:bb:cc:dd:ee:ff" and back. */
void network_text(const struct network *n, char out[NETWORK_TEXT]);
int network_parse(const char *text, struct network *out, struct err *e);

/* A missing file is an empty list; anything malformed in it an error that names the line. */
int networks_load(const char *home, struct networks *out, struct err *e);
int networks_save(const char *home, const struct networks *list, struct err *e);
bool network_same(const struct network *a, const struct network *b);
bool networks_has(const struct networks *list, const struct network *n);
/* Add, or renew what is there (ALLOW stays ALLOW). A full list loses its oldest MET. A network that
 * looks alike everywhere (link-local addresses and no gateway) is only ever allowed by the user:
 * ERR_REFUSED for MET. *changed: worth saving. */
int networks_add(struct networks *list, const struct network *n, enum network_why why,
                 uint64_t when, bool *changed, struct err *e);
bool networks_forget(struct networks *list, const struct network *n);

#endif
