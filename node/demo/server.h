/* SPDX-License-Identifier: MIT
 * server.h: a small HTTP/1.1 server on the loopback address that hands out the files of one folder:
 * the origin of `shoal demo`, and of tests. GET and HEAD, one byte range a request (206, 416),
 * ETag, If-Range, If-None-Match, keep-alive. Several ranges in one request are answered with the
 * whole file, as RFC 9110 allows. No listing of folders; names that begin with a dot do not exist.
 *
 * Threads: the server has a thread of its own; all functions may be called from any other. */
#ifndef SHOAL_NODE_DEMO_SERVER_H
#define SHOAL_NODE_DEMO_SERVER_H

#include "proto/base/err.h"

#include <stdint.h>

struct demo_server; /* opaque */

/* Numbers since the start; a connection that breaks counts what had been handed to it. */
struct demo_server_stats {
    uint64_t requests; /* all, also refused ones */
    uint64_t ranges;   /* answered with 206 */
    uint64_t errors;   /* answered with 4xx or 5xx */
    uint64_t bytes;    /* of bodies; headers are not counted */
};

/* Serve the folder `dir` at 127.0.0.1, on a free port when `port` is 0. */
int demo_server_start(const char *dir, uint16_t port, struct demo_server **out, struct err *e);
/* Waits for answers in progress to end or break. NULL is fine. */
void demo_server_stop(struct demo_server *s);
/* "http://127.0.0.1:PORT", without a slash at the end; lives as long as s. */
const char *demo_server_url(const struct demo_server *s);
void demo_server_get_stats(struct demo_server *s, struct demo_server_stats *out);

/* ---- for tests: the Range header alone ---- */

enum demo_range { DEMO_RANGE_NONE, DEMO_RANGE_OK, DEMO_RANGE_BAD };
/* Read the value of a Range header for a file of `size` bytes. OK: *off and *n are the bytes to
 * send, n > 0, inside the file. NONE: not a single well-formed byte range, to be ignored. BAD:
 * well-formed but outside the file (416). */
enum demo_range demo_range_parse(const char *v, uint64_t size, uint64_t *off, uint64_t *n);

#endif
