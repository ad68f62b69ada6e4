/* SPDX-License-Identifier: MIT
 * say.c: see say.h. */
#include "node/cli/say.h"

#include "node/cli/cli.h"

#include <stdio.h>
#include <string.h>

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const char *rate(double bytes_s, char out[CLI_NUM])
{
    char b[CLI_NUM];
    if (bytes_s < 1) {
        snprintf(out, CLI_NUM, "-");
    } else {
        snprintf(out, CLI_NUM, "%.20s/s", cli_bytes((uint64_t)bytes_s, b));
    }
    return out;
}

void say_peers(const json_t *peers)
{
    size_t i;
    const json_t *p;
    printf("%-15s %-14s %-14s %-26s %9s %11s %11s %8s\n", "node", "name", "state", "address", "has",
           "in", "out", "answers");
    json_array_foreach(peers, i, p)
    {
        char in[CLI_NUM], out[CLI_NUM], rtt[CLI_NUM] = "-", has[CLI_NUM] = "-";
        const json_t *f = json_object_get(p, "fetch");
        double ms = number(p, "rtt_ms"), banned = number(f, "banned_s");
        if (ms > 0) {
            snprintf(rtt, sizeof rtt, ms < 10 ? "%.1f ms" : "%.0f ms", ms);
        }
        if (json_object_get(p, "objects")) {
            snprintf(has, sizeof has, "%.0f", number(p, "objects"));
        }
        printf("%-15s %-14.14s %-14s %-26s %9s %11s %11s %8s%s\n", text(p, "short"),
               text(p, "name")[0] ? text(p, "name") : "-", text(p, "state"),
               text(p, "address")[0] ? text(p, "address") : "-", has,
               rate(number(p, "rate_in"), in), rate(number(p, "rate_out"), out), rtt,
               json_is_true(json_object_get(p, "keeper")) ? "  keeper" : "");
        if (banned > 0) {
            char d[CLI_NUM];
            printf("                banned for %s more: %s (shoal peers unban %s)\n",
                   cli_duration(banned, d), text(f, "last_fault"), text(p, "short"));
        }
    }
}
