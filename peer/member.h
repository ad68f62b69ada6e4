/* SPDX-License-Identifier: MIT
 * member.h: the membership of one home: which shoal it belongs to, the newest roster it has seen,
 * and on keepers the key that signs rosters. The disk is the truth: every change is made under the
 * home's lock on what the disk holds then, so the command line may change things while the node
 * runs (member_reload shows them to it). A struct member belongs to one thread. */
#ifndef SHOAL_PEER_MEMBER_H
#define SHOAL_PEER_MEMBER_H

#include "peer/identity.h"
#include "peer/roster.h"

#define MEMBER_ROSTER "shoal/roster" /* below the home */
#define MEMBER_ALSO 7                /* rosters kept beside the one that wins */

struct member {
    const char *home;          /* private copy */
    const struct identity *me; /* of the caller; outlives this */
    unsigned lock_ms; /* longest wait for the home's lock, then ERR_BUSY; 0: HOME_LOCK_MS */
    bool in_group;    /* false: nothing below is set */
    struct key_id group;
    /* What the rosters at hand say together, with the version of the one that wins. Version 0 and
     * empty when the file is gone. */
    struct roster roster;
    struct buf blob; /* the one that wins, as signed; empty with version 0 */
    /* Others that say more than it: signed by keepers that had not seen each other's
     * (member_fork.c). The best first; each is to be shown to peers beside `blob`. */
    struct buf also[MEMBER_ALSO];
    size_t also_n;
    struct crypto_key *signing_key; /* NULL unless this node is a keeper with the key at hand */
};

/* No shoal is no error. A damaged roster, pin or signing key is, and the sentence says what to do.
 * *out may be closed in any case. */
int member_open(const char *home, const struct identity *me, struct member *out, struct err *e);
void member_close(struct member *m);
/* See what other processes changed; *changed when the roster, the group or the key did. */
int member_reload(struct member *m, bool *changed, struct err *e);

/* Make a shoal with this node as its first member and keeper. ERR_BUSY when it is in one. */
int member_init(struct member *m, uint64_t now, struct err *e);
/* `which` by id, short form or prefix (id_find). Removing takes effect as the roster spreads. A
 * keeper that leaves keeps the signing key and could sign itself in again, so that is refused
 * unless `keeper_too`, and the sentence says that a new shoal is what shuts it out. Nor can a node
 * remove itself. */
int member_remove(struct member *m, const char *which, bool keeper_too, uint64_t now,
                  struct key_id *id, struct err *e);
/* Take a node in (the last step of a join; also for tests). */
int member_add(struct member *m, const uint8_t pub[CRYPTO_PUBLIC], uint64_t now, struct err *e);

enum member_taken {
    TAKEN_EQUAL,  /* nothing new */
    TAKEN_OLDER,  /* theirs is older and says nothing more: send ours */
    TAKEN_NEWER,  /* now ours: tell all peers, look at every connection's standing again */
    TAKEN_MERGED, /* as NEWER, and both count (a keeper signed them together): the sender needs it
                   */
};
/* A roster that a peer sent. Refused (and nothing changed) unless signed by this shoal's key. */
int member_take_roster(struct member *m, const void *blob, size_t n, enum member_taken *what,
                       struct err *e);
/* Does one of the rosters at hand (m->blob, m->also) list this node? */
bool member_listed(const struct member *m, const struct buf *blob);
/* What a node is to us; their_blob is what it showed at hello (NULL: nothing). The sentence in
 * `why` (may be NULL) is for the node when it is no member. */
enum roster_standing member_standing(const struct member *m, const struct key_id *id,
                                     const void *their_blob, size_t n, struct err *why);

/* For keeper.c and join.c. The caller holds the lock: bring *m up to the disk; change m->roster by
 * the caller; sign it with a higher version and write it. */
int member_lock(const struct member *m, int *lock, struct err *e);
int member_refresh(struct member *m, bool *changed, struct err *e);
int member_commit(struct member *m, struct err *e);
/* Write a new membership over none: the roster (signed blob), then the pin. */
int member_adopt(struct member *m, const struct key_id *group, const void *blob, size_t n,
                 struct err *e);
/* With the lock held and no pin: a signing key of another group that lies there (an init that was
 * killed left it) gets another name, so that it is neither used nor lost. */
int member_set_aside_key(struct member *m, const struct key_id *group, struct err *e);
int member_need_key(const struct member *m, struct err *e);

/* member_fork.c, for member.c; the lock is held. Read what is kept beside the roster, which is
 * loaded; take another roster of this shoal, opened; forget what is kept, on disk too. */
int member_fork_load(struct member *m, struct err *e);
int member_fork_take(struct member *m, const struct roster *theirs, const void *blob, size_t n,
                     enum member_taken *what, struct err *e);
int member_fork_clear(struct member *m, struct err *e);
void member_fork_forget(struct member *m); /* memory alone */

#endif
