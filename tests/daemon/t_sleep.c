/* SPDX-License-Identifier: MIT
 * t_sleep.c: a machine that sleeps and wakes, and what its power and its network are. The system's
 * part of sleep.h is replaced here: the test tells what a Mac would. */
#include "tests/daemon/node_kit.h"

#include "node/daemon/power.h"
#include "node/daemon/sleep.h"

/* ---- in the system's place ---- */

static struct sleep_watch {
    void (*event)(void *ctx, enum sleep_event ev);
    void *ctx;
} watches[4];

struct sleep_watch *sleep_watch(void (*event)(void *ctx, enum sleep_event ev), void *ctx)
{
    for (size_t i = 0; i < 4; i++) {
        if (!watches[i].event) {
            watches[i] = (struct sleep_watch){event, ctx};
            return &watches[i];
        }
    }
    return NULL;
}

void sleep_unwatch(struct sleep_watch *w)
{
    w->event = NULL;
}

/* ---- the decision alone ---- */

struct counted {
    int slept, woke;
};

static void on_sleep(void *ctx)
{
    ((struct counted *)ctx)->slept++;
}

static void on_wake(void *ctx)
{
    ((struct counted *)ctx)->woke++;
}

static void test_order(void **state)
{
    (void)state;
    static const struct {
        enum sleep_event ev[6];
        int n, slept, woke;
    } cases[] = {
        {{SLEEP_ASKED, SLEEP_COMES, SLEEP_ENDS, SLEEP_IS_OVER}, 4, 1, 1}, /* as a Mac does it */
        {{SLEEP_COMES, SLEEP_IS_OVER}, 2, 1, 1},                          /* the lid */
        {{SLEEP_ASKED, SLEEP_OFF}, 2, 0, 0},                /* another program said no */
        {{SLEEP_ASKED}, 1, 0, 0},                           /* asked is not asleep */
        {{SLEEP_COMES, SLEEP_ENDS}, 2, 1, 0},               /* nothing before all is there */
        {{SLEEP_COMES, SLEEP_COMES, SLEEP_COMES}, 3, 1, 0}, /* once */
        {{SLEEP_IS_OVER, SLEEP_ENDS, SLEEP_OFF}, 3, 0, 0},  /* an end without a beginning */
        {{SLEEP_COMES, SLEEP_OFF, SLEEP_COMES, SLEEP_IS_OVER, SLEEP_IS_OVER}, 5, 2, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct counted c = {0};
        struct sleeper s;
        sleeper_init(&s, on_sleep, on_wake, &c);
        for (int k = 0; k < cases[i].n; k++) {
            sleeper_event(&s, cases[i].ev[k]);
        }
        assert_int_equal(c.slept, cases[i].slept);
        assert_int_equal(c.woke, cases[i].woke);
        sleeper_free(&s);
    }
}

/* ---- whole nodes ---- */

static void say(int node, enum sleep_event ev)
{
    watches[node].event(watches[node].ctx, ev);
}

/* The other hears why it went, does not call it dead, and has it back. */
static void test_nodes(void **state)
{
    struct kit_node a, b;
    (void)state;
    kit_keeper(&a);
    kit_member(&b, &a);
    kit_open(&a, NULL, NULL);
    kit_open(&b, NULL, &a);
    kit_connected(&a, 1);
    assert_non_null(watches[0].event);
    assert_non_null(watches[1].event);
    for (int round = 0; round < 2; round++) {
        say(1, SLEEP_ASKED);
        assert_int_equal(kit_status(&b, "connected"), 1);
        say(1, SLEEP_COMES);
        /* when the system may go on, no connection is left */
        assert_int_equal(kit_status(&b, "connected"), 0);
        until(kit_status(&a, "connected") == 0);
        until(util_log_has(&a.log, "the peer goes to sleep") == round + 1);
        say(1, SLEEP_ENDS);
        assert_int_equal(kit_status(&b, "connected"), 0);
        say(1, SLEEP_IS_OVER);
        kit_connected(&a, 1);
        kit_connected(&b, 1);
    }
    say(1, SLEEP_COMES); /* and closes asleep */
    kit_end(&b);
    assert_null(watches[1].event);
    kit_end(&a);
    assert_null(watches[0].event);
}

/* ---- power ---- */

static void test_power(void **state)
{
    (void)state;
#define U POWER_NOT_SAID
#define N POWER_NO
#define Y POWER_YES
    static const struct {
        struct power_reading r;
        bool battery, costly;
        const char *words;
    } cases[] = {
        {{U, U, U, U}, false, false, ""},
        {{N, N, N, N}, false, false, ""}, /* a desktop: no battery */
        {{Y, Y, N, N}, false, false, ""}, /* at its charger */
        {{Y, N, N, N}, true, false, "battery"},
        {{Y, U, U, U}, true, false, "battery"},
        {{N, U, Y, N}, false, true, "if it does not"}, /* a phone's network */
        {{N, U, N, Y}, false, true, "Low Data Mode"},
        {{Y, N, Y, Y}, true, true, "battery"},
        {{Y, Y, Y, Y}, false, true, "Low Data Mode"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct power p;
        power_judge(&cases[i].r, &p);
        assert_int_equal(p.on_battery, cases[i].battery);
        assert_int_equal(p.costly_network, cases[i].costly);
        const char *w = power_words(&p, false);
        assert_true(*cases[i].words ? strstr(w, cases[i].words) != NULL : !*w);
    }
    struct power asked = {.costly_network = true};
    assert_non_null(strstr(power_words(&asked, true), "--metered yes"));
    struct power_reading r; /* whatever this machine says, it is said without a fault */
    power_read(&r);
    assert_true(r.battery <= POWER_YES && r.outside <= POWER_YES && r.expensive <= POWER_YES &&
                r.constrained <= POWER_YES);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_nodes),
                                   cmocka_unit_test(test_power)};
    return cmocka_run_group_tests_name("sleep", t, NULL, NULL);
}
