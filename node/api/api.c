/* SPDX-License-Identifier: MIT
 * api.c: see api.h. */
#include "node/api/api.h"

#include "proto/base/err.h"

#include <stdlib.h>

int api_health(const char *status, const char *model, const char *message, const json_t *report,
               struct buf *out)
{
    json_t *peers = json_object_get(report, "connected"), *node = json_object_get(report, "node");
    json_t *compute = json_object_get(report, "compute");
    json_t *v = json_pack("{s:s, s:s, s:I, s:O?, s:s?, s:O?}", "status", status, "model", model,
                          "peers", (json_int_t)json_integer_value(peers), "node", node, "message",
                          message, "compute", compute);
    char *s = v ? json_dumps(v, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    int r = s ? buf_adds(out, s) : ERR_NOMEM;
    json_decref(v);
    free(s);
    return r;
}
