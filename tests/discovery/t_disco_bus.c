/* SPDX-License-Identifier: MIT
 * t_disco_bus.c: discos over the network in memory find each other, lose each other, and recover
 * from what networks, responders and sleep do. */
#include "bus_rig.h"

#include "discovery/addr.h"
#include "discovery/privacy.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <string.h>

static void they_meet(void **state)
{
    struct net *x = *state;
    for (int i = 0; i < 3; i++) {
        rig_start(x, i);
    }
    UNTIL(x, disco_count(x->n[0].d) == 2 && disco_count(x->n[1].d) == 2 &&
                 disco_count(x->n[2].d) == 2);
    struct search s = rig_look(x, 0, rig_ids[1]);
    assert_int_equal(s.p.n_addrs, 2);
    assert_string_equal(s.p.addrs[0].text, "10.0.0.2:4001");
    assert_int_equal(s.p.addrs[0].sources, DISCO_BONJOUR);
    assert_string_equal(s.p.addrs[0].ifname, "eth0");
    assert_int_equal(s.p.addrs[1].sa.ss_family, AF_INET6);
    assert_int_equal(addr_scope(&s.p.addrs[1].sa), 2);
    assert_string_equal(s.p.model, "mmmmmmmm");
    assert_int_equal(s.p.version, 1);
    assert_string_equal(s.p.instance, "shoal-bbbbbbbb-eth0");
    rig_spin(x, 2 * INTERVAL); /* resolving again and again is no news */
    assert_int_equal(x->n[0].added, 2);
    assert_int_equal(x->n[0].changed + x->n[0].removed, 0);
    rig_stop(x, 1);
    UNTIL(x, !rig_knows(x, 0, 1) && !rig_knows(x, 2, 1));
    UNTIL(x, x->n[0].removed == 1);
    rig_start(x, 1);
    UNTIL(x, rig_knows(x, 0, 1) && rig_knows(x, 2, 1));
}

static void other_groups_are_counted(void **state)
{
    struct net *x = *state;
    struct disco_options o;
    rig_start(x, 0);
    rig_options(x, 1, &o);
    o.group = "hhhhhhhh";
    rig_start_with(x, 1, &o);
    rig_start(x, 2);
    UNTIL(x, rig_knows(x, 0, 2) && rig_knows(x, 2, 0));
    rig_spin(x, 50);
    assert_false(rig_knows(x, 0, 1));
    assert_int_equal(disco_count(x->n[1].d), 0);
    struct disco_why *w = disco_why(x->n[0].d);
    assert_true(w->other_group >= 1);
    assert_int_equal(w->malformed, 0);
    disco_why_free(w);
}

/* An error of an interface is one attempt's error (30 s of it, scaled). */
static unsigned failures(struct net *x)
{
    struct disco_why *w = disco_why(x->n[0].d);
    unsigned n = w->n_ifs ? (unsigned)w->ifs[0].failures : 0;
    disco_why_free(w);
    return n;
}

static void transient_error(void **state)
{
    struct net *x = *state;
    disco_bus_fail(x->bus, "a", 2, EHOSTUNREACH);
    rig_start(x, 0);
    rig_start(x, 1);
    UNTIL(x, failures(x) >= 2);
    assert_false(rig_knows(x, 1, 0));
    struct disco_why *w = disco_why(x->n[0].d);
    assert_int_equal(w->n_ifs, 1);
    assert_false(w->ifs[0].registered);
    assert_non_null(strstr(w->ifs[0].error, strerror(EHOSTUNREACH)));
    assert_non_null(strstr(w->ifs[0].says, "tried again in"));
    disco_why_free(w);
    assert_int_equal(rig_lines_with(&x->n[0], "cannot announce"),
                     1); /* one line, not one an attempt */
    disco_bus_fail(x->bus, "a", 2, 0);
    uint64_t t0 = clock_ns();
    UNTIL(x, rig_knows(x, 1, 0) && rig_knows(x, 0, 1));
    print_message("met %.2f intervals after the error was gone\n",
                  (double)(clock_ns() - t0) / (INTERVAL * 1e6));
    /* while connected peers are known, an error does not take them away */
    disco_bus_fail(x->bus, "a", 2, EHOSTUNREACH);
    rig_spin(x, INTERVAL);
    assert_true(rig_knows(x, 0, 1));
    assert_int_equal(x->n[0].removed, 0);
    disco_bus_fail(x->bus, "a", 2, 0);
    UNTIL(x, rig_knows(x, 1, 0));
}

