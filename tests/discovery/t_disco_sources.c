/* SPDX-License-Identifier: MIT
 * t_disco_sources.c: named peers, inbound and remembered addresses, networks that are not allowed,
 * clones, options, and the explanation of it all. */
#include "bus_rig.h"

#include "discovery/addr.h"
#include "proto/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void multicast_blocked(void **state)
{
    struct net *x = *state;
    const char *peers[] = {"10.0.0.2:4001", "localhost:4009"};
    struct disco_options o;
    disco_bus_multicast(x->bus, 1, false);
    rig_options(x, 0, &o);
    o.static_peers = peers;
    o.n_static = 2;
    rig_start_with(x, 0, &o);
    rig_start(x, 1);
    UNTIL(x, rig_look(x, 0, peers[0]).p.n_addrs == 1 && rig_look(x, 0, peers[1]).p.n_addrs >= 1);
    assert_false(rig_knows(x, 0, 1));
    struct search s = rig_look(x, 0, peers[0]);
    assert_int_equal(s.p.addrs[0].sources, DISCO_STATIC);
    rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_CONNECTED, 0);
    rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_AUTHENTICATED, 0);
    s = rig_look(x, 0, rig_ids[1]);
    assert_true(s.found && s.p.live == 1);
    assert_string_equal(s.p.static_name, peers[0]);
    UNTIL(x, !rig_look(x, 0, peers[0]).found);
    /* one working direction is enough: b learns a from the connection */
    struct sockaddr_storage a;
    addr_parse("10.0.0.1:4000", &a);
    struct disco_report r = {.addr = (struct sockaddr *)&a,
                             .outcome = DISCO_AUTHENTICATED,
                             .as = rig_ids[0],
                             .inbound = true};
    disco_report(x->n[1].d, &r);
    UNTIL(x, x->n[1].added == 1);
    assert_true(rig_look(x, 1, rig_ids[0]).p.addrs[0].sources & DISCO_INBOUND);
    /* multicast comes back: the same rows */
    disco_bus_multicast(x->bus, 1, true);
    UNTIL(x, rig_announced(x, 0, 1) && rig_announced(x, 1, 0));
    assert_int_equal(disco_count(x->n[1].d), 1);
    assert_int_equal(disco_add_static(x->n[1].d, "no port", NULL), ERR_FORMAT);
    assert_int_equal(disco_add_static(x->n[1].d, "10.0.0.1:4000", NULL), 0);
    UNTIL(x, rig_look(x, 1, "10.0.0.1:4000").p.n_addrs == 1);
}

static void name_that_does_not_resolve(void **state)
{
    struct net *x = *state;
    const char *peers[] = {"no-such-host.invalid:4001"};
    struct disco_options o;
    rig_options(x, 0, &o);
    o.static_peers = peers;
    o.n_static = 1;
    rig_start_with(x, 0, &o);
    UNTIL(x,
          rig_lines_with(&x->n[0], "no-such-host.invalid:4001: ") >= 2); /* known, and the error */
    struct disco_why *w = disco_why(x->n[0].d);
    assert_int_equal(w->n_peers, 1);
    assert_non_null(strstr(w->peers[0].says, "no address: "));
    disco_why_free(w);
}

static void not_allowed_networks(void **state)
{
    struct net *x = *state;
    x->n[0].allowed = false;
    rig_start(x, 0);
    rig_start(x, 1);
    rig_spin(x, INTERVAL);
    assert_false(rig_knows(x, 1, 0) || rig_knows(x, 0, 1)); /* neither announced nor browsed */
    assert_int_equal(disco_bus_announcements(x->bus, "a"), 0);
    x->n[0].allowed = true;
    disco_network_changed(x->n[0].d);
    UNTIL(x, rig_knows(x, 1, 0) && rig_knows(x, 0, 1));
    x->n[0].allowed = false;
    disco_network_changed(x->n[0].d);
    UNTIL(x, !rig_knows(x, 1, 0));
}

