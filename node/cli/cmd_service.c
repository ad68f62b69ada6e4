/* SPDX-License-Identifier: MIT
 * cmd_service.c: `shoal service`: a node that starts at login and again when it failed. */
#include "node/cli/home.h"
#include "node/cli/installed.h"
#include "node/cli/plat.h"
#include "peer/home.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct service_cmd {
    struct common_opts common;
    struct home_opts home;
    bool print;
    struct opt_choice kind;
};

/* In the order of enum unit_kind. */
static const char *const kinds[] = {"launchd", "systemd", NULL};
static const struct opt print_table[] = {
    {"print", NULL, "only print the file that would be written", OPT_FLAG,
     offsetof(struct service_cmd, print), 0, 0, NULL},
    {"for", "WHAT", "with --print: the file for launchd or for systemd; default: this system's",
     OPT_CHOICE, offsetof(struct service_cmd, kind), 0, 0, kinds},
};
static const struct opt_group install_groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, offsetof(struct service_cmd, home)},
    {"File", print_table, sizeof print_table / sizeof *print_table, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
static const struct opt_group groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, offsetof(struct service_cmd, home)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};

static enum unit_kind own_kind(void)
{
    return plat_has_launchd() ? UNIT_LAUNCHD : UNIT_SYSTEMD;
}

/* What follows `--` is for shoal up, and wrong options are better noticed now than in a log. */
static int check_args(int argc, char **argv, struct err *e)
{
    void *opts = calloc(1, cmd_up.size);
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    int n = 0, r = opts && copy ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    if (!r) {
        memcpy(copy, argv, (size_t)argc * sizeof *copy); /* opt_parse moves them */
        r = opt_parse(cmd_up.groups, cmd_up.n_groups, opts, argc, copy, &n, e);
    }
    if (!r && n) {
        r = err_set(e, ERR_ARG, "\"%.100s\" is no option of shoal up", copy[0]);
    }
    const struct common_opts *common = opts;
    for (int i = 0; !r && i < argc; i++) {
        if (!strcmp(argv[i], "--home") || !strncmp(argv[i], "--home=", 7)) {
            r = err_set(e, ERR_ARG, "--home belongs in front of the --");
        }
    }
    if (!r && (common->help || common->json)) {
        r = err_set(e, ERR_ARG, "--help and --json are not for a service");
    }
    free(copy);
    free(opts);
    return r;
}

static int is_free(struct cli_home *h, const struct installed *s, struct err *e)
{
    json_t *a = NULL;
    int r = installed_there(s) ? ERR_OFFLINE
                               : cli_home_ask(h, json_pack("{s:s}", "op", "status"), 0, &a, NULL);
    json_int_t pid = json_integer_value(json_object_get(a, "pid"));
    json_decref(a);
    return r ? 0
             : err_set(e, ERR_BUSY,
                       "a node runs on this home already (process %lld): end it first, and the "
                       "service starts it anew",
                       (long long)pid);
}

static void say_where(struct cli *c, const struct installed *s)
{
    if (s->kind == UNIT_LAUNCHD) {
        cli_note(c, "what it says is in %s", s->log.p);
        return;
    }
    cli_note(c, "what it says: journalctl --user -u %s", s->name.p);
    cli_note(c, "it runs while you are logged in; loginctl enable-linger makes it run always");
}

static int say(struct cli *c, const struct installed *s, bool there, bool runs)
{
    if (c->json) {
        return cli_json(c, json_pack("{s:b,s:s,s:s,s:s,s:s,s:b}", "installed", (int)there, "name",
                                     s->name.p, "file", s->path.p, "home", s->home.p, "manager",
                                     kinds[s->kind], "running", (int)runs));
    }
    if (!there) {
        printf("No service is installed for %s.\n", s->home.p);
        return cli_write(c, "", 0);
    }
    printf("%s (%s), %s; %s\n", s->name.p, kinds[s->kind], runs ? "running" : "not running",
           s->path.p);
    return cli_write(c, "", 0);
}

