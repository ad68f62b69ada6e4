/* SPDX-License-Identifier: MIT
 * back_off.c: memory that the RAM tier counted on is not to be had, or is wanted elsewhere: experts
 * leave by steps, the least recently used first, and the budget stays where that ended. */
#include "node/store/engine.h"

#include <string.h>

#define STEPS 3 /* of growing size, before everything that nobody holds goes */

static uint64_t held(const struct ram *r)
{
    return r->expert_used + r->expert_free + r->spine_used + r->spine_free;
}

/* A layer's choice: with less, a layer would wait for memory inside of itself. */
static uint64_t least(const struct store *st)
{
    return (uint64_t)model_config(st->m)->topk * model_expert_layout(st->m)->size;
}

/* With the mutex held; the caller sweeps. Returns the bytes that go. */
static uint64_t step(struct store *st, uint64_t bytes)
{
    struct ram *r = &st->ram;
    uint64_t before = held(r), floor = least(st);
    uint64_t to = r->expert_used > bytes ? r->expert_used - bytes : 0;
    to = to < floor ? floor : to;
    r->budget = to < r->budget ? to : r->budget;
    for (struct entry *v = st->lru.tail, *prev; v && r->expert_used > r->budget; v = prev) {
        prev = v->prev;
        eng_evict(st, v);
    }
    ram_trim(r);
    return before - held(r);
}

static void tell(struct store *st)
{
    pthread_mutex_lock(&st->mu);
    uint64_t now = st->ram.budget;
    bool news = !st->ram_said || now < st->ram_said / 8 * 7;
    st->ram_said = news ? now : st->ram_said;
    pthread_mutex_unlock(&st->mu);
    if (news) {
        eng_log(st, "memory is short: experts get %.1f GB of it from now on", (double)now * 1e-9);
    }
}

uint64_t store_ram_back_off(struct store *st, uint64_t bytes)
{
    pthread_mutex_lock(&st->mu);
    uint64_t went = step(st, bytes);
    pthread_mutex_unlock(&st->mu);
    eng_sweep(st);
    tell(st);
    return went;
}

bool eng_fill(struct store *st, struct ram_slot *s)
{
    uint64_t bytes = s->size;
    bool ok;
    pthread_mutex_unlock(&st->mu);
    eng_sweep(st);
    ok = ram_fill(&st->ram, s);
    for (int i = 0; !ok && i < STEPS; i++, bytes *= 4) {
        (void)store_ram_back_off(st, bytes);
        ok = ram_fill(&st->ram, s);
    }
    pthread_mutex_lock(&st->mu);
    if (!ok) {
        while (st->lru.tail) {
            eng_evict(st, st->lru.tail);
        }
        ram_trim(&st->ram);
        pthread_mutex_unlock(&st->mu);
        eng_sweep(st);
        ok = ram_fill(&st->ram, s);
        pthread_mutex_lock(&st->mu);
    }
    return ok;
}
