/* SPDX-License-Identifier: MIT
 * cmd_states.c: `shoal states`: the states of conversations that are kept on disk, and their end.
 */
#include "node/cli/home.h"
#include "node/cli/states.h"
#include "node/daemon/node.h"

#include <stdio.h>
#include <string.h>

#define FOLDERS_MAX 256
#define FORGET_MS 600000 /* a step under way is not broken off */

struct states_opts {
    struct common_opts common;
    struct home_opts home;
    const char *cache;
};

static const struct opt cache_table[] = {
    {"cache", "DIR", "in place of a home: what shoal serve --cache DIR keeps", OPT_TEXT,
     offsetof(struct states_opts, cache), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Where", home_opts_table, HOME_OPTS_COUNT, offsetof(struct states_opts, home)},
    {"", cache_table, 1, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

static int list(struct cli *c, const char *base, struct err *e)
{
    struct states_info l[FOLDERS_MAX];
    size_t n;
    char b[CLI_NUM];
    int r = states_list(base, l, FOLDERS_MAX, &n, e);
    if (r) {
        return cli_fail(c, e);
    }
    if (c->json) {
        json_t *a = json_array();
        for (size_t i = 0; i < n; i++) {
            (void)json_array_append_new(a, json_pack("{s:s, s:I, s:I, s:b}", "model", l[i].name,
                                                     "states", (json_int_t)l[i].n, "bytes",
                                                     (json_int_t)l[i].bytes, "in_use",
                                                     (int)l[i].busy));
        }
        return cli_json(c, json_pack("{s:s, s:o}", "folder", base, "models", a));
    }
    for (size_t i = 0; i < n; i++) {
        printf("model %s: %zu state%s, %s%s\n", l[i].name, l[i].n, l[i].n == 1 ? "" : "s",
               cli_bytes(l[i].bytes, b), l[i].busy ? ", in use" : "");
    }
    if (!n) {
        printf("No states are kept in %s.\n", base);
    }
    return cli_write(c, "", 0);
}

/* By the process that runs the home's node, which has some in memory too; without one, the files.
 */
static int clear(struct cli *c, struct cli_home *h, const char *base, struct err *e)
{
    size_t n = 0;
    uint64_t bytes = 0;
    char b[CLI_NUM];
    json_t *a = NULL;
    int r = h ? cli_home_ask(h, json_pack("{s:s}", "op", "forget"), FORGET_MS, &a, e) : ERR_OFFLINE;
    if (!r) {
        n = (size_t)json_integer_value(json_object_get(a, "states"));
        bytes = (uint64_t)json_integer_value(json_object_get(a, "bytes"));
    } else if (r == ERR_OFFLINE || r == ERR_REFUSED) {
        r = states_clear(base, NULL, &n, &bytes, e);
    }
    json_decref(a);
    if (r) {
        return cli_fail(c, e);
    }
    if (c->json) {
        return cli_json(
            c, json_pack("{s:I, s:I}", "states", (json_int_t)n, "bytes", (json_int_t)bytes));
    }
    cli_note(c, "%zu state%s of conversations deleted, %s", n, n == 1 ? "" : "s",
             cli_bytes(bytes, b));
    return CLI_OK;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct states_opts *o = opts;
    struct cli_home h;
    struct err e = {0};
    bool ls = !argc || !strcmp(argv[0], "ls") || !strcmp(argv[0], "list");
    if (!ls && strcmp(argv[0], "clear") != 0) {
        return cli_usage(c, "states: \"%.40s\" is neither ls (what is kept) nor clear (delete all)",
                         argv[0]);
    }
    if (o->home.home && o->cache) {
        return cli_usage(c, "give only one of --home and --cache");
    }
    if (o->cache) {
        struct buf at;
        buf_init(&at, 4096);
        int k = cli_cache_find(o->cache, NULL, NULL, &at, &e);
        k = k ? cli_fail(c, &e) : ls ? list(c, at.p, &e) : clear(c, NULL, at.p, &e);
        buf_free(&at);
        return k;
    }
    int r = cli_home_open(&h, c, &o->home, HOME_PATH, &e);
    int status = r ? cli_fail(c, &e) : ls ? list(c, h.path, &e) : clear(c, &h, h.path, &e);
    cli_home_close(&h);
    return status;
}

const struct command cmd_states = {
    .name = "states",
    .args = "[ls | clear]",
    .summary = "show or delete the states of conversations that are kept on disk",
    .details =
        "What a conversation was read to is kept on disk, so that its next turn needs not be\n"
        "read again from the beginning, also after a restart. The files tell what was said, so\n"
        "only this user can read them; `clear` deletes all of them, and those in the memory of a\n"
        "node that runs. `--no-save-states` of shoal up and shoal serve writes none.",
    .examples = "  shoal states ls\n  shoal states clear\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .max_args = 1,
    .size = sizeof(struct states_opts),
    .run = run,
};
