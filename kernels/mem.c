/* SPDX-License-Identifier: MIT
 * mem.c: see mem.h. */
#include "kernels/mem.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

static void *map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void *kern_mem_map(size_t size, size_t *mapped)
{
    long got = sysconf(_SC_PAGESIZE);
    size_t page = got > 0 ? (size_t)got : 4096;
    if (size > SIZE_MAX - HUGE_PAGE - page) {
        return NULL;
    }
    size_t len = size ? (size + page - 1) / page * page : page;
    *mapped = len;
#ifdef MADV_HUGEPAGE
    if (len >= 2 * HUGE_PAGE) { /* begin on a huge page: map more, then cut both ends */
        char *p = map(len + HUGE_PAGE);
        if (!p) {
            return NULL;
        }
        size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
        if (head) {
            munmap(p, head);
        }
        if (HUGE_PAGE - head) {
            munmap(p + head + len, HUGE_PAGE - head);
        }
        madvise(p + head, len, MADV_HUGEPAGE); /* a wish; refusal costs speed only */
        return p + head;
    }
#endif
    return map(len);
}

void kern_mem_unmap(void *p, size_t mapped)
{
    if (p) {
        munmap(p, mapped);
    }
}
