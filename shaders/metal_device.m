/* SPDX-License-Identifier: MIT
 * metal_device.m: see metal_device.h. Thin: what is decided about order and memory is decided in
 * gpu.c. Compiled with ARC. */
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include "shaders/metal_device.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysctl.h>
#include <unistd.h>

#define RING 16 /* command buffers remembered: more than GPU_AHEAD */
_Static_assert(RING > GPU_AHEAD + 1, "a batch that may be waited for is remembered");

@interface ShoalMetal : NSObject {
@public
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLLibrary> library; /* once the text was compiled */
    id<MTLComputePipelineState> pipeline[SH_KERNELS];
    id<MTLCommandBuffer> open;
    id<MTLComputeCommandEncoder> encoder;
    id<MTLCommandBuffer> sent[RING];
    uint64_t committed;
    _Atomic uint64_t done;
    _Atomic bool failed;
    NSString *failure; /* written before failed is set */
}
@end

@implementation ShoalMetal
@end

struct metal {
    struct sh_device d;
    void *owner; /* a retained ShoalMetal */
    char name[96], system[64];
};

static ShoalMetal *of(struct sh_device *d)
{
    return (__bridge ShoalMetal *)((struct metal *)d)->owner;
}

/* ---- memory: pages of our own, seen by the GPU where they lie ---- */

static int metal_alloc(struct sh_device *d, size_t size, struct sh_mem *m)
{
    ShoalMetal *g = of(d);
    size_t page = (size_t)getpagesize(), whole;
    if (!size || __builtin_add_overflow(size, page - 1, &whole)) {
        return KERN_ENOMEM;
    }
    whole = whole / page * page;
    if (whole > g->device.maxBufferLength) {
        return KERN_ENOMEM;
    }
    void *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_ANON | MAP_PRIVATE, -1, 0);
    if (p == MAP_FAILED) {
        return KERN_ENOMEM;
    }
    id<MTLBuffer> b = [g->device newBufferWithBytesNoCopy:p
                                                   length:whole
                                                  options:MTLResourceStorageModeShared
                                              deallocator:nil];
    if (!b) {
        munmap(p, whole);
        return KERN_ENOMEM;
    }
    *m = (struct sh_mem){p, (__bridge_retained void *)b};
    return 0;
}

static void metal_free(struct sh_device *d, struct sh_mem *m)
{
    size_t whole;
    @autoreleasepool {
        id<MTLBuffer> b = (__bridge_transfer id<MTLBuffer>)m->handle;
        whole = b.length;
        b = nil;
    }
    munmap(m->host, whole);
}

/* ---- batches ---- */

static int metal_encode(struct sh_device *d, const struct sh_launch *l, void *const *handle)
{
    ShoalMetal *g = of(d);
    @autoreleasepool {
        if (!g->open) {
            g->open = [g->queue commandBuffer];
            /* serial: a launch sees all that the ones before it wrote */
            g->encoder = [g->open computeCommandEncoder];
            if (!g->encoder) {
                g->open = nil;
                return KERN_ENOMEM;
            }
        }
        [g->encoder setComputePipelineState:g->pipeline[l->kernel]];
        [g->encoder setBytes:&l->args length:l->args_size atIndex:0];
        for (uint32_t i = 0; i < l->buffers; i++) {
            [g->encoder setBuffer:(__bridge id<MTLBuffer>)handle[i]
                           offset:l->buf[i].off
                          atIndex:i + 1];
        }
        [g->encoder dispatchThreadgroups:MTLSizeMake(l->groups[0], l->groups[1], l->groups[2])
                   threadsPerThreadgroup:MTLSizeMake(l->threads, 1, 1)];
    }
    return 0;
}

static int metal_commit(struct sh_device *d, uint64_t *batch)
{
    ShoalMetal *g = of(d);
    @autoreleasepool {
        uint64_t n = ++g->committed;
        id<MTLCommandBuffer> commands = g->open;
        [g->encoder endEncoding];
        [commands addCompletedHandler:^(id<MTLCommandBuffer> b) {
            if (b.status == MTLCommandBufferStatusError && !atomic_load(&g->failed)) {
                g->failure = b.error.localizedDescription;
                atomic_store(&g->failed, true);
            }
            atomic_store(&g->done, n); /* buffers of one queue complete in order */
        }];
        [commands commit];
        g->sent[n % RING] = commands;
        g->open = nil;
        g->encoder = nil;
        *batch = n;
    }
    return 0;
}

static void metal_discard(struct sh_device *d)
{
    ShoalMetal *g = of(d);
    @autoreleasepool {
        [g->encoder endEncoding]; /* never committed */
        g->encoder = nil;
        g->open = nil;
    }
}

