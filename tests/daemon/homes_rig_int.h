/* SPDX-License-Identifier: MIT
 * homes_rig_int.h: private to homes_rig.c (what happens) and homes_rig_around.c (store, mesh, model
 * and clock, as homes*.c sees them). */
#ifndef SHOAL_TESTS_HOMES_RIG_INT_H
#define SHOAL_TESTS_HOMES_RIG_INT_H

#include "tests/daemon/homes_rig.h"

#include "node/daemon/homes_int.h"
#include "tests/peer/event_heap.h"
#include "tests/peer/rng.h"

#define MEMBERS 12 /* ever */
#define UP_MAX 6   /* of the shoal at a time */
#define LAYERS 3
#define EXPERTS 16
#define OBJECTS (LAYERS * EXPERTS)
#define ONE 1000000ull
#define S_NS 1000000000ull
#define GRACE_S 6 /* room and connection must have lasted so long that others act on it */

struct store {
    int i;
};
struct mesh {
    int i;
};
struct store_wants {
    int i;
};
struct model {
    struct model_config c;
    struct model_object o;
    uint8_t root[SHA256_SIZE];
};

struct seen { /* what one member was told by another; link: it believes to be connected */
    bool link, complete, has_place;
    bool held[OBJECTS];
    struct mesh_place place;
    unsigned run; /* of the connection */
    uint64_t since, last_at;
};

struct member {
    struct key_id id;
    bool in, up, battery;
    struct node *node;
    struct homes *h;
    unsigned run;
    struct store st;
    struct mesh mesh;
    struct store_wants wants;
    struct mesh_place_cb cb;
    bool listening, has_told;
    struct mesh_place told;
    bool held[OBJECTS], pinned[OBJECTS], ranked;
    uint64_t used_at[OBJECTS], budget, room_since; /* 0: there is no room */
    uint8_t rank[OBJECTS], most;
    struct buf file;
};

enum kind { TICK, ARRIVE, HAVE_ALL, HAVE, PLACE, WARM, OFFER, KEPT, NOTICE, JOINED, BACK };
struct event {
    uint64_t t, seq;
    uint8_t kind, from, to;
    bool on, want;
    unsigned run;
    uint32_t o;
    struct mesh_place place;
    bool held[OBJECTS];
};

struct world {
    struct member m[MEMBERS];
    struct seen seen[MEMBERS][MEMBERS]; /* [i][j]: of j by i */
    struct event_heap q;
    struct rng r;
    struct model model;
    uint64_t now, tick, left_at[OBJECTS]; /* when one that held it left for good */
    int acting;
    unsigned n, runs, storm; /* the last: how many of a hundred events are no demand */
    unsigned late_ms;        /* of one message in twenty, at most */
    unsigned tick_ms;        /* at most, between two steps of a member */
    bool origin, say, calm;
    struct rig_result res;
};
extern struct world w;

void rig_note(const char *what, int a, int b);
uint64_t rig_ms(unsigned from, unsigned to); /* at random, in ns */
uint64_t rig_used(int i);
void rig_look_at_room(int i);
/* A message to who is connected; it may be late, and this one lost. */
void rig_send_to(int from, int to, struct event *e, bool may_be_lost);
void rig_send_place(int i, int j);
/* Object o has come to member i; lease: who is first downloads it for all. 0: it is on its disk. */
int rig_arrive(int i, uint32_t o, bool lease);

#endif
