/* SPDX-License-Identifier: MIT
 * bench_peer.h: `shoal bench peer`, a part of cmd_bench.c. */
#ifndef SHOAL_NODE_CLI_BENCH_PEER_H
#define SHOAL_NODE_CLI_BENCH_PEER_H

#include "node/cli/cli.h"

/* Takes about `seconds`; returns an exit status. */
int cli_bench_peer(struct cli *c, double seconds);

#endif
