/* SPDX-License-Identifier: MIT
 * t_fetch_sample.c: what rests on one member's word alone is compared with the origin, by samples,
 * before it is handed over: how many, of which kind, and what happens to who lied. */
#include "tests/peer/fetch_kit.h"

#define SAMPLES 4

static struct sim *with_samples(uint32_t seed)
{
    struct fetch_opts o;
    sim_init(&sim, seed, &o);
    o.samples = SAMPLES;
    o.seed = seed;
    sim_start(&sim, &o);
    return &sim;
}

static struct fetch_stats stats(struct sim *s)
{
    struct fetch_stats st;
    fetch_get_stats(s->f, &st);
    return st;
}

/* An honest member that holds everything: four chunks of it are compared, ever. */
static void honest(void **state)
{
    struct sim *s = with_samples(1);
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_origin(s, 20e6, 20 * MS);
    for (uint32_t i = 0; i < 10; i++) {
        get_all(s, i * 8, 8, 60 * S);
    }
    all_right(s, 80);
    assert_int_equal(stats(s).samples, SAMPLES);
    assert_int_equal(stats(s).samples_false, 0);
    assert_int_equal(stats(s).sample_bytes, SAMPLES * (uint64_t)SIM_SIZE);
    assert_int_equal(s->origin_sent, stats(s).sample_bytes + stats(s).origin_bytes);
    assert_int_equal(stats(s).uncompared, 0);
    uint32_t own = 0; /* what was compared as a whole is as good as an own download */
    for (uint32_t i = 0; i < 80; i++) {
        own += s->done[i].r.basis == BASIS_ORIGIN;
        assert_true(s->done[i].r.basis == BASIS_ORIGIN || s->done[i].r.basis == BASIS_ONE_MEMBER);
    }
    assert_int_equal(own, SAMPLES);
    sim_free(s);
}

/* Of large objects a chunk is the sample. */
static void large_ones(void **state)
{
    struct fetch_opts o;
    sim_init(&sim, 9, &o);
    o.samples = SAMPLES;
    o.sample_bytes = STORAGE_CHUNK;
    sim_start(&sim, &o);
    struct sim *s = &sim;
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_origin(s, 20e6, 20 * MS);
    get_all(s, 0, 8, 60 * S);
    all_right(s, 8);
    assert_int_equal(stats(s).samples, SAMPLES);
    assert_true(stats(s).sample_bytes <= SAMPLES * (uint64_t)STORAGE_CHUNK);
    sim_free(s);
}

/* Two of them: four of each, if each gave something alone. */
static void two_honest(void **state)
{
    struct sim *s = with_samples(2);
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_origin(s, 20e6, 20 * MS);
    get_all(s, 0, 8, 60 * S);
    sim_kill(s, 0, true);
    sim_peer(s, V_NONE, 50e6, 300000);
    get_all(s, 8, 8, 60 * S);
    all_right(s, 16);
    assert_int_equal(stats(s).samples, 2 * SAMPLES);
    sim_free(s);
}

/* A liar, alone with an origin, that states what it gives: nothing of it is handed over, it is
 * named and from the first sample on not asked any more. */
static void liar(void **state)
{
    for (uint32_t seed = 1; seed <= 40; seed++) {
        struct sim *s = with_samples(seed);
        s->size = seed % 2 ? SIM_SIZE : 19584;
        sim_peer(s, V_PERJURE, 50e6, 300000);
        sim_origin(s, 20e6, 20 * MS);
        get_all(s, 0, 8, 120 * S);
        get_all(s, 8, 8, 120 * S);
        all_right(s, 16);
        struct fetch_peer_stats p;
        sim_stats(s, 0, &p);
        assert_true(p.strikes + p.bans > 0);
        assert_true(stats(s).samples_false >= 1 && stats(s).samples_false <= SAMPLES);
        assert_int_equal(stats(s).uncompared, 0);
        uint64_t given = p.chunks;
        get_all(s, 100, 4, 120 * S);
        sim_stats(s, 0, &p);
        assert_int_equal(p.chunks, given);
        sim_free(s);
    }
}

