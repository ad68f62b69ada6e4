/* SPDX-License-Identifier: MIT
 * compute.c: see compute.h. */
#include "node/compute/compute.h"

#include "node/compute/code.h"
#include "node/compute/tested.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const compute_choices[] = {"auto", "cpu", "gpu", NULL};

struct compute {
    struct compute_setup o;
    struct kern_backend *cpu, *gpu; /* gpu: NULL when it is not in use */
    struct compute_report r;        /* but for the counts */
};

__attribute__((format(printf, 2, 3))) static void say(const struct compute *c, const char *fmt, ...)
{
    char line[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (c->o.say) {
        c->o.say(c->o.say_ctx, line);
    }
}

static void hear(void *ctx, const char *line)
{
    say(ctx, "%s", line);
}

/* ---- the self-test, made or remembered ---- */

/* Most of the work: without them a GPU is of no use. */
static bool is_product(int kernel)
{
    return !strncmp(sh_kernel_name((enum sh_kernel)kernel), "product_", 8);
}

static void list_broken(struct compute *c, const bool broken[SH_KERNELS])
{
    char *out = c->r.on_cpu;
    size_t cap = sizeof c->r.on_cpu, at = 0;
    for (int i = 0; i < SH_KERNELS && at < cap; i++) {
        if (broken[i]) {
            int n = snprintf(out + at, cap - at, "%s%s", at ? ", " : "",
                             sh_kernel_name((enum sh_kernel)i));
            at += n > 0 ? (size_t)n : 0;
        }
    }
}

static void keep(struct compute *c, const struct tested_key *k, const struct tested *t)
{
    struct err e = {0};
    if (c->o.folder && tested_write(c->o.folder, k, t, &e)) {
        say(c, "what the GPU's self-test found cannot be kept, so each start repeats it: %s",
            e.msg);
    }
}

/* 0; else c->r.why says why the GPU cannot be used. */
static int test(struct compute *c, struct sh_device *d, const struct code *code,
                bool broken[SH_KERNELS])
{
    struct tested t = {0};
    const struct tested_key k = {d->name, d->system, c->o.program ? c->o.program : "", code->from};
    bool known = c->o.folder && tested_read(c->o.folder, &k, &t);
    c->r.remembered = known && t.done;
    if (!c->r.remembered) {
        if (known && t.begun >= TESTED_TRIES && c->o.choice == COMPUTE_AUTO) {
            snprintf(c->r.why, sizeof c->r.why,
                     "its self-test did not come to an end %u times; --backend gpu tries it again",
                     t.begun);
            return KERN_ENOTSUP;
        }
        /* Should the GPU take this process down with it, the next one knows. */
        t = (struct tested){.begun = t.begun + 1};
        keep(c, &k, &t);
        say(c, "%s: comparing every kernel with the CPU, once", d->name);
        int n = gpu_selftest(d, t.broken, hear, c);
        if (n < 0) {
            snprintf(c->r.why, sizeof c->r.why, "its self-test could not be made (%d)", n);
            return n;
        }
        t.done = true;
        keep(c, &k, &t);
    }
    memcpy(broken, t.broken, sizeof t.broken);
    list_broken(c, broken);
    for (int i = 0; i < SH_KERNELS; i++) {
        if (broken[i] && is_product(i) && c->o.choice == COMPUTE_AUTO) {
            snprintf(c->r.why, sizeof c->r.why,
                     "kernel %s, which does much of the work, does not give the CPU's bits there",
                     sh_kernel_name((enum sh_kernel)i));
            return KERN_ENOTSUP;
        }
    }
    return 0;
}

/* ---- opening ---- */

static int open_gpu(struct compute *c)
{
    struct gpu_opts o = {.cpu = c->cpu, .say = hear, .ctx = c};
    const struct code_setup cs = {c->o.folder, c->o.program, hear, c};
    struct code code;
    struct sh_device *d = NULL;
    int rc = (c->o.device ? c->o.device : compute_device)(c->o.device_ctx, &d, c->r.why,
                                                          sizeof c->r.why);
    if (rc) {
        if (!c->r.why[0]) {
            snprintf(c->r.why, sizeof c->r.why, "it could not be opened (%d)", rc);
        }
        return rc;
    }
    rc = code_ready(d, &cs, &code, c->r.why, sizeof c->r.why);
    c->r.kept_code = code.kept;
    rc = rc ? rc : test(c, d, &code, o.broken);
    if (rc) {
        d->close(d);
        return rc;
    }
    size_t limit = d->limit;
    rc = gpu_open(d, &o, &c->gpu);
    if (rc) {
        snprintf(c->r.why, sizeof c->r.why, "out of memory");
        return rc;
    }
    c->r.gpu = true;
    c->r.limit = limit;
    c->r.name = c->gpu->name;
    if (c->r.on_cpu[0]) {
        say(c, "%s: these kernels do not give the CPU's bits there, so the CPU does their work: %s",
            c->r.name, c->r.on_cpu);
    }
    return 0;
}

int compute_open(const struct compute_setup *o, struct compute **out, struct err *e)
{
    struct compute *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    c->o = *o;
    int rc = kern_cpu_open(&o->cpu, &c->cpu);
    if (rc) {
        free(c);
        return rc == KERN_ENOTSUP
                   ? err_set(
                         e, ERR_UNSUPPORTED,
                         "--isa %s: this processor does not have it; auto takes the best it has",
                         kern_isa_name(o->cpu.isa))
                   : err_set(e, ERR_NOMEM, "cannot start the workers of the CPU backend");
    }
    c->r.name = c->r.cpu = c->cpu->name;
    if (o->choice == COMPUTE_CPU) {
        snprintf(c->r.why, sizeof c->r.why, "--backend cpu");
    } else if (o->choice == COMPUTE_AUTO && o->cpu.isa != KERN_ISA_AUTO) {
        snprintf(c->r.why, sizeof c->r.why, "--isa asks for the CPU");
    } else if (o->choice == COMPUTE_AUTO && o->cpu.flush_subnormals) {
        snprintf(c->r.why, sizeof c->r.why, "--flush-subnormals is about the CPU");
    } else if (open_gpu(c)) {
        if (o->choice == COMPUTE_GPU) {
            err_set(e, ERR_UNSUPPORTED, "--backend gpu: the GPU cannot be used: %s", c->r.why);
            compute_close(c);
            return ERR_UNSUPPORTED;
        }
    }
    *out = c;
    return 0;
}

void compute_close(struct compute *c)
{
    if (!c) {
        return;
    }
    if (c->gpu) {
        c->gpu->close(c->gpu);
    }
    c->cpu->close(c->cpu);
    free(c);
}

struct kern_backend *compute_backend(struct compute *c)
{
    return c->gpu ? c->gpu : c->cpu;
}

void compute_report(const struct compute *c, struct compute_report *out)
{
    *out = c->r;
    if (c->gpu) {
        struct gpu_counts n;
        gpu_counts(c->gpu, &n);
        out->allocated = n.allocated;
        out->batches = n.batches;
        out->cpu_commands = n.on_cpu;
        out->lost = n.lost;
    }
}

size_t compute_limit(const struct compute *c)
{
    return c->r.limit;
}