static int metal_wait(struct sh_device *d, uint64_t batch, char *why, size_t size)
{
    ShoalMetal *g = of(d);
    int rc = 0;
    @autoreleasepool {
        uint64_t first = batch + RING > g->committed ? 1 : g->committed - RING + 1;
        id<MTLCommandBuffer> b = batch < first ? nil : g->sent[batch % RING];
        [b waitUntilCompleted];
        if (atomic_load(&g->failed)) {
            snprintf(why, size, "the GPU stopped: %s", g->failure.UTF8String);
            rc = KERN_EINVAL;
        }
    }
    return rc;
}

static uint64_t metal_done(struct sh_device *d)
{
    return atomic_load(&of(d)->done);
}

static void metal_close(struct sh_device *d)
{
    struct metal *m = (struct metal *)d;
    @autoreleasepool {
        ShoalMetal *g = (__bridge_transfer ShoalMetal *)m->owner;
        if (g->committed) {
            [g->sent[g->committed % RING] waitUntilCompleted];
        }
        g = nil;
    }
    free(m);
}

/* ---- kernels ---- */

/* From the text, which is read once, if at all. */
static id<MTLLibrary> compile(ShoalMetal *g, NSError **error)
{
    if (g->library) {
        return g->library;
    }
    NSString *text = [[NSString alloc] initWithBytes:sh_metal_text
                                              length:sh_metal_text_size
                                            encoding:NSUTF8StringEncoding];
    MTLCompileOptions *o = [MTLCompileOptions new];
    if (@available(macOS 15.0, *)) {
        o.mathMode = MTLMathModeSafe;
        o.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
    } else {
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
        o.fastMathEnabled = NO;
#pragma clang diagnostic pop
    }
    g->library = [g->device newLibraryWithSource:text options:o error:error];
    return g->library;
}

static void say_error(NSError *error, const char *otherwise, char *why, size_t size)
{
    snprintf(why, size, "%s", error ? error.localizedDescription.UTF8String : otherwise);
}

static MTLComputePipelineDescriptor *describe(id<MTLLibrary> library, int k)
{
    MTLComputePipelineDescriptor *d = [MTLComputePipelineDescriptor new];
    NSString *name = [NSString stringWithUTF8String:sh_kernel_name((enum sh_kernel)k)];
    d.computeFunction = [library newFunctionWithName:name];
    return d;
}

/* All pipelines or none. archive: nil, or where compiled code may be; `only` there. */
static int pipelines(ShoalMetal *g, id<MTLLibrary> library, id<MTLBinaryArchive> archive, bool only,
                     char *why, size_t size)
{
    id<MTLComputePipelineState> all[SH_KERNELS];
    for (int k = 0; k < SH_KERNELS; k++) {
        const char *name = sh_kernel_name((enum sh_kernel)k);
        NSError *error = nil;
        MTLComputePipelineDescriptor *d = describe(library, k);
        d.binaryArchives = archive ? @[ archive ] : nil;
        id<MTLComputePipelineState> p =
            d.computeFunction
                ? [g->device newComputePipelineStateWithDescriptor:d
                                                           options:only
                                         ? MTLPipelineOptionFailOnBinaryArchiveMiss
                                         : MTLPipelineOptionNone
                                                        reflection:nil
                                                             error:&error]
                : nil;
        NSUInteger threads = k == SH_router ? SH_ROUTER_THREADS : SH_NORM_THREADS;
        if (!p) {
            snprintf(why, size, "kernel %s: %s", name,
                     error ? error.localizedDescription.UTF8String : "not in the library");
            return KERN_ENOTSUP;
        }
        if (p.threadExecutionWidth != 32 || p.maxTotalThreadsPerThreadgroup < threads) {
            snprintf(why, size, "kernel %s: SIMD groups of %lu, at most %lu threads together", name,
                     (unsigned long)p.threadExecutionWidth,
                     (unsigned long)p.maxTotalThreadsPerThreadgroup);
            return KERN_ENOTSUP;
        }
        all[k] = p;
    }
    for (int k = 0; k < SH_KERNELS; k++) {
        g->pipeline[k] = all[k];
    }
    return 0;
}

static NSURL *file_url(const char *file)
{
    NSString *path = [NSString stringWithUTF8String:file];
    return path ? [NSURL fileURLWithPath:path] : nil;
}

