/* SPDX-License-Identifier: MIT
 * cache.h: the commands of `shoal cache`, one file each (cmd_cache_*.c). */
#ifndef SHOAL_NODE_CLI_CACHE_H
#define SHOAL_NODE_CLI_CACHE_H

#include "node/cli/home.h"

extern const struct command cmd_cache_warm, cmd_cache_budget, cmd_cache_ls, cmd_cache_move,
    cmd_cache_path, cmd_cache_rm, cmd_cache_adopt, cmd_cache_verify;

/* Which cache a command means: --cache, else that of the home. */
struct cache_where {
    struct home_opts home;
    const char *cache;
};
extern const struct opt cache_where_table[]; /* offsets from a struct cache_where */
#define CACHE_WHERE_COUNT 2
/* Its folder; *h (to be closed in any case) is the home, without --cache. */
int cache_where_open(struct cli *c, const struct cache_where *w, struct cli_home *h,
                     struct buf *folder, struct err *e);

/* The same, as it is named: not where it was moved to. */
int cache_where_named(struct cli *c, const struct cache_where *w, struct cli_home *h,
                      struct buf *folder, struct err *e);

/* "17.301" as layer and expert; false: it is none. */
bool cache_expert(const char *s, uint32_t *layer, uint32_t *expert);

struct rest_model;
struct rest_models;
/* The model whose root begins with `word` (at least 4 digits), or, for NULL, the only one. */
int cache_model(const struct rest_models *l, const char *folder, const char *word,
                const struct rest_model **out, struct err *e);

#endif
