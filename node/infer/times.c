/* SPDX-License-Identifier: MIT
 * times.c: where the time of forward calls goes. */
#include "node/infer/internal.h"

#include "proto/base/clock.h"

static uint64_t *of_tier(struct infer_times *t, enum store_tier from, bool again)
{
    return again                  ? &t->stall_ns
           : from == STORE_RAM    ? &t->ram_ns
           : from == STORE_DISK   ? &t->disk_ns
           : from == STORE_PEERS  ? &t->peers_ns
           : from == STORE_ORIGIN ? &t->origin_ns
                                  : &t->stall_ns;
}

/* What has passed since the last of these marks of a call goes to one of its parts, so that nothing
 * of it is left out. Outside of calls nothing is counted. */
static void spent(struct infer *f, uint64_t *on)
{
    if (f->seen) {
        uint64_t now = clock_ns();
        *on += now - f->seen;
        f->seen = now;
    }
}

void times_begin(struct infer *f)
{
    f->seen = f->called = clock_ns();
}

uint64_t times_end(struct infer *f)
{
    times_computed(f);
    uint64_t took = f->seen - f->called;
    f->times.wall_ns += took;
    f->seen = 0;
    return took;
}

void times_computed(struct infer *f)
{
    spent(f, &f->times.compute_ns);
}

int timed_next(struct infer *f, struct store_batch *b, size_t *which, struct store_view *v,
               struct err *e)
{
    times_computed(f);
    int r = store_batch_next(b, which, v, e);
    spent(f, of_tier(&f->times, r ? STORE_NOWHERE : (enum store_tier)v->from, !r && v->again));
    return r;
}

int timed_begin(struct infer *f, const uint32_t *ids, size_t n, enum store_prio prio,
                struct store_batch **b, struct err *e)
{
    times_computed(f);
    int r = store_batch_begin(f->st, ids, n, prio, b, e);
    spent(f, &f->times.ram_ns);
    return r;
}

void timed_end(struct infer *f, struct store_batch *b)
{
    if (b) {
        times_computed(f);
        store_batch_end(b);
        spent(f, &f->times.ram_ns);
    }
}

void timed_release(struct infer *f, struct store_view *v, bool drop)
{
    times_computed(f);
    (drop ? store_release_drop : store_release)(f->st, v);
    spent(f, &f->times.ram_ns);
}

enum store_tier timed_where(struct infer *f, uint32_t id)
{
    times_computed(f);
    enum store_tier r = store_where(f->st, id);
    spent(f, &f->times.ram_ns);
    return r;
}

int timed_read(struct infer *f, uint32_t id, uint64_t off, void *p, size_t n, struct err *e)
{
    enum store_tier from = timed_where(f, id);
    int r = store_read(f->st, id, off, p, n, e);
    spent(f, of_tier(&f->times, r ? STORE_NOWHERE : from, false));
    return r;
}

uint64_t times_waited(const struct infer *f)
{
    const struct infer_times *t = &f->times;
    return t->disk_ns + t->peers_ns + t->origin_ns + t->stall_ns;
}

void infer_get_times(const struct infer *f, struct infer_times *out)
{
    *out = f->times;
}
