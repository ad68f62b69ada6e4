/* SPDX-License-Identifier: MIT
 * t_kill_node.c: kill -9, at random points, of the node that serves and of the one that fetches
 * from it. The answer and its receipt stay what they were, caches hold nothing but the model's
 * bytes, identity and membership are what they were, and the killed one serves again when it is
 * started again. */
#include "tests/faults/household.h"
#include "tests/peer/rng.h"

#include "peer/member.h"

#include <signal.h>
#include <time.h>

enum { KILLS = 20 };

static const char *const prompt[] = {"--ids",        "2819",         "--max-new", "48",
                                     "--ignore-eos", "--rate-limit", "12M",       NULL};

struct who {
    struct key_id id, group;
    uint64_t version;
    uint32_t members;
};

static struct who who_is(const char *home)
{
    struct who w;
    struct identity me;
    struct member m;
    struct err e = {0};
    ok(identity_open(home, NULL, &me, &e));
    ok(member_open(home, &me, &m, &e));
    assert_false(me.fresh);
    assert_true(m.in_group);
    memset(&w, 0, sizeof w);
    w.id = me.id;
    w.group = m.group;
    w.version = m.roster.version;
    w.members = (uint32_t)m.roster.members_n;
    member_close(&m);
    identity_close(&me);
    return w;
}

static struct household h;
static struct kit_mesh b;
static struct proc server;
static int port;
static struct who was_a, was_b;
static unsigned whole_a;

static void start_server(void)
{
    household_up(&h, &server, h.keeper.home, &port);
    household_peers(&b, &port, 1);
}

static void check_server(void)
{
    struct who w = who_is(h.keeper.home);
    assert_memory_equal(&w, &was_a, sizeof w);
    assert_int_equal(household_check(h.url, at(h.keeper.home, "cache")), whole_a);
}

static void test_kills(void **state)
{
    struct rng r = rng_start((uint64_t)time(NULL) * 1000003u + (uint64_t)getpid());
    char want[65], got[65];
    double from_peer = 0;
    int killed_a = 0, killed_b = 0;
    unsigned most =
        900; /* ms until a kill; halved when a run was over before, on a quick machine */
    household_open(&h);
    household_member(&h, &b);
    json_t *j = household_run(&h, h.keeper.home, prompt);
    snprintf(want, sizeof want, "%s", json_string_value(json_object_get(j, "receipt")));
    json_decref(j);
    was_a = who_is(h.keeper.home);
    was_b = who_is(b.home);
    whole_a = household_check(h.url, at(h.keeper.home, "cache"));
    assert_true(whole_a > 100);
    start_server();
    for (int i = 0; i < KILLS || (killed_a + killed_b < KILLS / 2 && i < 5 * KILLS); i++) {
        struct proc run;
        unsigned ms = 20 + rng_below(&r, most);
        bool kill_server = i % 2;
        if (i % 5 != 4) { /* now and then one that has all of it */
            household_fresh(&b);
            household_peers(&b, &port, 1);
        }
        household_start(&h, &run, b.home, false, prompt);
        proc_listen(&run, NULL, ms);
        most = run.pid || most < 40 ? most : most / 2;
        if (kill_server) {
            killed_a += run.pid != 0;
            proc_kill(&server, SIGKILL);
            assert_int_equal(proc_wait(&server, 20000), 128 + SIGKILL);
            proc_free(&server);
            proc_wait(&run, 100000); /* the origin has the rest */
            assert_string_equal(household_receipt(&run, got), want);
            check_server();
            start_server();
        } else {
            killed_b += run.pid != 0;
            proc_kill(&run, SIGKILL);
            proc_wait(&run, 20000);
        }
        proc_free(&run);
        struct who w = who_is(b.home);
        assert_memory_equal(&w.id, &was_b.id, sizeof w.id);
        assert_memory_equal(&w.group, &was_b.group, sizeof w.group);
        household_check(h.url, at(b.home, "cache"));
        /* again, to its end, with the server as it is now */
        j = household_run(&h, b.home, prompt);
        assert_string_equal(json_string_value(json_object_get(j, "receipt")), want);
        from_peer += household_stat(j, "peer_bytes");
        json_decref(j);
        assert_int_equal(household_check(h.url, at(b.home, "cache")), whole_a);
    }
    print_message("the server was killed %d times during a run, the fetching node %d times; %.1f "
                  "MB came from the server afterwards\n",
                  killed_a, killed_b, from_peer / 1e6);
    assert_true(killed_a + killed_b >= KILLS / 2);
    assert_true(from_peer > 0);
    proc_kill(&server, SIGTERM);
    assert_int_equal(proc_wait(&server, 20000), 0);
    check_server();
    proc_free(&server);
    kit_free(&b);
    household_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
