/* SPDX-License-Identifier: MIT
 * cmd_cache.c: `shoal cache`: the table of its commands. */
#include "node/cli/cache.h"

#include "node/store/at_rest.h"

#include <stdio.h>
#include <string.h>

static const struct command *const subs[] = {&cmd_cache_adopt,  &cmd_cache_budget, &cmd_cache_ls,
                                             &cmd_cache_move,   &cmd_cache_path,   &cmd_cache_rm,
                                             &cmd_cache_verify, &cmd_cache_warm,   NULL};

const struct opt cache_where_table[CACHE_WHERE_COUNT] = {
    {"home", "DIR",
     "the folder of a node, whose cache is meant; default: SHOAL_HOME, else the platform's place "
     "for data",
     OPT_TEXT, offsetof(struct cache_where, home.home), 0, 0, NULL},
    {"cache", "DIR", "this cache folder, of no home", OPT_TEXT, offsetof(struct cache_where, cache),
     0, 0, NULL},
};

static int find(struct cli *c, const struct cache_where *w, struct cli_home *h, struct buf *folder,
                bool named, struct err *e)
{
    memset(h, 0, sizeof *h);
    if (w->cache && w->home.home) {
        return err_set(e, ERR_ARG, "give only one of --home and --cache");
    }
    int r = w->cache ? 0 : cli_home_open(h, c, &w->home, HOME_PATH, e);
    return r ? r
             : cli_cache_find(w->cache, h->path, named ? folder : NULL, named ? NULL : folder, e);
}

int cache_where_open(struct cli *c, const struct cache_where *w, struct cli_home *h,
                     struct buf *folder, struct err *e)
{
    return find(c, w, h, folder, false, e);
}

int cache_where_named(struct cli *c, const struct cache_where *w, struct cli_home *h,
                      struct buf *folder, struct err *e)
{
    return find(c, w, h, folder, true, e);
}

bool cache_expert(const char *s, uint32_t *layer, uint32_t *expert)
{
    unsigned l, x;
    int end = 0;
    if (sscanf(s, "%5u.%5u%n", &l, &x, &end) != 2 || !end || s[end] || *s < '0' || *s > '9') {
        return false;
    }
    *layer = l;
    *expert = x;
    return true;
}

int cache_model(const struct rest_models *l, const char *folder, const char *word,
                const struct rest_model **out, struct err *e)
{
    size_t hits = 0, n = word ? strlen(word) : 0;
    *out = NULL;
    for (size_t i = 0; i < l->n; i++) {
        if (!word || (n >= 4 && !strncmp(l->v[i].root, word, n))) {
            *out = &l->v[i];
            hits++;
        }
    }
    return hits == 1 ? 0
           : !l->n   ? err_set(e, ERR_NOTFOUND, "there is no model in the cache %s", folder)
           : !hits
               ? err_set(e, ERR_NOTFOUND,
                         "no model in %s has a root that begins with %.64s (4 digits at least): "
                         "shoal cache ls shows them",
                         folder, word)
               : err_set(e, ERR_ARG, "%zu models in %s: say which by --model ROOT (shoal cache ls)",
                         hits, folder);
}

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
