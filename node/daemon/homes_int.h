/* SPDX-License-Identifier: MIT
 * homes_int.h: private to node/daemon/homes*.c.
 *
 *   homes.c         life, the round, what is wanted
 *   homes_view.c    who is there, what they hold; ranks
 *   homes_offer.c   giving up and taking over
 *   homes_file.c    members of earlier times
 *   homes_status.c  the report
 *
 * Objects have numbers here: the experts in the order of the mesh's extents, then the spine. */
#ifndef SHOAL_NODE_DAEMON_HOMES_INT_H
#define SHOAL_NODE_DAEMON_HOMES_INT_H

#include "node/daemon/homes.h"
#include "node/daemon/node_int.h"
#include "node/store/want.h"
#include "peer/mesh_place.h"
#include "peer/place.h"

#include <pthread.h>

#define HOMES_ROUND_MS 200         /* between two rounds, at least */
#define HOMES_IDLE_MS 2000         /* a round without a reason */
#define HOMES_AT_ONCE 4            /* copies under way */
#define HOMES_AFTER_MS 30000       /* since the start, before copies are made */
#define HOMES_COPIES 2             /* wanted of each expert while there is room */
#define HOMES_PLAN_MS 1000         /* between two placements, at least */
#define HOMES_SHARE 20             /* rounds and placements take at most one in so many seconds */
#define HOMES_FORGET_S (7 * 86400) /* an absent member counts for so long */
#define HOMES_SAVE_MS 60000
#define HOMES_KEEP_MS 600000    /* what we said Kept for is not given up */
#define HOMES_RELEASE_MS 300000 /* what another said Kept for may go */
#define HOMES_OFFER_MS 30000    /* until an offer is made again */
#define HOMES_BACK_MS \
    5000 /* until a copy is given back again; offers so near to each other cross */
#define HOMES_FAIL_MS 30000  /* until what failed is tried again */
#define HOMES_FULL_MS 2000   /* the same when the disk was full */
#define HOMES_STOCK 8        /* experts that may go at once: offers begin below it */
#define HOMES_SETTLE_MS 3000 /* after somebody came, said what it holds, or went */
#define HOMES_WAS_MS 20000   /* until all have heard of a budget that has changed */
#define HOMES_POWER_MS 10000 /* between two questions to the system about the battery */
#define HOMES_NOTES_MAX 4096 /* offers and answers that wait */

struct homes_member {
    struct key_id id;
    char name[WIRE_NAME_MAX + 1];
    bool connected;
    bool said;   /* connected, and has said what it holds */
    bool speaks; /* connected, and knows of homes */
    bool may_background;
    uint64_t budget, used, since; /* the last: of the connection, mesh_place.h */
    uint64_t told, was;           /* budget as it was told to the others, and before that */
    uint64_t was_until;           /* clock_ns: until then some may not know of `told` */
    int64_t seen;                 /* wall-clock second */
    uint8_t *held;                /* [n_all] bits, owned; never NULL */
};

struct homes_note {
    uint8_t kind; /* HOMES_* below */
    uint32_t o;
    struct key_id from;
};

struct homes {
    struct node *n;
    struct store *st;
    struct mesh *mesh;
    struct store_wants *wants;
    void (*power)(struct power *out);
    uint32_t n_experts, n_all;
    uint32_t *ids;            /* [n_all] of the store */
    struct place_object *obj; /* [n_all] */
    uint32_t *number;         /* by the store's id; UINT32_MAX: none */
    size_t n_ids;
    uint64_t expert; /* bytes of the largest */
    pthread_t thread, collector;
    bool has_thread, has_collector;

    /* ---- of the thread alone ---- */
    struct homes_member *m; /* [0] is this node */
    size_t n_m;
    struct place_member pm[PLACE_MEMBERS_MAX];
    struct place_scores scores, scores_were; /* with budgets as told; as they were told before */
    uint64_t was_until;                      /* the second count, too */
    uint8_t *ranks;                          /* [n_ids] */
    uint64_t *kept_until, *released_until, *offered_at, *not_before; /* [n_all], clock_ns */
    uint64_t *offered_to; /* [n_all]: the first bytes of whose id; a Kept of others says nothing */
    struct place_new *due;
    size_t n_due;
    uint64_t planned_at, plan_cost, saved_at, power_at, told_budget, told_used, others_at;
    uint64_t reported_at, looked_at, round_at, round_cost;
    uint64_t coming[PLACE_MEMBERS_MAX]; /* what warming would bring to each, by the last plan */
    size_t n_open;                      /* objects that nobody holds and somebody is to get */
    bool spine_too;                     /* there is room for all of it beside experts */
    bool metered;                       /* the network costs, by power.h or the user's word */
    bool told, may_background, told_background, shoal;
    char why[80];          /* why not */
    struct place_out sums; /* of the last placement; fresh is NULL */

