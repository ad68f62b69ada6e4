/* SPDX-License-Identifier: MIT
 * t_disco_bus.c: several discos on one loop over the network in memory: they find each other, lose
 * each other, and recover from what networks do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "discovery/addr.h"
#include "discovery/bus.h"
#include "discovery/disco.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL 300 /* ms, in place of 30 s */
#define N 4

static const char *const ids[N] = {"aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"};
static const char *const hosts[N] = {"a", "b", "c", "d"};

struct node {
    struct net *net;
    struct disco *d;
    unsigned added, changed, removed;
    char log[8192];
    bool allowed;
};

struct net {
    uv_loop_t loop;
    uv_timer_t timer;
    bool timed_out;
    struct disco_bus *bus;
    struct node n[N];
    unsigned open;
    char dir[64];
};

static void on_peer(void *ctx, const struct disco_peer *p, enum disco_event ev)
{
    struct node *n = ctx;
    n->added += ev == DISCO_ADDED;
    n->changed += ev == DISCO_CHANGED;
    n->removed += ev == DISCO_REMOVED;
    assert_true(p->node[0] || p->static_name[0]);
}

static void on_log(void *ctx, const char *line)
{
    struct node *n = ctx;
    size_t k = strlen(n->log);
    snprintf(n->log + k, sizeof n->log - k, "%s\n", line);
    if (getenv("DISCO_LOG")) {
        fprintf(stderr, "%s: %s\n", hosts[n - n->net->n], line);
    }
}

static bool allow(void *ctx, const struct disco_if *net)
{
    return ((struct node *)ctx)->allowed && !net->virtual_if;
}

static unsigned lines_with(const struct node *n, const char *what)
{
    unsigned k = 0;
    for (const char *p = n->log; (p = strstr(p, what)); p++) {
        k++;
    }
    return k;
}

static void timed(uv_timer_t *t)
{
    ((struct net *)t->data)->timed_out = true;
}

static void spin(struct net *x, unsigned ms)
{
    x->timed_out = false;
    uv_timer_start(&x->timer, timed, ms, 0);
    while (!x->timed_out) {
        uv_run(&x->loop, UV_RUN_ONCE);
    }
}

/* Runs the loop until `cond` holds, at most 10 s. */
#define UNTIL(x, cond)                                \
    do {                                              \
        (x)->timed_out = false;                       \
        uv_timer_start(&(x)->timer, timed, 10000, 0); \
        while (!(cond) && !(x)->timed_out) {          \
            uv_run(&(x)->loop, UV_RUN_ONCE);          \
        }                                             \
        uv_timer_stop(&(x)->timer);                   \
        assert_true(cond);                            \
    } while (0)

static void opts(struct net *x, int i, struct disco_options *o)
{
    *o = (struct disco_options){.node = ids[i],
                                .group = "gggggggg",
                                .model = "mmmmmmmm",
                                .version = 1,
                                .port = (uint16_t)(4000 + i),
                                .interval_ms = INTERVAL,
                                .poll_ms = 20,
                                .bus = x->bus,
                                .bus_host = hosts[i],
                                .ctx = &x->n[i],
                                .allow = allow,
                                .on_peer = on_peer,
                                .log = on_log};
}

static void start_with(struct net *x, int i, const struct disco_options *o)
{
    struct err e = {0};
    if (disco_open(&x->loop, o, &x->n[i].d, &e)) {
        fail_msg("%s", e.msg);
    }
    x->open++;
}

static void start(struct net *x, int i)
{
    struct disco_options o;
    opts(x, i, &o);
    start_with(x, i, &o);
}

static void closed(void *ctx)
{
    ((struct net *)ctx)->open--;
}

static void stop(struct net *x, int i)
{
    unsigned want = x->open - 1;
    disco_close(x->n[i].d, closed, x);
    x->n[i].d = NULL;
    UNTIL(x, x->open == want);
}

