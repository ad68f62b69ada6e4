/* SPDX-License-Identifier: MIT
 * fetch_kit.h: what the tests of the fetch engine begin and end with. Every run checks the
 * invariants after each event, the bytes of each object and that who-gave-what adds up
 * (fetch_sim.h). All seeds are fixed: each run of a program is the same. */
#ifndef SHOAL_TESTS_FETCH_KIT_H
#define SHOAL_TESTS_FETCH_KIT_H

#include "tests/peer/fetch_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS FETCH_MS
#define S FETCH_S

static struct sim sim; /* large; one at a time */

static inline struct sim *begin(uint32_t seed)
{
    struct fetch_opts o;
    sim_init(&sim, seed, &o);
    sim_start(&sim, &o);
    return &sim;
}

/* `n` objects from `first`, all at once; returns how long it took, in seconds. */
static inline double get_all(struct sim *s, uint32_t first, uint32_t n, uint64_t limit)
{
    uint64_t t = s->now;
    for (uint32_t i = 0; i < n; i++) {
        sim_want(s, first + i, FETCH_DEMAND);
    }
    if (!sim_run(s, s->now + limit)) {
        fail_msg("%u objects are not there after %g s; last line: %s", s->pending,
                 (double)limit / 1e9, s->last_line);
    }
    return (double)(s->now - t) / 1e9;
}

static inline void all_right(struct sim *s, uint32_t n)
{
    assert_int_equal(s->n_ok, n);
    assert_int_equal(s->puts_ok, n);
    assert_int_equal(s->wrong_bytes, 0);
}

#endif
