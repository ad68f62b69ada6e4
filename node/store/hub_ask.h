/* SPDX-License-Identifier: MIT
 * hub_ask.h: private to node/store: the question to a hub which commit a revision is now. */
#ifndef SHOAL_STORE_HUB_ASK_H
#define SHOAL_STORE_HUB_ASK_H

#include "node/store/hub.h"

/* By the head of one small file's answer. Blocks: a minute at most when the hub is silent. token
 * and ca_file may be NULL. */
int hub_ask(const struct hub_name *n, const char *token, const char *ca_file,
            char commit[HUB_COMMIT_MAX], struct err *e);

#endif
