/* SPDX-License-Identifier: MIT
 * t_fetch.c: the fetch engine on virtual time. Every run checks the invariants after each event,
 * the bytes of each object and that who-gave-what adds up (fetch_sim.c). */
#include "tests/peer/fetch_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS FETCH_MS
#define S FETCH_S

static struct sim sim; /* large */

static struct sim *begin(uint32_t seed)
{
    struct fetch_opts o;
    sim_init(&sim, seed, &o);
    sim_start(&sim, &o);
    return &sim;
}

/* `n` objects from `first`, all at once; returns how long it took, in seconds. */
static double get_all(struct sim *s, uint32_t first, uint32_t n, uint64_t limit)
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

static void all_right(struct sim *s, uint32_t n)
{
    assert_int_equal(s->n_ok, n);
    assert_int_equal(s->puts_ok, n);
    assert_int_equal(s->wrong_bytes, 0);
}

/* ---- the plain case ---- */

static void one_peer(void **state)
{
    struct sim *s = begin(1);
    sim_peer(s, V_NONE, 100e6, 200000);
    double t = get_all(s, 0, 50, 60 * S);
    double least = 50.0 * SIM_SIZE / 100e6;
    all_right(s, 50);
    if (t > least * 1.03 + 0.02) {
        fail_msg("%g s, the link carries it in %g", t, least);
    }
    uint8_t d[SHA256_SIZE];
    sim_object_digest(s, 7, d);
    assert_memory_equal(s->done[7].r.object, d, SHA256_SIZE);
    assert_int_equal(s->done[7].r.basis, BASIS_ONE_MEMBER);
    assert_int_equal(s->done[7].r.n_from, 1);
    assert_string_equal(s->done[7].r.from[0].name, "peer0");
    assert_int_equal(s->done[7].r.from[0].chunks, 17);
    struct fetch_peer_stats p;
    sim_stats(s, 0, &p);
    assert_true(p.rate > 90e6 && p.rate < 110e6);
    assert_int_equal(p.bytes, 50ull * SIM_SIZE);
    assert_true(p.proven);
    sim_free(s);
}

static void real_digests(void **state)
{
    struct sim *s = begin(2);
    s->real_sha = true;
    sim_peer(s, V_NONE, 100e6, 200000);
    sim_peer(s, V_FLIP, 100e6, 200000);
    get_all(s, 0, 2, 60 * S);
    all_right(s, 2);
    assert_true(s->peer[1].bad_told > 0);
    sim_free(s);
}

/* Rates that the planner has to find out by itself. */
static void two_peers_double(void **state)
{
    double t[3];
    for (uint32_t n = 1; n <= 2; n++) {
        struct sim *s = begin(3);
        for (uint32_t i = 0; i < n; i++) {
            sim_peer(s, V_NONE, 12e6, 300000);
        }
        get_all(s, 0, 4, 60 * S); /* to measure them */
        t[n] = get_all(s, 100, 1, 60 * S) + get_all(s, 101, 20, 100 * S);
        all_right(s, 25);
        sim_free(s);
    }
    if (t[1] / t[2] < 1.85) {
        fail_msg("one peer %g s, two %g s", t[1], t[2]);
    }
    /* A single large object is striped, too, in proportion to the rates. */
    struct sim *s = begin(4);
    s->size = 60ull << 20;
    sim_peer(s, V_NONE, 30e6, 300000);
    sim_peer(s, V_NONE, 10e6, 300000);
    get_all(s, 0, 2, 60 * S);
    double one = get_all(s, 10, 1, 60 * S), least = (double)s->size / 40e6;
    if (one > least * 1.2) {
        fail_msg("striped in %g s, the two links carry it in %g", one, least);
    }
    assert_int_equal(s->done[10].r.n_from, 2);
    assert_int_equal(s->done[10].r.basis, BASIS_TWO_MEMBERS);
    assert_true(s->done[10].r.dup_bytes <= 4u << 20);
    sim_free(s);
}

static void very_unequal_peers(void **state)
{
    struct sim *s = begin(5);
    sim_peer(s, V_NONE, 100e6, 200000);
    sim_peer(s, V_NONE, 1e6, 2 * MS);
    get_all(s, 0, 4, 60 * S);
    double t = get_all(s, 10, 40, 60 * S), alone = 40.0 * SIM_SIZE / 100e6;
    if (t > alone * 1.08) {
        fail_msg("%g s, the quick one alone takes %g", t, alone);
    }
    all_right(s, 44);
    struct fetch_stats st;
    fetch_get_stats(s->f, &st);
    assert_true(st.dup_bytes < st.peer_bytes / 33);
    sim_free(s);
}

