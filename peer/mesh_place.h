/* SPDX-License-Identifier: MIT
 * mesh_place.h: what members tell each other about homes (place.h): how much each keeps, who wants
 * to give something up, who keeps it, and the wish to complete the coverage. The mesh carries it;
 * what follows from it is decided by whoever uses this (node/daemon/homes.c).
 *
 * Threads: as mesh.h. Callbacks come on the LAN thread and must not wait; key and object arrays are
 * valid during the call. Members whose program does not know of homes are listed all the same, with
 * has_place false: what they hold counts. */
#ifndef SHOAL_PEER_MESH_PLACE_H
#define SHOAL_PEER_MESH_PLACE_H

#include "peer/mesh.h"

struct mesh_place {
    uint64_t budget, used; /* bytes of experts */
    bool may_background;
};

struct mesh_place_cb {
    void *ctx;
    /* Something that mesh_place_list tells of is different now: who is connected, what they hold or
     * can keep. Often: it only leaves a note. */
    void (*changed)(void *ctx);
    void (*warm)(void *ctx, const struct key_id *from, bool on);
    void (*offer)(void *ctx, const struct key_id *from, const struct object_key *k, size_t n);
    void (*kept)(void *ctx, const struct key_id *from, const struct object_key *k, size_t n);
};

/* From now on; NULL: nobody, and nobody is being called any more when it returns. Waits for the LAN
 * thread. */
void mesh_place_listen(struct mesh *m, const struct mesh_place_cb *cb);
/* What this node keeps: told to all, and to who connects later. */
void mesh_place_tell(struct mesh *m, const struct mesh_place *p);
/* To all that are connected; while it is on, also to who connects later. */
void mesh_place_warm(struct mesh *m, bool on);
/* n: 1..WIRE_OFFER_MAX. ERR_OFFLINE: it is not connected, or its program does not know of homes. */
int mesh_place_offer(struct mesh *m, const struct key_id *to, const struct object_key *k, size_t n);
int mesh_place_kept(struct mesh *m, const struct key_id *to, const struct object_key *k, size_t n);

struct mesh_place_peer {
    struct key_id id;
    char name[WIRE_NAME_MAX + 1];
    /* And shares this node's model; else a member of the roster, no more known. One that is banned
     * is connected, holds nothing and keeps nothing; one that does not give what it is asked for
     * counts as absent while it is not asked. */
    bool connected;
    bool has_place;
    bool complete;  /* it has said all that it holds */
    uint64_t since; /* clock_ns when this connection came up: another value is another one */
    struct mesh_place place;
    uint8_t *held; /* connected: bit i for object i of the mesh's extents, in their order */
};
/* All members but this node. *out is to be freed by mesh_place_list_free. Waits for the LAN thread.
 * ERR_NOMEM, ERR_OFFLINE (no shoal, or no model yet). */
int mesh_place_list(struct mesh *m, struct mesh_place_peer **out, size_t *n);
void mesh_place_list_free(struct mesh_place_peer *p, size_t n);

#endif
