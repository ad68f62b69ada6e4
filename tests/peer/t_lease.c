/* SPDX-License-Identifier: MIT
 * t_lease.c: one download for all, on virtual time (lease_sim.h): what the origin gives is one
 * copy; a fetcher that dies, stops, is cut or slow costs a chunk at most; nobody waits in a
 * circle. */
#include "tests/peer/lease_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define END (1000 * FETCH_S + 600 * FETCH_S)

static struct lease_sim sim;

static void want_all(struct lease_sim *s)
{
    for (uint32_t o = 0; o < s->n_objects; o++) {
        for (uint32_t i = 0; i < s->n_nodes; i++) {
            ls_want(s, i, o, FETCH_DEMAND);
        }
    }
}

/* Cold at once: one copy, and no slower than a node alone but for the LAN. */
static void t_cold(void **state)
{
    for (uint32_t nodes = 1; nodes <= LS_NODES; nodes++) {
        struct lease_sim *s = &sim;
        ls_init(s, nodes, nodes, 40, 17);
        s->shared_line = true;
        ls_connect_all(s);
        ls_until(s, s->now + FETCH_S / 100);
        uint64_t from = s->now;
        want_all(s);
        assert_true(ls_run(s, END));
        double took = (double)(s->now - from) / 1e9, alone = (double)s->size * 40 / 12.5e6;
        if (s->log) {
            printf("%u nodes: %.1f s, alone %.1f s\n", nodes, took, alone);
        }
        assert_int_equal(ls_missing(s), 0);
        assert_int_equal(ls_twice(s), 0);
        assert_true(took < 1.1 * alone + (double)s->size * 40 * (nodes - 1) / s->link_rate);
        ls_free(s);
    }
}

enum what { KILLED, STOPPED, CUT, PULLED, APART, SLOWED, NO_ORIGIN, WHATS };

static const char *const word[WHATS] = {"killed", "stopped", "cut off for good", "cut for a while",
                                        "apart",  "slowed",  "without an origin"};

/* A fetcher fails at a random moment, in a random way: the others get everything, and what the
 * origin gave twice is a chunk for each event (what was coming to the one that failed, and what it
 * had and nobody else). Two halves that do not see each other fetch twice what both of them want,
 * and not a chunk more. count: of such runs, by what happened and chunks that came twice. */
static void one(uint32_t seed, uint32_t *worse, uint32_t (*count)[LS_NODES + 2])
{
    struct lease_sim *s = &sim;
    ls_init(s, seed, 3 + seed % 4, 12, 17);
    uint32_t events = 0;
    uint64_t apart = 0;
    s->shared_line = ls_rand(s, 2);
    s->no_readback = ls_rand(s, 4) == 0;
    for (uint32_t i = 0; i < s->n_nodes; i++) { /* measured before, as it is in a house */
        fetch_origin_estimate(s->node[i].f, 12.5e6 / (s->shared_line ? s->n_nodes : 1), 20000000);
    }
    ls_connect_all(s);
    ls_until(s, s->now + FETCH_S / 100);
    want_all(s);
    uint32_t whom = ls_first(s, ls_rand(s, s->n_objects)), what = ls_rand(s, WHATS);
    ls_until(s, s->now + (uint64_t)ls_rand(s, 14000) * FETCH_MS);
    if (s->log) {
        printf("%9.3f seed %u: node %u is %s\n", (double)s->now / 1e9 - 1000, seed, whom,
               word[what]);
    }
    events++;
    if (what == KILLED) {
        ls_kill(s, whom);
    } else if (what == STOPPED) {
        ls_stop(s, whom, true);
        ls_until(s, s->now + 1000 * FETCH_MS + (uint64_t)ls_rand(s, 7000) * FETCH_MS);
        ls_stop(s, whom, false);
        events++; /* it comes back while another one is at it */
    } else if (what == CUT) {
        ls_cut(s, whom);
    } else if (what == PULLED || what == APART) {
        (what == PULLED ? ls_cut : ls_apart)(s, whom);
        ls_until(s, s->now + 500 * FETCH_MS + (uint64_t)ls_rand(s, 15000) * FETCH_MS);
        apart = what == APART ? ls_both(s, whom) : 0;
        assert_true(what != APART || ls_twice(s) == apart);
        ls_heal(s, whom);
        events = s->n_nodes;      /* when they meet again each may stop at the chunk it is at */
        events += what == PULLED; /* that one's chunk, when it went */
    } else if (what == SLOWED) {
        s->node[whom].origin_rate *= 0.02;
    } else {
        ls_origin(s, whom, false);
    }
    if (!ls_run(s, END)) {
        fail_msg("seed %u: node %u %s: something did not come", seed, whom, word[what]);
    }
    uint64_t twice = ls_twice(s) - apart;
    if (s->log || twice > events || ls_missing(s)) {
        printf("seed %u: node %u %s: %llu chunks came twice, %llu before, %llu never\n", seed, whom,
               word[what], (unsigned long long)twice, (unsigned long long)apart,
               (unsigned long long)ls_missing(s));
    }
    count[what][twice < LS_NODES + 1 ? twice : LS_NODES + 1]++;
    *worse += twice > events || ls_missing(s);
    ls_free(s);
}

