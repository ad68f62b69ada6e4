/* SPDX-License-Identifier: MIT
 * fetch_sim_int.h: what the files of fetch_sim share; tests include fetch_sim.h. */
#ifndef SHOAL_TESTS_FETCH_SIM_INT_H
#define SHOAL_TESTS_FETCH_SIM_INT_H

#include "tests/peer/fetch_sim.h"

/* fetch_sim.c. Chunks live as long as the program; flipped: the right one with one bit changed. */
const uint8_t *sim_flipped(uint32_t index, uint32_t chunk);
const uint8_t *sim_zeros(void);
const uint8_t *sim_sha(const uint8_t *p, size_t n); /* of bytes that never change; remembered */
uint32_t sim_index(struct object_key k);            /* the inverse of sim_key */
void sim_push(struct sim *s, struct sim_event e);   /* e.seq is set here */

/* fetch_sim_peer.c */
struct fetch_ops sim_ops(struct sim *s);
void sim_handle(struct sim *s, const struct sim_event *e); /* at its time */

#endif
