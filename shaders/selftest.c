/* SPDX-License-Identifier: MIT
 * selftest.c: see gpu.h. The operands are those of cases.h with fewer rows; tame and wide data
 * only, since a GPU that flushes subnormals is right on the domain of NUMERICS.md and nowhere else.
 */
#include "kernels/cpu.h"
#include "kernels/exec.h"
#include "shaders/cases.h"
#include "shaders/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test {
    struct sh_device *d;
    struct kern_backend *cpu;
    bool *broken;
    void (*say)(void *, const char *);
    void *ctx;
    const char *name;
    bool used[SH_KERNELS];
    struct kern_buf arena, scratch;
    struct sh_mem arena_mem, scratch_mem;
};

static void tell(const struct test *t, const char *text)
{
    if (t->say) {
        t->say(t->ctx, text);
    }
}

static int encode(void *ctx, const struct sh_launch *l)
{
    struct test *t = ctx;
    void *handle[SH_BUFFERS] = {0};
    for (uint32_t i = 0; i < l->buffers; i++) {
        handle[i] = l->buf[i].buf->impl;
    }
    t->used[l->kernel] = true;
    return t->d->encode(t->d, l, handle);
}

static int run_gpu(struct test *t, const struct kern_cmd *c, const struct sh_plan_opts *o)
{
    uint64_t batch;
    char why[200] = "";
    size_t need;
    memset(t->used, 0, sizeof t->used);
    if (!sh_plan_scratch(c, o, &need) || need > t->scratch.size) {
        return KERN_ENOMEM;
    }
    int rc = sh_plan(c, o, &t->scratch, encode, t);
    rc = rc ? rc : t->d->commit(t->d, &batch);
    rc = rc ? rc : t->d->wait(t->d, batch, why, sizeof why);
    if (rc && why[0]) {
        tell(t, why);
    }
    return rc;
}

static void differs(struct test *t, const char *command, size_t at, const void *want)
{
    for (int k = 0; k < SH_KERNELS; k++) {
        /* softmax is part of two commands: the others of a plan are named first */
        if (t->used[k] && !t->broken[k] && k != SH_softmax) {
            char text[256];
            uint32_t w, g;
            memcpy(&w, (const char *)want + at, 4);
            memcpy(&g, (const char *)t->arena.host + at, 4);
            snprintf(text, sizeof text,
                     "%s: kernel %s (%s) gives %08x where the CPU has %08x, at byte %zu; its work "
                     "goes to the CPU",
                     t->d->name, sh_kernel_name((enum sh_kernel)k), command, g, w, at);
            tell(t, text);
            t->broken[k] = true;
        }
    }
}

/* One case with one kind of data, in aligned and in plain kernels. */
static int one(struct test *t, size_t i, enum case_mood mood, uint8_t *before, uint8_t *want,
               size_t size)
{
    static const struct case_scale small = {.rows = 101, .heads = 10, .positions = 39};
    struct case_built c;
    uint64_t fence;
    memset(t->arena.host, 0, size);
    case_build(i, &small, mood, &t->arena, &c);
    memcpy(before, t->arena.host, size);
    int rc = t->cpu->submit(t->cpu, &c.cmd, 1, &fence);
    rc = rc ? rc : t->cpu->wait(t->cpu, fence);
    memcpy(want, t->arena.host, size);
    for (int plain = 0; !rc && plain < 2; plain++) {
        const struct sh_plan_opts o = {.plain = plain};
        memcpy(t->arena.host, before, size);
        rc = run_gpu(t, &c.cmd, &o);
        size_t at = rc ? SIZE_MAX : case_compare(&c, want, t->arena.host);
        if (at != SIZE_MAX) {
            differs(t, c.name, at, want);
        }
    }
    return rc;
}

static int all(struct test *t)
{
    static const struct case_scale small = {.rows = 101, .heads = 10, .positions = 39};
    size_t most = 0;
    for (size_t i = 0; i < case_count(); i++) {
        size_t n = case_arena(i, &small);
        most = n > most ? n : most;
    }
    size_t scratch = (size_t)8 << 20;
    uint8_t *before = malloc(most), *want = malloc(most);
    int rc = before && want ? 0 : KERN_ENOMEM;
    if (!rc && t->d->alloc(t->d, most, &t->arena_mem)) {
        rc = KERN_ENOMEM;
    }
    if (!rc && t->d->alloc(t->d, scratch, &t->scratch_mem)) {
        t->d->free(t->d, &t->arena_mem);
        rc = KERN_ENOMEM;
    }
    if (!rc) {
        t->arena = (struct kern_buf){t->arena_mem.host, most, t->arena_mem.handle};
        t->scratch = (struct kern_buf){t->scratch_mem.host, scratch, t->scratch_mem.handle};
        for (size_t i = 0; !rc && i < case_count(); i++) {
            for (int mood = CASE_TAME; !rc && mood <= CASE_WIDE; mood++) {
                rc = one(t, i, (enum case_mood)mood, before, want, case_arena(i, &small));
            }
        }
        t->d->free(t->d, &t->arena_mem);
        t->d->free(t->d, &t->scratch_mem);
    }
    free(before);
    free(want);
    return rc;
}

int gpu_selftest(struct sh_device *d, bool broken[SH_KERNELS], void (*say)(void *, const char *),
                 void *ctx)
{
    struct kern_cpu_opts o = {.isa = KERN_ISA_SCALAR, .threads = 1};
    struct test t = {.d = d, .broken = broken, .say = say, .ctx = ctx};
    memset(broken, 0, SH_KERNELS * sizeof *broken);
    int rc = kern_cpu_open(&o, &t.cpu);
    if (rc) {
        return rc;
    }
    rc = all(&t);
    t.cpu->close(t.cpu);
    if (rc) {
        return rc;
    }
    int n = 0;
    for (int k = 0; k < SH_KERNELS; k++) {
        n += broken[k];
    }
    return n;
}