static void t_failures(void **state)
{
    const char *seeds = getenv("LEASE_SEEDS"), *only = getenv("LEASE_SEED");
    uint32_t first = only ? (uint32_t)strtoul(only, NULL, 10) : 1;
    uint32_t last = only ? first : seeds ? (uint32_t)strtoul(seeds, NULL, 10) : 200;
    uint32_t worse = 0, count[WHATS][LS_NODES + 2] = {{0}};
    for (uint32_t seed = first; seed <= last; seed++) {
        one(seed, &worse, count);
    }
    for (int what = 0; what < WHATS && seeds; what++) {
        printf("%-18s chunks twice, from none on:", word[what]);
        for (int i = 0; i < LS_NODES + 2; i++) {
            printf(" %4u", count[what][i]);
        }
        printf("\n");
    }
    assert_int_equal(worse, 0);
}

/* Small objects, wanted layer by layer as a prompt wants them; one member's way to the origin
 * becomes slow. Those who wait for it find out each for himself, and do not take each other for
 * slow because one waits behind the other: the origin gives little twice. */
static void t_layers(void **state)
{
    enum { LAYER = 16, SMALL = 128 << 10 };
    const char *seeds = getenv("LEASE_SEEDS");
    uint32_t last = seeds ? (uint32_t)strtoul(seeds, NULL, 10) : 200;
    uint64_t all = 0, most = 0;
    for (uint32_t seed = 1; seed <= last; seed++) {
        struct lease_sim *s = &sim;
        uint32_t layer[LS_NODES] = {0};
        ls_init(s, seed, 3, LS_OBJECTS, 1);
        s->size = SMALL;
        s->shared_line = true;
        for (uint32_t i = 0; i < s->n_nodes; i++) {
            s->node[i].origin_rate = 2e6;
            fetch_origin_estimate(s->node[i].f, 2e6 / s->n_nodes, 20000000);
        }
        ls_connect_all(s);
        ls_until(s, s->now + FETCH_S / 100);
        uint64_t at = s->now + (uint64_t)ls_rand(s, 4000) * FETCH_MS;
        uint32_t whom = ls_rand(s, s->n_nodes);
        for (bool more = true; more && s->now < END;) {
            if (at && s->now >= at) {
                s->node[whom].origin_rate *= 0.02;
                at = 0;
            }
            more = false;
            for (uint32_t i = 0; i < s->n_nodes; i++) {
                uint32_t held = 0;
                for (uint32_t o = 0; o < layer[i]; o++) {
                    held += s->node[i].held[o];
                }
                if (held == layer[i] && layer[i] < s->n_objects) {
                    for (int k = 0; k < LAYER; k++) {
                        ls_want(s, i, layer[i]++, FETCH_DEMAND);
                    }
                }
                more |= held < s->n_objects;
            }
            ls_until(s, s->now + 10 * FETCH_MS);
        }
        assert_true(s->now < END);
        assert_int_equal(ls_missing(s), 0);
        all += ls_twice(s);
        most = u64_max(most, ls_twice(s));
        ls_free(s);
    }
    if (seeds) {
        printf("layer by layer, one member slow: %.2f small objects twice, %u at most\n",
               (double)all / last, (unsigned)most);
    }
    assert_in_range(most * SMALL, 0, STORAGE_CHUNK);
}

