/* SPDX-License-Identifier: MIT
 * networks.h: the present networks of this machine, for the commands that allow Bonjour on them. */
#ifndef SHOAL_NODE_CLI_NETWORKS_H
#define SHOAL_NODE_CLI_NETWORKS_H

#include "node/cli/home.h"

/* Allow all networks that this machine is on now. *list becomes an array of their texts (the
 * caller's), also those that were allowed before. ERR_NOTFOUND: it is on none. */
int cli_networks_allow_here(struct cli_home *h, json_t **list, struct err *e);

#endif
