/* SPDX-License-Identifier: MIT
 * cmd_status.c: `shoal status`: what the node of a home is and does, and every limit in force. */
#include "node/cli/home.h"
#include "node/cli/say.h"
#include "node/daemon/node.h"

#include <stdio.h>

struct status_opts {
    struct common_opts common;
    struct home_opts home;
};

static const struct opt_group groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, offsetof(struct status_opts, home)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

static int say_files(struct cli_home *h)
{
    char id[ID_SHORT], group[ID_SHORT];
    const char *flag = cli_home_flag(h);
    if (!h->me.key) {
        printf("There is no node in %s yet: make a shoal with shoal init%s, or join one with shoal "
               "join%s TOKEN.\n",
               h->path, flag, flag);
        return cli_write(h->c, "", 0);
    }
    id_short(&h->me.id, id);
    printf("Node %s in %s does not run; shoal up%s starts it.\n", id, h->path, flag);
    if (!h->m.in_group) {
        printf("It belongs to no shoal: make one with shoal init%s, or join one with shoal join%s "
               "TOKEN.\n",
               flag, flag);
        return cli_write(h->c, "", 0);
    }
    id_short(&h->m.group, group);
    printf("Shoal %s: %zu members%s%s.\n", group, h->m.roster.members_n,
           h->m.signing_key ? ", of which this one is a keeper" : "",
           roster_has_removed(&h->m.roster, &h->me.id) ? "; this node was removed from it" : "");
    return cli_write(h->c, "", 0);
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct status_opts *o = opts;
    struct cli_home h;
    struct err e = {0};
    json_t *a = NULL;
    int r = cli_home_open(&h, c, &o->home, HOME_LOOK, &e);
    r = r ? r : cli_home_ask(&h, json_pack("{s:s}", "op", "status"), 0, &a, &e);
    int status;
    if (r && r != ERR_OFFLINE) {
        status = cli_fail(c, &e);
    } else if (r) {
        json_t *v = c->json ? cli_home_json(&h) : NULL;
        if (v) {
            json_object_set_new(v, "running", json_false());
        }
        status = v ? cli_json(c, v) : say_files(&h);
    } else if (c->json) {
        json_object_set_new(a, "running", json_true());
        json_object_set_new(a, "home", json_string(h.path));
        status = cli_json(c, json_incref(a));
    } else {
        say_status(a);
        if (json_array_size(json_object_get(a, "peers"))) {
            printf("\n");
            say_peers(json_object_get(a, "peers"));
        }
        status = cli_write(c, "", 0);
    }
    json_decref(a);
    cli_home_close(&h);
    return status;
}

const struct command cmd_status = {
    .name = "status",
    .args = "",
    .summary = "show what the running node holds, fetches, gives, and its limits",
    .details =
        "Asks the process that runs the node of the home folder (`shoal up`, or a `shoal run\n"
        "--home`): peers, addresses, rates, how much of the model the shoal holds, what came from\n"
        "where, and every limit in force. Without one it tells what the files of the home say.",
    .examples = "  shoal status\n  shoal status --json\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct status_opts),
    .run = run,
};
