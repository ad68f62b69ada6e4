/* SPDX-License-Identifier: MIT
 * say.h: parts of a running node's report (node.h, node_status) for people, on standard output. */
#ifndef SHOAL_NODE_CLI_SAY_H
#define SHOAL_NODE_CLI_SAY_H

#include <jansson.h>

/* The table of members: state, address, rates, objects, faults. */
void say_peers(const json_t *peers);
/* All of it but the peers: node, tiers, coverage, limits, origin. */
void say_status(const json_t *status);

#endif
