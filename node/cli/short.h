/* SPDX-License-Identifier: MIT
 * short.h: a thread that looks each second whether the machine's memory is short, where the system
 * says so, and lets experts give way (node/store/pressure.h). */
#ifndef SHOAL_NODE_CLI_SHORT_H
#define SHOAL_NODE_CLI_SHORT_H

#include "node/store/store.h"

struct shortage; /* opaque */

/* plan: the RAM budget where nothing is short. *out NULL: this system does not say, or there is no
 * thread to be had; neither is an error. */
void shortage_watch(struct store *st, uint64_t plan, struct shortage **out);
void shortage_end(struct shortage *w); /* before the store closes; NULL is fine */

#endif
