// SPDX-License-Identifier: MIT
// run.cu: the shaders as CUDA on a real GPU, in K3's shapes: bit for bit against kernels/ scalar,
// and how fast each reads its memory next to how fast this GPU can. See ../cuda.sh.
//
//   run [small] [bits] [rates]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

extern "C" {
#include "kernels/backend.h"
#include "kernels/cpu.h"
#include "shaders/plan.h"
#include "shaders/cases.h"
}

#include "shaders/elementwise.metal"
#include "shaders/head.metal"
#include "shaders/kda.metal"
#include "shaders/mix.metal"
#include "shaders/mla.metal"
#include "shaders/norms.metal"
#include "shaders/product.metal"
#include "shaders/router.metal"
#include "shaders/softmax.metal"
#undef inline
#undef device
#undef constant
#undef thread
#undef kernel

struct pointers {
    void *p[SH_BUFFERS];
};

// From the type of a kernel to a call with its buffers out of an array.
template <class Sig> struct expand;
template <class A, class... B> struct expand<void(const A &, uint3, uint, uint, uint, B...)> {
    template <class K, size_t... I>
    static __device__ __forceinline__ void go(const A &a, const pointers &b,
                                              std::index_sequence<I...>)
    {
        uint3 group;
        group.x = blockIdx.x;
        group.y = blockIdx.y;
        group.z = blockIdx.z;
        K::call(a, group, (uint)threadIdx.x, (uint)(threadIdx.x % 32), (uint)(threadIdx.x / 32),
                (B)b.p[I]...);
    }
};

#define SH_KERNEL(name, type, buffers)                                                             \
    struct call_##name {                                                                           \
        template <class... X> static __device__ __forceinline__ void call(const type &a, X... x)   \
        {                                                                                          \
            name(a, x...);                                                                         \
        }                                                                                          \
    };                                                                                             \
    static __global__ void run_##name(const __grid_constant__ type a,                              \
                                      const __grid_constant__ pointers b)                          \
    {                                                                                              \
        expand<decltype(name)>::template go<call_##name>(a, b,                                     \
                                                         std::make_index_sequence<buffers>());     \
    }
#include "shaders/kernels.h"
#undef SH_KERNEL

#define OK(call)                                                                                   \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void launch(const struct sh_launch &l, const pointers &b, cudaStream_t s)
{
    dim3 grid(l.groups[0], l.groups[1], l.groups[2]);
    switch (l.kernel) {
#define SH_KERNEL(name, type, buffers)                                                             \
    case SH_##name:                                                                                \
        run_##name<<<grid, l.threads, 0, s>>>(*(const struct type *)&l.args, b);                   \
        break;
#include "shaders/kernels.h"
#undef SH_KERNEL
    default:
        break;
    }
    OK(cudaGetLastError());
}

static int keep(void *ctx, const struct sh_launch *l)
{
    ((std::vector<sh_launch> *)ctx)->push_back(*l);
    return 0;
}

// ---- bits ----

struct rig {
    struct kern_backend *cpu;
    struct kern_buf *arena;
    std::vector<sh_launch> plan;
    struct kern_buf scratch; // host: NULL, a name only
    struct case_built c;
    size_t size;
};

static void plan_case(rig &r, size_t i, const case_scale &s, case_mood mood)
{
    r.size = case_arena(i, &s);
    r.arena = r.cpu->alloc(r.cpu, r.size);
    if (!r.arena) {
        fprintf(stderr, "no memory for %s\n", case_name(i));
        exit(1);
    }
    case_build(i, &s, mood, r.arena, &r.c);
    struct sh_plan_opts o = {};
    r.scratch = {};
    r.plan.clear();
    if (!sh_plan_scratch(&r.c.cmd, &o, &r.scratch.size) ||
        sh_plan(&r.c.cmd, &o, &r.scratch, keep, &r.plan)) {
        fprintf(stderr, "%s: no plan\n", case_name(i));
        exit(1);
    }
}

static pointers bind(const rig &r, const sh_launch &l, char *arena, char *scratch)
{
    pointers b = {};
    for (uint32_t i = 0; i < l.buffers; i++) {
        b.p[i] = (l.buf[i].buf == &r.scratch ? scratch : arena) + l.buf[i].off;
    }
    return b;
}

