/* SPDX-License-Identifier: MIT
 * budget.h: how much of a disk the cache takes, and why, in words. */
#ifndef SHOAL_NODE_CLI_BUDGET_H
#define SHOAL_NODE_CLI_BUDGET_H

#include "node/cli/cli.h"
#include "node/store/budget.h"

#define CLI_DISK_BUDGET_HELP                                                                     \
    "most bytes of the model kept in the cache folder; default: what shoal cache budget chose, " \
    "else what the volume has beside --disk-floor"
#define CLI_DISK_FLOOR_HELP                                                                      \
    "bytes that stay free on the cache's volume, whoever fills it; default: a twentieth of it, " \
    "at least 1 GiB, at most 32 GiB"

/* "at most 500 GB (given by --disk-budget), 20 GB stay free (...)": each number with its reason. */
#define CLI_BUDGET 400
const char *cli_budget_words(const struct store_budget *b, char out[CLI_BUDGET]);
/* Of a node's report or answer: {"budget", "budget_from", "floor", ...}. False: it is none. */
bool cli_budget_read(const json_t *j, struct store_budget *out);

#endif