/* Beside an honest one it is the same; the honest one keeps its good name. */
static void liar_beside_honest(void **state)
{
    for (uint32_t seed = 1; seed <= 20; seed++) {
        struct sim *s = with_samples(100 + seed);
        sim_peer(s, V_PERJURE, 50e6, 300000);
        sim_peer(s, V_NONE, 50e6, 300000);
        sim_origin(s, 20e6, 20 * MS);
        for (uint32_t i = 0; i < 4; i++) {
            get_all(s, i * 8, 8, 120 * S);
        }
        all_right(s, 32);
        struct fetch_peer_stats p;
        sim_stats(s, 1, &p);
        assert_int_equal(p.strikes + p.bans, 0);
        sim_free(s);
    }
}

/* No origin, or one that does not answer: the word of one member is all there is, and so it says.
 */
static void no_origin(void **state)
{
    struct sim *s = with_samples(3);
    sim_peer(s, V_NONE, 50e6, 300000);
    s->hope = "on its word alone";
    get_all(s, 0, 8, 60 * S);
    all_right(s, 8);
    assert_int_equal(stats(s).uncompared, 8);
    assert_int_equal(s->hoped, 1);
    sim_free(s);

    s = with_samples(4);
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_origin(s, 20e6, 20 * MS);
    s->origin_cut = true; /* takes what it is asked for and says nothing */
    s->hope = "on its word alone";
    get_all(s, 0, 8, 30 * S);
    all_right(s, 8);
    assert_int_equal(stats(s).uncompared, 8);
    assert_int_equal(s->hoped, 1);
    double t = get_all(s, 8, 8, 30 * S); /* it is not waited for each time */
    assert_true(t < 4);
    sim_free(s);

    s = with_samples(5);
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_origin(s, 20e6, 20 * MS);
    s->origin_fails = true;
    get_all(s, 0, 8, 30 * S);
    all_right(s, 8);
    assert_int_equal(stats(s).uncompared, 8);
    s->origin_fails = false; /* it is back: what comes now is compared */
    sim_until(s, s->now + 61 * S);
    get_all(s, 8, 8, 30 * S);
    assert_int_equal(stats(s).uncompared, 8);
    assert_int_equal(stats(s).samples, SAMPLES);
    sim_free(s);
}

/* An origin that cannot be reached, attempt by attempt, is waited for no longer than it takes to
 * know that; what was said of it before it was asked does not count. */
static void unreachable(void **state)
{
    struct sim *s = with_samples(12);
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_origin(s, 20e6, 20 * MS);
    s->origin_cut = true;
    for (uint32_t i = 0; i < 8; i++) {
        sim_want(s, i, FETCH_DEMAND);
    }
    sim_until(s, s->now + S);
    assert_int_equal(s->n_ok, 0); /* held: the origin may answer yet */
    fetch_origin_trouble(s->f);
    assert_true(sim_run(s, s->now + 5 * S)); /* of ten */
    all_right(s, 8);
    assert_int_equal(stats(s).uncompared, 8);
    s->origin_cut = false; /* it is back: what comes now is compared */
    sim_until(s, s->now + 61 * S);
    get_all(s, 8, 8, 30 * S);
    assert_int_equal(stats(s).uncompared, 8);
    assert_int_equal(stats(s).samples, SAMPLES);
    sim_free(s);

    s = with_samples(13);
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_origin(s, 20e6, 20 * MS);
    fetch_origin_trouble(s->f);
    sim_until(s, s->now + MS);
    get_all(s, 0, 8, 30 * S);
    assert_int_equal(stats(s).uncompared, 0);
    assert_int_equal(stats(s).samples, SAMPLES);
    sim_free(s);
}

/* Copies in the background never go to the origin, but they are compared all the same. */
static void background(void **state)
{
    for (int lies = 0; lies < 2; lies++) {
        struct sim *s = with_samples(6);
        sim_peer(s, lies ? V_PERJURE : V_NONE, 50e6, 300000);
        sim_origin(s, 20e6, 20 * MS);
        struct fetch_want_opts o = {.prio = FETCH_BACKGROUND, .peers_only = true};
        for (uint32_t i = 0; i < 8; i++) {
            sim_want_opts(s, i, &o);
        }
        assert_true(sim_run(s, s->now + 120 * S));
        assert_int_equal(s->wrong_bytes, 0);
        /* of a liar's those alone that were samples, and so the origin's */
        assert_true(lies ? s->n_ok <= SAMPLES : s->n_ok == 8);
        assert_int_equal(stats(s).samples_false > 0, lies);
        sim_free(s);
    }
}

