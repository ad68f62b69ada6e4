/* SPDX-License-Identifier: MIT
 * sim_main.c: the runs of README.md at K3's size: `shoal_simulate FOLDER` prints tables and writes
 * the plots into FOLDER. */
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define GB 1e9

static const unsigned sizes[] = {2, 4, 8, 16, 32, 64};
#define SIZES (sizeof sizes / sizeof sizes[0])
static const struct {
    const char *name;
    double rate; /* what of it carries objects: 94 % */
} links[] = {{"1 Gbit/s", 1.18e8}, {"10 Gbit/s", 1.18e9}, {"Thunderbolt (40 Gbit/s)", 4.7e9}};
#define LINKS (sizeof links / sizeof links[0])
static const struct {
    const char *name;
    double rate;
} lines[] = {{"100 Mbit/s", 1.18e7}, {"300 Mbit/s", 3.5e7}, {"1 Gbit/s", 1.18e8}};
#define LINES (sizeof lines / sizeof lines[0])

static void plot(const char *folder, const char *file, const char *title, const char *x_name,
                 const char *y_name, bool log_x, const struct plot_line *l, size_t n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (plot_write(path, title, x_name, y_name, log_x, l, n)) {
        perror(path);
        exit(1);
    }
}

/* All nodes cold at once with the same prompt of eight tokens. */
static void cold(const char *folder)
{
    double x[SIZES], with[SIZES], without[SIZES];
    printf("\n## Cold, the same prompt everywhere (8 tokens, 1 Gbit/s links, 300 Mbit/s line)\n\n"
           "| nodes | origin GB | copies | without leases GB | stall s/token | without | LAN GB | "
           "busiest link |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < SIZES; i++) {
        struct sim_opts o;
        struct sim_totals t, u;
        sim_k3(&o);
        o.nodes = sizes[i];
        o.internet = lines[1].rate;
        struct sim *s = sim_open(&o);
        sim_decode(s, 8, true, true, &t);
        double held = (double)sim_held(s, 1);
        sim_close(s);
        s = sim_open(&o);
        sim_decode(s, 8, true, false, &u);
        sim_close(s);
        printf("| %u | %.1f | %.3f | %.1f | %.1f | %.1f | %.1f | %.0f %% |\n", sizes[i],
               (double)t.origin_bytes / GB, (double)t.origin_bytes / held,
               (double)u.origin_bytes / GB, t.stall / (double)t.tokens, u.stall / (double)u.tokens,
               (double)t.lan_bytes / GB, 100 * t.busiest);
        x[i] = sizes[i];
        with[i] = (double)t.origin_bytes / GB;
        without[i] = (double)u.origin_bytes / GB;
    }
    const struct plot_line l[] = {{"one download for all", x, with, SIZES},
                                  {"each for itself", x, without, SIZES}};
    plot(folder, "cold.svg", "Origin bytes of a cold prompt of 8 tokens", "nodes", "GB", true, l,
         2);
}

/* `shoal cache warm --shoal` from nothing. */
static void warm(const char *folder)
{
    struct sim_curve c[LINES] = {{0}};
    struct plot_line l[LINES];
    printf("\n## Warm: from nothing to full coverage (1 Gbit/s links)\n\n"
           "| nodes | line | budgets TB | possible | coverage | origin GB | moved/least | hours |\n"
           "|---|---|---|---|---|---|---|---|\n");
    for (size_t k = 0; k < SIZES; k++) {
        for (size_t i = 0; i < LINES; i++) {
            struct sim_opts o;
            struct sim_settled r;
            sim_k3(&o);
            o.nodes = sizes[k];
            o.internet = lines[i].rate;
            if (sizes[k] != 4 && i != 1) {
                continue;
            }
            struct sim *s = sim_open(&o);
            sim_settle(s, true, sizes[k] == 4 ? &c[i] : NULL, &r);
            double b = (double)sim_budgets(s), m = (double)sim_model(s);
            printf("| %u | %s | %.2f | %.0f %% | %.2f %% | %.0f | %.3f | %.1f |\n", sizes[k],
                   lines[i].name, b / 1e12, b < m ? 100 * b / m : 100., 100 * r.covered,
                   (double)r.origin_bytes / GB, (double)r.moved / (double)r.least,
                   r.seconds / 3600);
            sim_close(s);
        }
    }
    for (size_t i = 0; i < LINES; i++) {
        for (size_t p = 0; p < c[i].n; p++) {
            c[i].t[p] /= 3600;
            c[i].y[p] *= 100;
        }
        l[i] = (struct plot_line){lines[i].name, c[i].t, c[i].y, c[i].n};
    }
    plot(folder, "warm.svg", "Coverage of four nodes by `cache warm --shoal`", "hours",
         "% of the model", false, l, LINES);
    for (size_t i = 0; i < LINES; i++) {
        sim_curve_free(&c[i]);
    }
}

