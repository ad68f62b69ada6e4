/* SPDX-License-Identifier: MIT
 * household.h: a shoal of real programs for tests: an origin in this process, homes of one shoal,
 * `shoal up` and `shoal run --home`, evil peers; what a run said, and whether a cache is right. */
#ifndef SHOAL_TESTS_FAULTS_HOUSEHOLD_H
#define SHOAL_TESTS_FAULTS_HOUSEHOLD_H

#include "tests/faults/proc.h"
#include "tests/peer/mesh_kit.h"

#include "node/demo/server.h"

#include <jansson.h>

struct household {
    struct demo_server *origin; /* NULL: gone */
    char *url, *tmp;
    struct kit_mesh keeper; /* only its home is used */
};

void household_open(struct household *h);
void household_close(struct household *h);
/* The home of a new member, to be freed with kit_free. */
void household_member(struct household *h, struct kit_mesh *k);
/* Forget all but who it is and where it belongs: no cache, no peers, no bans. No keys are made. */
void household_fresh(const struct kit_mesh *k);
/* HOME/peers: n ports of 127.0.0.1. */
void household_peers(const struct kit_mesh *k, const int *ports, int n);

/* `shoal run` with the answer as JSON: fails the test unless it ends well. more: further arguments,
 * NULL-terminated, or NULL. */
json_t *household_run(struct household *h, const char *home, const char *const *more);
/* Start it only. json: at the end, else text as it comes and the receipt on standard error. */
void household_start(struct household *h, struct proc *p, const char *home, bool json,
                     const char *const *more);
/* The receipt of one that has ended, 64 digits; the test fails when it ended badly. */
const char *household_receipt(const struct proc *p, char out[65]);
double household_stat(const json_t *run, const char *name);

/* `shoal up --offline`; returns when it is ready, its port in *port. */
void household_up(struct household *h, struct proc *p, const char *home, int *port);

/* Every object that the cache holds is the source's. Returns how many it holds. */
unsigned household_check(const char *url, const char *cache);

/* An evil peer (evil_peer.c), listening. after: number, or "armed". */
void evil_proc(struct proc *p, const char *home, const char *vice, const char *after, int arg,
               int *port);
void evil_proc_arm(struct proc *p);
struct evil_numbers {
    unsigned long long conns, gets, chunks, vices, told, pulled;
};
/* Ask it; false when it is not there any more. */
bool evil_proc_numbers(struct proc *p, struct evil_numbers *out);

#endif
