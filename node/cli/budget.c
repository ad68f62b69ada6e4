/* SPDX-License-Identifier: MIT
 * budget.c: see budget.h. */
#include "node/cli/budget.h"

#include <stdio.h>
#include <string.h>

const char *cli_budget_words(const struct store_budget *b, char out[CLI_BUDGET])
{
    char may[CLI_NUM], model[CLI_NUM], floor[CLI_NUM], free[CLI_NUM], now[CLI_NUM], cap[200];
    cli_bytes(b->may, may);
    cli_bytes(b->model, model);
    cli_bytes(b->floor, floor);
    cli_bytes(b->free, free);
    if (b->budget) {
        char size[CLI_NUM];
        snprintf(cap, sizeof cap, "at most %s (%s)%s%s%s", cli_bytes(b->budget, size),
                 b->budget_from == STORE_GIVEN ? "given by --disk-budget"
                                               : "chosen by shoal cache budget",
                 b->may + b->others < b->budget ? ", as things are only " : "",
                 b->may + b->others < b->budget ? may : "",
                 b->may + b->others < b->budget ? " for lack of free space" : "");
    } else if (b->may >= b->model) {
        snprintf(cap, sizeof cap, "room for all of the model, %s (no budget is set; %s are free)",
                 model, free);
    } else {
        snprintf(cap, sizeof cap,
                 "%s of the model's %s (no budget is set: what %s of free space allow)", may, model,
                 free);
    }
    snprintf(out, CLI_BUDGET, "%s; %s stay free (%s%s%s%s)", cap, floor,
             b->floor_from == STORE_GIVEN  ? "given by --disk-floor"
             : b->floor_from == STORE_KEPT ? "chosen by shoal cache budget"
             : b->floor <= (uint64_t)1 << 30
                 ? "the least"
                 : (b->floor >= (uint64_t)32 << 30 ? "the most that is kept by itself"
                    : b->floor == b->volume / 20   ? "a twentieth of the volume"
                                                   : "half of what was free"),
             b->floor_now < b->floor ? "; less was free at the start, and what is here stays: "
                                     : "",
             b->floor_now < b->floor ? cli_bytes(b->floor_now, now) : "",
             b->floor_now < b->floor ? " count yet" : "");
    return out;
}

static uint64_t number(const json_t *j, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(j, key));
    return v > 0 ? (uint64_t)v : 0;
}

static enum store_from from(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    return s && !strcmp(s, "option") ? STORE_GIVEN
           : s && !strcmp(s, "kept") ? STORE_KEPT
                                     : STORE_AUTO;
}

bool cli_budget_read(const json_t *j, struct store_budget *out)
{
    memset(out, 0, sizeof *out);
    if (!json_is_object(j)) {
        return false;
    }
    out->budget = number(j, "budget");
    out->floor = number(j, "floor");
    out->floor_now = number(j, "floor_now");
    out->budget_from = from(j, "budget_from");
    out->floor_from = from(j, "floor_from");
    out->may = number(j, "may");
    out->used = number(j, "used");
    out->others = number(j, "others");
    out->model = number(j, "model");
    out->volume = number(j, "volume");
    out->free = number(j, "free");
    out->written = number(j, "written");
    out->written_today = number(j, "written_today");
    return true;
}
