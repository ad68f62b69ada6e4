/* SPDX-License-Identifier: MIT
 * homes_rig.h: members of a shoal on virtual time that run the node's own homes*.c and place.c.
 * What lies around these is a model of a few lines: disks (what leaves first is the rule of
 * node/store/disk_room.c), connections whose messages take time, transfers. One world at a time,
 * one thread. */
#ifndef SHOAL_TESTS_HOMES_RIG_H
#define SHOAL_TESTS_HOMES_RIG_H

#include <stdbool.h>
#include <stdint.h>

struct rig_result {
    uint64_t evicted, copied, offered, kept, released; /* copies, messages */
    uint64_t gone;    /* last copies that left a disk while nobody had room */
    uint64_t unknown; /* the same while the room was on battery, not connected, or just made; or a
                         member with the other copy had left for good a moment before */
    uint64_t lost;    /* last copies that left while a connected member had had room for a while */
    uint64_t removed; /* last copies that left the shoal with a member, for good */
    uint64_t events;  /* members that came, went, restarted, were cut off, ran out of power */
    double warmed_s;  /* rig_exact: how long warming took */
    bool warm;        /* rig_exact: it did not end */
    double covered;   /* at the end, of min(what the disks of those present can hold, all) */
    uint64_t trace;   /* a hash of all that happened: the same for a seed each time */
};
/* One shoal of 2 to 6 members, that many seconds at random, then rest. `say`: a line for each loss
 * and event. */
void rig_run(uint64_t seed, unsigned seconds, bool say, struct rig_result *out);

/* Members whose disks together are as large as all objects: used, warmed (used meanwhile, too),
 * used again, with messages up to five seconds late and members that look at what came up to three
 * later. `covered` is that after warming, `lost` the last copies that went once everything was
 * there. */
void rig_exact(uint64_t seed, bool say, struct rig_result *out);

#endif
