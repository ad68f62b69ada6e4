/* SPDX-License-Identifier: MIT
 * homes_status.c: see homes_int.h: the part of the report about homes. */
#include "node/daemon/homes_int.h"

#include "proto/base/clock.h"

#define REPORT_MS 1000

static json_t *num(uint64_t v)
{
    return json_integer((json_int_t)v);
}

/* Per layer that has experts: how many of them are held, by how many at least and on average. */
static json_t *layers(const struct homes *h)
{
    json_t *list = json_array();
    for (uint32_t o = 0; o < h->n_experts;) {
        uint32_t layer = h->obj[o].key.layer, n = 0, have = 0, least = UINT32_MAX;
        uint64_t sum = 0;
        for (; o < h->n_experts && h->obj[o].key.layer == layer; o++, n++) {
            uint32_t c = homes_copies(h, o);
            have += c > 0;
            least = c < least ? c : least;
            sum += c;
        }
        json_array_append_new(list, json_pack("{s:i,s:i,s:i,s:i,s:f}", "layer", (int)layer, "have",
                                              (int)have, "of", (int)n, "min", (int)least, "mean",
                                              n ? (double)sum / n : 0.));
    }
    return list;
}

static json_t *members(const struct homes *h)
{
    json_t *list = json_array();
    for (size_t i = 0; i < h->n_m; i++) {
        const struct homes_member *x = &h->m[i];
        char text[ID_TEXT], s[ID_SHORT];
        id_text(&x->id, text);
        id_short(&x->id, s);
        json_t *j = json_pack("{s:s,s:s,s:s,s:b,s:b,s:b,s:I,s:I}", "id", text, "short", s, "name",
                              i ? x->name : h->n->name, "self", i == 0, "connected", x->connected,
                              "background", x->may_background, "budget", (json_int_t)x->budget,
                              "used", (json_int_t)x->used);
        if (i && !x->connected) {
            json_object_set_new(j, "seen", num((uint64_t)x->seen));
        }
        json_array_append_new(list, j);
    }
    return list;
}

static uint32_t waiting(struct homes *h)
{
    uint32_t n = 0;
    for (size_t i = 0; i < h->n_due; i++) {
        uint32_t o = h->due[i].object;
        n += !homes_bit(h->m[0].held, o) && homes_holder(h, o) != NULL;
    }
    return n;
}

void homes_report(struct homes *h)
{
    uint64_t now = clock_ns();
    if (h->reported_at && now - h->reported_at < REPORT_MS * MS_NS) {
        return;
    }
    h->reported_at = now;
    uint64_t once = 0, more = 0, objects = 0;
    for (uint32_t o = 0; o < h->n_experts; o++) {
        unsigned c = homes_copies(h, o);
        once += c == 1 ? h->obj[o].size : 0;
        more += c > 1 ? h->obj[o].size : 0;
        objects += c > 0;
    }
    uint32_t wait = waiting(h);
    pthread_mutex_lock(&h->mu);
    struct homes_counts c = h->c;
    bool warm = h->warm;
    unsigned flying = h->n_flying;
    pthread_mutex_unlock(&h->mu);
    json_t *j =
        json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:b,s:s}", "budget", (json_int_t)h->m[0].budget,
                  "used", (json_int_t)h->m[0].used, "possible", (json_int_t)h->sums.possible,
                  "covered", (json_int_t)(once + more), "covered_experts", (json_int_t)objects,
                  "once", (json_int_t)once, "model", (json_int_t)h->sums.model, "warm", warm,
                  "background", h->may_background, "why", h->why);
    if (j) {
        static const char *const words[] = {"auto", "yes", "no"};
        json_object_set_new(
            j, "metered",
            json_pack("{s:b,s:s}", "now", h->metered, "setting", words[h->n->o.metered]));
        json_object_set_new(j, "missing", num(h->n_open));
        json_object_set_new(j, "waiting", num(wait));
        json_object_set_new(j, "under_way", num(flying));
        json_object_set_new(j, "copied", num(c.copied));
        json_object_set_new(j, "copied_bytes", num(c.copied_bytes));
        json_object_set_new(j, "warmed", num(c.warmed));
        json_object_set_new(j, "warmed_bytes", num(c.warmed_bytes));
        json_object_set_new(j, "offered", num(c.offered));
        json_object_set_new(j, "accepted", num(c.accepted));
        json_object_set_new(j, "kept", num(c.kept));
        json_object_set_new(j, "released", num(c.released));
        json_object_set_new(j, "failed", num(c.failed));
        json_object_set_new(j, "no_room", num(c.no_room));
        json_object_set_new(j, "members", members(h));
        json_object_set_new(j, "layers", layers(h));
    }
    pthread_mutex_lock(&h->mu);
    json_t *old = h->report;
    h->report = j;
    pthread_mutex_unlock(&h->mu);
    json_decref(old);
}

json_t *homes_json(struct homes *h)
{
    if (!h) {
        return json_null();
    }
    pthread_mutex_lock(&h->mu);
    json_t *j = h->report ? json_deep_copy(h->report) : json_null();
    if (h->report) { /* asked for just now, perhaps: whoever waits for its end looks at this */
        json_object_set_new(j, "warm", json_boolean(h->warm));
    }
    pthread_mutex_unlock(&h->mu);
    return j;
}