static void single_flight(void **state)
{
    struct sim *s = begin(6);
    sim_peer(s, V_NONE, 50e6, 1 * MS);
    for (int i = 0; i < 100; i++) {
        sim_want(s, 3, (enum fetch_prio)(i % 3));
    }
    assert_true(sim_run(s, s->now + 10 * S));
    assert_int_equal(s->done[3].times, 100);
    assert_int_equal(s->puts_ok, 1);
    assert_int_equal(s->peer[0].given, SIM_SIZE);
    /* One of them leaves, another's time is over: the object comes all the same. */
    struct fetch_want_opts o = {.prio = FETCH_DEMAND, .deadline_ns = s->now + 100 * MS};
    struct fetch_want *w = sim_want(s, 4, FETCH_DEMAND);
    sim_want_opts(s, 4, &o);
    sim_want(s, 4, FETCH_BACKGROUND);
    sim_until(s, s->now + 50 * MS);
    fetch_cancel(s->f, w);
    s->pending--;
    sim_until(s, s->now + 60 * MS);
    assert_int_equal(s->done[4].code, ERR_TIMEOUT);
    assert_int_equal(s->done[4].times, 1);
    assert_true(sim_run(s, s->now + 10 * S));
    assert_int_equal(s->done[4].code, 0);
    assert_int_equal(s->done[4].times, 2);
    sim_free(s);
}

static void cancel_and_deadline(void **state)
{
    struct sim *s = begin(7);
    sim_peer(s, V_NONE, 10e6, 1 * MS);
    struct fetch_want *w = sim_want(s, 1, FETCH_DEMAND);
    sim_until(s, s->now + 500 * MS);
    fetch_cancel(s->f, w);
    s->pending--;
    sim_check(s);
    assert_int_equal(s->live_puts, 0);
    sim_until(s, s->now + 2 * S);
    uint64_t given = s->peer[0].given;
    assert_true(given < 9e6); /* and not the whole object */
    sim_until(s, s->now + 10 * S);
    assert_int_equal(s->peer[0].given, given);
    assert_int_equal(s->done[1].times, 0);
    struct fetch_peer_stats p;
    sim_stats(s, 0, &p);
    assert_int_equal(p.strikes, 0); /* what came after the cancel is no fault */
    assert_true(p.late_bytes > 0);
    struct fetch_want_opts o = {.prio = FETCH_DEMAND, .deadline_ns = s->now + 300 * MS};
    uint64_t t = s->now;
    sim_want_opts(s, 2, &o);
    assert_true(sim_run(s, s->now + 10 * S));
    assert_int_equal(s->done[2].code, ERR_TIMEOUT);
    assert_int_equal(s->done[2].at, t + 300 * MS);
    assert_non_null(strstr(s->done[2].r.err.msg, "deadline"));
    sim_free(s);
}

static void demand_overtakes(void **state)
{
    struct sim *s = begin(8);
    sim_peer(s, V_NONE, 20e6, 500000);
    get_all(s, 500, 1, 10 * S);
    for (uint32_t i = 0; i < 40; i++) {
        sim_want(s, i, i % 2 ? FETCH_BACKGROUND : FETCH_PREFETCH);
    }
    sim_until(s, s->now + 3 * S);
    double alone = SIM_SIZE / 20e6;
    uint64_t t = s->now;
    sim_want(s, 100, FETCH_DEMAND);
    while (!s->done[100].times) {
        sim_until(s, s->now + 1 * MS);
    }
    double took = (double)(s->done[100].at - t) / 1e9;
    if (took > alone + 1.2 * STORAGE_CHUNK / 20e6) {
        fail_msg("a demand took %g s, alone it takes %g", took, alone);
    }
    /* One that was a prefetch and becomes a demand. */
    struct fetch_want *w = sim_want(s, 200, FETCH_BACKGROUND);
    t = s->now;
    fetch_raise(s->f, w, FETCH_DEMAND);
    while (!s->done[200].times) {
        sim_until(s, s->now + 1 * MS);
    }
    took = (double)(s->done[200].at - t) / 1e9;
    assert_true(took < alone + 2.2 * STORAGE_CHUNK / 20e6);
    /* Prefetches are done before background copies. */
    assert_true(sim_run(s, s->now + 100 * S));
    for (uint32_t i = 2; i < 40; i += 2) {
        assert_true(s->done[i].at < s->done[39].at);
    }
    all_right(s, 43);
    sim_free(s);
}

