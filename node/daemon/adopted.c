/* SPDX-License-Identifier: MIT
 * adopted.c: adopted folders and upkeep, for the report; when the store may work in the background.
 * See node_int.h. */
#include "node/daemon/node_int.h"
#include "node/daemon/power.h"
#include "node/store/upkeep.h"

#include "proto/base/clock.h"

#define POWER_NS 10000000000u

/* On the store's thread: no decode, and on mains. */
static bool may(void *ctx)
{
    struct node *n = ctx;
    uint64_t now = clock_ns();
    if (!n->power_at || now - n->power_at > POWER_NS) {
        struct power p;
        power_now(&p);
        n->on_battery = p.on_battery;
        n->power_at = now;
    }
    return !n->on_battery && !yield_busy(&n->yield);
}

void upkeep_join(struct node *n, uint64_t scrub_s)
{
    store_background(n->st, may, n);
    store_scrub(n->st, scrub_s == UINT64_MAX ? 0 : scrub_s);
}

json_t *adopted_json(struct store *st)
{
    struct store_adopted v[STORE_ADOPTED_MAX];
    json_t *list = json_array();
    size_t k = st ? store_adopted(st, v, STORE_ADOPTED_MAX) : 0;
    for (size_t i = 0; i < k; i++) {
        const struct store_adopted *a = &v[i];
        json_array_append_new(
            list, json_pack("{s:s?,s:b,s:b,s:I,s:I,s:I,s:I,s:I,s:I}", "path", a->path, "here",
                            a->here, "other_model", a->other_model, "objects",
                            (json_int_t)a->objects, "experts", (json_int_t)a->experts, "bytes",
                            (json_int_t)a->bytes, "looked", (json_int_t)a->looked, "looked_bytes",
                            (json_int_t)a->looked_bytes, "refused", (json_int_t)a->refused));
    }
    return list;
}

json_t *upkeep_json(struct store *st)
{
    struct store_upkeep u;
    if (!st) {
        return json_null();
    }
    store_get_upkeep(st, &u);
    json_t *q = json_pack("{s:s?,s:I,s:I}", "folder", u.quarantine, "files",
                          (json_int_t)u.quarantine_files, "bytes", (json_int_t)u.quarantine_bytes);
    json_t *s = json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "period_s", (json_int_t)u.scrub_period_s,
                          "started", (json_int_t)u.scrub_started, "done", (json_int_t)u.scrub_done,
                          "total", (json_int_t)u.scrub_total, "rounds", (json_int_t)u.scrub_rounds,
                          "bad", (json_int_t)u.scrub_bad);
    return json_pack("{s:I,s:b,s:o,s:o}", "to_look", (json_int_t)u.to_look, "held", u.held, "scrub",
                     s, "quarantine", q);
}
