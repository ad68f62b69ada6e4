/* SPDX-License-Identifier: MIT
 * bus_rig.h: up to four discos on one loop over the network in memory, each on its own machine a,
 * b, c, d with eth0 10.0.0.1..4 and fe80::1..4; what their callbacks said; waiting for states. */
#ifndef SHOAL_TESTS_DISCOVERY_BUS_RIG_H
#define SHOAL_TESTS_DISCOVERY_BUS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "discovery/bus.h"
#include "discovery/disco.h"

#define INTERVAL 300 /* ms, in place of 30 s */
#define N 4

extern const char *const rig_ids[N], *const rig_hosts[N];

struct node {
    struct net *net;
    struct disco *d;
    unsigned added, changed, removed;
    char log[8192];
    bool allowed;
};

struct net {
    uv_loop_t loop;
    uv_timer_t timer;
    bool timed_out;
    struct disco_bus *bus;
    struct node n[N];
    unsigned open;
    char dir[64];
};

struct search {
    const char *node;
    struct disco_peer p;
    bool found;
};

/* Runs the loop until `cond` holds, at most 10 s. */
#define UNTIL(x, cond)                                    \
    do {                                                  \
        (x)->timed_out = false;                           \
        uv_timer_start(&(x)->timer, rig_timed, 10000, 0); \
        while (!(cond) && !(x)->timed_out) {              \
            uv_run(&(x)->loop, UV_RUN_ONCE);              \
        }                                                 \
        uv_timer_stop(&(x)->timer);                       \
        assert_true(cond);                                \
    } while (0)

unsigned rig_lines_with(const struct node *n, const char *what);
void rig_timed(uv_timer_t *t);
void rig_spin(struct net *x, unsigned ms);
void rig_options(struct net *x, int i, struct disco_options *o);
void rig_start_with(struct net *x, int i, const struct disco_options *o);
void rig_start(struct net *x, int i);
void rig_stop(struct net *x, int i);
int rig_set_up(void **state);
int rig_tear_down(void **state);
struct search rig_look(struct net *x, int i, const char *node);
bool rig_knows(struct net *x, int i, int j);
bool rig_announced(struct net *x, int i, int j);
void rig_tell(struct net *x, int i, int j, const char *addr, enum disco_outcome o, int sys);

#endif
