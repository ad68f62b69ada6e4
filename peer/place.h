/* SPDX-License-Identifier: MIT
 * place.h: homes: which member of a shoal is to keep which object of a model. A pure function of
 * who the members are, what they can keep and what they hold now; the same on every node that knows
 * the same of these.
 *
 * Rules.
 *  - An object's copies are ordered: those of present members before those of absent ones, then the
 *    lower cost (order.h, weight: the budget) first. The first is the home copy, level 1, then
 *    level 2, ... A node compares only its own place in this order with others, so two nodes with
 *    different views never both take their copy for the one that may go.
 *  - What is held stays where it is: so nothing moves that need not move.
 *  - An object that nobody holds gets a home: the best-scored present member with free room, else
 *    the best-scored one whose room is taken by copies of level 2 and above, which then give way.
 *    So the shoal covers min(all budgets, the model), but for less than an object a member.
 *  - Then second copies (up to `copies`), fewest first, the best-scored present member with free
 *    room; these make nothing give way.
 *  - A member that holds more than its budget keeps level-1 copies up to it; the others are placed
 *    as if nobody held them.
 * Objects take their turn in the order of their sizes, largest first, then of a hash, so that room
 * that ends leaves no hole in some layers alone.
 *
 * Why what is held counts, and not budgets alone: with budgets alone (bounded loads on a ring or
 * rendezvous) one change moves a chain of objects once the room is tight, and tight it is always,
 * because spare room is filled with copies.
 *
 * Threads: pure; results belong to the caller. */
#ifndef SHOAL_PEER_PLACE_H
#define SHOAL_PEER_PLACE_H

#include "peer/order.h"

#define PLACE_MEMBERS_MAX 256
#define PLACE_OBJECTS_MAX (1u << 24)
#define PLACE_WEIGHT_UNIT 65536 /* bytes of a budget that are one unit of order_cost's weight */

struct place_member {
    uint8_t id[SHA256_SIZE];
    uint64_t budget;     /* bytes that it can keep */
    bool present;        /* else: remembered; it keeps what it holds and gets nothing new */
    const uint8_t *held; /* bit i % 8 of byte i / 8: it holds object i; NULL: nothing */
};

struct place_object {
    struct object_key key;
    uint64_t size;
};

struct place_in {
    const uint8_t *root; /* SHA256_SIZE bytes */
    const struct place_member *members;
    size_t n_members; /* at most PLACE_MEMBERS_MAX, ids differ */
    const struct place_object *objects;
    size_t n_objects; /* at most PLACE_OBJECTS_MAX */
    unsigned copies;  /* how many of each object are wanted while room is left, at least 1 */
};

/* A copy that is to be made. */
struct place_new {
    uint32_t object;
    uint16_t member;
    uint8_t level; /* 1: nobody keeps it; the object has level - 1 copies without this one */
};

struct place_out {
    struct place_new *fresh; /* in the order in which they were given: level 1 first */
    size_t n_fresh;
    /* Bytes: what the members can keep together; of the model; possible = min of both; of objects
     * that somebody holds; of objects that somebody keeps within its budget, or is to get. */
    uint64_t budgets, model, possible, covered, planned;
};

/* ERR_NOMEM, ERR_ARG (more members or objects than the maximum). *out is to be freed by place_free
 * also on failure. */
int place_compute(const struct place_in *in, struct place_out *out, struct err *e);
void place_free(struct place_out *out);

/* ---- one object, for eviction ---- */

/* What a member's copy of an object is worth to the shoal; lower goes first. */
enum place_rank {
    PLACE_SPARE = 0,  /* another present member has the home copy */
    PLACE_HOME = 1,   /* this is the home copy, and another present member has one, too */
    PLACE_ABSENT = 2, /* all others that hold it are absent */
    PLACE_LAST = 3,   /* nobody else holds it */
};

/* Seeds and weights of the members, made once for many questions. */
struct place_scores {
    struct order_seed seed[PLACE_MEMBERS_MAX];
    uint64_t weight[PLACE_MEMBERS_MAX];
};
void place_scores(struct place_scores *s, const uint8_t root[SHA256_SIZE],
                  const struct place_member *members, size_t n);
/* The rank of member `me`'s copy of object `o`, or of the copy that it would have if it held one.
 * `me` counts as present. */
enum place_rank place_rank_of(const struct place_scores *s, const struct place_member *members,
                              size_t n, size_t me, uint32_t o, struct object_key key);

static inline bool place_holds(const struct place_member *m, uint32_t o)
{
    return m->held && (m->held[o >> 3] >> (o & 7) & 1);
}

#endif