static void memory_is_bounded(void **state)
{
    struct fetch_opts o;
    struct sim *s = &sim;
    sim_init(s, 9, &o);
    o.max_bytes = 3 * SIM_SIZE;
    sim_start(s, &o);
    sim_peer(s, V_NONE, 100e6, 100000);
    for (uint32_t i = 0; i < 300; i++) {
        sim_want(s, i, FETCH_PREFETCH);
    }
    struct fetch_stats st;
    uint64_t most = 0;
    while (s->pending) {
        sim_until(s, s->now + 10 * MS);
        fetch_get_stats(s->f, &st);
        most = st.buffered > most ? st.buffered : most;
    }
    assert_int_equal(most, 3 * SIM_SIZE);
    all_right(s, 300);
    /* No memory at the storage: it is asked again, and a line says what is waited for. */
    s->full = true;
    sim_want(s, 1000, FETCH_DEMAND);
    sim_until(s, s->now + 12 * S);
    assert_int_equal(s->done[1000].times, 0);
    assert_non_null(strstr(s->last_line, "waits for memory"));
    s->full = false;
    assert_true(sim_run(s, s->now + 5 * S));
    assert_int_equal(s->done[1000].code, 0);
    sim_free(s);
}

/* ---- faults ---- */

/* A useless peer beside a good one: right bytes, and nearly the good one's time. */
static void vice_beside_good(void **state)
{
    for (int v = V_SILENT; v < V_COUNT; v++) {
        for (int known = 0; known < 2; known++) {
            struct sim *s = begin(100 + (uint32_t)v);
            memset(s->known, known ? BASIS_MANIFEST : 0, SIM_OBJECTS);
            sim_peer(s, V_NONE, 50e6, 500000);
            sim_peer(s, (enum vice)v, 50e6, 500000);
            bool lie = v == V_LIE && !known;
            if (lie) {
                sim_origin(s, 20e6, 20 * MS);
            }
            double t = 0, least = 0;
            for (uint32_t i = 0; i < 20; i++) {
                t += get_all(s, i * 10, 4, 60 * S);
                least += 4.0 * SIM_SIZE / 50e6;
            }
            all_right(s, 80);
            if (t > least * 1.25 + (lie ? 6 : 0)) {
                fail_msg("vice %d (digests %sknown): %g s, the good one alone takes %g", v,
                         known ? "" : "un", t, least);
            }
            struct fetch_peer_stats p;
            sim_stats(s, 1, &p);
            bool banned = v == V_FLIP || v == V_ZERO || v == V_TWICE || v == V_UNASKED ||
                          v == V_WRONG_CHUNK || v == V_WRONG_SIZE ||
                          (!known && (v == V_NO_DIGESTS || v == V_ODD_DIGESTS ||
                                      v == V_OTHER_SIZE || v == V_LIE)) ||
                          (known && v == V_LIE);
            if (v == V_UNASKED ? p.strikes + p.bans == 0 : banned != (p.bans > 0)) {
                fail_msg("vice %d (digests %sknown): %u bans, %u strikes, last: %s", v,
                         known ? "" : "un", p.bans, p.strikes, p.last_fault);
            }
            sim_free(s);
        }
    }
}

/* Only a useless peer and no origin: an error, in time, in words; never wrong bytes. */
static void vice_alone(void **state)
{
    for (int v = V_SILENT; v < V_COUNT; v++) {
        if (v == V_LIE || v == V_CLOSE_DATA || v == V_LAST_EARLY) {
            continue; /* gives something */
        }
        struct sim *s = begin(200 + (uint32_t)v);
        bool harmless = v == V_NO_DIGESTS;
        memset(s->known, harmless ? 0 : BASIS_MANIFEST, SIM_OBJECTS);
        if (v == V_ODD_DIGESTS || v == V_OTHER_SIZE || v == V_CLOSE_DIGESTS) {
            memset(s->known, 0, SIM_OBJECTS);
        }
        sim_peer(s, (enum vice)v, 50e6, 500000);
        sim_want(s, 0, FETCH_DEMAND);
        bool ended = sim_run(s, s->now + 120 * S);
        assert_int_equal(s->wrong_bytes, 0);
        if (v == V_SLOW || v == V_STARVE) {
            s->pending = ended ? s->pending : 0; /* it goes on, slowly, and says so */
            struct fetch_stats st;
            fetch_get_stats(s->f, &st);
            s->pending = st.wants;
            if (v == V_SLOW) {
                assert_int_equal(st.wants, 1);
            }
        } else {
            if (!ended) {
                fail_msg("vice %d: no end; last line: %s", v, s->last_line);
            }
            if (!s->done[0].code) {
                fail_msg("vice %d gave an object", v);
            }
            assert_true(strlen(s->done[0].r.err.msg) > 20);
        }
        sim_free(s);
    }
}

