/* SPDX-License-Identifier: MIT
 * wanted.h: objects that this node fetches from the origin because another member waits for them
 * (leases, peer/mesh.h): the store is asked to bring them to the disk.
 *
 * Threads: any. */
#ifndef SHOAL_NODE_WANTED_H
#define SHOAL_NODE_WANTED_H

#include "node/store/share.h"
#include "peer/fetch.h"

struct wanted; /* opaque */

/* ERR_UNSUPPORTED: the store keeps nothing on disk, so nothing can be handed on. */
int wanted_open(struct store *st, struct wanted **out, struct err *e);
/* As mesh_model.wanted. w may be NULL (then it cannot). */
int wanted_ask(struct wanted *w, struct object_key k, enum store_prio prio);
/* Let go of what has ended; every second or so. */
void wanted_tick(struct wanted *w);
/* After the last wanted_ask, before the store is closed. NULL is fine. */
void wanted_close(struct wanted *w);

#endif