/* Whatever anybody believes of the others' origins and of who fetches what: nobody waits in a
 * circle for longer than it takes to notice, and all of it comes. */
static void t_views(void **state)
{
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct lease_sim *s = &sim;
        ls_init(s, seed, 3 + seed % 6, 10, 17);
        for (uint32_t i = 0; i < s->n_nodes; i++) {
            for (uint32_t k = 0; k < i; k++) {
                if (ls_rand(s, 4)) { /* not everybody is connected with everybody */
                    ls_connect(s, i, k);
                }
            }
        }
        ls_until(s, s->now + FETCH_S / 100);
        want_all(s);
        for (uint32_t k = 0; k < 60; k++) {
            uint32_t a = ls_rand(s, s->n_nodes), b = ls_rand(s, s->n_nodes);
            struct object_key key = {0, 1, ls_rand(s, s->n_objects)};
            ls_until(s, s->now + (uint64_t)ls_rand(s, 200) * FETCH_MS);
            if (a != b && s->node[a].up[b] && ls_rand(s, 2)) {
                uint32_t chunks = ls_rand(s, s->chunks);
                fetch_on_take(s->node[a].f, s->node[a].slot[b], &key, &chunks, 1); /* a lie */
            } else if (a != b && s->node[a].up[b]) {
                fetch_on_origin_state(s->node[a].f, s->node[a].slot[b], ls_rand(s, 2), 0,
                                      ls_rand(s, 2) * 1000000);
            } else {
                ls_origin(s, a, ls_rand(s, 3) == 0);
            }
        }
        for (uint32_t i = 0; i < s->n_nodes; i++) {
            ls_origin(s, i, true);
        }
        uint64_t alone = (uint64_t)((double)s->size * s->n_objects / 12.5e6 * 1e9);
        if (!ls_run(s, s->now + 3 * alone + 60 * FETCH_S)) {
            fail_msg("seed %u: something waits for ever", seed);
        }
        ls_free(s);
    }
}

/* What others ask for has room of its own: with room for two objects, two nodes that each fill
 * theirs with what the other is to fetch get all of it. */
static void t_rooms(void **state)
{
    struct lease_sim *s = &sim;
    ls_init(s, 5, 2, 40, 17);
    for (uint32_t i = 0; i < 2; i++) {
        s->node[i].f->o.max_bytes = s->size;
    }
    ls_connect_all(s);
    ls_until(s, s->now + FETCH_S / 100);
    uint64_t from = s->now;
    for (int mine = 0; mine < 2; mine++) { /* first what the other one is to fetch */
        for (uint32_t o = 0; o < s->n_objects; o++) {
            for (uint32_t i = 0; i < 2; i++) {
                if ((ls_first(s, o) == i) == mine) {
                    ls_want(s, i, o, FETCH_DEMAND);
                }
            }
        }
    }
    assert_true(ls_run(s, END));
    assert_int_equal(ls_twice(s), 0);
    assert_true((double)(s->now - from) / 1e9 < 1.1 * (double)s->size * 40 / 12.5e6);
    ls_free(s);
}

/* One member is told to leave the origin alone: all do, and begin again one after the other. */
static void t_busy(void **state)
{
    struct lease_sim *s = &sim;
    ls_init(s, 9, 4, 8, 17);
    ls_connect_all(s);
    ls_until(s, s->now + FETCH_S / 100);
    want_all(s);
    ls_until(s, s->now + FETCH_S);
    fetch_origin_busy(s->node[2].f, 20000);
    ls_until(s, s->now + FETCH_S);
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        bool works;
        uint64_t busy, rate;
        fetch_origin_state(s->node[i].f, &works, &busy, &rate);
        assert_in_range(busy, 17000, 20000);
    }
    ls_until(s, s->now + 3 * FETCH_S); /* what was under way is through, or was taken back */
    uint64_t chunks = s->origin_chunks;
    ls_until(s, s->now + 12 * FETCH_S);
    assert_in_range(s->origin_chunks - chunks, 0, 4 * 64);
    assert_true(ls_run(s, END));
    ls_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_cold),  cmocka_unit_test(t_failures), cmocka_unit_test(t_layers),
        cmocka_unit_test(t_views), cmocka_unit_test(t_rooms),    cmocka_unit_test(t_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