static void lost_peers(void **state)
{
    /* A peer is killed, cut, slowed in the middle of an object, at any time. */
    for (int how = 0; how < 4; how++) {
        for (uint32_t at = 5; at < 800; at += 37) {
            struct sim *s = begin(300 + at);
            sim_peer(s, V_NONE, 40e6, 300000);
            sim_peer(s, V_NONE, 40e6, 300000);
            get_all(s, 500, 6, 60 * S);
            for (uint32_t i = 0; i < 4; i++) {
                sim_want(s, i, FETCH_DEMAND);
            }
            uint64_t t = s->now;
            sim_until(s, s->now + at * MS);
            if (how == 0) {
                sim_kill(s, 1, false);
            } else if (how == 1) {
                s->peer[1].cut = true;
            } else if (how == 2) {
                s->peer[1].rate = 1000;
            } else {
                sim_kill(s, 1, true);
            }
            assert_false(how == 0 && fetch_peer_has(s->f, 1, sim_key(1)));
            assert_true(sim_run(s, s->now + 30 * S));
            all_right(s, 10);
            double took = (double)(s->now - t) / 1e9;
            double gone = (double)at / 1e3;
            double least = gone + (4.0 * SIM_SIZE / 40e6 - 2 * gone); /* both, then one alone */
            least = least < 2.0 * SIM_SIZE / 40e6 ? 2.0 * SIM_SIZE / 40e6 : least;
            /* A kill is known at once, a cut after the hedge time; what was on the way is lost. */
            if (took > least + 0.35) {
                fail_msg("how %d at %u ms: %g s, at best %g", how, at, took, least);
            }
            sim_free(s);
        }
    }
}

static void not_held_clears_the_bit(void **state)
{
    struct sim *s = begin(10);
    uint32_t p = sim_peer(s, V_REFUSE, 50e6, 1 * MS);
    sim_peer(s, V_NONE, 10e6, 1 * MS);
    assert_int_equal(fetch_holders(s->f, sim_key(0)), 2);
    get_all(s, 0, 1, 10 * S); /* the first reason is 1: not held */
    assert_false(fetch_peer_has(s->f, s->peer[p].slot, sim_key(0)));
    assert_true(fetch_peer_has(s->f, s->peer[p].slot, sim_key(1)));
    assert_int_equal(fetch_holders(s->f, sim_key(0)), 1);
    sim_free(s);
}

static void nobody_has_it(void **state)
{
    struct sim *s = begin(11);
    uint32_t p = sim_peer(s, V_NONE, 50e6, 1 * MS);
    fetch_on_have(s->f, s->peer[p].slot, SIM_KIND, 0, 5, 1, false);
    uint64_t t = s->now;
    sim_want(s, 5, FETCH_DEMAND);
    struct fetch_want_opts o = {.prio = FETCH_BACKGROUND, .peers_only = true};
    assert_true(sim_run(s, s->now + 60 * S));
    assert_int_equal(s->done[5].code, ERR_OFFLINE);
    assert_int_equal(s->now, t + 5 * S); /* no_source_ms */
    t = s->now;
    sim_want_opts(s, 5, &o);
    assert_true(sim_run(s, s->now + 60 * S));
    assert_int_equal(s->done[5].code, ERR_NOTFOUND);
    assert_int_equal(s->now, t);
    /* Somebody comes with it in time. */
    sim_want(s, 5, FETCH_DEMAND);
    sim_until(s, s->now + 2 * S);
    fetch_on_have(s->f, s->peer[p].slot, SIM_KIND, 0, 5, 1, true);
    assert_true(sim_run(s, s->now + 60 * S));
    assert_int_equal(s->done[5].code, 0);
    /* With an origin there is no waiting, and a copy that may not use it does not. */
    fetch_on_have(s->f, s->peer[p].slot, SIM_KIND, 0, 5, 1, false);
    sim_origin(s, 20e6, 10 * MS);
    double took = get_all(s, 5, 1, 10 * S);
    assert_true(took < 0.02 + SIM_SIZE / 20e6);
    assert_int_equal(s->done[5].r.basis, BASIS_ORIGIN);
    sim_want_opts(s, 5, &o);
    assert_true(sim_run(s, s->now + 60 * S));
    assert_int_equal(s->done[5].code, ERR_NOTFOUND);
    /* The origin fails and nobody has it: its sentence. */
    s->origin_fails = true;
    sim_want(s, 5, FETCH_DEMAND);
    assert_true(sim_run(s, s->now + 60 * S));
    assert_int_equal(s->done[5].code, ERR_NET);
    assert_non_null(strstr(s->done[5].r.err.msg, "503"));
    sim_free(s);
}

