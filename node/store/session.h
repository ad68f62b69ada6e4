/* SPDX-License-Identifier: MIT
 * session.h: private to node/store: this process's own folder for unfinished files,
 * <model>/tmp/s-<pid>-<random>/, held by a lock that dies with the process. At open the folders of
 * dead processes are swept: unfinished objects in them are taken over, everything else goes.
 *
 * An unfinished object is <id>.part (its first bytes) with <id>.rec: per complete chunk one record
 * of its sums. Chunks are verified against their records when they are taken up again. */
#ifndef SHOAL_STORE_SESSION_H
#define SHOAL_STORE_SESSION_H

#include "node/store/chunk.h"
#include "proto/base/err.h"

struct session; /* opaque */

/* With the cache folder's lock held. `adopted` is called for each unfinished object taken over. */
int session_open(const char *model_dir, uint32_t n_objects,
                 void (*adopted)(void *ctx, uint32_t id, uint64_t bytes), void *ctx,
                 struct session **out, struct err *e);
/* The folder stays when unfinished objects are in it. */
void session_close(struct session *s);

/* Malloc'ed paths; NULL: no memory. */
char *session_part(const struct session *s, uint32_t id);
char *session_rec(const struct session *s, uint32_t id);
/* False: something is left of it that could not be removed. */
bool session_remove(const struct session *s, uint32_t id);

/* How many bytes this process has written to the cache on that day, in its folder, in the form of a
 * line of MODEL/written (kept.h), to which it is added with the folder. Not being able to keep it
 * only makes a number of a report too small. */
void session_count(const struct session *s, int32_t day, uint64_t bytes);

#define SESSION_RECORD 56u
void session_put_record(uint8_t out[SESSION_RECORD], uint32_t chunk, const struct chunk_sum *c);
/* False: the record is torn, damaged or not of this chunk. */
bool session_get_record(const uint8_t in[SESSION_RECORD], uint32_t chunk, struct chunk_sum *c);

#endif
