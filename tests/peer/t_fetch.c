/* SPDX-License-Identifier: MIT
 * t_fetch.c: the fetch engine on virtual time: peers that are in order, priorities,
 * cancelling, limits, what it says and what peers say that they have. */
#include "tests/peer/fetch_kit.h"

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

/* ---- who has it ---- */

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

/* ---- time ---- */

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

/* Nobody has anything: a hundred objects end, and the log is not a hundred lines. */
static void lines_of_failed(void **state)
{
    struct sim *s = begin(18);
    s->hope = "no peer gives it";
    for (uint32_t i = 0; i < 100; i++) {
        sim_want(s, i, FETCH_DEMAND);
    }
    assert_true(sim_run(s, s->now + 60 * S));
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_not_equal(s->done[i].code, 0);
    }
    assert_in_range(s->hoped, 8, 24); /* 8 in ten seconds */
    s->now += 20 * S;
    s->hope = " other objects failed before, too";
    s->hoped = 0;
    sim_want(s, 100, FETCH_DEMAND);
    assert_true(sim_run(s, s->now + 60 * S));
    assert_int_equal(s->hoped, 1);
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
        cmocka_unit_test(not_held_clears_the_bit),
        cmocka_unit_test(nobody_has_it),
        cmocka_unit_test(have_rows),
        cmocka_unit_test(lines_without_bytes),
        cmocka_unit_test(lines_of_failed),
        cmocka_unit_test(held_up),
    };
    if (getenv("FETCH_TEST")) {
        cmocka_set_test_filter(getenv("FETCH_TEST"));
    }
    return cmocka_run_group_tests(t, NULL, NULL);
}
