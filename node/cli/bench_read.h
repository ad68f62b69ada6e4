/* SPDX-License-Identifier: MIT
 * bench_read.h: `shoal bench read`, a part of cmd_bench.c. */
#ifndef SHOAL_NODE_CLI_BENCH_READ_H
#define SHOAL_NODE_CLI_BENCH_READ_H

#include "node/cli/cli.h"

/* Takes about `seconds`; the cache is below `home` (NULL: the platform's) or is `cache`. Returns an
 * exit status. */
int cli_bench_read(struct cli *c, const char *model, const char *home, const char *cache,
                   double seconds);

#endif
