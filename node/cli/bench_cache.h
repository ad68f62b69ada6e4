/* SPDX-License-Identifier: MIT
 * bench_cache.h: `shoal bench cache`. */
#ifndef SHOAL_NODE_CLI_BENCH_CACHE_H
#define SHOAL_NODE_CLI_BENCH_CACHE_H

#include "node/cli/cli.h"

/* Replays the routes of `path`, or `flat` tokens of made-up ones when it is NULL; disk: bytes a
 * second of a miss. Returns the exit status. */
int cli_bench_cache(struct cli *c, const char *path, uint32_t flat, uint64_t disk);

#endif