static void responder_absent_and_back(void **state)
{
    struct net *x = *state;
    rig_start(x, 1);
    disco_bus_responder(x->bus, "a", false);
    rig_start(x, 0);
    rig_spin(x, 2 * INTERVAL);
    assert_int_equal(rig_lines_with(&x->n[0], "Bonjour does not answer"), 1);
    struct disco_why *w = disco_why(x->n[0].d);
    assert_false(w->responder);
    assert_non_null(strstr(w->says, "does not answer"));
    disco_why_free(w);
    disco_bus_responder(x->bus, "a", true);
    UNTIL(x, rig_knows(x, 1, 0) && rig_knows(x, 0, 1));
    assert_int_equal(rig_lines_with(&x->n[0], "Bonjour answers again"), 1);
    /* and again while running */
    disco_bus_responder(x->bus, "a", false);
    UNTIL(x, !rig_knows(x, 1, 0));
    disco_bus_responder(x->bus, "a", true);
    UNTIL(x, rig_knows(x, 1, 0) && rig_knows(x, 0, 1));
    assert_int_equal(x->n[0].removed, 0); /* b was there all the time */
    assert_true(disco_bus_announcements(x->bus, "a") < 30);
}

static void a_gone_node_is_swept(void **state)
{
    struct net *x = *state;
    rig_start(x, 0);
    rig_start(x, 1);
    UNTIL(x, rig_knows(x, 0, 1));
    disco_bus_responder(x->bus, "a", false); /* b leaves while a hears nothing */
    rig_spin(x, 40);
    rig_stop(x, 1);
    disco_bus_responder(x->bus, "a", true);
    UNTIL(x, !rig_knows(x, 0, 1));
}

static void names_clash(void **state)
{
    struct net *x = *state;
    struct disco_options o;
    for (int i = 0; i < 3; i++) {
        rig_options(x, i, &o);
        o.name = "My Mac";
        rig_start_with(x, i, &o);
    }
    UNTIL(x, disco_count(x->n[0].d) == 2 && disco_count(x->n[1].d) == 2 &&
                 disco_count(x->n[2].d) == 2);
    UNTIL(x, rig_lines_with(&x->n[2], "another node has the wished name") == 1);
    struct disco_why *w = disco_why(x->n[1].d);
    assert_string_equal(w->ifs[0].name, "My Mac-eth0 #2");
    disco_why_free(w);
}

static void late_interface_and_flaps(void **state)
{
    struct net *x = *state;
    disco_bus_if_up(x->bus, "a", 2, false);
    rig_start(x, 0);
    rig_start(x, 1);
    rig_spin(x, 100);
    assert_int_equal(disco_count(x->n[0].d), 0);
    disco_bus_if_up(x->bus, "a", 2, true);
    UNTIL(x, rig_knows(x, 0, 1) && rig_knows(x, 1, 0));
    disco_bus_if_up(x->bus, "a", 2, false);
    UNTIL(x, !rig_knows(x, 0, 1));
    uint64_t before = disco_bus_announcements(x->bus, "a");
    for (int i = 0; i < 12; i++) { /* an interface that comes and goes all the time */
        disco_bus_if_up(x->bus, "a", 2, i % 2);
        rig_spin(x, 50);
    }
    assert_true(disco_bus_announcements(x->bus, "a") - before <= 6);
    disco_bus_if_up(x->bus, "a", 2, true);
    UNTIL(x, rig_knows(x, 0, 1) && rig_knows(x, 1, 0));
}

