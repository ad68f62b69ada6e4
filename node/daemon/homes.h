/* SPDX-License-Identifier: MIT
 * homes.h: what this node keeps for its shoal (peer/place.h): copies made in the background, ranks
 * by which the store evicts, last copies offered to others before they go, the coverage completed
 * from the origin. Private to node/daemon.
 *
 * Threads: one of its own that looks at everything anew when something has changed, and one that
 * collects what the store has brought. Callbacks of the mesh only leave notes. */
#ifndef SHOAL_NODE_DAEMON_HOMES_H
#define SHOAL_NODE_DAEMON_HOMES_H

#include "node/daemon/power.h"
#include "proto/base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct node;
struct homes; /* opaque */

/* After the mesh has the model. power (may be NULL: power_now): tests put in their own. */
int homes_open(struct node *n, void (*power)(struct power *out), struct homes **out, struct err *e);
/* Nothing reaches store or mesh any more. Before mesh_close. NULL is fine. */
void homes_stop(struct homes *h);
void homes_close(struct homes *h); /* after mesh_close; NULL is fine */

/* Complete the coverage of the shoal from the origin, here and at all members that are connected or
 * come; or no longer. */
void homes_warm(struct homes *h, bool on);
/* Is a request for this object one that warming makes (so: by this node, not by lease)? Any thread;
 * NULL: no. */
bool homes_own(struct homes *h, uint32_t id);
/* {"budget","used","possible","covered","planned","missing","warm","background","why","members":
 * [...],"layers":[...],"waiting","under_way","copied",...}: README.md has the fields. NULL: null */
json_t *homes_json(struct homes *h);

#endif
