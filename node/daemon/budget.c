/* SPDX-License-Identifier: MIT
 * budget.c: what the cache may take of its disk, for the report and by request. See node_int.h. */
#include "node/daemon/node_int.h"
#include "node/store/budget.h"

#include <string.h>

static const char *const from_names[] = {
    [STORE_AUTO] = "auto", [STORE_GIVEN] = "option", [STORE_KEPT] = "kept"};

static json_t *num(uint64_t v)
{
    return json_integer(v < INT64_MAX ? (json_int_t)v : INT64_MAX);
}

json_t *budget_json(struct store *st)
{
    struct store_budget b;
    if (!st || store_get_budget(st, &b, NULL)) {
        return json_null();
    }
    json_t *j = json_object();
    json_object_set_new(j, "budget", b.budget ? num(b.budget) : json_null());
    json_object_set_new(j, "budget_from", json_string(from_names[b.budget_from]));
    json_object_set_new(j, "floor", num(b.floor));
    json_object_set_new(j, "floor_now", num(b.floor_now));
    json_object_set_new(j, "floor_from", json_string(from_names[b.floor_from]));
    json_object_set_new(j, "may", num(b.may));
    json_object_set_new(j, "used", num(b.used));
    json_object_set_new(j, "others", num(b.others));
    json_object_set_new(j, "model", num(b.model));
    json_object_set_new(j, "volume", num(b.volume));
    json_object_set_new(j, "free", num(b.free));
    json_object_set_new(j, "trimmed", num(b.trimmed));
    json_object_set_new(j, "written", num(b.written));
    json_object_set_new(j, "written_today", num(b.written_today));
    return j;
}

/* "auto" or a whole number from `least` on; absent: *set is false. */
static int size_of(const json_t *req, const char *key, json_int_t least, uint64_t automatic,
                   uint64_t *out, bool *set, struct err *e)
{
    const json_t *j = json_object_get(req, key);
    const char *word = json_string_value(j);
    *set = j && !json_is_null(j);
    *out = automatic;
    if (!*set || (word && !strcmp(word, "auto"))) {
        return 0;
    }
    if (!json_is_integer(j) || json_integer_value(j) < least) {
        return err_set(e, ERR_ARG, "\"%s\" must be \"auto\" or a whole number of at least %d", key,
                       (int)least);
    }
    *out = (uint64_t)json_integer_value(j);
    return 0;
}

int budget_request(struct node *n, const json_t *req, json_t **out, struct err *e)
{
    struct store *st = node_store_now(n);
    uint64_t budget, floor;
    bool has_budget, has_floor;
    if (!st) {
        return err_set(e, ERR_OFFLINE, "this node works on no model");
    }
    int r = size_of(req, "budget", 1, 0, &budget, &has_budget, e);
    r = r ? r : size_of(req, "floor", 0, UINT64_MAX, &floor, &has_floor, e);
    if (!r && (has_budget || has_floor)) {
        r = store_set_budget(st, has_budget ? &budget : NULL, has_floor ? &floor : NULL, e);
    }
    if (!r) {
        *out = budget_json(st);
    }
    return r;
}