    /* ---- with mu ---- */
    pthread_mutex_t mu;
    pthread_cond_t cond;
    bool stop, dirty, arrived, warm, warm_tell, save;
    uint8_t *flying;            /* [n_all]: 0, HOMES_* below */
    struct key_id *accepted_of; /* [n_all], for what flies as HOMES_ACCEPTED */
    struct homes_note *notes;
    size_t n_notes;
    _Atomic unsigned n_flying; /* changed with mu, looked at without */
    struct homes_counts {
        uint64_t copied, copied_bytes; /* made of what a peer holds */
        uint64_t warmed, warmed_bytes; /* from the origin, for the coverage */
        uint64_t accepted, offered, released, kept, failed, no_room;
    } c;
    json_t *report; /* made by the thread */
};
enum { HOMES_COPY = 1, HOMES_WARM, HOMES_ACCEPTED, HOMES_LANDED }; /* the last: not under way */
enum {
    HOMES_OFFERED,
    HOMES_KEPT,
    HOMES_ARRIVED,
    HOMES_TAKEN_OVER,
    HOMES_FAILED,
    HOMES_NO_ROOM
}; /* notes */

static inline bool homes_bit(const uint8_t *bits, uint32_t i)
{
    return bits[i >> 3] >> (i & 7) & 1;
}
static inline void homes_set(uint8_t *bits, uint32_t i, bool on)
{
    bits[i >> 3] = (uint8_t)(on ? bits[i >> 3] | 1u << (i & 7) : bits[i >> 3] & ~(1u << (i & 7)));
}

/* How many members hold o, as far as is known; absent ones and this node count. */
static inline unsigned homes_copies(const struct homes *h, uint32_t o)
{
    unsigned n = 0;
    for (size_t i = 0; i < h->n_m; i++) {
        n += homes_bit(h->m[i].held, o);
    }
    return n;
}

/* ---- homes.c ---- */
/* homes_open without its threads: who calls homes_step and homes_ended in their place (tests, on
 * virtual time) has to close it with homes_stop and homes_close all the same. */
int homes_make(struct node *n, void (*power)(struct power *out), struct homes **out, struct err *e);
/* With mu, which is released meanwhile: does what is due; false: nothing is. */
bool homes_step(struct homes *h);
/* Were all that are there known at that time? Who has just come may not have said what it holds. */
bool homes_settled(const struct homes *h, uint64_t at);
/* What was fetched has come to the disk, or not. */
void homes_ended(struct homes *h, uint32_t o, int code);
bool homes_warming(struct homes *h);
/* Fetch object o to the disk; false: too many are under way, or it is, or it failed just now. */
bool homes_want(struct homes *h, uint32_t o, int how, const struct key_id *of);

/* ---- homes_view.c ---- */
/* Everything anew: members, what they hold, what this node may keep; tells the others. */
int homes_look(struct homes *h, struct err *e);
/* Ranks to the store. */
void homes_rank(struct homes *h);
bool homes_room_elsewhere(const struct homes *h);
/* A connected member but this node that holds o: the one with the home copy; NULL: none. */
struct homes_member *homes_holder(struct homes *h, uint32_t o);
struct homes_member *homes_member(struct homes *h, const struct key_id *id);

/* ---- homes_offer.c ---- */
void homes_take_notes(struct homes *h); /* offers and answers that came */
void homes_offer(struct homes *h);      /* makes offers when little may go */

/* ---- homes_file.c ---- */
void homes_load(struct homes *h);
void homes_save(struct homes *h);
/* The bytes of such a file, for homes_load: are they one, of this model; one of its members, in
 * place. */
struct homes_seen {
    const uint8_t *id, *held;
    uint64_t budget;
    int64_t seen;
};
bool homes_file_check(const uint8_t *p, size_t n, const uint8_t root[SHA256_SIZE], uint32_t experts,
                      uint32_t all, uint32_t *members);
void homes_file_member(const uint8_t *p, uint32_t all, uint32_t i, struct homes_seen *out);

/* ---- homes_status.c ---- */
void homes_report(struct homes *h);

#endif
