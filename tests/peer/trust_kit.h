/* SPDX-License-Identifier: MIT
 * trust_kit.h: what the tests of membership share: nodes with a home, a set of keys, a roster of
 * some of them. A step that must not fail and does fails the test. */
#ifndef SHOAL_TESTS_PEER_TRUST_KIT_H
#define SHOAL_TESTS_PEER_TRUST_KIT_H

#include "peer/home_util.h"

#include "peer/home.h"
#include "peer/join.h"
#include "peer/keeper.h"

struct node {
    char *home; /* not owned */
    struct identity me;
    struct member m;
};

/* Makes the home where there is none. node_close leaves it on the disk. */
void node_open(struct node *n, char *home);
void node_close(struct node *n);
/* Makes n a member by hand, without an invite. */
void enlist(struct node *keeper, struct node *n);
/* The short form of the node's id, valid until the next call. */
const char *short_of(const struct node *n);
/* One attempt of `j` to join at `k` with this token; the answer's result. */
enum join_result attempt(struct node *k, struct node *j, const struct token *t, uint64_t now);

/* Keys that have no home, made and freed by the group functions below; keys[0] is a group's. */
#define KEYS 12
extern struct crypto_key *keys[KEYS];
extern uint8_t pubs[KEYS][CRYPTO_PUBLIC];
extern struct key_id ids[KEYS];
int make_keys(void **s);
int free_keys(void **s);

/* Version 7: nodes 1 (a keeper) to 4, joined at 1764480000 + their number, and 5, removed. */
struct roster sample(void);
/* r, signed with keys[0]. Freed by the caller. */
struct buf signed_blob(const struct roster *r);

#endif