static int set_up(void **state)
{
    struct net *x = calloc(1, sizeof *x);
    assert_non_null(x);
    uv_loop_init(&x->loop);
    uv_timer_init(&x->loop, &x->timer);
    x->timer.data = x;
    x->bus = disco_bus_new();
    snprintf(x->dir, sizeof x->dir, "/tmp/t_disco_bus.XXXXXX");
    assert_non_null(mkdtemp(x->dir));
    for (int i = 0; i < N; i++) {
        char a[32];
        x->n[i].net = x;
        x->n[i].allowed = true;
        snprintf(a, sizeof a, "10.0.0.%d", i + 1);
        assert_int_equal(disco_bus_addr(x->bus, hosts[i], 2, "eth0", 1, a, 24, NULL), 0);
        snprintf(a, sizeof a, "fe80::%d", i + 1);
        assert_int_equal(disco_bus_addr(x->bus, hosts[i], 2, "eth0", 1, a, 64, NULL), 0);
    }
    *state = x;
    return 0;
}

static int tear_down(void **state)
{
    struct net *x = *state;
    for (int i = 0; i < N; i++) {
        if (x->n[i].d) {
            stop(x, i);
        }
    }
    uv_close((uv_handle_t *)&x->timer, NULL);
    uv_run(&x->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&x->loop), 0); /* no handle is left */
    disco_bus_free(x->bus);
    char path[96];
    snprintf(path, sizeof path, "%s/peers", x->dir);
    unlink(path);
    assert_int_equal(rmdir(x->dir), 0);
    free(x);
    return 0;
}

struct search {
    const char *node;
    struct disco_peer p;
    bool found;
};

static void match(void *ctx, const struct disco_peer *p)
{
    struct search *s = ctx;
    if (!strcmp(p->node[0] ? p->node : p->static_name, s->node)) {
        s->p = *p;
        s->found = true;
    }
}

static struct search look(struct net *x, int i, const char *node)
{
    struct search s = {.node = node};
    disco_each(x->n[i].d, match, &s);
    return s;
}

static bool knows(struct net *x, int i, int j)
{
    return look(x, i, ids[j]).found;
}

static bool announced(struct net *x, int i, int j)
{
    struct search s = look(x, i, ids[j]);
    return s.found && s.p.announced;
}

static void tell(struct net *x, int i, int j, const char *addr, enum disco_outcome o, int sys)
{
    struct sockaddr_storage a;
    assert_int_equal(addr_parse(addr, &a), 0);
    struct disco_report r = {.node = ids[j],
                             .addr = (struct sockaddr *)&a,
                             .outcome = o,
                             .as = o == DISCO_AUTHENTICATED ? ids[j] : NULL,
                             .sys = sys,
                             .text = "told by the test"};
    disco_report(x->n[i].d, &r);
}

/* ---- */

static void they_meet(void **state)
{
    struct net *x = *state;
    for (int i = 0; i < 3; i++) {
        start(x, i);
    }
    UNTIL(x, disco_count(x->n[0].d) == 2 && disco_count(x->n[1].d) == 2 &&
                 disco_count(x->n[2].d) == 2);
    struct search s = look(x, 0, ids[1]);
    assert_int_equal(s.p.n_addrs, 2);
    assert_string_equal(s.p.addrs[0].text, "10.0.0.2:4001");
    assert_int_equal(s.p.addrs[0].sources, DISCO_BONJOUR);
    assert_string_equal(s.p.addrs[0].ifname, "eth0");
    assert_int_equal(s.p.addrs[1].sa.ss_family, AF_INET6);
    assert_int_equal(addr_scope(&s.p.addrs[1].sa), 2);
    assert_string_equal(s.p.model, "mmmmmmmm");
    assert_int_equal(s.p.version, 1);
    assert_string_equal(s.p.instance, "shoal-bbbbbbbb");
    spin(x, 2 * INTERVAL); /* resolving again and again is no news */
    assert_int_equal(x->n[0].added, 2);
    assert_int_equal(x->n[0].changed + x->n[0].removed, 0);
    stop(x, 1);
    UNTIL(x, !knows(x, 0, 1) && !knows(x, 2, 1));
    UNTIL(x, x->n[0].removed == 1);
    start(x, 1);
    UNTIL(x, knows(x, 0, 1) && knows(x, 2, 1));
}

