/* SPDX-License-Identifier: MIT
 * emu_backend.c: see emu_backend.h. */
#include "tests/shaders/emu_backend.h"

#include "kernels/exec.h"
#include "kernels/fpenv.h"
#include "kernels/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct emu_be {
    struct kern_backend b;
    struct emu_opts o;
    struct kern_buf scratch;
    size_t mapped;
    uint64_t fence;
};

static struct kern_buf *be_alloc(struct kern_backend *b, size_t size)
{
    struct kern_buf *buf = malloc(sizeof *buf);
    size_t mapped;
    if (buf) {
        *buf = (struct kern_buf){.host = kern_mem_map(size, &mapped), .size = size};
        buf->impl = (void *)(uintptr_t)mapped;
        if (!buf->host) {
            free(buf);
            return NULL;
        }
    }
    return buf;
}

static void be_free(struct kern_backend *b, struct kern_buf *buf)
{
    if (buf) {
        kern_mem_unmap(buf->host, (uintptr_t)buf->impl);
        free(buf);
    }
}

bool emu_usable(void)
{
#if defined(__x86_64__) && defined(EMU_NEEDS_FMA)
    return __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

int emu_launch(void *ctx, const struct sh_launch *l)
{
    const struct emu_opts *o = ctx;
    const struct emu_kernel *k = &emu_shaders[l->kernel];
    void *buf[SH_BUFFERS] = {0};
    char why[256] = "";
    if (k->buffers != l->buffers || k->args_size != l->args_size || l->threads % 32) {
        fprintf(stderr, "%s: planned with %u buffers, %zu bytes of arguments, %u threads\n",
                k->name, l->buffers, l->args_size, l->threads);
        return KERN_EINVAL;
    }
    for (uint32_t i = 0; i < l->buffers; i++) {
        buf[i] = kern_ptr(l->buf[i]);
    }
    if (emu_run(k, &l->args, l->groups, l->threads, buf, o->reverse, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return KERN_EINVAL;
    }
    return 0;
}

static int be_submit(struct kern_backend *b, const struct kern_cmd *cmds, size_t n, uint64_t *fence)
{
    struct emu_be *e = b->impl;
    for (size_t i = 0; i < n; i++) {
        size_t need;
        if (kern_check_cmd(&cmds[i]) || !sh_plan_scratch(&cmds[i], &e->o.plan, &need)) {
            return KERN_EINVAL;
        }
        if (need > e->scratch.size) {
            size_t mapped;
            void *p = kern_mem_map(need, &mapped);
            if (!p) {
                return KERN_ENOMEM;
            }
            kern_mem_unmap(e->scratch.host, e->mapped);
            e->scratch = (struct kern_buf){.host = p, .size = need};
            e->mapped = mapped;
        }
    }
    uint64_t mode = kern_fpenv_enter(e->o.flush);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        if (e->scratch.size) { /* nothing may count on what an earlier command left */
            memset(e->scratch.host, 0xff, e->scratch.size);
        }
        rc = sh_plan(&cmds[i], &e->o.plan, &e->scratch, emu_launch, &e->o);
    }
    kern_fpenv_leave(mode);
    *fence = ++e->fence;
    return rc;
}

static int be_wait(struct kern_backend *b, uint64_t fence)
{
    const struct emu_be *e = b->impl;
    return fence <= e->fence ? 0 : KERN_EINVAL;
}

static uint64_t be_done(struct kern_backend *b)
{
    const struct emu_be *e = b->impl;
    return e->fence;
}

static void be_close(struct kern_backend *b)
{
    struct emu_be *e = b->impl;
    kern_mem_unmap(e->scratch.host, e->mapped);
    free(e);
}

struct kern_backend *emu_open(const struct emu_opts *o)
{
    struct emu_be *e = calloc(1, sizeof *e);
    if (!e) {
        return NULL;
    }
    e->o = *o;
    e->b = (struct kern_backend){
        .alloc = be_alloc,
        .free = be_free,
        .submit = be_submit,
        .wait = be_wait,
        .done = be_done,
        .close = be_close,
        .name = o->reverse ? "emulation/reverse" : "emulation",
        .threads = 1,
        .impl = e,
    };
    return &e->b;
}
