/* SPDX-License-Identifier: MIT
 * disk_room.c: see disk.h: budget, free-space floor, and what leaves for it. */
#include "node/store/disk.h"

#include "node/store/disk_inner.h"
#include "node/store/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define EVICT_TRIES 8

static void drop_partials(struct disk *d)
{
    for (uint32_t id = 0; id < d->n; id++) {
        struct disk_item *it = &d->it[id];
        if (it->partial && !it->pins) {
            disk_unfinished_locked(d, id);
            d->partial_bytes -= it->partial_bytes;
            it->partial = false;
            it->partial_bytes = 0;
        }
    }
}

void disk_unfinished_locked(struct disk *d, uint32_t id)
{
    bool left = d->session && !session_remove(d->session, id);
    d->n_stale += left && !d->it[id].litter;
    d->n_stale -= !left && d->it[id].litter;
    d->it[id].litter = left;
}

void disk_unfinished(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    disk_unfinished_locked(d, id);
    pthread_mutex_unlock(&d->mu);
}

/* Files that could not be removed when they had to go: once more. */
static void drop_stale(struct disk *d)
{
    for (uint32_t id = 0; id < d->n && d->n_stale; id++) {
        if (d->it[id].stale) {
            if (disk_unlink_own(d, id)) {
                d->it[id].stale = false;
                d->n_stale--;
            }
        }
        if (d->it[id].litter) {
            disk_unfinished_locked(d, id);
        }
    }
}

/* The expert not wanted now of the lowest rank, of these the one used longest ago, leaves; the
 * spine, needed for every token, never does. False: none has a rank of at most `most`. A file that
 * cannot be removed stays here and counts; a few others are tried. */
static bool evict_one(struct disk *d, unsigned most)
{
    for (int tries = 0; tries < EVICT_TRIES && d->n_order; tries++) {
        uint32_t id = d->order[0];
        if (d->rank && d->rank[id] > most) {
            return false;
        }
        char *p = layout_object(d->dir, d->o.m, id);
        bool gone = p && (unlink(p) == 0 || errno == ENOENT);
        free(p);
        if (gone) {
            disk_set_own(d, id, false);
            return true;
        }
        d->it[id].last_use = ++d->tick;
        disk_order_set(d, id);
    }
    return false;
}

/* What may leave for this object: nothing that is worth more than itself, and nothing above the
 * limit, which does not count for the spine. For a second copy nothing but what is one, too. */
static unsigned most_for(const struct disk *d, uint32_t id, bool second)
{
    if (!d->rank || model_object(d->o.m, id)->kind != MODEL_EXPERT) {
        return UINT8_MAX;
    }
    if (second) {
        return 0;
    }
    return d->rank[id] < d->rank_most ? d->rank[id] : d->rank_most;
}

int disk_room(struct disk *d, uint32_t id, uint64_t size, bool second, struct err *e)
{
    bool partials_gone = false, quarantine_gone = false;
    if (d->n_stale) {
        drop_stale(d);
    }
    for (;;) {
        struct statvfs v;
        uint64_t need = d->reserved + size, left = UINT64_MAX;
        if (statvfs(d->dir, &v) == 0) {
            left = (uint64_t)v.f_bavail * v.f_frsize;
        }
        uint64_t used = d->used + d->others + d->partial_bytes + d->quarantine.bytes;
        bool budget = d->o.budget && used + need > d->o.budget;
        bool floor = left < need || left - need < d->o.floor;
        if (!budget && !floor) {
            d->reserved += size;
            return 0;
        }
        if (!quarantine_gone && d->quarantine.bytes) {
            quarantine_clear(d);
            quarantine_gone = true;
        } else if (!partials_gone && d->partial_bytes) {
            drop_partials(d);
            partials_gone = true;
        } else if (!evict_one(d, most_for(d, id, second))) {
            if (budget) {
                return err_set(e, ERR_FULL, "the cache's budget of %llu bytes is used up%s",
                               (unsigned long long)d->o.budget,
                               d->others ? ", also by other models in the same folder" : "");
            }
            return err_set(
                e, ERR_FULL,
                "only %.1f MB are free on the volume of %s, and %.1f MB are to stay free",
                (double)left * 1e-6, d->o.cache_dir, (double)d->o.floor * 1e-6);
        }
    }
}

/* ---- ranks ---- */

int disk_ranks(struct disk *d, const uint8_t *rank, uint8_t most)
{
    uint8_t *mine = rank ? malloc(d->n ? d->n : 1) : NULL;
    if (rank && !mine) {
        return ERR_NOMEM;
    }
    if (rank) {
        memcpy(mine, rank, d->n);
    }
    pthread_mutex_lock(&d->mu);
    uint8_t *old = d->rank;
    d->rank = mine;
    d->rank_most = most;
    disk_order_all(d);
    pthread_mutex_unlock(&d->mu);
    free(old);
    return 0;
}