static void address_change(void **state)
{
    struct net *x = *state;
    rig_start(x, 0);
    rig_start(x, 1);
    UNTIL(x, rig_knows(x, 0, 1));
    disco_bus_if_clear(x->bus, "b", 2);
    assert_int_equal(disco_bus_addr(x->bus, "b", 2, "eth0", 1, "10.0.0.77", 24, NULL), 0);
    UNTIL(x, !strcmp(rig_look(x, 0, rig_ids[1]).p.addrs[0].text, "10.0.0.77:4001"));
    assert_int_equal(rig_look(x, 0, rig_ids[1]).p.n_addrs, 1);
    assert_int_equal(disco_set_model(x->n[1].d, "nnnnnnnn", NULL), 0);
    UNTIL(x, !strcmp(rig_look(x, 0, rig_ids[1]).p.model, "nnnnnnnn"));
    assert_int_equal(disco_set_model(x->n[1].d, "N", NULL), ERR_ARG);
}

static void clone_is_noticed(void **state)
{
    struct net *x = *state;
    struct disco_options o;
    rig_start(x, 0);
    rig_spin(x, 50);
    struct disco_why *w = disco_why(x->n[0].d);
    assert_int_equal(w->clones, 0); /* hearing oneself is no clone */
    disco_why_free(w);
    rig_options(x, 1, &o);
    o.node = rig_ids[0];
    rig_start_with(x, 1, &o);
    UNTIL(x, rig_lines_with(&x->n[0], "announces this node's own id") == 1 &&
                 rig_lines_with(&x->n[1], "announces this node's own id") == 1);
    assert_int_equal(disco_count(x->n[0].d), 0);
    rig_spin(x, INTERVAL);
    assert_int_equal(rig_lines_with(&x->n[0], "announces this node's own id"), 1);
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
    rig_options(x, 0, &o);
    o.remember = path;
    rig_start_with(x, 0, &o);
    rig_start(x, 1);
    UNTIL(x, rig_knows(x, 0, 1));
    rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_AUTHENTICATED, 0);
    UNTIL(x, access(path, R_OK) == 0); /* saved while running, for a kill -9 */
    rig_stop(x, 0);
    disco_bus_multicast(x->bus, 1, false);
    rig_start_with(x, 0, &o);
    struct search s = rig_look(x, 0, rig_ids[1]);
    assert_true(s.found);
    assert_int_equal(s.p.n_addrs, 1);
    assert_string_equal(s.p.addrs[0].text, "10.0.0.2:4001");
    assert_int_equal(s.p.addrs[0].sources, DISCO_REMEMBERED);
    assert_int_equal(s.p.addrs[0].retry_ns, 0);
    UNTIL(x, x->n[0].added == 2);
    disco_forget(x->n[0].d, rig_ids[1]);
    UNTIL(x, !rig_knows(x, 0, 1));
    rig_stop(x, 0);
    struct err e = {0};
    assert_int_equal(file_write_atomic(path, "garbage\n\xff\xfe", 10, 0600, &e), 0);
    rig_start_with(x, 0, &o); /* a broken file costs its content only */
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
    rig_options(x, 0, &o);                                    \
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
    REFUSED(name, "bad \xff byte", ERR_ARG);
    REFUSED(name, "a name of more than forty-seven bytes is too long", ERR_ARG);
    REFUSED(bus_host, "nosuchhost", ERR_NOTFOUND);
    rig_options(x, 0, &o);
    o.static_peers = bad_peer;
    o.n_static = 1;
    assert_int_equal(disco_open(&x->loop, &o, &d, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "nothing"));
}

static void why_as_json(void **state)
{
    struct net *x = *state;
    struct buf b;
    rig_start(x, 0);
    rig_start(x, 1);
    UNTIL(x, rig_knows(x, 0, 1));
    rig_tell(x, 0, 1, "10.0.0.2:4001", DISCO_REFUSED, ECONNREFUSED);
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
#define T(f) cmocka_unit_test_setup_teardown(f, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        T(multicast_blocked),    T(name_that_does_not_resolve),
        T(not_allowed_networks), T(address_change),
        T(clone_is_noticed),     T(remembered_over_a_restart),
        T(options_are_checked),  T(why_as_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
