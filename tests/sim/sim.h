/* SPDX-License-Identifier: MIT
 * sim.h: a shoal in virtual time: nodes with disks and links, one home internet line, and the
 * project's own code for who fetches (order.h), who keeps (place.h) and what is evicted
 * (place_rank_of). Objects are whole experts; a link carries one object after the other in each
 * direction, a decode's objects before background ones.
 *
 * Units: bytes, seconds, bytes a second. One thread; a struct sim belongs to its caller. */
#ifndef SHOAL_TESTS_SIM_H
#define SHOAL_TESTS_SIM_H

#include "node/cli/plot.h"
#include "peer/place.h"

#include <stdio.h>

#define SIM_NODES_MAX 65

struct sim_opts {
    unsigned nodes;
    uint32_t layers, experts, top; /* of a layer; chosen for each token */
    uint64_t size;                 /* of one expert */
    double link, internet;         /* of each node and direction; of the household */
    double compute;                /* seconds of a token's arithmetic */
    double budget_min, budget_max; /* of disks, log-uniform between */
    double zipf;                   /* exponent of how unevenly experts are used */
    uint64_t seed;
    unsigned copies; /* as place_in.copies */
};
/* K3: 92 x 896 experts of 17,547,264 bytes, 16 for each token and layer. */
void sim_k3(struct sim_opts *o);

struct sim_totals {
    double stall;    /* seconds that decodes waited for the network */
    uint64_t tokens; /* of all nodes */
    uint64_t origin_bytes, lan_bytes;
    uint64_t evicted, lost; /* copies; last copies, while another node had room */
    double busiest;         /* largest share of the time that one direction of a link was busy */
};

struct sim_curve {
    double *t, *y;
    size_t n, cap;
};

struct sim; /* opaque */
struct sim *sim_open(const struct sim_opts *o);
void sim_close(struct sim *s);
double sim_now(const struct sim *s);

/* Every node decodes `tokens` tokens from now on; same: all of them the same prompt. leases: one
 * download for all, else each node asks the origin itself for what nobody holds. */
void sim_decode(struct sim *s, unsigned tokens, bool same, bool leases, struct sim_totals *out);

struct sim_settled {
    uint64_t moved, least; /* bytes over the links and from the origin; the least that would do */
    uint64_t origin_bytes;
    double seconds; /* until all is where it belongs */
    double covered; /* of what is possible */
};
/* Placement until nothing is left to do; with `warm` the origin gives what nobody holds. curve (may
 * be NULL): share of the model that is held, over time. */
void sim_settle(struct sim *s, bool warm, struct sim_curve *curve, struct sim_settled *out);
void sim_curve_free(struct sim_curve *c);

void sim_join(struct sim *s, uint64_t budget);
void sim_leave(struct sim *s, unsigned node); /* for good */
uint64_t sim_budgets(const struct sim *s);
uint64_t sim_model(const struct sim *s);
uint64_t sim_held(const struct sim *s,
                  unsigned copies); /* bytes that at least so many nodes hold */

#endif