/* Its word void and believed again: it proves itself anew. */
static void believed_again(void **state)
{
    struct sim *s = with_samples(7);
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_origin(s, 20e6, 20 * MS);
    get_all(s, 0, 8, 60 * S);
    fetch_disbelieve(s->f, s->peer[0].id, true);
    get_all(s, 8, 2, 60 * S);
    assert_int_equal(s->done[8].r.basis, BASIS_ORIGIN);
    fetch_disbelieve(s->f, s->peer[0].id, false);
    get_all(s, 16, 8, 60 * S);
    all_right(s, 18);
    assert_int_equal(stats(s).samples, 2 * SAMPLES);
    sim_free(s);
}

/* One that lies about one object in sixteen alone: samples miss it, the piece that is compared of
 * each object does not. Nothing false is handed over, and it is named. Seeds differ in what is
 * asked of whom and where pieces lie. */
static void few(void **state)
{
    uint32_t missed = 0;
    for (uint32_t seed = 1; seed <= 30; seed++) {
        struct sim *s = with_samples(seed * 104729);
        s->size = seed % 3 ? 700000 + seed : SIM_SIZE;
        sim_peer(s, V_FEW, 50e6, 300000);
        if (seed % 2) {
            sim_peer(s, V_NONE, 50e6, 300000);
        }
        sim_origin(s, 20e6, 20 * MS);
        for (uint32_t i = 0; i < 4; i++) {
            get_all(s, i * 8, 8, 120 * S);
        }
        all_right(s, 32);
        struct fetch_stats st = stats(s);
        struct fetch_peer_stats p;
        sim_stats(s, 0, &p);
        assert_int_equal(st.uncompared, 0);
        assert_true(st.spots_false <= 2);
        missed += st.samples_false == 0 && st.spots_false > 0;
        assert_true(p.strikes > 0 || st.samples_false + st.spots_false == 0);
        if (seed % 2) { /* the honest one keeps its good name */
            sim_stats(s, 1, &p);
            assert_int_equal(p.strikes + p.bans, 0);
        }
        sim_free(s);
    }
    assert_true(missed >= 10); /* that is what the pieces are for */
}

/* What that costs: of all that a member gives one part in 128, for this node is the only one that
 * compares. And what it does not find: one bit of an object, but for as often as that. */
static void pieces(void **state)
{
    uint32_t kept_out = 0, runs = 0;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        struct sim *s = with_samples(seed * 7 + 1);
        bool lies = seed > 4;
        s->size = 700000;
        sim_peer(s, lies ? V_FEW_BIT : V_NONE, 50e6, 300000);
        sim_origin(s, 20e6, 20 * MS);
        get_all(s, 0, 32, 120 * S);
        struct fetch_stats st = stats(s);
        assert_int_equal(st.spot_bytes, st.spots * (s->size / FETCH_SPOT_SHARE));
        assert_int_equal(s->spot_sent, st.spot_bytes);
        if (!lies) {
            all_right(s, 32);
            assert_int_equal(st.spots_false, 0);
            assert_int_equal(st.spots, 32 - SAMPLES);
        }
        runs += lies;
        kept_out += lies && s->wrong_bytes == 0;
        sim_free(s);
    }
    print_message("one bit in two objects of 32: kept out in %u of %u runs\n", kept_out, runs);
}

/* Copies in the background, too. The origin that stops answering is waited for no longer than with
 * samples. */