/* When all is where it belongs, everybody decodes something else. */
static void steady(const char *folder)
{
    double x[SIZES], y[LINKS][SIZES];
    struct plot_line l[LINKS];
    printf("\n## Warm shoals, a different prompt on each node (8 tokens each)\n\n"
           "| nodes | links | stall s/token | origin GB | LAN GB/token | evicted | lost | busiest "
           "link |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t k = 0; k < LINKS; k++) {
        for (size_t i = 0; i < SIZES; i++) {
            struct sim_opts o;
            struct sim_settled r;
            struct sim_totals t;
            sim_k3(&o);
            o.nodes = sizes[i];
            o.link = links[k].rate;
            o.internet = lines[1].rate;
            struct sim *s = sim_open(&o);
            sim_settle(s, true, NULL, &r);
            sim_decode(s, 8, false, true, &t);
            printf("| %u | %s | %.2f | %.1f | %.2f | %llu | %llu | %.0f %% |\n", sizes[i],
                   links[k].name, t.stall / (double)t.tokens, (double)t.origin_bytes / GB,
                   (double)t.lan_bytes / GB / (double)t.tokens, (unsigned long long)t.evicted,
                   (unsigned long long)t.lost, 100 * t.busiest);
            x[i] = sizes[i];
            y[k][i] = t.stall / (double)t.tokens;
            sim_close(s);
        }
        l[k] = (struct plot_line){links[k].name, x, y[k], SIZES};
    }
    plot(folder, "stall.svg", "Waiting for the network in a warm shoal", "nodes",
         "seconds for each token", true, l, LINKS);
}

/* One joins, one leaves for good; budgets below, at and above the model. */
static void change(const char *folder)
{
    static const double of[] = {0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0};
    enum { OF = sizeof of / sizeof of[0] };
    double join[OF], leave[OF];
    printf("\n## A member joins, then one leaves for good (16 nodes, 300 Mbit/s line)\n\n"
           "| budgets / model | join: moved GB | / least | coverage | leave: moved GB | / least | "
           "from the origin GB | coverage |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < OF; i++) {
        struct sim_opts o;
        struct sim_settled a, b;
        sim_k3(&o);
        o.nodes = 16;
        o.internet = lines[1].rate;
        double share = of[i] * 82432. * (double)o.size / 16;
        o.budget_min = share * 0.7;
        o.budget_max = share * 1.36;
        struct sim *s = sim_open(&o);
        sim_settle(s, true, NULL, &a);
        sim_join(s, (uint64_t)share);
        sim_settle(s, true, NULL, &a);
        sim_leave(s, 5);
        sim_settle(s, true, NULL, &b);
        join[i] = (double)a.moved / GB;
        leave[i] = (double)b.moved / GB;
        printf("| %.1f | %.1f | %.3f | %.2f %% | %.1f | %.3f | %.1f | %.2f %% |\n", of[i], join[i],
               a.least ? (double)a.moved / (double)a.least : 1., 100 * a.covered, leave[i],
               b.least ? (double)b.moved / (double)b.least : 1., (double)b.origin_bytes / GB,
               100 * b.covered);
        sim_close(s);
    }
    const struct plot_line l[] = {{"join", of, join, OF}, {"leave", of, leave, OF}};
    plot(folder, "moves.svg", "Bytes moved when one of 16 joins or leaves", "budgets / model", "GB",
         false, l, 2);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: shoal_simulate FOLDER   prints tables, writes cold.svg, warm.svg, "
                        "stall.svg and moves.svg there\n");
        return 2;
    }
    cold(argv[1]);
    fflush(stdout);
    warm(argv[1]);
    fflush(stdout);
    change(argv[1]);
    fflush(stdout);
    steady(argv[1]);
    return 0;
}