static void other_groups_are_counted(void **state)
{
    struct net *x = *state;
    struct disco_options o;
    start(x, 0);
    opts(x, 1, &o);
    o.group = "hhhhhhhh";
    start_with(x, 1, &o);
    start(x, 2);
    UNTIL(x, knows(x, 0, 2) && knows(x, 2, 0));
    spin(x, 50);
    assert_false(knows(x, 0, 1));
    assert_int_equal(disco_count(x->n[1].d), 0);
    struct disco_why *w = disco_why(x->n[0].d);
    assert_true(w->other_group >= 1);
    assert_int_equal(w->malformed, 0);
    disco_why_free(w);
}

/* An error of an interface is one attempt's error (30 s of it, scaled). */
static void transient_error(void **state)
{
    struct net *x = *state;
    disco_bus_fail(x->bus, "a", 2, EHOSTUNREACH);
    start(x, 0);
    start(x, 1);
    spin(x, INTERVAL);
    assert_false(knows(x, 1, 0));
    struct disco_why *w = disco_why(x->n[0].d);
    assert_int_equal(w->n_ifs, 1);
    assert_false(w->ifs[0].registered);
    assert_true(w->ifs[0].failures >= 2);
    assert_non_null(strstr(w->ifs[0].error, strerror(EHOSTUNREACH)));
    assert_non_null(strstr(w->ifs[0].says, "tried again in"));
    disco_why_free(w);
    assert_int_equal(lines_with(&x->n[0], "cannot announce"), 1); /* one line, not one an attempt */
    disco_bus_fail(x->bus, "a", 2, 0);
    uint64_t t0 = clock_ns();
    UNTIL(x, knows(x, 1, 0) && knows(x, 0, 1));
    assert_true(clock_ns() - t0 <
                2 * INTERVAL * UINT64_C(1000000)); /* 1, and slack for a busy machine */
    /* while connected peers are known, an error does not take them away */
    disco_bus_fail(x->bus, "a", 2, EHOSTUNREACH);
    spin(x, INTERVAL);
    assert_true(knows(x, 0, 1));
    assert_int_equal(x->n[0].removed, 0);
    disco_bus_fail(x->bus, "a", 2, 0);
    UNTIL(x, knows(x, 1, 0));
}

static void responder_absent_and_back(void **state)
{
    struct net *x = *state;
    start(x, 1);
    disco_bus_responder(x->bus, "a", false);
    start(x, 0);
    spin(x, 2 * INTERVAL);
    assert_int_equal(lines_with(&x->n[0], "Bonjour does not answer"), 1);
    struct disco_why *w = disco_why(x->n[0].d);
    assert_false(w->responder);
    assert_non_null(strstr(w->says, "does not answer"));
    disco_why_free(w);
    disco_bus_responder(x->bus, "a", true);
    UNTIL(x, knows(x, 1, 0) && knows(x, 0, 1));
    assert_int_equal(lines_with(&x->n[0], "Bonjour answers again"), 1);
    /* and again while running */
    disco_bus_responder(x->bus, "a", false);
    UNTIL(x, !knows(x, 1, 0));
    disco_bus_responder(x->bus, "a", true);
    UNTIL(x, knows(x, 1, 0) && knows(x, 0, 1));
    assert_int_equal(x->n[0].removed, 0); /* b was there all the time */
    assert_true(disco_bus_announcements(x->bus, "a") < 30);
}

static void a_gone_node_is_swept(void **state)
{
    struct net *x = *state;
    start(x, 0);
    start(x, 1);
    UNTIL(x, knows(x, 0, 1));
    disco_bus_responder(x->bus, "a", false); /* b leaves while a hears nothing */
    spin(x, 40);
    stop(x, 1);
    disco_bus_responder(x->bus, "a", true);
    UNTIL(x, !knows(x, 0, 1));
}

static void names_clash(void **state)
{
    struct net *x = *state;
    struct disco_options o;
    for (int i = 0; i < 3; i++) {
        opts(x, i, &o);
        o.name = "My Mac";
        start_with(x, i, &o);
    }
    UNTIL(x, disco_count(x->n[0].d) == 2 && disco_count(x->n[1].d) == 2 &&
                 disco_count(x->n[2].d) == 2);
    UNTIL(x, lines_with(&x->n[2], "another node has the wished name") == 1);
    struct disco_why *w = disco_why(x->n[1].d);
    assert_string_equal(w->ifs[0].name, "My Mac #2");
    disco_why_free(w);
}

