/* SPDX-License-Identifier: MIT
 * Small shoals in virtual time, with asserts: one copy from the origin however many are cold at
 * once, coverage within 1 % of the possible, moves within 1.1 of the least possible, no last copy
 * lost while there is room. */
#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void small(struct sim_opts *o, unsigned nodes, double of_model)
{
    sim_k3(o);
    o->nodes = nodes;
    o->layers = 12;
    o->experts = 256;
    o->top = 8;
    double share = of_model * 12 * 256 * (double)o->size / nodes;
    o->budget_min = share * 0.7;
    o->budget_max = share * 1.36; /* log-uniform: the mean is the share */
    o->seed = nodes * 100 + (uint64_t)(of_model * 10);
}

static void one_download_for_all(void **state)
{
    (void)state;
    for (unsigned nodes = 1; nodes <= 9; nodes += 2) {
        struct sim_opts o;
        struct sim_totals with, without;
        small(&o, nodes, 3 * nodes); /* room for all */
        struct sim *s = sim_open(&o);
        sim_decode(s, 6, true, true, &with);
        assert_int_equal(with.tokens, 6 * nodes);
        assert_int_equal(with.origin_bytes, sim_held(s, 1));
        assert_int_equal(with.lost, 0);
        sim_close(s);
        s = sim_open(&o);
        sim_decode(s, 6, true, false, &without);
        assert_true(without.origin_bytes <= with.origin_bytes * nodes);
        assert_true(nodes == 1 || without.origin_bytes > with.origin_bytes * 3 / 2);
        sim_close(s);
    }
}

static void coverage_and_moves(void **state)
{
    (void)state;
    static const double of[] = {0.5, 1.0, 1.5, 2.2};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        for (unsigned nodes = 2; nodes <= 16; nodes *= 2) {
            struct sim_opts o;
            struct sim_settled r;
            small(&o, nodes, of[i]);
            struct sim *s = sim_open(&o);
            sim_settle(s, true, NULL, &r);
            assert_true(r.covered >= 0.99);
            assert_true((double)r.moved <= 1.1 * (double)r.least);
            sim_join(s, sim_budgets(s) / nodes);
            sim_settle(s, true, NULL, &r);
            assert_true(r.covered >= 0.99);
            assert_true((double)r.moved <= 1.1 * (double)r.least + 1);
            sim_leave(s, nodes / 2);
            sim_settle(s, true, NULL, &r);
            print_message("%u nodes, %.1f: moved %.2f GB, least %.2f\n", nodes, of[i],
                          (double)r.moved * 1e-9, (double)r.least * 1e-9);
            assert_true(r.covered >= 0.99);
            assert_true((double)r.moved <= 1.1 * (double)r.least + 1);
            sim_close(s);
        }
    }
}

/* Everybody decodes something else: what is held together stays held. */
static void nothing_is_lost(void **state)
{
    (void)state;
    static const double of[] = {0.5, 1.0, 1.5};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        struct sim_opts o;
        struct sim_settled r;
        struct sim_totals t;
        small(&o, 5, of[i]);
        struct sim *s = sim_open(&o);
        sim_settle(s, true, NULL, &r);
        uint64_t before = sim_held(s, 1);
        sim_decode(s, 20, false, true, &t);
        assert_int_equal(t.lost, 0);
        assert_true(sim_held(s, 1) >= before);
        if (of[i] >= 1.5) { /* all is there: the origin is not asked */
            assert_int_equal(t.origin_bytes, 0);
            assert_true(t.lan_bytes > 0);
        }
        sim_close(s);
    }
}

static void a_plot_is_written(void **state)
{
    (void)state;
    char path[] = "/tmp/shoal-plot-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    const double x[] = {1, 2, 4}, y[] = {3, 2, 5};
    const struct plot_line l = {"a line", x, y, 3};
    assert_int_equal(plot_write(path, "title", "x", "y", true, &l, 1), 0);
    FILE *f = fopen(path, "r");
    char text[8000];
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    unlink(path);
    assert_non_null(strstr(text, "<polyline"));
    assert_non_null(strstr(text, "a line"));
    assert_string_equal(text + n - 7, "</svg>\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_download_for_all),
        cmocka_unit_test(coverage_and_moves),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(a_plot_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
