/* SPDX-License-Identifier: MIT
 * cmd_peers.c: `shoal peers`: the other members, how they are reached, and why not. */
#include "node/cli/home.h"
#include "node/cli/say.h"
#include "node/daemon/node.h"

#include <stdio.h>
#include <string.h>

struct peers_opts {
    struct common_opts common;
    struct home_opts home;
    bool why;
};

#define AT(f) offsetof(struct peers_opts, f)
static const struct opt table[] = {
    {"why", NULL,
     "explain: what was tried on each interface and at each address, and what came of it", OPT_FLAG,
     AT(why), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, AT(home)},
    {"Peers", table, sizeof table / sizeof *table, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

/* ---- the list ---- */

/* What the files alone say: who is a member. */
static json_t *from_files(const struct cli_home *h)
{
    json_t *peers = json_array();
    for (size_t i = 0; h->m.in_group && i < h->m.roster.members_n; i++) {
        const struct roster_member *m = &h->m.roster.members[i];
        if (!id_equal(&m->id, &h->me.id)) {
            char full[ID_TEXT], brief[ID_SHORT];
            id_text(&m->id, full);
            id_short(&m->id, brief);
            json_array_append_new(peers, json_pack("{s:s, s:s, s:b, s:s}", "id", full, "short",
                                                   brief, "keeper", (m->flags & ROSTER_KEEPER) != 0,
                                                   "state", "not known"));
        }
    }
    return peers;
}

static void say_none(struct cli_home *h)
{
    const char *flag = cli_home_flag(h);
    printf("This node belongs to no shoal, so it has no peers: make one with shoal init%s, or join "
           "one with shoal join%s TOKEN.\n",
           flag, flag);
}

static int list(struct cli_home *h, struct err *e)
{
    json_t *a = NULL, *out = cli_home_json(h);
    int r = cli_home_ask(h, json_pack("{s:s}", "op", "status"), 0, &a, e);
    if (r && r != ERR_OFFLINE) {
        json_decref(a);
        json_decref(out);
        return cli_fail(h->c, e);
    }
    json_t *peers = r ? from_files(h) : json_incref(json_object_get(a, "peers"));
    json_object_set_new(out, "running", json_boolean(!r));
    json_object_set_new(out, "peers", peers ? peers : json_array());
    json_decref(a);
    if (h->c->json) {
        return cli_json(h->c, out);
    }
    if (!h->me.key || !h->m.in_group) {
        say_none(h);
    } else if (!json_array_size(peers)) {
        printf("No other member yet: shoal invite%s prints what they join with.\n",
               cli_home_flag(h));
    } else {
        say_peers(peers);
    }
    if (r && h->m.in_group) {
        cli_note(h->c, "no node runs here (shoal up%s), so only the list of members is known",
                 cli_home_flag(h));
    }
    json_decref(out);
    return cli_write(h->c, "", 0);
}

/* ---- why ---- */

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void say_why(const json_t *w)
{
    static const char *const heads[] = {"notice", "moved", "says"};
    size_t i, k;
    const json_t *v, *a;
    for (i = 0; i < sizeof heads / sizeof *heads; i++) {
        if (text(w, heads[i])[0]) {
            printf("%s\n", text(w, heads[i]));
        }
    }
    printf("\nInterfaces:\n");
    json_array_foreach(json_object_get(w, "interfaces"), i, v)
    {
        printf("  %-10s %s\n", text(v, "name"), text(v, "says"));
    }
    if (!json_array_size(json_object_get(w, "interfaces"))) {
        printf("  none is looked at\n");
    }
    printf("\nPeers:\n");
    json_array_foreach(json_object_get(w, "peers"), i, v)
    {
        char who[ID_SHORT];
        const char *name = text(v, "node")[0] ? text(v, "node") : text(v, "static");
        const char *says = text(v, "says"), *best = strstr(says, "; best address");
        printf("  %-18s %.*s\n", id_short_of(name, who) ? who : name,
               (int)(best ? (size_t)(best - says) : strlen(says)), says); /* all of them follow */
        json_array_foreach(json_object_get(v, "addresses"), k, a)
        {
            printf("    %-28s %s\n", text(a, "address"), text(a, "says"));
        }
    }
    if (!json_array_size(json_object_get(w, "peers"))) {
        printf("  nobody was found, named or remembered\n");
    }
    if (text(w, "fetching")[0]) {
        printf("\nUnder way:\n%s\n", text(w, "fetching"));
    }
    printf("\nConnections turned away: ");
    const char *key;
    bool any = false;
    json_t *n;
    json_object_foreach(json_object_get(w, "refused"), key, n)
    {
        if (json_integer_value(n)) {
            printf("%s%s %lld", any ? ", " : "", key, (long long)json_integer_value(n));
            any = true;
        }
    }
    printf("%s\n", any ? "" : "none");
}

/* ---- what needs the running node ---- */

/* Ask, and print the answer as JSON or by `say`. */
static int ask(struct cli_home *h, json_t *req, void (*say)(const json_t *a), const char *done,
               struct err *e)
{
    json_t *a = NULL;
    int r = cli_home_ask(h, req, 0, &a, e);
    if (r == ERR_OFFLINE) {
        char was[sizeof e->msg];
        memcpy(was, e->msg, sizeof was);
        err_set(e, r, "%.400s: start it with shoal up%.150s", was, cli_home_flag(h));
    }
    int status = r ? cli_fail(h->c, e) : CLI_OK;
    if (!r && h->c->json) {
        return cli_json(h->c, a);
    }
    if (!r) {
        if (say) {
            say(a);
        } else {
            printf("%s\n", done);
        }
        status = cli_write(h->c, "", 0);
    }
    json_decref(a);
    return status;
}

static int unban(struct cli_home *h, const char *word, struct err *e)
{
    struct key_id id;
    char full[ID_TEXT], brief[ID_SHORT], done[80];
    if (cli_home_find(h, word, &id, e)) {
        return cli_fail(h->c, e);
    }
    id_text(&id, full);
    id_short(&id, brief);
    snprintf(done, sizeof done, "Node %s is asked again.", brief);
    return ask(h, json_pack("{s:s, s:s}", "op", "unban", "peer", full), NULL, done, e);
}

static int add(struct cli_home *h, const char *address, struct err *e)
{
    if (cli_home_add_peer(h, address, e)) {
        return cli_fail(h->c, e);
    }
    if (h->c->json) {
        return cli_json(h->c, json_pack("{s:s}", "peer", address));
    }
    printf("%s is tried from now on, whenever the node runs.\n", address);
    return cli_write(h->c, "", 0);
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct peers_opts *o = opts;
    struct cli_home h;
    struct err e = {0};
    int status;
    bool lifting = argc == 2 && !strcmp(argv[0], "unban");
    bool adding = argc == 2 && !strcmp(argv[0], "add");
    if ((argc && !lifting && !adding) || (argc && o->why)) {
        return cli_usage(c, "peers: say `peers`, `peers --why`, `peers add HOST:PORT` or `peers "
                            "unban NODE`");
    }
    if (cli_home_open(&h, c, &o->home, lifting ? HOME_SHOAL : HOME_LOOK, &e)) {
        status = cli_fail(c, &e);
    } else if (o->why && !h.m.in_group) { /* nobody was looked for: there is nothing to explain */
        status = list(&h, &e);
    } else if (o->why) {
        status = ask(&h, json_pack("{s:s}", "op", "why"), say_why, NULL, &e);
    } else {
        status = lifting ? unban(&h, argv[1], &e) : adding ? add(&h, argv[1], &e) : list(&h, &e);
    }
    cli_home_close(&h);
    return status;
}

const struct command cmd_peers = {
    .name = "peers",
    .args = "[add HOST:PORT | unban NODE]",
    .summary = "show the other members, or why one is not reached",
    .details =
        "One line for each member: state, address, rates, what it has. --why explains, for each\n"
        "network interface and each address, what was tried and what happened. `peers add` names\n"
        "a peer that Bonjour does not find (another subnet, a VPN, a network without multicast);\n"
        "one of the two ends is enough. A member that gave bad bytes is banned for a stated time,\n"
        "and one that signed false digests is not believed any more; the list says why. When its\n"
        "disk has been repaired, or the blame was wrong, `peers unban` asks and believes it "
        "again.\n"
        "Without a running node the list says only who is a member, and --why fails.",
    .examples = "  shoal peers\n  shoal peers --why\n  shoal peers add 10.0.0.7:4433\n"
                "  shoal peers unban 7k3m\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .max_args = 2,
    .size = sizeof(struct peers_opts),
    .run = run,
};