static void late_interface_and_flaps(void **state)
{
    struct net *x = *state;
    disco_bus_if_up(x->bus, "a", 2, false);
    start(x, 0);
    start(x, 1);
    spin(x, 100);
    assert_int_equal(disco_count(x->n[0].d), 0);
    disco_bus_if_up(x->bus, "a", 2, true);
    UNTIL(x, knows(x, 0, 1) && knows(x, 1, 0));
    disco_bus_if_up(x->bus, "a", 2, false);
    UNTIL(x, !knows(x, 0, 1));
    uint64_t before = disco_bus_announcements(x->bus, "a");
    for (int i = 0; i < 12; i++) { /* an interface that comes and goes all the time */
        disco_bus_if_up(x->bus, "a", 2, i % 2);
        spin(x, 50);
    }
    assert_true(disco_bus_announcements(x->bus, "a") - before <= 6);
    disco_bus_if_up(x->bus, "a", 2, true);
    UNTIL(x, knows(x, 0, 1) && knows(x, 1, 0));
}

static void several_interfaces(void **state)
{
    struct net *x = *state;
    for (int i = 0; i < 2; i++) {
        char a[32];
        snprintf(a, sizeof a, "192.168.9.%d", i + 1);
        assert_int_equal(disco_bus_addr(x->bus, hosts[i], 3, "bridge0", 7, a, 24, NULL), 0);
        assert_int_equal(disco_bus_addr(x->bus, hosts[i], 4, "docker0", 8, "172.17.0.1", 16, NULL),
                         0);
        start(x, i);
    }
    UNTIL(x, look(x, 0, ids[1]).p.n_addrs == 3);
    assert_int_equal(disco_count(x->n[0].d), 1);
    assert_int_equal(x->n[0].added, 1);
    struct search s = look(x, 0, ids[1]);
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
    tell(x, 0, 1, "10.0.0.2:4001", DISCO_AUTHENTICATED, 0);
    tell(x, 0, 1, "192.168.9.2:4001", DISCO_AUTHENTICATED, 0);
    addr_parse("10.0.0.2:4001", &a);
    disco_measured(x->n[0].d, ids[1], (struct sockaddr *)&a, 1e7, 0.002);
    addr_parse("192.168.9.2:4001", &a);
    disco_measured(x->n[0].d, ids[1], (struct sockaddr *)&a, 1e9, 0.0002);
    s = look(x, 0, ids[1]);
    assert_string_equal(s.p.addrs[0].text, "192.168.9.2:4001");
    /* that cable is pulled; one address of it is left, alive until reported closed */
    disco_bus_if_up(x->bus, "a", 3, false);
    tell(x, 0, 1, "192.168.9.2:4001", DISCO_CLOSED, 0);
    s = look(x, 0, ids[1]);
    assert_true(s.found);
    assert_int_equal(s.p.live, 1);
    assert_int_equal(x->n[0].removed, 0);
}

static void sleep_and_wake(void **state)
{
    struct net *x = *state;
    start(x, 0);
    start(x, 1);
    UNTIL(x, knows(x, 0, 1) && knows(x, 1, 0));
    spin(x, INTERVAL + 50); /* it has run for a while */
    disco_sleep(x->n[0].d);
    disco_sleep(x->n[0].d);
    UNTIL(x, !knows(x, 1, 0));
    uint64_t before = disco_bus_announcements(x->bus, "a");
    spin(x, INTERVAL);
    assert_int_equal(disco_bus_announcements(x->bus, "a"), before); /* asleep is asleep */
    disco_wake(x->n[0].d);
    UNTIL(x, knows(x, 1, 0) && knows(x, 0, 1));
    before = disco_bus_announcements(x->bus, "a");
    for (int i = 0; i < 20; i++) { /* a storm of wakes */
        disco_wake(x->n[0].d);
        spin(x, 10);
    }
    assert_true(disco_bus_announcements(x->bus, "a") - before <= 5);
    assert_true(knows(x, 1, 0) || (spin(x, INTERVAL), knows(x, 1, 0)));
}

