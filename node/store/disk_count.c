/* SPDX-License-Identifier: MIT
 * disk_count.c: see disk.h: bytes written to the cache, by day. What this process has written
 * stands in its own folder at any time (session.h), so that a kill loses none of it and every
 * process can tell the sum of all; it goes to MODEL/written at the end, with a new day, or with the
 * folder when another process finds it. */
#include "node/store/disk_inner.h"
#include "node/store/kept.h"

void disk_wrote(struct disk *d, uint64_t bytes)
{
    struct err e;
    int32_t day = kept_today(), old;
    pthread_mutex_lock(&d->mu);
    old = d->count_day;
    uint64_t over = old != day ? d->counted : 0;
    d->counted = bytes + (over ? 0 : d->counted);
    d->count_day = day;
    d->written += bytes;
    uint64_t n = d->counted;
    const struct session *s = d->session; /* once it is there, it stays to the end */
    pthread_mutex_unlock(&d->mu);
    if (s) {
        session_count(s, day, n);
    }
    if (over) { /* of the day before: a kill at this moment loses it */
        (void)kept_written_add(d->o.cache_dir, d->dir, old, over, &e);
    }
}

uint64_t disk_written(struct disk *d)
{
    pthread_mutex_lock(&d->mu);
    uint64_t n = d->written;
    d->written = 0;
    pthread_mutex_unlock(&d->mu);
    return n;
}

void disk_count_end(struct disk *d)
{
    struct err e;
    if (d->session && d->counted &&
        !kept_written_add(d->o.cache_dir, d->dir, d->count_day, d->counted, &e)) {
        session_count(d->session, d->count_day, 0);
    }
}
