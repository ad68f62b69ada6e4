/* SPDX-License-Identifier: MIT
 * t_fetch_faults.c: the fetch engine and peers that fail or lie. */
#include "tests/peer/fetch_kit.h"

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
        if (v == V_STARVE) { /* it goes on, slowly, and says so */
            struct fetch_stats st;
            fetch_get_stats(s->f, &st);
            s->pending = st.wants;
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

/* A slow line is no fault: its bytes add up. */
static void slow_alone(void **state)
{
    struct sim *s = begin(250);
    memset(s->known, BASIS_MANIFEST, SIM_OBJECTS);
    sim_peer(s, V_NONE, 2.5 * FETCH_DRIP_BYTES_S, 500000);
    sim_want(s, 0, FETCH_DEMAND);
    assert_true(sim_run(s, s->now + 3600 * S));
    all_right(s, 1);
    struct fetch_peer_stats p;
    sim_stats(s, 0, &p);
    assert_int_equal(p.strikes + p.bans, 0);
    sim_free(s);
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

/* A digest on record that rests on one member's word, nobody knows here whose. */
static void one_word_on_record(void **state)
{
    for (int wrong = 0; wrong < 2; wrong++) {
        for (int lies = 0; lies < 2; lies++) {
            struct sim *s = begin(30 + (uint32_t)(2 * wrong + lies));
            memset(s->known, BASIS_ONE_MEMBER, SIM_OBJECTS);
            s->known_wrong = wrong;
            sim_peer(s, lies ? V_LIE : V_NONE, 50e6, 300000);
            if (!wrong && !lies) {
                get_all(s, 0, 10, 60 * S); /* the same word again is no second one */
                for (int i = 0; i < 10; i++) {
                    assert_int_equal(s->done[i].r.basis, BASIS_ONE_MEMBER);
                }
            } else {
                sim_want(s, 20, FETCH_DEMAND);
                assert_true(sim_run(s, s->now + 60 * S));
                assert_int_equal(s->done[20].code, ERR_DIGEST);
            }
            sim_origin(s, 20e6, 20 * MS);
            get_all(s, 40, 4, 60 * S);
            for (int i = 40; i < 44; i++) {
                assert_int_equal(s->done[i].r.basis,
                                 wrong || lies ? BASIS_ORIGIN : BASIS_ONE_MEMBER);
            }
            assert_int_equal(s->wrong_bytes, 0);
            sim_free(s);
        }
    }
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

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(vice_beside_good),
        cmocka_unit_test(vice_alone),
        cmocka_unit_test(slow_alone),
        cmocka_unit_test(lost_peers),
        cmocka_unit_test(liars),
        cmocka_unit_test(one_word_on_record),
        cmocka_unit_test(bans_have_times),
        cmocka_unit_test(chaos),
    };
    if (getenv("FETCH_TEST")) {
        cmocka_set_test_filter(getenv("FETCH_TEST"));
    }
    return cmocka_run_group_tests(t, NULL, NULL);
}