static void few_background(void **state)
{
    struct sim *s = with_samples(21);
    sim_peer(s, V_FEW, 50e6, 300000);
    sim_origin(s, 20e6, 20 * MS);
    struct fetch_want_opts o = {.prio = FETCH_BACKGROUND, .peers_only = true};
    for (uint32_t i = 0; i < 7; i++) {
        sim_want_opts(s, i, &o);
    }
    assert_true(sim_run(s, s->now + 120 * S));
    assert_int_equal(s->n_ok, 7);
    assert_int_equal(stats(s).samples, SAMPLES);
    assert_int_equal(stats(s).spots, 7 - SAMPLES);
    sim_want_opts(s, 7, &o);
    assert_true(sim_run(s, s->now + 120 * S));
    assert_int_equal(s->n_ok, 7);
    assert_int_equal(s->done[7].code, ERR_DIGEST);
    assert_int_equal(s->wrong_bytes, 0);
    assert_int_equal(stats(s).spots_false, 1);
    sim_free(s);

    s = with_samples(22);
    sim_peer(s, V_NONE, 50e6, 300000);
    sim_origin(s, 20e6, 20 * MS);
    get_all(s, 0, 8, 60 * S);
    s->origin_cut = true;
    get_all(s, 8, 8, 30 * S);
    all_right(s, 16);
    assert_int_equal(stats(s).uncompared, 8);
    s->origin_cut = false;
    s->origin_fails = true;
    sim_until(s, s->now + 61 * S);
    get_all(s, 16, 8, 30 * S);
    all_right(s, 24);
    assert_int_equal(stats(s).uncompared, 16);
    s->origin_fails = false;
    sim_until(s, s->now + 61 * S);
    get_all(s, 24, 8, 30 * S);
    assert_int_equal(stats(s).uncompared, 16);
    assert_int_equal(stats(s).spots, 8 - SAMPLES + 8);
    sim_free(s);
}

/* Members come and go, wants are cancelled and raised: one liar among them never gets a byte
 * through while the origin answers in time. Two that tell the same lie are two members' word, not
 * one's. */
static void chaos(void **state)
{
    uint64_t compared = 0, lies = 0, judged = 0;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct sim *s = with_samples(seed * 7919);
        /* each drawn in a statement of its own: compilers differ in the order within one */
        uint64_t parts = sim_rand(s, 20), part = sim_rand(s, 1000) * 1000 + 500;
        double rate = 5e6 + sim_rand(s, 50) * 1e6;
        s->size = 1 + parts * part;
        sim_origin(s, rate, (1 + sim_rand(s, 60)) * MS);
        uint32_t n = 2 + sim_rand(s, 6), next = 0, perjurers = 0, of[64];
        for (uint32_t i = 0; i < n; i++) {
            int v = sim_rand(s, 3)   ? V_NONE
                    : sim_rand(s, 2) ? V_PERJURE
                                     : (int)sim_rand(s, V_COUNT);
            perjurers += v == V_PERJURE;
            rate = 1e6 + sim_rand(s, 120) * 1e6;
            sim_peer(s, (enum vice)v, rate, sim_rand(s, 5000) * 1000);
        }
        struct fetch_want *open[64] = {0};
        for (int k = 0; k < 200; k++) {
            uint32_t what = sim_rand(s, 10);
            uint32_t i = sim_rand(s, 64);
            uint32_t p = sim_rand(s, n);
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
            }
            sim_check(s);
            sim_until(s, s->now + sim_rand(s, 100) * MS);
        }
        assert_true(sim_run(s, s->now + 1000 * S));
        if (perjurers < 2 && !stats(s).uncompared) {
            assert_int_equal(s->wrong_bytes, 0);
            judged++;
        }
        assert_int_equal(s->f->n_held, 0);
        compared += stats(s).samples;
        lies += stats(s).samples_false;
        sim_free(s);
    }
    print_message("chaos: %llu samples, %llu of them false\n", (unsigned long long)compared,
                  (unsigned long long)lies);
    assert_true(lies > 0 && judged >= 30);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(honest),
        cmocka_unit_test(large_ones),
        cmocka_unit_test(two_honest),
        cmocka_unit_test(liar),
        cmocka_unit_test(liar_beside_honest),
        cmocka_unit_test(no_origin),
        cmocka_unit_test(unreachable),
        cmocka_unit_test(background),
        cmocka_unit_test(few),
        cmocka_unit_test(pieces),
        cmocka_unit_test(few_background),
        cmocka_unit_test(chaos),
        cmocka_unit_test(believed_again),
    };
    if (getenv("FETCH_TEST")) {
        cmocka_set_test_filter(getenv("FETCH_TEST"));
    }
    return cmocka_run_group_tests(t, NULL, NULL);
}
