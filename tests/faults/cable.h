/* SPDX-License-Identifier: MIT
 * cable.h: the cables between members: a TCP forwarder with a port for each ordered pair, so that
 * the way between two members can be cut (nothing is read, nothing is written, nothing is reset: a
 * cable that is pulled) and put in again. In a thread of its own. */
#ifndef SHOAL_TESTS_FAULTS_CABLE_H
#define SHOAL_TESTS_FAULTS_CABLE_H

#include <stdbool.h>

#define CABLE_MEMBERS 4

struct cable; /* opaque */

/* Has the loopback interface these addresses? (Not everywhere.) */
bool cable_possible(void);
/* Member i listens on cable_host(i) at to[i]. */
struct cable *cable_start(const int *to, int members);
void cable_stop(struct cable *c);
/* An address of the loopback network that only this member listens on, so that nobody who hears of
 * its port finds a way around the cable. */
const char *cable_host(int member);
/* What member `from` dials to reach `to`, on 127.0.0.1. */
int cable_port(const struct cable *c, int from, int to);
/* Between this member and all others, in both directions. */
void cable_cut(struct cable *c, int member, bool cut);

#endif
