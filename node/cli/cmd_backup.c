/* SPDX-License-Identifier: MIT
 * cmd_backup.c: `shoal backup` and `shoal restore`: the shoal's signing key under a passphrase. */
#include "node/cli/home.h"
#include "node/cli/plat.h"
#include "peer/keeper.h"
#include "proto/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct backup_opts {
    struct common_opts common;
    struct home_opts home;
    const char *file, *pass_file;
};

#define AT(f) offsetof(struct backup_opts, f)
#define PASS_OPT                                                                               \
    {                                                                                          \
        "passphrase-file", "F",                                                                \
            "take the passphrase from the first line of this file; default: asked for on the " \
            "terminal, where it is not shown",                                                 \
            OPT_TEXT, AT(pass_file), 0, 0, NULL                                                \
    }
static const struct opt backup_table[] = {
    {"file", "F", "write the backup to this new file; default: standard output", OPT_TEXT, AT(file),
     0, 0, NULL},
    PASS_OPT,
};
static const struct opt restore_table[] = {PASS_OPT};
static const struct opt_group backup_groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, AT(home)},
    {"Backup", backup_table, sizeof backup_table / sizeof *backup_table, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
static const struct opt_group restore_groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, AT(home)},
    {"Backup", restore_table, sizeof restore_table / sizeof *restore_table, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

/* ---- the passphrase ---- */

struct pass {
    char p[BACKUP_PASS_MAX + 2];
    size_t n;
};

static int pass_from_file(const char *path, struct pass *out, struct err *e)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    int r = file_read_all(path, &b, e);
    if (!r) {
        const char *end = b.n ? memchr(b.p, '\n', b.n) : NULL;
        size_t n = end ? (size_t)(end - b.p) : b.n;
        n -= n && b.p[n - 1] == '\r';
        if (n > BACKUP_PASS_MAX) {
            r = err_set(e, ERR_LIMIT, "the passphrase in %s is longer than %d bytes", path,
                        BACKUP_PASS_MAX);
        } else {
            memcpy(out->p, b.p ? b.p : "", n);
            out->n = n;
        }
    }
    if (b.p) {
        crypto_wipe(b.p, b.n);
    }
    buf_free(&b);
    return r;
}

static int ask_pass(const char *file, bool twice, struct pass *out, struct err *e)
{
    struct pass again;
    out->n = 0;
    if (file) {
        return pass_from_file(file, out, e);
    }
    int r = plat_ask_secret("Passphrase of the backup: ", out->p, sizeof out->p, &out->n, e);
    if (!r && twice && out->n < BACKUP_PASS_MIN) {
        return err_set(e, ERR_ARG, "a passphrase has at least %d bytes; several words are best",
                       BACKUP_PASS_MIN);
    }
    if (!r && twice) {
        r = plat_ask_secret("The same once more: ", again.p, sizeof again.p, &again.n, e);
        if (!r && (again.n != out->n || memcmp(again.p, out->p, out->n) != 0)) {
            r = err_set(e, ERR_ARG, "the two passphrases are not the same: nothing was written");
        }
        crypto_wipe(&again, sizeof again);
    }
    if (r == ERR_NOTFOUND) {
        err_prefix(e, "the passphrase cannot be asked for; give --passphrase-file");
    }
    return r;
}

/* ---- backup ---- */

/* A new file of 0600, never over another. */
static int write_new(const char *path, const struct buf *b, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return errno == EEXIST ? err_set(e, ERR_BUSY, "%s is there already: name a new file", path)
                               : err_sys(e, errno, "cannot make %s", path);
    }
    int r = file_pwrite(fd, path, b->p, b->n, 0, e);
    r = r ? r : file_sync(fd, path, e);
    close(fd);
    r = r ? r : file_sync_dir_of(path, e);
    if (r) {
        unlink(path);
    }
    return r;
}

static int make_backup(struct cli_home *h, const struct backup_opts *o, struct buf *out,
                       struct err *e)
{
    struct pass pass;
    int r = member_need_key(&h->m, e);
    if (!r && o->file && !access(o->file, F_OK)) {
        r = err_set(e, ERR_BUSY, "%s is there already: name a new file", o->file);
    }
    if (r) {
        return r;
    }
    r = ask_pass(o->pass_file, true, &pass, e);
    r = r ? r : keeper_backup(&h->m, pass.p, pass.n, 0, out, e);
    crypto_wipe(&pass, sizeof pass);
    return r || !o->file ? r : write_new(o->file, out, e);
}