static void wake_keeps_back_off(void **state)
{
    struct net *x = *state;
    start(x, 0);
    start(x, 1);
    UNTIL(x, knows(x, 0, 1));
    for (int i = 0; i < 8; i++) {
        tell(x, 0, 1, "10.0.0.2:4001", DISCO_TIMEOUT, ETIMEDOUT);
    }
    disco_wake(x->n[0].d);
    spin(x, 100);
    struct search s = look(x, 0, ids[1]);
    for (size_t i = 0; i < s.p.n_addrs; i++) {
        if (s.p.addrs[i].sa.ss_family == AF_INET) {
            assert_int_equal(s.p.addrs[i].fails, 8);
            assert_true(s.p.addrs[i].retry_ns <= clock_ns() + INTERVAL * UINT64_C(1000000));
        }
    }
    tell(x, 0, 1, "10.0.0.2:4001", DISCO_TIMEOUT, ETIMEDOUT);
    s = look(x, 0, ids[1]);
    assert_true(s.p.addrs[s.p.n_addrs - 1].retry_ns > clock_ns() + UINT64_C(50000000000));
}

static void silent_death(void **state)
{
    struct net *x = *state;
    start(x, 0);
    start(x, 1);
    UNTIL(x, knows(x, 0, 1));
    tell(x, 0, 1, "10.0.0.2:4001", DISCO_AUTHENTICATED, 0);
    disco_bus_cut(x->bus, "b", true); /* power cut: no goodbye */
    stop(x, 1);
    spin(x, INTERVAL);
    assert_true(announced(x, 0, 1)); /* the responder does not know */
    tell(x, 0, 1, "10.0.0.2:4001", DISCO_DEAD, 0);
    assert_false(announced(x, 0, 1));
    spin(x, 7 * INTERVAL); /* resolving it again finds nobody */
    assert_false(announced(x, 0, 1));
    struct search s = look(x, 0, ids[1]);
    assert_int_equal(s.p.live, 0);
    disco_bus_cut(x->bus, "b", false);
    start(x, 1);
    UNTIL(x, announced(x, 0, 1));
}

static void multicast_blocked(void **state)
{
    struct net *x = *state;
    const char *peers[] = {"10.0.0.2:4001", "localhost:4009"};
    struct disco_options o;
    disco_bus_multicast(x->bus, 1, false);
    opts(x, 0, &o);
    o.static_peers = peers;
    o.n_static = 2;
    start_with(x, 0, &o);
    start(x, 1);
    UNTIL(x, look(x, 0, peers[0]).p.n_addrs == 1 && look(x, 0, peers[1]).p.n_addrs >= 1);
    assert_false(knows(x, 0, 1));
    struct search s = look(x, 0, peers[0]);
    assert_int_equal(s.p.addrs[0].sources, DISCO_STATIC);
    tell(x, 0, 1, "10.0.0.2:4001", DISCO_CONNECTED, 0);
    tell(x, 0, 1, "10.0.0.2:4001", DISCO_AUTHENTICATED, 0);
    s = look(x, 0, ids[1]);
    assert_true(s.found && s.p.live == 1);
    assert_string_equal(s.p.static_name, peers[0]);
    UNTIL(x, !look(x, 0, peers[0]).found);
    /* one working direction is enough: b learns a from the connection */
    struct sockaddr_storage a;
    addr_parse("10.0.0.1:4000", &a);
    struct disco_report r = {.addr = (struct sockaddr *)&a,
                             .outcome = DISCO_AUTHENTICATED,
                             .as = ids[0],
                             .inbound = true};
    disco_report(x->n[1].d, &r);
    UNTIL(x, x->n[1].added == 1);
    assert_true(look(x, 1, ids[0]).p.addrs[0].sources & DISCO_INBOUND);
    /* multicast comes back: the same rows */
    disco_bus_multicast(x->bus, 1, true);
    UNTIL(x, announced(x, 0, 1) && announced(x, 1, 0));
    assert_int_equal(disco_count(x->n[1].d), 1);
    assert_int_equal(disco_add_static(x->n[1].d, "no port", NULL), ERR_FORMAT);
    assert_int_equal(disco_add_static(x->n[1].d, "10.0.0.1:4000", NULL), 0);
    UNTIL(x, look(x, 1, "10.0.0.1:4000").p.n_addrs == 1);
}