static void good_peers_spare_the_origin(void **state)
{
    struct sim *s = begin(12);
    sim_origin(s, 20e6, 30 * MS);
    fetch_origin_estimate(s->f, 20e6, 30 * MS);
    sim_peer(s, V_NONE, 100e6, 300000);
    sim_peer(s, V_NONE, 60e6, 300000);
    for (uint32_t i = 0; i < 20; i++) {
        get_all(s, i * 16, 16, 60 * S);
    }
    all_right(s, 320);
    assert_int_equal(s->origin_sent, 0);
    /* One of them is cut: no more than a little comes from the origin. */
    s->peer[0].cut = true;
    get_all(s, 400, 16, 60 * S);
    assert_true(s->origin_sent < 100u << 20);
    uint64_t before = s->origin_sent;
    for (uint32_t i = 30; i < 40; i++) {
        get_all(s, i * 16, 16, 60 * S);
    }
    assert_true(s->origin_sent - before < 60u << 20);
    sim_free(s);
}

static void origin_and_slow_peer_share(void **state)
{
    /* A peer at half the origin's rate is no loss, and some help. */
    struct sim *s = begin(13);
    sim_origin(s, 20e6, 30 * MS);
    fetch_origin_estimate(s->f, 20e6, 30 * MS);
    sim_peer(s, V_NONE, 10e6, 1 * MS);
    double t = 0;
    for (uint32_t i = 0; i < 40; i++) {
        t += get_all(s, i, 1, 60 * S);
    }
    double alone = 40 * (0.03 + SIM_SIZE / 20e6);
    assert_true(t < alone);
    assert_true(s->origin_sent < 40ull * SIM_SIZE * 9 / 10);
    sim_free(s);
}

/* ---- the promise: useless peers cost 5 % at most ---- */

static double decode(struct sim *s, uint32_t steps, uint32_t seed)
{
    uint64_t t = s->now;
    uint32_t next = 0;
    s->rng = seed;
    for (uint32_t i = 0; i < steps && next + 16 < SIM_OBJECTS; i++) {
        uint32_t n = 1 + sim_rand(s, 16);
        get_all(s, next, n, 1000 * S);
        next += n;
        sim_until(s, s->now + sim_rand(s, 30) * MS); /* arithmetic */
    }
    return (double)(s->now - t) / 1e9;
}

static void useless_peers(void **state)
{
    double worst = 0;
    int seeds = 60;
    for (int seed = 1; seed <= seeds; seed++) {
        double t[2];
        uint32_t n_vices = 0;
        int vices[8];
        for (int with = 0; with < 2; with++) {
            struct sim *s = begin((uint32_t)seed);
            double rate = 3e6 + sim_rand(s, 60) * 1e6;
            uint64_t latency = (5 + sim_rand(s, 80)) * MS;
            uint32_t know = sim_rand(s, 3);
            sim_origin(s, rate, latency);
            if (know) {
                double by = know == 1 ? 1 : 0.8 + sim_rand(s, 40) / 100.0;
                fetch_origin_estimate(s->f, rate * by, latency);
            }
            uint32_t n = 1 + sim_rand(s, 6), known = sim_rand(s, 2);
            memset(s->known, known ? BASIS_MANIFEST : 0, SIM_OBJECTS);
            n_vices = 0;
            for (uint32_t i = 0; i < n; i++) {
                int v = 1 + (int)sim_rand(s, V_COUNT - 1);
                double r = 5e6 + sim_rand(s, 100) * 1e6;
                uint64_t l = (1 + sim_rand(s, 50)) * MS / 10;
                bool by_digests = v == V_NO_DIGESTS || v == V_ODD_DIGESTS || v == V_OTHER_SIZE ||
                                  v == V_CLOSE_DIGESTS;
                if (v == V_TWICE || v == V_LAST_EARLY || v == V_CLOSE_DATA || v == V_STARVE ||
                    (known && by_digests)) {
                    v = V_SILENT; /* those are of some use */
                }
                vices[n_vices++] = v;
                if (with) {
                    sim_peer(s, (enum vice)v, r, l);
                }
            }
            t[with] = decode(s, 20 + (uint32_t)(rate / 2e6), (uint32_t)seed * 77);
            assert_int_equal(s->n_ok, s->n_done);
            assert_int_equal(s->wrong_bytes, 0);
            sim_free(s);
        }
        double ratio = t[1] / t[0];
        worst = ratio > worst ? ratio : worst;
        if (ratio > 1.05) {
            char list[100] = "";
            for (uint32_t i = 0; i < n_vices; i++) {
                snprintf(list + strlen(list), sizeof list - strlen(list), " %d", vices[i]);
            }
            fail_msg("seed %d: %g s with useless peers, %g s without (%.3f); vices%s", seed, t[1],
                     t[0], ratio, list);
        }
    }
    print_message("useless peers: at worst %.4f of the origin alone, %d seeds\n", worst, seeds);
}

