/* SPDX-License-Identifier: MIT
 * metal_check.c: the first start on a Mac: does the GPU compute the CPU's bits, and how fast. See
 * FIRST-RUN.md. */
#include "kernels/cpu.h"
#include "shaders/cases.h"
#include "shaders/metal_device.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysctl.h>
#include <time.h>
#include <unistd.h>

static void print_line(void *ctx, const char *text)
{
    printf("%s\n", text);
}

static void print_system(const char *name)
{
    char text[128] = "?";
    size_t n = sizeof text;
    sysctlbyname(name, text, &n, NULL, 0);
    printf("%s: %s\n", name, text);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* K3's full shapes, twenty times in one submission each. */
static int rates(struct kern_backend *b)
{
    static const struct case_scale full = {1, 1, 1};
    for (size_t i = 0; i < case_count(); i++) {
        struct case_built c;
        struct kern_cmd cmds[20];
        uint64_t fence;
        struct kern_buf *arena = b->alloc(b, case_arena(i, &full));
        if (!arena) {
            printf("%-28s left out: more than the GPU's memory limit\n", case_name(i));
            continue;
        }
        case_build(i, &full, CASE_TAME, arena, &c);
        for (size_t k = 0; k < 20; k++) {
            cmds[k] = c.cmd;
        }
        double best = 1e9;
        for (int run = 0; run < 4; run++) { /* the first brings the pages in */
            double t0 = now();
            if (b->submit(b, cmds, 20, &fence) || b->wait(b, fence)) {
                return 1;
            }
            double t = (now() - t0) / 20;
            best = run && t < best ? t : best;
        }
        printf("%-28s %9.3f MB %10.1f us %8.1f GB/s %8.0f GFLOP/s\n", c.name,
               (double)c.bytes * 1e-6, best * 1e6, (double)c.bytes / best * 1e-9,
               c.flop / best * 1e-9);
        b->free(b, arena);
    }
    return 0;
}

/* Compiled, written to a file and taken back from it, as the program does it at its first start:
 * what follows is computed by what came from the file, or by what was compiled where that fails. */
static int ready(struct sh_device *d, char *why, size_t size)
{
    char file[64];
    bool kept;
    snprintf(file, sizeof file, "/tmp/shoal-kernels-%ld", (long)getpid());
    double t0 = now();
    int rc = d->build(d, file, &kept, why, size);
    if (rc) {
        return rc;
    }
    printf("%s, limit %.1f GB, kernels compiled in %.2f s\n", d->name, (double)d->limit * 1e-9,
           now() - t0);
    struct stat sb;
    if (!kept) {
        printf("they cannot be kept: %s\n", why);
    } else {
        t0 = now();
        long long bytes = stat(file, &sb) ? 0 : (long long)sb.st_size;
        bool taken = !d->load(d, file, why, size);
        printf("kept in %lld bytes; taken back in %.2f s: %s\n", bytes, now() - t0,
               taken ? "yes" : why);
    }
    (void)unlink(file);
    return 0;
}

int main(void)
{
    struct sh_device *d;
    struct gpu_opts o = {.say = print_line};
    struct kern_cpu_opts co = {.isa = KERN_ISA_AUTO};
    struct kern_backend *b;
    char why[300] = "";
    print_system("machdep.cpu.brand_string");
    print_system("kern.osproductversion");
    if (metal_device_open(&d, why, sizeof why)) {
        printf("no GPU backend: %s\n", why);
        return 1;
    }
    if (ready(d, why, sizeof why)) {
        printf("no GPU backend: %s\n", why);
        d->close(d);
        return 1;
    }
    double t0 = now();
    int broken = gpu_selftest(d, o.broken, print_line, NULL);
    if (broken < 0) {
        printf("the self-test did not run: %d\n", broken);
        d->close(d);
        return 1;
    }
    printf("self-test: %d of %d kernels differ from the CPU, %.2f s\n", broken, (int)SH_KERNELS,
           now() - t0);
    if (kern_cpu_open(&co, &o.cpu)) {
        d->close(d);
        return 1;
    }
    int rc = gpu_open(d, &o, &b);
    if (!rc) {
        rc = rates(b);
        b->close(b);
    }
    o.cpu->close(o.cpu);
    printf(rc ? "FAILED\n" : broken ? "DIFFERENT: please send this whole text\n" : "EQUAL\n");
    return rc || broken;
}
