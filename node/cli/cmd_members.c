/* SPDX-License-Identifier: MIT
 * cmd_members.c: `shoal remove` and `shoal keeper`: who belongs, and who may say so. */
#include "node/cli/home.h"
#include "peer/keeper.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- remove ---- */

struct remove_opts {
    struct common_opts common;
    struct home_opts home;
    bool keeper_too;
};

#define AT(f) offsetof(struct remove_opts, f)
static const struct opt remove_table[] = {
    {"keeper-too", NULL,
     "remove it although it is a keeper, which has the signing key and could sign itself in again",
     OPT_FLAG, AT(keeper_too), 0, 0, NULL},
};
static const struct opt_group remove_groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, AT(home)},
    {"Removing", remove_table, sizeof remove_table / sizeof *remove_table, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

static int run_remove(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct remove_opts *o = opts;
    struct cli_home h;
    struct err e = {0};
    struct key_id id;
    char full[ID_TEXT], brief[ID_SHORT];
    bool keeper = false;
    int status = CLI_OK;
    int r = cli_home_open(&h, c, &o->home, HOME_SHOAL, &e);
    r = r ? r : cli_home_find(&h, argv[0], &id, &e);
    if (!r) {
        const struct roster_member *m = roster_find(&h.m.roster, &id);
        keeper = m && (m->flags & ROSTER_KEEPER);
        id_text(&id, full);
        r = member_remove(&h.m, full, o->keeper_too, (uint64_t)time(NULL), &id, &e);
    }
    if (r) {
        cli_home_close(&h);
        return cli_fail(c, &e);
    }
    cli_home_look(&h);
    if (c->json) {
        json_t *v = json_object();
        cli_id_json(v, &id);
        json_object_set_new(v, "removed", json_true());
        json_object_set_new(v, "was_keeper", json_boolean(keeper));
        json_object_set_new(v, "members", json_integer((json_int_t)h.m.roster.members_n));
        json_object_set_new(v, "roster_version", json_integer((json_int_t)h.m.roster.version));
        status = cli_json(c, v);
    } else {
        id_short(&id, brief);
        printf("Node %s is removed; members left: %zu. It is shut out by each node that has the "
               "new list: the one here at once when it runs, others as they meet.\n",
               brief, h.m.roster.members_n);
        if (keeper) {
            printf("It was a keeper and still has the signing key: only a new shoal shuts it out "
                   "for good.\n");
        }
        status = cli_write(c, "", 0);
    }
    cli_home_close(&h);
    return status;
}

const struct command cmd_remove = {
    .name = "remove",
    .args = "NODE",
    .summary = "take a member out of the shoal (on a keeper)",
    .details =
        "NODE is a node id, its short form, its first four or more characters, or a peer's name.\n"
        "A removed node gets nothing any more from each node that has the new list of members,\n"
        "which spreads as nodes meet, and it hears so in words. It cannot come back with the same\n"
        "key.",
    .examples = "  shoal peers\n  shoal remove k7qm-3v9d-x2ef\n",
    .groups = remove_groups,
    .n_groups = sizeof remove_groups / sizeof *remove_groups,
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(struct remove_opts),
    .run = run_remove,
};

/* ---- keeper ---- */

struct keeper_opts {
    struct common_opts common;
    struct home_opts home;
};

static const struct opt_group keeper_groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, offsetof(struct keeper_opts, home)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

static int keeper_list(struct cli_home *h)
{
    const struct roster *r = &h->m.roster;
    json_t *list = json_array();
    for (size_t i = 0; i < r->members_n; i++) {
        const struct roster_member *m = &r->members[i];
        if (m->flags & ROSTER_KEEPER) {
            bool here = id_equal(&m->id, &h->me.id);
            json_t *o = json_object();
            cli_id_json(o, &m->id);
            json_object_set_new(o, "here", json_boolean(here));
            json_object_set_new(o, "has_key",
                                here ? json_boolean(h->m.signing_key != NULL) : json_null());
            json_array_append_new(list, o);
        }
    }
    if (h->c->json) {
        return cli_json(h->c, json_pack("{s:o}", "keepers", list));
    }
    size_t i;
    const json_t *k;
    json_array_foreach(list, i, k)
    {
        bool here = json_is_true(json_object_get(k, "here"));
        printf("%s%s\n", json_string_value(json_object_get(k, "short")),
               !here              ? ""
               : h->m.signing_key ? "  (this node)"
                                  : "  (this node; the signing key comes from another keeper)");
    }
    json_decref(list);
    return cli_write(h->c, "", 0);
}

static int keeper_make(struct cli_home *h, const char *word, struct err *e)
{
    struct key_id id;
    char full[ID_TEXT], brief[ID_SHORT];
    int r = cli_home_find(h, word, &id, e);
    if (!r) {
        id_text(&id, full);
        r = keeper_add(&h->m, full, &id, e);
    }
    if (r) {
        return cli_fail(h->c, e);
    }
    cli_home_look(h);
    if (h->c->json) {
        json_t *v = json_object();
        cli_id_json(v, &id);
        json_object_set_new(v, "keeper", json_true());
        json_object_set_new(v, "roster_version", json_integer((json_int_t)h->m.roster.version));
        return cli_json(h->c, v);
    }
    id_short(&id, brief);
    printf("Node %s is a keeper from now on. It gets the signing key when the two nodes are "
           "connected.\n",
           brief);
    return cli_write(h->c, "", 0);
}

static int run_keeper(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct keeper_opts *o = opts;
    struct cli_home h;
    struct err e = {0};
    bool list = argc == 0 || (argc == 1 && !strcmp(argv[0], "list"));
    if (!list && !(argc == 2 && !strcmp(argv[0], "add"))) {
        return cli_usage(c, "keeper: say `keeper list` or `keeper add NODE`");
    }
    int status = cli_home_open(&h, c, &o->home, HOME_SHOAL, &e) ? cli_fail(c, &e)
                 : list                                         ? keeper_list(&h)
                                                                : keeper_make(&h, argv[1], &e);
    cli_home_close(&h);
    return status;
}

const struct command cmd_keeper = {
    .name = "keeper",
    .args = "[list | add NODE]",
    .summary = "show the keepers, or give a member the signing key",
    .details =
        "A keeper has the shoal's signing key: it can invite and remove. With one keeper, losing\n"
        "that machine means that nobody new can be taken in; so make a second one, or keep a\n"
        "backup. The key goes from keeper to keeper, sealed for the new one's key.",
    .examples = "  shoal keeper list\n  shoal keeper add k7qm\n",
    .groups = keeper_groups,
    .n_groups = sizeof keeper_groups / sizeof *keeper_groups,
    .max_args = 2,
    .size = sizeof(struct keeper_opts),
    .run = run_keeper,
};
