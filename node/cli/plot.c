/* SPDX-License-Identifier: MIT
 * plot.c: lines in an SVG file, with nothing but printf. */
#include "node/cli/plot.h"

#include <math.h>
#include <stdio.h>

#define W 760.0
#define H 440.0
#define LEFT 80.0
#define RIGHT 190.0
#define TOP 44.0
#define BOTTOM 56.0

static const char *const colours[] = {"#1b6ca8", "#d1495b", "#2e8b57", "#edae49",
                                      "#6a4c93", "#00798c", "#555555", "#a0522d"};

struct axis {
    double lo, hi;
    bool log;
};

static double place_on(const struct axis *a, double v, double from, double to)
{
    double lo = a->log ? log2(a->lo) : a->lo, hi = a->log ? log2(a->hi) : a->hi;
    double x = a->log ? log2(v) : v;
    return hi > lo ? from + (x - lo) / (hi - lo) * (to - from) : from;
}

/* 1, 2 or 5 times a power of ten: about five steps. */
static double step_of(double span)
{
    double p = pow(10, floor(log10(span / 5))), f = span / 5 / p;
    return p * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10);
}

static void range(const struct plot_line *l, size_t n, bool log_x, struct axis *x, struct axis *y)
{
    bool first = true;
    *x = (struct axis){0, 1, log_x};
    *y = (struct axis){0, 0, false};
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < l[i].n; k++) {
            x->lo = first || l[i].x[k] < x->lo ? l[i].x[k] : x->lo;
            x->hi = first || l[i].x[k] > x->hi ? l[i].x[k] : x->hi;
            y->hi = l[i].y[k] > y->hi ? l[i].y[k] : y->hi;
            first = false;
        }
    }
    y->hi = y->hi > 0 ? y->hi * 1.05 : 1;
}

static void ticks(FILE *f, const struct axis *x, const struct axis *y)
{
    double s = x->log ? 0 : step_of(x->hi - x->lo > 0 ? x->hi - x->lo : 1);
    for (double v = x->log ? x->lo : ceil(x->lo / s) * s; v <= x->hi * 1.0001;
         v = x->log ? v * 2 : v + s) {
        double p = place_on(x, v, LEFT, W - RIGHT);
        fprintf(f,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
                p, TOP, p, H - BOTTOM, p, H - BOTTOM + 16, v);
    }
    s = step_of(y->hi - y->lo);
    for (double v = 0; v <= y->hi; v += s) {
        double p = place_on(y, v, H - BOTTOM, TOP);
        fprintf(f,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                LEFT, p, W - RIGHT, p, LEFT - 6, p + 4, v);
    }
}

int plot_write(const char *path, const char *title, const char *x_name, const char *y_name,
               bool log_x, const struct plot_line *l, size_t n)
{
    FILE *f = fopen(path, "w");
    struct axis x, y;
    if (!f) {
        return -1;
    }
    range(l, n, log_x, &x, &y);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"%.0f\" y=\"24\" font-size=\"15\" text-anchor=\"middle\">%s</text>\n",
            W, H, (LEFT + W - RIGHT) / 2, title);
    ticks(f, &x, &y);
    fprintf(f,
            "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" fill=\"none\" "
            "stroke=\"#444\"/>\n"
            "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n"
            "<text transform=\"translate(20 %.0f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
            LEFT, TOP, W - RIGHT - LEFT, H - BOTTOM - TOP, (LEFT + W - RIGHT) / 2, H - 14, x_name,
            (TOP + H - BOTTOM) / 2, y_name);
    for (size_t i = 0; i < n; i++) {
        const char *c = colours[i % (sizeof colours / sizeof colours[0])];
        fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", c);
        for (size_t k = 0; k < l[i].n; k++) {
            fprintf(f, "%.1f,%.1f ", place_on(&x, l[i].x[k], LEFT, W - RIGHT),
                    place_on(&y, l[i].y[k], H - BOTTOM, TOP));
        }
        double at = TOP + 14 + 18 * (double)i;
        fprintf(f,
                "\"/>\n<line x1=\"%.0f\" y1=\"%.0f\" x2=\"%.0f\" y2=\"%.0f\" stroke=\"%s\" "
                "stroke-width=\"3\"/>\n<text x=\"%.0f\" y=\"%.0f\">%s</text>\n",
                W - RIGHT + 10, at - 4, W - RIGHT + 30, at - 4, c, W - RIGHT + 36, at, l[i].name);
    }
    fprintf(f, "</svg>\n");
    return fclose(f);
}
