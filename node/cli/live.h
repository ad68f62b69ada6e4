/* SPDX-License-Identifier: MIT
 * live.h: the progress line on stderr. On a terminal one line, redrawn a few times a second, also
 * below an answer that is being written on the same terminal; elsewhere a plain line every few
 * seconds. It has a thread of its own, so that long waits keep talking.
 *
 * Threads: all functions but live_start and live_stop may be called from any thread. */
#ifndef SHOAL_NODE_CLI_LIVE_H
#define SHOAL_NODE_CLI_LIVE_H

#include "proto/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct live; /* opaque */

#define LIVE_LINE 240 /* most bytes of a line, with its NUL */

/* Writes the present line to `line` (n bytes), or "" for none. Runs on the live thread. */
typedef void (*live_compose)(void *ctx, char *line, size_t n);

/* quiet: no lines at all, but live_text still writes. */
int live_start(bool quiet, live_compose compose, void *ctx, struct live **out, struct err *e);
/* Erases the line and ends the thread. NULL is fine. */
void live_stop(struct live *l);
/* One whole line for people, "shoal: " in front. */
void live_log(struct live *l, const char *line);
/* Remove the line from the screen; it comes back when compose has one. */
void live_clear(struct live *l);
/* What of a text may go to a terminal: all but the characters that it would obey (escapes, cursor
 * and the like); tabs and newlines stay. p holds whole characters; out has room for n bytes.
 * Returns how many were written. */
size_t live_plain(const char *p, size_t n, char *out);
/* A piece of result text for stdout, flushed. Nonzero: it could not be written. */
int live_text(struct live *l, const char *p, size_t n);

#endif