static int bits(rig &r, const case_scale &s, bool small)
{
    int bad = 0;
    for (size_t i = 0; i < case_count(); i++) {
        printf("%-28s", case_name(i));
        for (int mood = CASE_TAME; mood <= (small ? CASE_TAME : CASE_HOSTILE); mood++) {
            plan_case(r, i, s, (case_mood)mood);
            char *arena, *scratch;
            OK(cudaMalloc(&arena, r.size));
            OK(cudaMalloc(&scratch, r.scratch.size + 64));
            OK(cudaMemset(scratch, 0xff, r.scratch.size + 64));
            OK(cudaMemcpy(arena, r.arena->host, r.size, cudaMemcpyHostToDevice));
            for (const sh_launch &l : r.plan) {
                launch(l, bind(r, l, arena, scratch), 0);
            }
            OK(cudaDeviceSynchronize());
            char *got = (char *)malloc(r.size);
            for (unsigned o = 0; got && o < r.c.outs; o++) {
                OK(cudaMemcpy(got + r.c.out[o].off, arena + r.c.out[o].off, r.c.out[o].size,
                              cudaMemcpyDeviceToHost));
            }
            uint64_t fence;
            if (!got || r.cpu->submit(r.cpu, &r.c.cmd, 1, &fence) || r.cpu->wait(r.cpu, fence)) {
                fprintf(stderr, "the reference did not run\n");
                exit(1);
            }
            size_t at = case_compare(&r.c, r.arena->host, got);
            if (at != SIZE_MAX) {
                uint32_t w, g;
                memcpy(&w, (char *)r.arena->host + at, 4);
                memcpy(&g, got + at, 4);
                printf("  DIFFERS at byte %zu: %08x, scalar %08x", at, g, w);
                bad++;
            } else {
                printf("  equal");
            }
            fflush(stdout);
            free(got);
            OK(cudaFree(arena));
            OK(cudaFree(scratch));
            r.cpu->free(r.cpu, r.arena);
        }
        printf("\n");
    }
    return bad;
}

static int argmax_bits(bool small)
{
    const uint32_t n = small ? 9000 : 163840, T = 3;
    std::vector<float> x(n * T);
    uint32_t rng = 7, ids[T], bad = 0;
    for (float &v : x) {
        rng = rng * 1664525u + 1013904223u;
        v = (float)(rng >> 18);
    }
    x[2 * n + n - 1] = 20000.0f;
    char *d, *scratch;
    size_t bytes = x.size() * 4;
    OK(cudaMalloc(&d, bytes + 64));
    OK(cudaMalloc(&scratch, sh_argmax_scratch(n, T)));
    OK(cudaMemcpy(d, x.data(), bytes, cudaMemcpyHostToDevice));
    rig r = {};
    struct kern_buf arena = {NULL, bytes + 64, NULL};
    std::vector<sh_launch> plan;
    sh_plan_argmax(kern_at(&arena, 0), n, T, kern_at(&arena, bytes), kern_at(&arena, bytes + 32),
                   &r.scratch, keep, &plan);
    for (const sh_launch &l : plan) {
        launch(l, bind(r, l, d, scratch), 0);
    }
    OK(cudaMemcpy(ids, d + bytes, sizeof ids, cudaMemcpyDeviceToHost));
    for (uint32_t t = 0; t < T; t++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++) {
            best = x[t * n + i] > x[t * n + best] ? i : best;
        }
        bad += ids[t] != best;
    }
    printf("%-28s  %s\n", "argmax", bad ? "DIFFERS" : "equal");
    OK(cudaFree(d));
    OK(cudaFree(scratch));
    return (int)bad;
}

// ---- rates ----

static __global__ void read_all(const uint4 *p, size_t n, uint *out)
{
    uint4 s = make_uint4(0, 0, 0, 0);
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 a = p[i], b = p[i + step], c = p[i + 2 * step], d = p[i + 3 * step];
        s.x ^= a.x ^ b.x ^ c.x ^ d.x;
        s.y ^= a.y ^ b.y ^ c.y ^ d.y;
        s.z ^= a.z ^ b.z ^ c.z ^ d.z;
        s.w ^= a.w ^ b.w ^ c.w ^ d.w;
    }
    if ((s.x ^ s.y ^ s.z ^ s.w) == 0x9e3779b9u) {
        *out = 1;
    }
}

// Median of seven, in microseconds.
template <class F> static double timed(F work, cudaStream_t s)
{
    std::vector<float> t;
    cudaEvent_t a, b;
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    work();
    for (int i = 0; i < 7; i++) {
        float ms;
        OK(cudaEventRecord(a, s));
        work();
        OK(cudaEventRecord(b, s));
        OK(cudaEventSynchronize(b));
        OK(cudaEventElapsedTime(&ms, a, b));
        t.push_back(ms);
    }
    OK(cudaEventDestroy(a));
    OK(cudaEventDestroy(b));
    std::sort(t.begin(), t.end());
    return t[3] * 1e3;
}

static double read_rate()
{
    size_t bytes = (size_t)4 << 30;
    char *p;
    uint *out;
    OK(cudaMalloc(&p, bytes));
    OK(cudaMalloc(&out, 4));
    OK(cudaMemset(p, 1, bytes));
    double us = timed([&] { read_all<<<132 * 16, 512>>>((uint4 *)p, bytes / 16, out); }, 0);
    OK(cudaFree(p));
    OK(cudaFree(out));
    return bytes / us * 1e-3;
}

#define BRANCHES 16

