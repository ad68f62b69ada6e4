/* SPDX-License-Identifier: MIT
 * api.h: what GET /health and GET /metrics say of a node, made from its report: for the hooks of
 * oai.h. Pure functions. */
#ifndef SHOAL_NODE_API_H
#define SHOAL_NODE_API_H

#include "proto/base/buf.h"

#include <jansson.h>

/* Append {"status", "model", "peers", "node", "message", "compute"}. status: "ok", "loading",
 * "failed" or "stopping"; model: its name in requests; message: what is being done, or failed
 * (NULL: none); report: of node_status, NULL where there is no node ("peers" is 0 then); its
 * "compute" says which backend is in use, and what is left to the CPU for which reason. */
int api_health(const char *status, const char *model, const char *message, const json_t *report,
               struct buf *out);

/* Append the report as Prometheus reads it (text format 0.0.4). A field that the report lacks is
 * left out. (metrics.c) */
int api_metrics(const json_t *report, struct buf *out);

#endif
