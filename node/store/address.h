/* SPDX-License-Identifier: MIT
 * address.h: addresses with a user name and a password in them (http://anna:secret@host/). They
 * would be seen by ps, kept in the cache's files, shown in reports and named to peers, so none is
 * taken: .netrc holds them in their place (http_net.h). What an older program has kept is shown
 * without the password. */
#ifndef SHOAL_NODE_STORE_ADDRESS_H
#define SHOAL_NODE_STORE_ADDRESS_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>

bool address_has_user(const char *url);
/* ERR_ARG, with what to do instead and without the password, when it has one. */
int address_check(const char *url, struct err *e);
/* As it may be shown: "http://anna:***@host/". Cut to cap bytes; returns out. */
const char *address_shown(const char *url, char *out, size_t cap);

#endif
