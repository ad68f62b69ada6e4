/* SPDX-License-Identifier: MIT
 * api.h: the HTTP face of a node: GET /health and GET /metrics. Paths below /v1/, where the OpenAI
 * API has its place, answer 501 in the form of its errors.
 *
 * Only this machine is served: an address that is not a loopback one is refused, and so is a
 * request whose Host header names another machine (a page in a browser that was led here).
 *
 * Threads: one of its own; api_open and api_close on any other. */
#ifndef SHOAL_NODE_API_H
#define SHOAL_NODE_API_H

#include "node/daemon/node.h"

struct api; /* opaque */

/* address: "HOST:PORT", HOST 127.x.x.x, [::1] or localhost; PORT 0: the system's choice. The node
 * outlives it. ERR_ARG: no such address, ERR_REFUSED: not a loopback one, ERR_BUSY: taken. */
int api_open(const char *address, struct node *n, struct api **out, struct err *e);
void api_close(struct api *a); /* NULL is fine */
/* "http://127.0.0.1:8080"; lives as long as a. */
const char *api_url(const struct api *a);

/* Check an address without opening anything; *port as given. */
int api_check(const char *address, struct err *e);

/* The text of /metrics from a report of node_status. (metrics.c) */
int api_metrics(const json_t *report, struct buf *out);

#endif