static int install(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct service_cmd *o = opts;
    struct cli_home h;
    struct installed s;
    struct unit u = {.n = 0};
    struct buf exe, text;
    struct err e = {0};
    if (o->kind.set && !o->print) {
        return cli_usage(c, "service install: --for is for --print");
    }
    if (check_args(argc, argv, &e)) {
        return cli_usage(c, "service install: %s", e.msg);
    }
    buf_init(&exe, UNIT_WORD);
    buf_init(&text, UNIT_TEXT);
    memset(&s, 0, sizeof s);
    int r = cli_home_open(&h, c, &o->home, HOME_PATH, &e);
    r = r || o->print ? r : home_folder(h.path, "", &e); /* launchd's log file lies there */
    r = r ? r
          : installed_open(&s, o->kind.set ? (enum unit_kind)o->kind.v : own_kind(), h.path, &e);
    r = r ? r : installed_program(c->exe, &exe, &e);
    if (!r) {
        u.name = s.name.p;
        u.log = s.log.p;
        const char *first[] = {exe.p, "up", "--home", s.home.p};
        for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
            u.args[u.n++] = first[i];
        }
        for (int i = 0; i < argc; i++) { /* max_args leaves room */
            u.args[u.n++] = argv[i];
        }
    }
    int status = CLI_OK;
    if (!r && o->print) {
        r = unit_text(s.kind, &u, &text, &e);
        status = r ? CLI_FAILED : cli_write(c, text.p, text.n);
    } else if (!r) {
        r = is_free(&h, &s, &e);
        r = r ? r : installed_put(&s, &u, &e);
        if (!r) {
            cli_note(c, "%s is installed and started (%s)", s.name.p, s.path.p);
            say_where(c, &s);
            status = c->json ? say(c, &s, true, true) : CLI_OK;
        }
    }
    installed_close(&s);
    cli_home_close(&h);
    buf_free(&exe);
    buf_free(&text);
    return r ? cli_fail(c, &e) : status;
}

enum act { SHOW, REMOVE };

static int act(struct cli *c, const struct service_cmd *o, enum act a)
{
    struct cli_home h;
    struct installed s;
    struct err e = {0};
    json_t *j = NULL;
    memset(&s, 0, sizeof s);
    int status = CLI_OK, r = cli_home_open(&h, c, &o->home, HOME_PATH, &e);
    r = r ? r : installed_open(&s, own_kind(), h.path, &e);
    if (!r && a == REMOVE) {
        r = installed_remove(&s, &e);
        if (!r) {
            cli_note(c, "%s is stopped and removed; the home stays (shoal uninstall takes it, too)",
                     s.name.p);
        }
    }
    if (!r && (a == SHOW || c->json)) {
        bool runs = !cli_home_ask(&h, json_pack("{s:s}", "op", "ping"), 0, &j, NULL);
        status = say(c, &s, installed_there(&s), a == SHOW && runs);
    }
    json_decref(j);
    installed_close(&s);
    cli_home_close(&h);
    return r ? cli_fail(c, &e) : status;
}

static int show(struct cli *c, const void *opts, int argc, char **argv)
{
    return act(c, opts, SHOW);
}

static int remove_it(struct cli *c, const void *opts, int argc, char **argv)
{
    return act(c, opts, REMOVE);
}

static const struct command cmd_install = {
    .name = "service install",
    .args = "[-- OPTIONS OF shoal up]",
    .summary = "start a node at login, and again when it failed",
    .details =
        "Writes a launch agent of this user (macOS) or a user unit of systemd (Linux) that runs\n"
        "`shoal up` on this home with the options behind `--`, and starts it. One that is there\n"
        "is replaced. What this shell's environment has (HF_TOKEN, HTTPS_PROXY, ...) the service\n"
        "does not see: the token's file and the options of shoal up hold for it.",
    .examples = "  shoal service install\n"
                "  shoal service install -- --model org/name --api 127.0.0.1:8080\n"
                "  shoal service install --print --for launchd\n",
    .groups = install_groups,
    .n_groups = sizeof install_groups / sizeof *install_groups,
    .max_args = UNIT_ARGS - 4,
    .size = sizeof(struct service_cmd),
    .run = install,
};
static const struct command cmd_show = {
    .name = "service show",
    .args = "",
    .summary = "is a service installed, and does it run",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct service_cmd),
    .run = show,
};
static const struct command cmd_remove_service = {
    .name = "service remove",
    .args = "",
    .summary = "stop the service and start it no more; keys and cache stay",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .size = sizeof(struct service_cmd),
    .run = remove_it,
};
static const struct command *const subs[] = {&cmd_install, &cmd_show, &cmd_remove_service, NULL};

const struct command cmd_service = {
    .name = "service",
    .args = "COMMAND",
    .summary = "start a node at login by the system's service manager",
    .groups = groups + 1,
    .n_groups = 1,
    .size = sizeof(struct common_opts),
    .subs = subs,
};