static void name_that_does_not_resolve(void **state)
{
    struct net *x = *state;
    const char *peers[] = {"no-such-host.invalid:4001"};
    struct disco_options o;
    opts(x, 0, &o);
    o.static_peers = peers;
    o.n_static = 1;
    start_with(x, 0, &o);
    UNTIL(x, lines_with(&x->n[0], "no-such-host.invalid:4001: ") >= 2); /* known, and the error */
    struct disco_why *w = disco_why(x->n[0].d);
    assert_int_equal(w->n_peers, 1);
    assert_non_null(strstr(w->peers[0].says, "no address: "));
    disco_why_free(w);
}

static void not_allowed_networks(void **state)
{
    struct net *x = *state;
    x->n[0].allowed = false;
    start(x, 0);
    start(x, 1);
    spin(x, INTERVAL);
    assert_false(knows(x, 1, 0) || knows(x, 0, 1)); /* neither announced nor browsed */
    assert_int_equal(disco_bus_announcements(x->bus, "a"), 0);
    x->n[0].allowed = true;
    disco_network_changed(x->n[0].d);
    UNTIL(x, knows(x, 1, 0) && knows(x, 0, 1));
    x->n[0].allowed = false;
    disco_network_changed(x->n[0].d);
    UNTIL(x, !knows(x, 1, 0));
}

static void address_change(void **state)
{
    struct net *x = *state;
    start(x, 0);
    start(x, 1);
    UNTIL(x, knows(x, 0, 1));
    disco_bus_if_clear(x->bus, "b", 2);
    assert_int_equal(disco_bus_addr(x->bus, "b", 2, "eth0", 1, "10.0.0.77", 24, NULL), 0);
    UNTIL(x, !strcmp(look(x, 0, ids[1]).p.addrs[0].text, "10.0.0.77:4001"));
    assert_int_equal(look(x, 0, ids[1]).p.n_addrs, 1);
    assert_int_equal(disco_set_model(x->n[1].d, "nnnnnnnn", NULL), 0);
    UNTIL(x, !strcmp(look(x, 0, ids[1]).p.model, "nnnnnnnn"));
    assert_int_equal(disco_set_model(x->n[1].d, "N", NULL), ERR_ARG);
}

static void clone_is_noticed(void **state)
{
    struct net *x = *state;
    struct disco_options o;
    start(x, 0);
    spin(x, 50);
    struct disco_why *w = disco_why(x->n[0].d);
    assert_int_equal(w->clones, 0); /* hearing oneself is no clone */
    disco_why_free(w);
    opts(x, 1, &o);
    o.node = ids[0];
    start_with(x, 1, &o);
    UNTIL(x, lines_with(&x->n[0], "announces this node's own id") == 1 &&
                 lines_with(&x->n[1], "announces this node's own id") == 1);
    assert_int_equal(disco_count(x->n[0].d), 0);
    spin(x, INTERVAL);
    assert_int_equal(lines_with(&x->n[0], "announces this node's own id"), 1);
    w = disco_why(x->n[0].d);
    assert_true(w->clones >= 1);
    assert_non_null(strstr(w->notice, "10.0.0.2:4001"));
    disco_why_free(w);
}