// `reps` times the launches, over copies of the arena, in `branches` chains side by side.
static double graph_us(const rig &r, const std::vector<sh_launch> &plan, char *arena, size_t copies,
                       char *scratch, int reps, int branches)
{
    cudaStream_t s[BRANCHES];
    cudaEvent_t start, ends[BRANCHES];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int i = 0; i < branches; i++) {
        OK(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking));
        OK(cudaEventCreateWithFlags(&ends[i], cudaEventDisableTiming));
    }
    OK(cudaEventCreateWithFlags(&start, cudaEventDisableTiming));
    OK(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(start, s[0]));
    for (int i = 1; i < branches; i++) {
        OK(cudaStreamWaitEvent(s[i], start, 0));
    }
    for (int i = 0; i < reps; i++) {
        int at = i % branches;
        for (const sh_launch &l : plan) {
            launch(l,
                   bind(r, l, arena + (i % copies) * r.size,
                        scratch + at * (r.scratch.size + 64) / 64 * 64),
                   s[at]);
        }
    }
    for (int i = 1; i < branches; i++) {
        OK(cudaEventRecord(ends[i], s[i]));
        OK(cudaStreamWaitEvent(s[0], ends[i], 0));
    }
    OK(cudaStreamEndCapture(s[0], &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    double us = timed([&] { OK(cudaGraphLaunch(exec, s[0])); }, s[0]) / reps;
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    for (int i = 0; i < branches; i++) {
        OK(cudaStreamDestroy(s[i]));
        OK(cudaEventDestroy(ends[i]));
    }
    OK(cudaEventDestroy(start));
    return us;
}

static void rates(rig &r, const case_scale &s)
{
    double peak = read_rate();
    printf("\nmemory read rate %.0f GB/s (4 GiB, 16-byte loads)\n", peak);
    printf("%-28s %9s | %9s %8s %6s | %9s %8s %6s | %6s\n", "", "MB", "alone us", "GB/s", "share",
           "16 abreast", "GB/s", "share", "GFLOPs");
    for (size_t i = 0; i < case_count(); i++) {
        plan_case(r, i, s, CASE_TAME);
        size_t copies = std::min<size_t>(64, ((size_t)768 << 20) / r.size + 1);
        int reps = (int)std::max<size_t>(r.size > (size_t)1 << 30 ? 4 : 32, copies);
        char *arena, *scratch;
        OK(cudaMalloc(&arena, r.size * copies));
        OK(cudaMalloc(&scratch, (r.scratch.size + 64) * BRANCHES));
        OK(cudaMemcpy(arena, r.arena->host, r.size, cudaMemcpyHostToDevice));
        for (size_t k = 1; k < copies; k++) {
            OK(cudaMemcpy(arena + k * r.size, arena, r.size, cudaMemcpyDeviceToDevice));
        }
        double one = graph_us(r, r.plan, arena, copies, scratch, reps, 1);
        double many = graph_us(r, r.plan, arena, copies, scratch, reps, BRANCHES);
        double gb = r.c.bytes * 1e-3;
        printf("%-28s %9.3f | %9.2f %8.1f %5.1f%% | %9.2f %8.1f %5.1f%% | %6.0f\n", r.c.name,
               r.c.bytes * 1e-6, one, gb / one, 100 * gb / one / peak, many, gb / many,
               100 * gb / many / peak, r.c.flop * 1e-3 / one);
        for (size_t k = 0; r.plan.size() > 1 && k < r.plan.size(); k++) {
            std::vector<sh_launch> step(1, r.plan[k]);
            printf("    %-24s %9s | %9.2f\n", sh_kernel_name(step[0].kernel), "",
                   graph_us(r, step, arena, copies, scratch, reps, 1));
        }
        fflush(stdout);
        OK(cudaFree(arena));
        OK(cudaFree(scratch));
        r.cpu->free(r.cpu, r.arena);
    }
}

int main(int argc, char **argv)
{
    bool small = false, want_bits = false, want_rates = false;
    for (int i = 1; i < argc; i++) {
        small |= !strcmp(argv[i], "small");
        want_bits |= !strcmp(argv[i], "bits");
        want_rates |= !strcmp(argv[i], "rates");
    }
    rig r = {};
    struct kern_cpu_opts o = {};
    o.isa = KERN_ISA_SCALAR;
    o.threads = small ? 2 : 16;
    if (kern_cpu_open(&o, &r.cpu)) {
        fprintf(stderr, "no CPU backend\n");
        return 1;
    }
    struct case_scale s = small ? case_scale{96, 24, 100} : case_scale{1, 1, 1};
    cudaDeviceProp p;
    OK(cudaGetDeviceProperties(&p, 0));
    printf("%s, %d multiprocessors, %.0f MB L2\n", p.name, p.multiProcessorCount,
           p.l2CacheSize * 1e-6);
    int bad = 0;
    if (want_bits) {
        printf("%s shapes: three kinds of data, %s\n", small ? "small" : "K3's full",
               small ? "the first only" : "tame, wide, hostile");
        bad = bits(r, s, small) + argmax_bits(small);
        printf("%d differences\n", bad);
    }
    if (want_rates) {
        rates(r, s);
    }
    r.cpu->close(r.cpu);
    return bad != 0;
}
