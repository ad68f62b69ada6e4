/* SPDX-License-Identifier: MIT
 * cli.h: what the commands share: the table's row, the result and error output, human numbers.
 *
 * stdout holds results only; everything else goes to stderr. Exit status: 0 done, 1 failed at run
 * time, 2 wrong usage. */
#ifndef SHOAL_NODE_CLI_CLI_H
#define SHOAL_NODE_CLI_CLI_H

#include "node/cli/opt.h"
#include "proto/base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHOAL_VERSION "0.1.0"

enum cli_status { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli {
    const struct command *cmd;
    const char *exe;              /* absolute path of the program, "" when unknown */
    uint64_t files_before, files; /* soft limit of open files: as found, as raised */
    bool json, quiet;
    bool brief; /* no plan at start, but progress */
};

/* Options that every command has: the first member of every command's options. */
struct common_opts {
    bool json, quiet, help;
};
extern const struct opt common_opts_table[];
#define COMMON_OPTS_COUNT 3

struct command {
    const char *name;
    const char *args;    /* behind the options in the usage line, "" when none */
    const char *summary; /* one line for the list */
    const char *details; /* paragraphs for --help, before the options */
    const char *examples;
    const struct opt_group *groups;
    size_t n_groups;
    unsigned min_args, max_args;
    const char *no_args; /* what one too many was perhaps meant to be; may be NULL */
    size_t size;         /* of the struct of its options; begins with struct common_opts */
    /* NULL-terminated: the commands that its first argument chooses from, each with a name such as
     * "cache ls". Then `run` is not used, and the options are common_opts. */
    const struct command *const *subs;
    int (*run)(struct cli *c, const void *opts, int argc, char **argv);
};

extern const struct command cmd_run, cmd_logits, cmd_tokenize, cmd_render, cmd_doctor, cmd_bench,
    cmd_demo, cmd_version, cmd_help, cmd_init, cmd_join, cmd_remove, cmd_keeper, cmd_backup,
    cmd_restore, cmd_networks, cmd_peers, cmd_invite, cmd_up, cmd_status, cmd_verify, cmd_serve,
    cmd_states, cmd_chat, cmd_manifest, cmd_cache, cmd_setup, cmd_service, cmd_uninstall;
/* All commands, NULL-terminated (main.c). */
extern const struct command *const cli_commands[];
/* The word that chooses a command: its name, or the second word of it for one of `subs`. */
const char *cli_command_word(const struct command *cmd);
/* Of a NULL-terminated table; NULL: there is none of that name. */
const struct command *cli_command_find(const struct command *const *table, const char *word);
/* The help of one command, or of the program when cmd is NULL. */
int cli_help(struct buf *out, const struct command *cmd);

/* ---- output (out.c) ---- */

/* "shoal: sentence" to stderr and, with --json, {"error": {"code", "message"}} to stdout.
 * Returns CLI_FAILED. */
int cli_fail(struct cli *c, const struct err *e);
/* The same for wrong usage, with a line that says where help is. Returns CLI_USAGE. */
int cli_usage(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One JSON value and a newline to stdout; takes the reference (NULL: out of memory). */
int cli_json(struct cli *c, json_t *v);
/* Bytes to stdout, flushed. */
int cli_write(struct cli *c, const void *p, size_t n);
/* A line to stderr, "shoal: " in front; nothing with --quiet. */
void cli_note(const struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "12 B", "3.4 MB", "1.45 TB": powers of 1000. Returns out. */
#define CLI_NUM 32
const char *cli_bytes(uint64_t n, char out[CLI_NUM]);
/* "0.4 s", "12 s", "3 min 20 s", "2 h 5 min". */
const char *cli_duration(double s, char out[CLI_NUM]);

/* At start: a broken pipe is an error of the write, not a signal. */
void cli_ignore_sigpipe(void);
/* From here on SIGINT and SIGTERM only set a flag; a second signal kills. For work that looks at
 * the flag between its steps. Before it (opening, loading) the first signal kills, which loses
 * nothing: what is on disk is always whole. */
void cli_catch_interrupts(void);
bool cli_interrupted(void);

#endif
