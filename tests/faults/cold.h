/* SPDX-License-Identifier: MIT
 * cold.h: three nodes of one shoal (real programs) behind one line to the origin (line.h), joined
 * by cables that can be cut (cable.h); what the origin gave, object by object. */
#ifndef SHOAL_TESTS_FAULTS_COLD_H
#define SHOAL_TESTS_FAULTS_COLD_H

#include "tests/faults/cable.h"
#include "tests/faults/household.h"
#include "tests/faults/line.h"

enum { COLD_NODES = 3 };

struct cold {
    struct household h;
    struct kit_mesh second, third, solo; /* solo: of no shoal */
    const struct kit_mesh *home[COLD_NODES];
    int port[COLD_NODES];
    struct line *line;
    struct cable *cable; /* NULL: there are none on this system */
    struct store *source;
    char want[65];    /* the receipt */
    uint64_t objects; /* of `copy`, of objects */
    uint64_t copy;    /* bytes of the origin for one node that is alone */
    struct proc up[COLD_NODES], run[COLD_NODES];
};

void cold_open(struct cold *c);
void cold_close(struct cold *c);
/* The bytes and the receipt of one that is alone. */
void cold_alone(struct cold *c);

/* The first member is the one that is of no shoal, from the next cold_fresh on, or is not. */
void cold_solo(struct cold *c, bool solo);
/* Nobody has anything; all know where the others are. Counters are nothing, the line is free. */
void cold_fresh(struct cold *c);
/* `shoal up` for the first n; returns when all are ready. */
void cold_up(struct cold *c, int n);
/* `shoal run` for the first n. more: as of household_start; NULL: the prompt of `want`. */
void cold_run(struct cold *c, int n, bool json, const char *const *more);
/* The answers' receipts are right; not looked at: that of `but`, -1: all are. */
void cold_wait(struct cold *c, int n, int but);
void cold_down(struct cold *c);

struct cold_twice {
    uint64_t once;        /* bytes of objects that were given at all */
    unsigned chunks;      /* of objects, of which the origin gave some byte more than once */
    uint64_t bytes, most; /* beyond one copy: of objects; of one chunk at most */
    uint64_t both;        /* of `once`: given both to these members and to others */
    uint64_t small;       /* as bytes, of the model's small files and the shards' headers */
};
/* Bytes that were sent to this member and lie unread in the system's buffers; 0 where the system
 * does not say (macOS). */
uint64_t cold_unread(const struct cold *c, int member);
/* who: bits of members. */
struct cold_twice cold_count(struct cold *c, unsigned who);

#endif
