/* SPDX-License-Identifier: MIT
 * disk_order.c: what may leave the disk, by rank and last use: a binary heap of ids, so that to
 * find the first one and to change one's place cost a few steps among the 82,432 experts of K3. */
#include "node/store/disk_inner.h"

static bool may_leave(const struct disk *d, uint32_t id)
{
    const struct disk_item *it = &d->it[id];
    return (it->own || it->orphan) && !it->pins && model_object(d->o.m, id)->kind == MODEL_EXPERT;
}

static bool before(const struct disk *d, uint32_t a, uint32_t b)
{
    if (d->rank && d->rank[a] != d->rank[b]) {
        return d->rank[a] < d->rank[b];
    }
    if (d->it[a].last_use != d->it[b].last_use) {
        return d->it[a].last_use < d->it[b].last_use;
    }
    return a < b;
}

static void put(struct disk *d, uint32_t at, uint32_t id)
{
    d->order[at] = id;
    d->it[id].place = at + 1;
}

/* From `at`, whose id may be out of place, towards the end of the heap. */
static void sink_down(struct disk *d, uint32_t at)
{
    uint32_t id = d->order[at];
    for (uint32_t next; (next = 2 * at + 1) < d->n_order; at = next) {
        if (next + 1 < d->n_order && before(d, d->order[next + 1], d->order[next])) {
            next++;
        }
        if (!before(d, d->order[next], id)) {
            break;
        }
        put(d, at, d->order[next]);
    }
    put(d, at, id);
}

static void move_up(struct disk *d, uint32_t at)
{
    uint32_t id = d->order[at];
    for (; at && before(d, id, d->order[(at - 1) / 2]); at = (at - 1) / 2) {
        put(d, at, d->order[(at - 1) / 2]);
    }
    put(d, at, id);
}

/* Whatever stands at `at` now, up or down. */
static void settle_at(struct disk *d, uint32_t at)
{
    uint32_t id = d->order[at];
    move_up(d, at);
    sink_down(d, d->it[id].place - 1);
}

void disk_order_set(struct disk *d, uint32_t id)
{
    uint32_t at = d->it[id].place;
    if (may_leave(d, id)) {
        if (!at) {
            at = ++d->n_order;
            put(d, at - 1, id);
        }
        settle_at(d, at - 1);
    } else if (at) {
        d->it[id].place = 0;
        if (--d->n_order != at - 1) {
            put(d, at - 1, d->order[d->n_order]);
            settle_at(d, at - 1);
        }
    }
}

void disk_order_all(struct disk *d)
{
    d->n_order = 0;
    for (uint32_t id = 0; id < d->n; id++) {
        d->it[id].place = 0;
        if (may_leave(d, id)) {
            put(d, d->n_order++, id);
        }
    }
    for (uint32_t at = d->n_order / 2; at-- > 0;) {
        sink_down(d, at);
    }
}
