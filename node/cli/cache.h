/* SPDX-License-Identifier: MIT
 * cache.h: the commands of `shoal cache`, one file each (cmd_cache_*.c). */
#ifndef SHOAL_NODE_CLI_CACHE_H
#define SHOAL_NODE_CLI_CACHE_H

#include "node/cli/cli.h"

extern const struct command cmd_cache_warm;

#endif