/* Peers that were good and turn useless, beside an origin: never below the origin alone. */
static void good_turn_useless(void **state)
{
    double worst = 0;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        double t[2];
        for (int with = 0; with < 2; with++) {
            struct sim *s = begin(seed);
            double rate = 5e6 + sim_rand(s, 40) * 1e6;
            sim_origin(s, rate, 30 * MS);
            fetch_origin_estimate(s->f, rate, 30 * MS);
            uint32_t n = 1 + sim_rand(s, 3);
            for (uint32_t i = 0; with && i < n; i++) {
                sim_peer(s, V_NONE, 30e6 + sim_rand(s, 80) * 1e6, 300000);
            }
            double sum = decode(s, 5, seed);
            uint32_t cut = sim_rand(s, 2);
            for (uint32_t i = 0; with && i < n; i++) {
                s->peer[i].cut = cut;
                s->peer[i].rate = 1000;
            }
            uint64_t t0 = s->now;
            for (uint32_t i = 0; i < 30; i++) {
                get_all(s, 2000 + i * 8, 8, 1000 * S);
            }
            t[with] = (double)(s->now - t0) / 1e9;
            assert_true(sum > 0);
            assert_int_equal(s->wrong_bytes, 0);
            sim_free(s);
        }
        worst = t[1] / t[0] > worst ? t[1] / t[0] : worst;
        if (t[1] > t[0] * 1.05) {
            fail_msg("seed %u: %g s, the origin alone %g s", seed, t[1], t[0]);
        }
    }
    print_message("good peers turned useless: at worst %.4f of the origin alone\n", worst);
}

/* ---- trust ---- */

static void liars(void **state)
{
    /* Two honest members outvote a liar without an origin. */
    struct sim *s = begin(14);
    sim_peer(s, V_LIE, 60e6, 200000);
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_peer(s, V_NONE, 40e6, 300000);
    for (uint32_t i = 0; i < 10; i++) {
        get_all(s, i, 1, 60 * S);
    }
    assert_int_equal(s->wrong_bytes, 0);
    all_right(s, 10);
    sim_free(s);
    /* One against one: nothing is delivered, and it says why. */
    s = begin(15);
    s->size = 40u << 20;
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_peer(s, V_LIE, 50e6, 300000);
    sim_want(s, 0, FETCH_DEMAND);
    assert_true(sim_run(s, s->now + 60 * S));
    assert_int_equal(s->done[0].code, ERR_DIGEST);
    assert_non_null(strstr(s->done[0].r.err.msg, "who is right"));
    assert_int_equal(s->wrong_bytes, 0);
    /* The same with an origin: right bytes, and the liar is struck. */
    sim_origin(s, 20e6, 20 * MS);
    get_all(s, 1, 1, 60 * S);
    assert_int_equal(s->done[1].code, 0);
    assert_int_equal(s->done[1].r.basis, BASIS_ORIGIN);
    assert_int_equal(s->wrong_bytes, 0);
    sim_free(s);
}