static int run_backup(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct backup_opts *o = opts;
    struct cli_home h;
    struct buf text;
    struct err e = {0};
    int status = CLI_OK;
    buf_init(&text, BACKUP_TEXT_MAX);
    int r = cli_home_open(&h, c, &o->home, HOME_SHOAL, &e);
    r = r ? r : make_backup(&h, o, &text, &e);
    if (r) {
        status = cli_fail(c, &e);
    } else if (c->json) {
        char group[ID_TEXT];
        id_text(&h.m.group, group);
        status = cli_json(c, o->file ? json_pack("{s:s, s:s}", "group", group, "file", o->file)
                                     : json_pack("{s:s, s:s}", "group", group, "backup", text.p));
    } else if (o->file) {
        printf("%s holds the signing key of the shoal under the passphrase. Keep it on another "
               "disk or on paper;\nshoal restore %s brings the key back.\n",
               o->file, o->file);
        status = cli_write(c, "", 0);
    } else {
        status = cli_write(c, text.p, text.n);
    }
    buf_free(&text);
    cli_home_close(&h);
    return status;
}

const struct command cmd_backup = {
    .name = "backup",
    .args = "",
    .summary = "write the shoal's signing key, under a passphrase (on a keeper)",
    .details =
        "The signing key is what makes members. The backup is a few lines of text, encrypted with\n"
        "the passphrase, small enough for paper; without the passphrase it is worth nothing, to\n"
        "you neither. A passphrase has 8 bytes at least; several words are best.",
    .examples = "  shoal backup --file shoal-key.txt\n",
    .groups = backup_groups,
    .n_groups = sizeof backup_groups / sizeof *backup_groups,
    .size = sizeof(struct backup_opts),
    .run = run_backup,
};

/* ---- restore ---- */

static int restore(struct cli_home *h, const struct backup_opts *o, const char *file, struct err *e)
{
    struct pass pass;
    struct buf text;
    buf_init(&text, 1 << 16);
    int r = !strcmp(file, "-") ? plat_read_stdin(&text, e) : file_read_all(file, &text, e);
    r = r ? r : ask_pass(o->pass_file, false, &pass, e);
    if (!r) {
        r = cli_home_open(h, h->c, &o->home, HOME_MAKE, e);
        r = r ? r
              : keeper_restore(&h->m, text.p ? text.p : "", text.n, pass.p, pass.n,
                               (uint64_t)time(NULL), e);
        crypto_wipe(&pass, sizeof pass);
    }
    if (!r) {
        cli_home_look(h);
    }
    buf_free(&text);
    return r;
}

static int run_restore(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct backup_opts *o = opts;
    struct cli_home h = {.c = c};
    struct err e = {0};
    int status = CLI_OK;
    if (restore(&h, o, argv[0], &e)) {
        status = cli_fail(c, &e);
    } else if (c->json) {
        status = cli_json(c, cli_home_json(&h));
    } else {
        char id[ID_SHORT], group[ID_SHORT];
        id_short(&h.me.id, id);
        id_short(&h.m.group, group);
        printf("Node %s is a keeper of the shoal %s: it can invite and remove.\n", id, group);
        if (h.m.roster.members_n == 1) {
            const char *flag = cli_home_flag(&h);
            printf("It knows none of the other members, nor they it. To bring the lists together "
                   "run\n  shoal up%s\n  shoal invite%s\nhere, and shoal join with that token on "
                   "one machine that is a member.\n",
                   flag, flag);
        }
        status = cli_write(c, "", 0);
    }
    cli_home_close(&h);
    return status;
}

const struct command cmd_restore = {
    .name = "restore",
    .args = "FILE",
    .summary = "bring the shoal's signing key back from a backup",
    .details =
        "FILE is what `shoal backup` wrote; - is standard input. A home in no shoal becomes a\n"
        "keeper of that shoal, a member becomes a keeper (again). The key of the node is not part\n"
        "of the backup: a new machine gets a new one.",
    .examples = "  shoal restore shoal-key.txt\n",
    .groups = restore_groups,
    .n_groups = sizeof restore_groups / sizeof *restore_groups,
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(struct backup_opts),
    .run = run_restore,
};