/* The compiled code of all kernels, written to the file, or nil. Metal compiles them here. */
static id<MTLBinaryArchive> write_archive(ShoalMetal *g, id<MTLLibrary> library, const char *file,
                                          char *why, size_t size)
{
    NSError *error = nil;
    id<MTLBinaryArchive> a =
        [g->device newBinaryArchiveWithDescriptor:[MTLBinaryArchiveDescriptor new] error:&error];
    NSURL *url = file_url(file);
    bool ok = a && url;
    for (int k = 0; ok && k < SH_KERNELS; k++) {
        MTLComputePipelineDescriptor *d = describe(library, k);
        ok = d.computeFunction && [a addComputePipelineFunctionsWithDescriptor:d error:&error];
    }
    ok = ok && [a serializeToURL:url error:&error];
    if (!ok) {
        say_error(error, "Metal makes no archive", why, size);
    }
    return ok ? a : nil;
}

static int metal_build(struct sh_device *d, const char *file, bool *kept, char *why, size_t size)
{
    ShoalMetal *g = of(d);
    int rc;
    @autoreleasepool {
        NSError *error = nil;
        id<MTLLibrary> library = compile(g, &error);
        id<MTLBinaryArchive> archive = nil;
        *kept = false;
        if (!library) {
            snprintf(why, size, "%s: %s", g->device.name.UTF8String,
                     error ? error.localizedDescription.UTF8String : "no library");
            rc = KERN_ENOTSUP;
        } else {
            archive = file ? write_archive(g, library, file, why, size) : nil;
            *kept = archive != nil;
            rc = pipelines(g, library, archive, false, why, size);
        }
    }
    return rc;
}

/* An archive has the kernels before and after the GPU's own compiler, so mostly it is the library,
 * too, and the text need not be read; where it is not, the text is compiled and the archive has the
 * rest. Whatever is not in it ends this: then it is made anew. */
static int metal_load(struct sh_device *d, const char *file, char *why, size_t size)
{
    ShoalMetal *g = of(d);
    int rc = KERN_ENOTSUP;
    @autoreleasepool {
        NSError *error = nil;
        NSURL *url = file_url(file);
        MTLBinaryArchiveDescriptor *o = [MTLBinaryArchiveDescriptor new];
        o.url = url;
        id<MTLBinaryArchive> archive =
            url ? [g->device newBinaryArchiveWithDescriptor:o error:&error] : nil;
        if (!archive) {
            say_error(error, "Metal does not take the file", why, size);
        } else {
            id<MTLLibrary> library = [g->device newLibraryWithURL:url error:&error];
            rc = library ? pipelines(g, library, archive, true, why, size) : KERN_ENOTSUP;
            if (rc) {
                library = compile(g, &error);
                rc = library ? pipelines(g, library, archive, true, why, size) : KERN_ENOTSUP;
            }
            if (!library) {
                say_error(error, "no library", why, size);
            }
        }
    }
    return rc;
}

/* ---- open ---- */

static int prepare(ShoalMetal *g, char *why, size_t size)
{
    g->device = MTLCreateSystemDefaultDevice();
    if (!g->device) {
        snprintf(why, size, "this system offers no Metal device");
        return KERN_ENOTSUP;
    }
    g->queue = [g->device newCommandQueue];
    if (!g->queue) {
        snprintf(why, size, "%s: no command queue", g->device.name.UTF8String);
        return KERN_ENOTSUP;
    }
    return 0;
}

/* "15.1 24B83": the driver and its compiler come with the system. */
static void name_system(char *out, size_t size)
{
    char version[24] = "?", build[24] = "?";
    size_t n = sizeof version;
    (void)sysctlbyname("kern.osproductversion", version, &n, NULL, 0);
    n = sizeof build;
    (void)sysctlbyname("kern.osversion", build, &n, NULL, 0);
    snprintf(out, size, "%.23s %.23s", version, build);
}

int metal_device_open(struct sh_device **out, char *why, size_t size)
{
    struct metal *m = calloc(1, sizeof *m);
    int rc;
    *out = NULL;
    if (!m) {
        return KERN_ENOMEM;
    }
    @autoreleasepool {
        ShoalMetal *g = [ShoalMetal new];
        rc = prepare(g, why, size);
        if (!rc) {
            snprintf(m->name, sizeof m->name, "metal/%s", g->device.name.UTF8String);
            name_system(m->system, sizeof m->system);
            m->d = (struct sh_device){
                .name = m->name,
                .system = m->system,
                .limit = (size_t)g->device.recommendedMaxWorkingSetSize,
                .text = sh_metal_text,
                .text_size = sh_metal_text_size,
                .build = metal_build,
                .load = metal_load,
                .alloc = metal_alloc,
                .free = metal_free,
                .encode = metal_encode,
                .commit = metal_commit,
                .discard = metal_discard,
                .wait = metal_wait,
                .done = metal_done,
                .close = metal_close,
            };
            m->owner = (__bridge_retained void *)g;
        }
    }
    if (rc) {
        free(m);
        return rc;
    }
    *out = &m->d;
    return 0;
}