static void bans_have_times(void **state)
{
    struct sim *s = begin(16);
    memset(s->known, BASIS_MANIFEST, SIM_OBJECTS);
    uint32_t p = sim_peer(s, V_FLIP, 50e6, 300000);
    sim_peer(s, V_NONE, 50e6, 300000);
    struct fetch_peer_stats st;
    uint32_t next = 0;
    const uint64_t lengths[] = {600, 3600, 86400, 86400};
    for (int k = 0; k < 4; k++) {
        while (!s->peer[p].banned) {
            sim_stats(s, p, &st);
            assert_true(st.strikes < 3);
            get_all(s, next++, 1, 60 * S);
        }
        uint64_t left = fetch_banned_ns(s->f, s->peer[p].id);
        assert_true(left > (lengths[k] - 60) * S && left <= lengths[k] * S);
        sim_until(s, s->now + 1 * S);
        assert_false(s->peer[p].up);
        sim_up(s, p); /* refused */
        assert_false(s->peer[p].up);
        assert_int_equal(fetch_unban(s->f, s->peer[1].id), ERR_NOTFOUND);
        sim_until(s, s->now + left);
        s->peer[p].banned = false;
        sim_up(s, p);
        assert_true(s->peer[p].up);
    }
    /* Three strikes, but not within ten minutes. */
    for (int k = 0; k < 6; k++) {
        uint32_t told = s->peer[p].bad_told;
        while (s->peer[p].bad_told == told && next < 3000) {
            get_all(s, next++, 1, 60 * S);
        }
        assert_false(s->peer[p].banned);
        sim_until(s, s->now + 301 * S);
    }
    /* Unban lifts it at once, and a remembered ban holds. */
    assert_int_equal(fetch_ban(s->f, s->peer[p].id, "x", 100 * S), 0);
    assert_true(fetch_banned_ns(s->f, s->peer[p].id) == 100 * S);
    assert_int_equal(fetch_unban(s->f, s->peer[p].id), 0);
    assert_int_equal(fetch_banned_ns(s->f, s->peer[p].id), 0);
    sim_free(s);
}

static void lines_without_bytes(void **state)
{
    struct sim *s = begin(17);
    sim_peer(s, V_SILENT, 50e6, 1 * MS);
    s->hope = "no byte for 5 s; 0 of 17 chunks are there; waits for peer0 (2 chunks";
    sim_want(s, 0, FETCH_DEMAND);
    sim_until(s, s->now + 6 * S);
    assert_int_equal(s->hoped, 1);
    struct buf b;
    buf_init(&b, 10000);
    assert_int_equal(fetch_explain(s->f, &b), 0);
    assert_non_null(strstr(b.p, "object 1/0/0 (demand): 0 of 17 chunks"));
    assert_non_null(strstr(b.p, "waits for peer0"));
    buf_free(&b);
    assert_true(sim_run(s, s->now + 60 * S)); /* give_up_ms */
    assert_int_equal(s->done[0].code, ERR_TIMEOUT);
    sim_free(s);
}

/* The loop is held up: what came meanwhile is read after the timer. Nobody is late for that. */
static void held_up(void **state)
{
    struct sim *s = begin(19);
    sim_origin(s, 50e6, 30 * MS);
    sim_peer(s, V_NONE, 100e6, 200000);
    sim_peer(s, V_NONE, 100e6, 200000);
    get_all(s, 0, 10, 60 * S);
    uint64_t before = s->origin_sent;
    for (uint32_t i = 0; i < 20; i++) {
        sim_want(s, 100 + i, FETCH_DEMAND);
        sim_until(s, s->now + 60 * MS);
        s->now += 150 * MS;
        assert_true(sim_run(s, s->now + 60 * S));
        assert_int_equal(s->done[100 + i].r.hedges, 0);
        assert_int_equal(s->done[100 + i].r.origin_bytes, 0);
    }
    assert_int_equal(s->origin_sent, before);
    sim_free(s);
}

/* ---- all at once ---- */