static void several_interfaces(void **state)
{
    struct net *x = *state;
    for (int i = 0; i < 2; i++) {
        char a[32];
        snprintf(a, sizeof a, "192.168.9.%d", i + 1);
        assert_int_equal(disco_bus_addr(x->bus, rig_hosts[i], 3, "bridge0", 7, a, 24, NULL), 0);
        assert_int_equal(
            disco_bus_addr(x->bus, rig_hosts[i], 4, "docker0", 8, "172.17.0.1", 16, NULL), 0);
        rig_start(x, i);
    }
    UNTIL(x, rig_look(x, 0, rig_ids[1]).p.n_addrs == 3);
    assert_int_equal(disco_count(x->n[0].d), 1);
    assert_int_equal(x->n[0].added, 1);
    struct search s = rig_look(x, 0, rig_ids[1]);
    for (size_t i = 0; i < s.p.n_addrs; i++) {
        assert_null(strstr(s.p.addrs[i].text, "172.17"));
    }
    struct disco_why *w = disco_why(x->n[0].d);
    assert_int_equal(w->n_ifs, 3);
    unsigned on = 0;
    for (size_t i = 0; i < w->n_ifs; i++) {
        on += w->ifs[i].registered;
        assert_true(!w->ifs[i].net.virtual_if || !w->ifs[i].allowed);
    }
    assert_int_equal(on, 2);
    disco_why_free(w);
    /* the cable between them, measured, wins */
    struct sockaddr_storage a;
    rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_AUTHENTICATED, 0);
    rig_tell(x, 0, 1, "192.168.9.2:4001", DISCO_AUTHENTICATED, 0);
    addr_parse("10.0.0.2:4001", &a);
    disco_measured(x->n[0].d, rig_ids[1], (struct sockaddr *)&a, 1e7, 0.002);
    addr_parse("192.168.9.2:4001", &a);
    disco_measured(x->n[0].d, rig_ids[1], (struct sockaddr *)&a, 1e9, 0.0002);
    s = rig_look(x, 0, rig_ids[1]);
    assert_string_equal(s.p.addrs[0].text, "192.168.9.2:4001");
    /* that cable is pulled; one address of it is left, alive until reported closed */
    disco_bus_if_up(x->bus, "a", 3, false);
    rig_tell(x, 0, 1, "192.168.9.2:4001", DISCO_CLOSED, 0);
    s = rig_look(x, 0, rig_ids[1]);
    assert_true(s.found);
    assert_int_equal(s.p.live, 1);
    assert_int_equal(x->n[0].removed, 0);
}

static void sleep_and_wake(void **state)
{
    struct net *x = *state;
    rig_start(x, 0);
    rig_start(x, 1);
    UNTIL(x, rig_knows(x, 0, 1) && rig_knows(x, 1, 0));
    rig_spin(x, INTERVAL + 50); /* it has run for a while */
    disco_sleep(x->n[0].d);
    disco_sleep(x->n[0].d);
    UNTIL(x, !rig_knows(x, 1, 0));
    uint64_t before = disco_bus_announcements(x->bus, "a");
    rig_spin(x, INTERVAL);
    assert_int_equal(disco_bus_announcements(x->bus, "a"), before); /* asleep is asleep */
    disco_wake(x->n[0].d);
    UNTIL(x, rig_knows(x, 1, 0) && rig_knows(x, 0, 1));
    before = disco_bus_announcements(x->bus, "a");
    for (int i = 0; i < 20; i++) { /* a storm of wakes */
        disco_wake(x->n[0].d);
        rig_spin(x, 10);
    }
    assert_true(disco_bus_announcements(x->bus, "a") - before <= 5);
    assert_true(rig_knows(x, 1, 0) || (rig_spin(x, INTERVAL), rig_knows(x, 1, 0)));
}

