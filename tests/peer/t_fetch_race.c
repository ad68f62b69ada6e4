/* SPDX-License-Identifier: MIT
 * t_fetch_race.c: the fetch engine between peers and the origin: good ones spare it, useless
 * ones cost at most 5 % of its time. */
#include "tests/peer/fetch_kit.h"

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

/* What the origin gave for a request that was given up before it was handed over is kept, and not
 * fetched again; what was not asked for, or has the wrong size, is not. */
static void late_chunks(void **state)
{
    struct sim *s = begin(21);
    struct fetch_stats st;
    sim_origin(s, 20e6, 20 * MS);
    s->origin_cut = true;
    sim_want(s, 0, FETCH_DEMAND);
    sim_until(s, s->now + 100 * MS);
    assert_true(s->n_oq > 0);
    uint64_t id = s->oq[0].id;
    fetch_origin_up(s->f, false); /* all that was asked for is given up */
    assert_int_equal(s->n_oq, 0);
    for (uint32_t i = 0; i < 3; i++) {
        fetch_on_origin_data(s->f, id, i, sim_bytes(0, i), STORAGE_CHUNK, NULL);
        fetch_on_origin_data(s->f, id, i, sim_bytes(0, i), STORAGE_CHUNK, NULL); /* twice: once */
    }
    fetch_on_origin_data(s->f, id + 1000, 3, sim_bytes(0, 3), STORAGE_CHUNK, NULL);
    fetch_on_origin_data(s->f, id, 3, sim_bytes(0, 3), STORAGE_CHUNK - 1, NULL);
    fetch_get_stats(s->f, &st);
    assert_int_equal(st.late_chunks, 3);
    s->origin_cut = false;
    fetch_origin_up(s->f, true);
    assert_true(sim_run(s, s->now + 10 * S));
    all_right(s, 1);
    assert_int_equal(s->origin_sent, SIM_SIZE - 3 * STORAGE_CHUNK);
    sim_free(s);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(good_peers_spare_the_origin),
        cmocka_unit_test(origin_and_slow_peer_share),
        cmocka_unit_test(useless_peers),
        cmocka_unit_test(good_turn_useless),
        cmocka_unit_test(late_chunks),
    };
    if (getenv("FETCH_TEST")) {
        cmocka_set_test_filter(getenv("FETCH_TEST"));
    }
    return cmocka_run_group_tests(t, NULL, NULL);
}
