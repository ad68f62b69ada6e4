/* SPDX-License-Identifier: MIT
 * cmd_cache_budget.c: `shoal cache budget`: how much of the disk the cache may take, from now on.
 */
#include "node/cli/budget.h"
#include "node/cli/cache.h"
#include "node/store/at_rest.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

struct budget_opts {
    struct common_opts common;
    struct cache_where where;
    const char *floor;
};

static const struct opt floor_table[] = {
    {"floor", "SIZE", "bytes that stay free on the volume, whoever fills it; or auto", OPT_TEXT,
     offsetof(struct budget_opts, floor), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Budget", floor_table, 1, 0},
    {"Where", cache_where_table, CACHE_WHERE_COUNT, offsetof(struct budget_opts, where)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

/* "auto" is *out = automatic. */
static int size_of(const char *what, const char *s, uint64_t automatic, uint64_t *out,
                   struct err *e)
{
    *out = automatic;
    if (!strcmp(s, "auto")) {
        return 0;
    }
    if (!opt_bytes(s, out) || !*out) {
        return err_set(e, ERR_ARG, "%s %.60s: it must be a size such as 500G, or auto", what, s);
    }
    return opt_bare_size(what, s, *out, e);
}

static json_t *size_json(uint64_t v, uint64_t automatic)
{
    return v == automatic ? json_string("auto") : json_integer((json_int_t)v);
}

/* A budget is kept in a folder: a name that is not there is a mistake, but for the cache of a home
 * that has not been used yet. */
static int must_exist(const char *folder, const struct cli_home *h, struct err *e)
{
    struct stat sb;
    const char *what = h->path ? h->path : folder;
    if (!stat(what, &sb) && S_ISDIR(sb.st_mode)) {
        return 0;
    }
    return err_set(e, ERR_NOTFOUND,
                   h->path ? "there is no home %s: shoal init, shoal setup and shoal up make one"
                           : "there is no cache at %s: shoal setup and shoal run make it, or make "
                             "the folder first",
                   what);
}

/* "": it can be had. Else what is wrong with it. */
static const char *beyond(const char *folder, uint64_t budget, char out[160])
{
    struct statvfs v;
    char size[CLI_NUM];
    out[0] = 0;
    if (budget && !statvfs(folder, &v) && budget / v.f_frsize > v.f_blocks) {
        snprintf(out, 160,
                 ", which is more than its whole volume has (%s): free space is what bounds it",
                 cli_bytes((uint64_t)v.f_blocks * v.f_frsize, size));
    }
    return out;
}

/* Without a node: only what a later start will find. */
static int say_kept(struct cli *c, const char *folder)
{
    uint64_t budget, floor;
    char a[CLI_NUM], b[CLI_NUM], more[160];
    store_kept_budget(folder, &budget, &floor);
    if (c->json) {
        return cli_json(c, json_pack("{s:b,s:s,s:o,s:o}", "running", 0, "folder", folder, "budget",
                                     size_json(budget, 0), "floor", size_json(floor, UINT64_MAX)));
    }
    printf("cache    %s, used by no running node\n", folder);
    printf("budget   %s%s\n",
           budget ? cli_bytes(budget, a)
                  : "auto: what the volume has beside the "
                    "floor",
           beyond(folder, budget, more));
    printf("floor    %s\n", floor != UINT64_MAX ? cli_bytes(floor, b)
                                                : "auto: a twentieth of the volume, at least "
                                                  "1 GiB, at most 32 GiB");
    return cli_write(c, "", 0);
}

static int say_running(struct cli *c, const char *folder, json_t *limits)
{
    struct store_budget b;
    char words[CLI_BUDGET], used[CLI_NUM], day[CLI_NUM], others[CLI_NUM], more[160];
    if (c->json) {
        return cli_json(
            c, json_pack("{s:b,s:s,s:O}", "running", 1, "folder", folder, "limits", limits));
    }
    if (!cli_budget_read(limits, &b)) {
        printf("cache    %s: this node keeps nothing on disk\n", folder);
        return cli_write(c, "", 0);
    }
    printf("cache    %s: %s, %s written today (UTC)\n", folder, cli_bytes(b.used, used),
           cli_bytes(b.written_today, day));
    if (b.others) {
        printf("         other models in it take %s, which count, too\n",
               cli_bytes(b.others, others));
    }
    printf("budget   %s%s\n", cli_budget_words(&b, words), beyond(folder, b.budget, more));
    if (b.used > b.may) {
        printf("         it comes down in small steps; what present requests need stays\n");
    }
    return cli_write(c, "", 0);
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct budget_opts *o = opts;
    struct cli_home h;
    struct buf folder;
    struct err e = {0};
    uint64_t budget = 0, floor = UINT64_MAX;
    json_t *limits = NULL;
    int r = argc ? size_of("cache budget", argv[0], 0, &budget, &e) : 0;
    r = r || !o->floor ? r : size_of("--floor", o->floor, UINT64_MAX, &floor, &e);
    if (r) {
        return cli_usage(c, "%s", e.msg);
    }
    buf_init(&folder, 4096);
    r = cache_where_open(c, &o->where, &h, &folder, &e);
    if (r == ERR_ARG) {
        buf_free(&folder);
        cli_home_close(&h);
        return cli_usage(c, "%s", e.msg);
    }
    r = r ? r : must_exist(folder.p, &h, &e);
    r = r || !(argc || o->floor) ? r : rest_writable(folder.p, "a budget that is kept in it", &e);
    if (!r) {
        json_t *q = json_pack("{s:s}", "op", "budget");
        if (argc) {
            json_object_set_new(q, "budget", size_json(budget, 0));
        }
        if (o->floor) {
            json_object_set_new(q, "floor", size_json(floor, UINT64_MAX));
        }
        r = h.path ? cli_home_ask(&h, q, 0, &limits, &e) : ERR_OFFLINE;
        if (!h.path) {
            json_decref(q);
        }
    }
    bool running = !r;
    if (r == ERR_OFFLINE) {
        r = argc || o->floor
                ? store_keep_budget(folder.p, argc ? &budget : NULL, o->floor ? &floor : NULL, &e)
                : 0;
    }
    int status = r         ? cli_fail(c, &e)
                 : running ? say_running(c, folder.p, limits)
                           : say_kept(c, folder.p);
    json_decref(limits);
    buf_free(&folder);
    cli_home_close(&h);
    return status;
}

const struct command cmd_cache_budget = {
    .name = "cache budget",
    .args = "[SIZE | auto]",
    .summary = "show or change how much of the disk the cache may take",
    .details =
        "Changes it in the running node of the home at once, and for later starts. What is over\n"
        "the new number leaves in small steps, experts that were used longest ago first; never\n"
        "the spine, and nothing that a present request needs. auto is what the volume has beside\n"
        "the floor. Only the cache's own files are counted; when others fill the volume up to the\n"
        "floor, the cache gives way. An option --disk-budget of a start comes before what is\n"
        "kept here.",
    .examples = "  shoal cache budget\n  shoal cache budget 500G --floor 50G\n"
                "  shoal cache budget auto\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .max_args = 1,
    .size = sizeof(struct budget_opts),
    .run = run,
};