/* The setting of macOS, by how this process was started; said once, and taken back when it is over.
 */
static void local_network_setting(void **state)
{
    struct net *x = *state;
    static const struct privacy_start agent = {.macos = 15, .by_launchd = true, .graphic = true};
    struct disco_options o;
    rig_options(x, 0, &o);
    o.start = &agent;
    rig_start_with(x, 0, &o);
    rig_start(x, 1);
    UNTIL(x, rig_knows(x, 0, 1));
    for (int i = 0; i < PRIVACY_TRIES; i++) {
        rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_UNREACHABLE, EHOSTUNREACH);
    }
    rig_spin(x, 50);
    assert_int_equal(rig_lines_with(&x->n[0], "Local Network"), 0); /* the network may be down */
    disco_outside(x->n[0].d, true);
    UNTIL(x, rig_lines_with(&x->n[0], "which launchd runs as an agent") == 1);
    struct disco_why *w = disco_why(x->n[0].d);
    assert_non_null(w);
    assert_non_null(strstr(w->notice, "allow shoal in System Settings"));
    disco_why_free(w);
    rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_CONNECTED, 0);
    UNTIL(x, rig_lines_with(&x->n[0], "is reached again") == 1);
    w = disco_why(x->n[0].d);
    assert_non_null(w);
    assert_string_equal(w->notice, "");
    disco_why_free(w);
    assert_int_equal(rig_lines_with(&x->n[0], "Local Network"), 1);
}

static void wake_keeps_back_off(void **state)
{
    struct net *x = *state;
    rig_start(x, 0);
    rig_start(x, 1);
    UNTIL(x, rig_knows(x, 0, 1));
    for (int i = 0; i < 8; i++) {
        rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_TIMEOUT, ETIMEDOUT);
    }
    disco_wake(x->n[0].d);
    rig_spin(x, 100);
    struct search s = rig_look(x, 0, rig_ids[1]);
    for (size_t i = 0; i < s.p.n_addrs; i++) {
        if (s.p.addrs[i].sa.ss_family == AF_INET) {
            assert_int_equal(s.p.addrs[i].fails, 8);
            assert_true(s.p.addrs[i].retry_ns <= clock_ns() + INTERVAL * UINT64_C(1000000));
        }
    }
    rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_TIMEOUT, ETIMEDOUT);
    s = rig_look(x, 0, rig_ids[1]);
    assert_true(s.p.addrs[s.p.n_addrs - 1].retry_ns > clock_ns() + UINT64_C(50000000000));
}

static void silent_death(void **state)
{
    struct net *x = *state;
    rig_start(x, 0);
    rig_start(x, 1);
    UNTIL(x, rig_knows(x, 0, 1));
    rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_AUTHENTICATED, 0);
    disco_bus_cut(x->bus, "b", true); /* power cut: no goodbye */
    rig_stop(x, 1);
    rig_spin(x, INTERVAL);
    assert_true(rig_announced(x, 0, 1)); /* the responder does not know */
    rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_DEAD, 0);
    assert_false(rig_announced(x, 0, 1));
    rig_spin(x, 7 * INTERVAL); /* resolving it again finds nobody */
    assert_false(rig_announced(x, 0, 1));
    struct search s = rig_look(x, 0, rig_ids[1]);
    assert_int_equal(s.p.live, 0);
    disco_bus_cut(x->bus, "b", false);
    rig_start(x, 1);
    UNTIL(x, rig_announced(x, 0, 1));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        T(they_meet),
        T(other_groups_are_counted),
        T(transient_error),
        T(responder_absent_and_back),
        T(a_gone_node_is_swept),
        T(names_clash),
        T(late_interface_and_flaps),
        T(several_interfaces),
        T(sleep_and_wake),
        T(wake_keeps_back_off),
        T(local_network_setting),
        T(silent_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