static void chaos(void **state)
{
    uint64_t events = 0;
    for (uint32_t seed = 1; seed <= 100; seed++) {
        struct sim *s = begin(seed * 7919);
        bool known = sim_rand(s, 2);
        memset(s->known, known ? BASIS_MANIFEST : 0, SIM_OBJECTS);
        s->size = 1 + (uint64_t)sim_rand(s, 40) * (sim_rand(s, 1000) * 1000 + 500);
        sim_origin(s, 2e6 + sim_rand(s, 50) * 1e6, (1 + sim_rand(s, 60)) * MS);
        uint32_t n = 2 + sim_rand(s, 10), next = 0;
        for (uint32_t i = 0; i < n; i++) {
            int v = sim_rand(s, 3) ? V_NONE : (int)sim_rand(s, V_COUNT);
            v = v == V_LIE && !known ? V_FLIP : v;
            sim_peer(s, (enum vice)v, 1e6 + sim_rand(s, 120) * 1e6, sim_rand(s, 5000) * 1000);
        }
        struct fetch_want *open[64] = {0};
        uint32_t of[64];
        for (int k = 0; k < 200; k++) {
            uint32_t what = sim_rand(s, 12), i = sim_rand(s, 64), p = sim_rand(s, n);
            if (what < 6) {
                if (!open[i] || s->done[of[i]].times) {
                    of[i] = next++;
                    open[i] = sim_want(s, of[i], (enum fetch_prio)sim_rand(s, 3));
                }
            } else if (what == 6 && open[i] && !s->done[of[i]].times) {
                fetch_cancel(s->f, open[i]);
                open[i] = NULL;
                s->pending--;
            } else if (what == 7 && open[i] && !s->done[of[i]].times) {
                fetch_raise(s->f, open[i], FETCH_DEMAND);
            } else if (what == 8 && s->peer[p].up) {
                sim_kill(s, p, sim_rand(s, 2));
            } else if (what == 9 && !s->peer[p].up && !s->peer[p].banned) {
                s->peer[p].away = false;
                sim_up(s, p);
            } else if (what == 10 && sim_rand(s, 4) == 0) {
                s->peer[p].cut = true;
            } else if (what == 11) {
                fetch_origin_up(s->f, sim_rand(s, 3) > 0);
            }
            sim_check(s);
            sim_until(s, s->now + sim_rand(s, 100) * MS);
        }
        fetch_origin_up(s->f, true);
        assert_true(sim_run(s, s->now + 1000 * S));
        assert_int_equal(s->wrong_bytes, 0);
        events += s->events;
        sim_free(s);
    }
    print_message("chaos: %llu events\n", (unsigned long long)events);
}

static void have_rows(void **state)
{
    struct sim *s = begin(18);
    uint32_t p = sim_peer(s, V_NONE, 1e6, 0), slot = s->peer[p].slot;
    fetch_on_have_reset(s->f, slot);
    uint8_t bits[112];
    for (int i = 0; i < 112; i++) {
        bits[i] = (uint8_t)sim_rand(s, 256);
    }
    assert_int_equal(fetch_on_have_row(s->f, slot, 1, 91, 4090, bits, sizeof bits), 0);
    uint64_t n = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        bool on = i >= 4090 && i < 4090 + 896 && (bits[(i - 4090) / 8] >> (i - 4090) % 8 & 1);
        struct object_key k = {1, 91, i};
        assert_int_equal(fetch_peer_has(s->f, slot, k), on);
        n += on;
    }
    struct fetch_peer_stats st;
    sim_stats(s, p, &st);
    assert_int_equal(st.objects, n);
    /* Beyond the limit of the wire: dropped; too many pages: an error. */
    assert_int_equal(fetch_on_have(s->f, slot, 1, 0, UINT32_MAX, UINT32_MAX, true), 0);
    assert_int_equal(fetch_on_have(s->f, slot, 1, 0, WIRE_INDEX_MAX, 5, true), 0);
    struct object_key end = {1, 0, WIRE_INDEX_MAX};
    assert_true(fetch_peer_has(s->f, slot, end));
    sim_stats(s, p, &st);
    assert_int_equal(st.objects, n + 1);
    int r = 0;
    for (uint32_t l = 0; l < 3 && !r; l++) {
        r = fetch_on_have(s->f, slot, 2, (uint16_t)l, 0, UINT32_MAX, true);
    }
    assert_int_equal(r, ERR_LIMIT);
    assert_int_equal(fetch_on_have(s->f, 77, 1, 0, 0, 1, true), ERR_ARG);
    sim_free(s);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(one_peer),
        cmocka_unit_test(real_digests),
        cmocka_unit_test(two_peers_double),
        cmocka_unit_test(very_unequal_peers),
        cmocka_unit_test(single_flight),
        cmocka_unit_test(cancel_and_deadline),
        cmocka_unit_test(demand_overtakes),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(vice_beside_good),
        cmocka_unit_test(vice_alone),
        cmocka_unit_test(lost_peers),
        cmocka_unit_test(not_held_clears_the_bit),
        cmocka_unit_test(nobody_has_it),
        cmocka_unit_test(good_peers_spare_the_origin),
        cmocka_unit_test(origin_and_slow_peer_share),
        cmocka_unit_test(useless_peers),
        cmocka_unit_test(good_turn_useless),
        cmocka_unit_test(liars),
        cmocka_unit_test(bans_have_times),
        cmocka_unit_test(lines_without_bytes),
        cmocka_unit_test(have_rows),
        cmocka_unit_test(held_up),
        cmocka_unit_test(chaos),
    };
    if (getenv("FETCH_TEST")) {
        cmocka_set_test_filter(getenv("FETCH_TEST"));
    }
    return cmocka_run_group_tests(t, NULL, NULL);
}
