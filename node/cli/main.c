/* SPDX-License-Identifier: MIT
 * main.c: the table of commands, and the way from argv to one of them. */
#include "node/cli/cli.h"
#include "node/cli/plat.h"
#include "node/store/address.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct command *const cli_commands[] = {
    &cmd_setup,    &cmd_run,     &cmd_chat,      &cmd_up,       &cmd_serve,  &cmd_status,
    &cmd_init,     &cmd_invite,  &cmd_join,      &cmd_peers,    &cmd_verify, &cmd_remove,
    &cmd_keeper,   &cmd_backup,  &cmd_restore,   &cmd_networks, &cmd_logits, &cmd_render,
    &cmd_tokenize, &cmd_demo,    &cmd_doctor,    &cmd_states,   &cmd_cache,  &cmd_manifest,
    &cmd_bench,    &cmd_service, &cmd_uninstall, &cmd_version,  &cmd_help,   NULL};

#define AT(f) offsetof(struct common_opts, f)
const struct opt common_opts_table[COMMON_OPTS_COUNT] = {
    {"json", NULL, "the result, or the error, as one JSON value on standard output", OPT_FLAG,
     AT(json), 0, 0, NULL},
    {"quiet", NULL, "no plan, no progress, only results and errors (also -q)", OPT_FLAG, AT(quiet),
     0, 0, NULL},
    {"help", NULL, "this text (also -h)", OPT_FLAG, AT(help), 0, 0, NULL},
};
#undef AT

const char *cli_command_word(const struct command *cmd)
{
    const char *blank = strchr(cmd->name, ' ');
    return blank ? blank + 1 : cmd->name;
}

const struct command *cli_command_find(const struct command *const *table, const char *word)
{
    for (size_t i = 0; table[i]; i++) {
        if (!strcmp(cli_command_word(table[i]), word)) {
            return table[i];
        }
    }
    return NULL;
}

static int unknown(struct cli *c, const struct command *const *table, const char *word)
{
    size_t n = 0;
    const char *names[40] = {NULL}, *of = c->cmd ? c->cmd->name : "";
    while (table[n] && n < sizeof names / sizeof *names) {
        names[n] = cli_command_word(table[n]);
        n++;
    }
    const char *near = opt_nearest(word, names, n, sizeof *names);
    const char *blank = *of ? " " : "";
    return near ? cli_usage(c, "unknown command \"%s%s%.100s\"; did you mean %s%s%s?", of, blank,
                            word, of, blank, near)
                : cli_usage(c, "unknown command \"%s%s%.100s\"", of, blank, word);
}

/* Usage may be so wrong that no option was read: whether errors are wanted as JSON is looked up. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (!strcmp(argv[i], "--json")) {
            return true;
        }
    }
    return false;
}

/* No address with a password in it goes further than this, into no message and no file. What
 * `chat --url` names is asked by HTTP alone, and kept nowhere. */
static int no_passwords(const struct cli *c, int argc, char **argv, struct err *e)
{
    int r = 0;
    for (int i = 0; i < argc && !r && c->cmd != &cmd_chat; i++) {
        const char *eq = !strncmp(argv[i], "--", 2) ? strchr(argv[i], '=') : NULL;
        const char *word = eq ? eq + 1 : argv[i];
        r = strpbrk(word, " \t\n") ? 0 : address_check(word, e); /* a text is none */
    }
    return r;
}

static int dispatch(struct cli *c, int argc, char **argv, void *opts)
{
    struct err e = {0};
    int n = 0;
    struct common_opts *common = opts;
    if (no_passwords(c, argc, argv, &e) ||
        opt_parse(c->cmd->groups, c->cmd->n_groups, opts, argc, argv, &n, &e)) {
        return cli_usage(c, "%s", e.msg);
    }
    c->json = common->json;
    c->quiet = common->quiet;
    if (common->help) {
        struct buf b;
        buf_init(&b, 1 << 20);
        int r = cli_help(&b, c->cmd) ? CLI_FAILED : cli_write(c, b.p, b.n);
        buf_free(&b);
        return r;
    }
    if (c->cmd->subs) {
        return cli_usage(c, "%s: say which of its commands comes first, such as \"shoal %s\"",
                         c->cmd->name, c->cmd->subs[0]->name);
    }
    if ((unsigned)n < c->cmd->min_args || (unsigned)n > c->cmd->max_args) {
        return (unsigned)n > c->cmd->max_args
                   ? cli_usage(c, "%s: unexpected argument \"%.100s\"%s%s", c->cmd->name,
                               argv[c->cmd->max_args], c->cmd->no_args ? ": " : "",
                               c->cmd->no_args ? c->cmd->no_args : "")
                   : cli_usage(c, "%s: an argument is missing: %s", c->cmd->name, c->cmd->args);
    }
    return c->cmd->run(c, opts, n, argv);
}

int main(int argc, char **argv)
{
    char exe[PATH_MAX];
    struct cli c = {.exe = exe};
    plat_exe(exe, sizeof exe);
    c.files = plat_raise_files(&c.files_before);
    cli_ignore_sigpipe();
    /* Avahi's dns_sd library says on standard error that it is not Avahi's own; threads that read
     * the environment are not there yet. */
    setenv("AVAHI_COMPAT_NOWARN", "1", 0);
    const char *name = argc > 1 ? argv[1] : "help";
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
        name = "help";
    } else if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        name = "version";
    }
    int rest = argc > 1 ? argc - 2 : 0;
    char **args = argv + (argc > 1 ? 2 : argc);
    c.json = wants_json(rest, args);
    c.cmd = cli_command_find(cli_commands, name);
    if (!c.cmd) {
        return unknown(&c, cli_commands, name);
    }
    if (c.cmd->subs && rest > 0 && args[0][0] != '-') {
        const struct command *sub = cli_command_find(c.cmd->subs, args[0]);
        if (!sub) {
            return unknown(&c, c.cmd->subs, args[0]);
        }
        c.cmd = sub;
        args++;
        rest--;
    }
    void *opts = calloc(1, c.cmd->size);
    if (!opts) {
        fprintf(stderr, "shoal: out of memory\n");
        return CLI_FAILED;
    }
    int status = dispatch(&c, rest, args, opts);
    free(opts);
    return status;
}
