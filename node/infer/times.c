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

int timed_next(struct infer *f, struct store_batch *b, size_t *which, struct store_view *v,
               struct err *e)
{
    uint64_t t = clock_ns();
    int r = store_batch_next(b, which, v, e);
    *of_tier(&f->times, r ? STORE_NOWHERE : (enum store_tier)v->from, !r && v->again) +=
        clock_ns() - t;
    return r;
}

int timed_begin(struct infer *f, const uint32_t *ids, size_t n, enum store_prio prio,
                struct store_batch **b, struct err *e)
{
    uint64_t t = clock_ns();
    int r = store_batch_begin(f->st, ids, n, prio, b, e);
    f->times.ram_ns += clock_ns() - t;
    return r;
}

void timed_end(struct infer *f, struct store_batch *b)
{
    if (b) {
        uint64_t t = clock_ns();
        store_batch_end(b);
        f->times.ram_ns += clock_ns() - t;
    }
}

void timed_release(struct infer *f, struct store_view *v, bool drop)
{
    uint64_t t = clock_ns();
    (drop ? store_release_drop : store_release)(f->st, v);
    f->times.ram_ns += clock_ns() - t;
}

enum store_tier timed_where(struct infer *f, uint32_t id)
{
    uint64_t t = clock_ns();
    enum store_tier r = store_where(f->st, id);
    f->times.ram_ns += clock_ns() - t;
    return r;
}

int timed_read(struct infer *f, uint32_t id, uint64_t off, void *p, size_t n, struct err *e)
{
    enum store_tier from = timed_where(f, id);
    uint64_t t = clock_ns();
    int r = store_read(f->st, id, off, p, n, e);
    *of_tier(&f->times, r ? STORE_NOWHERE : from, false) += clock_ns() - t;
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
