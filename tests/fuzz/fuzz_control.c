/* SPDX-License-Identifier: MIT
 * fuzz_control.c: any bytes as a request on the control socket. What is taken keeps to the limits
 * and comes back from its own line; what is refused says why. */
#include "node/daemon/control.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

static unsigned depth_of(json_t *j)
{
    unsigned most = 0;
    const char *key;
    json_t *v;
    size_t i;
    if (json_is_object(j)) {
        json_object_foreach(j, key, v)
        {
            unsigned d = depth_of(v);
            most = d > most ? d : most;
        }
        return most + 1;
    }
    json_array_foreach(j, i, v)
    {
        unsigned d = depth_of(v);
        most = d > most ? d : most;
    }
    return most + json_is_array(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    json_t *j, *again;
    size_t n;
    int r = control_parse((const char *)data, size, &j, &e);
    if (r) {
        check(!j && e.code == r && e.msg[0]);
        return 0;
    }
    const char *op = json_string_value(json_object_get(j, "op"));
    check(op && json_string_length(json_object_get(j, "op")) <= CONTROL_OP_MAX);
    check(depth_of(j) <= CONTROL_DEPTH_MAX);
    control_error(j, &e);
    char *line = control_line(j, &n);
    if (line) {
        check(n && line[n - 1] == '\n' && !memchr(line, '\n', n - 1));
        if (n <= CONTROL_LINE_MAX) {
            check(!control_parse(line, n - 1, &again, NULL) && json_equal(j, again));
            json_decref(again);
        }
    }
    free(line);
    json_decref(j);
    return 0;
}
