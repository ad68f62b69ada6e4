/* SPDX-License-Identifier: MIT
 * plot.h: lines in an SVG file: what `shoal bench --plot` and tests/sim draw. */
#ifndef SHOAL_NODE_CLI_PLOT_H
#define SHOAL_NODE_CLI_PLOT_H

#include <stdbool.h>
#include <stddef.h>

struct plot_line {
    const char *name; /* goes into the file as it is: no markup */
    const double *x, *y;
    size_t n;
};
/* Lines with points and a legend; log_x: powers of two. Nonzero: it could not be written. */
int plot_write(const char *path, const char *title, const char *x_name, const char *y_name,
               bool log_x, const struct plot_line *lines, size_t n);

#endif
