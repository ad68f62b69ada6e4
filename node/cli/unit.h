/* SPDX-License-Identifier: MIT
 * unit.h: what tells the system to keep a node running: the file that launchd or systemd reads,
 * where it lies, and the commands that make the system read it. Nothing here touches the system,
 * and both kinds are made on either, so that one may look at the other's.
 *
 * Sources: launchd.plist(5), launchctl(1); systemd.service(5), systemd.syntax(7). */
#ifndef SHOAL_NODE_CLI_UNIT_H
#define SHOAL_NODE_CLI_UNIT_H

#include "proto/base/buf.h"
#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum unit_kind { UNIT_LAUNCHD, UNIT_SYSTEMD };

#define UNIT_ARGS 64      /* most words of the command line */
#define UNIT_TEXT 65536   /* most bytes of a file */
#define UNIT_STEP_WORDS 6 /* of one command, with the NULL */
#define UNIT_STEPS 3
#define UNIT_WORD 4096

struct unit {
    const char *name;            /* as unit_name makes it */
    const char *args[UNIT_ARGS]; /* [0]: the program's absolute path */
    size_t n;
    const char *log; /* absolute path of what it says; systemd has a journal instead */
};

/* Append the service's name: one for the user's own home, and one for each other folder, which is
 * an absolute path, without two slashes or one at its end. */
int unit_name(enum unit_kind k, const char *home, bool standard, struct buf *out);
/* Append where the file lies. `user`: the user's home folder; `config`: XDG_CONFIG_HOME or NULL. */
int unit_path(enum unit_kind k, const char *user, const char *config, const char *name,
              struct buf *out);
/* Append the file. ERR_ARG: a word that such a file cannot hold, quoted in the sentence; ERR_LIMIT.
 */
int unit_text(enum unit_kind k, const struct unit *u, struct buf *out, struct err *e);

/* One command to be run. */
struct unit_step {
    char word[UNIT_STEP_WORDS][UNIT_WORD];
    size_t n;
    bool may_fail;  /* it ends what perhaps does not run */
    unsigned again; /* tries more, a second apart: launchd may still be ending another */
};
/* The commands that begin (path: the file, which is there) or end the service. Return how many. */
size_t unit_begin(enum unit_kind k, const char *name, const char *path, unsigned uid,
                  struct unit_step out[UNIT_STEPS]);
size_t unit_end(enum unit_kind k, const char *name, unsigned uid, struct unit_step out[UNIT_STEPS]);
/* The command that ends with status 0 when the manager has the service. */
void unit_ask(enum unit_kind k, const char *name, unsigned uid, struct unit_step *out);
/* What makes the system forget a file that was deleted; 0 where it needs not be told. */
size_t unit_forget(enum unit_kind k, struct unit_step out[UNIT_STEPS]);

#endif