bool disk_rank(struct disk *d, uint32_t id, uint8_t rank)
{
    pthread_mutex_lock(&d->mu);
    if (d->rank) {
        d->rank[id] = rank;
        disk_order_set(d, id);
    }
    bool present = d->it[id].present;
    pthread_mutex_unlock(&d->mu);
    return present;
}

void disk_rank_coming(struct disk *d, uint32_t id, uint8_t rank)
{
    pthread_mutex_lock(&d->mu);
    if (d->rank && !d->it[id].present) {
        d->rank[id] = rank;
    }
    pthread_mutex_unlock(&d->mu);
}

size_t disk_oldest(struct disk *d, uint8_t rank, uint32_t *ids, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&d->mu);
    for (uint32_t id = 0; d->rank && max && id < d->n; id++) {
        if (!d->it[id].place || d->rank[id] != rank ||
            (n == max && d->it[id].last_use >= d->it[ids[n - 1]].last_use)) {
            continue;
        }
        size_t at = n < max ? n++ : n - 1;
        while (at > 0 && d->it[ids[at - 1]].last_use > d->it[id].last_use) {
            ids[at] = ids[at - 1];
            at--;
        }
        ids[at] = id;
    }
    pthread_mutex_unlock(&d->mu);
    return n;
}

void disk_space(struct disk *d, struct disk_space *out)
{
    struct statvfs v;
    memset(out, 0, sizeof *out);
    bool known = statvfs(d->dir, &v) == 0;
    uint64_t left = known ? (uint64_t)v.f_bavail * v.f_frsize : UINT64_MAX;
    if (known) {
        out->volume = (uint64_t)v.f_blocks * v.f_frsize;
        out->free = left;
    }
    pthread_mutex_lock(&d->mu);
    out->experts = d->experts;
    out->used = d->used;
    out->others = d->others;
    out->unfinished = d->partial_bytes;
    left = left > d->o.floor ? left - d->o.floor : 0;
    uint64_t volume = d->used + left < left ? UINT64_MAX : d->used + left;
    uint64_t own = d->o.budget > d->others ? d->o.budget - d->others : 0;
    out->budget = d->o.budget && own < volume ? own : volume;
    pthread_mutex_unlock(&d->mu);
}

/* ---- coming down to new limits ---- */

void disk_limits(struct disk *d, uint64_t budget, uint64_t floor)
{
    pthread_mutex_lock(&d->mu);
    d->o.budget = budget;
    d->o.floor = floor;
    pthread_mutex_unlock(&d->mu);
}

void disk_others(struct disk *d, uint64_t bytes)
{
    pthread_mutex_lock(&d->mu);
    d->others = bytes;
    pthread_mutex_unlock(&d->mu);
}

/* With mu: bytes over the budget, or under the floor. What is under way is counted: it is to fit.
 */
static uint64_t over_limits(const struct disk *d, bool floor)
{
    struct statvfs v;
    uint64_t sum = d->used + d->others + d->partial_bytes + d->quarantine.bytes + d->reserved;
    uint64_t over = 0;
    if (d->o.budget && sum > d->o.budget) {
        over = sum - d->o.budget;
    }
    if (floor && statvfs(d->dir, &v) == 0) {
        uint64_t left = (uint64_t)v.f_bavail * v.f_frsize;
        if (left < d->o.floor && d->o.floor - left > over) {
            over = d->o.floor - left;
        }
    }
    return over;
}

uint64_t disk_trim(struct disk *d, size_t max, bool floor)
{
    pthread_mutex_lock(&d->mu);
    uint64_t over = d->closed == LAYOUT_LOCKED ? 0 : over_limits(d, floor), used = d->used;
    uint64_t partials = d->partial_bytes + d->quarantine.bytes;
    if (over && d->quarantine.bytes) {
        quarantine_clear(d);
    }
    if (over && d->partial_bytes) {
        drop_partials(d);
    }
    partials -= d->partial_bytes + d->quarantine.bytes;
    while (max-- && partials + (used - d->used) < over && evict_one(d, UINT8_MAX)) {
    }
    uint64_t gone = partials + (used - d->used);
    pthread_mutex_unlock(&d->mu);
    return gone;
}

uint64_t disk_drop(struct disk *d, uint32_t id)
{
    uint64_t gone = 0;
    pthread_mutex_lock(&d->mu);
    struct disk_item *it = &d->it[id];
    if (it->own && !it->pins && model_object(d->o.m, id)->kind == MODEL_EXPERT) {
        char *p = layout_object(d->dir, d->o.m, id);
        if (p && (unlink(p) == 0 || errno == ENOENT)) {
            gone = model_object(d->o.m, id)->size;
            disk_set_own(d, id, false);
        }
        free(p);
    }
    pthread_mutex_unlock(&d->mu);
    return gone;
}

uint64_t disk_last_use(struct disk *d, uint32_t id)
{
    pthread_mutex_lock(&d->mu);
    const struct disk_item *it = &d->it[id];
    uint64_t t = !it->own ? 0 : it->last_use ? it->last_use : 1;
    pthread_mutex_unlock(&d->mu);
    return t;
}
