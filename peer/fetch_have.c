/* SPDX-License-Identifier: MIT
 * fetch_have.c: the set of objects that a peer has: pages of 4096 bits in a hash table. */
#include "peer/fetch_int.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BITS 4096u

static uint32_t slot_of(const struct have_set *h, uint32_t row, uint32_t page)
{
    uint64_t x = ((uint64_t)row << 32 | page) * 0x9e3779b97f4a7c15ull;
    uint32_t i = (uint32_t)(x >> 40) & (h->cap - 1);
    while (h->slot[i] && (h->slot[i]->row != row || h->slot[i]->page != page)) {
        i = (i + 1) & (h->cap - 1);
    }
    return i;
}

static struct page *find(const struct have_set *h, uint32_t row, uint32_t page)
{
    return h->cap ? h->slot[slot_of(h, row, page)] : NULL;
}

void have_free(struct have_set *h)
{
    for (uint32_t i = 0; i < h->cap; i++) {
        free(h->slot[i]);
    }
    free(h->slot);
    memset(h, 0, sizeof *h);
}

static int make(struct have_set *h, uint32_t row, uint32_t page, struct page **out)
{
    if (h->n >= FETCH_PAGES_MAX) {
        return ERR_LIMIT;
    }
    if ((h->n + 1) * 2 > h->cap) {
        struct have_set b = *h;
        b.cap = h->cap ? h->cap * 2 : 16;
        b.slot = calloc(b.cap, sizeof *b.slot);
        if (!b.slot) {
            return ERR_NOMEM;
        }
        for (uint32_t i = 0; i < h->cap; i++) {
            if (h->slot[i]) {
                b.slot[slot_of(&b, h->slot[i]->row, h->slot[i]->page)] = h->slot[i];
            }
        }
        free(h->slot);
        *h = b;
    }
    struct page *p = calloc(1, sizeof *p);
    if (!p) {
        return ERR_NOMEM;
    }
    p->row = row;
    p->page = page;
    h->slot[slot_of(h, row, page)] = p;
    h->n++;
    *out = p;
    return 0;
}

bool have_test(const struct have_set *h, struct object_key k)
{
    const struct page *p = find(h, (uint32_t)k.kind << 16 | k.layer, k.index / PAGE_BITS);
    uint32_t b = k.index % PAGE_BITS;
    return p && p->bits[b / 64] >> b % 64 & 1;
}

int have_set(struct have_set *h, uint8_t kind, uint16_t layer, uint32_t first, uint32_t count,
             bool on)
{
    if (first > WIRE_INDEX_MAX) {
        return 0;
    }
    if (count > WIRE_INDEX_MAX + 1 - first) {
        count = WIRE_INDEX_MAX + 1 - first;
    }
    uint32_t row = (uint32_t)kind << 16 | layer;
    while (count) {
        uint32_t at = first % PAGE_BITS, n = PAGE_BITS - at < count ? PAGE_BITS - at : count;
        struct page *p = find(h, row, first / PAGE_BITS);
        if (!p && on) {
            int r = make(h, row, first / PAGE_BITS, &p);
            if (r) {
                return r;
            }
        }
        for (uint32_t i = at; p && i < at + n; i++) {
            uint64_t bit = 1ull << i % 64, *w = &p->bits[i / 64];
            if (on && !(*w & bit)) {
                *w |= bit;
                h->objects++;
            } else if (!on && (*w & bit)) {
                *w &= ~bit;
                h->objects--;
            }
        }
        first += n;
        count -= n;
    }
    return 0;
}

void fetch_on_have_reset(struct fetch *f, uint32_t peer)
{
    if (peer < FETCH_PEERS_MAX && f->peer[peer]) {
        have_free(&f->peer[peer]->have);
    }
}

int fetch_on_have_row(struct fetch *f, uint32_t peer, uint8_t kind, uint16_t layer, uint32_t first,
                      const uint8_t *bits, size_t n)
{
    if (peer >= FETCH_PEERS_MAX || !f->peer[peer]) {
        return ERR_ARG;
    }
    fetch_enter(f);
    int r = 0;
    /* By runs of equal bits: a full row is a few steps. */
    for (size_t i = 0; i < n * 8 && first + i <= WIRE_INDEX_MAX && !r;) {
        bool on = bits[i / 8] >> i % 8 & 1;
        size_t j = i + 1;
        while (j < n * 8 && j - i < PAGE_BITS && (bits[j / 8] >> j % 8 & 1) == on) {
            j++;
        }
        r = have_set(&f->peer[peer]->have, kind, layer, (uint32_t)(first + i), (uint32_t)(j - i),
                     on);
        i = j;
    }
    relay_have(f, f->peer[peer]);
    f->dirty = true;
    fetch_leave(f);
    return r;
}

int fetch_on_have(struct fetch *f, uint32_t peer, uint8_t kind, uint16_t layer, uint32_t first,
                  uint32_t count, bool have)
{
    if (peer >= FETCH_PEERS_MAX || !f->peer[peer]) {
        return ERR_ARG;
    }
    fetch_enter(f);
    int r = have_set(&f->peer[peer]->have, kind, layer, first, count, have);
    if (have) {
        relay_alive(f, f->peer[peer]);
        relay_have(f, f->peer[peer]);
    }
    f->dirty = true;
    fetch_leave(f);
    return r;
}

bool fetch_peer_has(const struct fetch *f, uint32_t peer, struct object_key k)
{
    return peer < FETCH_PEERS_MAX && f->peer[peer] && have_test(&f->peer[peer]->have, k);
}

void fetch_peer_row(const struct fetch *f, uint32_t peer, uint8_t kind, uint16_t layer,
                    uint32_t count, uint8_t *bits, uint64_t at)
{
    if (peer >= FETCH_PEERS_MAX || !f->peer[peer]) {
        return;
    }
    const struct page *p = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (i % PAGE_BITS == 0) {
            p = find(&f->peer[peer]->have, (uint32_t)kind << 16 | layer, i / PAGE_BITS);
        }
        if (p && p->bits[i % PAGE_BITS / 64] >> i % 64 & 1) {
            bits[(at + i) >> 3] |= (uint8_t)(1u << ((at + i) & 7));
        }
    }
}

enum fetch_trust fetch_peer_trust(const struct fetch *f, uint32_t peer)
{
    if (peer >= FETCH_PEERS_MAX || !f->peer[peer]) {
        return FETCH_TRUSTED;
    }
    const struct record *r = f->peer[peer]->rec;
    uint64_t now = f->o.ops.now(f->o.ops.ctx);
    return r->banned_until > now                                ? FETCH_BANNED
           : r->pause >= FETCH_DOUBT_NS && r->pause_until > now ? FETCH_DOUBTED
                                                                : FETCH_TRUSTED;
}

uint32_t fetch_holders(const struct fetch *f, struct object_key k)
{
    uint32_t n = 0;
    uint64_t now = f->o.ops.now(f->o.ops.ctx);
    for (uint32_t i = 0; i < f->slots; i++) {
        n += f->peer[i] && f->peer[i]->rec->banned_until <= now && have_test(&f->peer[i]->have, k);
    }
    return n;
}
