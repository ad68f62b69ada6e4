/* SPDX-License-Identifier: MIT
 * invite.h: the invites this keeper has given out, one file each (home.h). A file holds what is
 * needed to check a proof, not the secret itself; every use is burnt on disk before it counts.
 *
 * An invite ends when its uses are spent, or at the latest when the wall clock passes its end. A
 * clock that was set back does not lengthen it beyond what was found expired once.
 * All functions except invite_proof take the home's lock unless they say that the caller holds it.
 */
#ifndef SHOAL_PEER_INVITE_H
#define SHOAL_PEER_INVITE_H

#include "peer/roster.h"
#include "peer/token.h"

#define INVITE_ID 16
#define INVITE_USES_MAX 64
#define INVITE_OPEN_MAX 64
#define INVITE_SECONDS_MAX (30u * 24 * 3600)
#define INVITE_SECONDS_DEFAULT (24u * 3600)

struct invite {
    uint8_t id[INVITE_ID];
    uint8_t key[SHA256_SIZE]; /* HKDF of the secret; proofs are made with it */
    uint64_t made, expires;   /* seconds since 1970 */
    uint32_t uses, used;
    struct key_id by[INVITE_USES_MAX]; /* who spent the used ones */
};

/* The id and key that both ends derive from a token. */
int invite_keys(const struct token *t, uint8_t id[INVITE_ID], uint8_t key[SHA256_SIZE],
                struct err *e);
/* Write a new invite to disk (synced) and give its token, still without addresses. `uses` 1 to
 * INVITE_USES_MAX, `seconds` 1 to INVITE_SECONDS_MAX. Old spent and expired ones are deleted. */
int invite_make(const char *home, const struct key_id *group, uint32_t uses, uint32_t seconds,
                uint64_t now, struct token *out, struct err *e);
/* All there are, in no order; *list is freed by the caller. Damaged files are counted, not fatal.
 */
int invite_list(const char *home, struct invite **list, size_t *n, size_t *damaged, struct err *e);
/* *open: is there one that has not expired by `now`? Waits at most lock_ms for the home's lock
 * (ERR_BUSY). */
int invite_any_open(const char *home, uint64_t now, unsigned lock_ms, bool *open, struct err *e);
/* Delete one, by the first 4 or more characters of its id in base 32. */
int invite_revoke(const char *home, const char *text, struct err *e);

/* The caller holds the lock. ERR_NOTFOUND when there is none of that id. */
int invite_load(const char *home, const uint8_t id[INVITE_ID], struct invite *out, struct err *e);
enum invite_burn {
    INVITE_BURNT,   /* this use is this node's, on disk */
    INVITE_EXPIRED, /* and spent on disk, so that no clock brings it back */
    INVITE_USED_UP,
};
/* The caller holds the lock and has checked the proof. A node that burnt a use before has it still
 * (it lost the answer, or this node died before the roster was written). */
int invite_burn(const char *home, struct invite *v, const struct key_id *node, uint64_t now,
                enum invite_burn *what, struct err *e);

#endif