static void remembered_over_a_restart(void **state)
{
    struct net *x = *state;
    struct disco_options o;
    char path[96];
    snprintf(path, sizeof path, "%s/peers", x->dir);
    opts(x, 0, &o);
    o.remember = path;
    start_with(x, 0, &o);
    start(x, 1);
    UNTIL(x, knows(x, 0, 1));
    tell(x, 0, 1, "10.0.0.2:4001", DISCO_AUTHENTICATED, 0);
    UNTIL(x, access(path, R_OK) == 0); /* saved while running, for a kill -9 */
    stop(x, 0);
    disco_bus_multicast(x->bus, 1, false);
    start_with(x, 0, &o);
    struct search s = look(x, 0, ids[1]);
    assert_true(s.found);
    assert_int_equal(s.p.n_addrs, 1);
    assert_string_equal(s.p.addrs[0].text, "10.0.0.2:4001");
    assert_int_equal(s.p.addrs[0].sources, DISCO_REMEMBERED);
    assert_int_equal(s.p.addrs[0].retry_ns, 0);
    UNTIL(x, x->n[0].added == 2);
    disco_forget(x->n[0].d, ids[1]);
    UNTIL(x, !knows(x, 0, 1));
    stop(x, 0);
    struct err e = {0};
    assert_int_equal(file_write_atomic(path, "garbage\n\xff\xfe", 10, 0600, &e), 0);
    start_with(x, 0, &o); /* a broken file costs its content only */
    assert_int_equal(disco_count(x->n[0].d), 0);
}

static void options_are_checked(void **state)
{
    struct net *x = *state;
    struct disco_options o;
    struct disco *d;
    struct err e = {0};
    const char *bad_peer[] = {"nothing"};
#define REFUSED(field, value, code)                           \
    opts(x, 0, &o);                                           \
    o.field = value;                                          \
    assert_int_equal(disco_open(&x->loop, &o, &d, &e), code); \
    assert_null(d)
    REFUSED(node, "UPPER123", ERR_ARG);
    REFUSED(node, "short", ERR_ARG);
    REFUSED(node, NULL, ERR_ARG);
    REFUSED(group, "waytoolongwaytoolongwaytoolongwaytoolong", ERR_ARG);
    REFUSED(version, 0, ERR_ARG);
    REFUSED(port, 0, ERR_ARG);
    REFUSED(name, "", ERR_ARG);
    REFUSED(bus_host, "nosuchhost", ERR_NOTFOUND);
    opts(x, 0, &o);
    o.static_peers = bad_peer;
    o.n_static = 1;
    assert_int_equal(disco_open(&x->loop, &o, &d, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "nothing"));
}

static void why_as_json(void **state)
{
    struct net *x = *state;
    struct buf b;
    start(x, 0);
    start(x, 1);
    UNTIL(x, knows(x, 0, 1));
    tell(x, 0, 1, "10.0.0.2:4001", DISCO_REFUSED, ECONNREFUSED);
    struct disco_why *w = disco_why(x->n[0].d);
    assert_non_null(w);
    buf_init(&b, 1 << 20);
    assert_int_equal(disco_why_json(w, &b, NULL), 0);
    const char *parts[] = {"\"interfaces\":[{\"name\":\"eth0\"",
                           "\"registered\":true",
                           "\"addresses\":[\"10.0.0.1/24\"",
                           "\"node\":\"bbbbbbbb\"",
                           "\"outcome\":\"refused\"",
                           "\"text\":\"told by the test\"",
                           "\"sources\":[\"bonjour\"]",
                           "\"counters\":{"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!strstr(b.p, parts[i])) {
            fail_msg("%s is not in %s", parts[i], b.p);
        }
    }
    int depth = 0;
    bool text = false;
    for (size_t i = 0; i < b.n; i++) { /* well formed as far as brackets and quotes go */
        if (text) {
            i += b.p[i] == '\\';
            text = b.p[i] != '"' || b.p[i - 1] == '\\';
        } else {
            text = b.p[i] == '"';
            depth += b.p[i] == '{' || b.p[i] == '[';
            depth -= b.p[i] == '}' || b.p[i] == ']';
        }
        assert_true((unsigned char)b.p[i] >= 0x20);
    }
    assert_int_equal(depth, 0);
    assert_false(text);
    buf_free(&b);
    buf_init(&b, 100); /* a limit is an error, not a cut text */
    assert_int_equal(disco_why_json(w, &b, NULL), ERR_LIMIT);
    buf_free(&b);
    disco_why_free(w);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
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
        T(silent_death),
        T(multicast_blocked),
        T(name_that_does_not_resolve),
        T(not_allowed_networks),
        T(address_change),
        T(clone_is_noticed),
        T(remembered_over_a_restart),
        T(options_are_checked),
        T(why_as_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
