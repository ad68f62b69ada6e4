/* SPDX-License-Identifier: MIT
 * stops.h: private to node/api: stop strings over a stream of text: nothing of a stop string ever
 * gets out, wherever the stream is cut; what may be the begin of one is held back until it is known
 * not to be. Zero bytes make an empty filter; it owns nothing but `held`. */
#ifndef SHOAL_API_STOPS_H
#define SHOAL_API_STOPS_H

#include "proto/base/buf.h"

#include <stdbool.h>
#include <stddef.h>

#define STOPS_MAX 16
#define STOP_BYTES_MAX 1024

struct stops {
    const char *s[STOPS_MAX]; /* not empty; they outlive the filter */
    size_t n[STOPS_MAX], count;
    struct buf held;
    int hit; /* 1 + index of the one that was found */
};

void stops_init(struct stops *f);
/* ERR_LIMIT: too many, too long, or empty. */
int stops_add(struct stops *f, const char *s, size_t n);
/* Append to *out what can go out now. True: a stop string was found (the earliest one; of those
 * that begin there the longest); *out has what is before it, and nothing more will come. */
bool stops_feed(struct stops *f, const char *p, size_t n, struct buf *out);
/* The stream ends: what was held back goes out, up to a stop string that stands in it behind the
 * begin of another; true: there was one. */
bool stops_flush(struct stops *f, struct buf *out);
void stops_free(struct stops *f);

#endif
