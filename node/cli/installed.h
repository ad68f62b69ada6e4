/* SPDX-License-Identifier: MIT
 * installed.h: the service of a home at this system's service manager: where its file is, putting
 * it there, and taking it away. One thread. */
#ifndef SHOAL_NODE_CLI_INSTALLED_H
#define SHOAL_NODE_CLI_INSTALLED_H

#include "node/cli/unit.h"

struct installed {
    enum unit_kind kind;
    struct buf home, name, path, log; /* the first absolute, as the service's arguments have it */
};
/* `home` as the user gave it; it need not exist. To be closed in any case. */
int installed_open(struct installed *s, enum unit_kind k, const char *home, struct err *e);
void installed_close(struct installed *s);
bool installed_there(const struct installed *s);
/* Does the manager have it? Not 0: it was not to be asked. */
int installed_loaded(const struct installed *s, bool *loaded);
/* Append this program's path as it stays valid when a package manager brings another version: the
 * link in PATH that leads to it, else `exe`. */
int installed_program(const char *exe, struct buf *out, struct err *e);
/* Write the file and begin the service; one that is there is replaced. When it cannot be begun the
 * file is taken away again, and the sentence has what the manager's program said. */
int installed_put(struct installed *s, const struct unit *u, struct err *e);
/* End the service and delete its file. ERR_NOTFOUND: there is none. */
int installed_remove(struct installed *s, struct err *e);

#endif
