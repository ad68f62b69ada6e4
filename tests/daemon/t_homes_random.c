/* SPDX-License-Identifier: MIT
 * No object is lost while a byte is free elsewhere: shoals on virtual time with the node's own
 * homes, and at random: demand on full disks, members that come, leave for good, are switched off,
 * restart, are cut off from each other or on battery, messages late or lost.
 *
 * HOMES_SEEDS=n: so many seeds (README.md: 500); HOMES_SEED=s: that one, with all that happens. */
#include "tests/daemon/homes_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SEEDS 6
#define SECONDS 900

static void nothing_is_lost(void **state)
{
    (void)state;
    const char *n = getenv("HOMES_SEEDS"), *one = getenv("HOMES_SEED");
    uint64_t from = one ? strtoull(one, NULL, 10) : 1, many = n ? strtoull(n, NULL, 10) : SEEDS;
    struct rig_result sum = {0};
    uint64_t bad = 0;
    /* those that have lost something once come first */
    static const uint64_t first[] = {28, 40, 94, 485, 487, 504, 557, 582};
    uint64_t n_first = one ? 0 : sizeof first / sizeof first[0];
    for (uint64_t i = 0; i < n_first + (one ? 1 : many); i++) {
        struct rig_result r;
        uint64_t seed = i < n_first ? first[i] : from + i - n_first;
        rig_run(seed, SECONDS, one != NULL, &r);
        sum.evicted += r.evicted;
        sum.copied += r.copied;
        sum.offered += r.offered;
        sum.kept += r.kept;
        sum.gone += r.gone;
        sum.unknown += r.unknown;
        sum.lost += r.lost;
        sum.removed += r.removed;
        sum.events += r.events;
        sum.covered += r.covered;
        if (r.lost) {
            print_message("seed %llu: %llu lost\n", (unsigned long long)seed,
                          (unsigned long long)r.lost);
            bad++;
        }
    }
    print_message("%llu members came, went or were hindered; %llu copies evicted, %llu made, %llu "
                  "offers, %llu answers; %llu last copies went while nobody had room, %llu while "
                  "it could not be used, %llu with a member; lost: %llu\n",
                  (unsigned long long)sum.events, (unsigned long long)sum.evicted,
                  (unsigned long long)sum.copied, (unsigned long long)sum.offered,
                  (unsigned long long)sum.kept, (unsigned long long)sum.gone,
                  (unsigned long long)sum.unknown, (unsigned long long)sum.removed,
                  (unsigned long long)sum.lost);
    assert_int_equal(bad, 0);
    assert_true(sum.events > 0 && sum.evicted > 0 && sum.offered > 0 && sum.kept > 0);
}

/* Disks that are together as large as the model. Warming ends, then everything is there, and
 * nothing goes any more: each object that comes somewhere is a second copy. */
static void exactly_full(void **state)
{
    (void)state;
    const char *n = getenv("HOMES_SEEDS"), *one = getenv("HOMES_EXACT");
    uint64_t from = one ? strtoull(one, NULL, 10) : 1, many = n ? strtoull(n, NULL, 10) : 2 * SEEDS;
    uint64_t bad = 0, evicted = 0;
    double longest = 0;
    for (uint64_t seed = from; seed < from + (one ? 1 : many); seed++) {
        struct rig_result r;
        rig_exact(seed, one != NULL, &r);
        evicted += r.evicted;
        longest = r.warmed_s > longest ? r.warmed_s : longest;
        if (r.lost || r.covered < 1 || r.warm) {
            print_message("seed %llu: %.1f %% covered%s, then %llu lost\n",
                          (unsigned long long)seed, 100 * r.covered,
                          r.warm ? " and still warming" : "", (unsigned long long)r.lost);
            bad++;
        }
    }
    print_message("warming took %.0f s at most; %llu copies evicted\n", longest,
                  (unsigned long long)evicted);
    assert_int_equal(bad, 0);
    assert_true(evicted > 0);
}

static void same_each_time(void **state)
{
    (void)state;
    struct rig_result a, b;
    rig_run(77, 200, false, &a);
    rig_run(77, 200, false, &b);
    assert_true(a.trace == b.trace && a.evicted == b.evicted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(exactly_full),
        cmocka_unit_test(same_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
