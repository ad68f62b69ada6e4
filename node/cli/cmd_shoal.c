/* SPDX-License-Identifier: MIT
 * cmd_shoal.c: `shoal init` and `shoal join`: how a node becomes a member. */
#include "node/cli/home.h"
#include "node/cli/networks.h"
#include "node/cli/plat.h"
#include "peer/mesh.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- init ---- */

struct init_opts {
    struct common_opts common;
    struct home_opts home;
};

static const struct opt_group init_groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, offsetof(struct init_opts, home)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

/* The present networks are ones of this household: whoever makes or joins a shoal says so. */
static json_t *allow_present(struct cli_home *h)
{
    struct err e = {0};
    json_t *list = NULL;
    if (cli_networks_allow_here(h, &list, &e)) {
        cli_note(h->c, "Bonjour stays off here: %s", e.msg);
    }
    return list ? list : json_array();
}

static void say_networks(const json_t *list)
{
    size_t i;
    const json_t *n;
    json_array_foreach(list, i, n)
    {
        printf("%s %s", i ? "," : "It may announce itself on", json_string_value(n));
    }
    printf("%s", json_array_size(list) ? " (shoal networks).\n" : "");
}

static int run_init(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct init_opts *o = opts;
    struct cli_home h;
    struct err e = {0};
    int r = cli_home_open(&h, c, &o->home, HOME_MAKE, &e);
    r = r ? r : member_init(&h.m, (uint64_t)time(NULL), &e);
    if (r) {
        cli_home_close(&h);
        return cli_fail(c, &e);
    }
    json_t *nets = allow_present(&h);
    cli_home_look(&h);
    const char *flag = cli_home_flag(&h);
    int status = CLI_OK;
    if (c->json) {
        json_t *v = cli_home_json(&h);
        json_object_set(v, "networks", nets);
        status = cli_json(c, v);
    } else {
        char id[ID_SHORT], group[ID_SHORT];
        id_short(&h.me.id, id);
        id_short(&h.m.group, group);
        printf("This machine is node %s, first member and keeper of the new shoal %s.\n"
               "Its files are in %s.\n",
               id, group, h.path);
        say_networks(nets);
        printf("\nNext:\n"
               "  shoal up%s\n"
               "      starts the node here\n"
               "  shoal invite%s\n"
               "      in another terminal: prints what the next machine joins with\n"
               "  shoal backup%s --file shoal-key.txt\n"
               "      keeps the signing key safe; without it and this machine nobody new can come "
               "in\n",
               flag, flag, flag);
        status = cli_write(c, "", 0);
    }
    json_decref(nets);
    cli_home_close(&h);
    return status;
}

const struct command cmd_init = {
    .name = "init",
    .args = "",
    .summary = "make a shoal with this machine as its first member",
    .details =
        "A shoal is the group of machines that share experts. This makes its signing key, the key\n"
        "of this node, and a list of members with this node alone in it. This node is then a\n"
        "keeper: it can invite and remove. What is never replaced once it exists: both keys.",
    .examples = "  shoal init\n  shoal init --home /Volumes/data/shoal\n",
    .groups = init_groups,
    .n_groups = sizeof init_groups / sizeof *init_groups,
    .size = sizeof(struct init_opts),
    .run = run_init,
};

/* ---- join ---- */

struct join_opts {
    struct common_opts common;
    struct home_opts home;
    struct opt_count wait;
};

