/* SPDX-License-Identifier: MIT
 * cmd_networks.c: `shoal networks`: where Bonjour may announce this node. */
#include "node/cli/networks.h"
#include "peer/networks_here.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct networks_opts {
    struct common_opts common;
    struct home_opts home;
};

static const struct opt_group groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, offsetof(struct networks_opts, home)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

/* Of this machine now; *out is the caller's. */
static int present(struct cli_home *h, struct network_here **out, size_t *n, struct err *e)
{
    *n = 0;
    *out = calloc(NETWORKS_HERE_MAX, sizeof **out);
    return *out ? networks_here(h->path, *out, NETWORKS_HERE_MAX, n, e)
                : err_set(e, ERR_NOMEM, "out of memory");
}

static bool announced(const struct network_here *v)
{
    return v->state == NETWORK_HERE_ALLOWED || v->state == NETWORK_HERE_MET;
}

int cli_networks_allow_here(struct cli_home *h, json_t **list, struct err *e)
{
    struct network_here *v = NULL;
    size_t n;
    *list = NULL;
    int r = networks_allow_here(h->path, NULL, NULL, e);
    r = r ? r : present(h, &v, &n, e);
    if (!r) {
        *list = json_array();
        for (size_t i = 0; i < n; i++) {
            if (announced(&v[i])) {
                json_array_append_new(*list, json_string(v[i].subnet));
            }
        }
    }
    free(v);
    return r;
}

static json_t *here_json(const struct network_here *v)
{
    char t[NETWORK_TEXT];
    network_text(&v->net, t);
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:b}", "interface", v->interface, "network", t,
                     "subnet", v->subnet, "state", network_state_word(v->state), "announced",
                     announced(v), "virtual", (int)v->virtual_if);
}

/* Entries of the home's list that are no present network. */
static bool elsewhere(const struct network *k, const struct network_here *v, size_t n)
{
    char a[NETWORK_TEXT], b[NETWORK_TEXT];
    network_text(k, a);
    for (size_t i = 0; i < n; i++) {
        network_text(&v[i].net, b);
        if (!strcmp(a, b)) {
            return false;
        }
    }
    return true;
}

static int list(struct cli_home *h, struct err *e)
{
    struct network_here *v = NULL;
    struct networks *all = calloc(1, sizeof *all);
    size_t n = 0;
    json_t *here = json_array(), *other = json_array();
    int r = all ? networks_load(h->path, all, e) : err_set(e, ERR_NOMEM, "out of memory");
    r = r ? r : present(h, &v, &n, e);
    if (!r && !h->c->json) {
        printf(n ? "Networks of this machine now:\n" : "This machine is on no network now.\n");
    }
    for (size_t i = 0; !r && i < n; i++) {
        json_array_append_new(here, here_json(&v[i]));
        if (!h->c->json) {
            printf("  %-10s %-28s %s%s\n", v[i].interface, v[i].subnet,
                   network_state_word(v[i].state), v[i].virtual_if ? ", a virtual interface" : "");
        }
    }
    for (size_t i = 0, said = 0; !r && i < all->n; i++) {
        char t[NETWORK_TEXT];
        const char *why = all->v[i].why == NETWORK_ALLOW ? "allowed" : "met";
        network_text(&all->v[i].net, t);
        if (elsewhere(&all->v[i].net, v, n)) {
            json_array_append_new(other, json_pack("{s:s, s:s, s:I}", "network", t, "state", why,
                                                   "when", (json_int_t)all->v[i].when));
            if (!h->c->json) {
                printf("%s  %-39s %s\n", said++ ? "" : "Others in the list:\n", t, why);
            }
        }
    }
    free(v);
    free(all);
    int status = r ? cli_fail(h->c, e)
                 : h->c->json
                     ? cli_json(h->c, json_pack("{s:O, s:O}", "here", here, "elsewhere", other))
                     : cli_write(h->c, "", 0);
    json_decref(here);
    json_decref(other);
    return status;
}

static int change(struct cli_home *h, bool allow, const char *which, struct err *e)
{
    size_t n = 0;
    int r = allow ? networks_allow_here(h->path, which, &n, e)
                  : networks_forget_named(h->path, which, &n, e);
    if (r) {
        return cli_fail(h->c, e);
    }
    if (h->c->json) {
        return cli_json(h->c, json_pack("{s:I}", allow ? "added" : "forgotten", (json_int_t)n));
    }
    if (allow) {
        printf(n ? "Allowed: %zu networks more.\n" : "Nothing new: it was allowed already.\n", n);
    } else {
        printf("Forgotten: %zu.\n", n);
    }
    return cli_write(h->c, "", 0);
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct networks_opts *o = opts;
    struct cli_home h;
    struct err e = {0};
    char which[2 * NETWORK_TEXT] = "";
    int status;
    bool allow = argc && !strcmp(argv[0], "allow"), forget = argc && !strcmp(argv[0], "forget");
    if ((argc && !allow && !forget) || (forget && argc < 2)) {
        return cli_usage(
            c, "networks: say `networks`, `networks allow [NET]` or `networks forget NET`");
    }
    if (argc > 1) {
        /* A subnet and a gateway, as the list shows them, are two words to a shell. */
        snprintf(which, sizeof which, "%.79s%s%.79s", argv[1], argc > 2 ? " " : "",
                 argc > 2 ? argv[2] : "");
    }
    if (cli_home_open(&h, c, &o->home, HOME_PATH, &e)) {
        status = cli_fail(c, &e);
    } else {
        status = allow || forget ? change(&h, allow, argc > 1 ? which : NULL, &e) : list(&h, &e);
    }
    cli_home_close(&h);
    return status;
}

const struct command cmd_networks = {
    .name = "networks",
    .args = "[allow [NET] | forget NET]",
    .summary = "show or say on which networks this node may announce itself",
    .details =
        "Bonjour announces a node only where a member was met or where `networks allow` says so,\n"
        "so that a laptop does not announce itself in a café; `init` and `join` allow the "
        "networks\n"
        "they are run on. NET is a subnet or an interface as the list shows them; without it all\n"
        "present networks are meant. Connections to addresses that are known are made everywhere.",
    .examples = "  shoal networks\n  shoal networks allow 192.168.1.0/24\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .max_args = 3,
    .size = sizeof(struct networks_opts),
    .run = run,
};
