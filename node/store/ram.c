/* SPDX-License-Identifier: MIT
 * ram.c: see ram.h. */
#include "node/store/ram.h"

#include "proto/base/num.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page_round(size_t n)
{
    long pg = sysconf(_SC_PAGESIZE);
    size_t page = pg > 0 ? (size_t)pg : 4096;
    return (size_t)num_round_up(n ? n : 1, page);
}

/* The default memory: anonymous pages. The size stands in a small record that is the handle. */
struct pages {
    void *p;
    size_t n;
};

static void *pages_alloc(void *ctx, size_t size, void **handle)
{
    (void)ctx;
    struct pages *g = malloc(sizeof *g);
    if (!g) {
        return NULL;
    }
    g->n = page_round(size);
    g->p = mmap(NULL, g->n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->p == MAP_FAILED) {
        free(g);
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    if (g->n >= (4u << 20)) {
        madvise(g->p, g->n, MADV_HUGEPAGE); /* only a wish; fewer faults and TLB misses */
    }
#endif
    *handle = g;
    return g->p;
}

static void pages_release(void *ctx, void *handle)
{
    (void)ctx;
    struct pages *g = handle;
    munmap(g->p, g->n);
    free(g);
}

void ram_init(struct ram *r, const struct store_mem *mem, uint64_t budget)
{
    memset(r, 0, sizeof *r);
    r->budget = budget;
    if (mem && mem->alloc && mem->release) {
        r->mem = *mem;
    } else {
        r->mem.alloc = pages_alloc;
        r->mem.release = pages_release;
    }
}

static void free_list(struct ram *r, struct ram_slot *s)
{
    while (s) {
        struct ram_slot *next = s->next;
        if (s->p) {
            r->mem.release(r->mem.ctx, s->handle);
        }
        free(s);
        s = next;
    }
}

void ram_trim(struct ram *r)
{
    struct ram_slot **list[2] = {&r->free_expert, &r->free_spine};
    for (int i = 0; i < 2; i++) {
        while (*list[i]) {
            struct ram_slot *s = *list[i];
            *list[i] = s->next;
            s->next = r->dead;
            r->dead = s;
        }
    }
    r->expert_free = r->spine_free = 0;
}

void ram_close(struct ram *r)
{
    ram_trim(r);
    free_list(r, r->dead);
    r->dead = NULL;
}

/* Slots for reuse must not add to the peak: experts within their budget, spine within what was in
 * use at once before. The oldest ones, at the end of the list, go first. */
static void bound(struct ram_slot **list, uint64_t *have, uint64_t max, struct ram_slot **dead)
{
    while (*have > max) {
        struct ram_slot **last = list;
        while ((*last)->next) {
            last = &(*last)->next;
        }
        struct ram_slot *s = *last;
        *last = NULL;
        *have -= s->size;
        s->next = *dead;
        *dead = s;
    }
}

static void rebound(struct ram *r, bool expert)
{
    uint64_t used = expert ? r->expert_used : r->spine_used;
    uint64_t max = expert ? r->budget : r->spine_peak;
    bound(expert ? &r->free_expert : &r->free_spine, expert ? &r->expert_free : &r->spine_free,
          max > used ? max - used : 0, &r->dead);
}

struct ram_slot *ram_take(struct ram *r, size_t size, bool expert)
{
    struct ram_slot **at = expert ? &r->free_expert : &r->free_spine;
    while (*at && (*at)->size != size) {
        at = &(*at)->next;
    }
    struct ram_slot *s = *at;
    if (s) {
        *at = s->next;
        *(expert ? &r->expert_free : &r->spine_free) -= size;
    } else {
        s = calloc(1, sizeof *s);
        if (!s) {
            return NULL;
        }
        s->size = size;
        s->expert = expert;
    }
    s->next = NULL;
    *(expert ? &r->expert_used : &r->spine_used) += size;
    if (r->expert_used + r->spine_used > r->peak) {
        r->peak = r->expert_used + r->spine_used;
    }
    if (r->spine_used > r->spine_peak) {
        r->spine_peak = r->spine_used;
    }
    rebound(r, expert);
    return s;
}

bool ram_fill(struct ram *r, struct ram_slot *s)
{
    if (!s->p) {
        s->p = r->mem.alloc(r->mem.ctx, s->size, &s->handle);
    }
    return s->p != NULL;
}

void ram_put(struct ram *r, struct ram_slot *s)
{
    *(s->expert ? &r->expert_used : &r->spine_used) -= s->size;
    if (!s->p) {
        free(s);
        return;
    }
    struct ram_slot **list = s->expert ? &r->free_expert : &r->free_spine;
    s->next = *list;
    *list = s;
    *(s->expert ? &r->expert_free : &r->spine_free) += s->size;
    rebound(r, s->expert);
}

void ram_sweep(struct ram *r, pthread_mutex_t *m)
{
    pthread_mutex_lock(m);
    struct ram_slot *s = r->dead;
    r->dead = NULL;
    pthread_mutex_unlock(m);
    free_list(r, s);
}