#define AT(f) offsetof(struct join_opts, f)
static const struct opt join_table[] = {
    {"wait", "TIME", "give up after this time; default 20s", OPT_TIME, AT(wait), 1, 3600, NULL},
};
static const struct opt_group join_groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, AT(home)},
    {"Joining", join_table, sizeof join_table / sizeof *join_table, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

/* From the arguments, which a shell may have split where the token was wrapped, or from standard
 * input. */
static int read_token(int argc, char **argv, struct buf *out, struct err *e)
{
    int r = 0;
    if (argc == 1 && !strcmp(argv[0], "-")) {
        r = plat_read_stdin(out, e);
        if (!r && !out->n) {
            return err_set(e, ERR_FORMAT,
                           "standard input is empty, where an invite should be: what did shoal "
                           "invite say?");
        }
        return r == ERR_LIMIT ? err_set(e, r, "standard input is too long to be an invite") : r;
    }
    for (int i = 0; !r && i < argc; i++) {
        r = buf_addf(out, "%s%s", i ? " " : "", argv[i]);
    }
    return r ? err_set(e, r, "that is too long to be an invite") : 0;
}

struct steps {
    struct cli *c;
    char joined[DISCO_STATIC_TEXT]; /* the address of the line that says so */
};

static void on_step(void *ctx, const char *line)
{
    static const char done[] = ": joined";
    struct steps *s = ctx;
    size_t n = strlen(line), k = sizeof done - 1;
    if (n > k && n - k < sizeof s->joined && !strcmp(line + n - k, done)) {
        memcpy(s->joined, line, n - k);
        s->joined[n - k] = 0;
    }
    cli_note(s->c, "%s", line);
}

static bool is_member_of(const struct member *m, const struct token *t)
{
    return m->in_group && !memcmp(m->group.b, t->group, TOKEN_GROUP) &&
           roster_find(&m->roster, &m->me->id);
}

static int join(struct cli_home *h, const struct join_opts *o, int argc, char **argv, struct err *e)
{
    struct buf token;
    struct token t;
    struct steps s = {.c = h->c};
    struct err e1;
    bool changed;
    buf_init(&token, TOKEN_INPUT_MAX);
    int r = read_token(argc, argv, &token, e);
    /* Nothing is made in the home for what is no invite. */
    r = r ? r : token_parse(token.p ? token.p : "", token.n, &t, e);
    if (!r) {
        cli_home_close(h);
        r = cli_home_open(h, h->c, &o->home, HOME_MAKE, e);
        unsigned ms = o->wait.set ? (unsigned)o->wait.v * 1000 : 0;
        bool member = !r && is_member_of(&h->m, &t);
        r = r ? r : mesh_join(h->path, token.p, ms, on_step, &s, e);
        if (r && member) { /* a keeper that knows it has nothing to take in */
            cli_note(h->c, "this node is a member of that shoal already (%s)", e->msg);
            r = 0;
        }
        crypto_wipe(&t, sizeof t);
        r = r ? r : member_reload(&h->m, &changed, e);
        /* Where Bonjour does not reach, nobody else tells where the other one is. */
        if (!r && s.joined[0] && cli_home_add_peer(h, s.joined, &e1)) {
            cli_note(h->c, "%s is not remembered: %s", s.joined, e1.msg);
        }
    }
    if (token.p) {
        crypto_wipe(token.p, token.n);
    }
    buf_free(&token);
    return r;
}

static int run_join(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct join_opts *o = opts;
    struct cli_home h;
    struct err e = {0};
    int status = CLI_OK;
    int r = cli_home_open(&h, c, &o->home, HOME_PATH, &e);
    r = r ? r : join(&h, o, argc, argv, &e);
    if (r) {
        cli_home_close(&h);
        return cli_fail(c, &e);
    }
    json_t *nets = allow_present(&h);
    cli_home_look(&h);
    if (c->json) {
        json_t *v = cli_home_json(&h);
        json_object_set(v, "networks", nets);
        status = cli_json(c, v);
    } else {
        char id[ID_SHORT], group[ID_SHORT];
        id_short(&h.me.id, id);
        id_short(&h.m.group, group);
        printf("This machine is node %s, a member of the shoal %s (members: %zu).\n"
               "Its files are in %s.\n",
               id, group, h.m.roster.members_n, h.path);
        say_networks(nets);
        printf("\nNext:\n"
               "  shoal up%s\n"
               "      starts the node here\n",
               cli_home_flag(&h));
        printf("  shoal run%s --chat 'Define whale.'\n"
               "      in another terminal: answers with what the others have\n",
               cli_home_named(&h));
        status = cli_write(c, "", 0);
    }
    json_decref(nets);
    cli_home_close(&h);
    return status;
}

const struct command cmd_join = {
    .name = "join",
    .args = "TOKEN",
    .summary = "make this machine a member, with an invite's token",
    .details =
        "TOKEN is what `shoal invite` printed on a keeper, whose node (`shoal up`) has to run. It\n"
        "survives copying: spaces, line breaks, dashes, quotes and invisible characters in it do\n"
        "not matter. `-` takes it from standard input, where `ps` does not show it. Each step is\n"
        "said as it happens; when it fails, the first step that did, and what the other side said.",
    .examples = "  shoal join shoal1...\n  pbpaste | shoal join -\n",
    .groups = join_groups,
    .n_groups = sizeof join_groups / sizeof *join_groups,
    .min_args = 1,
    .max_args = 256,
    .size = sizeof(struct join_opts),
    .run = run_join,
};
