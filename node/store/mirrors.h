/* SPDX-License-Identifier: MIT
 * mirrors.h: private to node/store: other addresses with the same shards (a lab's server, a NAS),
 * named by the user, which are asked before the origin. Each is an origin of its own without a
 * token and with one attempt; whatever it does not give comes from the next one, then from the
 * origin.
 *
 * What a mirror gives counts as this node's own download, because the user named it; so it is
 * looked at first: before anything of a file is taken, a random piece of what is wanted is compared
 * with the origin (unless that does not answer), and bytes that differ from what is on record as
 * own download or in the manifest put the mirror aside until the next start.
 *
 * Threads: as origin.h; begin, data and done of a part run on the thread of whoever gives it, one
 * at a time. No call back is made with a lock held. */
#ifndef SHOAL_STORE_MIRRORS_H
#define SHOAL_STORE_MIRRORS_H

#include "node/store/origin.h"

struct mirrors; /* opaque */

/* base: as the origin was opened with; o and what base points to live longer. Nothing is asked
 * yet. ERR_ARG: no http(s) URL, the origin's own address, or too many (STORE_MIRRORS_MAX). */
int mirrors_open(struct origin *o, const struct origin_opts *base, const char *const *urls,
                 size_t n, struct mirrors **out, struct err *e);
/* Ends what runs there; parts that wait go on to the origin, so this comes before origin_stop. NULL
 * is fine for all of these. */
void mirrors_stop(struct mirrors *ms);
void mirrors_free(struct mirrors *ms); /* after origin_stop */

/* As origin_submit, _raise, _cancel, _drop of o for a part of known size. When it ends, p->mirror
 * says whether bytes of it came from a mirror; p->at_mirror whether those of this moment do. */
void mirrors_submit(struct mirrors *ms, struct origin *o, struct origin_part *p);
void mirrors_raise(struct mirrors *ms, struct origin *o, struct origin_part *p,
                   enum store_prio prio);
bool mirrors_cancel(struct mirrors *ms, struct origin *o, struct origin_part *p);
bool mirrors_drop(struct mirrors *ms, struct origin *o, struct origin_part *p);

/* Something stronger denies what a mirror (part.mirror) gave: it is not asked any more. what: of
 * which object. */
void mirrors_wrong(struct mirrors *ms, unsigned mirror, const char *what);

size_t mirrors_get(struct mirrors *ms, struct store_mirror *out, size_t max);
bool mirrors_up(struct mirrors *ms); /* is one of them worth asking? */

#endif
