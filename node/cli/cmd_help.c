/* SPDX-License-Identifier: MIT
 * cmd_help.c: `shoal help` and `shoal version`; help texts are made from the command table. */
#include "kernels/backend.h"
#include "node/cli/cli.h"

#include <curl/curl.h>
#include <mbedtls/version.h>
#include <microhttpd.h>
#include <protobuf-c/protobuf-c.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>
#include <xxhash.h>

static const struct opt_group groups[] = {
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

static int help_all(struct buf *out)
{
    int r =
        buf_adds(out, "Shoal runs the whole Kimi K3 on one machine: experts come over HTTP or from "
                      "the\nother machines of the household, stay on disk and in RAM, and give the "
                      "same\ntokens, bit for bit, everywhere.\n"
                      "\nUsage: shoal COMMAND [options]\n\nCommands:\n");
    for (size_t i = 0; !r && cli_commands[i]; i++) {
        r = buf_addf(out, "  %-10s  %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    }
    return r ? r
             : buf_adds(out, "\nWords:\n"
                             "  expert   one of a layer's many small networks; a token uses a few\n"
                             "  spine    all other weights: every token uses all of them\n"
                             "  origin   where a model's files are: an HTTP server, or a folder\n"
                             "  receipt  a digest of a run's arithmetic: equal when all bits were\n"
                             "  shoal    the machines that share experts; its keepers can invite\n"
                             "\nTry `shoal demo` first. `shoal COMMAND --help` explains each "
                             "command.\nExit status: 0 done, 1 failed at run time, 2 wrong "
                             "usage.\n");
}

static bool takes_size(const struct command *cmd)
{
    for (size_t g = 0; g < cmd->n_groups; g++) {
        for (size_t i = 0; i < cmd->groups[g].n; i++) {
            if (cmd->groups[g].opts[i].type == OPT_BYTES) {
                return true;
            }
        }
    }
    return false;
}

int cli_help(struct buf *out, const struct command *cmd)
{
    if (!cmd) {
        return help_all(out);
    }
    int r = buf_addf(out, "Usage: shoal %s [options]%s%s\n\n%s: %s.\n", cmd->name,
                     cmd->args[0] ? " " : "", cmd->args, cmd->name, cmd->summary);
    if (!r && cmd->details) {
        r = buf_addf(out, "\n%s\n", cmd->details);
    }
    for (size_t i = 0; !r && cmd->subs && cmd->subs[i]; i++) {
        r = buf_addf(out, "%s  %-8s  %s\n", i ? "" : "\nCommands:\n",
                     cli_command_word(cmd->subs[i]), cmd->subs[i]->summary);
    }
    r = r ? r : opt_help(cmd->groups, cmd->n_groups, out);
    if (!r && takes_size(cmd)) {
        r = buf_adds(
            out, "\nSIZE has a unit: 500M, 8G (powers of 1000), 8Gi (of 1024), 4096B (bytes).\n");
    }
    if (!r && cmd->examples) {
        r = buf_addf(out, "\nExamples:\n%s", cmd->examples);
    }
    return r;
}

static int run_help(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct command *about = argc ? cli_command_find(cli_commands, argv[0]) : NULL;
    if (argc && !about) {
        return cli_usage(c, "help: there is no command \"%.100s\"", argv[0]);
    }
    if (argc > 1) {
        about = about->subs ? cli_command_find(about->subs, argv[1]) : NULL;
    }
    if (argc > 1 && !about) {
        return cli_usage(c, "help: there is no command \"%.100s %.100s\"", argv[0], argv[1]);
    }
    struct buf b;
    buf_init(&b, 1 << 20);
    int r = cli_help(&b, about) ? CLI_FAILED : CLI_OK;
    if (r == CLI_OK) {
        r = c->json ? cli_json(c, json_pack("{s:s}", "help", b.p)) : cli_write(c, b.p, b.n);
    }
    buf_free(&b);
    return r;
}

const struct command cmd_help = {
    .name = "help",
    .args = "[COMMAND [ITS COMMAND]]",
    .summary = "show what there is, or explain one command",
    .groups = groups,
    .n_groups = 1,
    .max_args = 2,
    .size = sizeof(struct common_opts),
    .run = run_help,
};

static int run_version(struct cli *c, const void *opts, int argc, char **argv)
{
    const curl_version_info_data *cv = curl_version_info(CURLVERSION_NOW);
    char xxh[24], tls[24] = "";
    mbedtls_version_get_string(tls);
    unsigned x = XXH_versionNumber();
    snprintf(xxh, sizeof xxh, "%u.%u.%u", x / 10000, x / 100 % 100, x % 100);
    const char *const libs[][2] = {{"libcurl", cv->version},
                                   {"sqlite", sqlite3_libversion()},
                                   {"jansson", jansson_version_str()},
                                   {"libmicrohttpd", MHD_get_version()},
                                   {"libuv", uv_version_string()},
                                   {"mbedtls", tls},
                                   {"protobuf-c", protobuf_c_version()},
                                   {"xxhash", xxh}};
    json_t *l = json_object();
    struct buf b;
    buf_init(&b, 4096);
    int r = buf_addf(&b, "shoal %s, numerics version %d\n", SHOAL_VERSION, SHOAL_NUMERICS_VERSION);
    for (size_t i = 0; i < sizeof libs / sizeof *libs; i++) {
        r = r ? r : buf_addf(&b, "%-13s %s\n", libs[i][0], libs[i][1]);
        json_object_set_new(l, libs[i][0], json_string(libs[i][1]));
    }
    if (c->json) {
        r = cli_json(c, json_pack("{s:s, s:i, s:o}", "version", SHOAL_VERSION, "numerics",
                                  SHOAL_NUMERICS_VERSION, "libraries", l));
    } else {
        json_decref(l);
        r = r ? CLI_FAILED : cli_write(c, b.p, b.n);
    }
    buf_free(&b);
    return r;
}

const struct command cmd_version = {
    .name = "version",
    .args = "",
    .summary = "show the versions of the program and its libraries",
    .groups = groups,
    .n_groups = 1,
    .size = sizeof(struct common_opts),
    .run = run_version,
};
