/* SPDX-License-Identifier: MIT
 * emu.c: see emu.h. Fibers are stacks and a dozen instructions that change between them. */
#include "tests/shaders/emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define EMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMU_TSAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMU_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define LANES 32
#define STACK ((size_t)64 << 10)

/* Keeps the callee-saved registers on the stack, leaves its top in *from, goes on at `to`. The
 * floating-point mode stays as it is. */
void emu_switch(void **from, void *to);
#if defined(__x86_64__)
__asm__(".text\n.globl emu_switch\n.type emu_switch,@function\nemu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size emu_switch,.-emu_switch\n");
#define SAVED 6 /* words below the return address */
#elif defined(__aarch64__)
__asm__(".text\n.globl emu_switch\n.type emu_switch,%function\nemu_switch:\n"
        "sub sp,sp,#160\n"
        "stp x19,x20,[sp,#0]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
        "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\n"
        "stp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
        "mov x2,sp\nstr x2,[x0]\nmov sp,x1\n"
        "ldp x19,x20,[sp,#0]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
        "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\n"
        "ldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\nadd sp,sp,#160\nret\n"
        ".size emu_switch,.-emu_switch\n");
#else
#error "emu.c knows x86-64 and arm64"
#endif

enum state { READY, SHUFFLE, BARRIER, DONE };

struct fiber {
    void *sp;
    char *stack;
    enum state state;
    int line;
    uint32_t value, mask;
#ifdef EMU_ASAN
    void *fake;
#endif
#ifdef EMU_TSAN
    void *tsan;
#endif
};

static struct {
    struct fiber f[EMU_THREADS];
    void *main;
    uint32_t current, threads;
    bool reverse;
    const struct emu_kernel *kernel;
    const void *args;
    const uint32_t *group;
    void *const *buf;
    char *stacks;
#ifdef EMU_ASAN
    const void *main_stack;
    size_t main_size;
    void *main_fake;
#endif
#ifdef EMU_TSAN
    void *main_tsan;
#endif
} emu;

/* The threadgroup memory of all kernels in this program, if any. */
extern char __start_emu_shared[] __attribute__((weak));
extern char __stop_emu_shared[] __attribute__((weak));

static void leave(struct fiber *f)
{
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(f->state == DONE ? NULL : &f->fake, emu.main_stack,
                                   emu.main_size);
#endif
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(emu.main_tsan, 0);
#endif
    emu_switch(&f->sp, emu.main);
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(f->fake, NULL, NULL);
#endif
}

static void entry(void)
{
    struct fiber *f = &emu.f[emu.current];
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(NULL, &emu.main_stack, &emu.main_size);
#endif
    emu.kernel->fn(emu.args, emu.group, emu.current, emu.buf);
    f = &emu.f[emu.current];
    f->state = DONE;
    leave(f);
}

static void start(struct fiber *f)
{
    void **top = (void **)(void *)(f->stack + STACK);
#if defined(__x86_64__)
    *--top = NULL; /* where a return of entry would go; keeps the alignment of a call */
    *--top = (void *)(uintptr_t)entry;
    for (int i = 0; i < SAVED; i++) {
        *--top = NULL;
    }
#else
    top -= 20;
    memset(top, 0, 160);
    top[11] = (void *)(uintptr_t)entry; /* x30 */
#endif
    f->sp = top;
    f->state = READY;
}

static void resume(uint32_t i)
{
    struct fiber *f = &emu.f[i];
    emu.current = i;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(&emu.main_fake, f->stack, STACK);
#endif
#ifdef EMU_TSAN
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
    emu_switch(&emu.main, f->sp);
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(emu.main_fake, NULL, NULL);
#endif
}

uint32_t emu_shuffle_xor(uint32_t v, uint32_t mask, int line)
{
    struct fiber *f = &emu.f[emu.current];
    f->state = SHUFFLE;
    f->line = line;
    f->value = v;
    f->mask = mask;
    leave(f);
    return emu.f[emu.current].value;
}

void emu_barrier(int line)
{
    struct fiber *f = &emu.f[emu.current];
    f->state = BARRIER;
    f->line = line;
    leave(f);
}

static const char *place(const struct fiber *f)
{
    static const char *const names[] = {"running", "at a shuffle", "at a barrier", "at its end"};
    return names[f->state];
}

