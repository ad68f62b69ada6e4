/* SPDX-License-Identifier: MIT
 * cmd_cache.c: `shoal cache`: the table of its commands. */
#include "node/cli/cache.h"

static const struct command *const subs[] = {&cmd_cache_warm, NULL};

static const struct opt_group groups[] = {
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

const struct command cmd_cache = {
    .name = "cache",
    .args = "COMMAND",
    .summary = "look at what lies on the disks of a shoal, and look after it",
    .groups = groups,
    .n_groups = 1,
    .size = sizeof(struct common_opts),
    .subs = subs,
};
