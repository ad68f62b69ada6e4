/* SPDX-License-Identifier: MIT
 * lease_sim.h: several fetch engines on virtual time, one household: links between all of them, one
 * origin, and what can happen to a node: killed, stopped, its cable pulled, its origin slow.
 * Counts what the origin sends, chunk by chunk. Digests are made up from object and chunk, so no
 * bytes are moved. Deterministic for a seed. */
#ifndef SHOAL_TESTS_LEASE_SIM_H
#define SHOAL_TESTS_LEASE_SIM_H

#include "peer/fetch_int.h"
#include "tests/peer/event_heap.h"

#define LS_NODES 8
#define LS_OBJECTS 64
#define LS_WAIT 1024

struct ls_event;
enum ls_fate { LS_FINE, LS_DEAD, LS_STOPPED, LS_CUT, LS_APART };

struct ls_wait { /* a Get by lease whose chunks have not all come here */
    uint32_t from, chunk0, n, object;
    uint64_t id, open;
    bool told; /* its digests were sent */
};

struct ls_range { /* of a node's origin requests */
    uint64_t id;
    uint32_t object, first, n;
    enum fetch_prio prio;
};

struct ls_node {
    struct fetch *f;
    uint8_t id[SHA256_SIZE];
    enum ls_fate fate;
    bool origin_up;
    double origin_rate; /* bytes/s of its line, shared by all that use it */
    uint32_t gen;       /* of its process: what was on the way to an older one is lost */
    bool up[LS_NODES];  /* connected, as it sees it */
    uint32_t slot[LS_NODES], link_gen[LS_NODES];
    bool held[LS_OBJECTS], whole[LS_OBJECTS]; /* whole: complete, not published yet */
    uint64_t came[LS_OBJECTS]; /* chunks of its own origin in the unfinished object */
    struct fetch_want *own[LS_OBJECTS], *others[LS_OBJECTS];
    bool wants[LS_OBJECTS];
    struct ls_wait wait[LS_WAIT];
    uint32_t n_wait;
    struct ls_range range[LS_WAIT];
    uint32_t n_range;
    bool origin_busy;
    uint64_t origin_no; /* of the transfer under way */
    uint64_t out_free, in_at[LS_NODES];
    uint64_t done_at[LS_OBJECTS];
    bool said_works, said_busy;
    struct ls_event *parked; /* what came while it stood still */
    uint32_t n_parked;
};

struct lease_sim {
    struct ls_node node[LS_NODES];
    uint32_t n_nodes, n_objects, chunks;
    uint64_t size, now, events;
    struct event_heap heap;
    struct ls_event *held; /* on the way to or from one that is cut off */
    uint32_t n_held;
    uint64_t unplugged; /* cuts and their ends so far */
    uint32_t rng;
    double link_rate;
    uint64_t latency;
    bool shared_line;              /* the nodes share the line to the origin */
    bool no_readback;              /* a node cannot read what it has of an unfinished object */
    uint32_t sent[LS_OBJECTS][64]; /* how often the origin gave that chunk, also in part, */
    uint32_t sent_to[LS_NODES][LS_OBJECTS][64]; /* and to whom */
    uint64_t origin_chunks;
    uint32_t most_waits;
    bool log;
};

void ls_init(struct lease_sim *s, uint32_t seed, uint32_t nodes, uint32_t objects, uint32_t chunks);
void ls_free(struct lease_sim *s);
uint32_t ls_rand(struct lease_sim *s, uint32_t below);
void ls_connect(struct lease_sim *s, uint32_t a, uint32_t b); /* both ways, after the latency */
void ls_connect_all(struct lease_sim *s);
void ls_want(struct lease_sim *s, uint32_t node, uint32_t object, enum fetch_prio prio);
/* Run until every node that lives has what it wants, or until `until`; false: time ran out. */
bool ls_run(struct lease_sim *s, uint64_t until);
void ls_until(struct lease_sim *s, uint64_t t);
void ls_origin(struct lease_sim *s, uint32_t node, bool up);
void ls_kill(struct lease_sim *s, uint32_t node);
void ls_stop(struct lease_sim *s, uint32_t node, bool stop);
void ls_cut(struct lease_sim *s, uint32_t node);         /* its cable: members and origin */
void ls_apart(struct lease_sim *s, uint32_t node);       /* from the members alone */
void ls_heal(struct lease_sim *s, uint32_t node);        /* the end of either */
uint32_t ls_first(struct lease_sim *s, uint32_t object); /* in the order */
uint64_t ls_twice(const struct lease_sim *s);            /* chunks beyond one copy */
/* Chunks that both this node and the others were given: what two that do not see each other cannot
 * but fetch twice. */
uint64_t ls_both(const struct lease_sim *s, uint32_t node);
uint64_t ls_missing(const struct lease_sim *s); /* chunks that never came */

#endif