/* Do threads [i0, i0 + n) all stand at one place? */
static int together(uint32_t i0, uint32_t n, const char *what, char *why, size_t size)
{
    const struct fiber *a = &emu.f[i0];
    for (uint32_t i = i0 + 1; i < i0 + n; i++) {
        const struct fiber *b = &emu.f[i];
        bool same = a->state == b->state && (a->state == DONE || a->line == b->line) &&
                    (a->state != SHUFFLE || a->mask == b->mask);
        if (!same) {
            snprintf(why, size,
                     "%s: divergent %s of threadgroup (%u, %u, %u): thread %u is %s (line %d), "
                     "thread %u is %s (line %d)",
                     emu.kernel->name, what, emu.group[0], emu.group[1], emu.group[2], i0, place(a),
                     a->state == DONE ? 0 : a->line, i, place(b), b->state == DONE ? 0 : b->line);
            return -1;
        }
    }
    return 0;
}

static int run_simd(uint32_t i0, uint32_t n, char *why, size_t size)
{
    for (;;) {
        for (uint32_t j = 0; j < n; j++) {
            resume(emu.reverse ? i0 + n - 1 - j : i0 + j);
        }
        if (together(i0, n, "SIMD group", why, size)) {
            return -1;
        }
        if (emu.f[i0].state != SHUFFLE) {
            return 0;
        }
        uint32_t v[LANES];
        for (uint32_t j = 0; j < n; j++) {
            v[j] = emu.f[i0 + j].value;
        }
        for (uint32_t j = 0; j < n; j++) {
            uint32_t from = j ^ emu.f[i0 + j].mask;
            if (from >= n) {
                snprintf(why, size, "%s: a shuffle reads lane %u of %u", emu.kernel->name, from, n);
                return -1;
            }
            emu.f[i0 + j].value = v[from];
            emu.f[i0 + j].state = READY;
        }
    }
}

static int run_group(char *why, size_t size)
{
    uint32_t simds = (emu.threads + LANES - 1) / LANES;
    if (__start_emu_shared) {
        memset(__start_emu_shared, 0xff, (size_t)(__stop_emu_shared - __start_emu_shared));
    }
    for (uint32_t i = 0; i < emu.threads; i++) {
        start(&emu.f[i]);
    }
    for (;;) {
        for (uint32_t j = 0; j < simds; j++) {
            uint32_t i0 = (emu.reverse ? simds - 1 - j : j) * LANES;
            uint32_t n = emu.threads - i0 < LANES ? emu.threads - i0 : LANES;
            if (run_simd(i0, n, why, size)) {
                return -1;
            }
        }
        if (together(0, emu.threads, "barrier", why, size)) {
            return -1;
        }
        if (emu.f[0].state == DONE) {
            return 0;
        }
        for (uint32_t i = 0; i < emu.threads; i++) {
            emu.f[i].state = READY;
        }
    }
}

static int prepare(void)
{
    if (!emu.stacks) {
        emu.stacks = malloc(STACK * EMU_THREADS);
        if (!emu.stacks) {
            return -1;
        }
        for (uint32_t i = 0; i < EMU_THREADS; i++) {
            emu.f[i].stack = emu.stacks + i * STACK;
        }
    }
#ifdef EMU_TSAN
    for (uint32_t i = 0; i < EMU_THREADS; i++) {
        if (!emu.f[i].tsan) {
            emu.f[i].tsan = __tsan_create_fiber(0);
        }
    }
    emu.main_tsan = __tsan_get_current_fiber();
#endif
    return 0;
}

int emu_run(const struct emu_kernel *k, const void *args, const uint32_t groups[3],
            uint32_t threads, void *const *buf, bool reverse, char *why, size_t size)
{
    if (!threads || threads > EMU_THREADS || prepare()) {
        snprintf(why, size, "%s: %u threads", k->name, threads);
        return -1;
    }
    emu.kernel = k;
    emu.args = args;
    emu.buf = buf;
    emu.threads = threads;
    emu.reverse = reverse;
    uint64_t all = (uint64_t)groups[0] * groups[1] * groups[2];
    for (uint64_t i = 0; i < all; i++) {
        uint64_t j = reverse ? all - 1 - i : i;
        const uint32_t group[3] = {(uint32_t)(j % groups[0]), (uint32_t)(j / groups[0] % groups[1]),
                                   (uint32_t)(j / groups[0] / groups[1])};
        emu.group = group;
        if (run_group(why, size)) {
            return -1;
        }
    }
    return 0;
}
