/* SPDX-License-Identifier: MIT
 * cpu.c: the CPU backend: see cpu.h. Submissions run on the spot, in the calling thread and the
 * pool, so a fence is reached when submit returns. */
#include "kernels/cpu.h"

#include "kernels/exec.h"
#include "kernels/fpenv.h"
#include "kernels/math.h"
#include "kernels/mem.h"
#include "kernels/pool.h"

#include <stdio.h>
#include <stdlib.h>

struct cpu {
    struct kern_backend b;
    struct kern_exec x;
    bool flush;
    uint64_t fence;
    size_t shared_mapped, worker_mapped;
    char name[32];
};

static struct kern_buf *cpu_alloc(struct kern_backend *b, size_t size)
{
    struct kern_buf *buf = malloc(sizeof *buf);
    if (!buf) {
        return NULL;
    }
    size_t mapped;
    buf->host = kern_mem_map(size, &mapped);
    if (!buf->host) {
        free(buf);
        return NULL;
    }
    buf->size = size;
    buf->impl = (void *)(uintptr_t)mapped; /* never used as a pointer */
    return buf;
}

static void cpu_free(struct kern_backend *b, struct kern_buf *buf)
{
    if (buf) {
        kern_mem_unmap(buf->host, (uintptr_t)buf->impl);
        free(buf);
    }
}

/* Replaces *p by at least `need` bytes; the old content is lost. */
static bool grow(char **p, size_t *mapped, size_t need)
{
    if (need <= *mapped) {
        return true;
    }
    size_t m;
    char *fresh = kern_mem_map(need, &m);
    if (!fresh) {
        return false;
    }
    kern_mem_unmap(*p, *mapped);
    *p = fresh;
    *mapped = m;
    return true;
}

static int cpu_submit(struct kern_backend *b, const struct kern_cmd *cmds, size_t n,
                      uint64_t *fence)
{
    struct cpu *c = b->impl;
    size_t shared = 0, worker = 0;
    for (size_t i = 0; i < n; i++) {
        if (kern_check_cmd(&cmds[i])) {
            return KERN_EINVAL;
        }
        size_t s, w;
        if (!kern_exec_need(&c->x, &cmds[i], &s, &w)) {
            return KERN_ENOMEM;
        }
        shared = s > shared ? s : shared;
        worker = w > worker ? w : worker;
    }
    if (worker > c->x.worker_size) {
        size_t each, all;
        if (__builtin_add_overflow(worker, (size_t)63, &each) ||
            __builtin_mul_overflow(each / 64 * 64, (size_t)b->threads, &all) ||
            !grow(&c->x.worker, &c->worker_mapped, all)) {
            return KERN_ENOMEM;
        }
        c->x.worker_size = each / 64 * 64;
    }
    if (!grow(&c->x.shared, &c->shared_mapped, shared)) {
        return KERN_ENOMEM;
    }
    uint64_t mode = kern_fpenv_enter(c->flush);
    for (size_t i = 0; i < n; i++) {
        kern_exec_cmd(&c->x, &cmds[i]);
    }
    kern_fpenv_leave(mode);
    *fence = ++c->fence;
    return 0;
}

static int cpu_wait(struct kern_backend *b, uint64_t fence)
{
    const struct cpu *c = b->impl;
    return fence <= c->fence ? 0 : KERN_EINVAL;
}

static uint64_t cpu_done(struct kern_backend *b)
{
    const struct cpu *c = b->impl;
    return c->fence;
}

static void cpu_close(struct kern_backend *b)
{
    struct cpu *c = b->impl;
    kern_pool_close(c->x.pool);
    kern_mem_unmap(c->x.shared, c->shared_mapped);
    kern_mem_unmap(c->x.worker, c->worker_mapped);
    free(c);
}

int kern_cpu_open(const struct kern_cpu_opts *o, struct kern_backend **out)
{
    enum kern_isa isa;
    *out = NULL;
    if (o->threads > KERN_POOL_MAX) {
        return KERN_EINVAL;
    }
    if (kern_isa_resolve(o->isa, &isa)) {
        return KERN_ENOTSUP;
    }
    struct cpu *c = calloc(1, sizeof *c);
    if (!c) {
        return KERN_ENOMEM;
    }
    c->flush = o->flush_subnormals;
    c->x.isa = isa;
    c->x.min_work = o->split_small ? 1 : KERN_MIN_WORK;
    c->x.max_scores = o->split_small ? 100 : KERN_MAX_SCORES;
    c->x.ops = kern_ops_of(isa);
    c->x.pool = kern_pool_open(o->threads, c->flush);
    if (!c->x.pool) {
        free(c);
        return KERN_ENOMEM;
    }
    snprintf(c->name, sizeof c->name, "cpu/%s", kern_isa_name(isa));
    c->b = (struct kern_backend){
        .alloc = cpu_alloc,
        .free = cpu_free,
        .submit = cpu_submit,
        .wait = cpu_wait,
        .done = cpu_done,
        .close = cpu_close,
        .name = c->name,
        .threads = kern_pool_threads(c->x.pool),
        .impl = c,
    };
    *out = &c->b;
    return 0;
}

float kern_exp(float x)
{
    return kern_m_exp(x);
}

float kern_sigmoid(float x)
{
    return kern_m_sigmoid(x);
}

float kern_tanh(float x)
{
    return kern_m_tanh(x);
}

float kern_silu(float x)
{
    return kern_m_silu(x);
}
