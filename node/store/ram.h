/* SPDX-License-Identifier: MIT
 * ram.h: the memory of the RAM tier: page-aligned slots, kept for reuse, and their accounting.
 * It knows nothing about objects; which one leaves is the engine's decision. All functions are
 * called with the store's mutex held, but ram_fill and ram_sweep, which call the allocator. */
#ifndef SHOAL_STORE_RAM_H
#define SHOAL_STORE_RAM_H

#include "node/store/store.h"

#include <pthread.h>

struct ram_slot {
    struct ram_slot *next; /* private */
    uint8_t *p;            /* NULL until ram_fill */
    void *handle;
    size_t size;
    bool expert;
};

struct ram {
    struct store_mem mem;
    uint64_t budget;                  /* of experts, bytes */
    uint64_t expert_used, spine_used; /* bytes of slots given out */
    uint64_t peak;                    /* highest expert_used + spine_used */
    uint64_t spine_peak;
    uint64_t expert_free, spine_free; /* bytes of slots kept for reuse */
    struct ram_slot *free_expert, *free_spine, *dead;
};

void ram_init(struct ram *r, const struct store_mem *mem, uint64_t budget);
/* Frees the slots kept for reuse; those given out must have come back. */
void ram_close(struct ram *r);
/* A slot of exactly `size` bytes, accounted as used; its memory may have to come by ram_fill. NULL
 * only when the small record itself cannot be had. */
struct ram_slot *ram_take(struct ram *r, size_t size, bool expert);
/* Without the mutex: give the slot memory if it has none. False: there is no memory. */
bool ram_fill(struct ram *r, struct ram_slot *s);
/* The slot comes back: kept for reuse within the budget, else released by the next ram_sweep. */
void ram_put(struct ram *r, struct ram_slot *s);
/* Give up everything that is only kept for reuse (memory is short). */
void ram_trim(struct ram *r);
/* Without the mutex: release what ram_put set aside. */
void ram_sweep(struct ram *r, pthread_mutex_t *m);

#endif
