/* SPDX-License-Identifier: MIT
 * gpu.h: kernels/backend.h on a GPU with memory that host and GPU share.
 *
 * What is decided here is decided for any such GPU and tested without one: order, the life of
 * buffers while commands are in flight, how far the host may run ahead, memory limits, and which
 * commands go to the CPU because a kernel failed its self-test. A device only allocates, encodes,
 * commits and waits; metal_device.h is the real one. */
#ifndef SHOAL_SHADERS_GPU_H
#define SHOAL_SHADERS_GPU_H

#include "kernels/backend.h"
#include "shaders/plan.h"

struct sh_mem {
    void *host;   /* zeroed, page-aligned */
    void *handle; /* the device's */
};

/* alloc, free and done may be called on any thread, also beside the others; of these one thread at
 * a time calls one. Launches of all batches take effect in order. */
struct sh_device {
    const char *name;
    const char *system; /* version and build: what the GPU computes with may change with it */
    size_t limit;       /* bytes that may be allocated in all */
    const void *text;   /* what its kernels are compiled from */
    size_t text_size;
    /* One of these two, or both, before the first launch. build compiles the kernels; file: NULL,
     * or a path where nothing is yet, for the compiled code: *kept says whether all of it is there.
     * 0, or KERN_ENOTSUP and a sentence: it does not take them. load takes the kernels from a file
     * that build has written with this name, system and text; KERN_ENOTSUP: it cannot, and nothing
     * has changed. */
    int (*build)(struct sh_device *d, const char *file, bool *kept, char *why, size_t size);
    int (*load)(struct sh_device *d, const char *file, char *why, size_t size);
    int (*alloc)(struct sh_device *d, size_t size, struct sh_mem *m); /* 0 or KERN_ENOMEM */
    void (*free)(struct sh_device *d, struct sh_mem *m);              /* no batch uses it */
    /* Adds a launch to the open batch. handle[i] belongs to l->buf[i]. 0 or KERN_E*. */
    int (*encode)(struct sh_device *d, const struct sh_launch *l, void *const *handle);
    /* Hands the open batch (which has launches) to the GPU: it gets the next number, from 1. */
    int (*commit)(struct sh_device *d, uint64_t *batch);
    /* Drops the launches of the open batch. */
    void (*discard)(struct sh_device *d);
    /* Until the batch and all before it are done and visible. 0, or KERN_EINVAL with a sentence. */
    int (*wait)(struct sh_device *d, uint64_t batch, char *why, size_t size);
    uint64_t (*done)(struct sh_device *d); /* the last batch that is done */
    void (*close)(struct sh_device *d);
};

#define GPU_AHEAD 8 /* batches that the host may be ahead of the GPU */

struct gpu_opts {
    struct sh_plan_opts plan;
    struct kern_backend *cpu;          /* runs what the GPU may not, and everything once the GPU has
                                          failed; stays the caller's. NULL: then all fails */
    bool broken[SH_KERNELS];           /* kernels that must not be used: gpu_selftest */
    void (*say)(void *, const char *); /* errors of the device, as sentences; may be NULL */
    void *ctx;
};

/* Takes the device over, also when it fails. 0 or KERN_ENOMEM. Submissions are batches. A failure
 * of the device is an error of submit or wait, once: the results of what was not waited for are
 * lost, and what is submitted after it is computed by the CPU. Buffers may be freed while commands
 * use them: their memory goes when these are done. KERN_ENOMEM from submit: nothing was started,
 * and it may be tried again when something was freed. */
int gpu_open(struct sh_device *d, const struct gpu_opts *o, struct kern_backend **out);

/* For `shoal doctor`: commands that went to the CPU, batches. */
struct gpu_counts {
    uint64_t batches, on_cpu;
    size_t allocated;
    bool lost; /* the device failed */
};
void gpu_counts(const struct kern_backend *b, struct gpu_counts *c);

/* Runs every kernel on made-up operands inside NUMERICS.md's domain, in the kernels' aligned and
 * their plain shapes, and compares with the CPU's scalar reference bit for bit. A kernel that
 * differs is set in broken and told to say: its name, the command, the place, both values. Returns
 * the number of broken kernels, or KERN_ENOMEM, KERN_EINVAL (the device failed). About a second. */
int gpu_selftest(struct sh_device *d, bool broken[SH_KERNELS], void (*say)(void *, const char *),
                 void *ctx);

#endif
