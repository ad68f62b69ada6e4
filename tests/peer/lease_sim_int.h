/* SPDX-License-Identifier: MIT
 * lease_sim_int.h: what lease_sim.c (events, running, what happens to nodes) and lease_sim_node.c
 * (a node: its engine, storage, origin, what it answers) share. */
#ifndef SHOAL_TESTS_LEASE_SIM_INT_H
#define SHOAL_TESTS_LEASE_SIM_INT_H

#include "tests/peer/lease_sim.h"

enum kind {
    EV_GET,
    EV_CANCEL,
    EV_DIGESTS,
    EV_CHUNK,
    EV_REFUSE,
    EV_HAVE,
    EV_STATE,
    EV_TAKE,
    EV_LINK_UP,
    EV_LINK_DOWN,
    EV_MESSAGES, /* the ones above travel from node to node; those below happen at one */
    EV_ORIGIN,
    EV_PUBLISH,
    EV_TICK,
    EV_AGAIN
};

struct ls_event {
    uint64_t t, seq;
    enum kind kind;
    uint32_t to, from, gen, link;
    uint32_t object, chunk, n;
    uint64_t id, a, b;
    int prio;
    bool flag, last;
};

struct call { /* ctx of an engine: which one */
    struct lease_sim *s;
    uint32_t me;
};

/* At its time, or with `bulk` bytes over the link. */
void ls_push(struct lease_sim *s, struct ls_event e);
void ls_send(struct lease_sim *s, uint32_t from, uint32_t to, struct ls_event e, uint64_t bulk);

void ls_hold(struct lease_sim *s, struct ls_event e); /* until ls_heal */

struct object_key ls_key(uint32_t object);
void ls_handle(struct lease_sim *s, struct ls_event *e);
void ls_state(struct lease_sim *s, uint32_t me, uint32_t to); /* OriginState */
void ls_origin_next(struct lease_sim *s, uint32_t me);
void ls_open_node(struct lease_sim *s, uint32_t me);

#endif
