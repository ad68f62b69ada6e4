/* SPDX-License-Identifier: MIT
 * cmd_cache_warm.c: `shoal cache warm`: the disks of a shoal filled. */
#include "node/cli/cache.h"
#include "node/cli/home.h"
#include "node/daemon/node.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct warm_opts {
    struct common_opts common;
    struct home_opts home;
    bool shoal, stop, no_wait;
};

static const struct opt warm_table[] = {
    {"shoal", NULL, "of all members together: each keeps its share (the one way there is)",
     OPT_FLAG, offsetof(struct warm_opts, shoal), 0, 0, NULL},
    {"stop", NULL, "no longer: what is there stays", OPT_FLAG, offsetof(struct warm_opts, stop), 0,
     0, NULL},
    {"no-wait", NULL, "come back at once; shoal status shows how far it is", OPT_FLAG,
     offsetof(struct warm_opts, no_wait), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Warming", warm_table, 3, 0},
    {"Node", home_opts_table, HOME_OPTS_COUNT, offsetof(struct warm_opts, home)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

static double number(const json_t *homes, const char *key)
{
    return json_number_value(json_object_get(homes, key));
}

static int ask(struct cli_home *h, json_t *q, json_t **homes, struct err *e)
{
    json_t *a = NULL;
    *homes = NULL;
    int r = cli_home_ask(h, q, 0, &a, e);
    if (!r) {
        *homes = json_incref(json_object_get(a, "homes"));
    }
    json_decref(a);
    return r;
}

/* Until the node says that it is over. */
static int wait_warm(struct cli *c, struct cli_home *h, json_t **homes, struct err *e)
{
    double told = -1;
    for (;;) {
        int r = ask(h, json_pack("{s:s}", "op", "status"), homes, e);
        if (r) {
            return r;
        }
        double of = number(*homes, "possible");
        double percent = of > 0 ? 100 * number(*homes, "covered") / of : 0;
        bool on = !json_is_object(*homes) || json_is_true(json_object_get(*homes, "warm"));
        if (percent >= told + 1 || !on) {
            const char *why = json_string_value(json_object_get(*homes, "why"));
            cli_note(c, "%.1f %% of what fits is held%s%s", percent > 100 ? 100 : percent,
                     why && *why ? "; nothing is fetched now: " : "", why ? why : "");
            told = percent;
        }
        if (!on) {
            return 0;
        }
        json_decref(*homes);
        *homes = NULL;
        usleep(500000);
    }
}

static int warm(struct cli *c, const struct warm_opts *o)
{
    struct cli_home h;
    struct err e = {0};
    json_t *homes = NULL;
    int r = cli_home_open(&h, c, &o->home, HOME_LOOK, &e);
    json_t *unused = NULL;
    r = r ? r : ask(&h, json_pack("{s:s,s:b}", "op", "warm", "on", !o->stop), &unused, &e);
    if (r == ERR_OFFLINE) {
        err_prefix(&e, "warming is done by the running node (shoal up)");
    }
    if (!r && !o->stop && !o->no_wait) {
        r = wait_warm(c, &h, &homes, &e);
    }
    int status = r ? cli_fail(c, &e) : CLI_OK;
    if (!r && c->json) {
        status = cli_json(c, json_pack("{s:b,s:o}", "warm", !o->stop, "homes",
                                       homes ? json_incref(homes) : json_null()));
    }
    json_decref(unused);
    json_decref(homes);
    cli_home_close(&h);
    return status;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct warm_opts *o = opts;
    if (!o->shoal) {
        return cli_usage(c, "cache warm: say --shoal: it is the members together that are warmed");
    }
    return warm(c, o);
}

const struct command cmd_cache_warm = {
    .name = "cache warm",
    .args = "",
    .summary = "fill the disks of a shoal: all of the model that fits, from the origin once",
    .details =
        "`cache warm --shoal` asks the running node of the home, and by it all members that are\n"
        "connected, to complete what they hold together: each fetches from the origin what is to\n"
        "be at home with it and nobody has, so that the origin gives one copy to all. Nothing is\n"
        "fetched on battery. It goes on when this command is interrupted; --stop ends it.",
    .examples = "  shoal cache warm --shoal\n  shoal cache warm --shoal --no-wait\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct warm_opts),
    .run = run,
};
