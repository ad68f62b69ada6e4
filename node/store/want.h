/* SPDX-License-Identifier: MIT
 * want.h: objects brought as far as the disk for somebody who cannot block for each: another
 * process that reads the same cache folder. One thread collects what became of them.
 *
 * Threads: store_wants_next and _poll on one thread at a time, the others on any. */
#ifndef SHOAL_NODE_STORE_WANT_H
#define SHOAL_NODE_STORE_WANT_H

#include "node/store/store.h"

struct store_wants; /* opaque */

/* ERR_UNSUPPORTED: this store has no disk tier. */
int store_wants_open(struct store *st, struct store_wants **out, struct err *e);
/* `tag` is the caller's, different for all that are under way. Each is ended by store_wants_next
 * once, unless it is dropped. ERR_ARG: no such object; ERR_NOMEM. */
int store_wants_add(struct store_wants *w, uint64_t tag, uint32_t id, enum store_prio prio,
                    struct err *e);
void store_wants_raise(struct store_wants *w, uint64_t tag, enum store_prio prio);
/* Nobody waits for it any more. False: it has ended already, and store_wants_next says or has said
 * so. */
bool store_wants_drop(struct store_wants *w, uint64_t tag);
/* Blocks for the next one that has ended. *code 0: it is on disk. ERR_FULL: the disk cannot take
 * it. Otherwise as store_get, the sentence in *why. Returns ERR_CANCELLED after store_wants_stop.
 */
int store_wants_next(struct store_wants *w, uint64_t *tag, uint32_t *id, int *code,
                     struct err *why);
/* The same without waiting: ERR_BUSY when none has ended. */
int store_wants_poll(struct store_wants *w, uint64_t *tag, uint32_t *id, int *code,
                     struct err *why);
void store_wants_stop(struct store_wants *w);
/* After store_wants_stop, when nobody is in a call; before store_close. NULL is fine. */
void store_wants_close(struct store_wants *w);

#endif
